"""The arithmetic of floor 1: intervals, delivery, elastic numbers, the floor matrix, words, verdict,
capacity."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import UsageError
from shardtool.base.units import MIB
from shardtool.schedule.capacity import Demand, advice, capacity
from shardtool.schedule.counts import count_iterable, deal_batches
from shardtool.schedule.elastic import (
    divisors_of,
    highly_composite,
    next_multiple,
    parse_worlds,
    smallest_splits,
)
from shardtool.schedule.intervals import Intervals, circular
from shardtool.schedule.matrix import floor_matrix, label_skew
from shardtool.schedule.schedule import Reading, interleave, ranges
from shardtool.schedule.verdict import judge
from shardtool.schedule.words import percent, spans
from shardtool.schedule.world import World

pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


@given(pairs, pairs)
def test_union_is_the_set(first, second):
    def both(pairs):
        return (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))

    one, two = Intervals.union(*both(first)), Intervals.union(*both(second))
    real = {i for lo, hi in first for i in range(lo, hi)}
    assert {i for lo, hi in zip(one.lo, one.hi, strict=True) for i in range(lo, hi)} == real
    assert (one.lo[1:] > one.hi[:-1]).all() and (one.hi > one.lo).all()
    real |= {i for lo, hi in second for i in range(lo, hi)}
    assert one.join(two).total() == len(real)


@given(st.integers(1, 20), st.data())
def test_circular_arcs(n, data):
    start, length = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, 3 * n))
    found = Intervals.union(*circular(np.array([start]), np.array([length]), n))
    assert found.total() == len({(start + i) % n for i in range(length)})


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 5))
def test_dealing_batches(samples, size, lanes):
    """Batch j of a rank goes to worker j % lanes."""
    got, batches = deal_batches(np.array(samples), size, lanes)
    for rank, n in enumerate(samples):
        cut = [min(size, n - at) for at in range(0, n, size)]
        for lane in range(lanes):
            assert (got[rank, lane], batches[rank, lane]) == (sum(cut[lane::lanes]), len(cut[lane::lanes]))


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=4))
def test_interleave_takes_batches_in_turn(parts):
    number, readings = 0, []
    for sizes in parts:
        many = sum(sizes)
        ids = np.arange(number, number + many)
        readings.append(Reading(ids, np.zeros(many, bool), np.array(sizes, np.int64)))
        number += many
    queues = [[r.batch(j).tolist() for j in range(len(r.batches))] for r in readings]
    expected = []
    while any(queues):
        for queue in queues:
            if queue:
                expected.append(queue.pop(0))
    got = interleave(readings)
    assert [got.batch(j).tolist() for j in range(len(got.batches))] == expected


def test_ranges():
    assert ranges(np.array([5, 0, 9]), np.array([8, 0, 10])).tolist() == [5, 6, 7, 9]


def test_elastic_numbers():
    assert [next_multiple(v, 8) for v in (0, 1, 8, 9)] == [8, 8, 8, 16]
    for value in range(1, 200):
        assert divisors_of(value) == sum(value % d == 0 for d in range(1, value + 1))
    assert smallest_splits([4, 6, 8]) == 24
    assert highly_composite(1, 1, 100) == 60
    assert highly_composite(10, 8, 50) == 48
    assert parse_worlds("1-4,8,12-20/4") == [1, 2, 3, 4, 8, 12, 16, 20]
    for text in ("", "0-3", "4-2", "a", "1-4/0", "1-99999999", "-3"):
        with pytest.raises(ValueError):
            parse_worlds(text)
    assert parse_worlds("0,2", 0) == [0, 2]


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 5))
def test_floor_matrix_is_the_formula(n, ranks, epochs):
    made = floor_matrix(n, ranks, epochs)
    for e in range(epochs):
        for r in range(ranks):
            k = (r + e) % ranks
            assert made.shard[e, r] == k
            assert made.rotated[e, r] == (k + 1) * n // ranks - k * n // ranks
    assert made.size.sum() == n and made.first.tolist() == [k * n // ranks for k in range(ranks)]


def test_floor_matrix_bytes_and_labels():
    samples, size = np.array([4, 0, 6]), np.array([400, 0, 60])
    made = floor_matrix(10, 5, shard_samples=samples, shard_bytes=size)
    assert made.bytes.tolist() == [200, 200, 20, 20, 20]
    labels = np.array([[4, 0], [0, 0], [0, 6]])
    made = floor_matrix(10, 2, shard_samples=samples, shard_bytes=size, shard_labels=labels)
    # rank 0 holds 4 of class 0 and 1 of class 1 (shares .8/.2 against .4/.6), rank 1 five of class 1
    assert np.allclose(made.skew, [0.4, 0.4])
    assert label_skew(np.array([[5.0, 5.0], [1.0, 1.0]])).tolist() == [0, 0]
    for bad in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(UsageError):
            floor_matrix(*bad)


def test_words():
    assert spans([]) == ""
    assert spans([0, 1, 2, 3]) == "0-3"
    assert spans([0, 1, 5, 7, 8, 9]) == "0, 1, 5, 7-9"
    assert spans(list(range(1, 100, 2))) == "1, 3, 5, 7, 9, ... (50 in all)"
    assert [percent(*p) for p in ((0, 5), (1, 3), (1, 10**9))] == ["0 %", "33.3 %", "<0.01 %"]


def counts_of(pieces, world, **more):
    pieces = np.array(pieces, np.int64)
    return count_iterable(
        pieces, world, 2, drop_last=False, first=np.zeros_like(pieces), shard=np.zeros_like(pieces), **more
    )


def test_verdict_on_uneven_and_empty_ranks():
    world = World(3, workers_per_rank=2, batch_size=4)
    verdict = judge(counts_of([[8, 8], [8, 4], [0, 0]], world), 30, world, workers=True)
    assert verdict.hang and verdict.uneven_batches
    assert verdict.empty_ranks == [2] and verdict.empty_workers == [[2, 0], [2, 1]]
    assert verdict.lost.tolist() == [2, 2] and verdict.repeated.tolist() == [0, 0]
    assert verdict.found == {"hang", "empty", "uneven", "lost"}
    text = "\n".join(verdict.reasons)
    assert "1 of 3 ranks get no data (2)" in text and "0 to 4 batches" in text and "2 of 6 workers" in text


def test_verdict_when_all_is_well():
    world = World(2, batch_size=4)
    verdict = judge(counts_of([[8], [7]], world), 15, world, workers=False)
    assert not verdict.found and not verdict.reasons


def test_one_rank_never_hangs():
    world = World(1, workers_per_rank=3)
    verdict = judge(counts_of([[2, 0, 1]], world), 3, world, workers=True)
    assert not verdict.hang and verdict.empty_workers == [[0, 1]]


@settings(max_examples=60)
@given(
    n=st.integers(1, 10**9), ranks=st.integers(1, 64), workers=st.integers(1, 8), mean=st.integers(1, 10**7)
)
def test_advice_is_what_its_rules_say(n, ranks, workers, mean):
    world = World(ranks, workers_per_rank=workers)
    made = advice(n, 10, world, float(mean), unit="shards", lanes_per_rank=workers)
    count, lanes = made["advised"], ranks * workers
    assert 1 <= count <= n
    assert count % lanes == 0 or n < lanes
    assert made["rules"][0]["holds"] == (count % lanes == 0)
    assert made["rules"][1]["holds"] == (count >= 4 * lanes)
    assert made["rules"][2]["holds"] == (round(n * mean / count) >= 8 * MIB)


def test_capacity_products():
    world = World(16, ranks_per_node=4, workers_per_rank=2, batch_size=10)
    counts = counts_of(np.full((16, 2), 500), world)
    demand = Demand(1000.0, 300, 100, 50.0, 1_000_000, 3)
    made = capacity(counts, 16_000, 32, world, demand, unit="shards", lanes_per_rank=2)
    assert made["bytes_per_rank"] == [1_000_000, 1_000_000] and made["bytes_per_worker"] == 500_000
    assert made["bytes_per_node"] == 4_000_000 and made["nodes"] == 4
    assert made["bytes_read_per_epoch"] == 48_000_000
    assert made["disk"]["full_copy"] == 16_000_000 and made["disk"]["shards_in_flight"] == 8 * 500_000
    assert made["buffer"]["bytes_per_node"] == 300 * 1000 * 8
    assert made["read"]["bytes_per_second_node"] == 4 * 50 * 1000 * 3
    assert made["first_batch"]["seconds"] == pytest.approx(110 * 8 * 1000 / 1_000_000)
    assert made["read"]["epoch_seconds"] == 20 and math.isclose(made["read"]["batches_per_second"], 5)
    unknown = capacity(
        counts, 16_000, 32, world, Demand(None, 300, 100, None, 1), unit="shards", lanes_per_rank=2
    )
    assert unknown["bytes_per_rank"] == [None, None] and unknown["first_batch"]["seconds"] is None


def test_world_refuses_nonsense():
    for bad in (
        {"ranks": 0},
        {"workers_per_rank": -1},
        {"batch_size": 0},
        {"ranks_per_node": 0},
        {"ranks": 1 << 25},
    ):
        with pytest.raises(UsageError):
            World(**bad)
    world = World(20, workers_per_rank=0)
    assert (world.lanes_per_rank, world.lanes, world.ranks_on_node, world.nodes) == (1, 20, 8, 3)
