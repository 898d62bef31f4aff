"""Law 7: a buffer is a permutation, brings nothing earlier than its capacity allows, and equals the literal loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.seeds import generator
from shardtool.mixing import buffers
from shardtool.mixing.shuffles import KERNELS, reorder


def bounds_of(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@given(
    kernel=st.sampled_from(sorted(KERNELS)), sizes=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    buffer=st.integers(1, 60), initial=st.integers(0, 70), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_every_kernel_is_a_permutation(kernel, sizes, buffer, initial, seed):
    n = sum(sizes)
    out = reorder(kernel, bounds_of(sizes), buffer, initial, generator(seed))
    assert sorted(out.tolist()) == list(range(n))
    if kernel in ("rolling", "growing", "half"):
        # Sample i is read when `buffer` samples are held at most: it leaves at position i - (buffer-1) or later.
        assert (np.arange(n) >= out - (buffer - 1)).all()
    if kernel == "windows":
        assert (np.arange(n) // buffer == out // buffer).all()
    if kernel == "within":
        shard = np.repeat(np.arange(len(sizes)), sizes)
        assert (shard[out] == shard).all()


def loop_replace(capacity, picks):
    """The obvious loop of a buffer that fills, delivers a slot, and puts the next sample there."""
    held, out = list(range(capacity)), []
    for t, pick in enumerate(picks):
        out.append(held[pick])
        held[pick] = capacity + t
    return out, held


@pytest.mark.parametrize("chunk", [4, 64, 1 << 17])
@given(capacity=st.integers(1, 30), steps=st.integers(0, 200), seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_replace_equals_the_loop(chunk, capacity, steps, seed):
    picks = np.random.default_rng(seed).integers(0, capacity, steps)
    before, buffers.CHUNK = buffers.CHUNK, chunk
    try:
        slots, out = np.arange(capacity), np.empty(steps, np.int64)
        buffers.replace(slots, picks, capacity, out)
    finally:
        buffers.CHUNK = before
    assert (out.tolist(), slots.tolist()) == loop_replace(capacity, picks.tolist())


class Recorded:
    """Picks from a list of fractions, the same for the loop and for the kernel."""

    def __init__(self, fractions):
        self.fractions, self.at = fractions, 0

    def one(self, bound):
        self.at += 1
        return int(self.fractions[self.at - 1] * bound)

    def many(self, bound, count):
        return np.array([self.one(bound) for _ in range(count)], np.int64)

    def drain(self, held):
        held, out = held.tolist(), []
        while held:
            k = self.one(len(held))
            out.append(held[k])
            held[k] = held[-1]
            held.pop()
        return np.array(out, np.int64)


def loop_growing(n, capacity, initial, picks):
    """webdataset's filter as published: append, append a second, pick, replace by the last."""
    source, held, out = iter(range(n)), [], []

    def pick():
        k = picks.one(len(held))
        out.append(held[k])
        held[k] = held[-1]
        held.pop()

    for sample in source:
        held.append(sample)
        if len(held) < capacity:
            following = next(source, None)
            if following is not None:
                held.append(following)
        if len(held) >= min(initial, capacity):
            pick()
    while held:
        pick()
    return out


@given(n=st.integers(0, 150), capacity=st.integers(0, 40), initial=st.integers(0, 45), seed=st.integers(0, 2**32))
@settings(max_examples=500, deadline=None)
def test_growing_equals_the_loop(n, capacity, initial, seed):
    fractions = np.random.default_rng(seed).random(2 * n + 10)
    out = buffers.growing(n, capacity, initial, Recorded(fractions))
    assert out.tolist() == loop_growing(n, capacity, initial, Recorded(fractions))


def loop_half(n, capacity, perms):
    """datasets 5.1 and later: shuffle when full, give half away, keep half."""
    held, out = [], []
    perms = iter(perms)
    for sample in range(n):
        held.append(sample)
        if len(held) >= capacity:
            order = next(perms)
            held = [held[i] for i in order]
            give = capacity - capacity // 2
            out += held[:give]
            held = held[give:]
    return out, held


@given(n=st.integers(0, 120), capacity=st.integers(1, 30), seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_half_flush_equals_the_loop(n, capacity, seed):
    capacity = min(capacity, n or 1)
    steps = (n - capacity // 2) // (capacity - capacity // 2) if n >= capacity else 0
    places = np.broadcast_to(np.arange(capacity, dtype=np.int32), (steps, capacity))
    perms = generator(seed).permuted(places, axis=1) if steps else []
    out, held = loop_half(n, capacity, perms)
    made = buffers.half_flush(n, capacity, generator(seed))
    assert made[: len(out)].tolist() == out
    assert sorted(made[len(out) :].tolist()) == sorted(held)


def loop_interleave(sizes, cycle):
    """tf.data's loop: one sample a turn; an end is noticed at its turn, the next shard opened at the turn after."""
    starts = np.cumsum([0, *sizes]).tolist()
    waiting = list(range(len(sizes)))
    places = [None] * cycle
    out, at = [], 0
    while waiting or any(place is not None for place in places):
        if places[at] is not None:
            shard, position = places[at]
            if position < sizes[shard]:
                out.append(starts[shard] + position)
                places[at] = (shard, position + 1)
            else:
                places[at] = None
            at = (at + 1) % cycle
        elif waiting:
            places[at] = (waiting.pop(0), 0)
        else:
            at = (at + 1) % cycle
    return out


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12), cycle=st.integers(1, 6))
@settings(max_examples=400, deadline=None)
def test_interleave_equals_the_loop(sizes, cycle):
    assert buffers.interleave(np.array(sizes), cycle).tolist() == loop_interleave(sizes, cycle)


def test_alternate_takes_one_of_each():
    groups = [np.array([0, 1, 2]), np.array([10]), np.array([20, 21])]
    assert buffers.alternate(groups).tolist() == [0, 10, 20, 1, 21, 2]


def test_clumps_stay_together():
    out = buffers.clumps(10, 4, generator(3))
    heads = [int(v) for v in out if v % 4 == 0]
    assert out.tolist() == [x for h in heads for x in range(h, min(h + 4, 10))]


def test_two_slots_have_the_exact_law():
    """Buffer of 2 over 0..9: 20,000 epochs against the exact probabilities."""
    rng, trials = generator(1), 20_000
    outs = np.stack([buffers.rolling(10, 2, rng) for _ in range(trials)])
    support = [(int(c.min()), int(c.max())) for c in outs.T]
    assert support == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (0, 8), (0, 9), (0, 9)]
    assert abs((outs[:, 0] == 0).mean() - 0.5) < 0.02
    for element, p in {0: 0.125, 1: 0.125, 2: 0.25, 3: 0.5}.items():
        assert abs((outs[:, 2] == element).mean() - p) < 0.02
    expected = [0.5, 1.25, 2.125, 3.0625, 4.03125, 5.015625, 6.007812, 7.003906, 8.001953, 8.001953]
    # Standard error of a mean: the delay has variance B(B-1) = 2 and a truncated tail.
    assert np.abs(outs.mean(axis=0) - expected).max() < 0.06


@pytest.mark.parametrize("buffer", [6, 100])
def test_a_buffer_of_everything_is_uniform(buffer):
    """All 720 orders of six samples, chi-square within 5 standard deviations."""
    rng, trials = generator(2), 36_000
    seen = {}
    for _ in range(trials):
        key = tuple(buffers.rolling(6, buffer, rng).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 720
    chi = sum((count - trials / 720) ** 2 / (trials / 720) for count in seen.values())
    assert abs(chi - 719) < 5 * (2 * 719) ** 0.5


def test_a_buffer_of_one_is_the_identity():
    assert buffers.rolling(6, 1, generator(0)).tolist() == list(range(6))


def test_rolling_delay_has_the_geometric_law():
    """P(delay > y B) = (1-1/B)^(B + yB); E|delay| = 2B (1-1/B)^B; nothing earlier than B-1."""
    n, b = 400_000, 2000
    delay = np.empty(n, np.int64)
    out = buffers.rolling(n, b, generator(4))
    delay[out] = np.arange(n) - out
    middle = delay[b : n - 20 * b]
    assert delay.min() >= -(b - 1)
    for y in (0, 1, 2):
        assert abs((middle > y * b).mean() - (1 - 1 / b) ** (b + y * b)) < 0.004
    assert abs(np.abs(middle).mean() / b - 2 * (1 - 1 / b) ** b) < 0.01


def test_drain_in_order_keeps_the_slots():
    out = buffers.rolling(10, 10, generator(0), drain="inorder")
    assert out.tolist() == list(range(10))


def test_half_flush_block_lags():
    """Two samples of one flush are of the same half buffer with probability 1/3, of halves k apart 2/3 2^-k."""
    b, n = 200, 400_000
    out = buffers.half_flush(n, b, generator(5))
    flush = out[20 * b : -20 * b].reshape(-1, b // 2) // (b // 2)
    lag = np.abs(flush[:, : b // 4] - flush[:, b // 4 :]).ravel()
    assert abs((lag == 0).mean() - 1 / 3) < 0.01
    assert abs((lag == 1).mean() - 1 / 3) < 0.01
    assert abs((lag == 2).mean() - 1 / 6) < 0.01


def test_growing_reads_on_until_it_is_full():
    """With K samples and a buffer of more, growing from almost nothing: rank correlation 2/3 in the limit."""
    n = 50_000
    out = buffers.growing(n, 2 * n, 2, buffers.UniformPicks(generator(6)))
    assert abs(np.corrcoef(np.arange(n), out)[0, 1] - 2 / 3) < 0.02


def test_ten_million_through_ten_thousand_is_fast():
    """The kernel must not fall back to a loop: ten times the time it takes, on a busy machine."""
    import time

    start = time.perf_counter()
    buffers.rolling(10_000_000, 10_000, generator(0))
    assert time.perf_counter() - start < 4
