"""The order in which an epoch's splits deliver: a formula, so any row of it can be asked for at any time.

    'global'  place p of the epoch is sample permute(p): an exact full shuffle, read at random places
    'shards'  the shards in an order of this epoch, end to end; every split is a stretch of that stream, read window
              after window, and delivers each window in random order
    'none'    stored order

Keys come from named streams of the seed: no epoch is the shifted order of another seed's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..base.seeds import GOLDEN, mix64_inplace, named_stream, sort_keys
from .feistel import permute
from .splits import Splits

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ShuffleBy = Literal["shards", "global", "none"]
SHUFFLES_BY = ("shards", "global", "none")


def window_rows(buffer: int, share: int) -> int:
    """Rows of a window: `buffer` rounded up to whole shares of a step, so that no step needs two windows."""
    return -(-buffer // share) * share


@dataclass(frozen=True)
class EpochOrder:
    """One epoch. shard_samples int64[s]; buffer: samples of a window."""

    shard_samples: I64
    splits: Splits
    shuffle: ShuffleBy
    buffer: int
    seed: int
    epoch: int
    _first: I64 = field(init=False, repr=False)
    _ends: I64 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        stored = np.cumsum(self.shard_samples) - self.shard_samples
        order = np.arange(len(self.shard_samples), dtype=np.int64)
        if self.shuffle == "shards":
            order = np.argsort(sort_keys(named_stream(self.seed, "shard order", self.epoch), 0, len(order)))
        object.__setattr__(self, "_first", stored[order])  # int64[s]: first sample of the shard read i-th
        object.__setattr__(self, "_ends", np.cumsum(self.shard_samples[order]))

    @property
    def window(self) -> int:
        """Rows of a window of a split."""
        return window_rows(self.buffer, self.splits.share)

    def ids(self, split: I64, row: I64) -> tuple[I64, Mask]:
        """(stored number of the sample, whether it is a copy) of rows of splits, int64[k] and bool[k]."""
        real = self.splits.real_rows(split)
        copy = row >= real
        row = np.where(copy, 0, row)
        if self.shuffle == "shards":
            row = self._in_window(split, row, real)
        place = self.splits.start(split) + row
        empty = real == 0  # a split without a row of its own copies one of the epoch's
        if empty.any():
            place = np.where(empty, split % self.splits.samples, place)
        return self._at(place), copy

    def _in_window(self, split: I64, row: I64, rows: I64) -> I64:
        window = self.window
        number = row // window
        first = number * window
        size = np.maximum(np.minimum(window, rows - first), 1)
        key = (split + 1).astype(np.uint64) * np.uint64(GOLDEN)
        key += np.uint64(named_stream(self.seed, "windows", self.epoch))
        mix64_inplace(key)
        key += (number + 1).astype(np.uint64) * np.uint64(GOLDEN)
        return first + permute(row - first, size, mix64_inplace(key))

    def _at(self, place: I64) -> I64:
        """Sample at every place of the epoch."""
        if self.shuffle == "global":
            return permute(place, self.splits.samples, named_stream(self.seed, "samples", self.epoch))
        if self.shuffle == "none":
            return place
        shard = np.searchsorted(self._ends, place, side="right")
        begin = self._ends[shard] - self.shard_samples_of(shard)
        return self._first[shard] + place - begin

    def shard_samples_of(self, turn: I64) -> I64:
        """Samples of the shards that are read turn-th."""
        before = np.where(turn > 0, self._ends[turn - 1], 0)
        sizes: I64 = self._ends[turn] - before
        return sizes
