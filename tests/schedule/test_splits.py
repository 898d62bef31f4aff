"""Splits: every row once, the same global batches in every compatible world, equal ranks where promised."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import UsageError
from shardtool.schedule.epoch_order import EpochOrder
from shardtool.schedule.splits import Splits


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


@st.composite
def any_splits(draw):
    slots, turns, share = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    samples, policy = draw(st.integers(1, 120)), draw(st.sampled_from(["exact", "drop", "pad"]))
    if policy == "drop":
        samples = max(samples, slots * turns)
    return Splits(samples, slots * turns, turns, slots * share, policy)


def steps_of(splits, rank, ranks):
    """[(split, row), ...] of every step."""
    steps = np.arange(splits.steps(rank, ranks))
    split, row, sizes = splits.take(steps, rank, ranks)
    pairs = list(zip(split.tolist(), row.tolist(), strict=True))
    ends = np.cumsum(sizes).tolist()
    assert not len(sizes) or sizes.min() > 0  # no hole
    return [pairs[b - s : b] for s, b in zip(sizes.tolist(), ends, strict=True)]


@settings(max_examples=120, deadline=None)
@given(splits=any_splits())
def test_pieces(splits):
    every = np.arange(splits.count)
    starts, rows = splits.start(every), splits.real_rows(every)
    # the pieces lie end to end, in order of the splits
    assert starts.tolist() == [0, *np.cumsum(rows)[:-1].tolist()]
    assert rows.max() - rows.min() <= 1
    kept = splits.samples - (splits.samples % splits.count if splits.policy == "drop" else 0)
    assert rows.sum() == kept
    found = flat(steps_of(splits, 0, 1))
    assert len(found) == len(set(found)) == splits.rows(every).sum()
    if splits.policy != "exact":
        assert len(set(splits.rows(every).tolist())) == 1


@settings(max_examples=120, deadline=None)
@given(splits=any_splits())
def test_global_batches_are_the_same_in_every_world(splits):
    whole = steps_of(splits, 0, 1)
    assert all(len(batch) <= splits.global_batch for batch in whole)
    for ranks in range(1, splits.slots + 1):
        if splits.slots % ranks:
            with pytest.raises(UsageError, match="cannot be dealt"):
                splits.check_world(ranks)
            continue
        splits.check_world(ranks)
        parts = [steps_of(splits, rank, ranks) for rank in range(ranks)]
        joined = [flat(step) for step in itertools.zip_longest(*parts, fillvalue=[])]
        assert joined == whole
        many = {len(p) for p in parts}
        assert max(many) - min(many) <= 1
        if splits.policy != "exact":
            assert len(many) == 1
            assert all(len({len(b) for b in step}) == 1 for step in zip(*parts, strict=True))
        sizes, copies = splits.last_turn(np.arange(ranks), ranks)
        for rank in range(ranks):
            tail = [len(b) for b in parts[rank][splits.whole_turns * splits.turns :]]
            assert tail == [s for s in sizes[rank].tolist() if s]
            pads = sum(row >= splits.real_rows(np.array(split)) for batch in parts[rank] for split, row in batch)
            assert pads == copies[rank].sum()


@pytest.mark.parametrize("shuffle", ["shards", "global", "none"])
@settings(max_examples=50, deadline=None)
@given(splits=any_splits(), buffer=st.integers(1, 30), seed=st.integers(0, 3), data=st.data())
def test_order_is_a_permutation(shuffle, splits, buffer, seed, data):
    cuts = data.draw(st.lists(st.integers(0, splits.samples), max_size=5))
    sizes = np.diff([0, *sorted(cuts), splits.samples])
    split = np.repeat(np.arange(splits.count), splits.rows(np.arange(splits.count)))
    row = np.concatenate([np.arange(k) for k in splits.rows(np.arange(splits.count))])
    ids, copy = EpochOrder(sizes, splits, shuffle, buffer, seed, 0).ids(split, row)
    assert len(set(ids[~copy].tolist())) == (~copy).sum()
    assert ((ids >= 0) & (ids < splits.samples)).all()
    if splits.policy == "drop":
        assert not copy.any()
    else:
        assert set(ids[~copy].tolist()) == set(range(splits.samples))
    if shuffle == "shards" and splits.policy != "pad":
        # a window holds a stretch of the stream of shards: sorted, its samples are runs of whole stored pieces
        order = EpochOrder(sizes, splits, shuffle, buffer, seed, 0)
        stream = np.concatenate([np.arange(splits.samples)[f : f + s] for f, s in in_order(order)])
        for s in range(splits.count):
            mine, start = ids[split == s], int(splits.start(np.array(s)))
            for lo in range(0, len(mine), order.window):
                window = mine[lo : lo + order.window]
                assert set(window.tolist()) == set(stream[start + lo : start + lo + len(window)].tolist())


def in_order(order):
    """(first sample, samples) of the shards as they are read."""
    sizes = np.diff(order._ends, prepend=0)
    return zip(order._first.tolist(), sizes.tolist(), strict=True)


def test_epochs_and_seeds_differ():
    splits = Splits(1000, 4, 1, 8)
    split, row = np.repeat(np.arange(4), 250), np.tile(np.arange(250), 4)
    for shuffle in ("shards", "global"):
        orders = {
            (seed, epoch): EpochOrder(np.full(20, 50), splits, shuffle, 100, seed, epoch).ids(split, row)[0].tolist()
            for seed in range(3)
            for epoch in range(3)
        }
        assert len({tuple(ids) for ids in orders.values()}) == 9


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((100, 10, 3, 10), "num_splits 9 or 12"),
        ((100, 24, 1, 100), "a global batch of 96 or 120, or num_splits 20 or 25"),
        ((100, 0, 1, 1), "at least 1"),
        ((3, 4, 1, 4, "drop"), "at most 3 splits"),
        ((3, 4, 1, 4, "most"), "none of exact, drop, pad"),
    ],
)
def test_what_cannot_be(numbers, says):
    with pytest.raises(UsageError) as caught:
        Splits(*numbers)
    assert says in str(caught.value)


def test_the_nearest_ranks_are_named():
    with pytest.raises(UsageError) as caught:
        Splits(1000, 24, 1, 48).check_world(5)
    assert "num_splits 20 or 25" in str(caught.value) and "4 or 6 ranks" in str(caught.value)


@pytest.mark.parametrize("count", [24, 48])
def test_elastic_over_every_pair_of_worlds(count):
    """A run of one world stops at any step, one of another goes on: the batches are those of an undisturbed run."""
    n = 617
    worlds = [r for r in range(1, count + 1) if count % r == 0]
    splits = Splits(n, count, 1, count)
    order = EpochOrder(np.array([250, 350, 17]), splits, "shards", 10, 3, 1)
    ids = {
        ranks: [
            [order.ids(*map(np.array, zip(*batch, strict=True)))[0].tolist() for batch in steps_of(splits, r, ranks)]
            for r in range(ranks)
        ]
        for ranks in worlds
    }
    whole = ids[1][0]
    assert sorted(flat(whole)) == list(range(n))
    for before, after in itertools.product(worlds, repeat=2):
        for stop in (0, 7, len(whole) - 1):
            done = [flat(b for r in ids[before] for b in r[t : t + 1]) for t in range(stop)]
            rest = [flat(b for r in ids[after] for b in r[t : t + 1]) for t in range(stop, len(whole))]
            assert done + rest == whole
