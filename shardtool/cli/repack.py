"""`shardtool repack`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import Pairs, Size, as_dict, console_options, export_options, jobs_option, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..jobs.repack import Result
    from ..layout.rules import Rules
    from ..report.console import Console

EPILOG = """\
Example:

  shardtool repack train/ -o mixed --shards 16 --seed 7 --label cls --export dali

Interrupted at any point and started again with the same arguments it goes on, and ends with the same bytes as an
undisturbed run.

EXIT STATUS: 0 done, 2 usage, 3 the input is damaged or breaks a policy, 4 the state of OUT forbids it, 5 the host
failed (disk full, permission, memory), 130/143 stopped by SIGINT/SIGTERM.
"""


@click.command("repack", epilog=EPILOG)
@click.argument("src", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Folder of the shards; made when missing.")
@click.option("--format", type=click.Choice(["tar", "tfrecord"]), help="Of the shards; default: as the source.")
@click.option("--shards", type=int, metavar="N", help="Exactly N shards, cut by the floor formula.")
@click.option(
    "--shard-size", type=Size(), metavar="SIZE",
    help="As few shards as keep every file at most this size.  [default: 256MiB when nothing else is asked]",
)  # fmt: skip
@click.option("--shard-samples", type=int, metavar="N", help="No shard with more samples than this.")
@click.option(
    "--balance", type=click.Choice(["samples", "bytes"]), default="samples", show_default=True,
    help="What shards have alike; alike in bytes they differ in samples, see `shardtool plan`.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, input and version: same bytes.")
@click.option(
    "--order", type=click.Choice(["shuffle", "source"]), default="shuffle", show_default=True,
    help="Uniformly at random, or as in the source.",
)  # fmt: skip
@click.option("--name", default="shard", show_default=True, help="What the shards' names begin with.")
@click.option(
    "--keys", type=click.Choice(["auto", "keep", "source", "ordinal"]), default="auto", show_default=True,
    help="Keys of samples: kept when unique, else SOURCE/KEY; or the sample's number in source order.",
)  # fmt: skip
@click.option(
    "--rename", type=Pairs(), multiple=True, callback=as_dict, metavar="OLD=NEW",
    help="A field of the samples gets another name.",
)  # fmt: skip
@click.option("--drop", multiple=True, metavar="FIELD", help="Leave a field out.")
@click.option(
    "--field", "fields", type=Pairs(), multiple=True, callback=as_dict, metavar="NAME=TYPE",
    help="Type of a feature, for --format tfrecord: int64, float, bytes.  [default: bytes]",
)  # fmt: skip
@click.option(
    "--records", type=click.Choice(["auto", "example", "raw"]), default="auto", show_default=True,
    help="What TFRecords hold that become tars: tf.train.Examples when all are; or each one .bin member.",
)  # fmt: skip
@export_options
@click.option(
    "--dali-idx-version", type=click.Choice(["1.2", "1.1"]), default="1.2", show_default=True,
    help="Of the export dali-wds; 1.1 has no names.",
)  # fmt: skip
@click.option(
    "--memory", type=Size(), metavar="SIZE",
    help="What the job may allocate over all processes.  [default: half of what there is]",
)  # fmt: skip
@jobs_option
@click.option(
    "--engine", type=click.Choice(["auto", "gather", "bucket"]), default="auto", show_default=True,
    help="How bytes move, never changes the output: every sample read where it lies, or two sequential passes.",
)  # fmt: skip
@click.option(
    "--work-dir", type=click.Path(file_okay=False), metavar="DIR",
    help="Where decompressed sources and the spill of a run lie.  [default: in OUT]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Layout, cost and warnings; writes nothing.")
@click.option(
    "--disk-speed", type=Size(), metavar="SIZE",
    help="Bytes a second for the minutes that --dry-run says.  [default: as fast as the scan read]",
)  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace what an earlier run of this tool wrote in OUT.")
@click.option("--depfile", type=click.Path(dir_okay=False), help="Write make dependencies of manifest.json here.")
@source_options
@console_options
def command(
    src: tuple[str, ...], out: str, dry_run: bool, disk_speed: int | None, depfile: str | None,
    source: SourceOptions, rules: Rules, console: Console, **options: Any,
) -> None:  # fmt: skip
    """Scatter every sample of SRC, uniformly at random, over N shards in OUT.

    SRC: TFRecord files or WebDataset tars; folders, globs, brace patterns, @list.txt, or a manifest.json.
    """
    from ..jobs.depfile import write_depfile
    from ..jobs.options import RepackOptions
    from ..jobs.repack import repack
    from ..report import repack as report

    chosen = RepackOptions(source=source, rules=rules, strict=rules.strict, **options)
    result: Result = repack(src, out, chosen, dry_run=dry_run, reporter=console)
    if depfile and result.inputs is not None and not dry_run:
        write_depfile(depfile, result.path, result.inputs)
    if dry_run:
        report.dry_run(console, result, disk_speed)
    else:
        report.result(console, result)
