"""`shardtool simulate`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from .options import Size, console_options, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..jobs.simulate import Result
    from ..layout.rules import Rules
    from ..report.console import Console

# The names of mixing.shuffles.SHUFFLES and of the loaders that have one of them, spelled out so that --help needs no
# numpy; a test holds them equal.
LOADERS = (
    "dali", "tfdata", "torch", "webdataset", "hf-4", "hf-5.0", "hf-5.1", "grain-window", "grain-map", "mosaic-py1e",
    "mosaic-py1br", "mosaic-py1s", "mosaic-py2s", "mosaic-naive", "lancedb", "shardtool", "none", "full",
    "hf", "tfrecord", "torch-stride", "torch-distributed",
)  # fmt: skip

EPILOG = """\b
Examples:
  shardtool simulate -n 1281167 --samples-per-shard 1000 --loader webdataset --workers 8
  shardtool simulate train/manifest.json --label cls --loader dali --buffer 10000 --html mixing.html
  shardtool simulate -n 1000000 --samples-per-shard 1000 --loader torch --shuffle-shards --target 95

EXIT STATUS: 0 done, 2 usage, 3 damaged input, 5 the host failed.
"""


@click.command("simulate", epilog=EPILOG)
@click.argument("src", nargs=-1)
@click.option("-n", "--samples", type=int, help="Samples, instead of SRC or a manifest.")
@click.option("--samples-per-shard", type=int, help="With -n: samples in a shard; without it -n is one shard.")
@click.option("--sample-bytes", type=Size(), help="With -n: mean size of a sample, for the memory of buffers.")
@click.option("--loader", type=click.Choice(LOADERS), default="dali", show_default=True,
              help="Whose shuffle; named with a release where releases differ.")
@click.option("--dali-reader", type=click.Choice(["file", "tfrecord", "webdataset", "mxnet"]), default="tfrecord",
              show_default=True, help="DALI: the file reader also shuffles its list once.")
@click.option("--buffer", type=int, help="Samples a shuffle buffer (window, block) holds. Default: the loader's.")
@click.option("--initial", type=int, help="webdataset: samples held before the first is delivered (default 100).")
@click.option("--shuffle-clump-size", type=int, help="lancedb: rows that stay together (default 1).")
@click.option("--shuffle-shards/--no-shuffle-shards", default=None,
              help="Whether shards are read in random order. Default: the loader's; the output says which.")
@click.option("--shardshuffle", type=int, help="webdataset: shards that the shard shuffle holds (default 100).")
@click.option("--detshuffle", is_flag=True, help="webdataset: a new shard order in every epoch (detshuffle=True).")
@click.option("--cycle", type=int, help="Shards read in turn (interleave). Default: the loader's.")
@click.option("--batch-size", type=int, help="Samples in a rank's batch.  [default: 256, fewer for small sets]")
@click.option("--world-size", type=int, default=1, show_default=True, help="Ranks; a step is a batch of each.")
@click.option("--workers", "--num-workers", type=int, default=0, show_default=True,
              help="Workers a rank; where they are processes each has its own buffer.")
@click.option("--epochs", type=int, default=1, show_default=True,
              help="Epochs to deliver; freshness looks at one more.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the simulation, or of the real loader.")
@click.option("--trials", type=int, default=1, show_default=True,
              help="Repeat with other draws: spread of the score, and for up to 64 samples what comes where.")
@click.option("--exact", is_flag=True, help="The loader's real order with --seed, where the release is reproduced.")
@click.option("--ids", is_flag=True, help="With --json: the order of delivery.")
@click.option("--repacked", is_flag=True, help="As if the data had been repacked: what a repack would buy.")
@click.option("--target", type=float, help="The smallest buffer with this score, and its memory.")
@click.option("--picture", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
              help="Heatmap and curve on stdout; auto: only on a terminal.")
@click.option("--figure", type=click.Path(dir_okay=False), help="The four figures as FILE.png or FILE.svg.")
@click.option("--html", type=click.Path(dir_okay=False), help="A report in one self-contained file.")
@source_options
@console_options
def command(
    console: Console, src: tuple[str, ...], samples: int | None, samples_per_shard: int | None,
    sample_bytes: int | None, source: SourceOptions, rules: Rules, picture: str, figure: str | None, html: str | None,
    shuffle_clump_size: int | None, **settings: Any,
) -> None:  # fmt: skip
    """Say how well a loader's shuffle mixes: SRC..., a manifest, or -n SAMPLES.

    Five numbers (mixing score, effective batch, same-shard pairs, classes per batch, epoch freshness), each between
    its value at source order and at a full shuffle, and the cheapest way to better ones.
    """
    from ..base.errors import UsageError
    from ..jobs import simulate as job
    from ..jobs.host import default_jobs

    if bool(src) == (samples is not None):
        raise UsageError("give either SRC (files, folders, a manifest) or -n SAMPLES")
    if src:
        for name, value in (("--samples-per-shard", samples_per_shard), ("--sample-bytes", sample_bytes)):
            if value is not None:
                raise UsageError(f"{name} goes with -n: SRC itself says it")
        stored = job.stored_labels(src, rules.label, source, rules, jobs=default_jobs(), reporter=console)
    else:
        if rules.label is not None:
            raise UsageError("--label needs SRC: -n has no labels", remedy="give the data, or drop --label")
        assert samples is not None
        stored = job.described(samples, samples_per_shard, sample_bytes)
    if figure is not None or html is not None:
        from ..report.figures import check_figure_request

        check_figure_request(figure)
    shown = picture == "always" or (picture == "auto" and sys.stdout.isatty())
    pictures = (shown and not console.as_json and not console.quiet) or figure is not None or html is not None
    options = job.Options(pictures=pictures, clump=shuffle_clump_size, **settings)
    result = job.simulate(options, stored, console)
    if not console.as_json:
        _print(console, result, shown)
    if figure is not None:
        from ..report.figures import save_figure

        save_figure(result, figure)
        console.note(f"Figures: {figure}")
    if html is not None:
        from ..report.page import write_page

        write_page(result, html, _command_line())
        console.note(f"Report: {html}")
    console.result(job.facts(result))


def _command_line() -> str:
    import shlex

    return "shardtool " + " ".join(shlex.quote(word) for word in sys.argv[1:])


def _print(console: Console, result: Result, shown: bool) -> None:
    from ..report import mixing as words

    for line in words.pipeline_words(result):
        console.print(line)
    console.print()
    lines = words.five_numbers(result)
    console.table(
        ("", "here", "source order", "full shuffle"), [(li.name, li.value, li.source, li.full) for li in lines], left=1
    )
    console.print()
    for number in lines:
        console.print(f"{number.name}: {number.meaning}")
    console.print()
    console.print(words.flag(result))
    console.print(words.forecast_line(result))
    _print_places(console, result)
    if shown and result.coarse is not None:
        console.print()
        console.print("Where in the source (down) the epoch (to the right) draws from:")
        for line in words.heat_lines(result.coarse, words.wants_colour(sys.stdout.isatty())):
            console.print(line)
    curve = words.curve_lines(result)
    if shown and curve:
        console.print()
        console.print("Mixing score by buffer" + (" and memory of one buffer" if result.stored.mean_bytes else ""))
        for line in curve:
            console.print(line)
    console.print()
    target = words.target_line(result)
    if target is not None:
        console.print(target)
    if result.advice is not None:
        console.print(result.advice.sentence)


def _print_places(console: Console, result: Result) -> None:
    """What can come at which place, for small cases with --trials."""
    if result.places is None:
        return
    console.print()
    rows = [
        (place, f"{low}..{high}", f"{mean:.3f}")
        for place, ((low, high), mean) in enumerate(
            zip(
                result.places["support_by_position"], result.places["expected_source_index_by_position"], strict=True
            )
        )
    ]
    console.table(("position", "samples seen there", "mean source index"), rows, left=1)
