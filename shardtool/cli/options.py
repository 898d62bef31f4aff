"""Decorators for the options that several commands share. Help strings are static: `--help` imports no numpy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..report.console import Console

Command = Callable[..., Any]

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
    _ListType = click.ParamType[tuple[str, ...]]
    _PairType = click.ParamType[tuple[str, str]]
else:  # not generic before click 8.4
    _IntType = _ListType = _PairType = click.ParamType


class Size(_IntType):
    """64M, 256MiB, 1.5GB"""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ..base.errors import UsageError
        from ..base.units import parse_size

        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except UsageError as error:
            self.fail(f"{error.what}; {error.remedy}", param, ctx)


class CommaList(_ListType):
    """a,b,c"""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


class Pairs(_PairType):
    """NAME=VALUE"""

    name = "pair"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        left, equals, right = value.partition("=")
        if not (left and equals and right):
            self.fail(f"{value!r} is not of the form {param.metavar if param else 'NAME=VALUE'}", param, ctx)
        return left, right


def as_dict(ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The callback of an option of Pairs: a mapping, in which no name is there twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise click.BadParameter("a name is there twice", ctx, param)
    return made


def console_options(function: Command) -> Command:
    """--json, --quiet, --progress, --log-file; the command receives a `console` instead."""

    @functools.wraps(function)
    def run(*args: Any, as_json: bool, quiet: bool, progress: str, log_file: str | None, **kwargs: Any) -> Any:
        console = Console(as_json=as_json, quiet=quiet, progress=progress, log_file=log_file)
        try:
            return function(*args, console=console, **kwargs)
        finally:
            console.close()

    for option in reversed(
        [
            click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else there."),
            click.option("-q", "--quiet", is_flag=True, help="No tables, notes or bars; warnings remain."),
            click.option(
                "--progress", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
                help="Bars on stderr; auto: only on a terminal.",
            ),
            click.option("--log-file", type=click.Path(dir_okay=False), help="Append notes and warnings here."),
        ]
    ):
        run = option(run)
    return run


def export_options(function: Command) -> Command:
    """--export and --digest: `exports` and `digests`, tuples of words."""
    kinds = click.option(
        "--export", "--index", "exports", type=CommaList(), default="", metavar="KIND[,KIND...]",
        help="Index files of loaders beside the shards: dali, dali-tfrecord, dali-wds, energon, hf, open_lm, sizes, "
        "tfds, tfrecord, webdataset, wids.",
    )  # fmt: skip
    digests = click.option(
        "--digest", "digests", type=CommaList(), default="", metavar="ALG[,ALG...]",
        help="sha256, md5: digests of shards besides xxh3-128.",
    )  # fmt: skip
    return kinds(digests(function))


# How many processes may work.
jobs_option = click.option(
    "--jobs", type=int, metavar="N", help="Processes.  [default: the cores this process may use]"
)


def source_options(function: Command) -> Command:
    """All options on how SRC is read; the command receives `source` (SourceOptions) and `rules` (Rules)."""

    @functools.wraps(function)
    def run(*args: Any, no_verify: bool, no_verify_crc: bool, **kwargs: Any) -> Any:
        import os

        from ..disk.sources import SourceOptions
        from ..layout.rules import Rules

        taken = {name: kwargs.pop(name) for name in (*_SOURCE_FIELDS, *_RULE_FIELDS) if name != "verify"}
        taken["verify"] = not (no_verify or no_verify_crc)
        taken["require"] = tuple(os.fsencode(name) for name in taken["require"])
        source = SourceOptions(strict=taken["strict"], **{name: taken[name] for name in _SOURCE_FIELDS})
        rules = Rules(**{name: taken[name] for name in _RULE_FIELDS})
        return function(*args, source=source, rules=rules, **kwargs)

    command: Command = run
    for option in reversed(_source_options()):
        command = option(command)
    return command


_SOURCE_FIELDS = ("base", "from_", "label_from", "allow_incomplete", "spool_limit")
_RULE_FIELDS = (
    "on_corrupt", "on_duplicate", "on_unsafe_name", "group", "ignore_zeros", "ignore_trailing",
    "allow_case_collision", "require", "strict", "verify", "label",
)  # fmt: skip


def _source_options() -> list[Callable[[Command], Command]]:
    def choice(flag: str, first: str, *others: str, text: str) -> Callable[[Command], Command]:
        kind = click.Choice([first, *others])
        return click.option(flag, type=kind, default=first, show_default=True, help=text)

    return [
        click.option("--base", metavar="DIR", help="Folder that the names of the sources are relative to."),
        click.option(
            "--from", "from_", type=click.Choice(["tar", "tfrecord", "folder"]),
            help="Read SRC as this, whatever content and names say.",
        ),
        click.option(
            "--label-from", type=click.Choice(["dir"]),
            help="The first folder below SRC is the label of its sample files.",
        ),
        click.option("--label", metavar="FIELD", help="Field that holds the label, for index and manifest."),
        choice(
            "--on-corrupt", "error", "skip", "resync",
            text="Damage: stop; keep what is intact in its place; or also search for the next valid frame.",
        ),
        choice(
            "--on-duplicate", "error", "first", "last", text="A field that a sample of a tar has twice."
        ),
        choice(
            "--on-unsafe-name", "error", "skip", text="Members of a tar with absolute names or '..' in them."
        ),
        choice(
            "--group", "adjacent", "archive",
            text="Members of a sample: must be neighbours, or are collected over the archive.",
        ),
        click.option("--ignore-zeros", is_flag=True, help="Read on behind an end-of-archive marker (tar -i)."),
        click.option(
            "--ignore-trailing", is_flag=True, help="Ignore what follows the end-of-archive marker."
        ),
        click.option(
            "--spool-limit", type=Size(), metavar="SIZE",
            help="What one compressed source may decode to, and all sparse members come to.  "
            "[default: 100 times its size and 1 GiB]",
        ),
        click.option("--allow-incomplete", is_flag=True, help="Read sets X-00000-of-00010 with gaps."),
        click.option(
            "--allow-case-collision", is_flag=True,
            help="Accept fields of one sample that differ by letter case only.",
        ),
        click.option(
            "--require", type=CommaList(), default="", metavar="FIELD[,FIELD...]",
            help="Fields that every sample must have.",
        ),
        click.option("--strict", is_flag=True, help="Make errors of the warnings about odd input."),
        click.option("--no-verify", is_flag=True, help="Do not check the payload checksums of TFRecords."),
        click.option("--no-verify-crc", is_flag=True, hidden=True),
    ]  # fmt: skip
