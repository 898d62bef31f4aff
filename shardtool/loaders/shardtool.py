"""Our own PyTorch loader, `shardtool.torch.ShardDataset`: the partition and the order that it reads by.

Not a model of it: `shardtool.torch` imports this arithmetic (`schedule.splits`, `schedule.epoch_order`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..base.errors import UsageError
from ..schedule.counts import Counts, every_epoch
from ..schedule.epoch_order import EpochOrder, ShuffleBy
from ..schedule.schedule import Reading, Schedule
from ..schedule.splits import Policy, Splits, nearest
from ..schedule.world import World
from .base import Loader, total

I64 = npt.NDArray[np.int64]
BUFFER = 1000


def splits_of(
    samples: int, ranks: int, lanes_per_rank: int, *, global_batch: int, num_splits: int | None,
    turns: int | None, policy: Policy,
) -> Splits:  # fmt: skip
    """The splits of a world. Without num_splits every lane has one of its own; with it, turns is 1 by default.

    Raises UsageError for numbers that do not go together.
    """
    if num_splits is None:
        turns = lanes_per_rank if turns is None else turns
        count = ranks * turns
    else:
        turns = 1 if turns is None else turns
        count = num_splits
    splits = Splits(samples, count, turns, global_batch, policy)
    splits.check_world(ranks)
    return splits


@dataclass(frozen=True)
class ShardTool(Loader):
    """Arguments of ShardDataset.

    policy             what becomes of samples that do not divide: see schedule.splits
    shuffle_by         order of the epoch: see schedule.epoch_order
    window             `buffer` of ShardDataset: samples that a split reads and shuffles at a time
    num_splits, turns  fixed splits; None: one a lane
    global_batch_size  samples of a step of all ranks, instead of batch_size
    """

    name: ClassVar[str] = "shardtool"
    shuffles: ClassVar[str | None] = "shardtool"
    release: ClassVar[str] = "torch 2.13.0"
    unit: ClassVar[str] = "splits"
    resumes_exactly: ClassVar[bool] = True

    policy: Policy = "exact"
    shuffle_by: ShuffleBy = "shards"
    window: int = BUFFER
    num_splits: int | None = None
    turns: int | None = None
    global_batch_size: int | None = None

    def splits(self, shard_samples: I64, world: World) -> Splits:
        """The splits in this world; raises UsageError."""
        if self.window < 1:
            raise UsageError(f"window must be at least 1, not {self.window}", remedy="give --window 1 or more")
        batch = self.global_batch(world)
        if batch % world.ranks:
            raise UsageError(
                f"a global batch of {batch:,} samples cannot be dealt to {world.ranks:,} ranks",
                remedy=f"give --global-batch-size {nearest(batch, world.ranks)}",
            )
        return splits_of(
            total(shard_samples), world.ranks, world.lanes_per_rank, global_batch=batch,
            num_splits=self.num_splits, turns=self.turns, policy=self.policy,
        )  # fmt: skip

    def order(self, shard_samples: I64, world: World, epoch: int, seed: int) -> EpochOrder:
        """The order of an epoch; raises UsageError."""
        splits = self.splits(shard_samples, world)
        return EpochOrder(shard_samples, splits, self.shuffle_by, self.window, seed, epoch)

    def check(self, shard_samples: I64, world: World) -> None:
        self.splits(shard_samples, world)

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        splits = self.splits(shard_samples, world)
        n, ranks, lanes = splits.samples, world.ranks, world.lanes_per_rank
        rank = np.arange(ranks, dtype=np.int64)
        ends, copies = splits.last_turn(rank, ranks)  # [rank, turn]
        whole = splits.whole_turns * splits.turns
        samples, batches, padding = (np.zeros((ranks, lanes), np.int64) for _ in range(3))
        full = np.array([len(range(w, whole, lanes)) for w in range(lanes)], np.int64)
        samples += full * (splits.global_batch // ranks)
        batches += full
        for phase in range(splits.turns):
            lane = (whole + phase) % lanes
            samples[:, lane] += ends[:, phase]
            batches[:, lane] += ends[:, phase] > 0
            padding[:, lane] += copies[:, phase]
        # What 'drop' leaves out is in no lane's piece: it is lost, not dropped.
        delivered = splits.least * splits.count if self.policy == "drop" else n
        first, some = self._first(shard_samples, splits, world, epochs, seed), samples.sum(axis=1) > 0
        return Counts(
            every_epoch(samples, epochs), every_epoch(batches, epochs), every_epoch(padding, epochs),
            every_epoch(np.zeros((ranks, lanes), np.int64), epochs),
            every_epoch(np.where(some, rank * (splits.count // ranks), -1), epochs), np.where(some, first, -1),
            every_epoch(np.zeros(ranks, np.int64), epochs),
            every_epoch(((copies == ends) & (ends > 0)).sum(axis=1), epochs),
            np.full(epochs, delivered, np.int64),
            delivered if delivered == n or self.shuffle_by == "none" or epochs == 1 else None,
        )  # fmt: skip

    def _first(self, shard_samples: I64, splits: Splits, world: World, epochs: int, seed: int) -> I64:
        """First id of every rank, int64[epoch, rank]; of ranks that have none, anything."""
        split = np.arange(world.ranks, dtype=np.int64) * (splits.count // world.ranks)
        if splits.samples < splits.count:
            found = [self.split(shard_samples, world, e, seed) for e in range(epochs)]
            return np.array([[next(iter(s.rank(r).ids), -1) for r in range(world.ranks)] for s in found], np.int64)
        orders = (EpochOrder(shard_samples, splits, self.shuffle_by, self.window, seed, e) for e in range(epochs))
        return np.stack([order.ids(split, np.zeros_like(split))[0] for order in orders])

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        order = self.order(shard_samples, world, epoch, seed)
        splits = order.splits

        def lane(rank: int, worker: int) -> Reading:
            steps = np.arange(worker, splits.steps(rank, world.ranks), world.lanes_per_rank, dtype=np.int64)
            split, row, sizes = splits.take(steps, rank, world.ranks)
            return Reading(*order.ids(split, row), sizes)

        return Schedule(world, lane)

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        splits = self.splits(shard_samples, world)
        found = [f"{splits.count:,} splits of {splits.least:,} rows"]
        if splits.samples % splits.count:
            rest = splits.samples % splits.count
            same = "the same ones in every epoch" if self.shuffle_by == "none" else "others in every epoch"
            found[0] += {
                "exact": f"; {rest:,} of them have one more",
                "drop": f"; {rest:,} samples are dropped, {same}",
                "pad": f" and one; {splits.count - rest:,} of them fill it with a copy",
            }[self.policy]
        if self.shuffle_by == "shards":
            found.append(f"windows of {EpochOrder(shard_samples, splits, 'shards', self.window, 0, 0).window:,} rows")
        if splits.turns % world.lanes_per_rank:
            found.append(
                f"the {world.lanes_per_rank} workers of a rank share its splits: turns that {world.lanes_per_rank} "
                "divides give each its own, which reads longer runs"
            )
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        return []

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--policy drop", replace(self, policy="drop")), ("--policy pad", replace(self, policy="pad"))]

    def global_batch(self, world: World) -> int:
        return world.batch_size * world.ranks if self.global_batch_size is None else self.global_batch_size

    def fix(self, world: World) -> Loader:
        lanes = world.lanes_per_rank
        turns = self.turns or (lanes if self.num_splits is None else 1)
        return replace(self, num_splits=self.num_splits or world.ranks * turns, turns=turns)

    def buffered(self) -> tuple[int, int]:
        return self.window, self.window

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        if self.num_splits is None:
            return False, 1, "without num_splits every world cuts its own splits"
        slots = self.num_splits // (self.turns or 1)
        if global_batch % slots:
            return False, 1, f"the global batch {global_batch:,} is no multiple of {slots:,} splits"
        return True, 1, f"every step takes {global_batch // slots:,} rows of each of {slots:,} splits"
