"""Which numbers of ranks and workers keep the same global batches, and what a resume on each would cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import UsageError
from ..loaders.base import Loader
from ..schedule.schedule import Schedule
from ..schedule.world import World

I64 = npt.NDArray[np.int64]

# A resume is counted from real ids up to this many samples; above, only where it is known without counting.
MOST_COUNTED = 1 << 18


@dataclass(frozen=True)
class ElasticRow:
    """One (ranks, workers): whether the loader accepts it, batches per rank, whether global steps stay the
    same ones (when compared in groups of `in_steps_of`), and what resuming there after `resume_step` steps of
    the planned world, in the middle of its epoch, would skip or read again (None: not counted)."""

    ranks: int
    workers: int
    valid: bool
    batch_size: int | None
    batches: list[int] | None
    same_global_batches: bool
    in_steps_of: int
    hang: bool | None
    resume_step: int | None
    resume_skipped: int | None
    resume_repeated: int | None
    reason: str

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def elastic_rows(
    loader: Loader, shard_samples: I64, world: World, ranks: list[int], workers: list[int] | None
) -> list[ElasticRow]:
    """Rows for every wished number of ranks and of workers (None: as planned), with the global batch kept."""
    if not ranks:
        return []
    base_batch = loader.global_batch(world)
    rows = []
    for many in ranks:
        for lanes in [world.workers_per_rank] if workers is None else workers:
            rows.append(_row(loader, shard_samples, world, base_batch, many, lanes))
    return rows


def _row(loader: Loader, shard_samples: I64, base: World, batch: int, ranks: int, workers: int) -> ElasticRow:
    if batch % ranks:
        return _invalid(ranks, workers, f"the global batch {batch:,} is no multiple of {ranks:,} ranks")
    world = World(ranks, base.ranks_per_node, workers, batch // ranks)
    fixed = loader.fix(base)
    try:
        fixed.check(shard_samples, world)
        counts = fixed.counts(shard_samples, world)
    except UsageError as error:
        return _invalid(ranks, workers, error.what)
    batches = counts.of_rank("batches")[0]
    low, high = int(batches.min()), int(batches.max())
    same, steps, why = fixed.steps_follow(world, batch)
    same_base, base_steps, base_why = fixed.steps_follow(
        replace(base, batch_size=max(batch // base.ranks, 1)), batch
    )
    if (ranks, workers) == (base.ranks, base.workers_per_rank):
        same, steps, why = True, 1, "the planned world"
    elif not same_base:
        same, why = False, base_why
    step, skipped, again = _resume(fixed, shard_samples, base, world, batch, same, max(steps, base_steps))
    return ElasticRow(
        ranks, workers, True, world.batch_size, [low, high], same, max(steps, base_steps) if same else 1,
        ranks > 1 and low != high, step, skipped, again, why,
    )  # fmt: skip


def _invalid(ranks: int, workers: int, reason: str) -> ElasticRow:
    return ElasticRow(ranks, workers, False, None, None, False, 1, None, None, None, None, reason)


def _resume(
    loader: Loader, shard_samples: I64, base: World, world: World, batch: int, same: bool, steps: int
) -> tuple[int | None, int | None, int | None]:
    """(step, samples never read, samples read twice) when a run of `base` stops in the middle of its epoch
    and one of `world` goes on with the same step of its own order."""
    before = replace(base, batch_size=max(batch // base.ranks, 1))
    try:
        loader.check(shard_samples, before)
        many = int(loader.counts(shard_samples, before).of_rank("batches")[0].min())
    except UsageError:
        return None, None, None
    step = many // 2 // steps * steps
    if loader.resumes_exactly or (before.ranks, before.workers_per_rank) == (
        world.ranks,
        world.workers_per_rank,
    ):
        return step, 0, 0
    n = int(shard_samples.sum())
    if n > MOST_COUNTED:
        return (step, 0, 0) if same else (step, None, None)
    try:
        first, second = loader.split(shard_samples, before), loader.split(shard_samples, world)
    except UsageError:
        return step, None, None
    done, ahead = np.zeros(n, np.int64), np.zeros(n, np.int64)
    _mark(done, first, before, 0, step)
    _mark(ahead, second, world, step, None)
    whole = np.zeros(n, np.int64)
    _mark(whole, first, before, 0, None)
    # samples that an undisturbed epoch drops or pads are not the resume's fault
    reachable = whole > 0
    skipped = int((reachable & (done + ahead == 0)).sum())
    return step, skipped, int(((done > 0) & (ahead > 0)).sum())


def _mark(seen: I64, schedule: Schedule, world: World, first: int, last: int | None) -> None:
    """Counts ids of batches first..last-1 of every rank, padding left out."""
    for rank in range(world.ranks):
        reading = schedule.rank(rank)
        ends = np.concatenate([[0], np.cumsum(reading.batches)])
        lo = int(ends[min(first, len(ends) - 1)])
        hi = int(ends[-1 if last is None else min(last, len(ends) - 1)])
        np.add.at(seen, reading.ids[lo:hi][~reading.padding[lo:hi]], 1)
