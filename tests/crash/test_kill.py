"""A repack that is killed anywhere and started again ends with the bytes of an undisturbed run.

Two kinds of kill: at every single change of the file system (in a forked child that exits at the k-th rename,
sync, unlink, ... as SIGKILL would), and at random moments of a real process with several workers.
"""

import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from shardtool.jobs import lay_out as lay_out_module
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from tests.makers import content, sorted_tars, sorted_tfrecords

# Every call that changes what is on disk, as the package makes them.
CHANGES = ("rename", "fsync", "unlink", "rmdir", "mkdir", "ftruncate", "pwrite", "write")
MAKE = {"tfrecord": sorted_tfrecords, "tar": sorted_tars}


def in_child(work, kill_at=None, before=True):
    """Run work() in a forked child; it ends at change number kill_at, before or right after making it. Returns
    the number of changes that were made, or None when it was killed."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(out)
            count = itertools.count()  # two threads make changes; its next() is one step of the interpreter

            def wrap(call):
                def wrapped(*args, **kwargs):
                    number = next(count)
                    if number == kill_at and before:
                        os._exit(9)
                    if number == kill_at and call.__name__ in ("write", "pwrite") and len(args[1]) > 1:
                        half = memoryview(args[1])[: len(args[1]) // 2]  # torn in the middle
                        try:
                            call(args[0], half, *args[2:])
                        finally:  # O_DIRECT may refuse a half
                            os._exit(9)
                    try:
                        return call(*args, **kwargs)
                    finally:
                        if number == kill_at:  # also after a call that fails, as mkdir of what is there
                            os._exit(9)

                return wrapped

            send = os.write
            for name in CHANGES:
                setattr(os, name, wrap(getattr(os, name)))
            work()
            send(into, b"%d" % next(count))
            status = 0
        finally:
            os._exit(status)
    os.close(into)
    said = os.read(out, 100)
    os.close(out)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9), f"the child failed by itself: {code}"
    return int(said) if code == 0 else None


def check_unfinished(out, reference):
    """What may be seen of a run that was killed: whole shards, whole index files, and the manifest only at the end."""
    if not out.exists():
        return
    there = content(out)
    for name, data in there.items():
        if not name.startswith(".shardtool/"):
            assert data == reference[name], f"{name} is not complete under its final name"
    if "manifest.json" in there:
        assert set(reference) <= set(there)


def options(**more):
    return RepackOptions(shards=3, seed=7, jobs=1, name="t", **more)


@pytest.fixture
def memory_path(tmp_path):
    """A folder in memory where there is one: nothing here depends on what a disk does, and syncs cost nothing."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield pathlib.Path(folder)


EVERY_CHANGE = [
    ("tfrecord", "before", "auto", "gather"), ("tfrecord", "after", "auto", "bucket"),
    ("tar", "before", "auto", "bucket"), ("tar", "after", "buffered", "gather"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "when", "io", "engine"), EVERY_CHANGE)
def test_killed_at_every_change(memory_path, monkeypatch, format, when, io, engine):
    monkeypatch.setenv("SHARDTOOL_IO", io)
    monkeypatch.setattr(lay_out_module, "bucket_budget", lambda *_: 20_000)
    tmp_path = memory_path
    source = str(MAKE[format](tmp_path / "in"))
    exports = {"tfrecord": ("dali-tfrecord",), "tar": ("dali-wds", "wids")}[format]
    out = tmp_path / "out"

    def work():
        repack([source], str(out), options(exports=exports, engine=engine))

    changes = in_child(work)
    reference = content(out)
    assert changes > 40 and "manifest.json" in reference and not any(n.startswith(".") for n in reference)
    for k in range(changes):
        remove(out)
        assert in_child(work, k, when == "before") is None
        check_unfinished(out, reference)
        work()
        assert content(out) == reference, f"killed at change {k}"


def test_killed_at_every_change_while_replacing(memory_path):
    tmp_path = memory_path
    source = str(sorted_tfrecords(tmp_path / "in"))
    first, second, out = tmp_path / "first", tmp_path / "second", tmp_path / "out"
    old = options(exports=("dali-tfrecord",))
    new = RepackOptions(shards=2, seed=8, jobs=1, name="t", overwrite=True)
    repack([source], str(first), old)
    repack([source], str(second), new)

    def work():
        repack([source], str(out), new)

    repack([source], str(out), old)
    changes = in_child(work)
    assert content(out) == content(second)
    for k in range(changes):
        remove(out)
        repack([source], str(out), old)
        assert in_child(work, k) is None
        there = content(out)
        if there.get("manifest.json") == content(first)["manifest.json"]:
            assert content(first).items() <= there.items(), "the old manifest is there and its shards are not"
        work()
        assert content(out) == content(second), f"killed at change {k}"


def remove(folder):
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.parametrize("format", ["tfrecord", "tar"])
def test_killed_at_random_moments(tmp_path, format):
    source = MAKE[format](tmp_path / "in", 4, 2000)
    out, reference_out = tmp_path / "out", tmp_path / "reference"

    def start(to):
        return subprocess.Popen(
            [sys.executable, "-m", "shardtool", "repack", str(source), "-o", str(to), "--shards", "40", "--jobs", "2"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    begun = time.monotonic()
    whole = start(reference_out)
    assert whole.communicate()[1] == b"" and whole.returncode == 0
    lasts = time.monotonic() - begun
    reference = content(reference_out)
    moments = random.Random(5)
    kills = 0
    for _ in range(4):
        remove(out)
        for _ in range(3):  # the same run is killed again and again
            run = start(out)
            time.sleep(moments.uniform(0.1 * lasts, lasts))
            run.send_signal(signal.SIGKILL)
            run.communicate()
            kills += run.returncode == -signal.SIGKILL
            check_unfinished(out, reference)
        last = start(out)
        assert last.communicate()[1] in (b"", NOTHING) and last.returncode == 0
        assert content(out) == reference
    assert kills >= 3


NOTHING = b"Nothing to do: the output is complete and newer than its input.\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_in_order(tmp_path, number, status):
    source = sorted_tfrecords(tmp_path / "in", 4, 4000)
    command = [sys.executable, "-m", "shardtool", "repack", str(source), "--shards", "400", "--jobs", "2", "-o"]
    subprocess.run([*command, str(tmp_path / "reference")], check=True, capture_output=True)
    run = subprocess.Popen([*command, str(tmp_path / "out")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list((tmp_path / "out" / ".shardtool" / "shards").glob("[0-9]*[0-9]")):  # a receipt
        time.sleep(0.005)
    run.send_signal(number)
    out, err = run.communicate(timeout=20)
    assert run.returncode == status and out == b""
    assert b"run the same command again" in err and b"Traceback" not in err
    assert not (tmp_path / "out" / "manifest.json").exists()
    again = subprocess.run([*command, str(tmp_path / "out"), "--json"], capture_output=True, check=True)
    assert b'"resumed_shards": 0' not in again.stdout
    assert content(tmp_path / "out") == content(tmp_path / "reference")
