"""A list of byte strings held in two arrays, because a Python list of 10^8 `bytes` costs 6 GB before the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Ragged:
    """`data` uint8[total], `first` int64[n+1]: string i is data[first[i]:first[i+1]]."""

    data: npt.NDArray[np.uint8]
    first: npt.NDArray[np.int64]

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> Ragged:
        """From any iterable of bytes."""
        items = list(strings)
        first = np.zeros(len(items) + 1, np.int64)
        np.cumsum(np.fromiter((len(s) for s in items), np.int64, len(items)), out=first[1:])
        return cls(np.frombuffer(b"".join(items), np.uint8), first)

    @classmethod
    def join(cls, parts: Iterable[Ragged]) -> Ragged:
        """One after the other."""
        pieces = list(parts)
        lengths = [np.diff(p.first) for p in pieces]
        total = np.concatenate([np.zeros(0, np.int64), *lengths])
        first = np.zeros(len(total) + 1, np.int64)
        np.cumsum(total, out=first[1:])
        data = [p.data[p.first[0] : p.first[-1]] for p in pieces]
        return cls(np.concatenate([np.zeros(0, np.uint8), *data]), first)

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, i: int) -> bytes:
        return self.data[self.first[i] : self.first[i + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        blob, first = self.data.tobytes(), self.first.tolist()
        for a, b in pairwise(first):
            yield blob[a:b]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Length of every string, int64[n]."""
        return np.diff(self.first)

    def bytes_of(self, lo: int, hi: int) -> int:
        """Bytes of strings lo..hi-1."""
        return int(self.first[hi] - self.first[lo])

    def whole(self) -> Ragged:
        """This: what is kept elsewhere answers with a copy in memory."""
        return self

    def lengths_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Length of the strings with these numbers, int64[k]."""
        return self.first[ids + 1] - self.first[ids]

    def window(self, lo: int, hi: int) -> Ragged:
        """Strings lo..hi-1; `first` begins with 0."""
        first = self.first[lo : hi + 1]
        return Ragged(self.data[first[0] : first[-1]], first - first[0])

    def take(self, ids: npt.NDArray[np.int64]) -> Ragged:
        """The strings with these numbers, in this order."""
        lengths = self.first[ids + 1] - self.first[ids]
        first = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(lengths, out=first[1:])
        if same := _same(lengths):
            # as items of one length, of which there is one at every byte
            items = np.ndarray(len(self.data) - same + 1, np.dtype((np.void, same)), self.data, strides=(1,))
            return Ragged(items[self.first[ids]].view(np.uint8), first)
        # index of every byte: start of its string in the source + its place in the string
        at = np.arange(first[-1], dtype=np.int64) + np.repeat(self.first[ids] - first[:-1], lengths)
        return Ragged(self.data[at], first)

    @classmethod
    def glue(cls, *columns: Ragged) -> Ragged:
        """Row by row: string i of the result is string i of every column, one after the other."""
        lengths = [column.lengths() for column in columns]
        first = np.zeros(len(columns[0]) + 1, np.int64)
        np.cumsum(sum(lengths[1:], lengths[0]), out=first[1:])
        data = np.empty(first[-1], np.uint8)
        widths = [_same(length) for length in lengths]
        if all(widths):
            rows, left = data.reshape(-1, sum(widths)), 0
            for column, width in zip(columns, widths, strict=True):
                rows[:, left : left + width] = column.data[column.first[0] : column.first[-1]].reshape(-1, width)
                left += width
            return cls(data, first)
        start = first[:-1].copy()
        for column, length in zip(columns, lengths, strict=True):
            # where every byte of the column goes: start of its piece + its place in the piece
            at = np.arange(length.sum(), dtype=np.int64)
            at += np.repeat(start - (column.first[:-1] - column.first[0]), length)
            data[at] = column.data[column.first[0] : column.first[-1]]
            start += length
        return cls(data, first)

    @classmethod
    def repeat(cls, string: bytes, count: int) -> Ragged:
        """The same string `count` times."""
        data = np.tile(np.frombuffer(string, np.uint8), count)
        return cls(data, np.arange(count + 1, dtype=np.int64) * len(string))


def _same(lengths: npt.NDArray[np.int64]) -> int:
    """The length that all strings have; 0 when they differ, are empty, or are none."""
    longest = int(lengths.max(initial=0))
    return longest if longest and int(lengths.min()) == longest else 0
