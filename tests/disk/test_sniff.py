"""What a file is, from its first bytes."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib

import crc32c
import numpy as np
import pytest

from shardtool.disk.formats.sniff import (
    compression_of,
    first_words,
    looks_like_tar,
    looks_like_tfrecord,
    not_a,
    what_is,
)
from tests.disk.tarmaker import END, damaged, head, member


def record(payload):
    length = struct.pack("<Q", len(payload))
    crc = crc32c.crc32c(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return length + struct.pack("<I", masked) + payload


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(b"x", mtime=0), "gzip"),
        (bz2.compress(b"x"), "bz2"),
        (lzma.compress(b"x"), "xz"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd"),
        (b"\x5a\x2a\x4d\x18\0\0\0\0", "zstd"),  # a skippable frame
        *((zlib.compress(b"x", level), "zlib") for level in range(10)),
        (b"", None), (b"x", None), (b"plain text", None), (bytes(512), None), (member(b"a.jpg", b""), None),
    ],
)  # fmt: skip
def test_compressions(data, kind):
    assert compression_of(data) == kind


def test_a_plain_tfrecord_may_begin_like_gzip():
    data = record(bytes(0x8B1F))
    assert data[:2] == b"\x1f\x8b" and looks_like_tfrecord(data[:12])
    assert what_is(data[:1024]) == "a TFRecord file"
    assert not looks_like_tfrecord(data[:11]) and not looks_like_tfrecord(damaged(data[:12], 0))


def test_tars():
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as archive:
            archive.addfile(tarfile.TarInfo("é/" * 50 + ".jpg"))
        assert looks_like_tar(out.getvalue()[:512])
    assert looks_like_tar(head(magic=b"")) and looks_like_tar(END)
    assert not looks_like_tar(b"") and not looks_like_tar(bytes(511)) and not looks_like_tar(bytes(600) + b"x")
    assert not looks_like_tar(damaged(head(), 0)) and not looks_like_tar(head()[:511])


def npy():
    out = io.BytesIO()
    np.save(out, np.arange(3))
    return out.getvalue()


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", "b")
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (npy(), ".npy"),
        (zipped(), "zip"),
        (gzip.compress(b"x" * 99, mtime=0), "gzip-compressed"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"ARROW1\0\0", "Arrow"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x0a\x23\xd7\xce" + bytes(20), "MXNet"),
        (bytes.fromhex("83af70d10d884a3f0000000000000000"), "Riegeli or ArrayRecord"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
        (b"\n <!DOCTYPE HTML>\n<html>", "HTML"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>", "XML"),
        (b'{"error": "not found"}', "JSON"),
        (member(b"a.jpg", b""), "a tar archive"),
    ],
)
def test_what_a_file_is(data, word):
    assert word in what_is(data)
    if word != "a tar archive":
        assert not_a("a tar archive", data) == f"not a tar archive, but {what_is(data)}"


def test_what_is_not_known():
    assert what_is(b"") is None and what_is(b"\0\1\2") is None
    assert first_words(b"curl: (22) error\nmore") == "curl: (22) error" and first_words(b"ab\0") is None
    words = "not a TFRecord file; the file begins with "
    assert not_a("a TFRecord file", b"curl: (22) error\n") == words + "'curl: (22) error'"
    assert not_a("a TFRecord file", b"\0\1") == words + "bytes 00 01"
