"""h_D against its definition, and its null against every arrangement there is."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.layout.spread import h_d, h_d_cells, h_d_null


def by_definition(table):
    """Pearson's chi-square over all cells, divided by shards times (classes - 1)."""
    table = [row for row in table if sum(row)]
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    n = sum(rows)
    chi2 = sum(
        (table[i][j] - rows[i] * columns[j] / n) ** 2 / (rows[i] * columns[j] / n)
        for i in range(len(rows))
        for j in range(len(columns))
        if columns[j]
    )
    return chi2 / (len(rows) * (sum(1 for c in columns if c) - 1))


TABLES = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 5), min_size=width, max_size=width), min_size=2, max_size=5)
)


@given(TABLES)
def test_equals_the_definition(table):
    rows = [row for row in table if sum(row)]
    columns = [c for c in zip(*table, strict=True) if sum(c)]
    if len(rows) < 2 or len(columns) < 2:
        assert math.isnan(h_d(np.array(table, np.int64)))
    else:
        assert h_d(np.array(table, np.int64)) == pytest.approx(by_definition(table), abs=1e-12)


@pytest.mark.parametrize(("labels", "cuts"), [((0, 0, 0, 1, 1, 2), (0, 2, 4, 6)), ((0, 0, 1, 1, 1, 1, 2), (0, 3, 7)),
                                              ((0, 1, 2, 3, 0, 1), (0, 1, 3, 6))])  # fmt: skip
def test_null_mean_over_every_arrangement(labels, cuts):
    """Labels dealt to the shards in all n! ways: the mean is n (s-1) / (s (n-1)), whatever the sizes."""
    values = []
    for order in itertools.permutations(labels):
        table = np.zeros((len(cuts) - 1, max(labels) + 1), np.int64)
        for shard, (a, b) in enumerate(itertools.pairwise(cuts)):
            for label in order[a:b]:
                table[shard, label] += 1
        values.append(h_d(table))
    assert np.mean(values) == pytest.approx(h_d_null(len(labels), len(cuts) - 1), rel=1e-12)


def test_null_of_equal_shards():
    n, m = 6000, 100
    assert h_d_null(n, n // m) == pytest.approx((n - m) / (n - 1))


@pytest.mark.parametrize(("shards", "each"), [(2, 7), (5, 1), (16, 3750)])
def test_one_class_a_shard_gives_the_samples_of_a_shard(shards, each):
    assert h_d(np.eye(shards, dtype=np.int64) * each) == pytest.approx(each)


def test_an_even_table_gives_zero():
    assert h_d(np.full((4, 5), 3, np.int64)) == 0


@given(TABLES, st.randoms())
def test_does_not_depend_on_names(table, rng):
    counts = np.array(table, np.int64)
    rows, columns = list(range(counts.shape[0])), list(range(counts.shape[1]))
    rng.shuffle(rows)
    rng.shuffle(columns)
    assert h_d(counts[rows][:, columns]) == pytest.approx(h_d(counts), abs=1e-12, nan_ok=True)


def test_cells_of_a_million_classes_need_no_table():
    shard = np.repeat(np.arange(1000), 2)
    label = np.arange(2000) * 500
    assert h_d_cells(shard, label, np.full(2000, 3)) == pytest.approx(by_cells(shard, label, 3))


def by_cells(shard, label, count):
    """X2 = n (sum o^2 / (r c) - 1) in integers: every shard has 2 * count samples, every class count."""
    n = len(shard) * count
    chi2 = n * (len(shard) * count * count / (2 * count * count) - 1)
    return chi2 / (len(set(shard.tolist())) * (len(set(label.tolist())) - 1))
