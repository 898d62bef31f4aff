"""LanceDB 0.40 StreamingDataset: fixed splits, whole splits to ranks and workers, one row of each split in
turn.

Read from `lancedb/streaming.py`. The permutation of (shuffle_seed, epoch) is cut into `num_splits` splits of
L = rows // num_splits; what is left over is dropped. Rank r owns splits [r*p, (r+1)*p), p = num_splits /
ranks, worker w of it the w-th part of those, and yields row 0 of each of its splits, then row 1 of each, and
so on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..schedule.counts import Counts, count_iterable
from ..schedule.elastic import next_multiple
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LanceDB(Loader):
    """Flags of StreamingDataset; `drop_last` is the DataLoader's."""

    name: ClassVar[str] = "lancedb"
    shuffles: ClassVar[str | None] = "lancedb"
    release: ClassVar[str] = "lancedb 0.40.0"
    unit: ClassVar[str] = "splits"
    resumes_exactly: ClassVar[bool] = True  # state_dict counts rows per split

    num_splits: int | None = None
    shuffled: bool = field(default=True, metadata={"flag": "shuffle"})
    shuffle_clump_size: int | None = None
    global_batch_size: int | None = None
    drop_last: bool = False

    def splits(self, world: World) -> int:
        """num_splits, by default the world size."""
        return world.ranks if self.num_splits is None else self.num_splits

    def check(self, shard_samples: I64, world: World) -> None:
        n, ranks, lanes = total(shard_samples), world.ranks, world.lanes_per_rank
        splits = self.splits(world)
        if splits < 1:
            self.refuse(f"num_splits must be positive, not {splits}", f"give --num-splits {ranks}")
        if self.shuffle_clump_size is not None and self.shuffle_clump_size < 1:
            self.refuse("shuffle_clump_size must be positive", "give --shuffle-clump-size 1 or more")
        near = nearest(splits, ranks * lanes)
        if splits % ranks:
            self.refuse(
                f"num_splits ({splits:,}) must be divisible by world_size ({ranks:,})",
                f"give --num-splits {near}",
            )
        if (splits // ranks) % lanes:
            self.refuse(
                f"number of rank splits ({splits // ranks:,}) must be divisible by num_workers ({lanes:,})",
                f"give --num-splits {near}",
            )
        if splits > n:
            self.refuse(
                f"split fixed config specified {splits:,} splits but only {n:,} rows are available; must "
                f"have at "
                "least 1 row per split",
                f"give --num-splits {n // (ranks * lanes) * ranks * lanes}"
                if n >= ranks * lanes
                else f"use at most {n:,} ranks x workers",
            )
        if self.global_batch_size is not None and self.global_batch_size % ranks:
            self.refuse(
                f"global batch size ({self.global_batch_size:,}) must be divisible by world_size ({ranks:,})",
                f"give --global-batch-size {nearest(self.global_batch_size, ranks)}",
            )

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        n, splits = total(shard_samples), self.splits(world)
        rows = n // splits
        per_rank = splits // world.ranks
        pieces = np.full((world.ranks, world.lanes_per_rank), rows * (per_rank // world.lanes_per_rank))
        lane = np.arange(world.lanes, dtype=np.int64).reshape(pieces.shape)
        shard = lane * (per_rank // world.lanes_per_rank)
        whole = rows * splits == n and not (self.drop_last and int(pieces[0, 0]) % world.batch_size)
        return count_iterable(
            pieces, world, epochs, drop_last=self.drop_last, first=shard * rows, shard=shard,
            epoch_opaque=self.shuffled and not whole,
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        n, splits = total(shard_samples), self.splits(world)
        rows, per_lane = n // splits, splits // world.lanes

        def lane(rank: int, worker: int) -> Reading:
            first = (rank * world.lanes_per_rank + worker) * per_lane
            # [row, split] read row by row
            ids = (
                np.arange(rows, dtype=np.int64)[:, None]
                + (first + np.arange(per_lane, dtype=np.int64)) * rows
            )
            return Reading.of(ids.reshape(-1), world.batch_size, drop_last=self.drop_last)

        return Schedule(world, lane, self.shuffled)

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        n, splits = total(shard_samples), self.splits(world)
        rows = n // splits
        found = [f"{splits:,} splits of {rows:,} rows"]
        if n - rows * splits:
            found[0] += f"; {n - rows * splits:,} rows are dropped" + (
                ", others in every epoch" if self.shuffled else ", the same ones in every epoch"
            )
        if self.shuffled:
            found.append("ids are positions in the permutation of shuffle_seed + 100003 x epoch")
        if self.shuffle_clump_size:
            found.append(
                f"rows are shuffled in clumps of {self.shuffle_clump_size:,} that stay in storage order"
            )
        if self.drop_last:
            found.append("StreamingDataLoader refuses drop_last; only a plain DataLoader takes it")
        batch = self.global_batch_size or world.batch_size * world.ranks
        if batch % splits:
            found.append(
                f"a global batch of {batch:,} is no multiple of {splits:,} splits: steps differ between "
                f"world sizes"
            )
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        n, lanes = total(shard_samples), world.lanes
        if "lost" not in found:
            return []
        best = max((s for s in range(lanes, min(64 * lanes, n) + 1, lanes)), key=lambda s: (-(n % s), -s))
        if n % best < n % self.splits(world):
            return [f"--num-splits {best}: {n % best:,} rows dropped"]
        return []

    def global_batch(self, world: World) -> int:
        return self.global_batch_size or world.batch_size * world.ranks

    def fix(self, world: World) -> Loader:
        return replace(self, num_splits=self.splits(world))

    def buffered(self) -> tuple[int, int]:
        return 64 * 4, 64  # read_batch_size x io_queue_depth rows of every split in flight

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        splits = self.splits(world)
        if global_batch % splits:
            return False, 1, f"the global batch {global_batch:,} is no multiple of {splits:,} splits"
        lanes = world.lanes_per_rank
        if lanes == 1:
            return True, 1, f"every step takes {global_batch // splits:,} rows of each of {splits:,} splits"
        return True, lanes, f"workers deliver in turn: the same samples after every {lanes:,} steps"


def nearest(value: int, unit: int) -> str:
    """'40 or 48': the multiples of `unit` around a value."""
    above = next_multiple(max(value, 1), unit)
    below = above - unit
    return f"{below} or {above}" if below > 0 else f"{above}"
