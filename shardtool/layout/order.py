"""The Order: which sample stands at which output position.

`splitmix64-sort/1`: samples by ascending `sort_key(seed, i)`, a bijection of i, so there are no ties. It can be
asked whole, or by windows of positions, or for one sample, always with the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.seeds import sort_key, sort_keys

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

SHUFFLE = "splitmix64-sort/1"
SOURCE = "source"

# Samples hashed at a time: 32,768 keys of 8 bytes stay in the second-level cache.
BLOCK = 1 << 15


@dataclass(frozen=True)
class Order:
    """Order of n samples; kind is SHUFFLE or SOURCE (position j holds sample j)."""

    samples: int
    seed: int = 0
    kind: str = SHUFFLE

    def whole(self) -> I64:
        """int64[n]: the sample at every output position."""
        if self.kind == SOURCE:
            return np.arange(self.samples, dtype=np.int64)
        bits = _index_bits(self.samples)
        packed = np.empty(self.samples, np.uint64)
        for lo in range(0, self.samples, BLOCK):
            hi = min(lo + BLOCK, self.samples)
            packed[lo:hi] = _pack(sort_keys(self.seed, lo, hi), lo, hi, bits)
        return self._unpack(packed, bits)

    def window(self, lo: int, hi: int) -> I64:
        """int64[hi-lo]: the samples at output positions lo..hi-1, in memory proportional to the window.

        Keys are hashed twice: once to count them by their upper bits, once to keep those of the cells that hold
        the window.
        """
        if not 0 <= lo <= hi <= self.samples:
            raise ValueError(f"window {lo}..{hi} of {self.samples} positions")
        if self.kind == SOURCE or lo == hi:
            return np.arange(lo, hi, dtype=np.int64)
        return self._select(self._cells(), lo, hi)

    def pieces(self, step: int) -> Iterator[I64]:
        """The whole order, `step` positions at a time, in memory proportional to that."""
        if self.kind == SOURCE or step >= self.samples:
            for lo in range(0, self.samples, step):
                yield self.window(lo, min(lo + step, self.samples)) if step < self.samples else self.whole()
            return
        cells = self._cells()
        for lo in range(0, self.samples, step):
            yield self._select(cells, lo, min(lo + step, self.samples))

    def position(self, i: int) -> int:
        """Output position of sample i: how many keys are smaller. Time O(n), memory O(1)."""
        if self.kind == SOURCE:
            return i
        mine = np.uint64(sort_key(self.seed, i))
        count = 0
        for lo in range(0, self.samples, BLOCK):
            keys = sort_keys(self.seed, lo, min(lo + BLOCK, self.samples))
            count += int(np.count_nonzero(keys < mine))
        return count

    def _cells(self) -> I64:
        """int64[2**b + 1]: how many keys lie below each multiple of 2**(64-b)."""
        bits = min(16, max(1, self.samples.bit_length() - 4))
        count = np.zeros((1 << bits) + 1, np.int64)
        for lo in range(0, self.samples, BLOCK):
            keys = sort_keys(self.seed, lo, min(lo + BLOCK, self.samples))
            count[1:] += np.bincount((keys >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits)
        return np.cumsum(count)

    def _select(self, below: I64, lo: int, hi: int) -> I64:
        cell_bits = (len(below) - 1).bit_length() - 1
        shift = np.uint64(64 - cell_bits)
        first = int(np.searchsorted(below, lo, side="right")) - 1
        last = int(np.searchsorted(below, hi, side="left"))  # cells first..last-1 hold the window
        bits = _index_bits(self.samples)
        kept = []
        for a in range(0, self.samples, BLOCK):
            b = min(a + BLOCK, self.samples)
            keys = sort_keys(self.seed, a, b)
            cell = keys >> shift
            inside = (cell >= np.uint64(first)) & (cell < np.uint64(last))
            kept.append(_pack(keys, a, b, bits)[inside])
        ids = self._unpack(np.concatenate(kept), bits)
        start = lo - int(below[first])
        return ids[start : start + hi - lo]

    def _unpack(self, packed: U64, bits: int) -> I64:
        """Sort (upper key bits | sample number) and keep the number.

        Sorting one word a sample beats an argsort of the keys several times over. Where two keys agree in the
        upper bits the packed order is by number and may be wrong: such runs are ordered again by the full key.
        """
        packed.sort()
        equal = _equal_above(packed, bits)
        packed &= np.uint64((1 << bits) - 1)
        ids = packed.view(np.int64)
        if len(equal):
            breaks = np.flatnonzero(np.diff(equal) > 1) + 1
            for run in np.split(equal, breaks):
                a, b = int(run[0]), int(run[-1]) + 2
                ids[a:b] = sorted(ids[a:b].tolist(), key=lambda i: sort_key(self.seed, i))
        return ids


def _equal_above(packed: U64, bits: int) -> I64:
    """Places whose upper bits are those of the next place too; by blocks, for fresh memory is dear."""
    found = [np.zeros(0, np.int64)]
    for lo in range(0, len(packed) - 1, BLOCK):
        some = packed[lo : lo + BLOCK + 1]
        found.append(np.flatnonzero((some[1:] ^ some[:-1]) >> np.uint64(bits) == 0) + lo)
    return np.concatenate(found)


def _index_bits(samples: int) -> int:
    return max(1, (samples - 1).bit_length())


def _pack(keys: U64, lo: int, hi: int, bits: int) -> U64:
    keys = keys & np.uint64(~((1 << bits) - 1) & (1 << 64) - 1)
    keys |= np.arange(lo, hi, dtype=np.uint64)
    return keys
