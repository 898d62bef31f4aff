"""The four figures, drawn with matplotlib (the extra `figures`): one image file, or one SVG each for the page."""

from __future__ import annotations

import importlib.util
import io
import os
from typing import TYPE_CHECKING, Any

from ..base.errors import HostError, UsageError
from ..base.units import show_count, show_size
from ..jobs.simulate import Result
from ..mixing.advice import show_score
from .mixing import CLASS_WORDS, KIND_WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY, GREEN, ORANGE, INK = "#1f5fa8", "#777777", "#1c7c3c", "#d9730d", "#222222"
STYLE = {
    "font.size": 10.5, "axes.titlesize": 11.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.edgecolor": "#999999", "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "svg.fonttype": "path",
    "svg.hashsalt": "shardtool", "figure.facecolor": "white",
}  # fmt: skip
FIGURES = ("heatmap", "strip", "distances", "curve")
TITLES = {
    "heatmap": "Where in the source the epoch draws from",
    "strip": "What the batches hold",
    "distances": "How near two samples of a batch lay",
    "curve": "Mixing score by buffer",
}


def check_figure_request(path: str | None) -> None:
    """Before the work: is there a plotting library, is the name one we can write? Raises UsageError."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "--figure and --html draw with matplotlib, which is not installed",
            remedy="pip install 'shardtool[figures]', or look at the terminal pictures with --picture always",
        )
    if path is not None and os.path.splitext(path)[1].lower() not in (".png", ".svg"):
        raise UsageError(f"--figure {path}: only .png and .svg can be written")


def save_figure(result: Result, path: str) -> None:
    """All four in one image. Raises HostError when it cannot be written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 9.2), layout="constrained")
        axes = figure.subplots(2, 2)
        for ax, name in zip(axes.flat, FIGURES, strict=True):
            draw(name, result, ax, figure)
        figure.suptitle(f"{result.pipe.shuffle.library}: mixing score {show_score(result.score)} of 100", fontsize=14)
        data = _render(figure, "svg" if path.lower().endswith(".svg") else "png")
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise HostError(f"cannot write the figure: {error.strerror}", file=path) from error


def figure_svg(name: str, result: Result) -> bytes:
    """One figure as a standalone SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 4.6), layout="constrained")
        draw(name, result, figure.subplots(), figure)
        return _render(figure, "svg")


def _render(figure: Figure, kind: str) -> bytes:
    out = io.BytesIO()
    # No date: the same numbers give the same file.
    figure.savefig(out, format=kind, dpi=140, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return out.getvalue()


def draw(name: str, result: Result, ax: Axes, figure: Figure) -> None:
    """One figure into `ax`."""
    {"heatmap": _heatmap, "strip": _strip, "distances": _distances, "curve": _curve}[name](result, ax, figure)
    ax.set_title(TITLES[name])


def _heatmap(result: Result, ax: Axes, figure: Figure) -> None:
    """128 x 128 density, colour capped at four times an even draw."""
    assert result.heat is not None
    image = ax.imshow(
        result.heat, origin="lower", aspect="auto", extent=(0, 100, 0, 100), cmap="magma_r", vmin=0, vmax=4,
        interpolation="none",
    )  # fmt: skip
    ax.set_xlabel("position in the epoch (%)")
    ax.set_ylabel("position in the source (%)")
    bar = figure.colorbar(image, ax=ax, shrink=0.8, ticks=[0, 1, 2, 3, 4])
    bar.ax.set_yticklabels(["0", "1 = even", "2", "3", "4+"])
    bar.outline.set_visible(False)


def _strip(result: Result, ax: Axes, figure: Figure) -> None:
    """About 120 batches as columns of stacked shares."""
    import matplotlib as mpl
    import numpy as np

    assert result.strip is not None
    shares = result.strip  # [columns, kinds]
    kinds = shares.shape[1]
    colours = mpl.colormaps["tab10" if kinds <= 10 else "tab20"].colors
    # A picture of 300 rows instead of a thousand bars: [rows, columns] number of the class whose share is there.
    level = (np.arange(300) + 0.5) / 300
    kind = (np.cumsum(shares, axis=1)[None, :, :] <= level[:, None, None]).sum(axis=2).clip(0, kinds - 1)
    image = np.array(colours)[kind % len(colours)]  # [rows, columns, rgb]
    ax.imshow(image, origin="lower", aspect="auto", extent=(0, 100, 0, 100), interpolation="none")
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    what = KIND_WORDS[result.classes_are] if result.classes_are == "labels" and kinds <= 20 else "tenths of the source"
    ax.set_xlabel(f"batches over the epoch (%); colours: {what}")
    ax.set_ylabel("share of the batch (%)")


def _distances(result: Result, ax: Axes, figure: Figure) -> None:
    """Share of pairs closer than a distance, log axis; the plateau at one shard is the share of same-shard pairs."""
    assert result.distances is not None
    curve = result.distances
    ax.plot(curve.distance, 100 * curve.share, color=BLUE, linewidth=2.2, label="this pipeline")
    ax.plot(curve.distance, 100 * curve.full, color=INK, linewidth=1.2, linestyle="--", label="full shuffle")
    ax.set_xscale("log")
    ax.set_ylim(-2, 102)
    ax.set_xlabel("distance in the source between two samples of a batch")
    ax.set_ylabel("pairs closer than that (%)")
    if len(result.stored.shard_samples) > 1 and not result.model:
        shard = int(result.stored.shard_samples.max())
        ax.axvline(shard, color=GREY, linewidth=1, linestyle=":")
        words = "one shard"
        if "shards" in result.scores:
            words += f"\n{100 * result.scores['shards'].value:.2g} % of the pairs"
        right = shard**4 < curve.distance[-1] ** 3  # room for the words
        ax.annotate(words, (shard, 55), xytext=(6 if right else -6, 0), textcoords="offset points", color=GREY,
                    ha="left" if right else "right", fontsize=9.5)  # fmt: skip
    ax.grid(alpha=0.25)
    ax.legend(loc="upper left")


def _curve(result: Result, ax: Axes, figure: Figure) -> None:
    """Score against buffer with memory on top, the setting, the fix, and what a repack gives."""
    points = [p for p in result.curve if p["score"] is not None]
    ax.axhline(100, color=GREEN, linewidth=2, label="repacked, any buffer")
    ax.set_ylim(-2, 106)
    ax.set_ylabel("mixing score")
    if not points:
        ax.set_xticks([])
        ax.set_xlabel("this shuffle has no buffer size, or no closed form")
        ax.plot([0.5], [result.score], "o", color=BLUE, markersize=9, label=f"here: {show_score(result.score)}")
        ax.legend(loc="lower right")
        return
    buffers = [p["buffer"] for p in points]
    ax.plot(buffers, [p["score"] for p in points], color=BLUE, linewidth=2.2, label="mixing score")
    worth = [(p["buffer"], 100 / max(1.0, p["deff"])) for p in points if p["deff"] is not None]
    if worth:
        ax.plot(*zip(*worth, strict=True), color=BLUE, linewidth=1, alpha=0.6,
                label=f"effective batch, % of {show_count(result.step_batch)}")  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlabel("buffer (samples)")
    ax.grid(alpha=0.25)
    _shard_dots(result, ax, points)
    if not result.pipe.exact or result.pipe.buffer in buffers:
        ax.plot([result.pipe.buffer], [result.score], "o", color=ORANGE, markersize=9, zorder=5,
                label=f"here: {show_count(result.pipe.buffer)} -> {show_score(result.score)}")  # fmt: skip
    fix = None if result.advice is None else result.advice.fix
    if fix is not None and fix.buffer and fix.buffer != result.pipe.buffer and fix.score is not None:
        ax.plot([fix.buffer], [fix.score], "*", color=GREEN, markersize=15, zorder=5,
                label=f"advised: {show_count(fix.buffer)} -> {show_score(fix.score)}")  # fmt: skip
    # Curves rise to the right: the words go below a high end, else beside a low beginning, never on the line at 100.
    if points[len(points) * 2 // 3]["score"] > 55:
        ax.legend(loc="lower right", bbox_to_anchor=(1, 0.07), fontsize=9)
    else:
        ax.legend(loc="upper left", bbox_to_anchor=(0.01, 0.9), fontsize=9)
    if result.stored.mean_bytes is not None:
        _memory_axis(result, ax)


def _shard_dots(result: Result, ax: Axes, points: list[dict[str, Any]]) -> None:
    import numpy as np

    if len(result.stored.shard_samples) < 2:
        return
    size = result.stored.samples / len(result.stored.shard_samples)
    x, y = np.log([p["buffer"] for p in points]), [p["score"] for p in points]
    for count in (1, 10):
        at = count * size
        if points[0]["buffer"] <= at <= points[-1]["buffer"]:
            score = float(np.interp(np.log(at), x, y))
            ax.plot([at], [score], "o", color=INK, markersize=5, zorder=4)
            words = "1 shard" if count == 1 else "10 shards"
            ax.annotate(f"{words}: {show_score(score)}", (at, score), xytext=(7, -12), textcoords="offset points",
                        fontsize=9)  # fmt: skip


def _memory_axis(result: Result, ax: Axes) -> None:
    """Memory of one buffer at round sizes, above."""
    from matplotlib.ticker import NullLocator

    mean = result.stored.mean_bytes or 1.0
    low, high = ax.get_xlim()
    sizes = [2**k for k in range(6, 60, 1) if low * mean <= 2**k <= high * mean]
    sizes = sizes[:: max(1, -(-len(sizes) // 5))]
    top = ax.secondary_xaxis("top")
    top.set_xticks([s / mean for s in sizes], [show_size(s).replace(".00", "").replace(".0 ", " ") for s in sizes])
    top.xaxis.set_minor_locator(NullLocator())
    top.set_xlabel("memory of one buffer")


def caption(name: str, result: Result) -> str:
    """What to see in a figure: one or two sentences."""
    if name == "heatmap":
        return (
            "Every column is a stretch of the epoch, every row a stretch of the stored data. A full shuffle is one "
            "even tone. A diagonal is a buffer over files in order; dashes are whole shards in random order."
        )
    if name == "strip":
        return (
            "Every column is one batch. At a full shuffle all columns look alike; blocks of one colour are stretches "
            "of training on one kind of data."
        )
    if name == "distances":
        more = " The level at the dotted line is the share of pairs from one shard." if (
            len(result.stored.shard_samples) > 1) else ""  # fmt: skip
        return (
            "Pairs of samples of one batch, by how far apart they were stored. The gap between the curves is what the "
            "mixing score measures." + more
        )
    return (
        "What another buffer would give (closed form), and its memory. The thin line is the effective batch, "
        f"{CLASS_WORDS[result.classes_are]}. After a repack every buffer gives 100."
    )
