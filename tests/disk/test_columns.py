"""A column in a file answers as the array does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.ragged import Ragged
from shardtool.disk import columns
from shardtool.disk.columns import Constant, Derived, FileColumn, Pieces, Store, StoredStrings, put, recoded


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
    made = [store.empty(50), store.empty(100), store.empty(75)]
    assert [type(one) for one in made] == [np.ndarray, FileColumn, np.ndarray] and store.held == 1000
    view = made[0][10:20]
    del made
    assert store.held == 400, "an array of which a view is left is there"
    del view
    assert store.held == 0


PIECES = st.lists(st.lists(st.integers(-5, 2**33), max_size=9), min_size=1, max_size=8)


@given(PIECES, st.sampled_from([0, 100, 1 << 20]), st.data())
@settings(deadline=None, max_examples=80)
def test_pieces_in_any_order(pieces, budget, data):
    store = Store(budget)
    growing = store.growing()
    for number in data.draw(st.permutations(range(len(pieces)))):
        growing.add(number, np.array(pieces[number], np.int64))
    shifts = [data.draw(st.sampled_from([0, 7])) for _ in pieces]
    column = growing.finish(range(len(pieces)), shifts)
    want = np.array([v + by for piece, by in zip(pieces, shifts, strict=True) for v in piece], np.int64)
    assert len(column) == len(want) and column[0 : len(want)].tolist() == want.tolist()
    lo = data.draw(st.integers(0, len(want)))
    assert column[lo : lo + 5].tolist() == want[lo : lo + 5].tolist() and column[lo : lo + 5].dtype == np.int64
    if len(want):
        ids = np.array(data.draw(st.lists(st.integers(0, len(want) - 1), max_size=40)), np.int64)
        assert column.take(ids).tolist() == want.take(ids).tolist()
    assert store.held <= budget
    del column, growing
    assert store.held == 0


def test_kinds_of_columns_of_pieces():
    pieces = [np.arange(10), np.full(5, 3), np.arange(5)]

    def made(budget, order):
        growing = Store(budget).growing()
        for number, values in enumerate(pieces):
            growing.add(number, values)
        return type(growing.finish(order))

    assert made(0, [1]) is Constant and made(0, [0, 1, 2]) is Pieces and made(90, [0, 1, 2]) is Pieces
    assert made(159, [0, 1, 2]) is Pieces and made(160, [0, 1, 2]) is np.ndarray


@given(st.lists(st.lists(st.binary(max_size=6), max_size=9), min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=80)
def test_strings(pieces, data):
    made = []
    for budget in (0, 1 << 20):
        growing = Store(budget).strings()
        for number in data.draw(st.permutations(range(len(pieces)))):
            growing.add(number, Ragged.of(pieces[number]))
        made.append(growing.finish(range(len(pieces))))
    want = [string for piece in pieces for string in piece]
    ids = np.array(data.draw(st.lists(st.integers(0, len(want) - 1), max_size=20)) if want else [], np.int64)
    lo = data.draw(st.integers(0, len(want)))
    hi = data.draw(st.integers(lo, len(want)))
    step = data.draw(st.sampled_from([1, 3, 1 << 16]))
    for strings in made:
        if isinstance(strings, StoredStrings):
            strings._step = step
        assert len(strings) == len(want) and list(strings) == want == list(strings.whole())
        assert [strings[i] for i in range(len(want))] == want
        assert list(strings.take(ids)) == [want[i] for i in ids]
        assert strings.lengths_of(ids).tolist() == [len(want[i]) for i in ids]
        assert list(strings.window(lo, hi)) == want[lo:hi] and strings.window(lo, hi).first[0] == 0
        assert strings.bytes_of(lo, hi) == sum(map(len, want[lo:hi]))
    assert isinstance(made[1], Ragged)


def test_derived_and_recoded():
    store = Store(0)
    column = store.empty(4)
    put(column, 0, np.array([2, 0, 1, 2]))
    table = np.array([10, 20, 30])
    for one in (recoded(column, table), recoded(np.array([2, 0, 1, 2]), table)):
        assert one[1:4].tolist() == [10, 20, 30] and one.take(np.array([3, 1])).tolist() == [30, 10] and len(one) == 4
    both = Derived(np.add, column, column)
    assert both[0:2].tolist() == [4, 0] and both.take(np.array([2])).tolist() == [2]


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
