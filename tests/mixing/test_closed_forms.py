"""Closed forms against simulation over a grid, and their known values."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from shardtool.base.seeds import generator
from shardtool.jobs.simulate import Stored, setting_of
from shardtool.mixing import closed_forms as c
from shardtool.mixing import metrics as m
from shardtool.mixing.pipeline import Pipeline, deliver
from shardtool.mixing.shuffles import SHUFFLES


def simulated(pipe, shards, size):
    """(score, deff) of one epoch, shards (or tenths) as classes."""
    n = shards * size
    table = deliver(pipe, np.full(shards, size), 0).global_batches()
    classes = table // size if shards > 1 else table * 10 // n
    score = m.mixing_score(m.pair_distances(table, n, generator(0))).value
    return score, m.design_effect(m.compose(classes)).value


def check(pipe, shards, size, points, deff=0.06):
    forecast = c.forecast(setting_of(pipe, Stored(np.full(shards, size))))
    score, effect = simulated(pipe, shards, size)
    assert forecast.score == pytest.approx(score, abs=points)
    if forecast.deff is not None:
        assert forecast.deff == pytest.approx(effect, rel=deff, abs=0.05)


def pipe(loader, buffer, **more):
    return Pipeline(SHUFFLES[loader], buffer, more.pop("batch_size", 64), seed=3, **more)


@pytest.mark.parametrize("share", [0.002, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7])
@pytest.mark.parametrize("loader", ["torch", "grain-window", "hf-5.1"])
def test_files_in_order(loader, share):
    n = 300_000
    made = replace(pipe(loader, int(share * n)), cycle=1, shuffle_shards=False)
    score, _ = simulated(made, 1, n)
    forecast = c.forecast(setting_of(made, Stored(np.array([n])))).score
    # windows and half buffers of a large share are few: their number is not a round one
    assert forecast == pytest.approx(score, abs=1.2 if loader == "torch" or share < 0.3 else 6)


@pytest.mark.parametrize("x", [0.25, 0.5, 1, 2, 5, 10, 50])
def test_random_shards_and_a_rolling_buffer(x):
    check(pipe("torch", int(x * 500), shuffle_shards=True), 600, 500, 1.5)


@pytest.mark.parametrize("k", [2, 5, 10, 20])
def test_random_shards_and_windows(k):
    """Few shard pairs meet when windows do not overlap: one run scores a little below the closed form."""
    made = pipe("grain-window", k * 500, shuffle_shards=True)
    forecast = c.forecast(setting_of(made, Stored(np.full(600, 500))))
    score, deff = simulated(made, 600, 500)
    assert forecast.deff == pytest.approx(deff, rel=0.06)
    assert -1.5 < forecast.score - score < 4


@pytest.mark.parametrize("x", [5, 10, 20])
def test_random_shards_and_half_flush(x):
    check(replace(pipe("hf-5.1", x * 500, shuffle_shards=True), cycle=1), 600, 500, 1.5, deff=0.08)


@pytest.mark.parametrize(("k", "x"), [(4, 1), (10, 1), (10, 10), (16, 40)])
def test_interleave(k, x):
    """Fewer shard pairs meet than the closed form assumes: the score of one run lies a little below it."""
    made = pipe("tfdata", x * 500, shuffle_shards=True, cycle=k)
    forecast = c.forecast(setting_of(made, Stored(np.full(800, 500))))
    score, deff = simulated(made, 800, 500)
    assert forecast.deff == pytest.approx(deff, rel=0.08)
    assert -0.5 < forecast.score - score < 4


@pytest.mark.parametrize("reach", [2, 5, 10, 40])
@pytest.mark.parametrize("loader", ["mosaic-py1e", "mosaic-py1br"])
def test_mosaic(loader, reach):
    check(pipe(loader, reach * 500, shuffle_shards=True), 600, 500, 2.5, deff=0.08)


@pytest.mark.parametrize("loader", ["mosaic-py1s", "mosaic-naive", "full"])
def test_within_shards_and_full(loader):
    check(pipe(loader, 1, shuffle_shards=True), 600, 500, 1.0)


@pytest.mark.parametrize("clump", [8, 60, 100])
def test_clumps(clump):
    check(pipe("lancedb", clump), 600, 500, 3.0, deff=0.08)


@pytest.mark.parametrize(("ranks", "workers"), [(1, 4), (2, 4), (4, 0), (8, 0)])
@pytest.mark.parametrize("x", [1, 5, 20])
def test_webdataset_workers(ranks, workers, x):
    """Shards dealt before they are shuffled: a worker never sees its neighbours' shards."""
    check(pipe("webdataset", x * 200, shuffle_shards=True, ranks=ranks, workers=workers), 640, 200, 2.5, deff=0.1)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.6, 1.5])
@pytest.mark.parametrize("initial", [100, 10_000])
def test_growing_buffer_over_files_in_order(share, initial):
    """webdataset delivers while its buffer grows: a buffer of the whole set is still no full shuffle."""
    n = 300_000
    made = pipe("webdataset", int(share * n), initial=initial)
    score, _ = simulated(made, 1, n)
    assert c.forecast(setting_of(made, Stored(np.array([n])))).score == pytest.approx(score, abs=2.5)


@pytest.mark.parametrize("window", [10, 100, 1000])
def test_webdataset_shard_buffer(window):
    made = pipe("webdataset", 500, shuffle_shards=True)
    made = replace(made, shuffle=replace(made.shuffle, shard_buffer=window))
    check(made, 1000, 200, 3.0)


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_contiguous_ranges(ranks, share):
    """DALI: every rank reads a range, so a step draws on `ranks` places of the source."""
    n = 320_000
    check(pipe("dali", int(share * n / ranks), ranks=ranks), 1, n, 2.0)


def test_workers_in_stored_order():
    made = pipe("torch", 2000, workers=4)
    check(made, 600, 500, 2.5)


def test_repacked_is_full():
    made = setting_of(pipe("torch", 10), Stored(np.array([10_000]), repacked=True))
    assert c.forecast(made) == c.Forecast(100.0, 1.0)


def test_known_values():
    """x (1 - e^(-1/x)): 63, 79, 91, 95, 99; buffer only: 1 % 10, 5 % 31, 10 % 47, 20 % 66."""
    shards = [100 * (1 - c.laplace_cell(x)) for x in (1, 2, 5, 10, 50)]
    assert [round(s) for s in shards] == [63, 79, 91, 95, 99]
    for share, value in ((0.01, 10), (0.05, 31), (0.1, 47), (0.2, 66), (0.44, 90), (0.54, 95)):
        assert 100 * c.rolling_score(share) == pytest.approx(value, abs=1)
    assert c.rolling_freshness(1_000_000, 2000) == 125


def test_same_cell_is_the_laplace_form_for_small_batches():
    for x in (0.5, 1, 4, 20):
        assert c.same_cell(2, x * 10_000, 10_000) == pytest.approx(c.laplace_cell(x), abs=1e-4)
    # no buffer, batch inside a shard of b: E(1 - d/w) with d on the triangle of a batch
    assert c.same_cell(10, 0.0, 1000) == pytest.approx(1 - (11 / 3) / 1000)


@pytest.mark.parametrize("loader", ["torch", "grain-window", "hf-5.1", "mosaic-py1e", "webdataset"])
@pytest.mark.parametrize("shards", [1, 500])
def test_score_grows_with_the_buffer(loader, shards):
    if loader == "mosaic-py1e" and shards == 1:
        pytest.skip("moves shards, of which there is one")
    stored = Stored(np.full(shards, 1_000_000 // shards))
    made = replace(pipe(loader, 1, shuffle_shards=shards > 1), cycle=1)
    step = 1000 if loader == "grain-window" else 1  # windows that cut shards are a little better than whole ones
    sizes = [max(2, int(b) // step * step) for b in np.geomspace(2 * step, 900_000, 30)]
    scores = [c.forecast(setting_of(replace(made, buffer=b), stored)).score for b in sizes]
    assert all(b >= a - 0.3 for a, b in itertools.pairwise(scores))


def test_simulated_score_grows_with_the_buffer():
    buffers = (10, 100, 500, 2000, 20_000, 99_999)
    scores = [simulated(pipe("torch", b, shuffle_shards=True), 200, 500)[0] for b in buffers]
    assert scores == sorted(scores)


@pytest.mark.parametrize(
    ("target", "share", "x"),
    [(50, 0.113, 0.63), (75, 0.264, 1.65), (90, 0.438, 4.66), (95, 0.543, 9.66), (99, 0.719, 49.7)],
)
def test_targets(target, share, x):
    """The smallest buffers, of n for files in order and of a shard for random shards."""
    n = 50_000_000
    order = c.Setting("rolling", n, n, 64, 1)
    assert c.buffer_for(order, target) / n == pytest.approx(share, rel=0.02)
    shards = c.Setting("rolling", n, 1000, 2, 1, shuffled=True)
    assert c.buffer_for(shards, target) / 1000 == pytest.approx(x, rel=0.03)
    assert c.buffer_for(c.Setting("rolling", n, 1000, 64, 1, shuffled=True, dealt=True, lanes=64), 95) is None


def test_overlap_of_the_ideal_is_one():
    d = np.linspace(0, 1, 2001)
    assert c.overlap(d, 2 * (1 - d)) == pytest.approx(1)
    assert math.isclose(c.window_score(0.9999999), 1, abs_tol=1e-3)
