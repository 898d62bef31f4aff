"""PyTorch 2.13: IterableDatasets that split themselves, and DistributedSampler over a map-style dataset.

Read from `torch/utils/data/dataset.py` (the example in the docstring of IterableDataset: `ceil(n /
workers)`), `torch/utils/data/distributed.py` and `torch/utils/data/dataloader.py`. Over an IterableDataset
every worker makes its own batches, so `drop_last` drops once a worker; over a map-style dataset batches are
made first and dealt to the workers in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..base.cuts import ceil_cut, stride_size
from ..schedule.counts import Counts, count_iterable, deal_batches, every_epoch
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total

I64 = npt.NDArray[np.int64]
Split = Literal["lanes", "workers", "none"]


def divisors(split: Split, world: World, lanes_per_rank: int) -> tuple[I64, int, int]:
    """(number of the piece of every lane int64[rank, lane], pieces, how often every piece is read)."""
    rank = np.arange(world.ranks, dtype=np.int64)[:, None]
    lane = np.arange(lanes_per_rank, dtype=np.int64)[None, :]
    if split == "lanes":
        return rank * lanes_per_rank + lane, world.ranks * lanes_per_rank, 1
    if split == "workers":
        return lane + 0 * rank, lanes_per_rank, world.ranks
    return 0 * rank + 0 * lane, 1, world.ranks * lanes_per_rank


@dataclass(frozen=True)
class Torch(Loader):
    """An IterableDataset that takes a contiguous piece: worker i reads [i*c, min((i+1)*c, n)), c =
    ceil(n/pieces).

    split      lanes: over all workers of all ranks; workers: over the workers of a rank alone, as the
    docstring
               of IterableDataset does, so that every rank reads everything; none: every worker reads
               everything
    drop_last  of the DataLoader
    """

    name: ClassVar[str] = "torch"
    shuffles: ClassVar[str | None] = "torch"
    release: ClassVar[str] = "torch 2.13.0"

    split_over: Split = "lanes"
    drop_last: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        """Never raises: an empty piece is an empty iterator."""

    def _pieces(self, n: int, world: World) -> tuple[I64, I64, int, int]:
        """(sizes, first ids) int64[rank, lane], pieces, how often each is read."""
        piece, pieces, copies = divisors(self.split_over, world, self.lanes_per_rank(world))
        start = ceil_cut(n, pieces, piece)
        return ceil_cut(n, pieces, piece + 1) - start, start, pieces, copies

    def _ids(self, n: int, pieces: int, piece: int) -> I64:
        return np.arange(ceil_cut(n, pieces, piece), ceil_cut(n, pieces, piece + 1), dtype=np.int64)

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        sizes, start, _, copies = self._pieces(total(shard_samples), world)
        size = world.batch_size
        whole = sizes // size * size if self.drop_last else sizes
        # every piece is read `copies` times, so the different samples are a `copies`th of what is delivered
        distinct = int(whole.sum()) // copies
        shard = divisors(self.split_over, world, self.lanes_per_rank(world))[0]
        return count_iterable(
            sizes, world, epochs, drop_last=self.drop_last, first=start, shard=shard,
            distinct=distinct,
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        n, lanes = total(shard_samples), self.lanes_per_rank(world)
        piece, pieces, _ = divisors(self.split_over, world, lanes)

        def lane(rank: int, worker: int) -> Reading:
            ids = self._ids(n, pieces, int(piece[rank, worker]))
            return Reading.of(ids, world.batch_size, drop_last=self.drop_last)

        return Schedule(world, lane)

    def read_factor(self, shard_samples: I64, world: World) -> int:
        return {"lanes": 1, "workers": world.ranks, "none": world.lanes}[self.split_over]

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        if self.split_over == "lanes" and world.ranks > 1:
            return [
                "assumes that the dataset counts ranks too; one that only asks get_worker_info() repeats "
                "everything on every rank: --split-over workers"
            ]
        if self.split_over == "none" and world.lanes > 1:
            return ["a dataset that does not split itself is read whole by every worker of every rank"]
        return []

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        if "repeated" in found and self.split_over != "lanes":
            return ["--split-over lanes (divide by rank and worker in __iter__)"]
        if found & {"hang", "uneven", "empty"} and type(self) is Torch:
            return ["--loader torch-stride: pieces that differ by at most one sample"]
        return []

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--drop-last", replace(self, drop_last=True))]


@dataclass(frozen=True)
class TorchStride(Torch):
    """An IterableDataset that keeps every k-th sample: `index % pieces == i`."""

    name: ClassVar[str] = "torch-stride"

    def _pieces(self, n: int, world: World) -> tuple[I64, I64, int, int]:
        piece, pieces, copies = divisors(self.split_over, world, self.lanes_per_rank(world))
        return stride_size(n, pieces, piece), piece, pieces, copies

    def _ids(self, n: int, pieces: int, piece: int) -> I64:
        return np.arange(piece, n, pieces, dtype=np.int64)

    def read_factor(self, shard_samples: I64, world: World) -> int:
        return world.lanes  # a stream is read to its end to keep every k-th sample of it

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        if self.split_over == "lanes" and world.lanes_per_rank == 1:
            return (
                True,
                1,
                "rank r takes every world-size-th sample, so a step is the next global batch in order",
            )
        return False, 1, "with workers a batch holds every (ranks x workers)-th sample, so steps differ"


@dataclass(frozen=True)
class TorchDistributed(Loader):
    """DistributedSampler over a map-style dataset.

    drop_last        of the sampler: drop the tail instead of repeating the first samples
    shuffled         the sampler's `shuffle`: torch.randperm(seed + epoch), whose ids are positions here
    drop_last_batch  `drop_last` of the DataLoader
    """

    name: ClassVar[str] = "torch-distributed"
    shuffles: ClassVar[str | None] = "full"
    release: ClassVar[str] = "torch 2.13.0"

    drop_last: bool = False
    shuffled: bool = field(default=True, metadata={"flag": "shuffle"})
    drop_last_batch: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        if self.drop_last and total(shard_samples) < world.ranks:
            self.refuse(
                f"the sampler drops {total(shard_samples):,} samples over {world.ranks:,} ranks to none, and "
                "every rank's loader is empty",
                f"use at most {total(shard_samples):,} ranks, or leave out --drop-last",
            )

    def _per_rank(self, n: int, world: World) -> int:
        """The sampler's num_samples."""
        if self.drop_last and n % world.ranks:
            return -(-(n - world.ranks) // world.ranks)
        return -(-n // world.ranks)

    def _delivered(self, n: int, world: World) -> int:
        each = self._per_rank(n, world)
        return each // world.batch_size * world.batch_size if self.drop_last_batch else each

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        n, ranks = total(shard_samples), world.ranks
        rank = np.arange(ranks, dtype=np.int64)
        each, kept = self._per_rank(n, world), self._delivered(n, world)
        samples, batches = deal_batches(np.full(ranks, kept), world.batch_size, world.lanes_per_rank)
        # positions r, r+W, ... below each*W; those from n on are repetitions: int64[rank]
        real = np.minimum(np.maximum(stride_size(n, ranks, rank), 0), kept)
        padding = np.zeros_like(samples)
        copies = np.zeros((ranks,), np.int64)
        if not self.drop_last:
            # a repetition comes last, so it sits in the last batches; take it off lane by lane
            real_lanes, real_batches = deal_batches(real, world.batch_size, world.lanes_per_rank)
            padding = samples - real_lanes
            copies = batches.sum(axis=1) - real_batches.sum(axis=1)
        dropped = np.zeros_like(samples)
        dropped[:, 0] = each - kept
        distinct = min(n, kept * ranks)
        return Counts(
            every_epoch(samples, epochs), every_epoch(batches, epochs), every_epoch(padding, epochs),
            every_epoch(dropped, epochs), every_epoch(rank, epochs),
            every_epoch(np.where(kept > 0, rank % max(n, 1), -1), epochs),
            every_epoch(np.zeros_like(rank), epochs), every_epoch(copies, epochs),
            np.full(epochs, distinct, np.int64),
            distinct if distinct == n or not self.shuffled or epochs == 1 else None,
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        n, lanes = total(shard_samples), world.lanes_per_rank
        kept = self._delivered(n, world)

        def whole(rank: int) -> Reading:
            place = rank + world.ranks * np.arange(kept, dtype=np.int64)
            return Reading.of(place % n, world.batch_size, padding=place >= n)

        def lane(rank: int, worker: int) -> Reading:
            return dealt(whole(rank), worker, lanes)

        return Schedule(world, lane, self.shuffled, rank_reading=whole)

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        if self.shuffled:
            return [
                "ids are positions in torch.randperm(seed + epoch); without set_epoch() every epoch has the "
                "same order"
            ]
        return []

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--drop-last", replace(self, drop_last=True))]

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        return (
            True,
            1,
            "rank r takes every world-size-th place of one order, so a step is the next global batch",
        )


def dealt(whole: Reading, worker: int, lanes: int) -> Reading:
    """Batches worker, worker + lanes, ... of a rank's reading."""
    if lanes == 1:
        return whole
    of_batch = np.repeat(np.arange(len(whole.batches)), whole.batches)
    mine = of_batch % lanes == worker
    return Reading(whole.ids[mine], whole.padding[mine], whole.batches[worker::lanes])
