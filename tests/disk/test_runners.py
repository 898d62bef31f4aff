"""Tasks in forked processes: results, errors, death."""

import os
import signal
import time

import pytest

from shardtool.base.errors import DataError, HostError
from shardtool.disk.runners import run_tasks


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
