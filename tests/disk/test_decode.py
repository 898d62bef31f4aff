"""Decoders: every compression, whole and damaged everywhere, against the libraries and tools that wrote it."""

import bz2
import gzip
import io
import lzma
import random
import resource
import shutil
import struct
import subprocess
import sys
import tracemalloc
import zlib

import pytest

from shardtool.base.errors import DataError, HostError
from shardtool.disk import decode
from shardtool.disk.decode import OUTPUT, Decoder, TooLarge, known_size, salvage

zstd = decode.zstd()


def zstd_compress(data, level=3, checksum=True):
    options = {
        zstd.CompressionParameter.checksum_flag: int(checksum), zstd.CompressionParameter.compression_level: level
    }  # fmt: skip
    return zstd.compress(data, options=options)


ENCODE = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "zlib": lambda data: zlib.compress(data, 6),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": zstd_compress,
}
KINDS = sorted(ENCODE)
SEVERAL = [kind for kind in KINDS if kind != "zlib"]


def text(lines, seed=0):
    draw = random.Random(seed)
    return b"".join(b"%d %x\n" % (k, draw.getrandbits(draw.randrange(1, 90))) for k in range(lines))


DATA = text(150)


@pytest.fixture
def run(tmp_path):
    """(content, error or None) of a file with these bytes."""
    path = tmp_path / "x"

    def run(kind, stream, **options):
        path.write_bytes(stream)
        out = []
        with Decoder(bytes(path), b"x", kind, **options) as decoder:
            try:
                out.extend(decoder)
            except DataError as error:
                return b"".join(out), error
            assert decoder.offset == len(stream) and decoder.trusted == decoder.produced
        return b"".join(out), None

    return run


def facts(error):
    return (error.what, error.offset, error.why) if error else None


# -- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_whole(run, kind, fast):
    for data in (b"", b"x", DATA, text(40_000), bytes(3_000_000)):
        assert run(kind, ENCODE[kind](data), fast=fast) == (data, None)


@pytest.mark.parametrize("kind", SEVERAL)
def test_several_members(run, kind):
    parts = [b"", b"a", DATA, b"", text(9000, 1)] + [b"%d" % k for k in range(300)]
    stream = b"".join(ENCODE[kind](part) for part in parts)
    assert run(kind, stream) == (b"".join(parts), None)


def test_many_small_members_take_no_quadratic_time(run):
    stream = b"".join(ENCODE["gzip"](b"%d" % k) for k in range(20_000))
    assert run("gzip", stream) == (b"".join(b"%d" % k for k in range(20_000)), None)


def test_every_field_of_a_gzip_header(run):
    deflated = zlib.compress(DATA)[2:-4]
    trailer = struct.pack("<II", zlib.crc32(DATA), len(DATA))
    head = b"\x1f\x8b\x08" + bytes([1 | 2 | 4 | 8 | 16]) + b"\x01\x02\x03\x04\x02\x03"
    head += struct.pack("<H", 5) + b"extra" + b"name.tar\0" + b"a comment\0"
    right = head + struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    assert run("gzip", right + deflated + trailer) == (DATA, None)
    assert gzip.decompress(right + deflated + trailer) == DATA
    out, error = run("gzip", head + b"\0\0" + deflated + trailer)
    assert out == b"" and "CRC of a gzip header is wrong" in error.why and error.offset == 0
    for flag in (0x20, 0x40, 0x80):
        assert "unknown method or flag" in run("gzip", head[:3] + bytes([flag]) + head[4:] + deflated)[1].why
    endless = head[:3] + b"\x08" + head[4:10] + b"n" * (decode.HEADER + 9)
    assert "does not end" in run("gzip", endless)[1].why


def test_skippable_frames_of_zstd(run):
    skip = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 300_000) + bytes(300_000)
    none = b"\x50\x2a\x4d\x18" + bytes(4)
    frame = zstd_compress(DATA)
    assert run("zstd", skip + none + frame + skip + frame + none * 3000) == (DATA * 2, None)
    assert run("zstd", none) == (b"", None)
    out, error = run("zstd", frame + skip[:-1])
    assert out == DATA and "truncated" in error.what


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("gzip", ["gzip", "-9", "-c"]), ("bz2", ["bzip2", "-9", "-c"]),
        ("xz", ["xz", "-0", "-c", "--block-size=20000", "--check=sha256"]), ("xz", ["xz", "-e", "-c", "--check=crc32"]),
        ("xz", ["xz", "-0", "-c", "--check=none"]), ("zstd", ["zstd", "-1", "-c"]),
        ("zstd", ["zstd", "-19", "--long=27", "-c", "--no-check"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_tools_write(run, kind, command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    data = text(5000, 3)
    stream = subprocess.run(command, input=data, capture_output=True, check=True).stdout
    assert run(kind, stream) == (data, None)


@pytest.mark.parametrize("kind", ["gzip", "xz"])
def test_zeros_behind_the_end_are_padding(run, kind):
    stream = ENCODE[kind](DATA)
    for zeros in (4, 512, 600_000):
        assert run(kind, stream + bytes(zeros)) == (DATA, None)
    if kind == "xz":
        assert run(kind, stream + bytes(8) + stream) == (DATA * 2, None)
        assert "no multiple of four" in run(kind, stream + bytes(7))[1].why
    else:
        assert "bytes follow" in run(kind, stream + bytes(8) + stream)[1].why


# -- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_anywhere(run, kind):
    stream = ENCODE[kind](DATA)
    step = 1 if kind in ("gzip", "zlib", "zstd") else 9
    for cut in {*range(0, len(stream), step), len(stream) - 1}:
        out, error = run(kind, stream[:cut])
        assert error is not None and "truncated" in error.what, cut
        assert error.offset == cut and DATA.startswith(out) and error.file == b"x"


@pytest.mark.parametrize("kind", SEVERAL)
def test_truncated_in_a_later_member(run, kind):
    stream = ENCODE[kind](DATA)
    for cut in range(1, len(stream), 1 if kind == "gzip" else 29):
        out, error = run(kind, stream + stream[:cut])
        assert "truncated" in error.what and (DATA * 2).startswith(out) and len(out) >= len(DATA), cut


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_is_found_or_harmless(run, kind):
    stream, draw = ENCODE[kind](DATA), random.Random(7)
    harmless = set()
    for at in range(0, len(stream), 1 if kind in ("gzip", "zlib", "zstd") else 7):
        damaged = bytearray(stream)
        damaged[at] ^= 1 << draw.randrange(8)
        out, error = run(kind, bytes(damaged))
        if error is None:
            assert out == DATA, at
            harmless.add(at)
        else:
            words = f"{error.what} {error.why}".lower()
            assert any(word in words for word in ("crc", "checksum", "truncated", "corrupt")), words
    # Bits that say nothing about the content: the time and the system in a gzip header, "is text", and those between
    # the last bit of a deflate stream and the next whole byte.
    nothing = {"gzip": {3, 4, 5, 6, 7, 8, 9, len(stream) - 9}, "zlib": {len(stream) - 5}}
    assert harmless <= nothing.get(kind, set())


@pytest.mark.parametrize("kind", ["gzip", "zlib"])
def test_the_fast_library_and_zlib_say_the_same(run, kind):
    """Bytes, message and offset, for every kind of damage."""
    pytest.importorskip("isal")
    stream, draw = ENCODE[kind](text(3000, 2)), random.Random(8)
    for _ in range(150):
        damaged = bytearray(stream)
        at = draw.randrange(len(stream))
        if draw.random() < 0.7:
            damaged[at] ^= 1 << draw.randrange(8)
        else:
            del damaged[at : at + draw.randrange(1, 9)]
        a, b = run(kind, bytes(damaged), fast=True), run(kind, bytes(damaged), fast=False)
        assert facts(a[1]) == facts(b[1])
        assert a[1] is not None or a[0] == b[0]


def test_without_the_fast_library(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert decode._fast_deflate() is zlib and run("gzip", ENCODE["gzip"](DATA)) == (DATA, None)


@pytest.mark.parametrize("kind", KINDS)
def test_other_bytes_behind_the_end(run, kind):
    stream = ENCODE[kind](DATA)
    for junk in (b"?", b"junk" * 5, bytes(512) + b"x", b"\x1f\x8b\x08\xff", b"BZhx"):
        out, error = run(kind, stream + junk)
        assert error is not None and out == DATA, junk
    if kind not in ("gzip", "xz"):
        assert "bytes follow" in run(kind, stream + bytes(512))[1].why


def test_wrong_trailers(run):
    for kind, words in (("gzip", "CRC-32"), ("zlib", "Adler-32")):
        stream = ENCODE[kind](DATA)
        at = len(stream) - (8 if kind == "gzip" else 4)
        damaged = stream[:at] + bytes(byte ^ 255 for byte in stream[at : at + 4]) + stream[at + 4 :]
        out, error = run(kind, damaged)
        assert out == DATA and words in error.why and error.offset == at
    out, error = run("gzip", ENCODE["gzip"](DATA)[:-4] + struct.pack("<I", len(DATA) + 1))
    assert "the size in the trailer is wrong" in error.why and out == DATA


def test_headers_of_zlib(run):
    stream = ENCODE["zlib"](DATA)
    assert "wrong check" in run("zlib", b"\x78\x9d" + stream[2:])[1].why
    flags = next(f for f in range(32, 64) if (0x78 << 8 | f) % 31 == 0)
    assert "preset dictionary" in run("zlib", bytes([0x78, flags]) + stream[2:])[1].why


@pytest.mark.parametrize("kind", KINDS)
def test_no_bytes_at_all(run, kind):
    out, error = run(kind, b"")
    assert out == b"" and "truncated" in error.what


@pytest.mark.parametrize("kind", KINDS)
def test_salvage_gives_every_byte_that_can_be_had(run, tmp_path, kind):
    path, whole = tmp_path / "x", ENCODE[kind](DATA)
    path.write_bytes(whole)
    assert salvage(bytes(path), b"x", kind) is None
    lead = b"" if kind == "zlib" else whole
    cut = lead + whole[: len(whole) * 3 // 4]
    out, _ = run(kind, cut)
    damage = salvage(bytes(path), b"x", kind)
    assert damage.truncated and damage.trusted == (len(DATA) if lead else 0)
    assert damage.decoded >= len(out) and damage.keep(False) == damage.keep(True) == damage.decoded
    bent = bytearray(lead + whole)
    bent[-3] ^= 64
    path.write_bytes(bent)
    damage = salvage(bytes(path), b"x", kind)
    assert not damage.truncated and damage.keep(False) == (len(DATA) if lead else 0)
    assert damage.keep(True) == damage.decoded >= damage.trusted
    if kind in ("gzip", "zlib"):
        assert damage.decoded == len(lead and DATA) + len(DATA)  # only the checksum was wrong
    with Decoder(bytes(path), b"x", kind, fast=False, fine_from=damage.near) as decoder:
        out = b""
        while decoder.produced < damage.decoded:
            out += decoder.read()
    assert out == ((DATA if lead else b"") + DATA)[: damage.decoded]


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_stops_at_the_limit_in_small_memory(run, tmp_path, kind):
    bomb = tmp_path / "bomb"
    bomb.write_bytes(ENCODE[kind](bytes(64 << 20)))
    tracemalloc.start()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Decoder(bytes(bomb), b"bomb", kind, limit=20 << 20) as decoder, pytest.raises(TooLarge) as caught:
        for piece in decoder:
            assert len(piece) <= OUTPUT
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "--spool-limit" in caught.value.remedy and caught.value.status == 3 and caught.value.file == b"bomb"
    assert decoder.produced <= (20 << 20) + OUTPUT
    assert peak < 12 << 20 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base < 48 << 10


def test_a_dictionary_larger_than_the_bound_is_refused(run):
    huge = lzma.compress(DATA, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}])
    with pytest.raises(HostError, match="too much memory"):
        run("xz", huge)


def test_sizes_that_files_tell(tmp_path):
    path = tmp_path / "x"
    for kind, expected in (("gzip", len(DATA)), ("zstd", len(DATA)), ("bz2", 0), ("xz", 0), ("zlib", 0)):
        path.write_bytes(ENCODE[kind](DATA))
        assert known_size(bytes(path), kind, path.stat().st_size) == expected
    path.write_bytes(ENCODE["gzip"](DATA) + b"\xff" * 8)  # no trailer of this file
    assert known_size(bytes(path), "gzip", path.stat().st_size) == 0
    buffer = io.BytesIO()
    with zstd.ZstdFile(buffer, "w") as file:  # a stream: its size is not in the header
        file.write(DATA)
        file.flush()
        file.write(DATA)
    path.write_bytes(buffer.getvalue())
    assert known_size(bytes(path), "zstd", path.stat().st_size) in (0, 2 * len(DATA))
