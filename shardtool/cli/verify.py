"""`shardtool verify`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import CommaList, console_options, jobs_option, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..layout.rules import Rules
    from ..report.console import Console

EPILOG = """\
Examples:

  shardtool verify mixed/manifest.json --against train/ --reader webdataset

  shardtool verify 'train/*.tar'

With a manifest every shard is held against its size, digests, index and samples, all indexes and exports against
the shards. Without one: structure and checksums. --against takes all values up to the next option.

EXIT STATUS: 0 nothing found, 2 usage, 3 SRC or --against cannot be read as a set of shards, 5 the host failed,
6 findings, 130/143 stopped by SIGINT/SIGTERM.
"""


class Command(click.Command):
    """`--against A B C`: click's options take a fixed number of values, a shell's glob gives any number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread_against(args))


def spread_against(args: list[str]) -> list[str]:
    """'--against A B --json' as '--against A --against B --json'.

    When nothing would be left for SRC the last of the values is SRC: `verify --against A B manifest.json`.
    """
    made: list[str] = []
    rest = list(args)
    taken: list[int] = []
    others = False
    while rest:
        word = rest.pop(0)
        if word == "--":
            made += [word, *rest]
            others = others or bool(rest)
            break
        if word != "--against":
            made.append(word)
            takes_value = word in _WITH_VALUE
            if takes_value and rest:
                made.append(rest.pop(0))
            others = others or not word.startswith("-")
            continue
        while rest and (rest[0] == "-" or not rest[0].startswith("-")):
            taken.append(len(made))
            made += ["--against", rest.pop(0)]
    if not others and len(taken) > 1:
        del made[taken[-1]]
    return made


_WITH_VALUE = {
    "--reader", "--jobs", "--base", "--from", "--label-from", "--label", "--on-corrupt", "--on-duplicate",
    "--on-unsafe-name", "--group", "--require", "--progress", "--log-file",
}  # fmt: skip


@click.command("verify", cls=Command, epilog=EPILOG)
@click.argument("src", nargs=-1, required=True, metavar="MANIFEST|SRC...")
@click.option(
    "--against", multiple=True, metavar="SRC...",
    help="Another source that must hold the same samples, read with the options that the manifest records.",
)  # fmt: skip
@click.option(
    "--reader", "readers", type=CommaList(), default="", metavar="NAME[,NAME...]",
    help="Open the shards with the real library and compare every sample: dali, datasets, webdataset, wids (tar); "
    "tensorflow, tfrecord.",
)  # fmt: skip
@jobs_option
@source_options
@console_options
def command(
    src: tuple[str, ...], against: tuple[str, ...], readers: tuple[str, ...], jobs: int | None,
    source: SourceOptions, rules: Rules, console: Console,
) -> None:  # fmt: skip
    """Check shards, index and samples: what is on disk is what the manifest says, whole and readable.

    MANIFEST: a manifest.json, or the folder that holds it. SRC: shards that have none.
    """
    from ..base.errors import UsageError
    from ..jobs.host import default_jobs
    from ..jobs.verify import VerifyOptions, verify
    from ..report.verify import show

    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} is less than 1")
    options = VerifyOptions(against, readers, jobs or default_jobs(), source, rules)
    show(console, verify(src, options, console))
