"""`plan` and `inspect --world-size` on shards that exist: with a manifest, and without one."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.makers import sorted_tars, sorted_tfrecords


def shardtool(*args, status=0):
    run = subprocess.run([sys.executable, "-m", "shardtool", *map(str, args)], capture_output=True, text=True)
    assert run.returncode == status, run.stderr
    return run


def test_shards_without_a_manifest_are_counted_by_their_headers(tmp_path):
    source = sorted_tfrecords(tmp_path / "in", 3, 20)
    facts = json.loads(shardtool("plan", source, "--world-size", 2, "--loader", "webdataset", "--json").stdout)
    assert facts["shard_samples"] == [20, 20, 20] and facts["verdict"]["hang"]
    again = shardtool("plan", *source.iterdir(), "--world-size", 2, "--loader", "webdataset", "--json")
    assert json.loads(again.stdout) == facts


def test_a_manifest_answers_without_its_shards(tmp_path):
    source = sorted_tars(tmp_path / "in", 3, 20)
    shardtool("repack", source, "-o", tmp_path / "out", "--shards", 4, "--label", "cls")
    for shard in (tmp_path / "out").glob("*.tar"):
        shard.unlink()
    for src in (tmp_path / "out", tmp_path / "out" / "manifest.json"):
        facts = json.loads(shardtool("plan", src, "--world-size", 4, "--json").stdout)
        assert facts["samples"] == 60 and facts["shard_samples"] == [15] * 4


def test_floor_matrix(tmp_path):
    source = sorted_tars(tmp_path / "in", 3, 9)
    run = shardtool("inspect", source, "--world-size", 4, "--epochs", 5, "--label", "cls", "--json")
    facts = json.loads(run.stdout)
    sizes = np.diff([27 * k // 4 for k in range(5)])
    assert facts["without_rotation"] == sizes.tolist()
    for epoch in facts["epochs"]:
        assert epoch["samples"] == np.roll(sizes, -epoch["epoch"]).tolist()
    assert min(facts["label_skew"]) > 0.2  # sorted by class: a rank sees one or two of three
    counted = json.loads(shardtool("inspect", "-n", 27, "--world-size", 4, "--epochs", 5, "--json").stdout)
    assert counted["epochs"] == facts["epochs"]
    assert "6 or 7" in shardtool("inspect", "-n", 26, "--world-size", 4).stdout


@pytest.mark.parametrize(
    "options", [["-n", 5], ["-n", 5, "--epochs", 2], ["--world-size", 2], ["-n", 0, "--world-size", 2],
                ["-n", 5, "--world-size", 0]],
)  # fmt: skip
def test_floor_matrix_usage(options):
    run = shardtool("inspect", *options, status=2)
    assert run.stdout == "" and "Error" in run.stderr
