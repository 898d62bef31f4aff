"""Buckets: ranges of output positions whose frames fit in memory together. Pure.

A bucket lies in one shard. Which bucket a sample belongs to follows from its sort key alone: bucket b holds the keys
from `edges[b]` on, up to the next edge. So a pass over the sources in their order needs no column of n positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..base.seeds import sort_key
from .checks import sort_keys_of
from .index import I64
from .layout import Layout
from .order import SOURCE

# An extent shorter than this is read at random for the most part: one more pass is cheaper.
LEAST_EXTENT = 32 << 10


def buckets_at_once(buckets: int, budget: int) -> int:
    """How many buckets the first pass must treat as one, so that no extent is shorter than LEAST_EXTENT; 1: none, and
    two passes are enough. Three reach budget^3 / LEAST_EXTENT^2 bytes: 260 TB with 64 MiB. More are not made."""
    return max(1, -(-buckets // max(1, budget // LEAST_EXTENT)))


@dataclass(frozen=True)
class Buckets:
    """B buckets.

    cuts         int64[B+1]: bucket b holds output positions cuts[b]..cuts[b+1]-1
    edges        uint64[B]: smallest sort key of each bucket; for source order its smallest sample number
    shard_first  int64[N+1]: buckets of shard k are shard_first[k]:shard_first[k+1]
    """

    cuts: I64
    edges: npt.NDArray[np.uint64]
    shard_first: I64
    seed: int
    shuffled: bool

    def __len__(self) -> int:
        return len(self.edges)

    def grouped(self, group: int) -> Buckets:
        """Wide buckets: `group` of these together each, over the bounds of shards too."""
        if group == 1:
            return self
        cuts = np.append(self.cuts[:-1:group], self.cuts[-1])
        return replace(self, cuts=cuts, edges=self.edges[::group], shard_first=self.shard_first // group)

    def of(self, ids: I64) -> I64:
        """Bucket of every sample, int64[k]."""
        keys = self.rank_keys(ids)
        return np.searchsorted(self.edges, keys, side="right").astype(np.int64) - 1

    def rank_keys(self, ids: I64) -> npt.NDArray[np.uint64]:
        """What samples are sorted by, uint64[k]."""
        return sort_keys_of(self.seed, ids) if self.shuffled else ids.astype(np.uint64)


def plan_buckets(layout: Layout, most: int) -> Buckets:
    """Buckets of at most `most` bytes of frames (a single larger frame has one to itself)."""
    cuts, shard_first = [0], [0]
    for shard in range(layout.shards):
        stop = int(layout.cuts[shard + 1])
        while cuts[-1] < stop:
            cuts.append(layout.cut_by_bytes(cuts[-1], most))
        shard_first.append(len(cuts) - 1)
    order = layout.order
    shuffled = order.kind != SOURCE
    starts = [int(layout.ids[cut : cut + 1][0]) for cut in cuts[:-1]]
    edges = np.array([sort_key(order.seed, i) if shuffled else i for i in starts], np.uint64)
    edges[0] = 0  # keys below the first sample's do not exist; 0 spares the search a special case
    return Buckets(np.array(cuts, np.int64), edges, np.array(shard_first, np.int64), order.seed, shuffled)
