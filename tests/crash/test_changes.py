"""The input changes between scan and copy, or folders may not be written: the run says so, and nothing is left."""

import codecs
import contextlib
import gzip
import os
import threading

import pytest

from shardtool.disk import journal
from shardtool.jobs import repack as job
from tests.makers import sorted_tars, sorted_tfrecords, write_tar, write_tfrecord
from tests.runner import shardtool

MAKE = {"tfrecord": sorted_tfrecords, "tar": sorted_tars}


def touched(path):
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


def replaced(path):
    """The same size and time, another file with other bytes."""
    found, data = path.stat(), bytearray(path.read_bytes())
    data[600] ^= 1
    other = path.with_name("other")
    other.write_bytes(data)
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)


def grown(path):
    with path.open("ab") as file:
        file.write(path.read_bytes())


def shrunk(path):
    os.truncate(path, path.stat().st_size // 2)


def removed(path):
    path.unlink()


def swapped(path):
    """A folder took its place."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("engine", ["gather", "bucket"])
@pytest.mark.parametrize("format", sorted(MAKE))
@pytest.mark.parametrize("change", [touched, replaced, grown, shrunk, removed, swapped])
@pytest.mark.parametrize("moment", ["_copy", "_unchanged"])
def test_a_source_changes(tmp_path, format, engine, change, moment):
    """Before the copy, or after the last byte of it."""
    source = MAKE[format](tmp_path / "in")
    victim = sorted(source.iterdir())[1]

    def prepare():
        step = getattr(job, moment)

        def late(*args):
            change(victim)
            return step(*args)

        setattr(job, moment, late)

    done = shardtool(
        "repack", source, "-o", tmp_path / "out", "--shards", "3", "--engine", engine, "--jobs", "1", prepare=prepare
    )
    assert done.status == 3, done.err
    assert "changed during the run" in done.err or "shorter" in done.err
    assert victim.name in done.err and "do:" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [[], ["--engine", "bucket"]])
@pytest.mark.parametrize("packed", [False, True])
def test_a_work_folder_that_may_not_be_written(tmp_path, flags, packed):
    """Status 5, the folder is named, and OUT is as it was."""
    source = sorted_tfrecords(tmp_path / "in")
    if packed:
        for path in source.iterdir():
            path.write_bytes(gzip.compress(path.read_bytes()))
    shut = tmp_path / "shut"
    shut.mkdir()
    shut.chmod(0o555)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "free").mkdir()
    (tmp_path / "free").chmod(0o777)

    def nobody():
        for name in ("ascii", "utf-8"):
            codecs.lookup(name)  # nobody may not be allowed to read the interpreter's files
        if os.getuid() == 0:
            os.setuid(65534)

    out = tmp_path / "free" / "out"
    done = shardtool("repack", source, "-o", out, "--work-dir", shut / "work", *flags, prepare=nobody)
    assert done.status == 5 and str(shut) in done.err, done.err
    assert not out.exists() and not list(shut.iterdir())
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    done = shardtool("repack", source, "-o", out, "--work-dir", shut, *flags, prepare=nobody)
    assert done.status == 5 and str(shut) in done.err, done.err
    assert not list(out.iterdir())


def test_an_export_that_cannot_be_is_refused_before_the_copy(tmp_path):
    """Hours of copying would be lost: what the manifest shows is looked at first."""
    source = write_tar(tmp_path / "in" / "a.tar", [("0.j pg", b"x"), ("1.j pg", b"y")]).parent
    command = ["repack", source, "-o", tmp_path / "out", "--export", "dali-wds"]

    def prepare():
        def copy(*_):
            raise AssertionError("it copies")

        job._copy = copy

    done = shardtool(*command, prepare=prepare)
    assert done.status == 3 and "an extension with white space" in done.err and "j pg" in done.err, done.err
    assert not (tmp_path / "out").exists()
    assert shardtool(*command, "--dry-run").status == 3


def test_a_shard_of_one_record_and_the_index_of_the_tfrecord_package(tmp_path):
    source = write_tfrecord(tmp_path / "in" / "a.tfrecord", [b"a", b"b", b"c"]).parent
    done = shardtool("repack", source, "-o", tmp_path / "out", "--shards", "2", "--export", "tfrecord", "--json")
    assert done.status == 0
    (said,) = done.json["warnings"]
    assert "fewer than two records" in said and "shard-00000-of-00002.tfrecord" in said and "fewer shards" in said
    assert not shardtool(
        "repack", source, "-o", tmp_path / "whole", "--shards", "1", "--export", "tfrecord", "--json"
    ).json["warnings"]


@pytest.mark.parametrize("flags", [[], ["--on-corrupt", "skip"]])
def test_nothing_stays_in_the_work_folder_of_a_run_that_did_not_begin(tmp_path, flags):
    """The spool of the sound sources is there when the damage of another is found."""
    source = sorted_tars(tmp_path / "in")
    for path in source.iterdir():
        path.write_bytes(gzip.compress(path.read_bytes()))
    victim = sorted(source.iterdir())[2]
    victim.write_bytes(victim.read_bytes()[:-3])
    (tmp_path / "work").mkdir()
    flags = [*flags, "--keys", "keep", "--require", "txt"]  # and then the scan refuses them
    done = shardtool("repack", source, "-o", tmp_path / "out", "--work-dir", tmp_path / "work", "--jobs", "1", *flags)
    assert done.status == 3, done.err
    assert not list((tmp_path / "work").iterdir()) and not (tmp_path / "out").exists()


@contextlib.contextmanager
def holding(journal):
    """A child that holds the lock of a run in its scan; gives what lets it end."""
    ready, said = os.pipe()
    until, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        with journal.locked():
            os.write(said, b"x")
            os.read(until, 1)
            journal.remove()
        os._exit(0)
    os.close(said)
    os.close(until)
    os.read(ready, 1)
    try:
        yield lambda: os.write(ends, b"x")
    finally:
        os.close(ready)
        os.close(ends)
        os.waitpid(pid, 0)


def test_a_run_that_finds_another_at_work_leaves_it_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "PATIENCE", 0.1)
    source, out = sorted_tars(tmp_path / "in", 1, 3), tmp_path / "out"
    with holding(journal.Journal(os.fsencode(out))):
        (out / ".shardtool" / "spool").mkdir()
        done = shardtool("repack", source, "-o", out)
        assert done.status == 4 and "another run is at work" in done.err
        assert (out / ".shardtool" / "lock").exists() and (out / ".shardtool" / "spool").exists()


def test_a_run_that_waited_for_another_makes_its_own_work_folder(tmp_path):
    """The lock that it waited for is gone with the other's folder."""
    source, out = sorted_tars(tmp_path / "in", 1, 3), tmp_path / "out"
    with holding(journal.Journal(os.fsencode(out))) as end:
        timer = threading.Timer(0.3, end)
        timer.start()
        done = shardtool("repack", source, "-o", out)
        timer.join()
    assert done.status == 0, done.err
    assert (out / "manifest.json").exists() and not (out / ".shardtool").exists()


@pytest.mark.parametrize("where", ["out", "out/work", "in", "in/work"])
def test_a_work_folder_in_the_input_or_the_output(tmp_path, where):
    source = sorted_tars(tmp_path / "in")
    before = source.stat().st_mtime_ns
    done = shardtool("repack", source, "-o", tmp_path / "out", "--work-dir", tmp_path / where)
    assert done.status == 2 and "--work-dir" in done.err and "OUT/.shardtool" in done.err, done.err
    assert not (tmp_path / "out").exists() and source.stat().st_mtime_ns == before


def test_a_name_that_is_too_long_for_a_file(tmp_path):
    """Refused before anything is written: to run it again would never help."""
    source = sorted_tars(tmp_path / "in", 1, 3)
    for name in ("x" * 201, "ä" * 101):
        done = shardtool("repack", source, "-o", tmp_path / "out", "--shards", "1", "--name", name)
        assert done.status == 2 and "200 bytes" in done.err and not (tmp_path / "out").exists(), done.err
    done = shardtool("repack", source, "-o", tmp_path / "out", "--shards", "1", "--name", "x" * 200, "--export", "dali")
    assert done.status == 0, done.err
