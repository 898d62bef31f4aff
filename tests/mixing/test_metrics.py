"""Law 8: declared values at source order and at a full shuffle; nulls by enumeration; invariant under relabelling."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.seeds import generator
from shardtool.mixing import metrics as m

RNG = generator(11)
N, B = 64_000, 64
SOURCE = np.arange(N).reshape(-1, B)
FULL = RNG.permutation(N).reshape(-1, B)


def score(table, n=None, **more):
    return m.mixing_score(m.pair_distances(table, n or table.size, generator(0), **more)).value


def test_score_at_both_ends():
    assert abs(score(SOURCE)) < 0.2
    assert abs(score(FULL) - 100) < 0.5
    assert abs(score(RNG.permutation(1_024_000).reshape(-1, 256), enough=1) - 100) < 0.15


@pytest.mark.parametrize("n", [2, 3, 5, 17, 100, 1000])
def test_distance_null_is_exact(n):
    edges = m.distance_edges(n)
    gaps = np.array([abs(i - j) for i, j in itertools.permutations(range(n), 2)])
    seen = np.array([((gaps >= a) & (gaps < b)).mean() for a, b in itertools.pairwise(edges)])
    assert np.allclose(m.distance_null(n, edges), seen)
    assert math.isclose(m.distance_null(n, edges).sum(), 1)


@pytest.mark.parametrize(("n", "b"), [(60, 6), (1000, 50), (999, 27)])
def test_source_tv_is_that_of_source_order(n, b):
    edges = m.distance_edges(n)
    null = m.distance_null(n, edges)
    gaps = np.array([abs(i - j) for i, j in itertools.combinations(range(b), 2)])
    seen = np.array([((gaps >= lo) & (gaps < hi)).mean() for lo, hi in itertools.pairwise(edges)])
    assert math.isclose(m.source_tv(n, b, edges, null), 0.5 * np.abs(seen - null).sum(), abs_tol=1e-12)


@given(st.integers(2, 40), st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_matchings_use_every_pair_once_at_most(b, rounds):
    seen = set()
    for left, right in m.matchings(b, rounds, generator(b)):
        assert len(left) == len(right) == b // 2
        assert len({*left.tolist(), *right.tolist()}) == 2 * (b // 2)
        pairs = {frozenset(p) for p in zip(left.tolist(), right.tolist(), strict=True)}
        assert not pairs & seen
        seen |= pairs
    if rounds >= b:
        assert len(seen) == b * (b - 1) // 2


def tables(n, b):
    """All orders of n samples, cut into batches of b."""
    return [np.array(p[: n // b * b]).reshape(-1, b) for p in itertools.permutations(range(n))]


@pytest.mark.parametrize(("labels", "b"), [([0, 0, 0, 1, 1, 2], 3), ([0, 1, 2, 3, 3, 3], 2), ([0, 0, 1, 1, 1, 1], 2)])
def test_chi_square_moments_by_enumeration(labels, b):
    labels = np.array(labels)
    values = [m.chi_square(m.compose(labels[t])) for t in tables(len(labels), b)]
    seen = np.array([v.value for v in values])
    assert math.isclose(seen.mean(), values[0].mean, rel_tol=1e-9)
    assert math.isclose(seen.var(), values[0].variance, rel_tol=1e-9)


@pytest.mark.parametrize(("n", "b"), [(6, 2), (6, 3), (7, 2), (7, 3)])
def test_neighbours_by_enumeration(n, b):
    """Also where the last batch is left out (7 = 3 x 2 + 1): its samples meet nobody."""
    results = [m.neighbours(t, n) for t in tables(n, b)]
    counts = np.array([r[0] for r in results])
    assert math.isclose(counts.mean(), results[0][1], rel_tol=1e-9)
    if n % b == 0:
        assert math.isclose(counts.var(), results[0][2], rel_tol=1e-9)


@pytest.mark.parametrize(("labels", "b"), [([0, 0, 0, 1, 1, 2], 3), ([0, 0, 1, 2, 3, 3, 3], 2)])
def test_classes_pairs_and_runs_by_enumeration(labels, b):
    labels = np.array(labels)
    orders = tables(len(labels), b)
    distinct = np.mean([m.compose(labels[t]).distinct.mean() for t in orders])
    assert math.isclose(distinct, m.expected_classes(np.bincount(labels), b), rel_tol=1e-9)
    if len(labels) % b == 0:
        same = [m.same_class_pairs(m.compose(labels[t])) for t in orders]
        assert math.isclose(np.mean([s.value for s in same]), same[0].full, rel_tol=1e-9)
    runs = [m.runs(labels[np.array(p)]) for p in itertools.permutations(range(len(labels)))]
    assert math.isclose(np.mean([r.value for r in runs]), runs[0].full, rel_tol=1e-9)


def test_freshness_by_enumeration():
    """Against one fixed epoch, all orders of the next."""
    before = np.arange(6).reshape(3, 2)
    values = [m.freshness(before, t, 6) for t in tables(6, 2)]
    assert math.isclose(np.mean([v.value for v in values]), 1.0, rel_tol=1e-9)
    same = m.freshness(before, before, 6)
    assert math.isclose(same.value, same.source) and same.source == 5


def test_spearman_and_drift_by_enumeration():
    orders = [np.array(p) for p in itertools.permutations(range(6))]
    values = np.array([m.spearman(o, 6).value for o in orders])
    assert abs(values.mean()) < 1e-12
    assert math.isclose(values.var(), 1 / 5, rel_tol=1e-9)
    assert m.spearman(np.arange(6), 6).value == 1
    # Kolmogorov's constants, and the value at source order: sqrt(3n)/4.
    full = [m.drift(RNG.permutation(2000), 2000).value for _ in range(400)]
    assert abs(np.mean(full) - 0.8687) < 0.06
    source = m.drift(np.arange(N), N)
    assert math.isclose(source.value, source.source, rel_tol=0.01)


def test_design_effect_at_both_ends():
    labels = np.arange(N) // (N // 10)
    ends = m.design_effect(m.compose(labels[SOURCE])), m.design_effect(m.compose(labels[FULL]))
    assert math.isclose(ends[0].value, ends[0].source, rel_tol=0.001) and ends[0].source == B
    assert abs(ends[1].value - ends[1].full) < 0.1 and ends[1].full == 1


def test_rank_skew_at_both_ends():
    labels = np.arange(N) // (N // 4)
    skew, worst = m.rank_skew(list(labels.reshape(4, -1)))
    assert math.isclose(skew.value, skew.source, rel_tol=1e-3)
    assert math.isclose(worst.value, worst.source)
    skew, worst = m.rank_skew(list(labels[RNG.permutation(N)].reshape(4, -1)))
    assert abs(skew.value - 1) < 1.5
    assert worst.value < 4 * worst.full


def test_entropy_at_a_full_shuffle():
    """log2 n - 1.017 bits."""
    assert abs(m.entropy(RNG.permutation(100_000)) - (math.log2(100_000) - 1.017)) < 0.02
    assert m.entropy(np.arange(1000)) == 0
    order = RNG.permutation(100_000)
    both = m.mosaic_entropy(order, order // 500, 200)
    assert both.value == pytest.approx(both.full, abs=0.02)
    alone = m.mosaic_entropy(order, None, 1)
    assert alone.value == pytest.approx(alone.full, abs=0.02)


@given(st.permutations(list(range(4))), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_relabelling_changes_nothing(names, seed):
    classes = np.random.default_rng(seed).integers(0, 4, (12, 5))
    other = np.array(names)[classes]
    a, b = m.compose(classes), m.compose(other)
    assert math.isclose(m.chi_square(a).value, m.chi_square(b).value, abs_tol=1e-9)
    assert a.pairs == b.pairs
    assert a.distinct.tolist() == b.distinct.tolist()
    assert m.runs(classes.ravel()).value == m.runs(other.ravel()).value
    assert math.isclose(m.expected_classes(a.sizes, 5), m.expected_classes(b.sizes, 5))
    ranks, others = m.rank_skew(list(classes)), m.rank_skew(list(other))
    assert math.isclose(ranks[0].value, others[0].value, abs_tol=1e-9)


def test_order_inside_a_batch_and_of_batches_does_not_matter():
    table = FULL.copy()
    for row in table:
        RNG.shuffle(row)
    shuffled = table[RNG.permutation(len(table))]
    every = {"enough": N * B}  # all pairs of every batch
    small = slice(0, 100)
    assert math.isclose(score(FULL[small], N, **every), score(table[small], N, **every))
    labels = np.arange(N) // 1000
    assert math.isclose(m.chi_square(m.compose(labels[FULL])).value, m.chi_square(m.compose(labels[shuffled])).value)


def verdict(table, n):
    order = table.ravel()
    pairs = m.pair_distances(table, n, generator(1))
    return m.verdict(table, pairs, n, m.spearman(order, n).value, m.drift(order, n).value)


def test_a_full_shuffle_is_called_one_and_near_misses_are_named():
    wrong = 0
    for _ in range(150):
        wrong += not verdict(RNG.permutation(8192).reshape(-1, 32), 8192)[0]
    assert wrong <= 7  # 1 % of 150 expected; P(more than 7) < 1e-4
    assert verdict(SOURCE, N)[0] is False
    # Every second sample first: well spread distances, yet neighbours never meet.
    n = 8192
    halves = np.concatenate([RNG.permutation(np.arange(0, n, 2)), RNG.permutation(np.arange(1, n, 2))])
    assert verdict(halves.reshape(-1, 32), n)[1] == "neighbours in a batch"
    # A slow slope: source position leans towards its place in the epoch.
    lean = np.argsort(np.arange(n) + RNG.uniform(-5 * n, 5 * n, n))
    same, _, values = verdict(lean.reshape(-1, 32), n)
    assert not same and values["rank correlation"] < 1e-6 and values["drift"] < 1e-6


def test_tails():
    """Known quantiles: normal 1.96, chi-square(63) 95 % = 82.53, Kolmogorov 1.358."""
    assert abs(m.normal_tail(1.959964) - 0.05) < 1e-6
    assert abs(m.chi_square_tail(82.5287, 63) - 0.05) < 5e-4
    assert abs(m.chi_square_tail(103.442, 63) - 0.001) < 5e-5
    assert abs(m.kolmogorov_tail(1.3581) - 0.05) < 1e-4


def test_first_tenth():
    assert m.first_tenth(np.arange(1000), 1000) == pytest.approx(0.1)
    assert m.first_tenth(RNG.permutation(100_000), 100_000) == pytest.approx(1.0)
