"""A file that engines read, as it was when it was found."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..base.errors import DataError

# Not to block on a FIFO that took the file's place.
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_REMEDY = "keep the input unchanged, then start again with --overwrite"


@dataclass(frozen=True)
class SourceFile:
    """A file on disk, as it was when the run began: the private fingerprint.

    data  the bytes themselves, of what is generated and in no file
    """

    path: bytes
    name: bytes
    size: int
    mtime_ns: int
    inode: int
    data: bytes | None = None

    def check(self, found: os.stat_result) -> None:
        """DataError when the file is no longer the one that was scanned."""
        # Engines number inodes as signed 64-bit integers do, file systems without sign.
        for what, then, now in (
            ("size", self.size, found.st_size),
            ("modification time", self.mtime_ns, found.st_mtime_ns),
            ("inode", self.inode % (1 << 64), found.st_ino),
        ):
            if then != now:
                raise DataError(
                    "the input changed during the run", file=self.name, why=f"its {what} was {then}, now it is {now}",
                    remedy=_REMEDY,
                )  # fmt: skip


def fill(fd: int, name: bytes, target: memoryview, offset: int, got: int) -> None:
    """Read what is missing of `target` behind its first `got` bytes; `offset` is where it begins in the file."""
    while got < len(target):
        more = os.preadv(fd, [target[got:]], offset + got)
        if not more:
            raise DataError(
                "the input became shorter during the run", file=name, offset=offset + got, remedy=_REMEDY
            )
        got += more


def gone(name: bytes) -> DataError:
    """What to raise for an input file that is no longer there."""
    return DataError("the input changed during the run", file=name, why="this file is gone", remedy=_REMEDY)
