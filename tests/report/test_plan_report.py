"""What the floor matrix of `inspect --world-size` looks like, and how rows are folded."""

import json

import numpy as np

from shardtool.jobs.plan import floor_matrix, table_of_counts, table_of_sizes
from shardtool.report.console import Console
from shardtool.report.plan import floor_matrix_facts, folded, show_floor_matrix


def test_folding_keeps_every_row():
    rows = np.array([[1, 2], [1, 3], [1, 2], [0, 0]])
    assert folded(rows) == [([0, 2], [1, 2]), ([1], [1, 3]), ([3], [0, 0])]


def test_matrix_on_the_screen(capsys):
    console = Console(as_json=False, quiet=False, progress="never", log_file=None)
    show_floor_matrix(console, floor_matrix(table_of_sizes("4,6", 100.0), 4, 3))
    out = capsys.readouterr().out
    assert "10 samples over 4 ranks by the floor formula: 2 or 3 (2 ranks)" in out
    lines = [line.split() for line in out.splitlines()]
    # rank 0 and 2 read 2, 3, 2 samples with rotation and 2 without
    assert ["0,", "2", "2", "3", "2", "2", "200", "B"] in lines
    assert ["1,", "3", "3", "2", "3", "3", "300", "B"] in lines


def test_matrix_of_512_ranks_is_short(capsys):
    console = Console(as_json=False, quiet=False, progress="never", log_file=None)
    show_floor_matrix(console, floor_matrix(table_of_counts(10**9 + 7), 512, 20))
    assert len(capsys.readouterr().out.splitlines()) < 40


def test_matrix_as_json():
    facts = floor_matrix_facts(floor_matrix(table_of_counts(10), 4, 2))
    assert json.loads(json.dumps(facts)) == facts
    assert [e["samples"] for e in facts["epochs"]] == [[2, 3, 2, 3], [3, 2, 3, 2]]
    assert facts["without_rotation"] == [2, 3, 2, 3] and facts["first"] == [0, 2, 5, 7]
    assert facts["bytes"] is None and facts["label_skew"] is None
