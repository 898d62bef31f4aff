"""Which ids every lane delivers in one epoch, made lane by lane when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .world import World

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """What one lane or one rank delivers in an epoch.

    ids      int64[k]   in delivery order
    padding  bool[k]    copies that only fill a batch
    batches  int64[b]   samples of every batch, zeros included; their sum is k
    """

    ids: I64
    padding: Mask
    batches: I64

    @classmethod
    def of(
        cls, ids: I64, batch_size: int, *, drop_last: bool = False, padding: Mask | None = None
    ) -> Reading:
        """Ids cut into batches of `batch_size`, the last one short, or dropped when short."""
        whole, rest = divmod(len(ids), batch_size)
        if drop_last:
            ids, rest = ids[: whole * batch_size], 0
        sizes = np.full(whole + (rest > 0), batch_size, np.int64)
        if rest:
            sizes[-1] = rest
        if padding is None:
            padding = np.zeros(len(ids), bool)
        return cls(ids, padding[: len(ids)], sizes)

    def batch(self, j: int) -> I64:
        """Ids of batch j."""
        start = int(self.batches[:j].sum())
        return self.ids[start : start + int(self.batches[j])]


@dataclass(frozen=True)
class Schedule:
    """One epoch of a world.

    lane            (rank, worker) -> what that lane delivers; made when asked for, nothing is kept
    opaque          the loader's own order cannot be known from outside; ids are positions in that order
    lanes_per_rank  lanes that divide a rank's data; None: as many as the world says
    rank_reading    of map-style loaders: batches are made per rank and only then dealt to its workers
    """

    world: World
    lane: Callable[[int, int], Reading]
    opaque: bool = False
    lanes_per_rank: int | None = None
    rank_reading: Callable[[int], Reading] | None = None

    def rank(self, rank: int) -> Reading:
        """A rank's reading: batches of its workers in turn, as torch's DataLoader hands them out; a worker
        that has no batch left is passed over."""
        if self.rank_reading is not None:
            return self.rank_reading(rank)
        lanes = self.lanes_per_rank or self.world.lanes_per_rank
        parts = [self.lane(rank, worker) for worker in range(lanes)]
        return parts[0] if len(parts) == 1 else interleave(parts)


def interleave(parts: list[Reading]) -> Reading:
    """Batch 0 of every part, then batch 1 of every part that has one, and so on."""
    turn = np.concatenate([np.arange(len(p.batches)) for p in parts])
    part = np.concatenate([np.full(len(p.batches), i) for i, p in enumerate(parts)])
    sizes = np.concatenate([p.batches for p in parts])
    start = np.cumsum(sizes) - sizes  # of every batch in the parts laid end to end
    order = np.lexsort((part, turn))
    taken, begin = sizes[order], start[order]
    at = np.arange(int(taken.sum()), dtype=np.int64)
    at += np.repeat(begin - (np.cumsum(taken) - taken), taken)
    ids = np.concatenate([p.ids for p in parts])
    padding = np.concatenate([p.padding for p in parts])
    return Reading(ids[at], padding[at], taken)


def ranges(starts: I64, ends: I64) -> I64:
    """Ids of several ranges, one after the other."""
    lengths = np.maximum(ends - starts, 0)
    at = np.arange(int(lengths.sum()), dtype=np.int64)
    at += np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return at
