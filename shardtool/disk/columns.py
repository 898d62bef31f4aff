"""Columns that do not fit into memory: in one unlinked temporary file, read by windows.

A `Store` is given a budget. Columns that it makes are plain arrays as long as the budget lasts, and FileColumns from
then on. Both answer to `column[lo:hi]` and `column.take(ids)`, and nothing above knows which one it has.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from ..layout.index import I64, Column
from .files import named, write_all

# Elements of a file column that `take` reads at a time.
SWEEP = 1 << 18


class FileColumn:
    """A column in a file. What is read comes as `reads` (int64 for numbers), however narrow it is stored."""

    def __init__(self, fd: int, offset: int, count: int, stored: np.dtype[Any], reads: np.dtype[Any]) -> None:
        self._fd, self._offset, self._count = fd, offset, count
        self._stored, self._reads = stored, reads

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, window: slice) -> npt.NDArray[Any]:
        lo, hi, step = window.indices(self._count)
        if step != 1:
            raise ValueError("a column is read by windows of step 1")
        return self._read(lo, max(lo, hi)).astype(self._reads, copy=False)

    def take(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Elements `ids`, in any order: sorted, then one sweep over the stretch that holds them."""
        found = np.empty(len(ids), self._reads)
        if not len(ids):
            return found
        order = np.argsort(ids, kind="stable")
        ranked = ids[order]
        if ranked[0] < 0 or ranked[-1] >= self._count:
            raise IndexError(f"{int(ranked[0])}..{int(ranked[-1])} of {self._count} elements")
        done = 0
        while done < len(ranked):
            lo = int(ranked[done])
            hi = min(lo + SWEEP, self._count)
            until = int(np.searchsorted(ranked, hi, side="left"))
            hi = int(ranked[until - 1]) + 1
            found[order[done:until]] = self._read(lo, hi)[ranked[done:until] - lo]
            done = until
        return found

    def put(self, lo: int, values: npt.NDArray[Any]) -> None:
        """values are elements lo, lo+1, ..."""
        data = np.ascontiguousarray(values, self._stored)
        write_all(self._fd, data.view(np.uint8).data, self._offset + lo * self._stored.itemsize)

    def _read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        made = np.empty(hi - lo, self._stored)
        view, done = made.view(np.uint8).data, 0
        start = self._offset + lo * self._stored.itemsize
        while done < len(view):
            try:
                got = os.preadv(self._fd, [view[done:]], start + done)
            except OSError as error:
                raise named(error, self._fd) from None
            if not got:
                raise EOFError("a column's temporary file is cut short")
            done += got
        return made


class Constant:
    """A column of one value."""

    def __init__(self, value: int, count: int) -> None:
        self._value, self._count = value, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, window: slice) -> I64:
        lo, hi, _ = window.indices(self._count)
        return np.full(max(0, hi - lo), self._value, np.int64)

    def take(self, ids: I64) -> I64:
        """The value, once for each of `ids`."""
        return np.full(len(ids), self._value, np.int64)


class Store:
    """Makes columns, in memory up to `budget` bytes, then in an unlinked file in `folder` (the system's temporary
    folder when None)."""

    def __init__(self, budget: int, folder: bytes | None = None) -> None:
        self.budget = budget
        self.held = 0
        self._folder = folder
        self._fd = -1
        self._end = 0

    def empty(self, count: int, dtype: str = "<i8", stored: str | None = None) -> Column:
        """A column of `count` elements to be filled by `put`; `stored` is a narrower type that holds its values."""
        reads, narrow = np.dtype(dtype), np.dtype(stored or dtype)
        if self.held + count * reads.itemsize <= self.budget:
            self.held += count * reads.itemsize
            return np.empty(count, reads)
        if self._fd < 0:
            self._fd = self._temporary()
        column = FileColumn(self._fd, self._end, count, narrow, reads)
        self._end += -(-count * narrow.itemsize // 4096) * 4096
        return column

    def _temporary(self) -> int:
        folder = None if self._folder is None else os.fsdecode(self._folder)
        fd, path = tempfile.mkstemp(prefix="shardtool-columns.", dir=folder)
        os.unlink(path)
        return fd

    def close(self) -> None:
        """Give the file's space back; its columns are no longer readable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def put(column: Column, lo: int, values: npt.NDArray[Any]) -> None:
    """Fill elements of a column that a Store made."""
    if isinstance(column, np.ndarray):
        column[lo : lo + len(values)] = values
    else:
        assert isinstance(column, FileColumn)
        column.put(lo, values)
