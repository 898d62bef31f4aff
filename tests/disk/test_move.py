"""The copy kernel against a loop of slices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.disk.engines import move as module
from shardtool.disk.engines.move import _grouped, _over_copied, move


def wanted(target, to, source, at, length):
    made = target.copy()
    for a, b, n in zip(to, at, length, strict=True):
        made[a : a + n] = source[b : b + n]
    return made


LENGTHS = st.one_of(
    st.lists(st.integers(0, 30), max_size=60), st.lists(st.sampled_from([16, 17]), max_size=80), st.just([5000, 3, 9])
)


@given(LENGTHS, st.booleans(), st.integers(0, 2**32))
@settings(deadline=None)
def test_every_way_is_the_loop(lengths, gaps, seed):
    random = np.random.default_rng(seed)
    length = np.array(lengths, np.int64)
    source = random.integers(0, 256, max([200, *lengths]) + int(random.integers(30)), dtype=np.uint8)
    at = random.integers(0, len(source) - length + 1)
    between = random.integers(0, 3, len(lengths)) * gaps
    to = np.cumsum(length) - length + np.cumsum(between)
    target = np.full(int((to + length).max(initial=0)) + int(random.integers(20)), 7, np.uint8)
    right = wanted(target, to, source, at, length)
    ways = [move, _grouped] if lengths else [move]
    if any(lengths) and not gaps:
        ways.append(lambda t, o, s, a, n: _over_copied(t, o, s, a, n, len(s)))
        stop = at + length + random.integers(0, 9, len(length))  # no frame may be read beyond its own bound
        ways.append(lambda t, o, s, a, n: _over_copied(t, o, s, a, n, stop))
    for way in ways:
        got = target.copy()
        way(got, to, source, at, length)
        assert np.array_equal(got, right)


@pytest.mark.parametrize("size", [1, 7, 64, 200, 1024, 3000])
@pytest.mark.parametrize("count", [100, 5000])
def test_numpy_assigns_in_index_order(size, count):
    """What over-copy relies on: of two overlapping items the one with the larger index stays."""
    source = np.random.default_rng(0).integers(0, 256, size * 4, dtype=np.uint8)
    step = max(1, size // 3)
    target = np.zeros(count * step + size, np.uint8)
    to = np.arange(count) * step
    at = np.arange(count) % (len(source) - size + 1)
    module._items(target, size)[to] = module._items(source, size)[at]
    right = np.zeros_like(target)
    for a, b in zip(to.tolist(), at.tolist(), strict=True):
        right[a : a + size] = source[b : b + size]
    assert np.array_equal(target, right)
