"""The examples of docs/training.md that need a library which is not always there ("```python needs NAME")."""

import importlib.util
import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.test_docs import bare, blocks, digits, place, run_shell  # noqa: F401

pytestmark = pytest.mark.real
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "training.md"


def heavy():
    """(package, code, what it prints)"""
    page = blocks(PAGE)
    for (info, code, _), (after, wanted, _) in itertools.pairwise(page):
        found = re.fullmatch(r"python needs ([\w.]+)", info)
        if found:
            assert after == "output"
            yield found[1], code, wanted


EXAMPLES = list(heavy())


def installed(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(("package", "code", "wanted"), EXAMPLES, ids=[package for package, _, _ in EXAMPLES])
def test_example(package, code, wanted, place, tmp_path):  # noqa: F811
    if not installed(package):
        pytest.skip(f"{package} is not installed")
    run_shell("\n".join(code.split("shardtool verify")[0] for info, code, _ in blocks(PAGE) if info == "shell run"))
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    (place / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=place, env={**os.environ, **quiet}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert bare(done.stdout) == bare(wanted)


def test_every_loader_has_an_example():
    assert {package for package, _, _ in EXAMPLES} == {
        "torch", "nvidia.dali", "tensorflow", "tensorflow_datasets", "datasets", "lancedb", "megatron.energon"
    }  # fmt: skip
