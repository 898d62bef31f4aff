"""Every loader has a page, and what the pages show is what the command prints."""

import pathlib
import re
import shlex

import pytest
from click.testing import CliRunner

from shardtool.cli.main import cli
from shardtool.loaders import LOADERS, loader_class

PAGES = pathlib.Path(__file__).parent.parent.parent / "docs" / "loaders"
BLOCK = re.compile(r"```console\n\$ shardtool (plan .*)\n((?:.*\n)*?)```\n")


@pytest.mark.parametrize("name", LOADERS)
def test_page(name):
    text = (PAGES / f"{name}.md").read_text()
    for heading in ("## Rule", "## Worked table", "## Known surprises"):
        assert heading in text
    version = loader_class(name).release.split()[-1]
    assert version in text, f"the page names another release than {version}"
    blocks = BLOCK.findall(text)
    assert blocks and len(blocks) == text.count("```console")
    for words, shown in blocks:
        result = CliRunner().invoke(cli, shlex.split(words), catch_exceptions=False)
        printed = [line.rstrip() for line in result.stdout.rstrip("\n").split("\n")]
        assert printed == shown.rstrip("\n").split("\n"), words


def test_overview_names_every_loader():
    text = (PAGES / "README.md").read_text()
    for name in LOADERS:
        assert f"| `{name}` |" in text and f"({name}.md)" in text
    assert {path.stem for path in PAGES.glob("*.md")} == {*LOADERS, "README"}
