"""Reading tar: every policy, every header format, and what damage may cost."""

import contextlib
import importlib.util
import io
import subprocess
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError
from shardtool.base.ragged import Ragged
from shardtool.disk.blocks import Blocks
from shardtool.disk.formats.tar.events import DAMAGE, FILE
from shardtool.disk.formats.tar.walk import Walk
from shardtool.layout.frames import tar_file_bytes, tar_heads
from shardtool.layout.rules import Rules
from tests.disk.tarmaker import END, damaged, head, long_name, member, padded, pax, records, sealed
from tests.disk.tarscan import both


@pytest.fixture
def scan(tmp_path):
    """scan(archive bytes, **rules) -> Read; the file is called t.tar."""
    path = tmp_path / "t.tar"

    def run(data, **rules):
        path.write_bytes(data)
        return Read(data, both(bytes(path), b"t.tar", Rules(**rules)))

    return run


class Read:
    """What a scan found, with the payloads it points to."""

    def __init__(self, data, scanned):
        self.scanned, self.found = scanned, scanned.findings
        self.samples = [(scanned.keys[i], dict(self.fields(data, i))) for i in range(scanned.samples)]

    def fields(self, data, i):
        s = self.scanned
        for part in range(s.first[i], s.first[i + 1]):
            at, size = int(s.offset[part] + s.head[part]), int(s.size[part])
            payload = data[at : at + size]
            if part in s.sparse:
                payload = bytearray(size)
                for place, source, count in s.sparse[part]:
                    payload[place : place + count] = data[source : source + count]
            assert len(payload) == size
            yield s.exts[s.ext[part]], bytes(payload)

    @property
    def keys(self):
        return [key for key, _ in self.samples]

    @property
    def said(self):
        return "\n".join(self.found.warnings + self.found.sentences())


def refused(run, *words, **rules):
    """The scan raises DataError with all these words, at a place."""
    with pytest.raises(DataError) as caught:
        run(**rules)
    text = str(caught.value)
    assert caught.value.file == b"t.tar"
    for word in words:
        assert word in text, text
    return caught.value


def archive(*members):
    """An archive of (name, payload) pairs."""
    return b"".join(member(name, payload) for name, payload in members) + END


TWO = archive((b"a.jpg", b"A"), (b"a.cls", b"1"), (b"b.jpg", b"B" * 600), (b"b.cls", b""))
TWO_SAMPLES = [(b"a", {b"jpg": b"A", b"cls": b"1"}), (b"b", {b"jpg": b"B" * 600, b"cls": b""})]


def test_columns(scan):
    s = scan(TWO).scanned
    assert s.samples == 2 and s.end == len(TWO) - 1024
    assert s.first.tolist() == [0, 2, 4] and s.exts == (b"cls", b"jpg") and s.ext.tolist() == [1, 0, 1, 0]
    assert s.offset.tolist() == [0, 1024, 2048, 3584] and s.head.tolist() == [512] * 4
    assert s.size.tolist() == [1, 1, 600, 0] and list(s.keys) == [b"a", b"b"]
    assert s.labels is None and not s.sparse and not s.findings.ignored and not s.findings.warnings
    assert scan(TWO).samples == TWO_SAMPLES


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key", "ext"),
    [
        (b"a.jpg", b"a", b"jpg"),
        (b"a.b/c.tar.gz", b"a.b/c", b"tar.gz"),
        (b"x y/IMG 1.JPG", b"x y/IMG 1", b"JPG"),
        (b"./a.jpg", b"a", b"jpg"),
        (b"././/a.jpg", b"a", b"jpg"),
        (b"a.", b"a", b""),
        (b"a..jpg", b"a", b".jpg"),
        (b"\xff\n\x01.\xe9", b"\xff\n\x01", b"\xe9"),
        (b"__x.jpg", b"__x", b"jpg"),
        (b"__x__.jpg", b"__x__", b"jpg"),
        (b"d/__x__/a.jpg", b"d/__x__/a", b"jpg"),
        (b"d/./a.jpg", b"d/./a", b"jpg"),
        (b"a...d/b.c", b"a...d/b", b"c"),
    ],
)
def test_the_first_dot_of_the_base_name(scan, name, key, ext):
    assert scan(archive((name, b"P"))).samples == [(key, {ext: b"P"})]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b".a.jpg", "hidden"), (b"d/._a.jpg", "hidden"), (b"./.DS_Store", "hidden"),
        (b"__MACOSX/a.jpg", "hidden"), (b"d/__MACOSX/a.jpg", "hidden"),
        (b"__info__", "meta"), (b"__info__/x.json", "meta"), (b"./__info__/x.json", "meta"),
        (b"README", "no_extension"), (b"d.e/Makefile", "no_extension"),
        (b"d.e/", "directories"),
    ],
)  # fmt: skip
def test_members_that_are_no_samples(scan, name, reason):
    # between two members of one sample: they do not part it
    read = scan(archive((b"k.a", b"1"), (name, b"?"), (b"k.b", b"2")))
    assert read.samples == [(b"k", {b"a": b"1", b"b": b"2"})]
    assert read.found.ignored == {reason: 1}
    assert read.found.examples == {reason: [name.removeprefix(b"./")]}


def test_strict_wants_extensions(scan):
    refused(lambda **r: scan(archive((b"README", b"")), **r), "README", "extension", strict=True)


@pytest.mark.parametrize(
    ("kind", "reason"), [(b"5", "directories"), (b"2", "symlinks"), (b"3", "special"), (b"6", "special")]
)
def test_members_without_content(scan, kind, reason):
    # their size is a hint: no payload follows
    data = head(b"d.x", 7, kind=kind, link=b"gone") + TWO
    read = scan(data)
    assert read.samples == TWO_SAMPLES and read.found.ignored == {reason: 1}


@pytest.mark.parametrize("kind", [b"A", b"V", b"Z"])
def test_unknown_types_are_skipped_with_their_payload(scan, kind):
    read = scan(member(b"vol.x", b"V" * 700, kind=kind) + TWO)
    assert read.samples == TWO_SAMPLES and read.found.ignored == {"special": 1}


@pytest.mark.parametrize("name", [b"/abs/x.jpg", b"../x.jpg", b"d/../../x.jpg", b"d/..", b"/.h"])
def test_unsafe_names(scan, name):
    data = member(name, b"!") + TWO
    error = refused(lambda: scan(data), "unsafe")
    assert error.offset == 0
    read = scan(data, on_unsafe_name="skip")
    assert read.samples == TWO_SAMPLES and read.found.ignored == {"unsafe_names": 1}


# -- samples -----------------------------------------------------------------------------------------


def test_fields_that_differ_by_case(scan):
    data = archive((b"k.JPG", b"1"), (b"k.cls", b"2"), (b"k.jpg", b"3"))
    refused(lambda: scan(data), "case", "JPG", "jpg", "k")
    refused(lambda: scan(data, group="archive"), "case", "JPG", "jpg")
    allowed = scan(data, allow_case_collision=True)
    assert allowed.samples == [(b"k", {b"JPG": b"1", b"cls": b"2", b"jpg": b"3"})]
    # in different samples it is no collision
    assert scan(archive((b"k.JPG", b"1"), (b"l.jpg", b"2"))).keys == [b"k", b"l"]


TWICE = archive((b"a.jpg", b"1"), (b"a.cls", b"x"), (b"a.jpg", b"2"), (b"b.jpg", b"3"), (b"b.cls", b"4"))


@pytest.mark.parametrize("group", ["adjacent", "archive"])
def test_duplicates(scan, group):
    error = refused(lambda: scan(TWICE, group=group), "duplicate", "a.jpg", "archive", "--on-duplicate")
    assert error.offset == 2048 and error.member == b"a.jpg"
    for which, kept in (("first", b"1"), ("last", b"2")):
        read = scan(TWICE, group=group, on_duplicate=which)
        assert read.samples == [(b"a", {b"jpg": kept, b"cls": b"x"}), (b"b", {b"jpg": b"3", b"cls": b"4"})]
        assert f"1 duplicate members left out, the {which} kept: a.jpg" in read.said


APART = archive((b"a.jpg", b"1"), (b"b.jpg", b"2"), (b"a.cls", b"3"), (b"b.cls", b"4"), (b"c.cls", b"5"))


def test_members_that_are_not_adjacent(scan):
    error = refused(lambda: scan(APART), "not adjacent", "--group archive", "a")
    assert error.member == b"a" and error.offset == 2048
    read = scan(APART, group="archive")
    assert read.samples == [
        (b"a", {b"jpg": b"1", b"cls": b"3"}), (b"b", {b"jpg": b"2", b"cls": b"4"}), (b"c", {b"cls": b"5"}),
    ]  # fmt: skip
    assert scan(TWO, group="archive").samples == TWO_SAMPLES


@pytest.mark.parametrize("group", ["adjacent", "archive"])
def test_required_fields(scan, group):
    wanted = {"require": (b"jpg", b"cls"), "group": group}
    assert scan(TWO, **wanted).samples == TWO_SAMPLES
    for data, key in ((archive((b"s.jpg", b"")), "s"), (TWO[:-1024] + archive((b"t.jpg", b"")), "t")):
        refused(lambda data=data: scan(data, **wanted), f"sample {key}", "cls")


def test_labels(scan):
    data = archive(
        (b"a.cls", b" 7\n"), (b"b.jpg", b"x"), (b"c.jpg", b""), (b"c.cls", b"cat"), (b"d.cls", b"")
    )
    assert scan(data, label="cls").scanned.labels == [b"7", None, b"cat", b""]
    assert scan(data, label="none").scanned.labels == [None] * 4
    assert scan(END, label="cls").scanned.labels == []
    full = archive((b"a.cls", b"x" * 1024))
    assert scan(full, label="cls").scanned.labels == [b"x" * 1024]
    refused(lambda: scan(archive((b"a.cls", b"x" * 1025)), label="cls"), "a.cls", "1024 bytes", "1,025")


def test_hard_links(scan):
    data = (
        member(b".store/1", b"ONE")
        + member(b"a.jpg", b"A")
        + head(b"a.cls", kind=b"1", link=b"./.store/1")
        + member(b".store/1", b"TWO")
        + head(b"b.cls", 99, kind=b"1", link=b".store/1")  # GNU tar writes the size of the target
        + head(b"c.cls", kind=b"1", link=b"b.cls")
        + END
    )
    read = scan(data, label="cls")
    assert read.samples == [
        (b"a", {b"jpg": b"A", b"cls": b"ONE"}), (b"b", {b"cls": b"TWO"}), (b"c", {b"cls": b"TWO"}),
    ]  # fmt: skip
    assert read.found.ignored == {"no_extension": 2}
    assert read.scanned.labels == [b"ONE", b"TWO", b"TWO"]


def test_hard_links_to_nothing(scan):
    data = member(b"a.jpg", b"A") + head(b"a.cls", kind=b"1", link=b"no.cls") + member(b"a.txt", b"T")
    data += TWO[2048:]
    refused(lambda: scan(data), "a.cls", "no.cls", "link")
    # also a member that only comes later is none before it
    refused(lambda: scan(head(b"z.cls", kind=b"1", link=b"a.jpg") + TWO), "z.cls", "a.jpg")
    for group in ("adjacent", "archive"):
        read = scan(data, on_corrupt="skip", group=group)
        assert read.samples == TWO_SAMPLES[1:]
        assert read.found.dropped == {"samples": 1} and "a.cls is a hard link to no.cls" in read.said


# -- header formats ----------------------------------------------------------------------------------


def test_v7(scan):
    old = {"magic": b"", "kind": b"\0"}
    data = member(b"d.x/", b"", **old) + member(b"a.jpg", b"A", **old) + member(b"a.cls", b"1", **old)
    read = scan(data + TWO[2048:])
    assert read.samples == TWO_SAMPLES and read.found.ignored == {"directories": 1}


def test_ustar_prefix(scan):
    data = member(b"a.jpg", b"A", prefix=b"p" * 155) + member(b"n" * 96 + b".cls", b"", prefix=b"d.e/f") + END
    assert scan(data).keys == [b"p" * 155 + b"/a", b"d.e/f/" + b"n" * 96]
    # old GNU keeps times there, star too, behind a shorter prefix
    times = b"12345670123\x0012345670123\0"
    data = member(b"a.jpg", b"A", magic=b"ustar  \0", prefix=times)
    data += member(b"b.jpg", b"B", prefix=b"q" * 131, at_476=times, at_508=b"tar\0")
    assert scan(data + END).keys == [b"a", b"q" * 131 + b"/b"]


def test_gnu_long_names(scan):
    name = b"d/" * 100 + b"\xe9" * 300
    data = long_name(name + b".jpg") + member((name + b".jpg")[:100], b"A", magic=b"ustar  \0")
    data += long_name(name + b".cls") + long_name(name + b".jpg", kind=b"K")
    data += head((name + b".cls")[:100], kind=b"1", link=name[:100])
    read = scan(data + END)
    assert read.samples == [(name, {b"jpg": b"A", b"cls": b"A"})]
    # a frame begins at its first extension header
    assert read.scanned.offset.tolist() == [0, 2048] and read.scanned.head[0] == 1024 + 512


def test_pax_of_one_member(scan):
    name = "é/".encode() * 60 + b"x"
    data = (
        pax((b"path", name + b".jpg"), (b"size", b"600"), (b"mtime", b"1.5"))
        + head(b"cut", 0)
        + padded(b"J" * 600)
        + pax((b"hdrcharset", b"BINARY"), (b"path", b"\xff.jpg"))
        + member(b"_.jpg", b"B")
        + pax((b"path", b""), (b"comment", b"a\nb=c"))
        + member(b"plain.jpg", b"P")
        + pax((b"path", b"l.jpg"), (b"linkpath", name + b".jpg"))
        + head(b"l", kind=b"1", link=b"wrong")
        + END
    )
    assert scan(data).samples == [
        (name, {b"jpg": b"J" * 600}), (b"\xff", {b"jpg": b"B"}), (b"plain", {b"jpg": b"P"}),
        (b"l", {b"jpg": b"J" * 600}),
    ]  # fmt: skip


def test_pax_of_all_members(scan):
    data = pax((b"comment", b"x" * 600), kind=b"g") + TWO
    read = scan(data)
    assert read.samples == TWO_SAMPLES and read.scanned.offset[0] == 512 + 1024  # it belongs to no member
    data = (
        pax((b"path", b"all.jpg"), kind=b"g")
        + member(b"x", b"1")
        + pax((b"path", b"own.jpg"))
        + member(b"y", b"2")
        + pax((b"path", b""), kind=b"g")
        + member(b"z.jpg", b"3")
        + END
    )
    assert scan(data).keys == [b"all", b"own", b"z"]


@pytest.mark.parametrize(
    "field",
    [b"00000000003\0", b"00000000003 ", b"          3 ", b"3\0" + bytes(10), b" 3 " + bytes(9),
     b"000000000003", b"\x80" + bytes(10) + b"\x03"],
)  # fmt: skip
def test_ways_to_write_a_size(scan, field):
    assert scan(head(size_field=field) + padded(b"abc") + END).samples == [(b"a", {b"jpg": b"abc"})]


@pytest.mark.parametrize(
    "field", [b"\xff" * 12, b"0000000000x\0", b"-0000000003\0", b"0000_000003\0", b"00000000008\0"]
)
def test_sizes_that_are_none(scan, field):
    refused(lambda: scan(TWO[:-1024] + head(b"z.jpg", size_field=field) + END), "header", "size", "z.jpg")


def test_the_historic_signed_checksum(scan):
    block = bytearray(head(b"\xe9\xe8.jpg", 1))
    unsigned = int(block[148:154], 8)
    block[148:154] = b"%06o" % (unsigned - 2 * 256)
    assert scan(bytes(block) + padded(b"x") + END).keys == [b"\xe9\xe8"]
    block[148:154] = b"%06o" % (unsigned - 256)
    refused(lambda: scan(TWO[:-1024] + bytes(block) + padded(b"x") + END), "checksum")


HOLES = bytes(1000) + b"x" * 512 + bytes(2000) + b"end"
ENTRIES = [(1000, 512), (3512, 3)]


def octal(*numbers):
    return b"".join(b"%011o\0" % number for number in numbers)


def test_old_gnu_sparse(scan):
    block = head(b"s.bin", 515, kind=b"S", magic=b"ustar  \0",
                 at_386=octal(1000, 512, 3512, 3, 3515, 0), at_483=octal(3515))  # fmt: skip
    read = scan(block + padded(b"x" * 512 + b"end") + TWO)
    assert read.samples == [(b"s", {b"bin": HOLES}), *TWO_SAMPLES]
    assert read.scanned.sparse == {0: ((1000, 512, 512), (3512, 1024, 3))}


def test_old_gnu_sparse_with_extension_blocks(scan):
    runs = [(10 * i, 3) for i in range(30)]
    block = head(b"s.bin", 90, kind=b"S", magic=b"ustar  \0",
                 at_386=octal(*sum(runs[:4], ())), at_482=b"\1", at_483=octal(300))  # fmt: skip
    more = octal(*sum(runs[4:25], ())) + b"\1" + bytes(7)
    last = (octal(*sum(runs[25:], ()))).ljust(512, b"\0")
    stored = b"".join(b"%03d" % i for i in range(30))
    [(_, fields), *rest] = scan(block + more + last + padded(stored) + TWO).samples
    assert fields == {b"bin": b"".join(b"%03d" % i + bytes(7) for i in range(30))} and rest == TWO_SAMPLES


@pytest.mark.parametrize("version", ["0.0", "0.1", "1.0"])
def test_pax_sparse(scan, version):
    stored = b"x" * 512 + b"end"
    if version == "0.0":
        pairs = [(b"GNU.sparse.size", b"3515"), (b"GNU.sparse.numblocks", b"2")]
        for place, count in ENTRIES:
            pairs += [(b"GNU.sparse.offset", b"%d" % place), (b"GNU.sparse.numbytes", b"%d" % count)]
        data = pax(*pairs) + member(b"s.bin", stored)
    elif version == "0.1":
        data = pax(
            (b"GNU.sparse.size", b"3515"), (b"GNU.sparse.name", b"s.bin"),
            (b"GNU.sparse.map", b"1000,512,3512,3"),
        ) + member(b"GNUSparseFile.0/s.bin", stored)  # fmt: skip
    else:
        data = pax(
            (b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"s.bin"),
            (b"GNU.sparse.realsize", b"3515"),
        ) + member(b"GNUSparseFile.0/s.bin", padded(b"2\n1000\n512\n3512\n3\n") + stored)  # fmt: skip
    assert scan(data + TWO).samples == [(b"s", {b"bin": HOLES}), *TWO_SAMPLES]
    assert tarfile.open(fileobj=io.BytesIO(data + TWO)).extractfile("s.bin").read() == HOLES


@pytest.mark.parametrize(
    "bad",
    [b"2\n1000\n512\n900\n3\n", b"2\n1000\n512\n3512\n9\n", b"2\n1000\n512\n3512\n2\n",
     b"3\n1000\n512\n3512\n3\n", b"x\n", b"9" * 30 + b"\n", b"2000000\n", b"-1\n", b"\n"],
)  # fmt: skip
def test_damaged_sparse_maps(scan, bad):
    data = pax(
        (b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"s.bin"),
        (b"GNU.sparse.realsize", b"3515"),
    ) + member(b"GNUSparseFile.0/s.bin", padded(bad) + b"x" * 512 + b"end")  # fmt: skip
    refused(lambda: scan(data + TWO), "sparse", "s.bin")
    read = scan(data + TWO, on_corrupt="resync")
    assert read.samples == TWO_SAMPLES and read.found.dropped["samples"] == 1


def test_a_sparse_map_of_endless_extension_blocks(scan):
    block = head(b"s.bin", 0, kind=b"S", magic=b"ustar  \0", at_482=b"\1", at_483=octal(9))
    refused(lambda: scan(block + (bytes(504) + b"\1" + bytes(7)) * 50), "truncated", "sparse")


# -- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [1024, 1025, 1536, 9216, 1 << 19])
def test_zeros_at_the_end(scan, zeros):
    read = scan(TWO[:-1024] + bytes(zeros))
    assert read.samples == TWO_SAMPLES and not read.said and read.scanned.end == len(TWO) - 1024


@pytest.mark.parametrize("zeros", [0, 1, 511, 512, 1023])
def test_no_whole_end_marker(scan, zeros):
    data = TWO[:-1024] + bytes(zeros)
    read = scan(data)
    assert read.samples == TWO_SAMPLES and "t.tar" in read.said and "end-of-archive" in read.said
    refused(lambda: scan(data, strict=True), "end-of-archive", "t.tar")


@pytest.mark.parametrize("zeros", [1, 511, 512, 1024, 10240])
def test_nothing_but_zeros(scan, zeros):
    read = scan(bytes(zeros))
    assert read.samples == [] and "t.tar" in read.said


def test_a_file_of_no_bytes(scan):
    refused(lambda: scan(b""), "is empty, 0 bytes")
    read = scan(b"", on_corrupt="skip", label="cls")
    assert read.samples == [] and read.found.dropped == {"archives_damaged": 1} and "empty" in read.said
    assert read.scanned.labels == []


MORE = archive((b"y.jpg", b"Y"), (b"y.cls", b"2"))
MORE_SAMPLES = [(b"y", {b"jpg": b"Y", b"cls": b"2"})]


@pytest.mark.parametrize("zeros", [512, 1024, 10240])
def test_archives_behind_archives(scan, zeros):
    data = TWO[:-1024] + bytes(zeros) + MORE
    words = ["after", "lone zero block"] if zeros == 512 else ["after", "end-of-archive marker"]
    error = refused(lambda: scan(data), *words, "concatenated", "--ignore-zeros", "--ignore-trailing")
    assert error.offset == len(TWO) - 1024 + zeros
    assert scan(data, ignore_zeros=True).samples == TWO_SAMPLES + MORE_SAMPLES
    read = scan(data, ignore_trailing=True)
    assert read.samples == TWO_SAMPLES and f"{len(MORE):,} bytes after" in read.said
    read = scan(data, on_corrupt="skip")
    assert read.samples == TWO_SAMPLES and read.found.dropped == {"archives_damaged": 1, "bytes": len(MORE)}
    three = data + archive((b"z.jpg", b"Z"), (b"z.cls", b"3"))
    read = scan(three, on_corrupt="resync")
    assert read.keys == [b"a", b"b", b"y", b"z"] and "found by search" in read.said
    assert "samples" not in read.found.dropped


def test_junk_behind_an_archive(scan):
    data = TWO + b"<!-- served by a proxy -->"
    refused(lambda: scan(data), "after", "end-of-archive marker", "trailing")
    assert scan(data, ignore_trailing=True).samples == TWO_SAMPLES
    refused(lambda: scan(data, ignore_zeros=True), "header")
    assert scan(data, ignore_zeros=True, ignore_trailing=True).samples == TWO_SAMPLES


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", ["not a tar archive", "git-lfs"]),
        (b"<!DOCTYPE html><html>" + b" " * 900, ["not a tar archive", "HTML"]),
        (b"<?xml version='1.0'?><Error>" + b" " * 900, ["not a tar archive", "XML"]),
        (b"download: 's3://bucket/a.tar'\n" + TWO, ["not a tar archive", "download: 's3://bucket/a.tar'"]),
        (b"PK\x03\x04" + bytes(600), ["not a tar archive", "zip"]),
        (b"\x93NUMPY" + bytes(600), ["not a tar archive", ".npy"]),
        (b"\x1f\x8b\x08" + bytes(600), ["not a tar archive", "gzip"]),
        (b"\x00\x01" * 300, ["not a tar archive", "00 01 00 01"]),
        (b"x", ["not a tar archive", "less than one header"]),
    ],
)
def test_files_that_are_no_tars(scan, data, words):
    refused(lambda: scan(data), *words)
    read = scan(data, on_corrupt="skip")
    assert read.samples == [] and read.found.dropped == {"archives_damaged": 1, "bytes": len(data)}


# -- damage ------------------------------------------------------------------------------------------

THREE = archive(*((b"%d.%s" % (i, e), b"%d%s" % (i, e)) for i in range(4) for e in (b"jpg", b"cls")))
WHOLE = [(b"%d" % i, {e: b"%d%s" % (i, e) for e in (b"jpg", b"cls")}) for i in range(4)]


def test_cut_at_every_byte(scan):
    for cut in range(1, len(THREE)):
        data = THREE[:cut]
        at_member = cut % 1024 == 0 or cut >= 8 * 1024
        if at_member:
            read = scan(data)
            assert sum(len(fields) for _, fields in read.samples) == min(cut // 1024, 8), cut
            assert cut == len(THREE) or "end-of-archive" in read.said, cut
            continue
        if cut % 7 in (0, 1) or cut % 512 in (0, 1, 511):  # enough of them to see every branch
            error = refused(lambda data=data: scan(data), "t.tar")
            assert "truncated" in str(error) or cut < 512, cut
            read = scan(data, on_corrupt="skip")
            kept = [sample for sample in read.samples if sample in WHOLE]
            # what was kept is whole; nothing that ended before the cut is missing
            assert kept == WHOLE[: len(kept)] and len(kept) >= cut // 2048, cut
            extra = [sample for sample in read.samples if sample not in kept]
            assert not extra or f"sample {extra[0][0].decode()} is kept" in read.said, cut
            assert read.found.dropped["archives_damaged"] == 1


def test_every_flip_in_a_header(scan):
    for where in (0, 4 * 1024, 7 * 1024):
        for at in range(where, where + 512):
            data = damaged(THREE, at)
            error = refused(lambda data=data: scan(data), "header" if where else "")
            assert error.offset == where
            read = scan(data, on_corrupt="skip")
            assert read.samples == WHOLE[: where // 2048], at
            assert read.found.dropped["archives_damaged"] == 1


def test_every_flip_in_a_header_with_search(scan):
    for where in (2 * 1024, 3 * 1024):
        for at in range(where, where + 512):
            read = scan(damaged(THREE, at), on_corrupt="resync")
            # sample 1 was hit; the search finds 2 and 3, and takes no half sample for a whole one
            assert all(sample in WHOLE for sample in read.samples), at
            assert b"1" not in read.keys and {b"0", b"3"} <= set(read.keys), at
            assert "found by search" in read.said


def test_a_known_member_costs_its_sample_only(scan):
    for where in (2 * 1024, 3 * 1024):
        read = scan(damaged(THREE, where + 136), on_corrupt="resync")  # in mtime
        assert read.keys == [b"0", b"2", b"3"]
        assert read.found.dropped == {"archives_damaged": 1, "samples": 1, "bytes": 1024}


def test_an_overwritten_header(scan):
    data = THREE[: 3 * 1024] + b"\xaa" * 512 + THREE[3 * 1024 + 512 :]
    read = scan(data, on_corrupt="resync")
    # 1 lacks a field; 2, the first found, may lack one
    assert read.keys == [b"0", b"3"] and read.found.dropped["samples"] == 2


def test_a_zeroed_sector(scan):
    data = THREE[: 3 * 1024] + bytes(1024) + THREE[4 * 1024 :]
    refused(lambda: scan(data), "after")
    read = scan(data, on_corrupt="resync")
    assert read.keys == [b"0", b"2", b"3"] and read.found.dropped["samples"] == 1
    data = THREE[: 3 * 1024] + bytes(2048) + THREE[5 * 1024 :]
    assert scan(data, on_corrupt="resync").keys == [b"0", b"3"]


def test_samples_beside_a_damage_are_judged_by_the_others(scan):
    """The hit header is overwritten, so nobody can tell which sample it was of."""
    blot = b"\xaa" * 512
    # the first sample of the archive lost its cls: those that come later show it
    data = THREE[:1024] + blot + THREE[1536:]
    assert scan(data, on_corrupt="resync").keys == [b"2", b"3"]  # 1 is the first that is found
    # by skip nothing comes later: kept, with a warning
    read = scan(data, on_corrupt="skip")
    assert read.samples == [(b"0", {b"jpg": b"0jpg"})] and "sample 0 is kept" in read.said
    # unless a field is required
    read = scan(data, on_corrupt="skip", require=(b"jpg", b"cls"))
    assert read.samples == [] and read.found.dropped["samples"] == 1
    # all others have two fields: this one lost one
    data = THREE[: 3 * 1024] + blot + THREE[3 * 1024 + 512 :]
    read = scan(data, on_corrupt="skip")
    assert read.keys == [b"0"] and read.found.dropped["samples"] == 1 and "is kept" not in read.said
    # here they have one or two: who knows
    data = archive((b"x.cls", b""))[:-1024] + data
    read = scan(data, on_corrupt="skip")
    assert read.keys == [b"x", b"0", b"1"] and "sample 1 is kept" in read.said
    # a damage between samples leaves nothing to say
    data = THREE[: 4 * 1024] + blot + THREE[4 * 1024 + 512 :]
    read = scan(data, on_corrupt="skip")
    assert read.keys == [b"0", b"1"] and "samples" not in read.found.dropped and "is kept" not in read.said


def test_sparse_parts_move_along_when_a_sample_is_dropped(scan):
    hole = head(b"s.bin", 515, kind=b"S", magic=b"ustar  \0",
                at_386=octal(1000, 512, 3512, 3), at_483=octal(3515))  # fmt: skip
    hole += padded(b"x" * 512 + b"end")
    data = member(b"a.jpg", b"") + b"\xaa" * 512 + THREE[:-1024] + member(b"s.cls", b"S") + hole + END
    read = scan(data, on_corrupt="resync", require=(b"cls",))
    assert read.samples == [*WHOLE[1:], (b"s", {b"cls": b"S", b"bin": HOLES})]


INNER = archive((b"in.jpg", b"I"), (b"in.cls", b"9"), (b"in2.jpg", b"J"))


@pytest.mark.parametrize("blot", [300, None])
def test_an_archive_in_an_archive_is_not_searched(scan, blot):
    data = TWO[:-1024] + member(b"n.tar", INNER) + MORE
    assert scan(data).samples == [*TWO_SAMPLES, (b"n", {b"tar": INNER}), *MORE_SAMPLES]
    at = len(TWO) - 1024
    bad = damaged(data, at + blot) if blot else data[:at] + b"\xaa" * 512 + data[at + 512 :]
    read = scan(bad, on_corrupt="resync")
    assert not {b"in", b"in2"} & set(read.keys)
    assert read.keys[:2] == [b"a", b"b"] and (blot is None or read.keys == [b"a", b"b", b"y"])


def test_a_damaged_long_name_takes_its_member_along(scan):
    name = b"k." + b"e" * 150 + b".jpg"
    data = TWO[:2048] + long_name(name) + member(name[:100], b"X") + THREE
    read = scan(damaged(data, 2048 + 300), on_corrupt="resync")
    assert b"k" not in read.keys and read.samples[-4:] == WHOLE
    data = TWO[:2048] + pax((b"path", name)) + member(b"x.jpg", b"X") + THREE
    read = scan(damaged(data, 2048 + 512), on_corrupt="resync")
    assert b"x" not in read.keys and read.samples[-4:] == WHOLE


@pytest.mark.parametrize(
    "blob",
    [b"5 a=b", b"x", b"8 path=a\n", b"12 path=ab\n", b"99 path=a\n", b"8 patha\n", b"6 =ab\n", b"0 a=b\n",
     b"1" * 30 + b" a=b\n", records((b"path", b"a\0b.jpg")), records((b"size", b"-5")),
     records((b"size", b"9" * 20))],
)  # fmt: skip
def test_damaged_pax_records(scan, blob):
    data = TWO[:2048] + member(b"PaxHeaders/x", blob, kind=b"x") + TWO[2048:]
    error = refused(lambda: scan(data), "pax" if b"a\0b" not in blob else "NUL")
    assert error.offset == 2048


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_huge_extension_header_is_not_read(scan, kind):
    data = TWO[:2048] + head(b"x", size_field=b"\x80" + (1 << 40).to_bytes(11, "big"), kind=kind) + TWO[2048:]
    refused(lambda: scan(data), "extension header", "1,099,511,627,776")
    refused(lambda: scan(TWO[:2048] + head(b"x", 1 << 20, kind=kind) + TWO[2048:]), "truncated")


@pytest.mark.parametrize("kind", [b"x", b"g", b"L"])
def test_many_extension_headers_for_one_member_are_not_kept(scan, kind):
    one = member(b"x", records((b"path", b"p" * 60_000)), kind=kind)
    refused(lambda: scan(one * 20 + TWO), "extension header", "1,080,")


@pytest.mark.parametrize("size", [10**6, 1 << 62, (1 << 87)])
def test_a_size_that_exceeds_the_file(scan, size):
    field = b"\x80" + size.to_bytes(11, "big")
    data = TWO[:2048] + head(b"b.jpg", size_field=field) + TWO[2560:]
    error = refused(lambda: scan(data), "truncated", "exceeds", "b.jpg")
    assert error.offset == 2048
    read = scan(data, on_corrupt="skip")
    assert read.samples == TWO_SAMPLES[:1] and read.found.dropped["samples"] == 1


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_damage_is_a_traceback(tmp_path_factory, data):
    """Any bytes changed anywhere: an answer or a DataError, under all rules."""
    blob = bytearray(NASTY)
    for _ in range(data.draw(st.integers(1, 6))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "nasty.tar"
    path.write_bytes(bytes(blob[: data.draw(st.integers(1, len(blob)))]))
    rules = Rules(
        on_corrupt=data.draw(st.sampled_from(["error", "skip", "resync"])),
        group=data.draw(st.sampled_from(["adjacent", "archive"])),
        on_duplicate=data.draw(st.sampled_from(["first", "last"])),
        on_unsafe_name="skip", ignore_zeros=data.draw(st.booleans()), label="cls",
    )  # fmt: skip
    with contextlib.suppress(DataError):
        Read(bytes(blob), both(bytes(path), b"t.tar", rules))


NASTY = (
    pax((b"comment", b"c"), kind=b"g")
    + member(b"a.jpg", b"A" * 600)
    + head(b"a.cls", kind=b"1", link=b"a.jpg")
    + head(b"s.bin", 515, kind=b"S", magic=b"ustar  \0", at_386=octal(1000, 512, 3512, 3), at_483=octal(3515))
    + padded(b"x" * 512 + b"end")
    + pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"9"))
    + member(b"t.bin", padded(b"1\n2\n3\n") + b"abc")
    + long_name(b"n" * 200 + b".jpg")
    + member(b"n" * 100, b"N")
    + END
    + member(b"z.jpg", b"Z")
    + END
)


# -- other people's archives -------------------------------------------------------------------------

COMPONENT = st.text("abAB01 é图._-", min_size=1, max_size=60).filter(lambda t: t.strip(".") == t)
NAMES = st.lists(COMPONENT, min_size=1, max_size=5).map("/".join)
FIELDS = st.sampled_from(["jpg", "cls", "tar.gz", "0 (x).mp3"])
MEMBERS = st.dictionaries(NAMES, st.dictionaries(FIELDS, st.binary(max_size=1200), min_size=1), max_size=6)
FORMATS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def plain(key):
    """No dot in the base name, not ignored."""
    first, base = key.split("/")[0], key.rpartition("/")[2]
    return "." not in base and not (first.startswith("__") and first.endswith("__"))


@settings(deadline=None, max_examples=60)
@given(MEMBERS, FORMATS, st.sampled_from([0, 1.5]))
def test_archives_of_tarfile(tmp_path_factory, samples, format, mtime):
    samples = {key: fields for key, fields in samples.items() if plain(key)}
    out = io.BytesIO()
    written = []
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for key, fields in samples.items():
            written.append((key.encode(), {}))
            for ext, payload in fields.items():
                info = tarfile.TarInfo(f"{key}.{ext}")
                info.size, info.mtime = len(payload), mtime
                try:
                    archive.addfile(info, io.BytesIO(payload))
                except ValueError:  # USTAR: name is too long
                    continue
                written[-1][1][ext.encode()] = payload
    path = tmp_path_factory.getbasetemp() / "theirs.tar"
    path.write_bytes(out.getvalue())
    read = Read(out.getvalue(), both(bytes(path), b"t.tar", Rules()))
    assert read.samples == [sample for sample in written if sample[1]]
    assert not read.found.ignored


@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
@pytest.mark.parametrize("version", ["0.0", "0.1", "1.0"])
def test_archives_of_gnu_tar(tmp_path, format, version):
    long = "" if format in ("v7",) else "d" * 90 + "/"
    if format not in ("v7", "ustar"):
        long += "e" * 180 + "/"
    folder = tmp_path / "in" / long
    folder.mkdir(parents=True)
    sparse = tmp_path / "in" / long / "s.bin"
    with sparse.open("wb") as file:
        file.truncate(300_000)
        for place in range(0, 300_000, 16384):
            file.seek(place)
            file.write(b"%d" % place)
    (folder / "a.jpg").write_bytes(b"J" * 700)
    (folder / "a.txt").hardlink_to(folder / "a.jpg")
    (folder / "é b.jpg").write_bytes(b"")
    out = tmp_path / "t.tar"
    holes = ["--sparse", f"--sparse-version={version}"] if format in ("oldgnu", "gnu", "posix") else []
    command = ["tar", "-cf", out, f"--format={format}", *holes, "--sort=name", "-C", tmp_path / "in", "."]
    subprocess.run(command, check=True)
    read = Read(out.read_bytes(), both(bytes(out), b"t.tar", Rules()))
    prefix = long.encode()
    assert dict(read.samples) == {
        prefix + b"a": {b"jpg": b"J" * 700, b"txt": b"J" * 700},
        prefix + b"s": {b"bin": sparse.read_bytes()},
        prefix + "é b".encode(): {b"jpg": b""},
    }
    assert bool(read.scanned.sparse) == bool(holes)


# -- our own archives --------------------------------------------------------------------------------


def ours(members):
    """An archive of (name, payload) pairs with the headers that shardtool writes."""
    sizes = np.array([len(payload) for _, payload in members], np.int64)
    heads = tar_heads(Ragged.of(name for name, _ in members), sizes)
    body = b"".join(h + padded(p) for h, (_, p) in zip(heads, members, strict=True))
    return body + bytes(tar_file_bytes(len(body)) - len(body))


OURS = [
    (b"a.jpg", b"A" * 700), (b"a.cls", b"1"),
    (b"d" * 90 + b"/b.jpg", b""), (b"d" * 90 + b"/b.cls", b"2"),
    (b"e/" * 110 + b"c.jpg", b"C" * 512), (b"e/" * 110 + b"c.cls", b"3"),
    (b"n" * 240 + b".jpg", b"N"), (b"n" * 240 + b".cls", b"4"),
    ("é".encode() + b".jpg", b"E"),
]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(MEMBERS)
def test_what_we_write_we_read(tmp_path_factory, samples):
    samples = {key.encode(): fields for key, fields in samples.items() if plain(key)}
    members = [(b"%s.%s" % (k, e.encode()), p) for k, fields in samples.items() for e, p in fields.items()]
    path = tmp_path_factory.getbasetemp() / "ours.tar"
    path.write_bytes(ours(members))
    read = Read(ours(members), both(bytes(path), b"t.tar", Rules()))
    assert read.samples == [(k, {e.encode(): p for e, p in fields.items()}) for k, fields in samples.items()]
    with tarfile.open(path) as archive:
        theirs = [(i.name.encode("utf-8", "surrogateescape"), archive.extractfile(i).read()) for i in archive]
    assert theirs == members


def test_gnu_tar_reads_ours(tmp_path):
    (tmp_path / "t.tar").write_bytes(ours(OURS))
    done = subprocess.run(
        ["tar", "-tf", "t.tar", "--quoting-style=literal"], cwd=tmp_path, check=True, capture_output=True
    )
    assert done.stdout.split() == [name for name, _ in OURS] and not done.stderr
    done = subprocess.run(["tar", "-xOf", "t.tar"], cwd=tmp_path, check=True, capture_output=True)
    assert done.stdout == b"".join(payload for _, payload in OURS) and not done.stderr


def test_webdataset_reads_ours(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    (tmp_path / "t.tar").write_bytes(ours(OURS))
    stream = webdataset.WebDataset(str(tmp_path / "t.tar"), shardshuffle=False)
    found = [(f"{s['__key__']}.{e}".encode(), s[e]) for s in stream for e in s if not e.startswith("__")]
    assert sorted(found) == sorted(OURS)


def test_wids_reads_ours(tmp_path):
    package = importlib.util.find_spec("wids")
    if package is None or package.origin is None:
        pytest.skip("wids is not installed")
    # by file: the package itself imports torch, its tar reader does not
    place = package.origin.replace("__init__", "wids_mmtar")
    spec = importlib.util.spec_from_file_location("wids_mmtar", place)
    wids_tar = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wids_tar)
    short = [*OURS[:2], (b"b.jpg", b"B")]  # wids knows neither prefix nor long names
    (tmp_path / "t.tar").write_bytes(ours(short))
    index = wids_tar.MMIndexedTar(str(tmp_path / "t.tar"))
    assert [(name.encode(), bytes(data)) for name, data in index] == short


# -- windows and the fast path -----------------------------------------------------------------------


SIZES = [[0, 1, 511] * 400, [100_000, 3, 262_144, 700_000, 512, 0, 261_632] * 3, [5_000_000, 1]]


@pytest.mark.parametrize("sizes", SIZES)
def test_members_around_the_edges_of_windows(scan, sizes):
    members = [(b"%06d.bin" % i, bytes([i % 256]) * size) for i, size in enumerate(sizes)]
    data = ours(members)
    read = scan(data)
    assert read.samples == [(name[:6], {b"bin": payload}) for name, payload in members]
    at = read.scanned.offset.tolist()
    assert at == [i.offset for i in tarfile.open(fileobj=io.BytesIO(data))]
    if len(sizes) < 100:
        # a cut anywhere inside of the last member is seen, too
        refused(lambda: scan(data[: at[-1] + 100]), "truncated")


def events(path, data):
    path.write_bytes(data)
    with Blocks(bytes(path), b"t.tar", 1 << 12) as blocks:
        walk = Walk(blocks, Rules(on_corrupt="skip"))
        for kind, name, offset, payload, size, extra in walk.members():
            yield kind, name, offset, payload, size, extra if kind != DAMAGE else str(extra.error.what)
            if kind == DAMAGE:
                return


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.integers(0, 511), st.integers(0, 255), max_size=3))
def test_the_fast_path_sees_what_the_slow_path_sees(tmp_path_factory, changes):
    """The first header with a checksum takes the slow path, the same again the fast one, if it is plain."""
    block = bytearray(head(b"k.jpg", 3))
    for at, value in changes.items():
        block[at] = value
    one = sealed(block) + padded(b"abc")
    path = tmp_path_factory.getbasetemp() / "w.tar"
    alone = list(events(path, one + END + bytes(len(one))))
    if [event[0] for event in alone] == [FILE] and 0 < alone[0][4] <= 512:
        kind, name, offset, payload, size, extra = alone[0]
        again = (kind, name, offset + len(one), payload + len(one), size, extra)
        assert list(events(path, one + one + END)) == [*alone, again]


@pytest.mark.parametrize("at", range(0, 512, 3))
def test_the_fast_path_sees_every_flip(scan, at):
    data = archive(*((b"%d.bin" % i, b"abc") for i in (10, 11, 12, 20, 21, 30)))
    # 30.bin has the checksum of 12.bin and 21.bin: it is known, so that an intact header takes the fast path
    error = refused(lambda: scan(damaged(data, 5 * 1024 + at)))
    assert error.offset == 5 * 1024
