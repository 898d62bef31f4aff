"""Columns that do not fit into memory: in one unlinked temporary file, read by windows.

A `Store` is given a budget. Columns that it makes are plain arrays as long as the budget lasts, and FileColumns from
then on. Both answer to `column[lo:hi]` and `column.take(ids)`, and nothing above knows which one it has.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged
from ..layout.index import FRONT, I64, Column, Strings, windows
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


class _Swept:
    """A column that is read by stretches."""

    def __init__(self, count: int, reads: np.dtype[Any]) -> None:
        self._count, self._reads = count, reads

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

    def _read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        raise NotImplementedError


class FileColumn(_Swept):
    """A column in a file. What is read comes as `reads` (int64 for numbers), however narrow it is stored."""

    def __init__(
        self, file: _Unlinked, offset: int, count: int, stored: np.dtype[Any], reads: np.dtype[Any]
    ) -> None:
        super().__init__(count, reads)
        self._file, self._offset, self._stored = file, offset, stored

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


@dataclass(frozen=True)
class _Piece:
    """Consecutive elements: those of `values` (where it is a number, `count` times that) plus `shift`."""

    values: npt.NDArray[Any] | FileColumn | int
    count: int
    shift: int = 0

    def window(self, lo: int, hi: int) -> npt.NDArray[Any] | int:
        """Elements lo..hi-1, without the shift."""
        return self.values if isinstance(self.values, int) else self.values[lo:hi]


class Pieces(_Swept):
    """A column of pieces, some of them in memory, some in a file."""

    def __init__(self, pieces: Sequence[_Piece], reads: np.dtype[Any]) -> None:
        self._pieces = pieces
        self._first = np.cumsum([0, *(piece.count for piece in pieces)], dtype=np.int64)
        super().__init__(int(self._first[-1]), reads)

    def _read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        made = np.empty(hi - lo, self._reads)
        at = int(np.searchsorted(self._first, lo, side="right")) - 1
        while lo < hi:
            piece, start = self._pieces[at], int(self._first[at])
            stop = min(hi, start + piece.count)
            part = made[len(made) - (hi - lo) : len(made) - (hi - stop)]
            part[:] = piece.window(lo - start, stop - start)
            if piece.shift:
                part += piece.shift
            lo, at = stop, at + 1
        return made


class Growing:
    """A column whose pieces come in any order, each with a number of its own. Pieces stay in memory as long as the
    store's budget lasts; all others go to its file at once, as narrow as their values allow."""

    def __init__(self, store: Store, dtype: str = "<i8") -> None:
        self._store, self._reads = store, np.dtype(dtype)
        self._pieces: dict[int, _Piece] = {}

    def add(self, number: int, values: npt.NDArray[Any]) -> None:
        """One piece."""
        count = len(values)
        if count and values[0] == values[-1] and bool((values == values[0]).all()):
            self._pieces[number] = _Piece(int(values[0]), count)
        elif self._store.reserve(count * self._reads.itemsize):
            self._pieces[number] = _Piece(self._store.adopt(np.array(values, self._reads)), count)
        else:
            column = self._store.in_file(count, _narrowest(values), self._reads)
            column.put(0, values)
            self._pieces[number] = _Piece(column, count)

    def finish(self, numbers: Iterable[int], shifts: Iterable[int] | None = None) -> Column:
        """The column: the pieces with these numbers one after the other, to each of which its shift is added."""
        found = [self._pieces.pop(number) for number in numbers]
        if shifts is not None:
            found = [replace(piece, shift=by) for piece, by in zip(found, shifts, strict=True)]
        found = [piece for piece in found if piece.count]
        values = {piece.values + piece.shift if isinstance(piece.values, int) else None for piece in found}
        total = sum(piece.count for piece in found)
        if len(values) == 1 and (value := values.pop()) is not None:
            return Constant(value, total, self._reads)
        constants = sum(piece.count for piece in found if isinstance(piece.values, int)) * self._reads.itemsize
        if any(isinstance(piece.values, FileColumn) for piece in found) or not self._store.fits(constants):
            return Pieces(found, self._reads)
        merged = _merged(found, total, self._reads)
        self._store.held += merged.nbytes  # those of the pieces are given back by now
        return self._store.adopt(merged)


def _merged(pieces: list[_Piece], total: int, reads: np.dtype[Any]) -> npt.NDArray[Any]:
    """One array of all pieces, each of which is forgotten as soon as it is copied."""
    made, at = np.empty(total, reads), 0
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        part = made[at : at + piece.count]
        part[:] = piece.window(0, piece.count)
        if piece.shift:
            part += piece.shift
        at += piece.count
    return made


def _narrowest(values: npt.NDArray[Any]) -> np.dtype[Any]:
    """The narrowest unsigned type for the values, or their own."""
    if not len(values) or values.dtype.kind not in "iu" or int(values.min()) < 0:
        return values.dtype
    largest = int(values.max())
    return np.dtype(next((d for d, bits in (("|u1", 8), ("<u2", 16), ("<u4", 32)) if largest >> bits == 0), "<i8"))


class GrowingStrings:
    """A list of byte strings whose pieces come as those of a Growing."""

    def __init__(self, store: Store) -> None:
        self._data, self._ends = Growing(store, "|u1"), Growing(store)
        self._bytes: dict[int, int] = {}

    def add(self, number: int, strings: Ragged) -> None:
        """One piece."""
        first = strings.first
        self._bytes[number] = int(first[-1] - first[0])
        self._data.add(number, strings.data[first[0] : first[-1]])
        self._ends.add(number, first[1:] - first[0])

    def finish(self, numbers: Iterable[int]) -> Strings:
        """The pieces with these numbers, one after the other."""
        numbers = list(numbers)
        before = [0, *accumulate(self._bytes[number] for number in numbers)]
        self._ends.add(FRONT, np.zeros(1, np.int64))
        first = self._ends.finish([FRONT, *numbers], [0, *before[:-1]])
        data = self._data.finish(numbers)
        if isinstance(first, Constant):
            first = first[0 : len(first)]
        if isinstance(data, Constant):
            data = data[0 : len(data)]
        if isinstance(first, np.ndarray) and isinstance(data, np.ndarray):
            return Ragged(data, first)
        return StoredStrings(data, first)


class StoredStrings:
    """A list of byte strings, as a Ragged, of which one column at least is no array: data uint8[total], first
    int64[n+1]."""

    def __init__(self, data: Column, first: Column) -> None:
        self._data, self._first = data, first
        # strings whose bytes are read at a time
        self._step = max(1, min(1 << 16, _STRINGS * len(first) // (len(data) + 1)))

    def __len__(self) -> int:
        return len(self._first) - 1

    def __getitem__(self, i: int) -> bytes:
        return self.window(i, i + 1)[0]

    def __iter__(self) -> Iterator[bytes]:
        for lo, hi in windows(len(self), self._step):
            yield from self.window(lo, hi)

    def bytes_of(self, lo: int, hi: int) -> int:
        """Bytes of strings lo..hi-1."""
        a, b = self._first.take(np.array([lo, hi], np.int64)).tolist()
        return int(b - a)

    def whole(self) -> Ragged:
        """All, in memory."""
        return self.window(0, len(self))

    def window(self, lo: int, hi: int) -> Ragged:
        """Strings lo..hi-1."""
        first = self._first[lo : hi + 1]
        return Ragged(self._data[int(first[0]) : int(first[-1])], first - first[0])

    def lengths_of(self, ids: I64) -> I64:
        """Bytes of the strings `ids`, int64[k]."""
        made: I64 = self._first.take(ids + 1) - self._first.take(ids)
        return made

    def take(self, ids: I64) -> Ragged:
        """The strings with these numbers, in this order: one sweep over the stretch that holds them."""
        order = np.argsort(ids, kind="stable")
        ranked, done = ids[order], 0
        found = []
        while done < len(ranked):
            lo = int(ranked[done])
            until = int(np.searchsorted(ranked, lo + self._step, side="left"))
            found.append(self.window(lo, int(ranked[until - 1]) + 1).take(ranked[done:until] - lo))
            done = until
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids), dtype=np.int64)
        return Ragged.join(found).take(back)


# Bytes of strings that are read at a time
_STRINGS = 4 << 20


class Constant:
    """A column of one value."""

    def __init__(self, value: int, count: int, reads: np.dtype[Any] | None = None) -> None:
        self._value, self._count, self._reads = value, count, reads or np.dtype(np.int64)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, window: slice) -> npt.NDArray[Any]:
        lo, hi, _ = window.indices(self._count)
        return np.full(max(0, hi - lo), self._value, self._reads)

    def take(self, ids: I64) -> npt.NDArray[Any]:
        """The value, once for each of `ids`."""
        return np.full(len(ids), self._value, self._reads)


class Derived:
    """A column that is computed from others, element by element."""

    def __init__(self, function: Callable[..., npt.NDArray[Any]], *columns: Column) -> None:
        self._function, self._columns = function, columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, window: slice) -> npt.NDArray[Any]:
        return self._function(*(column[window] for column in self._columns))

    def take(self, ids: I64) -> npt.NDArray[Any]:
        """Elements `ids`."""
        return self._function(*(column.take(ids) for column in self._columns))


def recoded(column: Column, table: npt.NDArray[Any]) -> Column:
    """table[column]; an array is changed where it is."""
    if isinstance(column, np.ndarray):
        for lo, hi in windows(len(column), SWEEP):
            column[lo:hi] = table[column[lo:hi]]
        return column
    return Derived(table.__getitem__, column)


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
        self.folder = folder
        self._file: _Unlinked | None = None
        self._end = 0

    def empty(self, count: int, dtype: str = "<i8", stored: str | None = None) -> Column:
        """A column of `count` elements to be filled by `put`; `stored` is a narrower type that holds its values."""
        reads = np.dtype(dtype)
        if self.reserve(count * reads.itemsize):
            return self.adopt(np.empty(count, reads))
        return self.in_file(count, np.dtype(stored or dtype), reads)

    def growing(self, dtype: str = "<i8") -> Growing:
        """A column that is made piece by piece."""
        return Growing(self, dtype)

    def strings(self) -> GrowingStrings:
        """The same of strings."""
        return GrowingStrings(self)

    def reserve(self, count: int) -> bool:
        """Whether so many bytes are left; if so they are taken."""
        if not self.fits(count):
            return False
        self.held += count
        return True

    def fits(self, count: int) -> bool:
        """Whether so many bytes are left."""
        return self.held + count <= self.budget

    def adopt(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Give the bytes of this array, which are reserved, back when it is gone."""
        weakref.finalize(column, self._release, column.nbytes).atexit = False
        return column

    def _release(self, count: int) -> None:
        self.held -= count

    def in_file(self, count: int, stored: np.dtype[Any], reads: np.dtype[Any]) -> FileColumn:
        """A column in the file."""
        if self._file is None:
            self._file = _Unlinked(self.folder)
        column = FileColumn(self._file, self._end, count, stored, reads)
        self._end += -(-count * stored.itemsize // 4096) * 4096
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
