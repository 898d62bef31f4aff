"""What every engine is given, and what they share: open sources."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...base.errors import DataError
from ...layout.index import Index
from ...layout.keys import OutputKeys
from ...layout.layout import Layout
from ..files import named


@dataclass(frozen=True)
class SourceFile:
    """A source on disk, as it was when the run began: the private fingerprint."""

    path: bytes
    name: bytes
    size: int
    mtime_ns: int
    inode: int

    def check(self, found: os.stat_result) -> None:
        """DataError when the file is no longer the one that was scanned."""
        for what, then, now in (
            ("size", self.size, found.st_size),
            ("modification time", self.mtime_ns, found.st_mtime_ns),
            ("inode", self.inode, found.st_ino),
        ):
            if then != now:
                raise DataError(
                    "the input changed during the run", file=self.name,
                    why=f"its {what} was {then}, now it is {now}",
                    remedy="keep the input unchanged, then start again with --overwrite",
                )  # fmt: skip


@dataclass(frozen=True)
class CopyJob:
    """A whole repack, ready to move bytes. Workers inherit it; nothing in it changes.

    names    file names of the shards
    out      folder of the shards; `work` a folder on the same file system for temporary files
    verify   check payload checksums while copying (else wrong ones are replaced by right ones)
    digests  algorithms of hashlib besides xxh3-128
    columns  index column -> dtype
    chunk    bytes of the output buffer
    """

    layout: Layout
    index: Index
    keys: OutputKeys
    sources: tuple[SourceFile, ...]
    names: tuple[str, ...]
    out: bytes
    work: bytes
    verify: bool
    digests: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    chunk: int = 4 << 20

    def temporary(self, shard: int, suffix: str) -> bytes:
        """Where a file of this shard is written before it has its name."""
        return os.path.join(self.work, f"shard-{shard:06}.{suffix}.tmp".encode())


class SourceFiles:
    """Descriptors of sources, at most so many at a time."""

    def __init__(self, files: tuple[SourceFile, ...], most: int | None = None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.most = most or max(4, min(256, soft // 3))
        self._files = files
        self._open: dict[int, int] = {}

    @property
    def scarce(self) -> bool:
        """Whether there are more sources than descriptors."""
        return len(self._files) > self.most

    def fd(self, number: int) -> int:
        """The descriptor of source `number`, checked against its fingerprint when it is opened."""
        fd = self._open.get(number)
        if fd is not None:
            return fd
        if len(self._open) >= self.most:
            oldest = next(iter(self._open))
            os.close(self._open.pop(oldest))
        file = self._files[number]
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self._open[number] = fd
        file.check(os.fstat(fd))
        return fd

    def read_into(self, number: int, target: memoryview, offset: int) -> None:
        """Fill `target` from source `number` at `offset`."""
        got = self._read(number, target, offset)
        while got < len(target):
            more = self._read(number, target[got:], offset + got)
            if not more:
                raise DataError(
                    "the input became shorter during the run", file=self._files[number].name, offset=offset + got,
                    remedy="keep the input unchanged, then start again with --overwrite",
                )  # fmt: skip
            got += more

    def _read(self, number: int, target: memoryview, offset: int) -> int:
        fd = self.fd(number)
        try:
            return os.preadv(fd, [target], offset)
        except OSError as error:
            raise named(error, self._files[number].path) from None

    def close(self) -> None:
        """Give all descriptors back."""
        while self._open:
            os.close(self._open.popitem()[1])
