"""Words and terminal pictures for `simulate`: every number with its two ends and what it means."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.units import plural, show_count, show_size
from ..jobs.simulate import Result
from ..mixing.advice import show_score, show_worth
from ..mixing.shuffles import KERNELS

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A number, its value at source order and at a full shuffle, and one sentence."""

    name: str
    value: str
    source: str
    full: str
    meaning: str


CLASS_WORDS = {
    "labels": "by the labels of the data",
    "shards": "worst case: if every shard held one class",
    "tenths": "assumed: a source sorted into ten classes",
}
KIND_WORDS = {"labels": "classes", "shards": "shards", "tenths": "tenths of the source"}


def pipeline_words(result: Result) -> list[str]:
    """What was simulated: loader, buffer, shard order, split, size."""
    pipe, stored = result.pipe, result.stored
    buffer = KERNELS[pipe.shuffle.kernel].words.format(buffer=show_count(pipe.buffer))
    if pipe.shuffle.kernel == "growing":
        buffer += f" (delivering from {show_count(pipe.initial)} on)"
    if pipe.shuffle.fixed_list:
        buffer += ", over a list of all samples that is shuffled once"
    lines = [f"{pipe.shuffle.library}: {buffer}"]
    shards = len(stored.shard_samples)
    if shards > 1 and pipe.shuffle.kernel not in ("full", "clumps"):
        order = "shards in random order" if pipe.shuffle_shards else "shards in stored order"
        if result.setting.gaps:
            order = f"shards shuffled through a buffer of {show_count(pipe.shuffle.shard_buffer or 0)} shards"
        if result.assumed_order:
            order += " (assumed: this loader's default)"
        if pipe.cycle > 1:
            order += f", {min(pipe.cycle, shards)} read in turn"
        lines.append(order)
    stored_words = f"{plural(stored.samples, 'sample')} in {plural(shards, 'shard')}"
    if stored.repacked:
        stored_words += ", repacked (the stored order is a full shuffle)"
    ranks = f"batches of {show_count(pipe.batch_size)}"
    if pipe.ranks > 1:
        ranks += f" on each of {pipe.ranks} ranks (a step: {show_count(result.step_batch)})"
    if pipe.lanes_per_rank > 1:
        ranks += f", {pipe.workers} workers a rank, each with its own buffer"
    elif pipe.workers > 1:
        ranks += "; workers are threads here and do not change the order"
    lines += [stored_words, ranks]
    if pipe.exact:
        lines.append(f"the real order of {pipe.shuffle.exact} with seed {pipe.seed}")
    if result.model:
        lines.append(result.model)
    return lines


def five_numbers(result: Result) -> list[Line]:
    """Mixing score, effective batch, same-shard pairs, classes per batch, epoch freshness; rank skew and more."""
    lines = [_score_line(result)]
    batch = show_count(result.step_batch)
    if result.effective_batch is not None:
        worth = show_worth(result.effective_batch)
        lines.append(Line(
            "Effective batch", f"{batch} -> {worth}", "1", batch,
            f"The mean of a batch of {batch} is as noisy as that of {worth} random samples "
            f"({CLASS_WORDS[result.classes_are]}).",
        ))  # fmt: skip
    lines += _pair_lines(result)
    if result.classes_mean is not None:
        kind = KIND_WORDS[result.classes_are]
        mean, expected = f"{result.classes_mean:,.1f}", f"{result.classes_expected:,.1f}"
        lines.append(Line(
            "Classes per batch", f"{mean} (worst {result.classes_worst})", "1", expected,
            f"A batch holds {mean} different {kind}, the poorest {result.classes_worst}, a random one {expected}.",
        ))  # fmt: skip
    if "freshness" in result.scores:
        fresh = result.scores["freshness"]
        lines.append(Line(
            "Epoch freshness", _times(fresh.value), _times(fresh.source), "1x",
            f"Two samples of a batch meet again in the next epoch {_times(fresh.value)} as often as by chance.",
        ))  # fmt: skip
    elif result.model_samples:
        lines.append(Line("Epoch freshness", "unknown", "-", "1x", "The loader's next epoch cannot be foretold."))
    return lines + _more_lines(result)


def _score_line(result: Result) -> Line:
    value = show_score(result.score)
    if result.score_sd is not None:
        value += f" (± {result.score_sd:.2g} over {result.trials} trials)"
    return Line(
        "Mixing score", value, "0", "100",
        "For any question about how near in the source two samples of a batch lay, the answer is within "
        f"{max(0.0, 100 - result.score):.1f} points of a full shuffle's.",
    )  # fmt: skip


def _pair_lines(result: Result) -> list[Line]:
    if "shards" not in result.scores:
        return []
    if len(result.stored.shard_samples) > 1:
        shards = result.scores["shards"]
        here = _share(shards.value)
        return [Line("Same-shard pairs", here, "100 %", _share(shards.full),
                     f"{here} of the pairs in a batch come from one shard.")]  # fmt: skip
    here = _share(result.median_distance or 0)
    return [Line("Distance of pairs", here, "0 %", "29.3 %",
                 f"Half of the pairs in a batch lay less than {here} of the data apart.")]  # fmt: skip


def _more_lines(result: Result) -> list[Line]:
    lines = []
    if "skew" in result.scores:
        worst, skew = result.scores["worst rank"], result.scores["skew"].value
        here = _share(worst.value)
        lines.append(Line(
            "Rank skew", here, _share(worst.source), _share(worst.full),
            f"{here} of the worst rank's samples would have to be others to match the whole "
            f"(design effect {skew:,.3g}, ideal 1).",
        ))  # fmt: skip
    if result.rank_score is not None:
        lines.append(Line("Score of one rank", show_score(result.rank_score), "0", "100",
                          "The mixing score of the batches that one rank sees."))  # fmt: skip
    if result.classes_are == "labels":
        runs = result.scores["runs"]
        lines.append(Line("Label runs", f"{runs.value:,.0f}", "-", f"{runs.full:,.0f}",
                          "Stretches of one label in the order of delivery."))  # fmt: skip
    if result.first_tenth is not None:
        here = _share(result.first_tenth)
        lines.append(Line("First tenth", here, "10 %", "100 %",
                          f"The first tenth of the epoch draws on {here} of the source."))  # fmt: skip
    if "entropy" in result.scores:
        bits = result.scores["entropy"]
        lines.append(Line("Entropy", f"{bits.value:.1f} bits", "0", f"{bits.full:.1f}",
                          "MosaicML's measure, to compare: logarithmic, small buffers look good in it."))  # fmt: skip
    return lines


def _share(value: float) -> str:
    percent = 100 * value
    if percent >= 99.95 or percent == 0:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.1f} %"


def _times(value: float) -> str:
    return f"{value:.1f}x" if value < 10 else f"{value:,.0f}x"


def flag(result: Result) -> str:
    """The line about 'indistinguishable from a full shuffle'."""
    if not result.tests:
        return "Too few samples for the tests against a full shuffle."
    if result.indistinguishable:
        return "Indistinguishable from a full shuffle at the 1 % level."
    p = result.tests[result.failed_test or ""]
    shown = f"p = {p:.1g}" if p > 1e-15 else "p < 1e-15"
    return f"Told apart from a full shuffle by: {result.failed_test} ({shown})."


def forecast_line(result: Result) -> str:
    """The closed form next to the simulation."""
    closed = result.closed
    if closed.score is None:
        return "No closed form for this pipeline."
    deff = "" if closed.deff is None else f", effective batch {show_worth(result.step_batch / max(1.0, closed.deff))}"
    return f"Closed form: score {show_score(closed.score)}{deff}."


def target_line(result: Result) -> str | None:
    """The answer to --target."""
    check = result.target_check
    if check is None:
        return None
    if check["buffer"] is None:
        return f"Target {check['score']:g}: no buffer below the whole set reaches it: repack."
    memory = ""
    if check["bytes"] is not None:
        memory = f", {show_size(check['bytes_per_worker'])} a worker"
        if result.buffers > 1:
            memory += f", {show_size(check['bytes'])} in all {result.buffers} buffers"
    seen = f" (simulated: {show_score(check['simulated_score'])})"
    return f"Target {check['score']:g}: a buffer of {show_count(check['buffer'])} samples{memory}{seen}."


# -- terminal pictures ----------------------------------------------------------------------------------------------

# From empty to four times an even density: dark blue, violet, orange, pale yellow (xterm-256 codes).
_RAMP = (17, 18, 54, 90, 126, 162, 198, 204, 210, 216, 222, 229)
_SHADES = " ░▒▓█"


def heat_lines(heat: F64, colour: bool) -> list[str]:
    """Source (downwards) against output position (to the right), two rows of `heat` in one line of half blocks;
    without colour one shade character for both."""
    lines = []
    for top, bottom in zip(heat[0::2], heat[1::2], strict=True):
        if colour:
            cells = (f"\x1b[38;5;{_code(a)};48;5;{_code(b)}m▀" for a, b in zip(top, bottom, strict=True))
            lines.append("".join(cells) + "\x1b[0m")
        else:
            mean = (top + bottom) / 2
            lines.append("".join(_SHADES[min(4, round(2 * float(v)))] for v in mean))
    return lines


def _code(value: float) -> int:
    return _RAMP[min(len(_RAMP) - 1, int(value / 4 * len(_RAMP)))]


def wants_colour(stream_is_terminal: bool) -> bool:
    """https://no-color.org"""
    return stream_is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def curve_lines(result: Result, rows: int = 9, width: int = 40) -> list[str]:
    """Score against buffer as bars, with the memory of one buffer."""
    points = [p for p in result.curve if p["score"] is not None]
    if len(points) < 2:
        return []
    step = max(1, len(points) // rows)
    chosen = points[::step]
    for must in [p for p in points if p["buffer"] == result.pipe.buffer] + [points[-1]]:
        if must not in chosen:
            chosen.append(must)
    chosen.sort(key=lambda p: int(p["buffer"]))
    label = max(len(show_count(p["buffer"])) for p in chosen)
    lines = []
    for p in chosen:
        bar = "█" * round(p["score"] / 100 * width)
        memory = "" if p["bytes"] is None else f"  {show_size(p['bytes'])}"
        mark = " <- here" if p["buffer"] == result.pipe.buffer else ""
        lines.append(f"{show_count(p['buffer']):>{label}}  {bar:<{width}} {show_score(p['score']):>4}{memory}{mark}")
    return lines
