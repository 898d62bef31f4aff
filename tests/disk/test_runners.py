"""Tasks in forked processes: results, errors, death."""

import os
import signal
import subprocess
import sys
import time

import pytest

from shardtool.base.errors import DataError, HostError
from shardtool.disk import runners
from shardtool.disk.runners import Later, run_tasks


@pytest.mark.parametrize("jobs", [1, 2, 3, 9])
def test_every_task_once(jobs):
    done = []
    results = dict(run_tasks(lambda k, advance: (advance(k), k * k)[1], list(range(20)), jobs, done.append))
    assert results == {k: k * k for k in range(20)}
    assert sum(done) == sum(range(20))


def test_results_larger_than_a_pipe():
    results = dict(run_tasks(lambda k, _: bytes([k]) * 3_000_000, [1, 2, 3], 2, lambda _: None))
    assert results == {k: bytes([k]) * 3_000_000 for k in (1, 2, 3)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_ours_arrives_whole_and_ends_the_others(jobs):
    def task(k, _):
        if k == 1:
            raise DataError("cut", file=b"x\xff", offset=3)
        time.sleep(0.01 if k == 0 else 30)

    begun = time.monotonic()
    with pytest.raises(DataError) as caught:
        list(run_tasks(task, [0, 1, 2] if jobs == 1 else [1, 2], jobs, lambda _: None))
    assert (caught.value.offset, caught.value.file) == (3, b"x\xff")
    assert time.monotonic() - begun < 10
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_an_error_that_cannot_be_pickled():
    class Odd(Exception):
        def __reduce__(self):
            raise TypeError("no")

    def task(k, _):
        raise Odd("strange")

    with pytest.raises(RuntimeError, match="Odd: strange"):
        list(run_tasks(task, [0, 1], 2, lambda _: None))


def test_a_killed_worker_is_the_hosts_failure():
    def task(k, _):
        if k == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return k

    with pytest.raises(HostError, match="SIGKILL"):
        list(run_tasks(task, [0, 1, 2, 3], 2, lambda _: None))


def test_workers_die_with_their_parent(tmp_path):
    """A parent that is killed leaves no orphan behind that goes on writing."""
    marks = tmp_path / "pids"
    pid = os.fork()
    if pid == 0:
        def task(k, _):
            with open(marks, "a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(60)

        list(run_tasks(task, [0, 1], 2, lambda _: None))
        os._exit(0)
    while not marks.exists() or marks.read_text().count("\n") < 2:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 5
    workers = [int(line) for line in marks.read_text().split()]
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.01)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_right_after_the_fork_ends_the_child_and_nothing_else():
    """A child that ran the parent's handler would leave the loop with its exception and act as a second parent."""
    code = """
import os, signal
from shardtool.disk import runners
from shardtool.disk.runners import Later, run_tasks
def stop(number, frame): raise KeyError("handler")
signal.signal(signal.SIGTERM, stop)
fork = os.fork
def forked():
    pid = fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.fork = forked
try:
    print(list(run_tasks(lambda k, _: k, [0, 1], 2, lambda _: None)))
except BaseException as error:
    print(type(error).__name__, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("HostError\n", "")


def test_what_ends_later_ends_in_order_and_after_the_next_task():
    log = []

    def task(k, _):
        log.append(f"work {k}")
        return Later(lambda: (log.append(f"finish {k}"), k)[1])

    assert [number for number, _ in run_tasks(task, [0, 1, 2], 1, lambda _: None)] == [0, 1, 2]
    assert log == ["work 0", "work 1", "finish 0", "work 2", "finish 1", "finish 2"]
    for jobs in (1, 2, 3):
        results = dict(run_tasks(lambda k, _: Later(lambda: k * k), list(range(9)), jobs, lambda _: None, ahead=True))
        assert results == {k: k * k for k in range(9)}


def test_what_was_to_end_later_is_dropped_after_an_error():
    dropped = []

    def fails():
        raise DataError("cut")

    def task(k, _):
        return Later(fails if k == 0 else lambda: k, lambda: dropped.append(k))

    with pytest.raises(DataError):
        list(run_tasks(task, [0, 1, 2], 1, lambda _: None))
    assert dropped == [0, 1]


@pytest.mark.parametrize("how", ["an error", "a kill"])
def test_a_task_for_a_worker_that_has_ended(how):
    """It ends between two tasks: what it said, or how it died, is the error, and not the broken pipe."""

    def task(k, _):
        if how == "a kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise DataError("cut", file=b"x", offset=k)

    worker = runners._Worker(task, None)
    worker.give(0)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    worker.give(1)
    if how == "a kill":
        with pytest.raises(HostError, match="SIGKILL"):
            worker.receive()
    else:
        kind, error = worker.receive()
        assert kind == runners._ERROR and (error.what, error.offset) == ("cut", 0)
    worker.end()
