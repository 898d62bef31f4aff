"""Mixing score and design effect without a simulation: instant at any size, and good for curves and targets.

Everything a buffer does to a batch is decided by pairs. Two samples of one batch lay `lag` apart in the stream that
the buffer reads, and the law of the lag is the buffer's signature: Laplace with scale B for a rolling buffer, a
triangle on [0, B] for a window, halving steps of B/2 for the half flush. With the shards in random order only one
thing about the lag matters: whether it ends in the same shard (probability q). With the shards in order the lag is
the source distance itself, and the score is its overlap with a full shuffle's triangle 2(1-d).

Limits (n and B large, edges of an epoch negligible unless stated); tests hold them against simulation.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .metrics import distance_edges, distance_null, source_tv

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What decides the closed forms.

    law          'rolling', 'half', 'windows', 'spread', 'blocks', 'within', 'clumps', 'full' (Kernel.law)
    n, shard     samples in all, samples a shard (n: one shard)
    batch        samples a rank's batch
    buffer       samples a buffer
    initial      samples held before the first is delivered, after which the buffer grows (webdataset); None: full
    shuffled     shards in random order
    cycle        shards read in turn
    ranks        whose batches make up a step; lanes: buffers of one rank
    ranges       ranks read contiguous ranges (else whole shards, dealt in turn)
    dealt        the shards themselves are dealt in stored order: a lane has every k-th of them, in every epoch
    gaps         float[shards]: how many shards apart two different shards lie that are read at the same time, where
                 the shard order is no full shuffle; empty: it is
    one_stream   ranks take every k-th sample of one shuffled stream
    classes      classes in the source when it is stored in order as one shard
    rho          how much a shard is of one class: 1 all, 0 as the whole source
    repacked     the stored order is itself a full shuffle
    """

    law: str
    n: int
    shard: float
    batch: int
    buffer: int
    initial: int | None = None
    shuffled: bool = False
    cycle: int = 1
    ranks: int = 1
    lanes: int = 1
    ranges: bool = False
    dealt: bool = False
    one_stream: bool = False
    grouped: bool = False
    classes: int = 10
    rho: float = 1.0
    repacked: bool = False
    gaps: tuple[float, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """score 0..100 and design effect 1..batch of a global batch; None: no closed form."""

    score: float | None
    deff: float | None


def forecast(s: Setting, score_only: bool = False) -> Forecast:
    """Score and design effect of the batches of one step (all ranks); `score_only` leaves out what costs more."""
    step = s.batch * s.ranks
    whole = s.buffer >= s.n and s.ranks * s.lanes == 1 and s.law in ("rolling", "half", "windows")
    if s.repacked or s.law == "full" or (whole and (s.initial is None or s.initial >= s.n)):
        return Forecast(100.0, 1.0)
    if s.n < 2 or s.batch < 2:
        return Forecast(None, None)
    if s.shard >= s.n:
        if score_only:
            return Forecast(_in_order(s), None)
        q = _same_cell(s, s.n / s.classes) if s.ranks == 1 else None
        deff = None if q is None else design_effect(q, s.classes, step, s.rho)
        return Forecast(_in_order(s), deff)
    if score_only and not s.shuffled and s.law != "clumps":
        return Forecast(_in_order(s), None)
    inside = q = _same_cell(s, s.shard)
    if q is not None and s.ranks > 1 and not s.one_stream:
        q *= (s.batch - 1) / (step - 1)  # samples of different ranks never share a shard
    if s.law == "clumps":  # the clumps themselves are in random order
        q = clump_cell(step, s.buffer)
        return Forecast(100 * (1 - q), design_effect(q + (1 - q) * s.shard / s.n, s.n / s.shard, step, s.rho))
    deff = None if q is None else design_effect(q, s.n / s.shard, step, s.rho)
    if s.shuffled:
        if q is not None and s.gaps:
            weight = np.array(s.gaps) * (1 - q)
            weight[0] = q
            score: float | None = 100 * apart_score(s, weight)
        elif inside is not None and s.dealt and s.ranks * s.lanes > 1:
            score = 100 * dealt_score(s, inside)
        else:
            score = None if q is None else 100 * min(1.0, max(0.0, shard_score(q, s.n / s.shard)))
    else:
        score = _in_order(s)
    return Forecast(score, deff)


# -- with random shard order: the probability of the same shard ------------------------------------------------------


def shard_score(q: float, shards: float) -> float:
    """Score (0..1) when pairs share a shard with probability q: 1 - (q - 1/K) / (1 - 1/K)."""
    return 1 - (q - 1 / shards) / (1 - 1 / shards)


def design_effect(q: float, classes: float, batch: int, rho: float = 1.0) -> float:
    """1 + (b-1) rho (q - 1/K) / (1 - 1/K): noise of a batch mean when classes lie together in cells."""
    return 1 + (batch - 1) * rho * (q - 1 / classes) / (1 - 1 / classes)


def dealt_score(s: Setting, q: float) -> float:
    """Score (0..1) when a lane holds every k-th shard of the stored order and shuffles those among themselves.

    A batch is of one lane, a step of one lane of every rank: two of its samples lie in the same shard (probability q
    inside a lane) or a number of shards apart that their lanes fix modulo k. Distances between neighbouring shards
    of one lane never occur, which the score sees; summed here over the bins of the score itself.
    """
    shards, lanes = round(s.n / s.shard), s.ranks * s.lanes
    apart = np.arange(shards)
    pairs = 2.0 * (shards - apart)  # pairs of shards `apart`, both ways round
    same = (s.batch - 1) / (s.batch * s.ranks - 1)  # pairs of one rank
    weight = np.where(apart % lanes == 0, pairs, 0)
    weight[0] = 0
    weight *= (1 - q) * same / max(weight.sum(), 1)
    weight[0] = q * same
    if s.ranks > 1:
        # Worker w of rank r reads shards r + ranks * (w + lanes_per_rank * j): ranks differ by 1..ranks-1.
        other = np.zeros(shards)
        for off in range(1, s.ranks):
            for at in (off, lanes - off):
                hits = apart % lanes == at % lanes
                other[hits] += (s.ranks - off) * (shards - apart[hits])
        weight += (1 - same) * other / other.sum()
    return apart_score(s, weight)


def apart_score(s: Setting, weight: F64) -> float:
    """Score (0..1) when two samples of a batch lie k shards apart with probability weight[k], float[shards]."""
    shards = len(weight)
    edges = distance_edges(s.n)
    null = distance_null(s.n, edges)
    # Cumulative share of pairs closer than each edge: shards k apart spread the triangle (k-1, k+1) of their sizes.
    x = edges / s.shard
    k = np.minimum(np.floor(x).astype(np.int64), shards)
    total = np.concatenate([[0.0], np.cumsum(weight), [weight.sum()] * 2])  # total[k] = weights below k
    padded = np.concatenate([weight, [0.0, 0.0, 0.0]])
    rise = x - k  # 0..1
    closer = total[np.maximum(k, 0)] + padded[k] * (1 - (1 - rise) ** 2 / 2) + padded[k + 1] * rise**2 / 2
    # Within a shard the distance has no sign: its triangle is (0, 1), twice as steep.
    first = np.minimum(x, 1)
    own = weight[0] * (1 - (1 - first) ** 2)
    closer += own - weight[0] * np.where(k == 0, 1 - (1 - rise) ** 2 / 2, 1.0)
    tv = 0.5 * float(np.abs(np.diff(closer) - null).sum())
    worst = source_tv(s.n, s.batch * s.ranks, edges, null)
    return min(1.0, max(0.0, (worst - tv) / worst)) if worst > 0 else 1.0


def laplace_cell(x: float) -> float:
    """P(two samples at a Laplace lag of scale B lie in one cell of width w), x = B/w: 1 - x (1 - e^(-1/x))."""
    return 1 - x * -math.expm1(-1 / x) if x > 0 else 1.0


def same_cell(batch: int, scale: float, width: float) -> float:
    """The same for two samples of one batch: their lag is the distance of their places in the batch (triangle on
    1..b-1) plus a Laplace lag of scale B.

    E max(0, 1 - |lag|/w) for places d apart: the triangle kernel t solves h - B^2 h'' = t, so that
    h(d) = t(d) + (B/2w) (e^(-|d+w|/B) - 2 e^(-|d|/B) + e^(-|d-w|/B)).
    """
    d = np.arange(1, batch, dtype=np.float64)
    weight = 2 * (batch - d) / (batch * (batch - 1))
    h = np.maximum(0, 1 - d / width)
    if scale > 0:
        h += scale / (2 * width) * (
            np.exp(-(d + width) / scale) - 2 * np.exp(-d / scale) + np.exp(-np.abs(d - width) / scale)
        )  # fmt: skip
    return float(weight @ h)


def window_cell(size: float, width: float) -> float:
    """P(same cell) for two samples of one tumbling window: 1/k for k whole shards, 1 inside one; else averaged over
    where the window falls, E max(0, 1 - lag/w) with lag on the triangle [0, size]."""
    if size >= width and size % width == 0:
        return width / size
    if width % size == 0:
        return 1.0
    x = size / width
    return 1 - x / 3 if x <= 1 else 1 / x - 1 / (3 * x * x)


def block_cell(reach: float, width: float) -> float:
    """The same for blocks of 0.75..1.25 `reach` that fall anywhere; a larger block holds more of the pairs."""
    factor = np.linspace(0.775, 1.225, 10)
    x = reach * factor / width
    cell = np.where(x <= 1, 1 - x / 3, 1 / np.maximum(x, 1) - 1 / (3 * np.maximum(x, 1) ** 2))
    return float((cell * factor).sum() / factor.sum())


def clump_cell(batch: int, size: int) -> float:
    """P(same clump) for two samples of a batch: clumps and batches that divide one another keep in step."""
    if size >= batch and size % batch == 0:
        return 1.0
    if batch % size == 0:
        return (size - 1) / (batch - 1)
    return same_cell(batch, 0.0, size)


@functools.lru_cache(maxsize=4096)
def edge_cell(beta: float, width: float) -> float:
    """P(same cell) for a rolling buffer that is a large part (beta) of its stream; width: of a cell, as a share of
    the stream. Fill and drain count, and two samples are never further apart than the stream is long."""
    d = np.unique(np.concatenate([np.linspace(0, width, 60), _grid(beta)]))
    density = rolling_pair_density(beta, d)
    density = density / _area(density, d)
    return _area(density * np.maximum(0, 1 - d / width), d)


def half_cell(size: int, width: float) -> float:
    """P(same cell) for the half flush: with probability 1/3 of the same block of B/2, 2/3 2^-k of blocks k apart."""
    half = size / 2
    total = _mean_cell(0, half, width) / 3
    for k in range(1, 60):
        total += 2 / 3 * 2.0**-k * _mean_cell(k * half, half, width)
        if (k - 1) * half > width:
            break
    return total


def _mean_cell(center: float, spread: float, width: float) -> float:
    """E max(0, 1 - |lag|/w), lag a triangle of half-width `spread` around `center`."""
    u = (np.arange(2000) + 0.5) / 1000 - 1  # [-1, 1]
    return float((np.maximum(0, 1 - np.abs(center + u * spread) / width) * (1 - np.abs(u))).sum() / 1000)


def spread_cell(reach: float, width: float) -> float:
    """P(same shard) when a shard's samples move by U(-(R-m)/2, (R-m)/2): m times the integral of the squared density
    of a shard, the convolution of uniforms of widths m and R-m (averaged over R in 0.75..1.25 reach)."""
    total = 0.0
    for factor in np.linspace(0.775, 1.225, 10):
        move = max(0.0, reach * float(factor) - width)
        total += (width / move) * (1 - width / (3 * move)) if move >= width else 1 - move / (3 * width)
    return total / 10


def _same_cell(s: Setting, width: float) -> float | None:
    """P(two samples of a batch of one lane share a cell of `width` stored samples)."""
    batch = s.batch * s.ranks if s.one_stream else s.batch
    if s.law == "rolling":
        return _rolling_cell(s, batch, width)
    if s.law == "within":
        return same_cell(batch, 0.0, width)
    if s.law == "windows":
        return window_cell(s.buffer, width)
    if s.law == "spread":
        return spread_cell(s.buffer, width)
    if s.law == "blocks":
        return block_cell(s.buffer, width)
    if s.law == "half":
        if s.cycle > 1:
            return half_cell(s.buffer, s.cycle * width) / s.cycle if s.buffer >= 2 * s.cycle else None
        return half_cell(s.buffer, width) if s.buffer > 1 else same_cell(batch, 0.0, width)
    return None


def _rolling_cell(s: Setting, batch: int, width: float) -> float | None:
    stream = s.n if s.one_stream else s.n / (s.ranks * s.lanes)  # samples one buffer reads
    turn = s.cycle if width < s.n else 1
    beta = s.buffer / stream
    if turn > 1 and s.buffer < 2 * turn:  # the lag still knows the turn: same shard only at multiples of the cycle
        return _no_buffer_cycle(batch, width, turn) if s.buffer <= 1 else None
    wide = min(stream, turn * width)
    if beta >= 1:
        steady = width / stream
    elif beta > 0.02 and batch * 4 < s.buffer:
        steady = edge_cell(beta, wide / stream) / turn
    else:
        steady = same_cell(batch, math.sqrt(s.buffer * (s.buffer - 1.0)), turn * width) / turn
    if s.initial is None:
        return steady
    share = growth_share(s, stream)
    d = np.unique(np.concatenate([np.linspace(0, wide / stream, 200), _grid(min(beta, 0.9))]))
    young = _area(growth_pair_density(min(beta, 1.0), d) * np.maximum(0, 1 - d * stream / wide), d) / turn
    return (1 - share) * steady + share * young


def growth_share(s: Setting, stream: float) -> float:
    """Share of a lane's samples that are delivered while its buffer grows, or drained when it never gets full."""
    if s.initial is None:
        return 0.0
    return 1.0 if 2 * s.buffer - s.initial >= stream else max(0, s.buffer - s.initial) / stream


def growth_pair_density(beta: float, d: F64, moments: int = 40) -> F64:
    """Density of the source distance of two samples of a batch while a buffer grows: after t samples 2t were read, and
    the one read at x is still held with probability x/2t, so that the density is 2x/L^2 on [0, L], L = 2t; t runs to
    beta, or to 1/2, where everything has been read and the rest is drained as it is."""
    middle = (np.arange(moments) + 0.5) / moments
    reach = 2 * beta * middle if beta < 0.5 else np.concatenate([middle, np.ones(moments)])
    left = np.maximum(0, reach[:, None] - d[None, :])  # [moments, distances]
    density: F64 = (8 / reach[:, None] ** 4 * (left**3 / 3 + d[None, :] * left**2 / 2)).mean(axis=0)
    return density


def _no_buffer_cycle(batch: int, width: float, cycle: int) -> float:
    d = np.arange(cycle, batch, cycle, dtype=np.float64)
    weight = 2 * (batch - d) / (batch * (batch - 1))
    return float((weight * np.maximum(0, 1 - d / (cycle * width))).sum())


# -- files in order: overlap of the distance law with a full shuffle's ----------------------------------------------


def _in_order(s: Setting) -> float | None:
    lanes = s.ranks * s.lanes
    if s.cycle > 1 and s.shard < s.n:
        return None
    if s.law == "within" and s.shard < s.n:
        return 0.0
    if s.ranges and lanes > 1:
        return 100 * ranges_score(s) if s.law == "rolling" and s.lanes == 1 else None
    if lanes > 1 and not s.one_stream:
        if s.law == "rolling" and s.shard < s.n and s.buffer * lanes < 0.2 * s.n:
            return 100 * comb_score(s)
        return None
    beta = s.buffer / s.n
    if s.law == "rolling":
        share = growth_share(s, s.n)
        return 100 * (rolling_score(beta) if not share else growing_score(beta, share)) if s.buffer > 1 else 0.0
    if s.law == "windows":
        return 100 * window_score(beta) if s.buffer > 1 else 0.0
    if s.law == "half":
        return 100 * half_score(beta) if s.buffer > 1 else 0.0
    return None


def _grid(scale: float) -> F64:
    """Distances in (0, 1]: fine near 0 on the scale of the buffer, then even."""
    near = np.geomspace(min(scale, 0.5) * 1e-3, 1.0, 250)
    return np.unique(np.concatenate([[0.0], near, np.linspace(0, 1, 150)]))


def overlap(d: F64, density: F64) -> float:
    """Integral of min(density, 2(1-d)): 1 - total variation against a full shuffle."""
    density = density / _area(density, d)
    return _area(np.minimum(density, 2 * (1 - d)), d)


def _area(y: F64, x: F64) -> float:
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum())


def rolling_pair_density(beta: float, d: F64, moments: int = 32) -> F64:
    """Density of the source distance (in units of n) of two samples of a batch, averaged over the epoch.

    At output time u a sample of the fill [0, beta] is left with density A = e^(-u/beta)/beta, a later one x with
    e^(-(u+beta-x)/beta)/beta; from u = 1-beta on the drain is a shuffled snapshot. The density of the distance is
    2 x the autocorrelation of that, in three parts: both of the fill, both later, one of each.
    """
    node, share = np.polynomial.legendre.leggauss(moments)  # on [-1, 1], shares summing to 2
    u = np.append((node + 1) / 2 * (1 - beta), 1 - beta)[:, None]  # [moments + 1, 1]
    weight = np.append(share / 2 * (1 - beta), beta)
    a = np.exp(-u / beta) / beta
    gap = d[None, :]
    fill = a * a * np.maximum(0, beta - gap)
    # Exponents above 0 belong to places that the masks leave out.
    later = np.exp(-gap / beta) - np.exp(np.minimum(gap - 2 * u, 0) / beta)
    later = np.where(gap <= u, later / (2 * beta), 0)
    low, high = np.maximum(0, beta - gap), np.minimum(beta, u + beta - gap)
    near, far = np.minimum(high + gap - u - beta, 0), np.minimum(low + gap - u - beta, 0)
    mixed = a * (np.exp(near / beta) - np.exp(far / beta))
    return weight @ (2 * (fill + later + np.where(high > low, mixed, 0)))


@functools.lru_cache(maxsize=4096)
def rolling_score(beta: float) -> float:
    """Score (0..1) of a rolling buffer of beta * n over files in order."""
    if beta >= 1:
        return 1.0
    d = _grid(beta)
    return overlap(d, rolling_pair_density(beta, d))


def growing_score(beta: float, share: float) -> float:
    """The same for a buffer that grows while `share` of the samples is delivered."""
    d = _grid(min(beta, 1.0))
    young = growth_pair_density(min(beta, 1.0), d)
    steady = rolling_pair_density(min(beta, 0.999), d)
    return overlap(d, share * young / _area(young, d) + (1 - share) * steady / _area(steady, d))


def ranges_score(s: Setting) -> float:
    """The same when every rank reads a contiguous range through its own buffer, for the batch of all ranks: pairs of
    one rank lie within its range; pairs of two ranks lie k ranges apart, plus the difference. On the bins of the
    score, which are wider than the gaps between the peaks at k ranges."""
    beta, batch, ranks = s.buffer * s.ranks / s.n, s.batch, s.ranks
    near = _grid(min(beta, 0.999))
    if beta >= 1:
        density = 2 * (1 - near)
    elif s.buffer > 1:
        density = rolling_pair_density(beta, near)
    else:
        return 0.0
    edges = distance_edges(s.n)
    null = distance_null(s.n, edges)
    inside = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(near))])
    inside /= inside[-1]  # P(difference within a range < near)
    x = edges / s.n * ranks
    same = (batch - 1) / (batch * ranks - 1)
    closer = same * np.interp(x, near, inside)
    for k in range(1, ranks):
        # k + D with D symmetric: P(k + D < x)
        side = np.interp(np.abs(x - k), near, inside)
        closer += (1 - same) * 2 * (ranks - k) / (ranks * (ranks - 1)) * (0.5 + np.sign(x - k) * side / 2)
    tv = 0.5 * float(np.abs(np.diff(closer) - null).sum())
    worst = source_tv(s.n, batch * ranks, edges, null)
    return min(1.0, max(0.0, (worst - tv) / worst)) if worst > 0 else 1.0


def comb_score(s: Setting) -> float:
    """Shards in stored order, dealt in turn to k lanes: neighbours in a lane's stream are k shards apart, so that a
    Laplace lag of j shards of the stream is j * k shards of the source (plus what two lanes differ by)."""
    shards, lanes = round(s.n / s.shard), s.ranks * s.lanes
    scale, width = math.sqrt(s.buffer * (s.buffer - 1.0)), s.shard
    j = np.arange(-(-shards // lanes), dtype=np.float64)
    at = j * width
    lag = np.maximum(0, 1 - at / width)
    if scale > 0:
        lag += scale / (2 * width) * (
            np.exp(-(at + width) / scale) - 2 * np.exp(-at / scale) + np.exp(-np.abs(at - width) / scale)
        )  # fmt: skip
    weight = np.zeros(shards + lanes)
    same = (s.batch - 1) / (s.batch * s.ranks - 1)
    np.add.at(weight, (j * lanes).astype(np.int64), lag * np.where(j == 0, 1, 2) * same)
    for off in range(1, s.ranks):
        share = (1 - same) * 2 * (s.ranks - off) / (s.ranks * (s.ranks - 1))
        np.add.at(weight, (j * lanes).astype(np.int64) + off, lag * share)
        np.add.at(weight, np.abs(off - (j[1:] * lanes).astype(np.int64)), lag[1:] * share)
    weight = weight[:shards]
    return apart_score(s, weight / weight.sum())


def window_score(beta: float) -> float:
    """Score (0..1) of tumbling windows of beta * n over files in order: triangles [0, beta], and one for the rest."""
    if beta >= 1:
        return 1.0
    d = _grid(beta)
    whole = math.floor(1 / beta + 1e-9)
    rest = 1 - whole * beta
    density = whole * beta * np.maximum(0, 2 * (beta - d) / beta**2)
    if rest > 1e-9:
        density += rest * np.maximum(0, 2 * (rest - d) / rest**2)
    return overlap(d, density)


def half_score(beta: float) -> float:
    """Score (0..1) of the half flush over files in order: the mixture of blocks of B/2 in every flush, followed
    through the epoch (block t+1 enters with weight 1/2 and halves with every flush)."""
    if beta >= 1:
        return 1.0
    half = beta / 2
    steps = max(1, round((1 - half) / half))
    if steps > 200:
        lags = np.concatenate([[1 / 3], 2 / 3 * 2.0 ** -np.arange(1, 60)])
    else:
        mixture = np.zeros(steps + 1)
        mixture[:2] = 0.5
        lags = np.zeros(steps + 1)
        for t in range(steps):
            weight = 1.5 if t == steps - 1 else 1.0  # the last half is delivered too
            lags += weight * _lag_weights(mixture)
            if t + 2 <= steps:
                mixture = mixture / 2
                mixture[t + 2] = 0.5
        lags /= lags.sum()
    d = _grid(half)
    density = np.zeros_like(d)
    for k, share in enumerate(lags):
        if share > 1e-12:
            kernel = np.maximum(0, 1 - np.abs(d - k * half) / half) / half
            density += share * (2 * kernel if k == 0 else kernel)
    return overlap(d, density)


def _lag_weights(mixture: F64) -> F64:
    both = np.correlate(mixture, mixture, "full")[len(mixture) - 1 :]
    both[1:] *= 2
    return both


def rolling_freshness(n: int, buffer: int) -> float:
    """How much more often than by chance pairs meet again when every epoch reads the same order: n / (4B)."""
    return n / (4 * buffer)


# -- targets -----------------------------------------------------------------------------------------------------------


def buffer_for(s: Setting, target: float) -> int | None:
    """Smallest buffer whose forecast reaches `target` (0..100); None: none below the lane's share of the data."""
    most = s.n if s.one_stream else s.n // (s.ranks * s.lanes)
    reach = forecast(replace(s, buffer=max(1, most - 1)), score_only=True).score
    if reach is None or reach < target:
        return None
    low, high = 1, max(1, most - 1)  # forecast(high) reaches it; windows are only nearly monotone
    while low < high and high - low > max(1, low // 1000):
        mid = math.isqrt(low * high) if high > 4 * low else (low + high) // 2
        mid = min(max(mid, low + 1), high - 1) if high - low > 1 else low
        score = forecast(replace(s, buffer=mid), score_only=True).score
        if score is not None and score >= target:
            high = mid
        else:
            low = mid
    return high
