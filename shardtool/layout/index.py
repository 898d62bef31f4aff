"""The Index: what exists. For every sample a short list of parts, for every part the place of its payload.

Columns are numpy arrays, or objects that behave like one for the two accesses that the rest of shardtool uses:
`column[lo:hi]` (a window) and `column.take(ids)`. Nothing may depend on a column being in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged

I64 = npt.NDArray[np.int64]


class Column(Protocol):
    """What an engine may do with a column."""

    def __len__(self) -> int: ...

    def __getitem__(self, window: slice, /) -> npt.NDArray[Any]: ...

    def take(self, ids: I64, /) -> npt.NDArray[Any]: ...


class Strings(Protocol):
    """Keys: a Ragged, or what answers like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> bytes: ...

    def __iter__(self) -> Iterator[bytes]: ...

    def bytes_of(self, lo: int, hi: int, /) -> int: ...

    def window(self, lo: int, hi: int, /) -> Ragged: ...

    def whole(self) -> Ragged: ...

    def take(self, ids: I64, /) -> Ragged: ...

    def lengths_of(self, ids: I64, /) -> I64: ...


class GrowingColumn(Protocol):
    """A column that is made piece by piece, each with a number of its own."""

    def add(self, number: int, values: npt.NDArray[Any], /) -> None: ...

    def finish(self, numbers: Iterable[int], shifts: Iterable[int] | None = None, /) -> Column: ...


# Number of the piece that holds the 0 in front of running sums
FRONT = -1


class ColumnStore(Protocol):
    """What makes columns (disk/columns.py)."""

    def growing(self, dtype: str = "<i8") -> GrowingColumn: ...


@dataclass(frozen=True)
class Source:
    """One input file, or one folder of sample files.

    name     relative to the base, '/' between folders, bytes as on disk; b'.' for a folder that is the base
    bytes    size of the file; of a folder, of its sample files together
    samples  how many it holds (after policies)
    format   'tar', 'tfrecord' or 'folder'
    listing  of a folder: digest of the names and sizes of its sample files, 'xxh3-128:<hex>'; else None
    """

    name: bytes
    bytes: int
    samples: int
    format: str
    listing: str | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What can be known of it without a scan; equal for the same input wherever it lies."""
        return (self.name, self.bytes, self.listing)


# How the payload of a part comes about: copied from the source, or computed from what is stored there.
SPAN = 0  # the bytes as they are stored
INT64_TEXT = 1  # an Int64List with one value -> its decimal digits; the number is known, nothing is read
INT64_NPY = 2  # an Int64List -> .npy of '<i8', shape (k,)
FLOAT_NPY = 3  # a FloatList -> .npy of '<f4', shape (k,)
TO_INT64 = 4  # decimal digits, or such a .npy -> the packed values of an Int64List
TO_FLOAT = 5  # a decimal number, or such a .npy -> the packed values of a FloatList
# A list of a tf.train.Example as it is stored, for a feature that is carried from record to record: NO_LIST plus the
# number of its type (1 bytes, 2 float, 3 int64).
NO_LIST = 6  # a feature without a list: no bytes


def is_copied(kind: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Of which kinds the payload is what is stored."""
    copied: npt.NDArray[np.bool_] = (kind == SPAN) | (kind >= NO_LIST)
    return copied


# A sparse member: (place in the payload, offset in the source, bytes) of every stored run; the rest is zeros.
Runs = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Index:
    """n samples of p parts in S sources, in source order.

    sources   S sources, by name as bytes
    first     int64[n+1], parts of sample i are first[i]:first[i+1]; None: one part a sample
    offset    int64[p], where the part's frame begins in its source (extension headers included)
    head      int64[p], payload begins at offset + head; negative or large for a hard link, whose payload is
              that of another member of the same source
    size      int64[p], payload bytes
    ext       uint32[p], number of the part's field in `exts`; None for TFRecord
    exts      field names (the extension after the first dot), by bytes
    keys      n keys; None for TFRecord
    label     int32[n], number of the label in `classes`; -1: the sample has none; None: not asked for
    classes   labels in order of their numbers
    sparse    part number -> stored runs
    kind      uint8[p], how the payload comes about (SPAN, ...); None: all are copied
    stored    int64[p], bytes that the part has in the source, of INT64_TEXT the number itself; None exactly where
              `kind` is: as in `size`
    records   the samples leave as records (tf.train.Example): no key and no part of them stands in an index file
    file      int64[p], number of the file that holds the part, among all files that engines read; None: there is one
              file for each source, with the source's number
    """

    sources: tuple[Source, ...]
    first: Column | None
    offset: Column
    head: Column
    size: Column
    ext: Column | None = None
    exts: tuple[bytes, ...] = ()
    keys: Strings | None = None
    label: Column | None = None
    classes: tuple[bytes, ...] = ()
    sparse: Mapping[int, Runs] = field(default_factory=dict)
    kind: Column | None = None
    stored: Column | None = None
    records: bool = False
    file: Column | None = None

    @functools.cached_property
    def samples(self) -> int:
        """n"""
        return sum(source.samples for source in self.sources)

    @functools.cached_property
    def source_first(self) -> I64:
        """int64[S+1]: samples of source s are source_first[s]:source_first[s+1]."""
        return np.cumsum([0, *(source.samples for source in self.sources)], dtype=np.int64)

    def source_of(self, ids: I64) -> I64:
        """Number of the source of each sample, int64[k]."""
        return np.searchsorted(self.source_first, ids, side="right").astype(np.int64) - 1

    def parts_of(self, ids: I64) -> tuple[I64, I64]:
        """Parts of the samples `ids` in their order: part numbers int64[q], and int64[k+1] where each sample's
        begin in that list."""
        if self.first is None:
            return ids, np.arange(len(ids) + 1, dtype=np.int64)
        start = self.first.take(ids)
        count = self.first.take(ids + 1) - start
        begin = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(count, out=begin[1:])
        # number of every part: first part of its sample + its place in the sample
        parts = np.arange(begin[-1], dtype=np.int64) + np.repeat(start - begin[:-1], count)
        return parts, begin

    def files_of(self, ids: I64, parts: I64, begin: I64) -> I64:
        """Number of the file of every part of the samples `ids`, int64[q]; `parts`, `begin` as of `parts_of`."""
        if self.file is None:
            return np.repeat(self.source_of(ids), np.diff(begin))
        return self.file.take(parts).astype(np.int64)


def windows(count: int, step: int) -> Iterator[tuple[int, int]]:
    """(lo, hi) of consecutive windows over 0..count."""
    for lo in range(0, count, step):
        yield lo, min(lo + step, count)
