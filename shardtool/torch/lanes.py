"""What one worker of one rank reads: blocks of its steps, each read at once and delivered batch by batch. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.seeds import named_stream
from ..disk.samples import SampleReader
from ..schedule.epoch_order import EpochOrder
from .decode import Decoder, apply

Sample = dict[str, Any]


@dataclass(frozen=True)
class Lane:
    """A worker of a rank."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1


@dataclass
class LaneReader:
    """Batches of a lane in one epoch.

    A block is a window of every split that the lane reads: as many samples as `buffer` (rounded up to whole steps),
    per split. `most_held` is the largest number of bytes of a block so far.

    extras    which of '__id__' (stored number) and '__seed__' (64 bits of seed, epoch and number: the same in every
              world and after every restart) go into the samples
    """

    reader: SampleReader
    order: EpochOrder
    lane: Lane
    decoders: Mapping[str, Decoder]
    extras: frozenset[str] = frozenset()
    most_held: int = 0

    def batches(self, step: int) -> Iterator[tuple[int, list[Sample]]]:
        """(step, samples) of `step` and every `workers`-th after it; raises DataError for damage."""
        splits, lane = self.order.splits, self.lane
        until = splits.steps(lane.rank, lane.ranks)
        block = self.order.window // splits.share * splits.turns
        while step < until:
            end = min((step // block + 1) * block, until)
            steps = np.arange(step, end, lane.workers, dtype=np.int64)
            split, row, sizes = splits.take(steps, lane.rank, lane.ranks)
            ids = self.order.ids(split, row)[0]
            fetched = self.reader.fetch(ids)
            self.most_held = max(self.most_held, fetched.held)
            numbers, at = ids.tolist() if self.decoders or self.extras else [], 0
            for size in sizes.tolist():
                samples = fetched.take(at, at + size)
                for sample, number in zip(samples, numbers[at : at + size], strict=False):
                    self._finish(sample, number)
                yield step, samples
                at += size
                step += lane.workers
            del fetched  # before the next block is read

    def _finish(self, sample: Sample, number: int) -> None:
        if self.decoders:
            apply(sample, self.decoders, number)
        if self.extras:
            if "__id__" in self.extras:
                sample["__id__"] = number
            if "__seed__" in self.extras:
                sample["__seed__"] = named_stream(self.order.seed, "sample", self.order.epoch, number)
