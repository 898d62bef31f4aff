"""Grain 0.2.18: DataLoader with IndexSampler or SequentialSampler, one process a rank.

Read from `grain/_src/core/sharding.py` (`even_split`), `grain/_src/python/samplers.py` and
`grain/_src/python/data_loader.py` (`_SamplerMapDataset`). The sampler's numbers 0..n-1 are dealt to the W ranks in
turn, n // W to each; what is left over is delivered to nobody. SequentialSampler reads record i for number i;
IndexSampler cuts the records into W contiguous pieces and reads record i // W of the rank's own, shuffled within the
piece. Worker w of k takes every k-th of its rank's numbers and makes batches of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..base.cuts import equal_cut, front_cut, stride_size
from ..schedule.counts import Counts, count_iterable
from ..schedule.schedule import Reading, Schedule
from ..schedule.world import World
from .base import Loader, total

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grain(Loader):
    """sampler: IndexSampler or SequentialSampler with num_epochs=1; drop_remainder: of ShardOptions and
    ShardByJaxProcess; shuffled: `shuffle` of IndexSampler; drop_last: `drop_remainder` of Batch."""

    name: ClassVar[str] = "grain"
    # None of mixing.shuffles: 'grain-map' shuffles over everything, IndexSampler within a rank's piece.
    shuffles: ClassVar[str | None] = None
    release: ClassVar[str] = "grain 0.2.18"

    sampler: Literal["index", "sequential"] = "index"
    drop_remainder: bool = False
    shuffled: bool = field(default=False, metadata={"flag": "shuffle"})
    drop_last: bool = False

    def check(self, shard_samples: I64, world: World) -> None:
        if self.shuffled and self.sampler == "sequential":
            self.refuse("SequentialSampler has no shuffle", "give --sampler index")

    def _start(self, n: int, ranks: int, rank: I64) -> I64:
        """First record of every rank's piece."""
        return (equal_cut if self.drop_remainder else front_cut)(n, ranks, rank)

    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        self.check(shard_samples, world)
        n, ranks, lanes = total(shard_samples), world.ranks, world.lanes_per_rank
        each = n // ranks
        rank = np.arange(ranks, dtype=np.int64)[:, None]
        lane = np.arange(lanes, dtype=np.int64)[None, :]
        pieces = np.maximum(stride_size(each, lanes, lane), 0) + 0 * rank
        first = lane * ranks + rank if self.sampler == "sequential" else self._start(n, ranks, rank) + lane
        left = bool(n % ranks and not self.drop_remainder) or (
            self.drop_last and bool((pieces % world.batch_size).any())
        )
        return count_iterable(
            pieces, world, epochs, drop_last=self.drop_last, first=first, shard=rank + 0 * lane,
            epoch_opaque=self.shuffled and left,
        )  # fmt: skip

    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        self.check(shard_samples, world)
        n, ranks, lanes = total(shard_samples), world.ranks, world.lanes_per_rank

        def lane(rank: int, worker: int) -> Reading:
            place = np.arange(worker, n // ranks, lanes, dtype=np.int64)
            if self.sampler == "sequential":
                ids = place * ranks + rank
            else:
                ids = place + self._start(n, ranks, np.array(rank))
            return Reading.of(ids, world.batch_size, drop_last=self.drop_last)

        return Schedule(world, lane, self.shuffled)

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        n, ranks = total(shard_samples), world.ranks
        found = []
        if n % ranks:
            found.append(f"every rank delivers {n // ranks:,} records; {n % ranks:,} more are delivered to nobody")
        if self.sampler == "index" and ranks > 1:
            found.append(
                "a rank reads its own contiguous piece in every epoch"
                + (", shuffled within it: ids are positions in that order" if self.shuffled else "")
            )
        elif self.shuffled:
            found.append("ids are positions in the shuffled order")
        return found

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        return ["--drop-last"] if "uneven" in found and not self.drop_last else []

    def alternatives(self) -> list[tuple[str, Loader]]:
        return [("--drop-last", replace(self, drop_last=True))]

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        if self.sampler == "sequential" and world.lanes_per_rank == 1:
            return True, 1, "rank r takes every world-size-th record, so a step is the next global batch"
        return False, 1, "each world size cuts the records into other pieces"
