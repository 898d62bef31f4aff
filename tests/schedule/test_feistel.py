"""The keyed bijection: a bijection for every n, uniform, and pinned."""

import numpy as np
import pytest

from shardtool.base.seeds import GOLDEN, mix64, named_stream
from shardtool.schedule.feistel import ORDER, permute

SIZES = [1, 2, 3, 65_537, *(n for k in (2, 3, 4, 7, 10, 16) for n in (2**k - 1, 2**k, 2**k + 1))]


def literal(index, n, key):
    """The definition, one number at a time."""
    bits = (n - 1).bit_length()
    while True:
        wide, narrow = bits - bits // 2, bits // 2
        left, right = index >> wide, index & (1 << wide) - 1
        widths = [narrow, wide]
        for number in range(8):
            z = mix64(mix64(key + (number + 1) * GOLDEN) + (right + 1) * GOLDEN)
            left, right = right, left ^ (z & (1 << widths[0]) - 1)
            widths.reverse()
        index = left << wide | right
        if index < n:
            return index


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("key", [0, 1, named_stream(7, "samples", 3)])
def test_bijection(n, key):
    images = permute(np.arange(n), n, key)
    assert (np.sort(images) == np.arange(n)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 1000, 65_537, 2**40 + 1, 2**62 - 1])
def test_is_its_definition(n):
    places = [0, n // 3, n // 2, n - 1]
    assert permute(np.array(places), n, 12345).tolist() == [literal(i, n, 12345) for i in places]


def test_arrays_of_sizes_and_keys_are_many_bijections():
    n = np.array([1, 2, 3, 9, 100, 65_537])
    index, keys = np.array([0, 1, 2, 5, 77, 65_536]), np.arange(6, dtype=np.uint64) << np.uint64(58)
    together = permute(index, n, keys)
    assert together.tolist() == [literal(int(i), int(m), int(k)) for i, m, k in zip(index, n, keys, strict=True)]


def test_pinned():
    """States of running trainings rely on these; another order needs another name."""
    assert ORDER == "feistel-splitmix64/1"
    assert permute(np.arange(10), 10, 0).tolist() == [literal(i, 10, 0) for i in range(10)]
    assert permute(np.arange(10), 10, 0).tolist() == PINNED


PINNED = [1, 2, 0, 7, 8, 4, 3, 9, 6, 5]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 9])
def test_every_place_is_equally_likely(n):
    """Counts of (index, image) over keys, chi-squared with (n-1)^2 degrees of freedom."""
    trials = 6000
    keys = np.array([named_stream(0, "uniform", k) for k in range(trials)], np.uint64)
    index = np.tile(np.arange(n), trials)
    images = permute(index, np.full(len(index), n), np.repeat(keys, n))
    table = np.zeros((n, n))
    np.add.at(table, (index, images), 1)
    chi, freedom = ((table - trials / n) ** 2 / (trials / n)).sum(), (n - 1) ** 2
    assert abs(chi - freedom) < 5 * (2 * freedom) ** 0.5 + 5


def bias(n, first):
    """(chi-squared in standard deviations above its mean, relative deviation of a probability) of the images of
    0..first-1 together."""
    trials = 20_000
    keys = np.array([named_stream(1, "uniform", k) for k in range(trials)], np.uint64)
    index = np.tile(np.arange(first), trials)
    rows = permute(index, np.full(len(index), n), np.repeat(keys, first)).reshape(trials, first)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    kinds = np.prod(np.arange(n, n - first, -1))
    assert len(counts) == kinds
    excess = ((counts - trials / kinds) ** 2 / (trials / kinds)).sum() - (kinds - 1)
    return excess / (2 * (kinds - 1)) ** 0.5, (max(0, excess) / trials) ** 0.5


@pytest.mark.parametrize(("n", "first"), [(3, 3), (4, 2), (9, 2), (12, 2), (17, 2), (33, 2)])
def test_pairs_are_equally_likely(n, first):
    assert abs(bias(n, first)[0]) < 5


@pytest.mark.parametrize("n", [5, 6, 7, 8])
def test_pairs_in_blocks_of_three_bits_are_nearly(n):
    """What the docstring says of halves of one and two bits."""
    assert bias(n, 2)[1] < 0.15


def test_neighbours_go_apart_and_keys_are_unrelated():
    n = 65_537
    a, b = (permute(np.arange(n), n, named_stream(s, "samples", 0)) for s in (0, 1))
    gaps = np.abs(np.diff(a)) / n
    assert abs(gaps.mean() - 1 / 3) < 0.01
    assert abs(np.corrcoef(a, np.arange(n))[0, 1]) < 0.02 and abs(np.corrcoef(a, b)[0, 1]) < 0.02
    assert (a == b).sum() < 12
    assert max((a[1:] == b[:-1]).sum(), (a[:-1] == b[1:]).sum()) < 12
