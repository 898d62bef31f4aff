"""webdataset 1.0: whole shards to ranks, then to workers, both by striding over the list.

Read from `webdataset/shardlists.py` (`split_by_node`, `split_by_worker`, `single_node_only`,
`ResampledShards`), `webdataset/compat.py` (`WebDataset`) and `webdataset/pipeline.py` (`with_epoch`). Rank r
of W takes shards r, r+W, ...; worker w of k takes the w-th, (w+k)-th, ... of those. The shard shuffle comes
after both, so it changes the order only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..schedule.counts import Counts, count_iterable
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total
from .shards import Dealt, more_shards

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WebDataset(Loader):
    """Flags of WebDataset; `with_epoch` is the method, per worker; `drop_last` the DataLoader's.

    nodesplitter defaults to split_by_node here: the class's own default, single_node_only, raises as soon as
    there is more than one rank.
    """

    name: ClassVar[str] = "webdataset"
    shuffles: ClassVar[str | None] = "webdataset"
    release: ClassVar[str] = "webdataset 1.0.2"
    unit: ClassVar[str] = "shards"

    nodesplitter: Literal["split_by_node", "single_node_only", "none"] = "split_by_node"
    workersplitter: Literal["split_by_worker", "none"] = "split_by_worker"
    resampled: bool = False
    shardshuffle: int = 0
    detshuffle: bool = False
    empty_check: bool = True
    with_epoch: int | None = None
    drop_last: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        if self.nodesplitter == "single_node_only" and world.ranks > 1:
            self.refuse(
                "you need to add an explicit nodesplitter to your input pipeline for multi-node training",
                "give --nodesplitter split_by_node",
            )
        if self.resampled and self.with_epoch is None:
            self.refuse(
                "resampled shards never end, so there is no epoch to plan",
                f"give --with-epoch {max(1, total(shard_samples) // world.lanes)} (samples of a worker)",
            )
        if self.with_epoch is not None and self.with_epoch < 1:
            self.refuse("with_epoch must be positive", "give --with-epoch 1 or more")
        if self.shardshuffle < 0:
            self.refuse("shardshuffle is a number of shards", "give --shardshuffle 0 or more")

    def _dealt(self, shard_samples: I64, world: World) -> Dealt:
        """Which lane reads which shards."""
        ranks = world.ranks if self.nodesplitter == "split_by_node" else 1
        lanes = world.lanes_per_rank if self.workersplitter == "split_by_worker" else 1
        number = np.arange(len(shard_samples), dtype=np.int64)
        rank = np.arange(world.ranks, dtype=np.int64)[:, None] % ranks
        worker = np.arange(world.lanes_per_rank, dtype=np.int64)[None, :] % lanes
        return Dealt(
            shard_samples,
            number % ranks * lanes + number // ranks % lanes,
            ranks * lanes,
            rank * lanes + worker,
        )

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        dealt, size = self._dealt(shard_samples, world), world.batch_size
        held = dealt.pile_samples
        # with_epoch takes that many samples of a worker's pipeline, going round it when it is shorter
        kept = held if self.with_epoch is None else np.where(held > 0, self.with_epoch, 0)
        first, shard = dealt.leading()
        whole = kept // size * size if self.drop_last else kept
        seen = int(np.minimum(whole, held).sum())
        # every epoch begins with the first shard again, in the same order unless detshuffle
        moves = self.shardshuffle > 0 and self.detshuffle and seen < int(held.sum())
        found = count_iterable(
            kept[dealt.pile_of_lane], world, epochs, drop_last=self.drop_last, first=first, shard=shard,
            distinct=seen, distinct_ever=None if moves and epochs > 1 else seen,
        )  # fmt: skip
        return self._drawn(found, shard_samples, epochs) if self.resampled else found

    def _drawn(self, found: Counts, shard_samples: I64, epochs: int) -> Counts:
        """Shards drawn with replacement: of s shards, d draws miss one with probability (1 - 1/s)^d."""
        n, shards = total(shard_samples), len(shard_samples)
        # every worker draws, whether a shard is dealt to it or not
        each = int(found.samples[0].max(initial=0))
        lanes = found.samples.shape[1] * found.samples.shape[2]
        drawn = each * lanes
        draws = drawn * shards / max(n, 1)

        def seen(times: float, most: int) -> int:
            return int(min(round(n * (1 - (1 - 1 / shards) ** times)), n, most))

        def alike(array: I64) -> I64:
            return np.broadcast_to(array[0].max(), array.shape)

        none = np.full(found.shard.shape, -1, np.int64)
        return replace(
            found, samples=alike(found.samples), batches=alike(found.batches), dropped=alike(found.dropped),
            shard=none, first=none, distinct=np.full(epochs, seen(draws, drawn), np.int64),
            distinct_ever=seen(draws * epochs, drawn * epochs), expected=True,
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        if self.resampled:
            self.refuse(
                "the shards of a resampled pipeline are drawn from the system's entropy, so its ids are "
                "unknown",
                "leave out --ids",
            )
        dealt, limit = self._dealt(shard_samples, world), self.with_epoch

        def lane(rank: int, worker: int) -> Reading:
            ids = dealt.ids(rank, worker)
            if limit is not None and len(ids):
                ids = ids[np.arange(limit) % len(ids)]
            return Reading.of(ids, world.batch_size, drop_last=self.drop_last)

        return Schedule(world, lane, self.shardshuffle > 0)

    def buffered(self) -> tuple[int, int]:
        return 1000, 100  # shuffle(1000, initial=100)

    def read_factor(self, shard_samples: I64, world: World) -> int:
        return world.lanes // self._dealt(shard_samples[:1], world).piles

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        found = []
        held = self._dealt(shard_samples, world).pile_samples
        if self.resampled:
            return ["shards are drawn with replacement: the numbers of different samples are expectations"]
        if self.empty_check and not held.all():
            found.append(
                "a worker without shards raises ValueError 'No samples found in dataset; perhaps you have "
                "fewer "
                "shards than workers' (--no-empty-check: it stays silent)"
            )
        if self.shardshuffle and not self.detshuffle:
            found.append(
                "shardshuffle is seeded anew at every iteration: the same shard order in every epoch; only "
                "detshuffle changes it"
            )
        if self.with_epoch is not None and int((held > self.with_epoch).sum()):
            found.append(
                "with_epoch cuts the pipeline off and every epoch begins at its start again: what lies "
                "behind the "
                "cut is never read" + (" in that epoch" if self.shardshuffle and self.detshuffle else "")
            )
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        ways = []
        if found & {"hang", "uneven", "empty"}:
            ways.append(more_shards(len(shard_samples), world.lanes))
            if not self.resampled:
                each = max(1, total(shard_samples) // world.lanes)
                ways.append(
                    f"--resampled --with-epoch {each}: every worker the same number, drawn with replacement"
                )
        if "repeated" in found and self.nodesplitter == "none" and world.ranks > 1:
            ways.append("--nodesplitter split_by_node")
        return ways
