"""What the counts of a run mean: does it hang, what is lost, what is repeated, and in which epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .counts import I64, Counts
from .words import percent, spans
from .world import World

# What `--fail-on` knows.
FINDINGS = ("hang", "empty", "uneven", "lost", "repeated")


@dataclass(frozen=True)
class Verdict:
    """hang: some rank waits for ever in a collective operation. lost, repeated: int64[epoch]: samples that
    nobody delivers in that epoch, and deliveries beyond the first of a sample (padding included), so that
    delivered + lost - repeated = samples. reasons: one sentence each, with numbers."""

    hang: bool
    uneven_batches: bool
    empty_ranks: list[int]
    empty_workers: list[list[int]]
    lost: I64
    repeated: I64
    reasons: list[str] = field(default_factory=list)

    @property
    def found(self) -> set[str]:
        """Names of FINDINGS that hold."""
        holds = {
            "hang": self.hang,
            "empty": bool(self.empty_ranks or self.empty_workers),
            "uneven": self.uneven_batches,
            "lost": bool(self.lost.any()),
            "repeated": bool(self.repeated.any()),
        }
        return {name for name, yes in holds.items() if yes}

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {
            "hang": self.hang,
            "uneven_batches": self.uneven_batches,
            "empty_ranks": self.empty_ranks,
            "empty_workers": self.empty_workers,
            "lost_samples": self.lost.tolist(),
            "repeated_samples": self.repeated.tolist(),
            "reasons": self.reasons,
        }


def judge(counts: Counts, n: int, world: World, workers: bool) -> Verdict:
    """The verdict on `counts` of n samples; `workers`: lanes are worker processes that can be idle."""
    samples, batches = counts.of_rank("samples"), counts.of_rank("batches")
    delivered = samples.sum(axis=1)
    lost, repeated = n - counts.distinct, delivered - counts.distinct
    uneven = batches.min(axis=1) != batches.max(axis=1)
    empty_ranks = np.flatnonzero((samples == 0).any(axis=0)).tolist()
    idle = (counts.samples == 0).any(axis=0) if workers else np.zeros((0, 0), bool)
    empty_workers = np.argwhere(idle).tolist()
    several = world.ranks > 1
    hang = several and bool(uneven.any() or (empty_ranks and samples.any()))
    reasons = [
        *_batch_reasons(batches, uneven, empty_ranks, empty_workers, counts, world),
        *_sample_reasons(counts, n, lost, repeated),
    ]
    return Verdict(hang, several and bool(uneven.any()), empty_ranks, empty_workers, lost, repeated, reasons)


def _epochs_of(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """'every epoch', 'epoch 2', 'epochs 1-2'"""
    numbers = np.flatnonzero(mask).tolist()
    if len(numbers) == len(mask):
        return "every epoch" if len(mask) > 1 else "the epoch"
    return f"epoch{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _batch_reasons(
    batches: I64,
    uneven: Any,
    empty_ranks: list[int],
    empty_workers: list[list[int]],
    counts: Counts,
    world: World,
) -> list[str]:
    found = []
    if empty_ranks:
        found.append(
            f"{len(empty_ranks):,} of {world.ranks:,} ranks get no data ({spans(empty_ranks)})"
            + (": the others wait for them in the first all-reduce" if world.ranks > 1 else "")
        )
    if world.ranks > 1 and uneven.any():
        at = int(np.flatnonzero(uneven)[0])
        low, high = int(batches[at].min()), int(batches[at].max())
        few = np.flatnonzero(batches[at] < high).tolist()
        who = f"ranks {spans(few)} stop" if len(few) > 1 else f"rank {few[0]} stops"
        found.append(
            f"ranks deliver {low:,} to {high:,} batches in {_epochs_of(uneven)}: {who} first, the others "
            f"wait in the "
            "all-reduce"
        )
    if empty_workers:
        lanes = counts.samples.shape[1] * counts.samples.shape[2]
        found.append(f"{len(empty_workers):,} of {lanes:,} workers have nothing to read")
    for name, words in (
        ("zero_batches", "hold no sample at all"),
        ("copy_batches", "hold nothing but copies"),
    ):
        array = getattr(counts, name)
        if array.any():
            ranks = np.flatnonzero(array.any(axis=0)).tolist()
            found.append(
                f"{int(array[array.any(axis=1)][0].sum()):,} batches {words} in "
                f"{_epochs_of(array.any(axis=1))} "
                f"(first seen on ranks {spans(np.flatnonzero(array[array.any(axis=1)][0]).tolist())}, "
                f"{len(ranks):,} ranks in all)"
            )
    return found


def _sample_reasons(counts: Counts, n: int, lost: I64, repeated: I64) -> list[str]:
    found = []
    about = "about " if counts.expected else ""
    for array, words in ((lost, "are not read"), (repeated, "are delivered again")):
        if array.any():
            low, high = int(array[array > 0].min()), int(array.max())
            many = f"{high:,}" if low == high else f"{low:,} to {high:,}"
            found.append(
                f"{about}{many} of {n:,} samples ({percent(high, n)}) {words} in {_epochs_of(array > 0)}"
            )
    dropped = counts.of_rank("dropped").sum(axis=1)
    if dropped.any():
        found.append(f"{int(dropped.max()):,} of them because short last batches are dropped")
    if counts.epochs > 1:
        ever = counts.distinct_ever
        if ever is None:
            found.append("which samples are left out changes from epoch to epoch with the shuffle")
        elif ever < n:
            found.append(f"{about}{n - ever:,} samples are not read in any of {counts.epochs:,} epochs")
        batches = counts.of_rank("batches")
        if (batches != batches[0]).any():
            per_epoch = ", ".join(f"{int(b):,}" for b in batches.max(axis=1)[:6].tolist())
            found.append(f"the number of batches changes with the epoch: {per_epoch}")
    return found
