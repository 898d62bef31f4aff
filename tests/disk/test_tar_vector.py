"""The scan of tar headers in batches says what the plain scan says, and takes what it is made for."""

import contextlib
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError
from shardtool.disk.blocks import Blocks
from shardtool.disk.formats.tar import vector
from shardtool.layout.rules import Rules
from tests.disk.tarmaker import END, damaged, head, member, padded, pax
from tests.disk.tarscan import both, constants, taken

GNU = b"ustar  \0"


@pytest.fixture
def scan(tmp_path):
    """scan(archive bytes, **rules) -> (what both scans say, whether the one in batches went through)."""
    path = tmp_path / "t.tar"

    def run(data, **rules):
        path.write_bytes(data)
        return both(bytes(path), b"t.tar", Rules(**rules)), taken(bytes(path), Rules(**rules))

    return run


def samples(count, *exts, size=lambda i: 7 * i):
    return b"".join(
        member(b"%04d.%s" % (i, ext), bytes([i & 255]) * size(i)) for i in range(count) for ext in exts
    )


PLAIN = samples(9, b"jpg", b"cls")


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        samples(300, b"x", size=lambda i: 0),
        samples(5, b"seg.png", b"a-long-extension.json", b""),
        samples(20, b"jpg", size=lambda i: (i % 3) * 1500),
        # the end of one batch inside of a sample, other fields in each sample, another length of name in each
        *(b"".join(member(b"k" * n + b".%d" % k, b"p") for k in range(n % 4 + 1)) for n in (1, 13, 14, 61, 97)),
        b"".join(member(b"k" * n + b".%d" % (k % 2 + n), b"p") for n in range(1, 97, 3) for k in range(2)),
        b"".join(member(b"./d.e/%d/f.g.h" % n, b"p") for n in range(9)) + member(b"./x.y"),
        member(b"n" * 96 + b".jpg") + member(b"n" * 95 + b".jpeg") + member(b"\xff\n\x01.\xe9"),
        b"".join(member(b"%d.jpg" % n, b"p", magic=GNU, kind=b"\0") for n in range(5)),
        # content that holds a magic, but not where a header has it; and a header that is not on a block
        member(b"a.tar", b"ustar" * 300) + member(b"b.tar", b"\1" + head(b"c.jpg")),
    ],
)
def test_the_ordinary_is_taken(scan, data):
    for tail in (END, END + bytes(8192), END + bytes(100)):
        scanned, is_taken = scan(data + tail)
        assert is_taken and scanned.end == len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"", END, PLAIN, PLAIN + bytes(512), PLAIN + bytes(1023), PLAIN[:-512], PLAIN[:-300], PLAIN + END + b"x",
        PLAIN + END + bytes(512) + PLAIN + END,
        damaged(PLAIN + END, 3), damaged(PLAIN + END, len(PLAIN) - 1020),
        # names that a policy has to look at
        *(
            PLAIN + member(name, b"x") + END
            for name in (
                b"noext", b".x.jpg", b"d/.x.jpg", b"/x.jpg", b"../x.jpg", b"d/../x.jpg", b"d//x.jpg", b"d.e/x",
                b"__x__/y.jpg", b"__x__", b"_x.jpg", b"d/_x.jpg", b"__MACOSX/a.jpg", b"././x.jpg", b".//x.jpg", b"./",
                b"d.e/", b"",
                b"0008.jpg", b"0008.JPG", b"0000.txt", b"./0000.txt", b"x.jpg\0y",
            )
        ),
        # members that are no plain files, or in another form
        *(
            PLAIN + other + END
            for other in (
                pax((b"path", b"x.jpg")) + member(b"y.jpg"), head(b"x.jpg", kind=b"1", link=b"0000.jpg"),
                head(b"x.jpg", kind=b"2", link=b"0000.jpg"), head(b"d.e", kind=b"5"), member(b"x.jpg", kind=b"7"),
                member(b"x.jpg", prefix=b"d"), member(b"x.jpg", magic=b"\0" * 8), member(b"x.jpg", link=b"y"),
                head(b"x.jpg", size_field=b"\x80" + bytes(11)), head(b"x.jpg", size_field=b"         1 0"),
                head(b"x.jpg", size_field=b"77777777777\0"), head(b"x.jpg", size_field=b"00000009000\0"),
                member(b"x.jpg", at_508=b"tar\0"), member(b"x.jpg", at_256=b"y"),
                head(b"x.jpg", at_329=b"0001750\0")[:148] + b"%07o\0" % 0 + head(b"x.jpg")[156:],
            )
        ),
        # an archive in the archive
        PLAIN + member(b"x.tar", PLAIN + END) + END,
        PLAIN + member(b"x.tar", PLAIN[:512]) + END,
    ],
)  # fmt: skip
@pytest.mark.parametrize("on_corrupt", ["error", "skip", "resync"])
def test_anything_else_falls_back(tmp_path, data, on_corrupt):
    path = tmp_path / "t.tar"
    path.write_bytes(data)
    rules = Rules(on_corrupt=on_corrupt, on_duplicate="first", ignore_zeros=on_corrupt == "skip", label="cls")
    assert not taken(bytes(path), rules, PIECE=1 << 16)
    with contextlib.suppress(DataError):
        both(bytes(path), b"t.tar", rules)


def test_rules(scan):
    data = PLAIN + END
    for rules in ({"group": "archive"}, {"strict": True}, {"require": (b"cls", b"jpg")}, {"ignore_trailing": True}):
        assert scan(data, **rules)[1]
    with pytest.raises(DataError, match=r"has no txt"):
        scan(data, require=(b"txt",))
    case = b"".join(member(b"%d.%s" % (i, ext)) for i in range(3) for ext in (b"Ab", b"aB")) + END
    with pytest.raises(DataError, match="letter case"):
        scan(case)
    assert scan(case, allow_case_collision=True)[1]
    # the same field in two cases, but never in one sample
    assert scan(b"".join(member(b"%d.%s" % (i, b"Ab" if i % 2 else b"aB")) for i in range(5)) + END)[1]
    two_halves = PLAIN + member(b"0003.txt") + END
    scanned, is_taken = scan(two_halves, group="archive")
    assert scanned.samples == 9 and not is_taken


def test_labels(scan):
    def labelled(*values):
        return b"".join(member(b"%d.cls" % i, v) + member(b"%d.x" % i) for i, v in enumerate(values)) + END

    scanned, is_taken = scan(labelled(b"1", b" 22\n", b"", b"x" * 512), label="cls")
    assert is_taken and scanned.labels == [b"1", b"22", b"", b"x" * 512]
    scanned, is_taken = scan(labelled(b"1", b"y" * 513, b"2", b"3"), label="cls")
    assert is_taken and scanned.labels == [b"1", b"y" * 513, b"2", b"3"]
    assert scan(labelled(b"1", b"2"), label="no")[0].labels == [None, None]
    scanned, is_taken = scan(member(b"a.x", b"1") + member(b"b.y") + labelled(b"2"), label="cls")
    assert is_taken and scanned.labels == [None, None, b"2"]
    with pytest.raises(DataError, match="larger than 1024"):
        scan(labelled(b"1", b"y" * 1025), label="cls")


def test_many_extensions(scan):
    few = b"".join(member(b"k.%d" % i) for i in range(vector.MANY)) + END
    assert scan(few)[1] and not scan(member(b"a.more") + few)[1]


def test_large_members_are_left_to_the_plain_scan(scan):
    data = samples(40, b"jpg", size=lambda i: 5000) + END
    with constants(JUDGE=1 << 14):
        assert scan(data)[1]
        with constants(LARGE=5000):
            assert not scan(data)[1]


def test_a_member_larger_than_a_piece(scan):
    assert scan(samples(3, b"a", b"b", size=lambda i: 3000 * i) + END)[1]


def test_small_archives_are_left_to_the_plain_scan(tmp_path):
    path = tmp_path / "t.tar"
    path.write_bytes(PLAIN + END)
    with Blocks(bytes(path), b"t.tar") as blocks:
        assert vector.columns(blocks, Rules()) is None


# -- any archive ---------------------------------------------------------------------------------------

COMPONENT = st.text("ab./_", min_size=1, max_size=5).map(str.encode)
NAMES = st.one_of(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c/d", b"./a"]),
        st.sampled_from([b"x", b"y", b"X", b"seg.png", b"long.extension"]),
    ).map(b".".join),
    st.integers(0, 30).map(lambda i: b"%d.x" % i),
    st.binary(min_size=1, max_size=100),
    COMPONENT,
)  # fmt: skip
PAYLOADS = st.one_of(
    st.integers(0, 2000).map(bytes),
    st.binary(max_size=30),
    NAMES.map(lambda name: member(name, b"p")),
)
MEMBERS = st.one_of(
    st.builds(member, NAMES, PAYLOADS),
    st.builds(member, NAMES, PAYLOADS, magic=st.sampled_from([GNU, b"ustar\x0000", bytes(8)])),
    st.builds(member, NAMES, PAYLOADS, kind=st.sampled_from([b"\0", b"1", b"5", b"7", b"x"])),
)
RULES = st.builds(
    Rules,
    on_corrupt=st.sampled_from(["error", "skip", "resync"]), on_duplicate=st.sampled_from(["error", "first", "last"]),
    on_unsafe_name=st.sampled_from(["error", "skip"]), group=st.sampled_from(["adjacent", "archive"]),
    ignore_zeros=st.booleans(), ignore_trailing=st.booleans(), allow_case_collision=st.booleans(),
    require=st.sampled_from([(), (), (b"x",)]), label=st.sampled_from([None, "x"]),
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(MEMBERS, max_size=8), st.sampled_from([b"", bytes(512), END, END + END, END + b"x"]), RULES)
def test_any_archive(tmp_path_factory, members, tail, rules):
    check(tmp_path_factory, b"".join(members) + tail, rules)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 1300)), min_size=1, max_size=12),
    RULES, st.sampled_from([512, 1024, 2048, 8192]), st.sampled_from([1, 2, 5, 64]),
)  # fmt: skip
def test_any_ordinary_archive(tmp_path_factory, shape, rules, piece, batch):
    """Runs of members with the same key, in pieces and batches of all sizes."""
    data = b"".join(
        member(b"%s%d.%s" % (b"k" * kind, number, b"xyzw"[k : k + 1] * kind), bytes(size))
        for number, (kind, parts, size) in enumerate(shape)
        for k in range(parts if kind else 1)
    )
    check(tmp_path_factory, data + END, rules, PIECE=piece, BATCH=batch)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, len(PLAIN) - 1), st.integers(0, 255)), min_size=1, max_size=3), RULES)
def test_any_damage(tmp_path_factory, changes, rules):
    data = bytearray(PLAIN + END)
    for at, value in changes:
        data[at] = value
    check(tmp_path_factory, bytes(data), rules)


def check(tmp_path_factory, data, rules, **constants):
    path = tmp_path_factory.getbasetemp() / "any.tar"
    path.write_bytes(data)
    with contextlib.suppress(DataError):
        both(bytes(path), b"t.tar", rules, **constants)


def test_every_byte_of_a_header(tmp_path):
    """Each byte changed with the checksum put right again: both scans say the same."""
    data, path = samples(2, b"a", b"b") + END, tmp_path / "t.tar"
    for at in range(512):
        for value in (32, 57):
            block = bytearray(data[1024:1536])
            block[at] = value
            if not 148 <= at < 156:
                block[148:156] = b" " * 8
                block[148:156] = b"%06o\0 " % sum(block)
            path.write_bytes(data[:1024] + bytes(block) + data[1536:])
            with contextlib.suppress(DataError):
                both(bytes(path), b"t.tar", Rules())


def test_what_gnu_and_posix_write_is_taken(tmp_path):
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / "t.tar"
        with tarfile.open(path, "w", format=format) as archive:
            for i in range(50):
                info = tarfile.TarInfo(f"{i:06d}.jpg")
                info.size, info.mtime, info.uid, info.uname = 700, 1_700_000_000, 1000, "somebody"
                archive.addfile(info, io.BytesIO(padded(b"p" * 700)))
        assert taken(bytes(path), Rules())
        assert both(bytes(path), b"t.tar", Rules()).samples == 50
