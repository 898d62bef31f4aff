"""The order is checked shard by shard, without being computed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.base.seeds import sort_key
from shardtool.layout.checks import first_descent, first_outside, sort_keys_of
from shardtool.layout.order import Order


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**62), max_size=20))
def test_sort_keys_are_those_of_the_order(seed, numbers):
    assert sort_keys_of(seed, np.array(numbers, np.int64)).tolist() == [sort_key(seed, i) for i in numbers]


@pytest.mark.parametrize("n", [1, 2, 3, 100])
def test_only_the_order_passes(n):
    order = Order(n, seed=5).whole()
    assert first_descent(sort_keys_of(5, order)) is None
    for at in range(n - 1):
        other = order.copy()
        other[[at, at + 1]] = other[[at + 1, at]]
        assert first_descent(sort_keys_of(5, other)) is not None
        other[at] = other[at + 1]  # one twice, one missing
        assert first_descent(sort_keys_of(5, other)) is not None


def test_outside():
    assert first_outside(np.array([0, 4, 2]), 5) is None
    assert first_outside(np.array([0, 5, -1]), 5) == 1
    assert first_outside(np.array([0, -1]), 5) == 1
