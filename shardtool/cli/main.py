"""The `shardtool` command: finds the subcommand, runs it, turns errors into messages and exit statuses.

A subcommand's module is imported only when it runs, and heavy packages only inside its function, so that
`shardtool --help` starts in the time of click.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
from typing import NoReturn

import click

from ..base.errors import HostError, ShardtoolError
from ..version import VERSION

# name -> (module, one line for `shardtool --help`)
COMMANDS = {
    "repack": ("repack", "Scatter samples uniformly at random over N shards."),
    "inspect": ("inspect", "Say what is there: format, shards, samples, fields, labels, traps."),
    "plan": ("plan", "Say which rank and worker reads what, what it costs, and whether it hangs."),
    "simulate": ("simulate", "Say how well a loader's shuffle buffer mixes."),
    "manifest": ("manifest", "Write manifest.json and loaders' index files for shards that exist."),
    "verify": ("verify", "Check shards, index and samples against a manifest or another source."),
    "completion": ("completion", "Print the shell completion script."),
}


class Commands(click.Group):
    """Subcommands by name; `--help` lists them from COMMANDS without importing one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__package__}.{COMMANDS[name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 done, 1 a bug, 2 usage, 3 damaged input, 4 state of OUT, 5 the host failed, "
    "6 a finding, 130/143 stopped by a signal.",
)
@click.version_option(VERSION, prog_name="shardtool", message="%(prog)s %(version)s")
def cli() -> None:
    """Turn any pile of training samples into well-shuffled, equal, indexed, verifiable shards, and know before
    the run how every rank reads them and how well they are mixed."""


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived. Not an Exception: nothing but the top level may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _frame: object) -> NoReturn:
    # One signal is enough; a second one, while the children are being ended, must not cut that short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped(number)


def main(argv: list[str] | None = None) -> NoReturn:
    """Entry point: never returns, never shows a traceback (unless SHARDTOOL_DEBUG=1)."""
    # What imports leave behind is no garbage, but a thousand new objects make Python look: a twentieth of the start.
    gc.set_threshold(50_000, 20, 20)
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    status = _run(argv)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # The reader of our output has gone; say nothing more and let the interpreter close quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        # Where the report was to go takes no more: a full disk behind `> report.txt`.
        _say(f"Error: the report could not be written: {error.strerror}")
        status = status or HostError.status
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)  # what is left in the buffers must not fail again when the interpreter ends
    sys.exit(status)


def run() -> NoReturn:
    """`main` for a process of its own: what is to be done at the end is done, but Python does not take itself apart
    object by object, which takes a tenth of the time of a short run."""
    try:
        main()
    except SystemExit as stop:  # an exception that SHARDTOOL_DEBUG asks for goes its way
        status = int(stop.code or 0)
    atexit._run_exitfuncs()
    os._exit(status)


def _run(argv: list[str] | None) -> int:
    debug = os.environ.get("SHARDTOOL_DEBUG") == "1"
    try:
        result = cli.main(argv, prog_name="shardtool", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        return 130
    except Stopped as stop:
        name = signal.Signals(stop.number).name
        _say(f"Stopped by {name}. What is finished is kept: run the same command again to go on.")
        return 128 + stop.number
    except ShardtoolError as error:
        if debug:
            raise
        _say(f"Error: {error}")
        return error.status
    except (BrokenPipeError, SystemExit):
        # Outside standalone mode click exits by itself in one case only: a closed pipe, with status 1.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except (OSError, MemoryError) as error:
        if debug:
            raise
        _say(f"Error: {_host_error(error)}")
        return HostError.status
    except Exception as error:
        if debug:
            raise
        _say(
            f"Error: unexpected {type(error).__name__}: {error}\n"
            "  why:   this is a bug in shardtool\n"
            "  do:    run again with SHARDTOOL_DEBUG=1 and report what it prints"
        )
        return 1


def _host_error(error: OSError | MemoryError) -> HostError:
    if isinstance(error, MemoryError):
        return HostError("out of memory", remedy="give --memory a smaller size, or use fewer --jobs")
    file = error.filename if isinstance(error.filename, (str, bytes)) else None
    return HostError(error.strerror or str(error), file=file, remedy="mend that and run the same command again")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # stderr is closed or full; the exit status still tells
        click.echo(text, err=True)


if __name__ == "__main__":
    run()
