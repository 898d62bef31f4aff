"""The host fails: calls that touch the disk fail, one after the other, in a small run.

Each time: status 5 and a message that names a file, no manifest (or all of the output), nothing half-written under
a final name, the input untouched; and the same command, without the fault, ends with the bytes of a run that nobody
disturbed.
"""

import gzip
import os
import pathlib
import re
import shutil
import tempfile

import pytest

from tests.faults import Faults
from tests.makers import content, sorted_tars, sorted_tfrecords
from tests.runner import shardtool

MAKE = {"tfrecord": sorted_tfrecords, "tar": sorted_tars}


@pytest.fixture
def place():
    at = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=at, prefix="shardtool-test-") as folder:
        yield pathlib.Path(folder)


def state_of(folder):
    return {p: (p.read_bytes() if p.is_file() else None, p.lstat().st_mtime_ns) for p in folder.rglob("*")}


def without_work(found):
    return {name: data for name, data in found.items() if not name.startswith(".shardtool/")}


def run_with_every_fault(command, source, out, reference, *, first=0, step=1, processes=1, **kind):
    """How many faults were survived. The calls number first, first + step, ... fail."""
    untouched = state_of(source)
    counting = Faults()
    shutil.rmtree(out, ignore_errors=True)
    assert shardtool(*command, prepare=counting.install).status == 0
    survived = 0
    for at in range(first, counting.calls, step):
        shutil.rmtree(out, ignore_errors=True)
        faults = Faults(at, **kind)
        done = shardtool(*command, prepare=faults.install)
        where = f"call {at} of {counting.calls}, {faults.failed}: status {done.status}, {done.err}"
        if not faults.failed and processes > 1:
            continue  # their calls come in another order each time, and are counted without a lock
        assert faults.failed, where
        check_after_fault(done, out, reference, where)
        again = shardtool(*command)
        assert again.status == 0, f"{where}\nthen {again.err}"
        assert content(out) == reference, where
        survived += 1
    assert state_of(source) == untouched
    return survived


def check_after_fault(done, out, reference, where):
    there = without_work(content(out)) if out.exists() else {}
    for name, data in there.items():
        assert data == reference[name], f"{name} is half-written; {where}"
    if done.status == 0:
        # What failed was not needed: a cache hint, or the removal of work files after the manifest.
        assert there == reference, where
        return
    assert done.status == 5, where
    assert "Traceback" not in done.err and "bug" not in done.err, where
    assert re.search(r"^  where: \S", done.err, re.M), f"no file is named; {where}"
    if "manifest.json" in there:
        assert there == reference, where


def untimed(text):
    return re.sub(r"[0-9.]+ m?s\b *", "", text)


def command_for(source, out, jobs=1):
    return ["repack", source, "--shards", "2", "--seed", "7", "--jobs", str(jobs), "--export", "dali", "-o", out]


# Every second call of each; scripts/stress_faults.py fails every one, with every error.
@pytest.mark.parametrize(("format", "io", "first"), [("tfrecord", "auto", 0), ("tar", "buffered", 1)])
def test_calls_fail(place, monkeypatch, format, io, first):
    monkeypatch.setenv("SHARDTOOL_IO", io)
    source, out = MAKE[format](place / "in", 2, 8), place / "out"
    command = command_for(source, out)
    assert shardtool(*command).status == 0
    assert run_with_every_fault(command, source, out, content(out), first=first, step=2) > 50


def test_calls_fail_in_two_processes(place):
    source, out = sorted_tars(place / "in", 2, 8), place / "out"
    command = command_for(source, out, jobs=2)
    assert shardtool(*command).status == 0
    assert run_with_every_fault(command, source, out, content(out), step=9, processes=2) > 10


def test_calls_fail_with_compressed_sources(place):
    source, out = sorted_tfrecords(place / "in", 2, 8), place / "out"
    for path in list(source.iterdir()):
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    command = command_for(source, out)
    assert shardtool(*command).status == 0
    assert run_with_every_fault(command, source, out, content(out), step=5) > 20


@pytest.mark.parametrize("format", ["tfrecord", "tar"])
def test_a_disk_that_stays_full(place, format):
    source, out = MAKE[format](place / "in", 2, 8), place / "out"
    command = command_for(source, out)
    assert shardtool(*command).status == 0
    assert run_with_every_fault(command, source, out, content(out), step=9, sticky=True) > 10


@pytest.mark.parametrize("format", ["tfrecord", "tar"])
def test_verify_and_inspect_when_reading_fails(place, format):
    """Never 'all is well' without having read it, never a finding about the data."""
    source, out = MAKE[format](place / "in", 2, 8), place / "out"
    assert shardtool(*command_for(source, out)).status == 0
    for command in (["verify", out / "manifest.json"], ["verify", out / "manifest.json", "--against", source],
                    ["inspect", source], ["inspect", out / "manifest.json"]):  # fmt: skip
        counting = Faults()
        whole = shardtool(*command, prepare=counting.install)
        assert whole.status == 0
        for at in range(0, counting.calls, 3):
            faults = Faults(at)
            done = shardtool(*command, prepare=faults.install)
            where = f"{command[0]}, call {at} of {counting.calls}, {faults.failed}: {done.status}, {done.out}{done.err}"
            if done.status == 0 and untimed(done.out) == untimed(whole.out):
                continue  # what failed was not needed
            assert done.status == 5 and re.search(r"^  where: \S", done.err, re.M), where
