"""What every engine is given, and what they share: open sources."""

from __future__ import annotations

import contextlib
import os
import resource
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import overload

import numpy as np

from ...layout.index import I64, Column, Index
from ...layout.keys import OutputKeys
from ...layout.layout import Layout
from ..files import named
from ..samplefiles import SampleFiles
from ..sourcefile import READ, fill, gone
from ..sourcefile import SourceFile as SourceFile


class SourceTable(Sequence[SourceFile]):
    """Sources among which are folders: as a sequence of files, of which no object is kept.

    A folder takes one number for every sample file and one for what is generated; any other source takes one.
    """

    def __init__(self, sources: Iterable[SourceFile | SampleFiles]) -> None:
        self._sources = tuple(sources)
        counts = (len(one) + 1 if isinstance(one, SampleFiles) else 1 for one in self._sources)
        self.starts = [0, *accumulate(counts)]
        # what is in no file, by number
        self.generated = {
            start + len(one): one.generated
            for start, one in zip(self.starts, self._sources, strict=False) if isinstance(one, SampleFiles)
        }  # fmt: skip

    def __len__(self) -> int:
        return self.starts[-1]

    @overload
    def __getitem__(self, number: int, /) -> SourceFile: ...
    @overload
    def __getitem__(self, numbers: slice, /) -> Sequence[SourceFile]: ...
    def __getitem__(self, number: int | slice, /) -> SourceFile | Sequence[SourceFile]:
        if isinstance(number, slice):
            return [self[k] for k in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        at = bisect_right(self.starts, number) - 1
        one = self._sources[at]
        return one.file(number - self.starts[at]) if isinstance(one, SampleFiles) else one

    def read_whole(self, number: int, target: memoryview) -> bool:
        """As SampleFiles.read_whole; False for what is no sample file."""
        at = bisect_right(self.starts, number) - 1
        one = self._sources[at]
        return isinstance(one, SampleFiles) and one.read_whole(number - self.starts[at], target)


@dataclass(frozen=True)
class CopyJob:
    """A whole repack, ready to move bytes. Workers inherit it; nothing in it changes.

    names    file names of the shards
    out      folder of the shards; `work` a folder on the same file system for temporary files; `bulk` one for spill
    frames   int64 column of n: bytes of every sample's frame, in source order
    verify   check payload checksums while copying (else wrong ones are replaced by right ones)
    digests  algorithms of hashlib besides xxh3-128
    columns  index column -> dtype
    chunk    bytes of the output buffer
    budget   bytes of frames that an engine which collects them holds at a time, in each process
    mapped   read the sources through mappings (workers must be processes of their own)
    """

    layout: Layout
    index: Index
    keys: OutputKeys
    sources: Sequence[SourceFile]
    names: tuple[str, ...]
    out: bytes
    work: bytes
    bulk: bytes
    frames: Column
    verify: bool
    digests: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    chunk: int = 4 << 20
    budget: int = 24 << 20
    mapped: bool = False

    def temporary(self, shard: int, suffix: str) -> bytes:
        """Where a file of this shard is written before it has its name."""
        return os.path.join(self.work, f"shard-{shard:06}.{suffix}.tmp".encode())


def _free() -> int:
    """Descriptors that this process may still open: a program that uses the library has some of its own."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError):  # no /proc here
        return soft - len(os.listdir("/proc/self/fd"))
    return soft


class SourceFiles:
    """Descriptors of sources, at most so many at a time."""

    def __init__(self, files: Sequence[SourceFile], most: int | None = None) -> None:
        self.most = most or max(4, min(256, _free() // 3))
        self._files = files
        self._open: dict[int, int] = {}
        self._table = files if isinstance(files, SourceTable) else None

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
        self._open[number] = fd = _open(file)
        file.check(os.fstat(fd))
        return fd

    def read_into(self, number: int, target: memoryview, offset: int) -> None:
        """Fill `target` from source `number` at `offset`."""
        if self._table is not None:
            generated = self._table.generated.get(number)
            if generated is not None:
                target[:] = generated[offset : offset + len(target)]
                return
            if number not in self._open and self._table.read_whole(number, target):
                return  # a whole sample file: nobody will ask for it again
        got = self._read(number, target, offset)
        if got < len(target):
            fill(self.fd(number), self._files[number].name, target, offset, got)

    def read_many(self, source: I64, start: I64, length: I64, to: I64, view: memoryview) -> None:
        """Bytes start..start+length of each `source` to `to` in the view; int64[r] each."""
        if self.scarce:  # by source, so that each is opened once
            by = np.lexsort((start, source))
            source, start, length, to = source[by], start[by], length[by], to[by]
        rows = zip(source.tolist(), start.tolist(), length.tolist(), to.tolist(), strict=True)
        if self.scarce or self._table is not None:
            for number, offset, count, at in rows:
                self.read_into(number, view[at : at + count], offset)
            return
        # Half of what a small read costs is Python around it, so: nothing here that is not needed.
        for number in set(source.tolist()):
            self.fd(number)
        opened, read = self._open, os.preadv
        for number, offset, count, at in rows:
            try:
                got = read(opened[number], (view[at : at + count],), offset)
            except OSError as error:
                raise named(error, self._files[number].path) from None
            if got < count:
                fill(opened[number], self._files[number].name, view[at : at + count], offset, got)

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


def _open(file: SourceFile) -> int:
    try:
        return os.open(file.path, READ)
    except (FileNotFoundError, NotADirectoryError):
        raise gone(file.name) from None
