"""A column in a file answers as the array does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.disk import columns
from shardtool.disk.columns import Constant, FileColumn, Store, put


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300), st.data())
@settings(deadline=None, max_examples=60)
def test_windows_and_takes(values, data):
    array = np.array(values, np.int64)
    store = Store(0)
    column = store.empty(len(values), stored="<u4")
    before = columns.SWEEP
    columns.SWEEP = data.draw(st.sampled_from([1, 7, 1 << 18]))
    try:
        for lo in range(0, len(values), 50):
            put(column, lo, array[lo : lo + 50])
        assert isinstance(column, FileColumn) and len(column) == len(array)
        lo = data.draw(st.integers(0, len(values)))
        hi = data.draw(st.integers(0, len(values) + 5))
        assert column[lo:hi].tolist() == array[lo:hi].tolist() and column[lo:hi].dtype == np.int64
        if values:
            ids = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=40)), np.int64)
            assert column.take(ids).tolist() == array.take(ids).tolist()
    finally:
        columns.SWEEP = before



def test_a_store_keeps_its_budget():
    store = Store(1000)
    kinds = [type(store.empty(50)), type(store.empty(100)), type(store.empty(75))]
    assert kinds == [np.ndarray, FileColumn, np.ndarray] and store.held == 1000


def test_out_of_range():
    store = Store(0)
    column = store.empty(3)
    put(column, 0, np.arange(3))
    for ids in ([3], [-1, 0]):
        with pytest.raises(IndexError):
            column.take(np.array(ids))


def test_constant():
    column = Constant(12, 5)
    assert column[1:9].tolist() == [12] * 4 and column.take(np.array([4, 0])).tolist() == [12, 12] and len(column) == 5
