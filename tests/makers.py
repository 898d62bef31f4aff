"""Small inputs for tests, written without shardtool: struct, tarfile and google's arithmetic spelled out."""

import io
import struct
import tarfile

import crc32c


def masked(data):
    c = crc32c.crc32c(data)
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload):
    head = struct.pack("<Q", len(payload))
    return head + struct.pack("<I", masked(head)) + payload + struct.pack("<I", masked(payload))


def write_tfrecord(path, payloads):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(frame, payloads)))
    return path


def write_tar(path, members, format=tarfile.USTAR_FORMAT, mtime=0):
    """members: (name, payload) pairs in order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as archive:
        for name, payload in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(payload), mtime
            archive.addfile(info, io.BytesIO(payload))
    return path


def read_tfrecord(path):
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        payload = data[at + 12 : at + 12 + size]
        assert data[at : at + 16 + size] == frame(payload)
        found.append(payload)
        at += 16 + size
    return found


def read_tar(path):
    """[(name, payload)] by Python's tarfile."""
    with tarfile.open(path) as archive:
        return [(m.name, archive.extractfile(m).read()) for m in archive]


def sorted_tfrecords(folder, files=3, records=20, size=40):
    """Records 'FILE-NUMBER...' of different lengths, in `files` files."""
    for f in range(files):
        payloads = [b"%d-%d." % (f, k) + bytes([k % 251]) * (size + k % 7) for k in range(records)]
        write_tfrecord(folder / f"part-{f:05}-of-{files:05}.tfrecord", payloads)
    return folder


def sorted_tars(folder, files=3, samples=20, size=700):
    """Samples with two fields, one label a file."""
    for f in range(files):
        members = []
        for k in range(samples):
            members.append((f"c{f}/{k:04}.jpg", bytes([k % 251]) * (size + 13 * (k % 7))))
            members.append((f"c{f}/{k:04}.cls", b"%d" % f))
        write_tar(folder / f"train-{f:06}.tar", members, mtime=1_700_000_000)
    return folder


def content(folder):
    """relative name -> bytes of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
