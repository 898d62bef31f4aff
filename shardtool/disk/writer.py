"""How the bytes of shards get onto the disk: past the page cache, beside the work that makes them.

A shard is written once and not read again by us, so a copy in the page cache is memory filled and emptied for
nothing; on fast disks that costs more than the transfer. O_DIRECT leaves it out. It asks for page-aligned memory,
offsets and lengths: buffers are anonymous mappings that are used again and again (fresh memory is dear), what
does not fill a block is carried over to the next buffer, the last block is padded and the file cut to its size.

A thread does the writing, so that the disk and the processor work at the same time. Digests are taken by the
thread that made the bytes, while they are in the processor's cache.

Where O_DIRECT is refused (at open or at any write), the file goes through the page cache; every buffer is then
handed to the disk at once instead of at the fsync. The bytes are the same either way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import queue
import threading

from ..base.errors import HostError, UsageError
from .digests import new_digests
from .files import create

BLOCK = 4096
BUFFERS = 3
# What a file system says that has no O_DIRECT, or wants larger blocks.
REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
# auto: O_DIRECT unless refused; direct: a refusal is an error; buffered: never asked for
MODES = ("auto", "direct", "buffered")
_O_DIRECT = getattr(os, "O_DIRECT", 0)


def buffers_bytes(chunk: int) -> int:
    """Memory that a writer of this chunk size has at most, bytes."""
    return BUFFERS * _capacity(chunk)


def _capacity(chunk: int) -> int:
    """Bytes of one buffer: the chunk, and room for what was carried over. A chunk that is one block less than a
    multiple of 2 MiB fills whole huge pages."""
    return -(-chunk // BLOCK) * BLOCK + BLOCK


def io_mode() -> str:
    """How to write, from SHARDTOOL_IO (for tests and measurements): one of MODES."""
    mode = os.environ.get("SHARDTOOL_IO") or "auto"
    if mode not in MODES:
        raise UsageError(f"SHARDTOOL_IO={mode!r} is none of {', '.join(MODES)}")
    return mode


class ShardWriter:
    """Writes one shard after the other; one a process.

        begin -> (space -> commit | write)* -> end      or abort

    `end` gives what the shard came to; the next one may begin before that is asked to `finish`.

    The thread and the buffers come with the first shard and go with `close`. Do not fork between: a child has
    the memory, but not the thread.

    chunk       bytes that `space` offers at least
    algorithms  of hashlib, besides xxh3-128
    bytes       size of the shard so far
    """

    def __init__(self, chunk: int, algorithms: tuple[str, ...] = ()) -> None:
        self.bytes = 0
        self._chunk = max(1, chunk)
        self._algorithms = algorithms
        self._digests = new_digests(())
        self._mode = io_mode()
        self._file: _File | None = None
        self._thread: _WriterThread | None = None
        self._buffers: list[mmap.mmap] = []
        self._buffer: mmap.mmap | None = None
        self._fill = 0

    def begin(self, temporary: bytes) -> None:
        """Start a shard in the file `temporary`, which is made anew. Raises OSError."""
        if self._file is not None:
            raise AssertionError("the shard before is neither finished nor aborted")
        self._file = _File(temporary, self._mode)
        if self._mode == "auto" and not self._file.direct:
            self._mode = "buffered"  # it will be refused again
        if self._thread is None:
            self._thread = _WriterThread()
        elif self._thread.left_behind:
            raise AssertionError("a fork left the writer's thread behind")
        self.bytes = 0
        self._digests = new_digests(self._algorithms)

    def space(self) -> memoryview:
        """Where the next bytes are to be put: at least `chunk` bytes, valid until the next call but `commit`.

        Raises OSError when an earlier write failed.
        """
        if self._buffer is not None and len(self._buffer) - self._fill < self._chunk:
            self._hand_over()
        buffer = self._buffer or self._next_buffer()
        return memoryview(buffer)[self._fill :]

    def commit(self, count: int) -> None:
        """The first `count` bytes of the last `space` are the next bytes of the shard."""
        if not count:
            return
        assert self._buffer is not None and 0 < count <= len(self._buffer) - self._fill
        with memoryview(self._buffer) as whole, whole[self._fill : self._fill + count] as data:
            for digest in self._digests.values():
                digest.update(data)
        self._fill += count
        self.bytes += count

    def write(self, data: memoryview | bytes) -> None:
        """Append data of any size. Raises OSError when an earlier write failed."""
        done = 0
        with memoryview(data) as view:
            while done < len(view):
                if self._buffer is not None and self._fill == len(self._buffer):
                    self._hand_over()
                buffer = self._buffer or self._next_buffer()
                count = min(len(buffer) - self._fill, len(view) - done)
                buffer[self._fill : self._fill + count] = view[done : done + count]
                self.commit(count)
                done += count

    def end(self) -> Ended:
        """Hand the rest over: nothing more is written to this shard."""
        if self._buffer is not None:
            buffer, count = self._buffer, self._fill
            self._buffer, self._fill = None, 0
            self._send(buffer, count)
        file, thread = self._begun()
        self._file = None
        digests = {name: digest.hexdigest() for name, digest in self._digests.items()}
        return Ended(file, thread.mark(), self.bytes, digests)

    def finish(self) -> dict[str, str]:
        """End and finish: hex digests by algorithm."""
        return self.end().finish()

    def abort(self) -> None:
        """Give the shard up, if there is one; its file stays as it is. The writer can begin another."""
        file, self._file = self._file, None
        self._buffer, self._fill = None, 0
        if file is not None:
            file.give_up()
            if self._thread is not None:
                self._thread.drain()
            file.close()
            if self._thread is not None:
                self._thread.free_again(self._buffers)

    def close(self) -> None:
        """Give thread, buffers and descriptor back."""
        self.abort()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
        while self._buffers:
            with contextlib.suppress(BufferError):  # somebody still looks at it; freed when they no longer do
                self._buffers.pop().close()

    def _begun(self) -> tuple[_File, _WriterThread]:
        if self._file is None or self._thread is None:
            raise AssertionError("no shard was begun")
        return self._file, self._thread

    def _next_buffer(self) -> mmap.mmap:
        """A buffer that nobody uses: a new one as long as there may be more, else the next that was written."""
        file, thread = self._begun()
        try:
            buffer = thread.free.get(block=len(self._buffers) >= BUFFERS)
        except queue.Empty:
            buffer = _new_buffer(_capacity(self._chunk))
            self._buffers.append(buffer)
        self._buffer = buffer
        file.check()
        return buffer

    def _hand_over(self) -> None:
        """Give all whole blocks of the buffer to the thread and carry the rest over to another one."""
        assert self._buffer is not None
        buffer, whole = self._buffer, self._fill // BLOCK * BLOCK
        rest = buffer[whole : self._fill]
        self._buffer, self._fill = None, 0
        self._send(buffer, whole)
        self._next_buffer()[: len(rest)] = rest
        self._fill = len(rest)

    def _send(self, buffer: mmap.mmap, count: int) -> None:
        file, thread = self._begun()
        thread.tasks.put((file, buffer, count))


class Ended:
    """A shard whose bytes are on their way to the disk.

    bytes    its size
    digests  hex, by algorithm
    """

    def __init__(self, file: _File, written: threading.Event, size: int, digests: dict[str, str]) -> None:
        self.bytes, self.digests = size, digests
        self._file, self._written = file, written

    def finish(self) -> dict[str, str]:
        """Wait for the last write, sync, close the file; the digests.

        Raises OSError, with the file's name, when any write or the sync failed.
        """
        self._written.wait()
        try:
            self._file.check()
            self._file.sync()
        except BaseException:
            self._file.close()
            raise
        return self.digests

    def drop(self) -> None:
        """Give the shard up; its file stays as it is."""
        self._file.give_up()
        self._written.wait()
        self._file.close()


def _new_buffer(size: int) -> mmap.mmap:
    """Private memory, in huge pages where the machine has them."""
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


class _WriterThread:
    """Takes buffers in the order they were sent, writes them, and puts them where `free.get` finds them.

    Nothing stops it but `end`: an error is kept in the file it belongs to, whose later buffers only pass through.
    """

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[tuple[_File, mmap.mmap, int] | threading.Event | None] = queue.SimpleQueue()
        self.free: queue.SimpleQueue[mmap.mmap] = queue.SimpleQueue()
        # A daemon: an interpreter that ends without `close` must not wait for it forever.
        self._thread = threading.Thread(target=self._run, name="shard writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise HostError(f"{error}", why="the machine or its limits (ulimit -u) allow no more threads") from None
        self._process = os.getpid()

    def _run(self) -> None:
        while (task := self.tasks.get()) is not None:
            if isinstance(task, threading.Event):
                task.set()
                continue
            file, buffer, count = task
            file.append(buffer, count)
            self.free.put(buffer)

    @property
    def left_behind(self) -> bool:
        """Whether this process is a fork of the one that has the thread."""
        return self._process != os.getpid()

    def mark(self) -> threading.Event:
        """Set when all that was sent until now is written."""
        done = threading.Event()
        if self.left_behind:
            done.set()
        else:
            self.tasks.put(done)
        return done

    def drain(self) -> None:
        """Wait until all that was sent is written."""
        self.mark().wait()

    def free_again(self, buffers: list[mmap.mmap]) -> None:
        """Nobody uses any of these: also one that an exception took from the hands of the producer."""
        self.free = queue.SimpleQueue()
        for buffer in buffers:
            self.free.put(buffer)

    def end(self) -> None:
        """Let it end, and wait for that."""
        if not self.left_behind:
            self.tasks.put(None)
            self._thread.join()


class _File:
    """The file of one shard. `append` runs in the writer's thread and never raises: see `check`.

    direct  whether it is open with O_DIRECT
    """

    def __init__(self, path: bytes, mode: str) -> None:
        self._path = path
        self._strict = mode == "direct"
        self._error: BaseException | None = None
        self._given_up = False
        self._at = 0  # bytes of the shard that were sent here
        self._padded = False
        self.direct = False
        if mode != "buffered" and _O_DIRECT:
            try:
                self._fd = create(path, flags=_O_DIRECT)
                self.direct = True
                return
            except OSError as error:
                if self._strict or error.errno not in REFUSALS:
                    raise
        self._fd = create(path)

    def append(self, buffer: mmap.mmap, count: int) -> None:
        """The first `count` bytes of the buffer: whole blocks, or the end of the shard."""
        if self._error is not None or self._given_up:
            return
        try:
            with memoryview(buffer) as view:
                done = self._append_direct(view, count) if self.direct else 0
                self._append_buffered(view, done, count)
            self._at += count
        except BaseException as error:
            self._keep(error)

    def _append_direct(self, view: memoryview, count: int) -> int:
        """Write whole blocks, the last one padded; how many bytes are written, fewer than `count` if refused."""
        until = -(-count // BLOCK) * BLOCK
        view[count:until] = bytes(until - count)
        self._padded = until > count
        done = 0
        while done < until:
            try:
                got = os.pwrite(self._fd, view[done:until], self._at + done)
            except OSError as error:
                if self._strict or error.errno not in REFUSALS:
                    raise
                got = 0
            if got < BLOCK:
                # Refused, or cut off within the first block, as at a limit of the file's size.
                self._leave_direct()
                return done
            done += got // BLOCK * BLOCK  # a block that was cut short is written again
        return count

    def _leave_direct(self) -> None:
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~_O_DIRECT)
        self.direct = False

    def _append_buffered(self, view: memoryview, done: int, count: int) -> None:
        first = done
        while done < count:
            done += os.pwrite(self._fd, view[done:count], self._at + done)
        if done > first and hasattr(os, "posix_fadvise"):
            # Linux begins to write such pages back at once; without this they all wait for the fsync.
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, self._at + first, done - first, os.POSIX_FADV_DONTNEED)

    def _keep(self, error: BaseException) -> None:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = self._path
        self._error = error

    def check(self) -> None:
        """Raise what a write of this file raised."""
        if self._error is not None:
            raise self._error

    def sync(self) -> None:
        """Cut the padding off, make it durable, close. Raises OSError with the file's name."""
        try:
            if self._padded:
                os.ftruncate(self._fd, self._at)
            os.fsync(self._fd)
            self.close()
        except OSError as error:
            self._keep(error)
            raise

    def give_up(self) -> None:
        """Let what is still to be written pass through."""
        self._given_up = True

    def close(self) -> None:
        """Give the descriptor back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
