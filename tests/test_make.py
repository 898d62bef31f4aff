"""The Makefile of docs/make.md, executed: a second run does nothing, changed input rebuilds, a killed run goes on."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.makers import write_tfrecord

ROOT = pathlib.Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A folder with the first Makefile of the page and raw/; `shardtool` is that of this tree."""
    page = (ROOT / "docs" / "make.md").read_text(encoding="utf-8")
    makefile = re.findall(r"^```make\n(.*?)^```$", page, re.M | re.S)[0]
    work, programs = tmp_path / "a b", tmp_path / "bin"
    programs.mkdir()
    (programs / "shardtool").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shardtool "$@"\n')
    (programs / "shardtool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    for k in range(4):
        write_tfrecord(work / "raw" / f"part-{k}.tfrecord", [b"%d-%d" % (k, i) * 20 for i in range(100)])
    (work / "Makefile").write_text(makefile)
    return work


def make(work, *words):
    """What make ran."""
    done = subprocess.run(
        ["make", *words], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def output(work):
    """Name -> bytes of everything in mixed/."""
    folder = work / "mixed"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def nothing_to_do(work):
    return "Nothing to be done" in make(work)


def test_from_raw_to_verified_then_nothing(pipeline):
    ran = make(pipeline)
    assert "shardtool repack" in ran and "shardtool verify" in ran
    before = output(pipeline)
    assert len([name for name in before if name.endswith(".tfrecord")]) == 16
    assert nothing_to_do(pipeline)
    assert output(pipeline) == before


def test_a_touched_input_rebuilds(pipeline):
    make(pipeline)
    before = output(pipeline)
    os.utime(pipeline / "raw" / "part-2.tfrecord")
    ran = make(pipeline)
    assert "shardtool repack" in ran and "shardtool verify" in ran
    assert output(pipeline) == before
    assert nothing_to_do(pipeline)


def test_changed_new_and_removed_inputs_rebuild(pipeline):
    make(pipeline)
    write_tfrecord(pipeline / "raw" / "part-2.tfrecord", [b"other"] * 7)
    write_tfrecord(pipeline / "raw" / "part-9.tfrecord", [b"more"] * 50)
    make(pipeline)
    assert len(b"".join(output(pipeline).values()).split(b"other")) == 8
    (pipeline / "raw" / "part-9.tfrecord").unlink()
    ran = make(pipeline)
    assert "shardtool repack" in ran and "shardtool verify" in ran
    assert b"more" not in b"".join(
        data for name, data in output(pipeline).items() if name.endswith(".tfrecord")
    )
    assert nothing_to_do(pipeline)


def killed(work, shards):
    """Start make and kill everything of it once a first shard is finished; returns how many were."""
    process = subprocess.Popen(
        ["make", f"SHARDS={shards}"], cwd=work, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not list((work / "mixed").glob("*.tfrecord")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return len(list((work / "mixed").glob("*.tfrecord")))


def test_a_killed_run_goes_on(pipeline):
    shards = "SHARDS=200"
    make(pipeline, shards)
    undisturbed = output(pipeline)
    shutil.rmtree(pipeline / "mixed")
    (pipeline / "mixed.verified").unlink()
    finished = killed(pipeline, 200)
    assert 0 < finished < 200 and not (pipeline / "mixed" / "manifest.json").exists()
    kept = {p.name: p.stat().st_ino for p in (pipeline / "mixed").glob("*.tfrecord")}
    make(pipeline, shards)
    assert output(pipeline) == undisturbed
    now = {p.name: p.stat().st_ino for p in (pipeline / "mixed").glob("*.tfrecord")}
    # a shard renamed in the instant of the kill may lack its receipt and is then written again
    assert sum(now[name] != inode for name, inode in kept.items()) <= 8
    assert nothing_to_do(pipeline)


def test_a_run_killed_after_its_manifest_is_cleaned_up(pipeline):
    """The journal of a run that had published everything: make runs the repack again, which removes it."""
    first = killed(pipeline, 200)
    assert first
    shutil.copytree(pipeline / "mixed" / ".shardtool", pipeline / "journal")
    make(pipeline, "SHARDS=200")
    before = output(pipeline)
    shutil.move(pipeline / "journal", pipeline / "mixed" / ".shardtool")
    make(pipeline, "SHARDS=200")
    assert output(pipeline) == before
    assert "Nothing to be done" in make(pipeline, "SHARDS=200")
