"""The options that every command with SRC takes."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from shardtool.cli.options import source_options
from shardtool.disk.sources import SourceOptions
from shardtool.layout.rules import Rules


def parse(*arguments):
    got = []

    @click.command()
    @source_options
    def command(source, rules):
        got.append((source, rules))

    result = CliRunner().invoke(command, arguments)
    return got[0] if got else result


def test_defaults_are_those_of_the_library():
    assert parse() == (SourceOptions(), Rules())


@pytest.mark.parametrize(
    ("arguments", "source", "rules"),
    [
        (["--base", "b", "--from", "tar"], {"base": "b", "from_": "tar"}, {}),
        (["--label-from", "dir", "--label", "cls"], {"label_from": "dir"}, {"label": "cls"}),
        (["--allow-incomplete", "--strict"], {"allow_incomplete": True, "strict": True}, {"strict": True}),
        (["--on-corrupt", "resync"], {}, {"on_corrupt": "resync"}),
        (["--on-duplicate", "last"], {}, {"on_duplicate": "last"}),
        (["--on-unsafe-name", "skip"], {}, {"on_unsafe_name": "skip"}),
        (["--group", "archive"], {}, {"group": "archive"}),
        (["--ignore-zeros", "--ignore-trailing"], {}, {"ignore_zeros": True, "ignore_trailing": True}),
        (["--allow-case-collision"], {}, {"allow_case_collision": True}),
        (["--require", "jpg, cls"], {}, {"require": (b"jpg", b"cls")}),
        (["--spool-limit", "2GiB"], {"spool_limit": 2 << 30}, {}),
        (["--no-verify"], {}, {"verify": False}),
        (["--no-verify-crc"], {}, {"verify": False}),
    ],
)  # fmt: skip
def test_every_option_arrives(arguments, source, rules):
    assert parse(*arguments) == (SourceOptions(**source), Rules(**rules))


def test_an_unknown_choice_is_refused():
    assert parse("--on-corrupt", "ignore").exit_code == 2


def test_help_imports_no_numpy():
    script = (
        "import sys, click\nfrom shardtool.cli.options import source_options\n"
        "command = click.command()(source_options(lambda source, rules: None))\n"
        "command.main(['--help'], standalone_mode=False)\nsys.exit('numpy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "--allow-incomplete" in done.stdout and "verify-crc" not in done.stdout
