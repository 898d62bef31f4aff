"""Hugging Face datasets 5.2: `split_dataset_by_node`, then DataLoader workers.

Read from `datasets/distributed.py`, `datasets/iterable_dataset.py` (`_prepare_ex_iterable_for_iteration`,
`_iter_pytorch`, `StepExamplesIterable`) and `datasets/arrow_dataset.py` (`Dataset.shard`). An IterableDataset
whose number of shards the world size divides gives rank r the shards r, r+W, ...; any other is read whole by
every rank, which keeps every W-th example. Workers then take every k-th of the rank's shards, and a rank of
the second kind counts its W-th examples within each worker's own shards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..base.cuts import front_cut
from ..schedule.counts import Counts, count_iterable, deal_batches, every_epoch
from ..schedule.elastic import next_multiple
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total
from .shards import Dealt
from .torch import dealt as dealt_batches

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HuggingFace(Loader):
    """`strategy` of split_dataset_by_node; `style`: an IterableDataset or a map-style Dataset; `drop_last`:
    the DataLoader's."""

    name: ClassVar[str] = "hf"
    shuffles: ClassVar[str | None] = "hf-5.1"
    release: ClassVar[str] = "datasets 5.2.0"
    unit: ClassVar[str] = "shards"

    strategy: Literal["auto", "shards", "examples"] = "auto"
    style: Literal["iterable", "map"] = "iterable"
    drop_last: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        shards = len(shard_samples)
        if self.style == "map" and self.strategy != "auto":
            self.refuse(
                f"map-style datasets only support strategy='auto', but got strategy={self.strategy!r}",
                "leave out --strategy",
            )
        if self.style == "iterable" and self.strategy == "shards" and shards < world.ranks:
            self.refuse(
                f"cannot iterate with strategy='shards': the dataset has num_shards={shards:,}, which is "
                f"lower than "
                f"world_size={world.ranks:,}, so some nodes would not be assigned any shard",
                f"make {world.ranks:,} shards, or give --strategy auto",
            )

    def by_shards(self, shards: int, world: World) -> bool:
        """Whole shards per rank, not every W-th example."""
        if self.strategy == "auto":
            return shards % world.ranks == 0
        return self.strategy == "shards"

    def _dealt(self, shard_samples: I64, world: World) -> Dealt:
        """Shards over lanes; by examples every rank's worker w reads the same pile w."""
        number = np.arange(len(shard_samples), dtype=np.int64)
        lanes = world.lanes_per_rank
        rank = np.arange(world.ranks, dtype=np.int64)[:, None]
        worker = np.arange(lanes, dtype=np.int64)[None, :]
        if self.by_shards(len(shard_samples), world):
            pile = number % world.ranks * lanes + number // world.ranks % lanes
            return Dealt(shard_samples, pile, world.lanes, rank * lanes + worker)
        return Dealt(shard_samples, number % lanes, lanes, worker + 0 * rank)

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        if self.style == "map":
            return self._map_counts(total(shard_samples), world, epochs)
        dealt = self._dealt(shard_samples, world)
        first, shard = dealt.leading()
        pieces = dealt.pile_samples[dealt.pile_of_lane]
        if not self.by_shards(len(shard_samples), world):
            rank = np.arange(world.ranks, dtype=np.int64)
            pieces = np.maximum((pieces - rank[:, None] + world.ranks - 1) // world.ranks, 0)
            first = self._stepped_first(dealt, world.ranks)
        return count_iterable(pieces, world, epochs, drop_last=self.drop_last, first=first, shard=shard)

    @staticmethod
    def _stepped_first(dealt: Dealt, ranks: int) -> I64:
        """First id of every lane when a rank keeps every W-th example: the rank-th of its pile's ids,
        int64[rank, lane] (-1: the pile is shorter)."""
        begin = np.cumsum(dealt.shard_samples) - dealt.shard_samples
        first = np.full(dealt.pile_of_lane.shape, -1, np.int64)
        rank = np.arange(ranks, dtype=np.int64)
        for pile in range(dealt.piles):
            mine = np.flatnonzero(dealt.pile_of_shard == pile)
            ends = np.cumsum(dealt.shard_samples[mine])
            at = np.searchsorted(ends, rank, "right")
            here = at < len(mine)
            shard = mine[at[here]]
            first[here, pile] = begin[shard] + rank[here] - (ends[at[here]] - dealt.shard_samples[shard])
        return first

    def _map_counts(self, n: int, world: World, epochs: int) -> Counts:
        rank = np.arange(world.ranks, dtype=np.int64)
        start = front_cut(n, world.ranks, rank)
        size = front_cut(n, world.ranks, rank + 1) - start
        kept = size // world.batch_size * world.batch_size if self.drop_last else size
        samples, batches = deal_batches(kept, world.batch_size, world.lanes_per_rank)
        dropped = np.zeros_like(samples)
        dropped[:, 0] = size - kept
        none = np.zeros_like(samples)
        distinct = int(kept.sum())
        return Counts(
            every_epoch(samples, epochs), every_epoch(batches, epochs), every_epoch(none, epochs),
            every_epoch(dropped, epochs), every_epoch(rank, epochs),
            every_epoch(np.where(kept > 0, start, -1), epochs), every_epoch(none[:, 0], epochs),
            every_epoch(none[:, 0], epochs), np.full(epochs, distinct, np.int64), distinct,
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        if self.style == "map":
            n = total(shard_samples)

            def whole(rank: int) -> Reading:
                ids = np.arange(
                    front_cut(n, world.ranks, rank), front_cut(n, world.ranks, rank + 1), dtype=np.int64
                )
                return Reading.of(ids, world.batch_size, drop_last=self.drop_last)

            return Schedule(
                world, lambda rank, worker: dealt_batches(whole(rank), worker, world.lanes_per_rank),
                rank_reading=whole,
            )  # fmt: skip
        dealt, by_shards = self._dealt(shard_samples, world), self.by_shards(len(shard_samples), world)

        def lane(rank: int, worker: int) -> Reading:
            ids = dealt.ids(rank, worker)
            return Reading.of(
                ids if by_shards else ids[rank :: world.ranks], world.batch_size, drop_last=self.drop_last
            )

        return Schedule(world, lane)

    def buffered(self) -> tuple[int, int]:
        return (1000, 1000) if self.style == "iterable" else (0, 0)

    def read_factor(self, shard_samples: I64, world: World) -> int:
        return 1 if self.style == "map" or self.by_shards(len(shard_samples), world) else world.ranks

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        if self.style == "map":
            return [
                "map-style: rank r holds the r-th contiguous piece; the first n mod W pieces have one more"
            ]
        shards = len(shard_samples)
        if not self.by_shards(shards, world):
            return [
                f"{shards:,} shards are no multiple of {world.ranks:,} ranks: every rank reads all shards "
                f"and keeps "
                f"one example in {world.ranks:,} (bytes read: {world.ranks:,} times the data set)"
            ]
        return [
            f"{shards:,} shards over {world.ranks:,} ranks: whole shards per rank",
            "set_epoch(e) with e > 0 shuffles the order of the shards, also without shuffle()",
        ]

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        if self.style == "map":
            return ["--drop-last"] if "uneven" in found and not self.drop_last else []
        ways = []
        if found & {"hang", "uneven", "empty"} or not self.by_shards(len(shard_samples), world):
            want = next_multiple(len(shard_samples), world.lanes)
            ways.append(f"{want:,} shards of equal size (a multiple of {world.lanes:,} ranks x workers)")
        return ways

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--drop-last", replace(self, drop_last=True))]

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        if self.style == "iterable" and self.strategy == "examples" and world.lanes_per_rank == 1:
            return True, 1, "rank r keeps every world-size-th example, so a step is the next global batch"
        return False, 1, "each world size deals the shards out differently"
