"""SRC arguments to ordered input files, on real files."""

import base64
import glob as stdlib_glob
import io
import itertools
import json
import os
import random
import struct
import tarfile
import tempfile

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.base.errors import DataError, HostError, StateError, UsageError
from shardtool.disk import patterns
from shardtool.disk.claims import claims, format_of_name, is_junk
from shardtool.disk.patterns import braces, glob
from shardtool.disk.sources import SourceOptions, check_apart, resolve, side_indexes
from shardtool.layout.rules import Rules

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"2d" * 32 + b"\nsize 145238016\n"


def masked(data: bytes) -> bytes:
    crc = crc32c.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(payload: bytes = b"payload") -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def archive(name: str = "a.txt") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = 5
        tar.addfile(member, io.BytesIO(b"hello"))
    return out.getvalue()


TFR, TAR = record(), archive()


@pytest.fixture
def box(tmp_path, monkeypatch):
    """The current folder, and a function that fills it: put({'a/b.tar': bytes}) or put('a/b.tar', ...)."""
    monkeypatch.chdir(tmp_path)

    def put(*names, **contents):
        made = {name: TFR if "tfrec" in name or "-of-" in name else TAR for name in names}
        for name, content in {**made, **contents}.items():
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            with open(name, "wb") as file:
                file.write(content)
        return tmp_path

    return put


def names(*sources, rules=None, **options):
    return [one.name.decode() for one in resolve(sources, SourceOptions(**options), rules).files]


def ignored(*sources, **options):
    return dict(resolve(sources, SourceOptions(**options)).findings.ignored)


# -- order and base ------------------------------------------------------------------------------------------


def test_order_is_that_of_the_bytes_of_the_whole_path(box):
    box("in/a/x.tar", "in/a-b/x.tar", "in/a.tar", "in/a0.tar", "in/B.tar")
    assert names("in") == ["B.tar", "a-b/x.tar", "a.tar", "a/x.tar", "a0.tar"]


def test_neither_arguments_nor_creation_order_matter(tmp_path):
    members = [f"shard-{i}.tar" for i in range(12)]
    wanted = sorted(members)
    for turn in range(4):
        folder = tmp_path / str(turn)
        folder.mkdir()
        mixed = random.Random(turn).sample(members, len(members))
        for name in mixed:
            (folder / name).write_bytes(TAR)
        assert names(str(folder)) == wanted
        assert names(*(str(folder / name) for name in reversed(mixed))) == wanted
        assert names(str(folder / "shard-{0..11}.tar")) == wanted
        assert names(str(folder / "*.tar")) == wanted


def test_input_says_what_is_on_disk(box):
    root = box("in/a.tfrecord")
    (one,) = resolve(["in"]).files
    status = os.stat("in/a.tfrecord")
    assert one.path == os.fsencode(root / "in/a.tfrecord") and one.compression is None and not one.linked
    assert (one.size, one.mtime_ns, one.inode) == (len(TFR), status.st_mtime_ns, status.st_ino)


@pytest.mark.parametrize(
    ("sources", "base", "wanted"),
    [
        (["d/a"], "d/a", ["x.tar"]),
        (["d/a/"], "d/a", ["x.tar"]),
        (["./d//a/../a"], "d/a", ["x.tar"]),
        (["d/a", "d/b"], "d", ["a/x.tar", "b/x.tar"]),
        (["d/a/x.tar"], "d/a", ["x.tar"]),
        (["d/a/x.tar", "d/b/x.tar"], "d", ["a/x.tar", "b/x.tar"]),
        (["d/a/x.tar", "e.tar"], ".", ["d/a/x.tar", "e.tar"]),
        (["d"], "d", ["a/x.tar", "b/x.tar"]),
    ],
)
def test_base_is_the_folder_itself_or_the_deepest_common_one(box, sources, base, wanted):
    root = box("d/a/x.tar", "d/b/x.tar", "e.tar")
    inputs = resolve(sources)
    assert inputs.base == os.path.realpath(os.fsencode(root / base))
    assert [one.name.decode() for one in inputs.files] == wanted


def test_base_option(box):
    box("d/a/x.tar", "e.tar")
    assert names("d/a", base="d") == ["a/x.tar"]
    os.symlink("d", "link")
    assert names("d/a", base="link") == ["a/x.tar"]
    with pytest.raises(UsageError, match="outside --base"):
        resolve(["e.tar"], SourceOptions(base="d"))
    with pytest.raises(UsageError, match="no folder"):
        resolve(["e.tar"], SourceOptions(base="e.tar"))


def test_dots_behind_a_link_mean_what_the_system_means(box):
    box("real/sub/x.tar", "real/y.tar", "y.tar")
    os.symlink("real/sub", "link")
    (one,) = resolve(["link/../y.tar"]).files
    assert one.path.endswith(b"/real/y.tar") and os.path.samefile(one.path, "real/y.tar")


# -- arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("a{0..2}", "a0 a1 a2"),
        ("{000..003}", "000 001 002 003"),
        ("{8..10}", "8 9 10"),
        ("{08..10}", "08 09 10"),
        ("{9..7}", "9 8 7"),
        ("{0..10..5}", "0 5 10"),
        ("{a..c}{1,2}", "a1 a2 b1 b2 c1 c2"),
        ("x{a,b{1,2},}y", "xay xb1y xb2y xy"),
        ("{a,{1..2}}", "a 1 2"),
        ("{a}{b,c}", "{a}b {a}c"),
        ("{", "{"),
        ("a}b{", "a}b{"),
        ("{a,b", "{a,b"),
        ("{{a,b}", "{a {b"),
        ("{-1..1}", "-1 0 1"),
    ],
)
def test_braces_as_in_bash(pattern, wanted):
    assert b" ".join(braces(pattern.encode())).decode() == wanted


def test_braces_are_lazy():
    assert list(itertools.islice(braces(b"x-{000000000000..999999999999}.tar"), 2)) == [
        b"x-000000000000.tar",
        b"x-000000000001.tar",
    ]


def test_a_missing_brace_member_is_named(box):
    box("t-00.tar", "t-02.tar")
    with pytest.raises(UsageError, match=r"t-01\.tar"):
        resolve(["t-{00..02}.tar"])


def test_braces_and_globs_together(box):
    box("a/1.tar", "b/2.tar", "c/3.tar")
    assert names("{a,b}/*.tar") == ["a/1.tar", "b/2.tar"]
    with pytest.raises(UsageError, match=r"no file matches[\s\S]*z/\*\.tar"):
        resolve(["{a,z}/*.tar"])


def test_an_existing_name_is_no_pattern(box):
    box("a[1].tar", "a1.tar", "{x,y}.tar", "@odd.tar")
    assert names("a[1].tar") == ["a[1].tar"]
    assert names("{x,y}.tar") == ["{x,y}.tar"]
    assert names("@odd.tar") == ["@odd.tar"]


PIECES = st.sampled_from(["a", "b", "ab", ".h", "*", "?", "a*", "*b", "[ab]", "[!a]*", ".*"])


@given(st.lists(PIECES, min_size=1, max_size=3), st.booleans())
def test_globs_match_what_the_standard_library_matches(parts, deep):
    pattern = "/".join(parts)
    with tempfile.TemporaryDirectory() as root:
        for path in ("a/a", "a/b/ab", "b/a/.h", ".h/a", "ab/b/a", "b/b"):
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w"):
                pass
        full = os.path.join(root, "**", pattern) if deep else os.path.join(root, pattern)
        wanted = {p for p in stdlib_glob.glob(full, recursive=True) if not (deep and os.path.isdir(p))}
        assert glob(os.fsencode(full)) == sorted(map(os.fsencode, wanted))


def test_double_star_over_all_depths(box):
    box("d/1.tar", "d/a/2.tar", "d/a/b/3.tar", "d/.h/4.tar")
    assert names("d/**/*.tar") == names("**/*.tar") == names("d/**") == ["1.tar", "a/2.tar", "a/b/3.tar"]


def test_question_mark_is_one_character_in_any_locale(box):
    box("é.tar", "ab.tar")
    assert names("?.tar") == ["é.tar"]


def test_a_pattern_without_a_match(box):
    box("a.tar", "d/a.tar")
    for pattern in ("*.tfrecord", "a.tar/*", "x/**", "**/x.tar"):
        with pytest.raises(UsageError, match="no file matches"):
            resolve([pattern])


def test_list_file(box):
    box(
        "a.tar",
        "b/1.tar",
        "b/2.tar",
        "#c.tar",
        " d.tar",
        **{"l.txt": b"# shards\r\na.tar\r\n\nb/*.tar\n./#c.tar\n d.tar"},
    )
    assert names("@l.txt") == [" d.tar", "#c.tar", "a.tar", "b/1.tar", "b/2.tar"]


def test_list_file_names_the_line(box):
    box("a.tar", **{"l.txt": b"a.tar\nnone.tar\n", "empty.txt": b"\n#\n"})
    with pytest.raises(UsageError, match=r"none\.tar[\s\S]*line 2 of l\.txt"):
        resolve(["@l.txt"])
    with pytest.raises(UsageError, match="no such file"):
        resolve(["@none.txt"])
    with pytest.raises(UsageError, match="names no file"):
        resolve(["@empty.txt"])


@pytest.mark.parametrize(
    "url", ["s3://b/x.tar", "gs://b/x-{0..9}.tar", "hf://datasets/x", "https://h/x.tar", "pipe:cat x"]
)
def test_urls_are_refused(box, url):
    box("a.tar")
    with pytest.raises(UsageError, match=r"local files only for now[\s\S]*do:"):
        resolve([url])


def test_what_does_not_exist(box):
    box("a.tar")
    os.symlink("nowhere", "dangling.tar")
    for source in ("none.tar", "a.tar/x", "none/", "", "x" * 300, "dangling.tar"):
        with pytest.raises(UsageError):
            resolve([source])
    with pytest.raises(UsageError, match="no SRC"):
        resolve([])


def test_a_pipe_is_refused_and_never_opened(box):
    box("d/a.tar")
    os.mkfifo("d/fifo.tar")
    with pytest.raises(UsageError, match="no regular file"):
        resolve(["d/fifo.tar"])
    assert ignored("d") == {"special": 1}


def manifest_of(*shards):
    facts = {"shardtool": {"schema": 1}, "shards": [{"name": name} for name in shards]}
    return json.dumps(facts).encode()


def test_manifest_stands_for_its_shards(box):
    odd = base64.b64encode(b"s/\xff.tar").decode()
    root = box(
        "out/s/b.tar",
        "out/a.tar",
        "out/no.tar",
        **{"out/m.json": manifest_of("s/b.tar", "a.tar", {"base64": odd})},
    )
    with open(b"out/s/\xff.tar", "wb") as file:
        file.write(TAR)
    inputs = resolve(["out/m.json"])
    assert [one.name for one in inputs.files] == [b"a.tar", b"s/b.tar", b"s/\xff.tar"]
    assert inputs.base == os.fsencode(root / "out")
    assert inputs.manifests == (os.fsencode(root / "out/m.json"),)


def test_manifest_that_lies(box):
    box(
        "a.tar",
        **{"d/1.json": manifest_of("../a.tar"), "d/2.json": manifest_of("none.tar"), "d/3.json": b'{"x": 1}'},
    )
    for source, words in (("d/1.json", "outside its folder"), ("d/2.json", "missing"), ("d/3.json", "JSON")):
        with pytest.raises(DataError, match=words):
            resolve([source])


# -- folders -------------------------------------------------------------------------------------------------


def test_own_work_and_index_folders_are_passed_over(box):
    box("out/t-00000-of-00001", **{
        "out/manifest.json": manifest_of("t-00000-of-00001"), "out/index/t-00000-of-00001.npy": b"\x93NUMPY",
        "out/.shardtool/t-00000-of-00009": TFR,
    })  # fmt: skip
    assert names("out") == ["t-00000-of-00001"]
    assert ignored("out") == {"files": 1}
    os.remove("out/manifest.json")
    assert names("out") == ["t-00000-of-00001"]  # the work folder of an unfinished run says it as well


def test_a_folder_called_index_is_a_folder(box):
    box("d/index/a.tar", **{"d/manifest.json": b"{}"})
    assert names("d") == ["index/a.tar"]


def test_hidden_folders_are_not_entered(box):
    box("d/a.tar", "d/.git/b.tar", "d/__MACOSX/c.tar", "d/_temporary/0/part-00000")
    assert names("d") == ["a.tar"] and ignored("d") == {"directories": 3}
    assert names("d/.git") == ["b.tar"]


def test_linked_files_are_followed(box):
    box("blobs/1", "blobs/2")
    os.mkdir("d")
    os.symlink("../blobs/1", "d/b.tar")
    os.symlink("../blobs/2", "d/a.tar")
    inputs = resolve(["d"])
    assert [(one.name, one.linked) for one in inputs.files] == [(b"a.tar", True), (b"b.tar", True)]


def test_linked_folders_are_entered_once_under_their_own_name(box):
    box("d/z/1.tar", "ext/2.tar")
    os.symlink("z", "d/a")  # sorts before z, and is inside the tree
    os.symlink("../ext", "d/e1")
    os.symlink("../ext", "d/e2")
    os.symlink("..", "d/z/up")
    os.symlink(".", "d/self")
    os.symlink("loop", "d/loop")
    assert names("d") == ["e1/2.tar", "z/1.tar"]
    assert ignored("d") == {"symlinks": 1}
    assert os.fsencode(os.path.abspath("d/e1")) in resolve(["d"]).roots


def test_a_link_to_nothing(box):
    box("d/a.tar")
    os.symlink("gone", "d/notes")
    assert ignored("d") == {"symlinks": 1}
    os.symlink("../.git/annex/objects/x", "d/b.tar")
    with pytest.raises(DataError, match=r"points to nothing[\s\S]*d/b\.tar"):
        resolve(["d"])


def test_deep_folders_need_no_recursion(tmp_path):
    made = [str(tmp_path)]
    for _ in range(1500):
        made.append(made[-1] + "/d")
        os.mkdir(made[-1])
    shard = made[-1] + "/a.tar"
    with open(shard, "wb") as file:
        file.write(TAR)
    assert names(made[0]) == ["d/" * 1500 + "a.tar"]
    assert names(made[0] + "/**/*.tar") == ["a.tar"]
    os.remove(shard)
    for folder in reversed(made[1:]):
        os.rmdir(folder)  # the clean-up of pytest does recurse


def test_folders_lists_what_was_entered(box):
    root = os.fsencode(box("d/a/x.tar", "d/b/y.tar", "d/.h/z.tar"))
    assert resolve(["d"]).folders == (root + b"/d", root + b"/d/a", root + b"/d/b")


# -- kinds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "claimed", "kind"),
    [
        ("a.tar", True, "tar"), ("a.tar.gz", True, "tar"), ("a.tgz", True, "tar"), ("A.TAR", True, "tar"),
        ("a.tfrecord", True, "tfrecord"), ("a.tfrecords", True, "tfrecord"), ("a.tfrec", True, "tfrecord"),
        ("x.tfrecord-00000-of-00002", True, "tfrecord"), ("x.recordio", True, "tfrecord"),
        ("t-00000-of-00002", True, None), ("part-00000", True, None), ("part-r-00007", True, None),
        ("t-00000-of-00002.tar", True, "tar"), ("part-00000.tfrecord.gz", True, "tfrecord"),
        ("a.star", False, None), ("tar", False, None), ("x-1-of-2", False, None),
        ("apart-00000", False, None),
        ("t-00000-of-00002.json", False, None), ("a.tar.txt", False, "tar"),
    ],
)  # fmt: skip
def test_names_that_claim(name, claimed, kind):
    assert claims(name.encode()) == claimed
    assert format_of_name(name.encode()) == kind


JUNK = [
    ".DS_Store", "._a.tar", "a.tar.idx", "a.tfrecord.index", "a.tfindex", "a.index.json", "x.crc", "_SUCCESS",
    "part-r-00002.tmp", "a.tar.incomplete", "manifest.json", "README.md", "LICENSE", "a.tar.sha256",
    "a.tar.dvc", "a.tar~", "a.tfrecord.part",
]  # fmt: skip


def test_side_files_are_ignored_and_counted(box):
    box("d/part-r-00000", "d/sub/x.json", "d/labels.csv", "d/other", **{f"d/{name}": TFR for name in JUNK})
    with open("d/part-r-00000", "wb") as file:
        file.write(TFR)
    with open("d/other", "wb") as file:
        file.write(b"neither")
    assert all(is_junk(name.encode()) for name in JUNK)
    inputs = resolve(["d"])
    assert [(one.name, one.format) for one in inputs.files] == [(b"part-r-00000", "tfrecord")]
    assert inputs.findings.ignored == {"files": len(JUNK) + 3}
    (line,) = inputs.findings.sentences()
    assert line.startswith(
        f"ignored {len(JUNK) + 3} files that are no shards: .DS_Store, ._a.tar, LICENSE and"
    )


def test_side_files_caught_by_a_pattern(box):
    box(
        "d/part-00000.tfrecord",
        **{"d/part-00000.tfrecord.idx": b"0 23\n", "d/_SUCCESS": b"", "d/part-00001.tmp": TFR[:9]},
    )
    matched = sorted("d/" + name for name in os.listdir("d"))
    assert names(*matched) == names("d/*") == ["part-00000.tfrecord"]  # by the shell, or by us
    assert ignored(*matched) == ignored("d/*") == {"files": 3}


def test_content_decides_the_format(box):
    box(**{"d/a.tar": TFR, "d/plain": TFR})
    assert [one.format for one in resolve(["d"]).files] == ["tfrecord", "tfrecord"]


def test_a_plain_tfrecord_may_begin_like_gzip(box):
    box(**{"a.tfrecord": record(bytes(0x8B1F))})
    with open("a.tfrecord", "rb") as file:
        assert file.read(2) == b"\x1f\x8b"
    assert resolve(["a.tfrecord"]).format == "tfrecord"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d/t-00001-of-00002.tfrecord", LFS, ["not a TFRecord", "lfs"]),
        ("d/b.tar", LFS, ["not a tar archive", "lfs"]),
        ("d/b.tar", b"<!DOCTYPE html><p>404", ["HTML"]),
        ("d/b.tar", b"download: 's3://b/x.tar'\n" + TAR, ["not a tar archive", "download: "]),
        ("d/part-00000.parquet", b"PAR1" + bytes(99), ["Parquet"]),
        (
            "d/b.tfrecord",
            struct.pack("<QI", 7, 1) + b"x" * 11,
            ["not a TFRecord", "checksum", "byte offset 0"],
        ),
    ],
)
def test_a_claim_without_content_is_damage(box, name, content, words):
    box("d/a.tar", "d/t-00000-of-00002.tfrecord", **{name: content})
    other = "d/t-00000-of-00002.tfrecord" if name == "d/b.tar" else "d/a.tar"
    os.remove(other)
    for source in ("d", name):
        with pytest.raises(DataError) as caught:
            resolve([source], SourceOptions(allow_incomplete=True))
        assert all(word in str(caught.value) for word in [*words, name])


def test_a_named_file_is_a_claim(box):
    box("d/a.tar", **{"d/notes.txt": b"hello there"})
    assert names("d") == ["a.tar"]
    for sources in (["d/notes.txt"], ["d/a.tar", "d/notes.txt"], ["d/*"]):
        with pytest.raises(DataError, match=r"not a (shard|tar archive); the file begins with 'hello there'"):
            resolve(sources)


def test_damage_may_be_left_out(box):
    box("d/t-00000-of-00002.tar", **{"d/t-00001-of-00002.tar": b"junk" * 300, "d/t-00000-of-00002.tar": TAR})
    inputs = resolve(["d"], rules=Rules(on_corrupt="skip"))
    assert [one.name for one in inputs.files] == [b"t-00000-of-00002.tar"]
    assert inputs.findings.dropped == {"archives_damaged": 1}
    assert any("t-00001-of-00002.tar is left out: not a tar archive" in w for w in inputs.findings.warnings)
    assert names("d", rules=Rules(on_corrupt="resync")) == ["t-00000-of-00002.tar", "t-00001-of-00002.tar"]
    with pytest.raises(DataError, match="no samples"):
        resolve(["d/t-00001-of-00002.tar"], SourceOptions(allow_incomplete=True), Rules(on_corrupt="skip"))


def test_wrong_length_checksums_are_left_to_the_scan_without_verification(box):
    box(**{"a.tfrecord": struct.pack("<QI", 7, 1) + b"x" * 11, "b.tfrecord": LFS})
    assert names("a.tfrecord", rules=Rules(verify=False)) == ["a.tfrecord"]
    with pytest.raises(DataError, match="lfs"):
        resolve(["b.tfrecord"], rules=Rules(verify=False))


def test_empty_files_take_the_kind_of_their_name_or_siblings(box):
    box("d/t-00000-of-00003", **{"d/t-00001-of-00003": b"", "d/t-00002-of-00003": bytes(512)})
    assert [(one.format, one.size) for one in resolve(["d"]).files] == [
        ("tfrecord", len(TFR)), ("tfrecord", 0), ("tfrecord", 512)]  # fmt: skip
    box("e/a.tar", **{"e/b.tar": b"", "e/c.tar": bytes(10240), "e/nothing": b""})
    assert [(one.name, one.format) for one in resolve(["e"]).files] == [
        (b"a.tar", "tar"), (b"b.tar", "tar"), (b"c.tar", "tar")]  # fmt: skip


def test_only_empty_files_without_a_kind(box):
    box(**{"d/t-00000-of-00002": b"", "d/t-00001-of-00002": b""})
    with pytest.raises(DataError, match="no samples"):
        resolve(["d"])
    assert [one.format for one in resolve(["d"], SourceOptions(from_="tfrecord")).files] == ["tfrecord"] * 2


def test_folders_without_shards(box):
    box(**{"s/a.jpg": b"\xff\xd8\xff", "s/a.cls": b"1", "j/_SUCCESS": b"", "j/README": b""})
    os.mkdir("e")
    (one,) = resolve(["s"]).files
    assert (one.name, one.format, one.size, list(one.files.names)) == (b".", "folder", 4, [b"a.cls", b"a.jpg"])
    with pytest.raises(DataError, match=r"no shard in this folder[\s\S]*2 files are ignored, README"):
        resolve(["j"])
    with pytest.raises(DataError, match=r"no shard in this folder[\s\S]*empty"):
        resolve(["e"])


def test_from_overrides(box):
    box("d/a.tar", "d/b.tfrecord", **{"d/c.tfrecord": b"?" * 99, "d/plain": b"?" * 99})
    assert names("d", from_="tfrecord") == ["b.tfrecord", "c.tfrecord"]
    assert ignored("d", from_="tfrecord") == {"files": 2}
    with pytest.raises(DataError, match="not a TFRecord file, but a tar archive"):
        resolve(["d/a.tar"], SourceOptions(from_="tfrecord"))
    box("e/a.tar")
    with pytest.raises(DataError, match="no tfrecord shard"):
        resolve(["e"], SourceOptions(from_="tfrecord"))


def test_what_a_later_release_does(box):
    box("d/a.tar", "d/b.tfrecord")
    with pytest.raises(UsageError, match=r"mixes tar and TFRecord, .*: a\.tar \(tar\) and b\.tfrecord"):
        resolve(["d"])


# -- the same file twice -------------------------------------------------------------------------------------


def test_one_file_by_two_ways(box):
    box("d/a.tar", "d/b.tar")
    os.symlink("d", "other")
    for sources in (
        ["d/a.tar", "d/a.tar"],
        ["d", "d/a.tar"],
        ["d", "d"],
        ["d", "other"],
        ["d/*", "d/{a,b}.tar"],
    ):
        with pytest.raises(UsageError, match=r"the same file is reached twice: .*a\.tar"):
            resolve(sources)
    os.symlink("a.tar", "d/c.tar")
    with pytest.raises(UsageError, match=r"twice: .*d/a\.tar and .*d/c\.tar"):
        resolve(["d"])


def test_hard_links_are_two_files(box):
    box("d/a.tar")
    os.link("d/a.tar", "d/b.tar")
    assert names("d") == ["a.tar", "b.tar"]


# -- shard sets ----------------------------------------------------------------------------------------------


def warnings(*sources, **options):
    return resolve(sources, SourceOptions(**options)).findings.warnings


def test_a_set_with_a_gap(box):
    box(*(f"d/x-train.tfrecord-{i:05}-of-00004" for i in (0, 1, 3)))
    with pytest.raises(
        DataError, match=r"incomplete: missing x-train\.tfrecord-00002-of-00004\n[\s\S]*3 of 4"
    ):
        resolve(["d"])
    (warning,) = warnings("d", allow_incomplete=True)
    assert "missing x-train.tfrecord-00002-of-00004" in warning
    with pytest.raises(DataError, match=r"missing x-train\.tfrecord-00001-of-00004, .* \(?"):
        resolve(["d/x-train.tfrecord-00000-of-00004"])


def test_a_huge_total_costs_nothing(box):
    box("d/x-00000-of-99999999999999")
    with pytest.raises(DataError, match=r"00005-of-99999999999999 and 99,999,999,999,993 more"):
        resolve(["d"])


def test_two_totals(box):
    box(*(f"d/x.tfrecord-{i:05}-of-{n:05}" for n in (2, 3) for i in range(n)))
    with pytest.raises(DataError, match=r"two different totals.*2 files of-00002, 3 files of-00003"):
        resolve(["d"])
    assert len(names("d/x.tfrecord-*-of-00003")) == 3
    (warning,) = warnings("d", allow_incomplete=True)
    assert "two different totals" in warning


def test_numbered_from_one(box):
    box(*(f"d/x.tfrecord-{i:05}-of-00003" for i in (1, 2, 3)))
    (warning,) = warnings("d")
    assert "numbered from 1" in warning and "missing" not in warning
    with pytest.raises(DataError, match="numbered from 1"):
        resolve(["d"], SourceOptions(strict=True))
    box("d/x.tfrecord-00000-of-00003")
    with pytest.raises(DataError, match=r"beyond its total: x\.tfrecord-00003-of-00003"):
        resolve(["d"])


def test_sets_are_apart_by_folder_and_whole_name(box):
    box("d/a/t-00000-of-00001", "d/b/t-00000-of-00002", "d/b/t-00001-of-00002", "d/b/v-00000-of-00001")
    assert warnings("d") == []
    box(**{"h/t-00000-of-00002-6f3a0c5e9d21b874.tar": TAR, "h/t-00001-of-00002-0123456789abcdef.tar": TAR})
    assert warnings("h") == []
    box(**{"g/t-00000-of-00002": TAR, "g/t-00001-of-00002.x": TAR})
    with pytest.raises(DataError, match=r"missing t-00001-of-00002\n"):
        resolve(["g"])


# -- odd names and hosts -------------------------------------------------------------------------------------


def test_names_that_are_no_text(tmp_path):
    root = os.fsencode(tmp_path)
    odd = [
        b"\xff\xfe.tar",
        b"new\nline.tar",
        b" .tar",
        b"tab\t.tar",
        "é.tar".encode(),
        "e\u0301.tar".encode(),
    ]
    for name in odd:
        with open(root + b"/" + name, "wb") as file:
            file.write(TAR)
    assert [one.name for one in resolve([root]).files] == sorted(odd)
    assert [one.name for one in resolve([os.fsdecode(root + b"/" + name) for name in odd]).files] == sorted(
        odd
    )
    assert [one.name for one in resolve([root + b"/*.tar"]).files] == sorted(odd)
    with pytest.raises(UsageError, match=r"\\xff\\xfe"):
        resolve([root + b"/\xff\xfe"])


def test_unreadable_is_the_hosts_fault():
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        os.makedirs(root + "/d/closed")
        os.chmod(root + "/d", 0o755)
        for path, mode in (("/d/a.tar", 0o644), ("/f.tar", 0)):
            with open(root + path, "wb") as file:
                file.write(TAR)
            os.chmod(root + path, mode)
        os.chmod(root + "/d/closed", 0)
        for source in ("/d", "/f.tar", "/d/closed/x.tar", "/d/closed/*", "/d/**/*.tar"):
            child = os.fork()
            if not child:  # root may read anything, so be nobody
                if not os.geteuid():
                    os.setuid(65534)
                try:
                    resolve([root + source])
                except HostError as error:
                    os._exit(0 if "Permission denied" in str(error) else 2)
                except BaseException:
                    os._exit(3)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, source
        os.chmod(root + "/d/closed", 0o755)


def test_few_system_calls(box, monkeypatch):
    box(*(f"d/{i:03}.tar" for i in range(50)), **{f"d/{i:03}.jpg": b"x" for i in range(50)})
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more)
    )
    assert len(names("d")) == 50
    assert len(opened) == 50  # one a candidate, none for pictures


# -- beside the inputs ---------------------------------------------------------------------------------------


def test_side_indexes(box):
    side = {
        "d/a.tfrecord.idx": b"",
        "d/a.idx": b"",
        "d/a.tfindex": b"",
        "d/b.idx": b"",
        "d/x.tfrecord-00000-of-00001.idx": b"",
    }
    root = os.fsencode(box("d/a.tfrecord", "d/x.tfrecord-00000-of-00001", **side, **{"d/x.idx": b""}))
    a, x = resolve(["d"]).files
    assert side_indexes(a) == [root + b"/d/" + name for name in (b"a.tfrecord.idx", b"a.idx", b"a.tfindex")]
    assert side_indexes(x) == [root + b"/d/x.tfrecord-00000-of-00001.idx"]


@pytest.mark.parametrize(
    ("sources", "out", "words"),
    [
        (["d"], "d", "same"), (["d"], "d/", "same"), (["d"], "link", "same"), (["d"], "d/out", "inside"),
        (["d"], "d/a/b/c", "inside"), (["d"], "link/out", "inside"), (["d/a"], "d", "inside OUT"),
        (["d"], ".", "inside OUT"),
        (["link"], "d", "same"), (["d/x.tar"], "d", "inside OUT"), (["d/x.tar"], "d/x.tar", "same"),
        (["far.tar"], "blob", "inside OUT"), (["far.tar"], ".", "inside OUT"), (["d"], "ext", "same"),
        (["d"], "ext/new", "inside"), (["d/*.tar"], "d", "inside OUT"), (["d/m.json"], "d", "inside OUT"),
        (["d"], "link/a/../new", "inside"),
    ],
)  # fmt: skip
def test_out_is_apart(box, sources, out, words):
    box("d/x.tar", "d/a/y.tar", "blob/1", "ext/z.tar", **{"d/m.json": manifest_of("x.tar")})
    os.symlink("d", "link")
    os.symlink("blob/1", "far.tar")
    os.symlink("../ext", "d/ext")
    with pytest.raises(StateError, match=words):
        check_apart(out, resolve(sources))


@pytest.mark.parametrize(
    ("sources", "out"), [(["d"], "d2"), (["d"], "out"), (["d/x.tar"], "d/out"), (["d/a"], "d/b")]
)
def test_out_may_be_beside(box, sources, out):
    box("d/x.tar", "d/a/y.tar")
    check_apart(out, resolve(sources))


def test_patterns_know_their_kind():
    assert patterns.has_braces(b"{a,b}") and not patterns.has_braces(b"{a}")
    assert patterns.has_magic(b"a?") and not patterns.has_magic(b"a{b,c}")
