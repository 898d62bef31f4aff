"""The names of the package: imported late, known to type checkers, documented."""

import ast
import pathlib
import re
import resource
import subprocess
import sys

import pytest

import shardtool
from shardtool.cli.main import COMMANDS

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAVY = ("numpy", "rich", "tqdm", "xxhash", "crc32c", "tfrecord", "webdataset")
NAMES = sorted({*shardtool.__all__} - {"__version__"})


def loaded_after(code):
    """Which heavy packages a fresh interpreter has loaded after `code`."""
    ask = f"import sys; sys.exit(' '.join(m for m in {HEAVY} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{ask}"], cwd=ROOT, capture_output=True, text=True)
    return done.stderr.strip()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import shardtool; shardtool.__version__; dir(shardtool)") == ""
    assert "numpy" in loaded_after("from shardtool import scan")


@pytest.mark.parametrize("words", [["--help"], ["--version"]], ids=" ".join)
def test_help_loads_nothing_heavy(words):
    assert loaded_after(f"from shardtool.cli.main import cli; cli.main({words}, standalone_mode=False)") == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_loads_nothing_heavy(name):
    if not (ROOT / "shardtool" / "cli" / f"{COMMANDS[name][0]}.py").exists():
        pytest.skip("listed, not there yet")
    words = [name, "--help"]
    assert loaded_after(f"from shardtool.cli.main import cli; cli.main({words}, standalone_mode=False)") == ""


def test_help_takes_a_fifth_of_a_second():
    """Processor time, the least of five: what a busy machine adds is not ours."""

    def once():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "shardtool", "--help"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.2


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_where_it_says(name):
    assert getattr(shardtool, name).__name__ == name
    assert getattr(shardtool, name).__module__ == f"shardtool.{shardtool._EXPORTS[name]}"
    assert getattr(shardtool, name) is getattr(shardtool, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shardtool.nothing  # noqa: B018
    with pytest.raises(ImportError):
        from shardtool import nothing  # noqa: F401


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "shardtool" / "__init__.py").read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in blocks if getattr(node.test, "id", "") == "TYPE_CHECKING")
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == shardtool._EXPORTS
    assert set(seen) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_names_it(name):
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", (ROOT / "docs" / "api.md").read_text())
