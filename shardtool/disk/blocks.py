"""Reading a file by position through one reused window: few system calls, no mapping.

A mapping would be shorter to write, but a source that another process cuts short then kills us with SIGBUS, and
its pages count as our memory.
"""

from __future__ import annotations

import os
from types import TracebackType

from ..base.errors import DataError
from .files import named
from .packed import DecodedFile, Packed


class Blocks:
    """A file opened for reading; for a Packed path its content.

    name   for messages
    size   bytes, as of opening
    """

    def __init__(self, path: bytes, name: bytes, window: int = 1 << 20) -> None:
        self.name = name
        self._file = DecodedFile(path, name) if isinstance(path, Packed) else _PlainFile(path, name)
        self.size = self._file.size
        self._buffer = bytearray(min(window, max(self.size, 1)))
        self._view = memoryview(self._buffer)
        self._lo = self._hi = 0

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

    def window(self, offset: int) -> memoryview:
        """As many bytes from `offset` on as the window holds."""
        return self.peek(offset, len(self._buffer))

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill `target` from `offset`, past the window."""
        self._file.read_into(target, offset)

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()

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

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
