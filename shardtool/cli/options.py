"""Decorators for the options that several commands share. Help strings are static: `--help` imports no numpy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from ..report.console import Console

Command = Callable[..., Any]


class Size(click.ParamType):
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


class CommaList(click.ParamType):
    """a,b,c"""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


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
            ),  # fmt: skip
            click.option("--log-file", type=click.Path(dir_okay=False), help="Append notes and warnings here."),
        ]
    ):
        run = option(run)
    return run
