"""`shardtool completion bash|zsh|fish`"""

from __future__ import annotations

import click


@click.command(
    "completion",
    epilog="Example: shardtool completion bash > ~/.local/share/bash-completion/completions/shardtool\n\n"
    "EXIT STATUS: 0 done, 2 usage.",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL."""
    from click.shell_completion import get_completion_class

    from .main import cli

    made = get_completion_class(shell)
    assert made is not None  # the three above are click's own
    click.echo(made(cli, {}, "shardtool", "_SHARDTOOL_COMPLETE").source())
