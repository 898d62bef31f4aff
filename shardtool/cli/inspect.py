"""`shardtool inspect`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import console_options, jobs_option, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..layout.rules import Rules
    from ..report.console import Console

EPILOG = """\
Examples:

  shardtool inspect train/ --label cls

  shardtool inspect mixed/manifest.json --json

  shardtool inspect mixed --world-size 8 --epochs 3

Reads headers only; fields of TFRecords are taken from the first 1,000 records. With --label: how evenly the classes
are spread over the shards, and h_D: 1 = mixed on disk, samples per shard = one class a shard.

EXIT STATUS: 0 done, 2 usage, 3 the input is damaged or breaks a policy, 5 the host failed, 130/143 stopped by
SIGINT/SIGTERM.
"""


@click.command("inspect", epilog=EPILOG)
@click.argument("src", nargs=-1, metavar="[SRC...|MANIFEST]")
@click.option(
    "--world-size", type=int, metavar="W",
    help="Instead: samples of every rank in every epoch by DALI's floor formula, with rotation and without.",
)  # fmt: skip
@click.option("--epochs", type=int, metavar="E", help="With --world-size.  [default: W, at most 8]")
@click.option("-n", "--samples", type=int, metavar="N", help="With --world-size: that many samples instead of SRC.")
@jobs_option
@source_options
@console_options
def command(
    src: tuple[str, ...], world_size: int | None, epochs: int | None, samples: int | None, jobs: int | None,
    source: SourceOptions, rules: Rules, console: Console,
) -> None:  # fmt: skip
    """Say what is there: format, shards, samples, sizes, fields, labels, and which readers would stumble."""
    from ..base.errors import UsageError
    from ..jobs.host import default_jobs
    from ..jobs.inspect import InspectOptions, inspect
    from ..report.inspect import show

    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} is less than 1")
    if world_size is None and (epochs is not None or samples is not None):
        raise UsageError("--epochs and --samples go with --world-size", remedy="add --world-size W")
    if (samples is None) == (not src):
        raise UsageError("give SRC or --samples, one of them", remedy="name files, a folder or a manifest.json")
    if world_size is not None:
        _matrix(console, src, world_size, epochs, samples, source, rules)
        return
    show(console, inspect(src, InspectOptions(jobs or default_jobs(), source, rules), console))


def _matrix(
    console: Console, src: tuple[str, ...], world_size: int, epochs: int | None, samples: int | None,
    source: SourceOptions, rules: Rules,
) -> None:  # fmt: skip
    """The sizes of ranks' shards."""
    from ..jobs.host import default_jobs
    from ..jobs.plan import floor_matrix, shard_table, table_of_counts
    from ..report.plan import floor_matrix_facts, show_floor_matrix

    if samples is not None:
        table = table_of_counts(samples)
    else:
        table = shard_table(src, source, rules, jobs=default_jobs(), reporter=console)
    matrix = floor_matrix(table, world_size, max(1, min(8, world_size)) if epochs is None else epochs)
    console.result(floor_matrix_facts(matrix))
    show_floor_matrix(console, matrix)
