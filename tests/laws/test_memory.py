"""Law 4: what a job allocates stays below --memory, summed over its processes."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.makers import content, sorted_tars, sorted_tfrecords

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
