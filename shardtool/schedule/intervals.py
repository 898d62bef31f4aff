"""Sets of sample ids as sorted, disjoint half-open intervals, so that a union over 10^5 ranges of 10^12 ids
is arithmetic on range ends and never a list of ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """`lo` int64[k], `hi` int64[k]: sorted, disjoint, none empty, none touching the next."""

    lo: I64
    hi: I64

    @classmethod
    def union(cls, lo: I64, hi: I64) -> Intervals:
        """Union of any intervals [lo, hi), int64[m] each, in any order; empty ones are ignored."""
        keep = hi > lo
        lo, hi = lo[keep], hi[keep]
        if not len(lo):
            return cls(lo, hi)
        order = np.argsort(lo, kind="stable")
        lo, hi = lo[order], hi[order]
        reach = np.maximum.accumulate(hi)
        # a new run starts where an interval begins beyond everything before it: bool[m]
        starts = np.ones(len(lo), bool)
        starts[1:] = lo[1:] > reach[:-1]
        first = np.flatnonzero(starts)
        last = np.append(first[1:], len(lo)) - 1
        return cls(lo[first], reach[last])

    @classmethod
    def whole(cls, n: int) -> Intervals:
        """0..n-1"""
        return cls.union(np.array([0], np.int64), np.array([n], np.int64))

    def join(self, other: Intervals) -> Intervals:
        """Ids in either."""
        return Intervals.union(np.concatenate([self.lo, other.lo]), np.concatenate([self.hi, other.hi]))

    def total(self) -> int:
        """How many ids."""
        return int((self.hi - self.lo).sum())


def circular(start: I64, length: I64, n: int) -> tuple[I64, I64]:
    """Arcs of a circle of n ids as intervals: start int64[k] in [0, n), length int64[k] >= 0 (at most n
    counts).

    Returns lo, hi int64[2k]; an arc that does not pass the end leaves an empty second interval.
    """
    end = start + np.minimum(length, n)
    return (
        np.concatenate([start, np.zeros_like(start)]),
        np.concatenate([np.minimum(end, n), np.maximum(end - n, 0)]),
    )
