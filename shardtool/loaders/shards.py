"""What the loaders that deal out whole shards have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..schedule.elastic import next_multiple
from ..schedule.schedule import ranges

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dealt:
    """Shards dealt to piles, and the pile that every lane reads (several lanes may read one pile).

    shard_samples int64[s] · pile_of_shard int64[s], -1: nobody's · piles · pile_of_lane int64[rank, lane]
    """

    shard_samples: I64
    pile_of_shard: I64
    piles: int
    pile_of_lane: I64

    @cached_property
    def pile_samples(self) -> I64:
        """Samples of every pile, int64[piles]."""
        sizes = np.zeros(self.piles, np.int64)
        taken = self.pile_of_shard >= 0
        # not bincount: its weights are float64, and sums above 2^53 must stay whole
        np.add.at(sizes, self.pile_of_shard[taken], self.shard_samples[taken])
        return sizes

    def leading(self) -> tuple[I64, I64]:
        """First id, and number of the first shard with samples, of every lane, int64[rank, lane]; -1:
        none."""
        lead = np.full(self.piles, -1, np.int64)
        full = np.flatnonzero((self.pile_of_shard >= 0) & (self.shard_samples > 0))[::-1]
        lead[self.pile_of_shard[full]] = full  # the last write wins: the first shard
        first = np.where(lead >= 0, shard_first(self.shard_samples)[lead], -1)
        return first[self.pile_of_lane], lead[self.pile_of_lane]

    def ids(self, rank: int, worker: int) -> I64:
        """Ids of a lane's shards, in the order of their numbers."""
        first = shard_first(self.shard_samples)
        mine = np.flatnonzero(self.pile_of_shard == self.pile_of_lane[rank, worker])
        return ranges(first[mine], first[mine + 1])


def shard_first(shard_samples: I64) -> I64:
    """First id of every shard, and n at the end: int64[s+1]."""
    first = np.zeros(len(shard_samples) + 1, np.int64)
    np.cumsum(shard_samples, out=first[1:])
    return first


def more_shards(shards: int, lanes: int) -> str:
    """How many shards feed every lane alike."""
    return f"{next_multiple(shards, lanes):,} shards of equal size (a multiple of {lanes:,} ranks x workers)"
