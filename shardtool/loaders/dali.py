"""NVIDIA DALI 2.4: readers with num_shards, and the framework iterators on top of them.

Read from `nvidia/dali/plugin/base_iterator.py` (lengths, policies, reset) and the readers' loader.h (stream).
A reader is an endless stream. Shard k of N is [floor(k*n/N), floor((k+1)*n/N)). Without `stick_to_shard` a
reader that has finished shard k goes on with k+1, so that without padding its stream is simply the data set
read in a circle from the start of its first shard. With `pad_last_batch` every pass over a shard is
stretched, by copies of its last sample, to P = ceil(ceil(n/N) / batch) * batch. The iterator takes whole
batches from that stream and only counts: it never asks the reader where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..base.cuts import floor_cut, floor_sizes
from ..mixing import shuffles as mixing
from ..schedule.counts import Counts
from ..schedule.intervals import Intervals, circular
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Epoch:
    """What the iterators of all ranks do in one epoch.

    start      place in every rank's stream where the epoch begins
    batches    batches delivered by every rank (the same number on all of them)
    delivered  samples kept of them by every rank, int64[rank]
    """

    start: int
    batches: int
    delivered: I64


@dataclass(frozen=True)
class Dali(Loader):
    """Flags of the reader and of the iterator (`reader_name` given, one pipeline a rank, auto_reset)."""

    name: ClassVar[str] = "dali"
    shuffles: ClassVar[str | None] = "dali"
    release: ClassVar[str] = "NVIDIA DALI 2.4.0"
    uses_workers: ClassVar[bool] = False

    last_batch_policy: Literal["fill", "drop", "partial"] = "fill"
    pad_last_batch: bool = False
    stick_to_shard: bool = False
    shuffle_after_epoch: bool = False
    random_shuffle: bool = False
    initial_fill: int = 1024
    dali_reader: Literal["file", "tfrecord", "webdataset", "mxnet"] = "tfrecord"

    @property
    def shuffle(self) -> mixing.Shuffle:
        """By kind of reader: the file reader also shuffles its list."""
        return mixing.dali(self.dali_reader)

    # -- rules -----------------------------------------------------------------------------------------------

    def check(self, shard_samples: I64, world: World) -> None:
        n = total(shard_samples)
        if self.shuffle_after_epoch and self.stick_to_shard:
            self.refuse(
                "shuffle_after_epoch and stick_to_shard cannot be both true",
                "drop --stick-to-shard: shuffle_after_epoch sticks to the shard by itself",
            )
        if self.dali_reader == "file" and self.shuffle_after_epoch and self.random_shuffle:
            self.refuse(
                "shuffle_after_epoch and random_shuffle cannot be both true (file reader)",
                "drop one of --shuffle-after-epoch and --random-shuffle",
            )
        if self.initial_fill < 1:
            self.refuse("initial_fill must be positive", "give --initial-fill 1 or more")
        if world.ranks > n:
            self.refuse(
                f"the number of input samples: {n:,}, needs to be at least equal to the requested number of "
                f"shards: {world.ranks:,}",
                f"use at most {n:,} ranks",
            )
        if self.last_batch_policy == "drop" and n // world.ranks < world.batch_size:
            self.refuse(
                f"it seems that there is no data in the pipeline: the smallest shard has "
                f"{n // world.ranks:,} "
                f"samples, the batch {world.batch_size:,}, and last_batch_policy DROP drops it",
                f"use --batch-size {n // world.ranks} or less, or --last-batch-policy partial "
                f"--pad-last-batch",
            )

    @property
    def sticks(self) -> bool:
        """The reader stays on its shard."""
        return self.stick_to_shard or self.shuffle_after_epoch

    @property
    def opaque(self) -> bool:
        """The order inside a shard, or of the whole list, comes from DALI's own generator."""
        return self.shuffle_after_epoch or self.random_shuffle

    @staticmethod
    def padded(n: int, world: World) -> int:
        """P: samples of every pass over a shard with pad_last_batch."""
        largest = -(-n // world.ranks)
        return -(-largest // world.batch_size) * world.batch_size

    def epochs(self, n: int, world: World) -> Iterator[Epoch]:
        """The iterator's own counting, epoch by epoch, for ever."""
        sizes, batch = floor_sizes(n, world.ranks), world.batch_size
        if self.last_batch_policy == "fill" and not self.pad_last_batch:
            yield from self._fill_epochs(sizes, batch)
            return
        each = int(sizes.min())
        if self.last_batch_policy == "drop":
            batches, taken = each // batch, -(-each // batch)  # the incomplete batch is read and thrown away
        else:
            batches = taken = self.padded(n, world) // batch
        epoch = 0
        while True:
            if self.last_batch_policy == "partial":
                # what the iterator believes to be its shard; the reader may be elsewhere by now
                delivered = np.roll(sizes, 0 if self.sticks else -epoch)
            else:
                delivered = np.full(len(sizes), batches * batch, np.int64)
            yield Epoch(epoch * taken * batch, batches, delivered)
            epoch += 1

    def _fill_epochs(self, sizes: I64, batch: int) -> Iterator[Epoch]:
        """FILL without padding: the last batch reads on into the next shard, and the next epoch is shorter by
        what the rank that is least ahead has already read. `ahead` int64[rank], as the iterator keeps it: its
        sizes turn the other way round than its ranks do, which is DALI's own arithmetic."""
        ahead = np.zeros_like(sizes)
        counter, start = 0, 0
        size = -(-int(sizes.max()) // batch) * batch
        while True:
            batches = max(-(-(size - counter) // batch), 0)
            yield Epoch(start, batches, np.full(len(sizes), batches * batch, np.int64))
            start += batches * batch
            counter += batches * batch
            counter -= int(ahead.min())
            ahead = ahead + counter - sizes
            counter = int(ahead.min())
            if not self.sticks:
                sizes = np.roll(sizes, 1)
            size = -(-int((sizes - ahead).max()) // batch) * batch
            if size == 0:
                ahead = np.zeros_like(sizes)
                counter = 0
                sizes = np.roll(sizes, 1)
                size = -(-int(sizes.max()) // batch) * batch

    # -- the stream ------------------------------------------------------------------------------------------

    def _at(self, n: int, world: World, rank: I64, place: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Id, and whether it is a copy, at places of ranks' streams (arrays of one shape, or
        broadcastable)."""
        ranks = world.ranks
        if self.pad_last_batch:
            turn, inside = np.divmod(place, self.padded(n, world))
        elif self.sticks:
            size = floor_cut(n, ranks, rank + 1) - floor_cut(n, ranks, rank)
            turn, inside = np.divmod(place, size)
        else:
            start = floor_cut(n, ranks, rank)
            ids = (start + place) % n
            return ids, np.zeros(ids.shape, bool)
        shard = rank + np.zeros_like(turn) if self.sticks else (rank + turn) % ranks
        first = floor_cut(n, ranks, shard)
        last = floor_cut(n, ranks, shard + 1) - 1
        return np.minimum(first + inside, last), first + inside > last

    def _arcs(self, n: int, world: World, epoch: Epoch, copies: bool = False) -> tuple[I64, I64, I64]:
        """Real ids of an epoch as intervals: lo, hi, and the number of the pass they belong to, int64[m].
        `copies`: with the last sample of a shard also where only copies of it are delivered."""
        ranks = world.ranks
        rank = np.arange(ranks, dtype=np.int64)
        begin, many = floor_cut(n, ranks, rank), epoch.delivered
        if not self.pad_last_batch and not self.sticks:
            lo, hi = circular((begin + epoch.start) % n, many, n)
            return lo, hi, np.zeros_like(lo)
        size = floor_cut(n, ranks, rank + 1) - begin
        length = np.full(ranks, self.padded(n, world)) if self.pad_last_batch else size
        turn, inside = np.divmod(np.int64(epoch.start), length)
        lows, highs, turns = [], [], []
        # an epoch is at most one pass and the beginning of another, unless a batch is larger than the shard
        passes = int((-(-(inside + many) // length)).max())
        for number in range(min(passes, 2) if self.sticks else passes):
            shard = rank if self.sticks else (rank + turn + number) % ranks
            first = floor_cut(n, ranks, shard)
            here = floor_cut(n, ranks, shard + 1) - first
            low = np.clip(inside - number * length, 0, here)
            high = np.clip(inside + many - number * length, 0, here)
            if copies:
                low = np.where((low == here) & (inside + many > number * length + here), here - 1, low)
            lows.append(first + low)
            highs.append(first + high)
            turns.append(turn + number)
        if self.sticks and not self.pad_last_batch and passes > 2:  # whole shard, several times over
            lows, highs, turns = [begin], [begin + size], [turn]
        return np.concatenate(lows), np.concatenate(highs), np.concatenate(turns)

    def _distinct(self, n: int, world: World, epoch: Epoch) -> tuple[int, bool, Intervals]:
        """Different samples of an epoch, whether that is an expectation, and their places."""
        lo, hi, turn = self._arcs(n, world, epoch, copies=True)
        everything = Intervals.union(lo, hi)
        if not self.shuffle_after_epoch or len(np.unique(turn[hi > lo])) < 2:
            return everything.total(), False, everything
        # Every pass has its own permutation: a place of one pass and a place of the next are independent ids.
        missing = 1.0
        for number in np.unique(turn).tolist():
            of_pass = turn == number
            missing *= 1 - Intervals.union(lo[of_pass], hi[of_pass]).total() / n
        return round(n * (1 - missing)), 0 < missing < 1, everything

    # -- answers ---------------------------------------------------------------------------------------------

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        n, ranks, batch = total(shard_samples), world.ranks, world.batch_size
        rank = np.arange(ranks, dtype=np.int64)
        cuts = floor_cut(n, ranks, np.arange(ranks + 1, dtype=np.int64))
        shape = (epochs, ranks)
        samples, batches, padding, dropped, shard, first, zero, copies = (
            np.zeros(shape, np.int64) for _ in range(8)
        )
        distinct = np.zeros(epochs, np.int64)
        ever, missing, expected = Intervals.union(cuts[:0], cuts[:0]), 1.0, False
        for number, epoch in zip(range(epochs), self.epochs(n, world), strict=False):
            samples[number], batches[number] = epoch.delivered, epoch.batches
            first[number], _ = self._at(n, world, rank, np.full(ranks, epoch.start))
            shard[number] = np.searchsorted(cuts, first[number], "right") - 1
            lo, hi, _ = self._arcs(n, world, epoch)
            if self.pad_last_batch:
                real = (hi - lo).reshape(-1, ranks).sum(axis=0)
                padding[number] = epoch.delivered - real
                copies[number] = self._copy_batches(n, world, epoch)
            if self.last_batch_policy == "drop":
                size = cuts[shard[number] + 1] - cuts[shard[number]]
                dropped[number] = np.maximum(size - (epoch.delivered - padding[number]), 0)
            if self.last_batch_policy == "partial":
                zero[number] = epoch.batches - -(-epoch.delivered // batch)
            distinct[number], guess, places = self._distinct(n, world, epoch)
            expected |= guess
            missing *= 1 - int(distinct[number]) / n
            ever = ever.join(places)
        total_ever: int | None = ever.total()
        if self.shuffle_after_epoch and epochs > 1:
            total_ever = round(n * (1 - missing))
            expected |= 0 < missing < 1
        return Counts(
            samples[:, :, None], batches[:, :, None], padding[:, :, None], dropped[:, :, None],
            shard, first, zero, copies, distinct, total_ever, expected,
        )  # fmt: skip

    def _copy_batches(self, n: int, world: World, epoch: Epoch) -> I64:
        """Batches of nothing but copies, int64[rank]; batches never straddle two passes (P is a whole number
        of them)."""
        ranks, batch, length = world.ranks, world.batch_size, self.padded(n, world)
        rank = np.arange(ranks, dtype=np.int64)
        turn, inside = divmod(epoch.start, length)
        found = np.zeros(ranks, np.int64)
        for number in range(-(-(inside + epoch.batches * batch) // length)):
            shard = rank if self.sticks else (rank + turn + number) % ranks
            size = floor_cut(n, ranks, shard + 1) - floor_cut(n, ranks, shard)
            begin = np.maximum(-(-size // batch) * batch, inside - number * length)
            end = min(length, inside + epoch.batches * batch - number * length)
            found += np.maximum(end - begin, 0) // batch
        return found if self.last_batch_policy != "partial" else np.zeros(ranks, np.int64)

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        n = total(shard_samples)
        plan = next(e for number, e in enumerate(self.epochs(n, world)) if number == epoch)

        def lane(rank: int, worker: int) -> Reading:
            many = int(plan.delivered[rank])
            place = plan.start + np.arange(many, dtype=np.int64)
            ids, copies = self._at(n, world, np.int64(rank) + np.zeros_like(place), place)
            done = np.arange(plan.batches, dtype=np.int64) * world.batch_size
            return Reading(ids, copies, np.clip(many - done, 0, world.batch_size))

        return Schedule(world, lane, self.opaque, lanes_per_rank=1)

    def buffered(self) -> tuple[int, int]:
        return (self.initial_fill, self.initial_fill) if self.random_shuffle else (0, 0)

    # -- advice ----------------------------------------------------------------------------------------------

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        found = []
        if world.workers_per_rank:
            found.append("DALI has threads, no worker processes: --workers does not divide a rank's data")
        if self.opaque:
            what = (
                "the whole list of files" if self.dali_reader == "file"
                else "only the order of the files" if self.shuffle_after_epoch
                else f"within a buffer of {self.initial_fill:,} samples"
            )  # fmt: skip
            found.append(f"the {self.dali_reader} reader shuffles {what}; ids are positions in its order")
        if self.last_batch_policy == "partial" and not self.pad_last_batch:
            found.append(
                "PARTIAL without pad_last_batch cuts the last batch by its own count while the reader reads "
                "on: "
                "the samples cut off are lost and later epochs start too far on"
            )
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        if not found & {"empty batches", "batches of copies"}:
            return []
        # They come up where the smaller shards fill their last batch exactly and the larger ones need
        # another.
        n, batch = total(shard_samples), world.batch_size
        small, large = n // world.ranks, -(-n // world.ranks)
        ways = []
        for other in (*range(batch - 1, 0, -1), *range(batch + 1, 2 * batch)):
            if -(-small // other) == -(-large // other):
                ways.append(f"--batch-size {other}: {-(-large // other):,} batches on every rank, none empty")
                break
        ways.append(f"{small * world.ranks:,} samples (leave {n % world.ranks:,} out): all shards equal")
        return ways

    def alternatives(self) -> list[tuple[str, Loader]]:
        plain = replace(self, last_batch_policy="partial", pad_last_batch=True)
        filled = replace(self, last_batch_policy="fill", pad_last_batch=True)
        return [
            ("--pad-last-batch --last-batch-policy partial", plain),
            ("--pad-last-batch --last-batch-policy fill", filled),
        ]
