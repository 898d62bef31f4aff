"""Reading a file by position through one window: few system calls.

The window is a buffer that is read into again and again, or, where the caller asks for it, a stretch of a mapping:
a walk over headers then looks at them where they lie in the page cache, and payloads are not copied to be skipped.
A source that another process cuts short while it is mapped kills the reader with SIGBUS, so mappings are for worker
processes only (see runners.run_tasks), and only one window of a mapping is ever held: its pages count as memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from types import TracebackType

from ..base.errors import DataError
from .files import named
from .packed import DecodedFile, Packed

# A smaller file is read sooner than it is mapped.
WORTH_MAPPING = 1 << 20
# Read by position beside a mapping: heads of large records, a search behind damage.
BESIDE = 1 << 20
# Linux 5.14 and later: map the pages of a stretch now, many at a time, instead of at the first touch of each.
_POPULATE_READ = 22


class Blocks:
    """A file opened for reading; for a Packed path its content.

    name    for messages
    size    bytes, as of opening
    mapped  whether windows are stretches of a mapping; asked for by the argument of that name, which a small file,
            compressed content or a file system without mappings do not follow
    """

    def __init__(self, path: bytes, name: bytes, window: int = 1 << 20, *, mapped: bool = False) -> None:
        self.name = name
        self._file = DecodedFile(path, name) if isinstance(path, Packed) else _PlainFile(path, name)
        self.size = self._file.size
        self._window = min(window, max(self.size, 1))
        self._map = None
        if mapped and isinstance(self._file, _PlainFile) and self.size >= WORTH_MAPPING:
            self._map = self._file.mapping()
        self._buffer = bytearray(self._window if self._map is None else min(self._window, BESIDE))
        self._view = memoryview(self._buffer)
        self._lo = self._hi = 0

    @property
    def mapped(self) -> bool:
        """See the class."""
        return self._map is not None

    def peek(self, offset: int, count: int) -> memoryview:
        """`count` bytes at `offset` (fewer at the end of the file), valid until the next call.

        What the window holds is not read again; a request larger than the window gets a buffer of its own, so
        check `count` against `size` first.
        """
        count = max(0, min(count, self.size - offset))
        if self._lo <= offset and offset + count <= self._hi:
            return self._view[offset - self._lo : offset - self._lo + count]
        if count > len(self._buffer):
            big = memoryview(bytearray(count))
            held = self._held(offset)
            big[: len(held)] = held
            self._file.read_into(big[len(held) :], offset + len(held))
            return big
        want = min(len(self._buffer), self.size - offset)
        held = self._held(offset)
        kept = len(held)
        self._view[:kept] = held
        self._lo, self._hi = offset, offset + kept  # nothing else is valid if the read fails
        self._file.read_into(self._view[kept:want], offset + kept)
        self._hi = offset + want
        return self._view[:count]

    def _held(self, offset: int) -> memoryview:
        """What the window holds from `offset` on."""
        if self._lo <= offset < self._hi:
            return self._view[offset - self._lo : self._hi - self._lo]
        return self._view[:0]

    def window(self, offset: int, count: int | None = None) -> memoryview:
        """As many bytes from `offset` on as the window holds, or `count` if that is less. Valid until the next call."""
        count = self._window if count is None else min(count, self._window)
        return self.peek(offset, count) if self._map is None else self._map.window(offset, count)

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill `target` from `offset`, past the window."""
        self._file.read_into(target, offset)

    def close(self) -> None:
        """Give descriptor and mapping back."""
        self._file.close()
        if self._map is not None:
            self._map.close()

    def __enter__(self) -> Blocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _PlainFile:
    """Bytes of a file by position."""

    def __init__(self, path: bytes, name: bytes) -> None:
        self.name = name
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def read_into(self, target: memoryview, offset: int) -> None:
        done = 0
        while done < len(target):
            try:
                got = os.preadv(self._fd, [target[done:]], offset + done)
            except OSError as error:
                raise named(error, self._fd) from None
            if not got:
                raise DataError(
                    "the file became shorter while it was read",
                    file=self.name, offset=offset + done,
                    remedy="keep the input unchanged during the run, then start again",
                )  # fmt: skip
            done += got

    def mapping(self) -> _Mapping | None:
        """None where the file system has none, or the file is no longer as long as it was."""
        try:
            return _Mapping(self._fd, self.size)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Mapping:
    """A file in memory, one window of it at a time."""

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        self._view = memoryview(self._map)
        self._lo = self._hi = 0  # whole pages that are mapped now

    def window(self, offset: int, count: int) -> memoryview:
        """Bytes offset..offset+count-1, fewer at the end of the file."""
        stop = min(offset + count, len(self._view))
        page = mmap.PAGESIZE
        lo, hi = offset // page * page, -(-stop // page) * page
        if offset < stop and not (self._lo <= lo and hi <= self._hi):
            if self._hi > self._lo:
                self._advise(mmap.MADV_DONTNEED, self._lo, self._hi)
            self._advise(_POPULATE_READ, lo, hi)
            self._lo, self._hi = lo, hi
        return self._view[offset:stop]

    def _advise(self, advice: int, lo: int, hi: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # an older kernel: pages come at the first touch
            self._map.madvise(advice, lo, min(hi, len(self._view)) - lo)

    def close(self) -> None:
        """Give the mapping back; one that somebody still looks at goes with its last view."""
        with contextlib.suppress(BufferError):
            self._view.release()
            self._map.close()
