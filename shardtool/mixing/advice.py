"""What to do about it: the smallest buffer for a target, its memory, or one repack; and one sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..base.units import show_count, show_size
from .closed_forms import Setting, buffer_for, forecast

# A buffer is called cheap up to here: memory of one worker, or its share of the data where sample sizes are unknown.
CHEAP_BYTES = 4 << 30
CHEAP_SHARE = 0.05


@dataclass(frozen=True)
class Fix:
    """One way out.

    action      'none', 'shuffle-shards', 'buffer', 'shuffle-shards+buffer', 'repack'
    buffer      samples it needs
    bytes       memory of all buffers at the mean sample size; for 'repack' the bytes read and written once
    score, deff forecast behind it
    """

    action: str
    buffer: int | None
    bytes: int | None
    score: float | None
    deff: float | None
    cost: str


@dataclass(frozen=True)
class Advice:
    """The verdict on a pipeline: the fix taken and all others, cheapest first."""

    target: float
    fix: Fix
    others: list[Fix]
    sentence: str


@dataclass(frozen=True)
class Costs:
    """mean_bytes of a sample (None: unknown), buffers of the whole job, whether shards exist and can be reordered."""

    mean_bytes: float | None
    buffers: int
    can_shuffle_shards: bool
    can_size_buffer: bool


def fixes(s: Setting, costs: Costs, target: float) -> list[Fix]:
    """All that reach `target`, cheapest first; a repack always does."""
    found: list[Fix] = []
    more_shards = not s.shuffled and costs.can_shuffle_shards and s.shard < s.n
    if more_shards:
        random = forecast(replace(s, shuffled=True))
        if random.score is not None and random.score >= target:
            found.append(Fix("shuffle-shards", s.buffer, 0, random.score, random.deff, "nothing"))
    if costs.can_size_buffer:
        for shuffled in (s.shuffled, True) if more_shards else (s.shuffled,):
            asked = replace(s, shuffled=shuffled)
            buffer = buffer_for(asked, target)
            if buffer is not None and buffer > s.buffer:
                after = forecast(replace(asked, buffer=buffer))
                action = "buffer" if shuffled == s.shuffled else "shuffle-shards+buffer"
                memory = None if costs.mean_bytes is None else round(buffer * costs.mean_bytes * costs.buffers)
                found.append(Fix(action, buffer, memory, after.score, after.deff, _memory(buffer, costs, s.n)))
        found.sort(key=lambda fix: (fix.buffer or 0, fix.action != "buffer"))
    moved = None if costs.mean_bytes is None else round(2 * s.n * costs.mean_bytes)
    cost = "the data read and written once" if moved is None else f"{show_size(moved // 2)} read and written once"
    found.append(Fix("repack", s.buffer, moved, 100.0, 1.0, cost))
    return found


def _memory(buffer: int, costs: Costs, n: int) -> str:
    if costs.mean_bytes is None:
        return f"{100 * buffer * costs.buffers / n:.2g} % of the data held in memory"
    return f"{show_size(round(buffer * costs.mean_bytes))} of memory" + _times(costs.buffers)


def _times(buffers: int) -> str:
    return f" in each of {show_count(buffers)} workers" if buffers > 1 else ""


def advise(s: Setting, costs: Costs, target: float, score: float, deff: float | None, measured: bool) -> Advice:
    """`score` and `deff` of the pipeline as it is; `measured`: deff is of real labels, no worst case."""
    batch = s.batch * s.ranks
    every = fixes(s, costs, target)
    if score >= target - 0.5:
        fix = Fix("none", s.buffer, 0, score, deff, "nothing")
        if deff is None or deff < 1.15:
            return Advice(target, fix, every, f"Well mixed: {show_score(score)} of 100. Nothing to do.")
        worth = show_worth(batch / deff)
        if measured:
            return Advice(target, every[-1], every[:-1], (
                f"Neighbours are apart ({show_score(score)} of 100), but a batch of {show_count(batch)} is still worth "
                f"only {worth}: classes lie together in the shards. Repack once ({every[-1].cost}): then it is worth "
                f"{show_count(batch)} with any buffer."
            ))  # fmt: skip
        return Advice(target, fix, every, (
            f"Well mixed: {show_score(score)} of 100. If the shards hold one class each, a batch of "
            f"{show_count(batch)} is still worth only {worth}; a repack ({every[-1].cost}) makes it "
            f"{show_count(batch)} with any buffer."
        ))  # fmt: skip
    fix = next((f for f in every if f.action != "repack" and _cheap(f, s, costs)), every[-1])
    others = [f for f in every if f is not fix]
    return Advice(target, fix, others, _sentence(fix, others, score, target, batch))


def _cheap(fix: Fix, s: Setting, costs: Costs) -> bool:
    if fix.action == "shuffle-shards":
        return True
    if fix.bytes is not None:
        return fix.bytes / costs.buffers <= CHEAP_BYTES
    return (fix.buffer or 0) * costs.buffers <= CHEAP_SHARE * s.n


def _sentence(fix: Fix, others: list[Fix], score: float, target: float, batch: int) -> str:
    now = f"Mixed to {show_score(score)} of 100."
    goal = f"{show_score(fix.score or 0)} of 100"
    if fix.action == "repack":
        least = next((f for f in others if f.buffer is not None and f.action != "shuffle-shards"), None)
        if least is None:
            why = f"no buffer below the whole set reaches {target:g}"
        else:
            order = "random shard order and " if least.action == "shuffle-shards+buffer" else ""
            why = f"{target:g} would need {order}a buffer of {show_count(least.buffer or 0)} samples ({least.cost})"
        return f"{now} Repack once ({fix.cost}): 100 of 100 with any buffer. Otherwise {why}."
    do = {
        "shuffle-shards": "Shuffle the order of the shards (costs nothing)",
        "buffer": f"Use a buffer of {show_count(fix.buffer or 0)} samples ({fix.cost})",
        "shuffle-shards+buffer": "Shuffle the order of the shards and use a buffer of "
        f"{show_count(fix.buffer or 0)} samples ({fix.cost})",
    }[fix.action]
    repack = others[-1].cost if others and others[-1].action == "repack" else "the data read and written once"
    worth = ""
    if fix.deff is not None and fix.deff > 1.15:
        worth = f", and a batch of {show_count(batch)} worth {show_count(batch)} instead of " + show_worth(
            batch / fix.deff
        )
    return f"{now} {do}: {goal}. Or repack once ({repack}): 100 with any buffer{worth}."


def show_score(score: float) -> str:
    """'63', '9.4', '99.6': one decimal where a whole number would say too little; 100 only from 99.95 on."""
    score = min(100.0, max(0.0, score))
    return f"{score:.0f}" if 10 <= score < 99.5 or score >= 99.95 else f"{score:.1f}"


def show_worth(batch: float) -> str:
    """'19', '2.7'"""
    return f"{batch:.1f}" if batch < 10 else f"{batch:,.0f}"
