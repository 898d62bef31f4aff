"""Law 4: what a job allocates stays below --memory, summed over its processes."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from shardtool.base.ragged import Ragged
from shardtool.layout.frames import put_tar_heads
from tests.disk.test_convert import example
from tests.makers import content, frame, sorted_tars, sorted_tfrecords

# What an interpreter with numpy, click and the package takes before any job.
BASE = 60 << 20


def memory_of(pid):
    """Resident bytes of a process and its children, and how many processes that are."""
    pids, total = [pid], 0
    for one in pids:
        try:
            with open(f"/proc/{one}/task/{one}/children") as file:
                pids += map(int, file.read().split())
            with open(f"/proc/{one}/statm") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total, len(pids)


def peak(command):
    """The most that a command and its workers held above their bases, bytes."""
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    most = 0
    while run.poll() is None:
        total, processes = memory_of(run.pid)
        most = max(most, total - processes * BASE)
        time.sleep(0.002)
    assert run.returncode == 0, run.stderr.read()
    return most


@pytest.mark.parametrize("engine", ["auto", "gather", "bucket"])
@pytest.mark.parametrize("make", [sorted_tfrecords, sorted_tars])
def test_peak_stays_below_the_bound(tmp_path, engine, make):
    size = 300 if make is sorted_tfrecords else 3000
    source = make(tmp_path / "in", 4, 90_000_000 // 4 // (size + 500), size)
    memory = 64 << 20
    options = ["--memory", str(memory), "--jobs", "2", "--shards", "6", "--json"]
    command = [sys.executable, "-m", "shardtool", "repack", str(source), *options, "-o"]
    estimate = subprocess.run([*command, str(tmp_path / "x"), "--dry-run", "--engine", engine], capture_output=True)
    if estimate.returncode == 2:  # gather may be refused, with the memory that it needs
        assert engine == "gather" and b"--memory" in estimate.stderr
        return
    assert json.loads(estimate.stdout)["cost"]["peak_ram_bytes"] <= memory
    assert peak([*command, str(tmp_path / "out"), "--engine", engine]) <= memory
    if engine == "auto":
        more = [sys.executable, "-m", "shardtool", "repack", str(source), "--shards", "6", "-q", "-o"]
        subprocess.run([*more, str(tmp_path / "more")], check=True)
        assert content(tmp_path / "more") == content(tmp_path / "out")


def tiny_tars(folder, members=120_000):
    """Samples of eight members of a few bytes."""
    folder.mkdir()
    block = np.zeros((2 * members // 2, 512), np.uint8)
    for number in range(2):
        names = Ragged.of(b"%d/%07d.f%d" % (number, k // 8, k % 8) for k in range(members // 2))
        put_tar_heads(block, np.arange(0, members, 2), names, np.full(members // 2, 3))
        block[1::2, :3] = np.frombuffer(b"123", np.uint8)
        (folder / f"{number}.tar").write_bytes(block.tobytes() + bytes(10240))
    return folder


def tiny_examples(folder, records=40_000):
    """Records with a few features of a few bytes."""
    folder.mkdir()
    for number in range(2):
        one = frame(example(a=b"one", b=7, c=[1.5, 2.5], d=b"four"))
        (folder / f"{number}.tfrecord").write_bytes(one * (records // 2))
    return folder


def tiny_files(folder, files=8_000):
    """Samples of two files."""
    for k in range(files // 2):
        if k % 1000 == 0:
            (folder / f"{k // 1000}").mkdir(parents=True)
        for field in ("a", "b"):
            with open(f"{folder}/{k // 1000}/{k:06}.{field}", "w") as file:
                file.write(f"{k}")
    return folder


@pytest.mark.parametrize(
    ("make", "format", "more"),
    [
        (tiny_tars, "tfrecord", ["--field", "f3=int64", "--drop", "f5"]), (tiny_examples, "tar", []),
        (tiny_files, "tfrecord", ["--field", "a=int64"]), (tiny_files, "tar", []),
    ],
)  # fmt: skip
def test_conversion_of_many_samples_stays_below_the_bound(tmp_path, make, format, more):
    source, memory = make(tmp_path / "in"), 64 << 20
    options = ["--memory", str(memory), "--jobs", "2", "--shards", "4", "-q", "--format", format, *more]
    command = [sys.executable, "-m", "shardtool", "repack", str(source), *options, "-o"]
    assert peak([*command, str(tmp_path / "out")]) <= memory
    more = [sys.executable, "-m", "shardtool", "repack", str(source), *options, "--memory", "2GiB", "-o"]
    subprocess.run([*more, str(tmp_path / "more")], check=True)
    assert content(tmp_path / "more") == content(tmp_path / "out")
