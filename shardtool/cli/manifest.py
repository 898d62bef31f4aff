"""`shardtool manifest`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import console_options, export_options, jobs_option, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..layout.rules import Rules
    from ..report.console import Console

EPILOG = """\
Examples:

  shardtool manifest shards/ -o shards/manifest.json --label cls

  shardtool manifest mixed/manifest.json --export dali,wids

  shardtool manifest /data/mixed/manifest.json --export dali -o ~/indexes

EXIT STATUS: 0 done, 2 usage, 3 a shard is damaged, breaks a policy or is not what the manifest says, 4 a file that
this command did not write is in the way, 5 the host failed (disk full, permission), 130/143 stopped by
SIGINT/SIGTERM.
"""


@click.command("manifest", epilog=EPILOG)
@click.argument("src", nargs=-1, required=True)
@click.option(
    "-o", "--out", type=click.Path(), metavar="FILE|DIR",
    help="The manifest.json to write; with MANIFEST --export: the folder of the index files, and then nothing else "
    "is written.  [default: beside the manifest]",
)  # fmt: skip
@export_options
@click.option(
    "--dali-idx-version", type=click.Choice(["1.2", "1.1"]),
    help="Of the export dali-wds; 1.1 has no names.  [default: as the manifest says, else 1.2]",
)  # fmt: skip
@jobs_option
@click.option("--overwrite", is_flag=True, help="Replace the manifest of a repack, and index files of others.")
@source_options
@console_options
def command(
    src: tuple[str, ...], out: str | None, exports: tuple[str, ...], dali_idx_version: str | None,
    digests: tuple[str, ...], jobs: int | None, overwrite: bool, source: SourceOptions, rules: Rules, console: Console,
) -> None:  # fmt: skip
    """Write manifest.json and an index for shards that exist: nothing is rewritten. Or, with MANIFEST --export,
    write the index files of other loaders.

    SRC: TFRecord files or WebDataset tars; folders, globs, brace patterns, @list.txt. They must lie in or below the
    folder of the manifest.
    """
    from ..base.errors import UsageError
    from ..jobs.manifest import ManifestOptions, add_exports, is_manifest, write_manifest
    from ..report import manifest as report

    options = ManifestOptions(
        exports=exports, dali_idx_version=dali_idx_version, digests=digests, jobs=jobs, overwrite=overwrite,
        source=source, rules=rules,
    )  # fmt: skip
    folder = out is None or not out.endswith(".json")
    if exports and folder and len(src) == 1 and is_manifest(src[0]):
        if source != type(source)() or rules != type(rules)():
            raise UsageError(
                "options on how SRC is read do not fit MANIFEST --export, which reads no sample",
                remedy="index the shards again: shardtool manifest SHARDS... -o manifest.json",
            )
        report.result(console, add_exports(src[0], options, folder=out, reporter=console))
        return
    if out is None:
        raise UsageError("-o is missing", remedy="say where to write: -o FOLDER_OF_THE_SHARDS/manifest.json")
    report.result(console, write_manifest(src, out, options, reporter=console))
