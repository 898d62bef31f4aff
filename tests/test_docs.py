"""The docs are true: their examples run, their links lead somewhere, the command page is what `--help` says.

The convention of a page:

    ```python          runs; all blocks of a page share one namespace, in order
    ```python needs NAME   the same in a process of its own, one for each NAME, where NAME can be imported
    ```shell run       runs in bash (-eu -o pipefail); `shardtool` and `python` are those of this tree
    ```output          directly after one of these: what it prints, to the letter but for blanks at line ends;
                       `...` stands for anything

Every other block is only shown. A page runs in a folder of its own, which holds `raw/tfrecord` and `raw/tar`:
digits sorted by class as scripts/make_data.py writes them, 20 a class instead of 500.
"""

import contextlib
import doctest
import gzip
import importlib.util
import io
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^\1\2 *$", re.M | re.S)
NEEDS = "python needs "
END = "--- end of an example ---"
# An address, an image or a page: [words](target), not in code
LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")

sys.path.insert(0, str(ROOT / "scripts"))
import make_data  # noqa: E402
import write_cli_docs  # noqa: E402


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """(info string, text, line) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    return [(m[3].strip(), m[4], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


def examples(page):
    """(kind, code, what it prints or None, line) of every block that runs."""
    found = []
    before = None
    for info, text, line in blocks(page):
        if info in ("python", "shell run") or info.startswith(NEEDS):
            found.append([info, text, None, line])
            before = found[-1]
        else:
            if info == "output":
                assert before is not None, f"{name_of(page)}:{line}: output of nothing"
                before[2] = text
            before = None
    return found


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder with raw/tfrecord and raw/tar, from a package like the real one with 20 made-up images a class."""
    folder = tmp_path_factory.mktemp("digits")
    rng = random.Random(0)
    rows = "".join(
        ",".join(map(str, [*(rng.choice((0, 0, 0, 255)) for _ in range(784)), label])) + "\n"
        for label in range(10)
        for _ in range(20)
    )
    with zipfile.ZipFile(folder / "package.whl", "w") as wheel:
        wheel.writestr(make_data.MEMBER, gzip.compress(rows.encode()))
    assert make_data.write_sorted(str(folder / "package.whl"), str(folder / "raw")) == 200
    return folder / "raw"


@pytest.fixture
def place(digits, tmp_path, monkeypatch):
    """The folder of a page."""
    work, programs = tmp_path / "page", tmp_path / "bin"
    shutil.copytree(digits, work / "raw")
    programs.mkdir()
    for program, words in (("python", ""), ("shardtool", "-m shardtool")):
        file = programs / program
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        file.chmod(0o755)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return work


def run_shell(code):
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_python(code, where, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec"), names)
    return out.getvalue()


def bare(text):
    return "".join(line.rstrip() + "\n" for line in text.rstrip().splitlines())


def check_output(where, got, wanted):
    if wanted is not None:
        same = doctest.OutputChecker().check_output(bare(wanted), bare(got), doctest.ELLIPSIS)
        assert same, f"{where} prints\n{got}"


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=name_of)
def test_examples_run_and_print_what_the_page_says(page, place):
    names = {"__name__": "__main__"}
    for kind, code, wanted, line in examples(page):
        where = f"{name_of(page)}:{line}"
        if not kind.startswith(NEEDS):
            got = run_shell(code) if kind == "shell run" else run_python(code, where, names)
            check_output(where, got, wanted)


def needed():
    """(page, package) of all examples that need one, each once."""
    kinds = [(page, kind) for page in PAGES for kind, *_ in examples(page)]
    return list(dict.fromkeys((page, kind.removeprefix(NEEDS)) for page, kind in kinds if kind.startswith(NEEDS)))


def installed(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.real
@pytest.mark.parametrize(
    ("page", "package"), needed(), ids=lambda value: value if isinstance(value, str) else name_of(value)
)
def test_examples_that_need_a_package(page, package, place, tmp_path):
    """In a process of their own, since some libraries exclude each other; after the page's shell examples."""
    if not installed(package):
        pytest.skip(f"{package} is not installed")
    script, mine = "", []
    for kind, code, wanted, line in examples(page):
        if kind == "shell run":
            run_shell(code)
        elif kind == NEEDS + package:
            script += f"{code}\nprint({END!r}, flush=True)\n"
            mine.append((line, wanted))
    (place / "example.py").write_text(script)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=place, env={**os.environ, **quiet}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for (line, wanted), got in zip(mine, done.stdout.split(f"{END}\n"), strict=False):
        check_output(f"{name_of(page)}:{line}", got, wanted)


def test_every_loader_has_an_example():
    """Those that are always there are plain ones."""
    page = ROOT / "docs" / "training.md"
    assert {package for which, package in needed() if which == page} == {
        "torch", "nvidia.dali", "tensorflow", "tensorflow_datasets", "datasets", "lancedb", "megatron.energon"
    }  # fmt: skip


def test_some_pages_have_examples():
    """A change of the fences' words must not empty the test above."""
    with_examples = {name_of(page) for page in PAGES if examples(page)}
    assert {"README.md", "docs/api.md", "docs/walk.md"} <= with_examples


def anchors(page):
    """What GitHub makes of the headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ +(.*?) *$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file) if file else page
        assert linked.exists(), f"{name_of(page)}: {target}"
        assert linked.resolve().is_relative_to(ROOT), f"{name_of(page)}: {target} leaves the project"
        if anchor:
            assert anchor in anchors(linked), f"{name_of(page)}: {target}"


# Paths of somebody's machine. Examples use relative paths; /dev and /proc mean the same everywhere.
MACHINE = re.compile(r"(?<![\w.~$}-])/(?:home|root|work|tmp|Users|mnt|opt|var)/[\w.]")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_machine_paths(page):
    found = MACHINE.search(page.read_text(encoding="utf-8"))
    assert not found, f"{name_of(page)}: {found[0]}..."


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        if page.parent != ROOT and page != ROOT / "docs" / "README.md":
            relative = page.relative_to(ROOT / "docs")
            assert f"({relative})" in index, f"docs/README.md does not name {relative}"


def test_the_command_page_is_fresh():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    if f"with click {write_cli_docs.click_release()}." not in page:
        pytest.skip("docs/cli.md was written with another release of click, which words help differently")
    assert page == write_cli_docs.page(), "run: python scripts/write_cli_docs.py"


def test_the_command_page_does_not_depend_on_the_terminal(monkeypatch):
    wide = write_cli_docs.page()
    monkeypatch.setenv("COLUMNS", "40")
    assert write_cli_docs.page() == wide
