"""Where tasks run: here, or in forked processes on this machine.

A task is a number; what it means is known to the function, which the children inherit. Children are forked, not
spawned: they share the parent's columns without a copy, and start in a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ..base.errors import DataError, HostError, ShardtoolError

Result = TypeVar("Result")
# A task calls this with the number of units it has done since the last call.
Advance = Callable[[int], None]
# What is to be done for a task: its result, or a `Later` of it.
Task = Callable[[int, Advance], Any]

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_LENGTH = struct.Struct("<QB")
_PROGRESS, _RESULT, _ERROR = 0, 1, 2


class Later(Generic[Result]):
    """What a task may return instead of its result: the work is done, and the machine is still busy with it.

    The worker goes on with its next task and calls `finish` after that, or at once when there is none. `drop` is called
    instead when an error came between.
    """

    def __init__(self, finish: Callable[[], Result], drop: Callable[[], None] = lambda: None) -> None:
        self.finish = finish
        self.drop = drop

    def then(self, more: Callable[[Result], Result]) -> Later[Result]:
        """The same with something done to the result."""
        return Later(lambda: more(self.finish()), self.drop)


def run_tasks(
    function: Task, tasks: Sequence[int], jobs: int, advance: Advance,
    *, apart: bool = False, ahead: bool = False, file_of: Callable[[int], bytes] | None = None,
) -> Iterator[tuple[int, Any]]:  # fmt: skip
    """(task, result) as they finish. The first error ends the others and is raised here.

    apart    in processes of their own even when one would do: tasks that read mapped files may be killed by them
    ahead    give every worker its next task before it has done the one it is at: for tasks that end `Later`
    file_of  the file that a task reads, if it is one, for the message about that

    Raises HostError when a worker is killed from outside, DataError when a file that it had mapped was cut short.
    """
    if not apart and (jobs <= 1 or len(tasks) <= 1):
        yield from _here(function, tasks, advance)
        return
    workers = [_Worker(function, file_of) for _ in range(max(1, min(jobs, len(tasks))))]
    try:
        yield from _serve(workers, list(tasks), 2 if ahead else 1, advance)
    finally:
        for worker in workers:
            worker.end()


def _here(
    function: Task, tasks: Sequence[int], advance: Advance
) -> Iterator[tuple[int, Any]]:
    waiting: deque[tuple[int, Later[Any]]] = deque()
    try:
        for task in tasks:
            made = function(task, advance)
            if isinstance(made, Later):
                waiting.append((task, made))
            else:
                yield task, made
            if len(waiting) > 1:
                yield _finished(waiting)
        while waiting:
            yield _finished(waiting)
    finally:
        for _, later in waiting:
            later.drop()


def _finished(waiting: deque[tuple[int, Later[Any]]]) -> tuple[int, Any]:
    """The first one's result; it waits until it has one."""
    task, later = waiting[0]
    result = later.finish()
    waiting.popleft()
    return task, result


def _serve(workers: list[_Worker], tasks: list[int], depth: int, advance: Advance) -> Iterator[tuple[int, Any]]:
    waiting = tasks[::-1]
    poll = select.poll()
    by_fd = {}
    for worker in workers:
        by_fd[worker.results] = worker
        poll.register(worker.results, select.POLLIN | select.POLLHUP)
    for _ in range(depth):
        for worker in workers:
            if waiting:
                worker.give(waiting.pop())
    busy = sum(len(worker.tasks) for worker in workers)
    while busy:
        for fd, _ in poll.poll():
            worker = by_fd[fd]
            kind, value = worker.receive()
            if kind == _PROGRESS:
                advance(value)
            elif kind == _ERROR:
                raise value
            else:
                task = worker.tasks.popleft()
                busy -= 1
                if waiting:
                    worker.give(waiting.pop())
                    busy += 1
                yield task, value


class _Worker:
    """One forked child: reads task numbers from a pipe, writes results to another."""

    def __init__(self, function: Task, file_of: Callable[[int], bytes] | None) -> None:
        self.tasks: deque[int] = deque()  # given and not answered, in this order
        self._file_of = file_of
        task_out, self._tasks = os.pipe()
        self.results, result_in = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # A signal between the fork and the first line of the child would run the parent's handler there, which raises;
        # the child would then clean up, and go on, as if it were the parent.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _child(function, task_out, result_in, (self._tasks, self.results), parent, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(task_out)
        os.close(result_in)

    def give(self, task: int) -> None:
        self.tasks.append(task)
        # A worker that met an error has ended: what it sent before says why, or that it died.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tasks, task.to_bytes(8, "little"))

    def receive(self) -> tuple[int, Any]:
        head = self._read(_LENGTH.size)
        length, kind = _LENGTH.unpack(head)
        return kind, pickle.loads(self._read(length))

    def _read(self, count: int) -> bytearray:
        data, done = bytearray(count), 0
        while done < count:
            got = os.readv(self.results, [memoryview(data)[done:]])
            if not got:
                raise self._died()
            done += got
        return data

    def _died(self) -> ShardtoolError:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS:
            file = self._file_of(self.tasks[0]) if self._file_of is not None and self.tasks else None
            return DataError(
                "an input file became shorter, or could not be read, while it was in use", file=file,
                why="a worker process was ended by SIGBUS",
                remedy="keep the input unchanged (and look at the disk), then start again with --overwrite",
            )
        how = f"exit status {os.waitstatus_to_exitcode(status)}"
        if os.WIFSIGNALED(status):
            how = f"signal {signal.Signals(os.WTERMSIG(status)).name}"
        return HostError(
            f"a worker process ended early ({how})",
            why="SIGKILL mostly means that the machine or its memory cgroup ran out of memory",
            remedy="give --memory a smaller size or use fewer --jobs, then run the same command again",
        )

    def end(self) -> None:
        os.close(self._tasks)
        os.close(self.results)
        if self.pid:
            # Always by signal: later children inherited our end of this one's task pipe, so closing it is no end
            # of file for it.
            os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _child(
    function: Task, tasks: int, results: int, others: tuple[int, int], parent: int, mask: set[signal.Signals | int]
) -> None:
    """The life of a worker; never returns. Begins with signals blocked.

    others  the parent's ends of the pipes
    mask    of signals, as it was
    """
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; the parent ends us
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for fd in others:
            os.close(fd)
        _die_with_parent(parent)

        def send(kind: int, value: Any) -> None:
            data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            for piece in (_LENGTH.pack(len(data), kind), data):  # not joined: a result may be long
                message = memoryview(piece)
                while message:
                    message = message[os.write(results, message) :]

        def given() -> Iterator[int]:
            while number := os.read(tasks, 8):
                yield int.from_bytes(number, "little")

        try:
            _work(function, given(), tasks, send)
        except BaseException as error:
            send(_ERROR, _portable(error))
        status = 0
    except BaseException:
        pass  # the parent has gone or reads no more: nobody to tell
    finally:
        os._exit(status)


def _work(
    function: Task, given: Iterator[int], tasks: int, send: Callable[[int, Any], None]
) -> None:
    """Answer tasks in their order."""
    before: Later[Any] | None = None
    while True:
        if before is not None and not select.select([tasks], [], [], 0)[0]:
            send(_RESULT, before.finish())
            before = None
        number = next(given, None)
        if number is None:
            return
        made = function(number, lambda count: send(_PROGRESS, count))
        if before is not None:
            send(_RESULT, before.finish())
            before = None
        if isinstance(made, Later):
            before = made
        else:
            send(_RESULT, made)


def _portable(error: BaseException) -> BaseException:
    """The error itself where it survives pickling, else one that says the same."""
    if isinstance(error, (ShardtoolError, OSError, MemoryError)):
        return error
    if os.environ.get("SHARDTOOL_DEBUG") == "1":
        import traceback

        return RuntimeError("".join(traceback.format_exception(error)))
    return RuntimeError(f"{type(error).__name__}: {error}")


def _die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when the parent ends, however it ends.

    An orphan would hold the lock on OUT and keep publishing shards into a run that has been started anew.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        set_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it ended before the request above
