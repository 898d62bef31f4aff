"""The `tfrecord` package 1.14 (vahidk/tfrecord): records N*i//n .. N*(i+1)//n of a file, with its index.

Read from `tfrecord/reader.py` and `tfrecord/torch/dataset.py`. `tfrecord_loader(shard=(i, n))` cuts every
file by the floor formula over its index; without an index the shard is ignored and everything is read.
TFRecordDataset passes (worker, workers) of its own rank and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..base.cuts import floor_cut
from ..schedule.counts import Counts, count_iterable
from ..schedule.schedule import Reading, Schedule, ranges
from ..schedule.world import World
from .base import Loader
from .shards import shard_first
from .torch import Split, divisors

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TFRecord(Loader):
    """index: an index file is given. split_over: lanes: shard=(rank x workers + worker, ranks x workers)
    given to tfrecord_loader; workers: TFRecordDataset as it is; none: no shard. drop_last: the
    DataLoader's."""

    name: ClassVar[str] = "tfrecord"
    shuffles: ClassVar[str | None] = "torch"
    release: ClassVar[str] = "tfrecord 1.14.6"

    index: bool = True
    split_over: Split = "lanes"
    drop_last: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        small = np.flatnonzero(shard_samples <= 1)
        if self.index and len(small):
            self.refuse(
                f"IndexError: too many indices for array: the index of file {int(small[0])} has "
                f"{int(shard_samples[small[0]])} line(s), and np.loadtxt makes no table of that",
                "give every file two records or more, or --no-index",
            )

    @property
    def _split(self) -> Split:
        return self.split_over if self.index else "none"

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        piece, pieces, _ = divisors(self._split, world, world.lanes_per_rank)
        number = np.arange(pieces + 1, dtype=np.int64)
        cut = np.zeros(pieces + 1, np.int64)  # records of all files before piece i, had they been cut alike
        for samples, many in zip(*np.unique(shard_samples, return_counts=True), strict=True):
            cut += int(many) * floor_cut(int(samples), pieces, number)
        sizes, size = np.diff(cut), world.batch_size
        whole = sizes // size * size if self.drop_last else sizes
        first = self._first(shard_samples, pieces)
        return count_iterable(
            sizes[piece], world, epochs, drop_last=self.drop_last, first=first[piece], shard=piece,
            distinct=int(whole.sum()),
        )  # fmt: skip

    @staticmethod
    def _first(shard_samples: I64, pieces: int) -> I64:
        """First id of every piece, int64[pieces] (-1: the piece is empty in every file)."""
        first = np.full(pieces, -1, np.int64)
        start = 0
        for samples in shard_samples.tolist():
            open_ = np.flatnonzero(first < 0)
            if not len(open_):
                break
            lo, hi = floor_cut(samples, pieces, open_), floor_cut(samples, pieces, open_ + 1)
            first[open_[hi > lo]] = start + lo[hi > lo]
            start += samples
        return first

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        piece, pieces, _ = divisors(self._split, world, world.lanes_per_rank)
        first = shard_first(shard_samples)[:-1]

        def lane(rank: int, worker: int) -> Reading:
            i = int(piece[rank, worker])
            lo = np.array([floor_cut(s, pieces, i) for s in shard_samples.tolist()], np.int64)
            hi = np.array([floor_cut(s, pieces, i + 1) for s in shard_samples.tolist()], np.int64)
            return Reading.of(ranges(first + lo, first + hi), world.batch_size, drop_last=self.drop_last)

        return Schedule(world, lane)

    def read_factor(self, shard_samples: I64, world: World) -> int:
        return divisors(self._split, world, world.lanes_per_rank)[2]

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        found = []
        if not self.index and world.lanes > 1:
            found.append("without an index the shard is ignored: every worker of every rank reads everything")
        elif self.split_over == "lanes" and world.ranks > 1:
            found.append(
                "assumes shard=(rank x workers + worker, ranks x workers) given to tfrecord_loader; "
                "TFRecordDataset "
                "itself knows only its workers and repeats everything on every rank: --split-over workers"
            )
        if self.index and (world.lanes == 1 or (self.split_over != "lanes" and world.workers_per_rank == 0)):
            found.append(
                "without a shard, but with an index, reading starts at a random record and wraps round"
            )
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        ways = []
        if "repeated" in found:
            ways.append(
                "make an index (shardtool manifest --export tfrecord)"
                if not self.index
                else "--split-over lanes"
            )
        return ways

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--drop-last", replace(self, drop_last=True))]
