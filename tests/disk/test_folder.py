"""Folders of sample files: what becomes a sample, what is ignored, links, labels, and changes during the run."""

import os
import random
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError, StateError, UsageError
from shardtool.base.reporting import Reporter
from shardtool.disk import samplefiles
from shardtool.disk.engines.job import SourceFiles, SourceTable
from shardtool.disk.formats.example import feature_values
from shardtool.disk.sources import SourceOptions, resolve
from shardtool.jobs import repack as repack_module
from shardtool.jobs.depfile import write_depfile
from shardtool.jobs.inspect import InspectOptions, inspect
from shardtool.jobs.manifest import write_manifest
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.scan import scan
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.rules import Rules
from tests.makers import content, read_tfrecord, write_tar, write_tfrecord


class Heard(Reporter):
    def __init__(self):
        super().__init__()
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def fill(root, files):
    """files: name (str or bytes) -> payload, or a list of names whose payloads are the names."""
    if not isinstance(files, dict):
        files = {name: os.fsencode(name) for name in files}
    for name, payload in files.items():
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(payload)
    return root


def options(rules=None, **changes):
    source = {name: changes.pop(name) for name in ("from_", "label_from", "base") if name in changes}
    rules = Rules(**rules or {})
    return RepackOptions(
        **{"shards": 2, "jobs": 1, **changes}, source=SourceOptions(**source), rules=rules, strict=rules.strict
    )


def members(out, result):
    """Members of all shards, [(name, payload)] by tarfile, names as bytes."""
    found = []
    for receipt in result.manifest.shards:
        with tarfile.open(out / receipt.name, encoding="utf-8", errors="surrogateescape") as archive:
            found += [(os.fsencode(m.name), archive.extractfile(m).read()) for m in archive]
    return found


def packed(root, out, **changes):
    result = repack([str(root)], str(out), options(**changes))
    return members(out, result), result


def keys_of(index):
    return list(index.keys)


def samples_of(*sources, rules=None, **source):
    """key -> fields in order, and the index."""
    index = scan([str(one) for one in sources], SourceOptions(**source), Rules(**rules or {})).index
    first = index.first[0 : index.samples + 1].tolist()
    fields = [index.exts[code] for code in index.ext[0 : len(index.ext)].tolist()]
    return {key: fields[a:b] for key, a, b in zip(index.keys, first[:-1], first[1:], strict=True)}, index


# -- the rule ----------------------------------------------------------------------------------------------------


def test_files_with_one_name_up_to_the_first_dot_are_one_sample(tmp_path):
    fill(tmp_path / "in", ["a/x.jpg", "a/x.cls", "a/x.s.png", "a-b/x.jpg", "a.jpg", "a/x-1.jpg", "v1.0/y.z.jpg", "B."])
    found, index = samples_of(tmp_path / "in")
    assert found == {
        b"B": [b""], b"a": [b"jpg"], b"a-b/x": [b"jpg"], b"a/x": [b"cls", b"jpg", b"s.png"], b"a/x-1": [b"jpg"],
        b"v1.0/y": [b"z.jpg"],
    }  # fmt: skip
    assert list(found) == sorted(found)  # source order is that of the keys as bytes, whatever the extensions are
    (source,) = index.sources
    assert (source.name, source.samples, source.format) == (b".", 6, "folder")
    assert source.bytes == 7 + 7 + 9 + 9 + 5 + 9 + 12 + 2  # every file holds its name


NAME = st.text("aB.-_ \u00e9/", min_size=1, max_size=6).map(lambda text: "/".join(p for p in text.split("/") if p))


@given(names=st.sets(NAME, max_size=12), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_is_lost(tmp_path, names, seed):
    """Every file is a part of a sample, with its own bytes, or is counted as ignored."""
    root = tmp_path / "in"
    shutil.rmtree(tmp_path, ignore_errors=True)
    root.mkdir(parents=True)
    random.Random(seed).shuffle(order := sorted(names))
    made = {}
    for name in order:
        if set(name.split("/")) & {".", ".."}:
            continue
        try:
            fill(root, {name: name.encode()})
            made[name.encode()] = name.encode()
        except OSError:
            pass  # a folder has that name, or a file has the name of a folder
    folders = [d for d, _, _ in os.walk(root)][1:]
    hidden = {d for d in folders if os.path.basename(d).startswith(".")}
    seen = {n: p for n, p in made.items() if not any(os.fsencode(d + "/") in os.fsencode(root / os.fsdecode(n))
                                                     for d in hidden)}  # fmt: skip
    wanted = {n for n in seen if b"." in os.path.basename(n) and not os.path.basename(n).startswith(b".")}
    if not wanted:
        with pytest.raises(DataError):
            resolve([str(root)])
        return
    got, result = packed(root, tmp_path / "out", shards=1, rules={"allow_case_collision": True})
    assert dict(got) == {name: made[name] for name in wanted} and len(got) == len(wanted)
    assert sum(n for r, n in result.manifest.ignored.items() if r != "directories") == len(seen) - len(wanted)


def test_what_is_ignored_is_counted(tmp_path):
    fill(tmp_path / "in", [
        "x.jpg", "noext", "d/noext", ".hidden.jpg", "._x.jpg", ".git/x.jpg", "__MACOSX/x.jpg", "__meta__/x.jpg",
        "__m__",
        "y.jpg.tmp", "z.crdownload", "README.md", "manifest.json", "license_plate_7.jpg", "readme_1.txt", "a.idx",
        "b.log",
    ])  # fmt: skip
    os.mkfifo(tmp_path / "in" / "pipe.jpg")
    os.symlink("nowhere", tmp_path / "in" / "gone")
    got, result = packed(tmp_path / "in", tmp_path / "out")
    assert sorted(name for name, _ in got) == [b"a.idx", b"b.log", b"license_plate_7.jpg", b"readme_1.txt", b"x.jpg"]
    assert result.manifest.ignored == {
        "no_extension": 2, "hidden": 2, "directories": 2, "meta": 2, "files": 4, "special": 1, "symlinks": 1,
    }  # fmt: skip
    assert any("2 files without an extension: d/noext, noext" in text for text in result.warnings)
    with pytest.raises(DataError, match="without an extension"):
        repack([str(tmp_path / "in")], str(tmp_path / "strict"), options({"strict": True}))


def test_a_folder_without_samples(tmp_path):
    fill(tmp_path / "in", ["noext", ".a.jpg"])
    for source in ({}, {"from_": "folder"}):
        with pytest.raises(DataError, match=r"no sample file in this folder[\s\S]*2 files"):
            resolve([str(tmp_path / "in")], SourceOptions(**source))
    with pytest.raises(UsageError, match="this is no folder"):
        resolve([str(fill(tmp_path / "b", ["x.jpg"]) / "x.jpg")], SourceOptions(from_="folder"))


def test_from_folder_takes_shards_for_samples(tmp_path):
    write_tar(tmp_path / "in" / "a.tar", [("k.jpg", b"1")])
    fill(tmp_path / "in", ["a.json"])
    assert samples_of(tmp_path / "in")[0] == {b"k": [b"jpg"]}
    assert samples_of(tmp_path / "in", from_="folder")[0] == {b"a": [b"json", b"tar"]}
    with pytest.raises(DataError, match="no tar shard"):
        resolve([str(fill(tmp_path / "b", ["x.jpg"]))], SourceOptions(from_="tar"))


def test_names_that_are_no_utf8_long_or_empty(tmp_path):
    deep = b"/".join([b"d" * 60] * 4)
    names = [b"\xff\xfe/\xe9.jpg", deep + b"/x.jpg", b"new\nline.txt", b"sp ace/a b.c d", b"empty.bin"]
    payloads = {name: name * 3 for name in names} | {b"empty.bin": b""}
    fill(tmp_path / "in", payloads)
    got, _ = packed(tmp_path / "in", tmp_path / "out")
    assert dict(got) == payloads
    assert not verify([str(tmp_path / "out")], VerifyOptions(against=(str(tmp_path / "in"),))).findings


def test_required_fields_and_letter_case(tmp_path):
    fill(tmp_path / "in", ["a.jpg", "a.cls", "b.jpg", "c.jpg", "c.JPG"])
    with pytest.raises(DataError, match="sample b has no cls"):
        packed(tmp_path / "in", tmp_path / "o", rules={"require": (b"jpg", b"cls"), "allow_case_collision": True})
    with pytest.raises(DataError, match="no exe"):
        packed(tmp_path / "in", tmp_path / "o", rules={"require": (b"exe",), "allow_case_collision": True})
    with pytest.raises(DataError, match="sample c differ by letter case only: JPG and jpg"):
        packed(tmp_path / "in", tmp_path / "o")
    assert len(packed(tmp_path / "in", tmp_path / "o", rules={"allow_case_collision": True})[0]) == 5


# -- dots inside names -------------------------------------------------------------------------------------------


def warned(*sources, **rules):
    heard = Heard()
    scan([str(one) for one in sources], SourceOptions(), Rules(**rules), reporter=heard)
    return [text for text in heard.warnings if "dots inside the name" in text]


def test_dots_inside_names_are_said(tmp_path):
    mails = tmp_path / "mails"
    fill(mails, [f"{k:05}.{k * 7919:08x}.{ext}" for k in range(40) for ext in ("txt", "json")])
    (text,) = warned(mails)
    assert "80 files" in text and "80 such fields" in text and "00000.00000000.json" in text and "rename" in text
    assert "differ" not in text  # txt and json of one mail have one name
    with pytest.raises(DataError, match=r"80 files with dots[\s\S]*rename[\s\S]*--strict"):
        warned(mails, strict=True)
    art = tmp_path / "art"
    fill(art, [*(f"p{k}.png" for k in range(40)), "by_a.j._01.png", "by_a.j._02.png", "p1.x.png"])
    (text,) = warned(art)
    assert "3 files" in text and "2 samples of several such files, whose names differ: by_a, p1" in text
    assert samples_of(art)[0][b"by_a"] == [b"j._01.png", b"j._02.png"]  # by rule, and nothing is lost


def test_fields_with_a_dot_that_are_meant_are_not(tmp_path):
    fill(tmp_path / "in", [f"{k}.{ext}" for k in range(20) for ext in ("left.png", "right.png", "json")])
    fill(tmp_path / "in", [f"{k}.mask.png" for k in range(5)])  # a quarter of the samples has one
    assert warned(tmp_path / "in", strict=True) == []


# -- links -------------------------------------------------------------------------------------------------------


def test_links_are_followed(tmp_path):
    """As a hub's cache, DVC and git-annex make them: files are links into a store elsewhere."""
    store, root = tmp_path / "store", tmp_path / "in"
    fill(store, {"8f3a": b"one", "77be": b"two", "deep/z.jpg": b"three"})
    fill(root, {"real/c.jpg": b"four"})
    os.symlink(store / "8f3a", root / "a.jpg")
    os.symlink("../store/77be", root / "b.jpg")
    os.symlink("real/c.jpg", root / "again.jpg")
    os.symlink(store / "deep", root / "linked")
    os.symlink(store / "deep", root / "linked-twice")
    os.symlink("..", root / "real" / "circle")
    os.symlink("real", root / "alias")
    heard = Heard()
    result = repack([str(root)], str(tmp_path / "out"), options(), reporter=heard)
    assert sorted(members(tmp_path / "out", result)) == [
        (b"a.jpg", b"one"), (b"again.jpg", b"four"), (b"b.jpg", b"two"), (b"linked/z.jpg", b"three"),
        (b"real/c.jpg", b"four"),
    ]  # fmt: skip
    assert any("3 sample files are symbolic links" in text for text in heard.notes)
    with pytest.raises(StateError, match="lies inside OUT"):
        repack([str(root)], str(store), options(overwrite=True))


def test_a_link_to_nothing_is_missing_content(tmp_path):
    root = fill(tmp_path / "in", ["a.jpg", "a.cls", "b.jpg", "c.cls"])
    os.symlink("/nowhere/b", root / "b.cls")
    os.symlink("loop.jpg", root / "loop.jpg")
    with pytest.raises(DataError, match=r"points to nothing[\s\S]*b\.cls[\s\S]*2 such are here[\s\S]*annex"):
        packed(root, tmp_path / "out")
    got, result = packed(root, tmp_path / "out", rules={"on_corrupt": "skip"})
    assert sorted(name for name, _ in got) == [b"a.cls", b"a.jpg", b"c.cls"]  # b goes as a whole
    assert result.manifest.dropped == {"samples": 2, "files_damaged": 2}
    assert any("b.cls, loop.jpg" in text for text in result.warnings)
    only = tmp_path / "only"
    only.mkdir()
    os.symlink("/nowhere/x", only / "x.jpg")
    with pytest.raises(DataError, match="points to nothing"):
        resolve([str(only)])


def test_pointers_of_git_lfs_are_missing_content(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"2d" * 32 + b"\nsize 145238016\n"
    annexed = b"/annex/objects/SHA256E-s31390--" + b"f9" * 32 + b".jpg\n"
    root = fill(tmp_path / "in", {"a.jpg": b"a" * len(pointer), "a.cls": b"1", "b.jpg": pointer, "b.cls": b"2",
                                  "c.jpg": annexed, "d.jpg": b"d"})  # fmt: skip
    with pytest.raises(DataError, match=r"pointer of git-lfs[\s\S]*b\.jpg[\s\S]*2 such are here[\s\S]*git lfs pull"):
        packed(root, tmp_path / "out")
    got, result = packed(root, tmp_path / "out", rules={"on_corrupt": "skip"})
    assert sorted(name for name, _ in got) == [b"a.cls", b"a.jpg", b"d.jpg"]
    assert result.manifest.dropped == {"samples": 2, "files_damaged": 2}


# -- labels ------------------------------------------------------------------------------------------------------


def test_labels_from_folders(tmp_path):
    names = [f"{c}/{sub}{k}.{ext}" for c in ("cat", "dog", "ant-eater", "10", "9") for sub in ("", "x/") for k in (1, 2)
             for ext in ("aaa", "jpg")]  # fmt: skip
    root = fill(tmp_path / "in", [*names, "README.md"])
    got, result = packed(root, tmp_path / "out", label_from="dir", shards=3)
    classes = [b"10", b"9", b"ant-eater", b"cat", b"dog"]  # by bytes
    assert result.manifest.classes == tuple(classes)
    assert result.manifest.labels == {"field": "cls", "missing": 0, "histogram": dict.fromkeys(
        ("10", "9", "ant-eater", "cat", "dog"), 4)}  # fmt: skip
    labels = {name[: -len(b".cls")]: payload for name, payload in got if name.endswith(b".cls")}
    assert len(labels) == 20
    assert all(classes[int(payload)] == key.split(b"/")[0] for key, payload in labels.items())
    assert [name.rpartition(b".")[2] for name, _ in got] == [b"aaa", b"cls", b"jpg"] * 20  # fields by bytes
    assert not verify([str(tmp_path / "out")], VerifyOptions(against=(str(root),))).findings
    assert result.manifest.index["label"] == "<i4"


def test_eleven_classes_have_numbers_of_two_digits(tmp_path):
    root = fill(tmp_path / "in", [f"c{k:02}/{j}.jpg" for k in range(12) for j in range(2)])
    got, _ = packed(root, tmp_path / "out", label_from="dir", engine="gather")
    assert {int(p) for n, p in got if n.endswith(b".cls") and n.startswith(b"c11/")} == {11}
    assert sorted(int(p) for n, p in got if n.endswith(b".cls")) == sorted([*range(12)] * 2)


def test_label_from_dir_refuses(tmp_path):
    root = fill(tmp_path / "in", ["a/x.jpg", "a/x.cls", "b/y.jpg"])
    with pytest.raises(DataError, match=r"a field cls[\s\S]*a/x\.cls"):
        packed(root, tmp_path / "out", label_from="dir")
    root = fill(tmp_path / "direct", ["a/x.jpg", "top.jpg"])
    with pytest.raises(DataError, match=r"directly in SRC[\s\S]*top\.jpg"):
        packed(root, tmp_path / "out", label_from="dir")
    with pytest.raises(UsageError, match="--label says 'txt'"):
        packed(root, tmp_path / "out", label_from="dir", rules={"label": "txt"})
    shards = write_tar(tmp_path / "shards" / "a.tar", [("k.jpg", b"1")])
    with pytest.raises(UsageError, match="SRC has shards"):
        packed(shards, tmp_path / "out", label_from="dir")


def test_an_empty_class_keeps_its_number(tmp_path):
    root = fill(tmp_path / "in", ["a/x.jpg", "c/y.jpg"])
    (root / "b").mkdir()
    got, result = packed(root, tmp_path / "out", label_from="dir")
    assert dict(got)[b"c/y.cls"] == b"2" and result.manifest.labels["histogram"] == {"a": 1, "b": 0, "c": 1}
    assert any("1 class without samples, which keep their numbers: b" in text for text in result.warnings)


def test_label_from_a_file_of_the_sample(tmp_path):
    root = fill(tmp_path / "in", {f"{k}.{e}": (b"%d\n" % (k % 3) if e == "cls" else b"x") for k in range(9)
                                  for e in ("jpg", "cls")})  # fmt: skip
    found = inspect([str(root)], InspectOptions(rules=Rules(label="cls")))
    assert found.labels == {"field": "cls", "missing": 0, "histogram": {"0": 3, "1": 3, "2": 3}}
    assert "not_adjacent" not in found.traps and found.samples == 9
    by_dir = inspect([str(fill(tmp_path / "d", ["u/1.x", "v/2.x"]))], InspectOptions(source=SourceOptions(
        label_from="dir")))  # fmt: skip
    assert by_dir.labels == {"field": "cls", "missing": 0, "histogram": {"u": 1, "v": 1}}


# -- several folders, and folders with tars ----------------------------------------------------------------------


def test_several_folders(tmp_path):
    one, two = fill(tmp_path / "one", ["a/x.jpg", "a/y.jpg"]), fill(tmp_path / "two", ["a/x.jpg", "b/z.jpg"])
    for sources in ([str(one), str(two)], [str(two), str(one)]):
        out = tmp_path / f"out{sources[0][-3:]}"
        result = repack(sources, str(out), options(label_from="dir"))
        assert [source.name for source in result.manifest.sources] == [b"one", b"two"]
        assert result.manifest.classes == (b"a", b"b")  # of all folders together
        names = sorted(name for name, _ in members(out, result) if name.endswith(b"jpg"))
        assert names == [b"one/a/x.jpg", b"one/a/y.jpg", b"two/a/x.jpg", b"two/b/z.jpg"]  # a/x is there twice
        assert dict(members(out, result))[b"two/b/z.cls"] == b"1"
    assert content(tmp_path / "outone") == content(tmp_path / "outtwo")


def test_one_folder_by_two_ways(tmp_path):
    root = fill(tmp_path / "in", ["a/x.jpg", "b/y.jpg"])
    os.symlink(root / "a", tmp_path / "link")
    for sources in ([root, root], [root, root / "a"], [root, tmp_path / "link"]):
        with pytest.raises(UsageError, match="reached twice"):
            resolve([str(one) for one in sources])


def test_folder_and_tar_in_one_call(tmp_path):
    tar = write_tar(tmp_path / "t" / "a.tar", [("k1.jpg", b"1" * 600), ("k1.cls", b"3"), ("k2.jpg", b"2")])
    root = fill(tmp_path / "f", {"s1.jpg": b"s" * 700, "s1.cls": b"4"})
    result = repack([str(tar), str(root)], str(tmp_path / "out"), options())
    assert sorted(members(tmp_path / "out", result)) == [
        (b"k1.cls", b"3"), (b"k1.jpg", b"1" * 600), (b"k2.jpg", b"2"), (b"s1.cls", b"4"), (b"s1.jpg", b"s" * 700),
    ]  # fmt: skip
    assert [(s.name, s.format) for s in result.manifest.sources] == [(b"f", "folder"), (b"t/a.tar", "tar")]
    records = write_tfrecord(tmp_path / "r" / "a.tfrecord", [b"1"])
    with pytest.raises(UsageError, match="mixes a folder of sample files and TFRecord"):
        resolve([str(records), str(root)])


# -- the run -----------------------------------------------------------------------------------------------------


def test_rerun(tmp_path):
    root, out = fill(tmp_path / "in", ["a/x.jpg", "a/y.jpg", "b/z.jpg"]), tmp_path / "out"
    packed(root, out)
    before = content(out)
    assert repack([str(root)], str(out), options()).done == "nothing to do"
    (root / "a" / "new-folder").mkdir()  # no sample file in it
    assert repack([str(root)], str(out), options()).done == "nothing to do"
    os.rename(root / "a" / "y.jpg", root / "a" / "w.jpg")  # same count, same bytes
    with pytest.raises(StateError, match="the input is another one"):
        repack([str(root)], str(out), options())
    os.rename(root / "a" / "w.jpg", root / "a" / "y.jpg")
    assert repack([str(root)], str(out), options()).done == "nothing to do"
    (root / "b" / "z.jpg").write_bytes(b"B/z.jpg")
    with pytest.raises(StateError, match="an input is newer"):
        repack([str(root)], str(out), options())
    assert content(out) == before


CHANGES = {
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"!"),
    "shorter": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "other bytes": lambda path: (path.write_bytes(path.read_bytes()[::-1]), os.utime(path, ns=(1, 1))),
    "replaced": lambda path: (shutil.copy2(path, path.with_suffix(".new")), os.replace(path.with_suffix(".new"), path)),
    "gone": lambda path: path.unlink(),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("when", ["before the copy", "after the copy"])
def test_changes_during_the_run(tmp_path, monkeypatch, change, when):
    root = fill(tmp_path / "in", {f"{k}.jpg": b"payload %d" % k for k in range(6)} | {"empty.jpg": b""})
    target = root / "3.jpg"
    real = repack_module._copy

    def copy(*args):
        if when == "before the copy":
            CHANGES[change](target)
        found = real(*args)
        CHANGES[change](target)
        return found

    monkeypatch.setattr(repack_module, "_copy", copy)
    with pytest.raises(DataError, match=r"the input changed during the run[\s\S]*3\.jpg"):
        packed(root, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_empty_file_that_grows(tmp_path, monkeypatch):
    root = fill(tmp_path / "in", {"a.jpg": b"", "b.jpg": b"1"})
    real = repack_module._copy
    monkeypatch.setattr(repack_module, "_copy", lambda *args: ((root / "a.jpg").write_bytes(b"!"), real(*args))[1])
    with pytest.raises(DataError, match=r"changed[\s\S]*a\.jpg"):
        packed(root, tmp_path / "out")


def test_verify_against_finds_what_differs(tmp_path, monkeypatch):
    monkeypatch.setattr("shardtool.jobs.compare.FOLDER_STEP", 3)
    root = fill(tmp_path / "in", {f"{k}.jpg": b"payload %d" % k for k in range(6)})
    packed(root, tmp_path / "out")
    (root / "3.jpg").write_bytes(b"payload x")
    report = verify([str(tmp_path / "out")], VerifyOptions(against=(str(root),)))
    assert report.against["missing"] == report.against["extra"] == 1
    tar = tmp_path / "all.tar"
    subprocess.run(["tar", "cf", tar, "-C", tmp_path / "in", "--sort=name", "--transform=s,^./,,", "."], check=True)
    assert verify([str(root)], VerifyOptions(against=(str(tar),))).against["equal"]


def test_manifest_is_of_shards(tmp_path):
    root = fill(tmp_path / "in", ["x.jpg"])
    with pytest.raises(UsageError, match="this is a folder of sample files"):
        write_manifest([str(root)], str(root / "manifest.json"))


@pytest.mark.parametrize("engine", ["gather", "bucket"])
def test_a_folder_becomes_records(tmp_path, engine):
    root = fill(tmp_path / "in", ["cat/x.jpg", "cat/x.txt", "dog/y.jpg"])
    options = RepackOptions(
        shards=1, order="source", format="tfrecord", engine=engine, fields={"cls": "int64"},
        source=SourceOptions(label_from="dir"),
    )  # fmt: skip
    repack([str(root)], str(tmp_path / "out"), options)
    records = read_tfrecord(tmp_path / "out" / "shard-00000-of-00001.tfrecord")
    found = [
        {name: feature_values(record, name) for name in (b"__key__", b"jpg", b"txt", b"cls")} for record in records
    ]
    assert found == [
        {b"__key__": [b"cat/x"], b"jpg": [(root / "cat/x.jpg").read_bytes()],
         b"txt": [(root / "cat/x.txt").read_bytes()], b"cls": [0]},
        {b"__key__": [b"dog/y"], b"jpg": [(root / "dog/y.jpg").read_bytes()], b"txt": None, b"cls": [1]},
    ]  # fmt: skip


def test_depfile_lists_the_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill("in", ["a/b/x.jpg", "c/y.jpg"])
    write_depfile("d", "out/manifest.json", resolve(["in"]))
    lines = (tmp_path / "d").read_text().split("\n")
    assert lines[1:5] == ["  in \\", "  in/a \\", "  in/a/b \\", "  in/c"] and "in/a/b:" in lines


def test_same_bytes_in_any_locale(tmp_path):
    root = fill(tmp_path / "in", [b"\xff/a.jpg", "é/b.jpg", "a-b/x.jpg", "a/x.jpg"])
    found = []
    for number, locale in enumerate(("C", "C.UTF-8")):
        out = tmp_path / f"out{number}"
        run = [sys.executable, "-m", "shardtool", "repack", root, "-o", out, "--label-from", "dir", "--shards", "2"]
        subprocess.run(run, check=True, env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0"}, capture_output=True)
        found.append(content(out))
    assert found[0] == found[1]


# -- the table ---------------------------------------------------------------------------------------------------


def test_threads_give_the_same_table(tmp_path, monkeypatch):
    root = fill(tmp_path / "in", [f"{k % 7}/{k}.jpg" for k in range(100)])
    (one,) = resolve([str(root)]).files
    monkeypatch.setattr(samplefiles, "SLOW", 0.0)
    monkeypatch.setattr(samplefiles, "_BATCH", 40)
    (other,) = resolve([str(root)]).files
    assert list(one.files.names) == list(other.files.names) and one.private == other.private
    other.files.check()
    os.utime(root / "3" / "3.jpg", ns=(5, 5))
    with pytest.raises(DataError, match=r"changed[\s\S]*3/3\.jpg"):
        other.files.check()


def test_files_by_number(tmp_path):
    root = fill(tmp_path / "in", {f"{c}/{k}.jpg": b"%d" % k * 50 for c in "ab" for k in range(9)})
    (one,) = resolve([str(root)], SourceOptions(label_from="dir")).files
    table = SourceTable([table_file := one.files.file(2), one.files])
    assert len(table) == 20 and table[0] == table_file and table[3].path == one.files.path(2)
    assert [f.name for f in table[1:3]] == [b"a/0.jpg", b"a/1.jpg"]
    sources, buffer = SourceFiles(table, most=2), memoryview(bytearray(50))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 19):  # whole files leave no descriptor behind
        sources.read_into(number, buffer, 0)
        assert bytes(buffer) == b"%d" % ((number - 1) % 9) * 50
    assert len(os.listdir("/proc/self/fd")) == before
    sources.read_into(5, buffer[:7], 30)
    sources.read_into(19, buffer[7:8], 1)
    assert bytes(buffer[:8]) == b"44444441"
    sources.close()
    with pytest.raises(IndexError):
        table[20]


def test_memory_a_file(tmp_path, monkeypatch):
    import tracemalloc

    monkeypatch.setattr(samplefiles, "_BATCH", 64)  # what a batch takes does not grow with the folder

    root = fill(tmp_path / "in", [f"{k % 9}/{k:06}.jpg" for k in range(3000)])
    tracemalloc.start()
    inputs = resolve([str(root)], SourceOptions(from_="folder"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    table = inputs.files[0].files
    columns = (table.names.data, table.names.first, table.dot, table.size, table.mtime_ns, table.inode, table.linked)
    assert sum(column.nbytes for column in columns) == 3000 * (12 + 41) + 8  # names of 12 bytes
    assert peak / 3000 < 400
    assert np.array_equal(table.dot, np.full(3000, 8))
