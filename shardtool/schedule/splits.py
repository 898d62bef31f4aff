"""Splits: fixed pieces of an epoch's order, from which every global batch takes the same rows in every world.

    n samples   count S of splits   turns P: a split is used in every P-th step   G samples a global batch

A split has a slot a = s // P in the batch and a phase p = s % P: it serves steps t = p, p + P, p + 2P, ... There are
A = S / P slots, and a step takes q = G / A rows of each of them: step t = k*P + p takes rows k*q .. (k+1)*q of the
splits of phase p, slot after slot. Rank r of R delivers slots [r*A/R, (r+1)*A/R), so the batches of all ranks, one
after the other, are the same list in every world with A a multiple of R. Workers of a rank take its steps in turn,
as a torch DataLoader asks them; where P is a multiple of the workers each has splits of its own.

Splits have n // S rows; the n % S rows that are left go one each to the first splits in the order (phase, slot), so
that the epoch ends without a gap in the middle ('exact'), or are dropped ('drop'), or every split is filled up to
one row more with a copy of its first ('pad').
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..base.errors import UsageError
from .elastic import next_multiple

I64 = npt.NDArray[np.int64]
Policy = Literal["exact", "drop", "pad"]
POLICIES = ("exact", "drop", "pad")


@dataclass(frozen=True)
class Splits:
    """Raises UsageError for numbers that do not go together, naming the nearest that do."""

    samples: int
    count: int
    turns: int
    global_batch: int
    policy: Policy = "exact"

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"policy {self.policy!r} is none of {', '.join(POLICIES)}")
        for name, value in (
            ("num_splits", self.count), ("turns", self.turns), ("global batch", self.global_batch)
        ):  # fmt: skip
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if self.count % self.turns:
            raise UsageError(
                f"num_splits {self.count:,} is no multiple of turns {self.turns:,}",
                remedy=f"give num_splits {nearest(self.count, self.turns)}",
            )
        if self.global_batch % self.slots:
            raise UsageError(
                f"a global batch of {self.global_batch:,} samples is no multiple of {self.slots:,} splits",
                why=f"a step takes as many rows of each of {self.count:,} / {self.turns:,} splits",
                remedy=f"a global batch of {nearest(self.global_batch, self.slots)}, or num_splits "
                f"{divisors_near(self.global_batch, self.slots, self.turns)}",
            )
        if self.policy == "drop" and self.least == 0:
            raise UsageError(
                f"{self.samples:,} samples are fewer than {self.count:,} splits, so policy 'drop' leaves none",
                remedy=f"use at most {self.samples:,} splits (ranks x workers), or policy 'exact' or 'pad'",
            )

    @property
    def slots(self) -> int:
        """Splits that give rows to one step."""
        return self.count // self.turns

    @property
    def share(self) -> int:
        """Rows of one split in one step."""
        return self.global_batch // self.slots

    @property
    def least(self) -> int:
        """Rows that every split has."""
        return self.samples // self.count

    @property
    def left(self) -> int:
        """Rows beyond that: that many splits have one more; with 'drop' none has."""
        return 0 if self.policy == "drop" else self.samples - self.least * self.count

    def check_world(self, ranks: int) -> None:
        """Raises UsageError unless every rank gets whole splits and an equal part of the batch."""
        if self.slots % ranks:
            raise UsageError(
                f"{self.count:,} splits in {self.turns:,} turn(s) cannot be dealt to {ranks:,} ranks",
                why=f"{self.slots:,} splits a step are no multiple of {ranks:,}",
                remedy=f"give num_splits {nearest(self.count, ranks * self.turns)}, or use "
                f"{divisors_near(self.slots, ranks, 1)} ranks",
            )

    # -- one split ------------------------------------------------------------------------------------------------

    def real_rows(self, split: I64) -> I64:
        """Rows of every split that are no copies, int64[k]."""
        slot, phase = split // self.turns, split % self.turns
        return self.least + (phase * self.slots + slot < self.left)

    def rows(self, split: I64) -> I64:
        """Rows that every split delivers, int64[k]."""
        if self.policy == "pad":
            return np.full(np.shape(split), self.least + (self.left > 0), np.int64)
        return self.real_rows(split)

    def start(self, split: I64) -> I64:
        """Place of every split's row 0 in the epoch's order, int64[k]."""
        slot, phase = split // self.turns, split % self.turns
        full, some = divmod(self.left, self.slots)  # phases in which all slots have one more, and slots in the next
        before = slot * full + np.minimum(slot, some)  # of the slots before this one
        return split * self.least + before + np.minimum(phase, full) + ((phase > full) & (slot < some))

    # -- one rank -------------------------------------------------------------------------------------------------

    def per_rank(self, ranks: int) -> int:
        """Slots of a rank."""
        return self.slots // ranks

    @property
    def whole_turns(self) -> int:
        """Turns in which every split gives its full share."""
        return self.least // self.share

    def last_turn(self, rank: I64, ranks: int) -> tuple[I64, I64]:
        """(samples, of which copies) int64[k, turns] of every step of the turn after the whole ones, for ranks
        int64[k]."""
        mine, phase = self.per_rank(ranks), np.arange(self.turns, dtype=np.int64)
        # slots of the rank that have a row more in this phase: those below left - phase * slots
        more = np.clip(self.left - phase * self.slots - rank[:, None] * mine, 0, mine)
        rest = mine * (self.least % self.share)
        if self.policy == "pad" and self.left:
            return np.full_like(more, rest + mine), mine - more
        return rest + more, np.zeros_like(more)

    def steps(self, rank: int, ranks: int) -> int:
        """Batches that a rank delivers: it does steps 0..steps-1, without a gap."""
        samples, _ = self.last_turn(np.array([rank], np.int64), ranks)
        return self.whole_turns * self.turns + int((samples > 0).sum())

    def take(self, steps: I64, rank: int, ranks: int) -> tuple[I64, I64, I64]:
        """What a rank delivers in `steps` int64[k]: (split int64[m], row int64[m], samples of each step int64[k]), in
        order of delivery."""
        mine = self.per_rank(ranks)
        slot = np.arange(rank * mine, (rank + 1) * mine, dtype=np.int64)
        # [step, slot, row within the share]
        split = (slot[None, :] * self.turns + (steps % self.turns)[:, None])[:, :, None]
        row = (steps // self.turns * self.share)[:, None, None] + np.arange(self.share, dtype=np.int64)
        keep = row < self.rows(split)
        split, row = np.broadcast_arrays(split, row)
        return split[keep], row[keep], keep.sum(axis=(1, 2))


def nearest(value: int, unit: int) -> str:
    """'40 or 48': the multiples of `unit` next to a value."""
    above = next_multiple(max(value, 1), unit)
    below = above - unit
    return f"{below} or {above}" if below > 0 else f"{above}"


def divisors_near(value: int, near: int, times: int) -> str:
    """'12 or 16': the divisors of `value` next to `near`, each multiplied by `times`."""
    below = max((d for d in range(1, min(near, value) + 1) if value % d == 0), default=1)
    above = next((d for d in range(near, value + 1) if value % d == 0), None)
    found = sorted({below, above or below})
    return " or ".join(str(d * times) for d in found)
