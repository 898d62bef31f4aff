"""Whole shards per rank, rounded down: shards // ranks each, the remainder is never read.

Read from `nemo/collections/asr/data/audio_to_text.py` (`expand_sharded_filepaths`, shard_strategy "scatter"):
rank r takes shards [r*f, (r+1)*f), f = shards // ranks, and each of its workers every k-th of them. open_lm
plans in the same way (it cuts its list of shards to a multiple of ranks x workers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..schedule.counts import Counts, count_iterable
from ..schedule.elastic import next_multiple
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader
from .shards import Dealt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShardFloor(Loader):
    """`shard_strategy` of NeMo; `drop_last` the DataLoader's."""

    name: ClassVar[str] = "shard-floor"
    release: ClassVar[str] = "nemo_toolkit 3.0.0"
    unit: ClassVar[str] = "shards"

    shard_strategy: Literal["scatter", "replicate"] = "scatter"
    drop_last: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        """Never raises: a rank with no shard has an empty loader."""

    def _dealt(self, shard_samples: I64, world: World) -> Dealt:
        ranks = world.ranks if self.shard_strategy == "scatter" else 1
        each, lanes = len(shard_samples) // ranks, world.lanes_per_rank
        number = np.arange(len(shard_samples), dtype=np.int64)
        rank = number // max(each, 1)
        pile = np.where((rank < ranks) & (each > 0), rank * lanes + number % max(each, 1) % lanes, -1)
        of_rank = np.arange(world.ranks, dtype=np.int64)[:, None] % ranks
        return Dealt(shard_samples, pile, ranks * lanes, of_rank * lanes + np.arange(lanes, dtype=np.int64))

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        dealt, size = self._dealt(shard_samples, world), world.batch_size
        first, shard = dealt.leading()
        held = dealt.pile_samples
        whole = held // size * size if self.drop_last else held
        return count_iterable(
            held[dealt.pile_of_lane], world, epochs, drop_last=self.drop_last, first=first, shard=shard,
            distinct=int(whole.sum()),
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        dealt = self._dealt(shard_samples, world)

        def lane(rank: int, worker: int) -> Reading:
            return Reading.of(dealt.ids(rank, worker), world.batch_size, drop_last=self.drop_last)

        return Schedule(world, lane)

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        shards = len(shard_samples)
        rest = shards % world.ranks if self.shard_strategy == "scatter" else 0
        if not rest:
            return []
        words = f"shard {shards - 1:,} is" if rest == 1 else f"shards {shards - rest:,} to {shards - 1:,} are"
        return [
            f"{words} never read: {shards:,} shards, {shards // world.ranks:,} for each of {world.ranks:,} "
            f"ranks"
        ]

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        shards = len(shard_samples)
        ways = []
        if found & {"lost", "empty", "hang", "uneven"}:
            ways.append(
                f"{next_multiple(shards, world.lanes):,} shards of equal size (a multiple of "
                f"{world.lanes:,} ranks x "
                "workers)"
            )
            best = max((w for w in range(1, world.ranks + 1) if shards % w == 0), default=1)
            if "lost" in found and best > 1:
                ways.append(f"{best:,} ranks, which divide {shards:,} shards")
        if "repeated" in found and self.shard_strategy == "replicate":
            ways.append("--shard-strategy scatter")
        return ways

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--drop-last", replace(self, drop_last=True))]
