"""Write docs/cli.md from the help of every command; a test fails when the page is stale.

    python scripts/write_cli_docs.py [--check]
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from importlib.util import find_spec

import click

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "cli.md")
WIDTH = 100  # columns, whatever the terminal has

sys.path.insert(0, ROOT)

HEAD = """\
# Commands

This page is written by `scripts/write_cli_docs.py` from the commands' own `--help`, with click {click}.
"""


def click_release() -> str:
    """'8.5': releases differ in how they word a help text."""
    return ".".join(version("click").split(".")[:2])


def page() -> str:
    """The text of docs/cli.md."""
    from shardtool.cli.main import COMMANDS, cli

    text = HEAD.format(click=click_release()) + section("shardtool", cli, None)
    top = context(cli, "shardtool", None)
    for name, (module, _) in COMMANDS.items():
        if find_spec(f"shardtool.cli.{module}") is None:
            continue  # named in COMMANDS before its module is there
        command = cli.get_command(top, name)
        assert command is not None
        text += section(f"shardtool {name}", command, top)
    return text


def section(title: str, command: click.Command, parent: click.Context | None) -> str:
    """Heading and help of one command."""
    command._help_option = None  # click keeps the one of the first context, which may be that of a test
    words = command.get_help(context(command, title.split()[-1], parent))
    lines = [line.rstrip() for line in words.splitlines()]
    return f"\n## {title}\n\n```text\n" + "\n".join(lines) + "\n```\n"


def context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """As click makes it for a run, but of a fixed width."""
    fixed = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, parent, info_name=name, **{**command.context_settings, **fixed})


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        with open(PAGE, encoding="utf-8") as file:
            if file.read() == text:
                return 0
        print("docs/cli.md is stale: run python scripts/write_cli_docs.py", file=sys.stderr)
        return 1
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
