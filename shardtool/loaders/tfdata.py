"""tf.data 2.21: Dataset.shard by element or by file, and tf.distribute's automatic sharding.

Read from `tensorflow/python/data/ops/options.py`, `tensorflow/core/grappler/optimizers/data/auto_shard.cc`
and `tensorflow/core/kernels/data/shard_dataset_op.cc`, and run. shard(W, i) keeps elements i, i+W, ... of
whatever it is applied to: samples (everybody reads everything) or file names. AUTO is FILE as soon as a file
reader is in the pipeline; it does not fall back when there are fewer files than workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..base.cuts import stride_size
from ..schedule.counts import Counts, count_iterable
from ..schedule.elastic import next_multiple
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total
from .shards import Dealt, shard_first

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TFData(Loader):
    """shard: where Dataset.shard stands (element: after reading, file: on the list of files, none).
    auto_shard_policy: tf.distribute's, instead of `shard`. cycle_length, block_length: of interleave over the
    files, deterministic; cycle_length 1: one file after the other. drop_remainder: of batch()."""

    name: ClassVar[str] = "tfdata"
    shuffles: ClassVar[str | None] = "tfdata"
    release: ClassVar[str] = "tensorflow 2.21.0"
    uses_workers: ClassVar[bool] = False

    shard: Literal["element", "file", "none"] = "element"
    auto_shard_policy: Literal["auto", "file", "data", "off"] | None = None
    cycle_length: int = 1
    block_length: int = 1
    drop_remainder: bool = False

    @property
    def unit_of_shard(self) -> Literal["element", "file", "none"]:
        """What is divided in the end."""
        if self.auto_shard_policy is None:
            return self.shard
        return {"auto": "file", "file": "file", "data": "element", "off": "none"}[self.auto_shard_policy]  # type: ignore[return-value]

    def check(self, shard_samples: I64, world: World) -> None:
        files = len(shard_samples)
        if self.cycle_length < 1 or self.block_length < 1:
            self.refuse("cycle_length and block_length must be positive", "give 1 or more")
        if self.auto_shard_policy in ("auto", "file") and world.ranks > 1 and files < world.ranks:
            self.refuse(
                f"could not apply FILE based sharding: the dataset only has {files:,} file(s), which is not "
                f"enough "
                f"for the required {world.ranks:,} shards/workers",
                f"make {world.ranks:,} files or more, or give --auto-shard-policy data",
            )

    def _by_file(self, shard_samples: I64, world: World) -> Dealt:
        rank = np.arange(world.ranks, dtype=np.int64)
        return Dealt(shard_samples, np.arange(len(shard_samples)) % world.ranks, world.ranks, rank[:, None])

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        n, ranks = total(shard_samples), world.ranks
        rank = np.arange(ranks, dtype=np.int64)
        distinct = None
        if self.unit_of_shard == "file":
            dealt = self._by_file(shard_samples, world)
            pieces = dealt.pile_samples[dealt.pile_of_lane]
            first, shard = dealt.leading()
        elif self.unit_of_shard == "element":
            pieces = np.maximum(stride_size(n, ranks, rank), 0)[:, None]
            first, shard = (
                self._places(shard_samples, np.minimum(rank, max(n - 1, 0)))[:, None],
                rank[:, None],
            )
        else:
            pieces = np.full((ranks, 1), n, np.int64)
            first, shard = np.zeros_like(pieces), np.zeros_like(pieces)
            distinct = n // world.batch_size * world.batch_size if self.drop_remainder else n
        return count_iterable(
            pieces, world, epochs, drop_last=self.drop_remainder, first=first, shard=shard, distinct=distinct
        )

    def _places(self, shard_samples: I64, places: I64) -> I64:
        """Ids at places of the interleaved order."""
        if self.cycle_length == 1 or not len(places) or not int(shard_samples.sum()):
            return places
        most = int(places.max()) + 1
        return interleaved(
            np.minimum(shard_samples, most), shard_samples, self.cycle_length, self.block_length
        )[places]

    def _order(self, shard_samples: I64, files: I64) -> I64:
        """Ids of these files in reading order."""
        if self.cycle_length > 1:
            order = interleaved(
                shard_samples[files], shard_samples[files], self.cycle_length, self.block_length
            )
        else:
            order = np.arange(int(shard_samples[files].sum()), dtype=np.int64)
        # from ids of the files laid end to end to ids of the whole data set
        first = shard_first(shard_samples)[files]
        begin = np.cumsum(shard_samples[files]) - shard_samples[files]
        moved: I64 = order + np.repeat(first - begin, shard_samples[files])[order]
        return moved

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        unit = self.unit_of_shard
        everything = np.arange(len(shard_samples), dtype=np.int64)

        def lane(rank: int, worker: int) -> Reading:
            if unit == "file":
                ids = self._order(shard_samples, everything[rank :: world.ranks])
            else:
                ids = self._order(shard_samples, everything)
                ids = ids[rank :: world.ranks] if unit == "element" else ids
            return Reading.of(ids, world.batch_size, drop_last=self.drop_remainder)

        return Schedule(world, lane, lanes_per_rank=1)

    def read_factor(self, shard_samples: I64, world: World) -> int:
        return world.ranks if self.unit_of_shard != "file" else 1

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        found = []
        if world.workers_per_rank:
            found.append("tf.data has threads, no worker processes: --workers does not divide a rank's data")
        if self.unit_of_shard == "element" and world.ranks > 1:
            found.append(
                f"shard by element after reading: every rank reads all files and keeps one sample in "
                f"{world.ranks:,} "
                f"(bytes read: {world.ranks:,} times the data set)"
            )
        if self.auto_shard_policy == "auto":
            found.append(
                "AUTO shards by file whenever files are read; it does not fall back to DATA for few files"
            )
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        ways = []
        if found & {"hang", "uneven", "empty"} and self.unit_of_shard == "file":
            want = next_multiple(len(shard_samples), world.ranks)
            ways.append(f"{want:,} files of equal size (a multiple of {world.ranks:,} ranks)")
            ways.append("--shard element (or --auto-shard-policy data)")
        if found & {"hang", "uneven"} and not self.drop_remainder:
            ways.append("repeat() and a fixed number of steps per epoch")
        if "repeated" in found and self.unit_of_shard == "none":
            ways.append("--shard file or --shard element")
        return ways

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        if self.unit_of_shard == "element":
            return (
                True,
                1,
                "rank r keeps every world-size-th sample, so a step is the next global batch in order",
            )
        return False, 1, "each world size deals the files out differently"


def interleaved(limit: I64, shard_samples: I64, cycle: int, block: int) -> I64:
    """Ids in the order of Dataset.interleave(cycle_length, block_length): up to `block` samples of each of
    `cycle` open files in turn; the place of an exhausted file is taken by the next unopened one when its turn
    comes.

    limit int64[s]: at most that many samples of every file are wanted (the rest of the order is still right
    up to the smallest place that such a cut could reach). Source: interleave_dataset_op.cc.
    """
    first = shard_first(shard_samples)
    waiting = list(range(len(shard_samples)))[::-1]
    slots: list[list[int] | None] = [None] * cycle
    parts: list[I64] = []
    turn = 0
    idle = 0
    while idle < cycle:
        if slots[turn] is None and waiting:
            slots[turn] = [waiting.pop(), 0]
        slot = slots[turn]
        if slot is None:
            idle += 1
            turn = (turn + 1) % cycle
            continue
        idle = 0
        file, done = slot
        take = min(block, int(limit[file]) - done)
        parts.append(np.arange(first[file] + done, first[file] + done + take, dtype=np.int64))
        if take < block:
            slots[turn] = None
        else:
            slot[1] = done + take
        turn = (turn + 1) % cycle
    return np.concatenate([np.zeros(0, np.int64), *parts])
