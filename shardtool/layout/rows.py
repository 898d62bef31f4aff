"""Rows: what an index file says of some samples, for samples in any order, in memory and as bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged
from .index import I64, Index
from .keys import NONE, OutputKeys


@dataclass(frozen=True)
class Rows:
    """k samples.

    ids     int64[k], numbers in source order
    length  int64[k], bytes of the frames in the output
    label   int32[k] or None
    keys    their output keys, or None
    begin   int64[k+1], parts of sample i are begin[i]:begin[i+1]; None where a sample has one part without a field
    ext     uint32[q], field of every part
    size    int64[q], payload bytes of every part
    """

    ids: I64
    length: I64
    label: npt.NDArray[np.int32] | None = None
    keys: Ragged | None = None
    begin: I64 | None = None
    ext: npt.NDArray[np.uint32] | None = None
    size: I64 | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def parts(self) -> int:
        """q, or 0"""
        return 0 if self.ext is None else len(self.ext)

    @property
    def key_bytes(self) -> int:
        """Of all keys together."""
        return 0 if self.keys is None else int(self.keys.first[-1] - self.keys.first[0])

    def take(self, order: I64) -> Rows:
        """These rows in another order, or some of them."""
        made = Rows(
            self.ids.take(order), self.length.take(order),
            None if self.label is None else self.label.take(order),
            None if self.keys is None else self.keys.take(order),
        )  # fmt: skip
        if self.begin is None or self.ext is None or self.size is None:
            return made
        start = self.begin.take(order)
        count = self.begin.take(order + 1) - start
        begin = np.zeros(len(order) + 1, np.int64)
        np.cumsum(count, out=begin[1:])
        # number of every part: first part of its sample + its place in the sample
        at = np.arange(begin[-1], dtype=np.int64) + np.repeat(start - begin[:-1], count)
        return replace(made, begin=begin, ext=self.ext.take(at), size=self.size.take(at))

    def slice(self, lo: int, hi: int) -> Rows:
        """Rows lo..hi-1."""
        made = Rows(
            self.ids[lo:hi], self.length[lo:hi],
            None if self.label is None else self.label[lo:hi],
            None if self.keys is None else Ragged(self.keys.data, self.keys.first[lo : hi + 1]),
        )  # fmt: skip
        if self.begin is None or self.ext is None or self.size is None:
            return made
        a, b = int(self.begin[lo]), int(self.begin[hi])
        return replace(made, begin=self.begin[lo : hi + 1] - a, ext=self.ext[a:b], size=self.size[a:b])

    def pack(self) -> bytes:
        """As bytes; `unpack` needs a Rows of the same shape (labels or not, ...) to read them."""
        head = np.array([len(self), self.parts, self.key_bytes], "<i8")
        pieces = [head.tobytes(), self.ids.astype("<i8").tobytes(), self.length.astype("<i8").tobytes()]
        if self.label is not None:
            pieces.append(self.label.astype("<i4").tobytes())
        if self.keys is not None:
            first = self.keys.first
            pieces += [self.keys.lengths().astype("<i4").tobytes(), self.keys.data[first[0] : first[-1]].tobytes()]
        if self.begin is not None and self.ext is not None and self.size is not None:
            pieces.append(np.diff(self.begin).astype("<i4").tobytes())
            pieces += [self.ext.astype("<u4").tobytes(), self.size.astype("<i8").tobytes()]
        return b"".join(pieces)

    @classmethod
    def unpack(cls, data: memoryview | bytes, *, label: bool, keys: bool, parts: bool) -> Rows:
        """The reverse of `pack`."""
        count, part_count, key_bytes = np.frombuffer(data, "<i8", 3).tolist()
        at = 24

        def column(dtype: str, items: int) -> npt.NDArray[np.generic]:
            nonlocal at
            values = np.frombuffer(data, dtype, items, at)
            at += values.nbytes
            return values

        ids, length = column("<i8", count).astype(np.int64), column("<i8", count).astype(np.int64)
        made = cls(ids, length, column("<i4", count).astype(np.int32) if label else None)
        if keys:
            first = np.zeros(count + 1, np.int64)
            np.cumsum(column("<i4", count), out=first[1:])
            made = replace(made, keys=Ragged(column("|u1", key_bytes).astype(np.uint8), first))
        if parts:
            begin = np.zeros(count + 1, np.int64)
            np.cumsum(column("<i4", count), out=begin[1:])
            ext, size = column("<u4", part_count).astype(np.uint32), column("<i8", part_count).astype(np.int64)
            made = replace(made, begin=begin, ext=ext, size=size)
        return made

    @classmethod
    def join(cls, pieces: list[Rows]) -> Rows:
        """One after the other; all of one shape, at least one."""
        one = pieces[0]
        made = cls(
            np.concatenate([p.ids for p in pieces]), np.concatenate([p.length for p in pieces]),
            None if one.label is None else np.concatenate([p.label for p in pieces if p.label is not None]),
            None if one.keys is None else Ragged.join(p.keys for p in pieces if p.keys is not None),
        )  # fmt: skip
        if one.begin is None:
            return made
        counts = [np.diff(p.begin) for p in pieces if p.begin is not None]
        begin = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
        ext = np.concatenate([p.ext for p in pieces if p.ext is not None])
        return replace(made, begin=begin, ext=ext, size=np.concatenate([p.size for p in pieces if p.size is not None]))


def rows_of(index: Index, keys: OutputKeys, ids: I64, length: I64) -> Rows:
    """Rows of the samples `ids`, whose frames have `length` bytes."""
    label = None if index.label is None else index.label.take(ids).astype(np.int32)
    made = Rows(ids, length, label, None if keys.mode == NONE or index.records else keys.take(ids))
    if index.ext is None or index.records:
        return made
    parts, begin = index.parts_of(ids)
    ext = index.ext.take(parts).astype(np.uint32)
    return replace(made, begin=begin, ext=ext, size=index.size.take(parts).astype(np.int64))
