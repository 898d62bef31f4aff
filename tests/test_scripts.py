"""The scripts that write example data and benchmark inputs, held against other people's readers."""

import pathlib
import struct
import subprocess
import sys
import tarfile
import zlib

import pytest
from tfrecord.example_pb2 import Example

from tests.makers import read_tar, read_tfrecord, write_tar

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import bench_repack  # noqa: E402
import make_data  # noqa: E402


def test_real_data_with_other_counts_is_noticed(tmp_path):
    write_tar(tmp_path / "stamps" / "a.tar", [("x/a.png", b"1"), ("x/a.txt", b"2"), ("x/b.png", b"3")])
    (tmp_path / "counts.json").write_text('{"stamps": {"samples": 3, "format": "tar"}}')
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check_real.py", "--data", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 1 and not done.stderr, done.stderr
    assert "| stamps, tars | 2 sets of fields | 3 | 2 | 2 | samples is 2, counts.json says 3 |" in done.stdout
    assert done.stdout.count("not there") == 5


def test_a_png_holds_its_pixels():
    grey = bytes(range(12))
    data = make_data.png(4, 3, grey)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == struct.unpack_from(">I", data, at + 8 + size)[0]
        chunks[kind] = body
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (4, 3, 8, 0, 0, 0, 0)
    lines = zlib.decompress(chunks[b"IDAT"])
    assert b"".join(lines[k * 5 + 1 : k * 5 + 5] for k in range(3)) == grey


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**40])
def test_an_example_is_what_protobuf_reads(number):
    data = make_data.example({"number": number, "image": b"x" * 200})
    feature = Example.FromString(data).features.feature
    assert dict(feature.items()).keys() == {"image", "number"}
    assert feature["image"].bytes_list.value[:] == [b"x" * 200]
    assert feature["number"].int64_list.value[:] == [number]


def test_files_are_what_others_read_and_the_same_each_time(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        make_data.write_tfrecord(tmp_path / folder / "a.tfrecord", [b"one", b"", b"three"])
        make_data.write_tar(tmp_path / folder / "a.tar", [("0.png", b"image"), ("0.cls", b"7")])
    assert read_tfrecord(tmp_path / "one" / "a.tfrecord") == [b"one", b"", b"three"]
    assert read_tar(tmp_path / "one" / "a.tar") == [("0.png", b"image"), ("0.cls", b"7")]
    for name in ("a.tfrecord", "a.tar"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("kind", ["tfrecord", "tar"])
def test_the_benchmark_sees_every_loss(tmp_path, kind):
    source = tmp_path / "in"
    {"tfrecord": bench_repack.make_tfrecord, "tar": bench_repack.make_tar}[kind](str(source), 24)
    whole = bench_repack.check(str(source), kind)
    assert whole[0] == 24
    first = sorted(source.iterdir())[0]
    if kind == "tfrecord":
        records = read_tfrecord(first)
        make_data.write_tfrecord(first, [*records[:-1], records[0]])  # one lost, one twice
    else:
        members = read_tar(first)
        make_data.write_tar(first, [*members[:-1], ("00000002.cls", b"wrong")])
    altered = bench_repack.check(str(source), kind)
    assert altered[0] == 24 and altered != whole


def test_the_benchmark_runs(tmp_path):
    """Small; what it times is the business of docs/benchmarks.md."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "bench_repack.py"), "--work", str(tmp_path), "--only", "tar",
         "--samples", "40", "--rounds", "1", "--peer-rounds", "1"],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| 40 tar samples of 10 KiB |") == 4
    for k in range(8):
        assert tarfile.is_tarfile(tmp_path / "tar" / f"{k:06d}.tar")


@pytest.mark.parametrize("job", ["folder", "gzip", "conversion"])
def test_the_benchmark_of_sources_runs(tmp_path, job):
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "bench_sources.py"), "--work", str(tmp_path), "--only", job,
         "--rounds", "1", "--scale", "0.001"],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("|\n|") >= 2 and "Ratio" in done.stdout
