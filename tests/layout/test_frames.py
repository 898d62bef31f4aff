"""The headers that we write: pinned, and read by other people's readers."""

import io
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError
from shardtool.base.ragged import Ragged
from shardtool.layout.frames import pad512, put_tar_heads, tar_file_bytes, tar_head_bytes, tar_heads, ustar_split
from shardtool.layout.keys import part_head_bytes, part_names

NAMES = st.binary(min_size=1, max_size=400).map(lambda b: b.replace(b"\0", b"/"))


def heads(*members):
    names, sizes = zip(*members, strict=True)
    return list(tar_heads(Ragged.of(names), np.array(sizes, np.int64)))


def test_a_header_byte_for_byte():
    [head] = heads((b"000001.jpg", 1234))
    assert head == (
        b"000001.jpg" + bytes(90) + b"0000644\0" b"0000000\0" b"0000000\0" b"00000002322\0" b"00000000000\0"
        b"007166\0 " b"0" + bytes(100) + b"ustar\0" b"00" + bytes(247)
    )  # fmt: skip


def test_sizes_from_8_gib_on_are_binary():
    below, above = heads((b"a.b", (1 << 33) - 1), (b"a.b", 1 << 33))
    assert below[124:136] == b"77777777777\0"
    assert above[124:136] == b"\x80" + (1 << 33).to_bytes(11, "big")
    assert tarfile.TarInfo.frombuf(above, "ascii", "strict").size == 1 << 33


def test_where_a_long_name_is_cut():
    assert ustar_split(b"x" * 100) == (b"", b"x" * 100)
    assert ustar_split(b"x" * 101) is None
    assert ustar_split(b"p" * 155 + b"/" + b"n" * 100) == (b"p" * 155, b"n" * 100)
    assert ustar_split(b"p" * 156 + b"/" + b"n" * 50) is None
    assert ustar_split(b"p" * 50 + b"/" + b"n" * 101) is None
    assert ustar_split(b"a/" * 60 + b"b.c") == (b"/".join([b"a"] * 60), b"b.c")
    assert ustar_split(b"/" + b"n" * 100) is None  # an empty prefix would lose the slash
    assert ustar_split(b"p" * 110 + b"/") is None


@given(NAMES)
def test_a_cut_is_the_last_that_fits(name):
    cuts = [
        (name[:at], name[at + 1 :])
        for at in range(1, len(name))
        if name[at : at + 1] == b"/" and at <= 155 and 1 <= len(name) - at - 1 <= 100
    ]
    expected = (b"", name) if len(name) <= 100 else cuts[-1] if cuts else None
    assert ustar_split(name) == expected


def test_a_long_name_header():
    name = b"d/" * 200 + b"x.jpg"
    [head] = heads((name, 5))
    assert len(head) == 1024 + 512
    assert head[:14] == b"././@LongLink\0" and head[156:157] == b"L"
    assert int(head[124:135], 8) == len(name) + 1
    assert head[512 : 512 + 512] == name + bytes(512 - len(name))
    assert head[1024 : 1024 + 100] == name[:100] and head[1024 + 156 : 1024 + 157] == b"0"


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, st.integers(0, 1 << 40)), min_size=1, max_size=20))
def test_tarfile_reads_every_header(members):
    for (name, size), head in zip(members, heads(*members), strict=True):
        info = tarfile.TarInfo.frombuf(head[-512:], "utf-8", "surrogateescape")  # checks the checksum
        assert info.size == size and info.mode == 0o644 and info.uid == info.gid == info.mtime == 0
        if len(head) == 512:
            # tarfile drops slashes at the end of a name
            assert info.name.encode("utf-8", "surrogateescape").rstrip(b"/") == name.rstrip(b"/")


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, st.integers(0, 1 << 40)), max_size=20))
def test_many_are_as_one_by_one(members):
    together = b"".join(heads(*members)) if members else b""
    assert together == b"".join(heads(member)[0] for member in members)
    names = Ragged.of(name for name, _ in members)
    assert tar_head_bytes(names).tolist() == [len(heads(member)[0]) for member in members]


def test_batches_have_no_seams():
    names = [b"n" * 300 + b"%d.x" % i if i % 997 == 0 else b"%d.x" % i for i in range(5000)]
    sizes = np.arange(5000, dtype=np.int64)
    all_heads = list(tar_heads(Ragged.of(names), sizes))
    for i in (0, 1, 996, 997, 2047, 2048, 4095, 4096, 4999):
        assert all_heads[i] == heads((names[i], i))[0]


def test_a_window_of_a_list_of_names():
    names = Ragged.of([b"a.b", b"c" * 120, b"d.e"])
    tail = Ragged(names.data, names.first[1:])
    assert list(tar_heads(tail, np.array([1, 2]))) == heads((b"c" * 120, 1), (b"d.e", 2))


@pytest.mark.parametrize("name", [b"", b"a\0b.jpg", b"a.jpg\0"])
def test_a_name_that_no_header_can_hold(name):
    with pytest.raises(DataError, match="NUL"):
        heads((b"a.b", 1), (name, 0))


def test_a_negative_size():
    with pytest.raises(ValueError, match="negative"):
        heads((b"a.b", -1))


def test_file_sizes_are_those_of_tarfile():
    for count, size in [(0, 0), (1, 0), (1, 1), (8, 512), (9, 512), (17, 0), (18, 0), (19, 0), (200, 333)]:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(count):
                info = tarfile.TarInfo(f"{i}.bin")
                info.size = size
                tar.addfile(info, io.BytesIO(bytes(size)))
        assert tar_file_bytes(count * (512 + pad512(size))) == len(out.getvalue())


SHORT = st.binary(min_size=1, max_size=100).map(lambda b: b.replace(b"\0", b"/"))


@given(st.lists(st.tuples(SHORT, st.integers(0, 1 << 40)), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_heads_in_place_are_the_same(members, random):
    """Wherever they go; what was there does not matter, and nothing else is touched."""
    names = Ragged.of(name for name, _ in members)
    sizes = np.array([size for _, size in members], np.int64)
    blocks = np.full((2 * len(members) + 1, 512), 0xA5, np.uint8)
    own = np.array(random.sample(range(len(blocks)), len(members)), np.int64)
    put_tar_heads(blocks, own, names, sizes)
    assert [blocks[k].tobytes() for k in own] == list(tar_heads(names, sizes))
    assert (np.delete(blocks, own, axis=0) == 0xA5).all()
    with pytest.raises(DataError):
        put_tar_heads(blocks, own[:1], Ragged.of([b"a\0b"]), sizes[:1])


@given(
    st.lists(st.tuples(st.integers(1, 120), st.integers(1, 3)), min_size=1, max_size=5),
    st.lists(st.binary(max_size=30), min_size=3, max_size=3, unique=True), st.booleans(),
)  # fmt: skip
def test_head_bytes_without_names(samples, exts, slashes):
    """The same whether or not names are long, and wherever they could be cut."""
    keys = Ragged.of((b"k/" if slashes else b"kk") * length for length, _ in samples)
    exts = tuple(ext.replace(b"\0", b"x") for ext in exts)
    begin = np.cumsum([0, *(parts for _, parts in samples)])
    ext = np.array([k for _, parts in samples for k in range(parts)], np.uint32)
    names = part_names(keys, begin, ext, exts)
    assert part_head_bytes(keys, begin, ext, exts).tolist() == tar_head_bytes(names).tolist()
    assert list(names) == [keys[i] + b"." + exts[k] for i, (_, parts) in enumerate(samples) for k in range(parts)]
