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


class _Unlinked:
    """A temporary file without a name; gone with its last user."""

    def __init__(self, folder: bytes | None) -> None:
        where = None if folder is None else os.fsdecode(folder)
        self.fd, path = tempfile.mkstemp(prefix="shardtool-columns.", dir=where)
        os.unlink(path)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            os.close(self.fd)


class FileColumn:
    """A column in a file. What is read comes as `reads` (int64 for numbers), however narrow it is stored."""

    def __init__(
        self, file: _Unlinked, offset: int, count: int, stored: np.dtype[Any], reads: np.dtype[Any]
    ) -> None:
        self._file, self._offset, self._count = file, offset, count
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
        write_all(self._file.fd, data.view(np.uint8).data, self._offset + lo * self._stored.itemsize)

    def _read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        made = np.empty(hi - lo, self._stored)
        view, done = made.view(np.uint8).data, 0
        start = self._offset + lo * self._stored.itemsize
        while done < len(view):
            try:
                got = os.preadv(self._file.fd, [view[done:]], start + done)
            except OSError as error:
                raise named(error, self._file.fd) from None
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


class Shifted:
    """Another column plus a number."""

    def __init__(self, column: Column, by: int) -> None:
        self._column, self._by = column, by

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, window: slice) -> I64:
        return self._column[window].astype(np.int64) + self._by

    def take(self, ids: I64) -> I64:
        """Elements `ids`."""
        return self._column.take(ids).astype(np.int64) + self._by


class Store:
    """Makes columns, in memory up to `budget` bytes, then in an unlinked file in `folder` (the system's temporary
    folder when None)."""

    def __init__(self, budget: int, folder: bytes | None = None) -> None:
        self.budget = budget
        self.held = 0
        self._folder = folder
        self._file: _Unlinked | None = None
        self._end = 0

    def empty(self, count: int, dtype: str = "<i8", stored: str | None = None) -> Column:
        """A column of `count` elements to be filled by `put`; `stored` is a narrower type that holds its values."""
        reads, narrow = np.dtype(dtype), np.dtype(stored or dtype)
        if self.held + count * reads.itemsize <= self.budget:
            self.held += count * reads.itemsize
            return np.empty(count, reads)
        if self._file is None:
            self._file = _Unlinked(self._folder)
        column = FileColumn(self._file, self._end, count, narrow, reads)
        self._end += -(-count * narrow.itemsize // 4096) * 4096
        return column

    @property
    def spilled(self) -> bool:
        """Whether some column is in the file: then taking elements at random costs a sweep each time."""
        return self._file is not None


def put(column: Column, lo: int, values: npt.NDArray[Any]) -> None:
    """Fill elements of a column that a Store made."""
    if isinstance(column, np.ndarray):
        column[lo : lo + len(values)] = values
    else:
        assert isinstance(column, FileColumn)
        column.put(lo, values)
