"""Digests of samples against hashlib over what Python's tarfile reads."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import makers

from shardtool.disk import payloads
from shardtool.disk.formats import scan_file
from shardtool.disk.payloads import sample_digests
from shardtool.layout.multiset import sample_digest
from shardtool.layout.rules import Rules


def ours(path, kind, **options):
    name = os.fsencode(path)
    scanned = scan_file(kind, name, name, Rules(**options), check_payload=True)
    return [row.tobytes() for row in sample_digests(name, name, scanned)]


def by_tarfile(path):
    """Samples of neighbouring members, each field's payload by tarfile."""
    samples = []
    with tarfile.open(path) as archive:
        for member in archive:
            key, _, field = member.name.partition(".")
            digest = hashlib.sha256(archive.extractfile(member).read()).digest()
            if not samples or samples[-1][0] != key:
                samples.append((key, []))
            samples[-1][1].append((field.encode(), digest))
    return [sample_digest(fields) for _, fields in samples]


def test_records(tmp_path):
    path = makers.write_tfrecord(tmp_path / "x.tfrecord", [b"", b"abc", bytes(100_000)])
    assert ours(path, "tfrecord") == [hashlib.sha256(d).digest() for d in (b"", b"abc", bytes(100_000))]


def test_members(tmp_path):
    path = makers.sorted_tars(tmp_path, files=1) / "train-000000.tar"
    assert ours(path, "tar") == by_tarfile(path)


def test_payloads_larger_than_the_window(tmp_path, monkeypatch):
    monkeypatch.setattr(payloads, "WINDOW", 1000)
    big = bytes(i % 251 for i in range(12_345))
    path = makers.write_tar(tmp_path / "x.tar", [("a.bin", big), ("b.bin", big[:1000]), ("c.bin", big[:1001])])
    assert ours(path, "tar") == by_tarfile(path)


def test_hard_links_have_the_content_of_their_target(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        import io

        info = tarfile.TarInfo("a.cls")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"7"))
        link = tarfile.TarInfo("b.cls")
        link.type, link.linkname = tarfile.LNKTYPE, "a.cls"
        archive.addfile(link)
    found = ours(path, "tar")
    assert found[0] == found[1] == sample_digest([(b"cls", hashlib.sha256(b"7").digest())])


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_holes_are_zeros(tmp_path, form):
    version = subprocess.run(["tar", "--version"], capture_output=True, text=True).stdout
    if "GNU tar" not in version:
        pytest.skip("needs GNU tar")
    with open(tmp_path / "a.bin", "wb") as file:
        file.seek(300_000)
        file.write(b"middle")
        file.seek(700_000)
        file.write(b"end")
        file.truncate(900_001)
    path = tmp_path / "x.tar"
    subprocess.run(["tar", "-S", f"--format={form}", "-C", tmp_path, "-cf", path, "a.bin"], check=True)
    if path.stat().st_size > 500_000:
        pytest.skip("this file system keeps no holes")
    whole = (tmp_path / "a.bin").read_bytes()
    assert ours(path, "tar") == [sample_digest([(b"bin", hashlib.sha256(whole).digest())])]
