"""`shardtool inspect`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import console_options, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..layout.rules import Rules
    from ..report.console import Console

EPILOG = """\
Examples:

  shardtool inspect train/ --label cls

  shardtool inspect mixed/manifest.json --json

Reads headers only; fields of TFRecords are taken from the first 1,000 records. With --label: how evenly the classes
are spread over the shards, and h_D: 1 = mixed on disk, samples per shard = one class a shard.

EXIT STATUS: 0 done, 2 usage, 3 the input is damaged or breaks a policy, 5 the host failed, 130/143 stopped by
SIGINT/SIGTERM.
"""


# The sizes of ranks' shards (--world-size, --epochs, -n instead of a source) will be options of this command.
@click.command("inspect", epilog=EPILOG)
@click.argument("src", nargs=-1, required=True, metavar="SRC...|MANIFEST")
@click.option("--jobs", type=int, metavar="N", help="Processes.  [default: the cores this process may use]")
@source_options
@console_options
def command(src: tuple[str, ...], jobs: int | None, source: SourceOptions, rules: Rules, console: Console) -> None:
    """Say what is there: format, shards, samples, sizes, fields, labels, and which readers would stumble."""
    from ..base.errors import UsageError
    from ..jobs.host import default_jobs
    from ..jobs.inspect import InspectOptions, inspect
    from ..report.inspect import show

    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} is less than 1")
    show(console, inspect(src, InspectOptions(jobs or default_jobs(), source, rules), console))
