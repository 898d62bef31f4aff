"""How well an order is mixed: every number with its value at source order and at a full shuffle.

All functions read `table`, int64[batches, b]: the source positions (or labels) of the samples of every full batch, in
order of delivery. n is the number of samples of the source, N = batches * b the number that was read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.seeds import Generator

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A metric's value between its value at source order and at a full shuffle."""

    name: str
    value: float
    source: float
    full: float


# -- pair overlap: the mixing score --------------------------------------------------------------------------------


def distance_edges(n: int, per_octave: int = 16) -> I64:
    """Bins [e[j], e[j+1]) of the source distance 1..n-1: single integers first, then `per_octave` to a doubling."""
    octaves = np.arange(math.log2(per_octave), math.log2(max(n, 2)) + 1, 1 / per_octave)
    edges = np.unique(np.concatenate([np.arange(1, per_octave + 1), np.floor(np.exp2(octaves))])).astype(np.int64)
    return np.append(edges[edges < n], n)


def distance_null(n: int, edges: I64) -> F64:
    """Probability of each bin for two different samples of a full shuffle, exactly:
    P(|i-j| < d) = 1 - (n-d)(n-d+1) / (n(n-1))."""
    d = edges.astype(np.float64)
    return np.diff(1 - (n - d) / n * ((n - d + 1) / max(n - 1, 1)))


def source_tv(n: int, b: int, edges: I64, null: F64) -> float:
    """Total variation of source order, where P(d) = 2(b-d) / (b(b-1)) for d = 1..b-1."""
    reach = np.minimum(edges, b).astype(np.float64)
    below = 1 - (b - reach) * (b - reach + 1) / (b * (b - 1))  # P(distance < edge)
    return float(0.5 * np.abs(np.diff(below) - null).sum())


@dataclass(frozen=True)
class Pairs:
    """Source distances of pairs of samples that share a batch.

    counts  int64[n]: pairs at each distance
    total   pairs
    """

    counts: I64
    total: int
    n: int
    b: int

    def histogram(self, edges: I64) -> F64:
        """Share of pairs in each bin."""
        return np.add.reduceat(self.counts, edges[:-1]) / max(self.total, 1)

    def median(self) -> float:
        """Median distance as a share of n; a full shuffle: 1 - 1/sqrt(2) = 29.3 %."""
        return float(np.searchsorted(np.cumsum(self.counts), self.total / 2)) / self.n


# Pairs to look at: fewer leave noise in the score, which its chance level only corrects on average.
ENOUGH_PAIRS = 2_000_000


def matchings(b: int, rounds: int, rng: Generator) -> list[tuple[I64, I64]]:
    """`rounds` matchings of b columns, no pair of columns twice: a round-robin tournament on a random seating."""
    seats = rng.permutation(b)
    size = b + b % 2  # an odd number sits with an empty chair
    found = []
    for r in range(min(rounds, size - 1)):
        pairs = [(size - 1, r)] + [((r + k) % (size - 1), (r - k) % (size - 1)) for k in range(1, size // 2)]
        kept = np.array([(x, y) for x, y in pairs if x < b and y < b], np.int64).reshape(-1, 2)
        found.append((seats[kept[:, 0]], seats[kept[:, 1]]))
    return found


def pair_distances(table: I64, n: int, rng: Generator, enough: int = ENOUGH_PAIRS) -> Pairs:
    """Every batch's samples matched in pairs at random, each sample once a matching (the same columns for all
    batches); as many matchings as make `enough` pairs."""
    rows, b = table.shape
    rounds = max(1, -(-enough // max(1, rows * (b // 2))))
    counts = np.zeros(n, np.int64)
    total = 0
    for left, right in matchings(b, rounds, rng):
        gap = table[:, left] - table[:, right]  # [batches, b // 2]
        np.abs(gap, out=gap)
        counts += np.bincount(gap.ravel(), minlength=n)
        total += gap.size
    return Pairs(counts, total, n, b)


def mixing_score(pairs: Pairs) -> Score:
    """0 at source order, 100 at a full shuffle: how close the law of the source distance between two samples of a
    batch is to a full shuffle's (total variation), on the scale between source order and what a full shuffle shows
    by chance. 90 means: for any question about how close in the source two samples of a batch lay, the answer's
    frequency is within 10 points of a full shuffle's."""
    edges = distance_edges(pairs.n)
    null = distance_null(pairs.n, edges)
    tv = 0.5 * float(np.abs(pairs.histogram(edges) - null).sum())
    chance = 0.5 * float(np.sqrt(2 / math.pi * null * (1 - null) / max(pairs.total, 1)).sum())
    worst = source_tv(pairs.n, pairs.b, edges, null)
    value = 100 * (worst - tv) / (worst - chance) if worst > chance else math.nan
    return Score("mixing score", value, 0.0, 100.0)


# -- classes in a batch --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Composition:
    """Which classes the batches hold.

    pairs      pairs of samples of one batch that share a class
    chi_terms  sum over batches and classes of (samples of the class in the batch)^2 / (samples of the class)
    distinct   int64[batches]: different classes in each batch
    sizes      int64[classes]: samples of each class in all batches
    """

    batches: int
    b: int
    pairs: float
    chi_terms: float
    distinct: I64
    sizes: I64


def compose(classes: npt.NDArray[np.integer]) -> Composition:
    """`classes` [batches, b]: class codes >= 0. Sorting inside the rows makes the classes runs; no table of
    batches x classes is made, so that a class for every shard costs no more than ten classes."""
    rows, b = classes.shape
    top = int(classes.max(initial=0))
    table = classes.astype(np.uint16 if top < 1 << 16 else np.uint32 if top < 1 << 32 else np.uint64)
    sizes = np.bincount(classes.ravel(), minlength=top + 1)
    table.sort(axis=1)
    change = np.empty((rows, b), bool)
    change[:, :1] = True
    np.not_equal(table[:, 1:], table[:, :-1], out=change[:, 1:])
    heads = np.flatnonzero(change)
    runs = np.diff(np.append(heads, rows * b)).astype(np.float64)
    squares = runs * runs
    of = table.ravel()[heads].astype(np.int64)
    chi = float((squares / sizes[of]).sum())
    return Composition(rows, b, float((squares.sum() - rows * b) / 2), chi, change.sum(axis=1), sizes)


@dataclass(frozen=True)
class ChiSquare:
    """Pearson's chi-square of the batches x classes table against its exact null moments for fixed margins."""

    value: float
    mean: float
    variance: float

    @property
    def ratio(self) -> float:
        """The design effect: 1 at a full shuffle, b when every batch holds one class."""
        return self.value / self.mean if self.mean > 0 else 1.0

    @property
    def z(self) -> float:
        """Standard deviations from a full shuffle."""
        return (self.value - self.mean) / math.sqrt(self.variance) if self.variance > 0 else 0.0


def chi_square_moments(rows: F64, columns: F64) -> tuple[float, float]:
    """Mean and variance of Pearson's chi-square over all matchings of fixed margins (Haldane 1940; Mielke & Berry):

    mean = N (R-1)(C-1) / (N-1)
    variance = 2N/(N-3) (v1-w1)(v2-w2) + N^2/(N-1) w1 w2, with v = (R-1)(N-R)/(N-1), w = (N sum 1/r - R^2)/(N-2)
    """
    total, r, c = float(rows.sum()), float(len(rows)), float(len(columns))
    if total < 4:
        return total * (r - 1) * (c - 1) / max(total - 1, 1), 0.0
    v1, v2 = (r - 1) * (total - r) / (total - 1), (c - 1) * (total - c) / (total - 1)
    w1 = (total * float((1 / rows).sum()) - r * r) / (total - 2)
    w2 = (total * float((1 / columns).sum()) - c * c) / (total - 2)
    mean = total * (r - 1) * (c - 1) / (total - 1)
    return mean, max(0.0, 2 * total / (total - 3) * (v1 - w1) * (v2 - w2) + total**2 / (total - 1) * w1 * w2)


def chi_square(parts: Composition) -> ChiSquare:
    """Of batches (all of b samples) against classes."""
    total = parts.batches * parts.b
    sizes = parts.sizes[parts.sizes > 0].astype(np.float64)
    mean, variance = chi_square_moments(np.full(parts.batches, float(parts.b)), sizes)
    return ChiSquare(total * (parts.chi_terms / parts.b - 1), mean, variance)


def design_effect(parts: Composition) -> Score:
    """How many times noisier a batch's class mean is than that of a random batch; b / this = effective batch."""
    return Score("design effect", chi_square(parts).ratio, float(parts.b), 1.0)


def same_class_pairs(parts: Composition) -> Score:
    """Share of the pairs within batches that share a class (a shard, when classes are shards)."""
    total = parts.batches * parts.b
    every = parts.batches * parts.b * (parts.b - 1) / 2
    sizes = parts.sizes.astype(np.float64)
    full = float((sizes * (sizes - 1)).sum() / max(total * (total - 1.0), 1))
    return Score("same-shard pairs", parts.pairs / every if every else math.nan, 1.0, full)


def expected_classes(sizes: I64, b: int) -> float:
    """Expected number of classes in a random batch of b: sum over classes of 1 - C(n-n_k, b) / C(n, b)."""
    n = int(sizes.sum())
    kinds, counts = np.unique(sizes[sizes > 0], return_counts=True)
    total = 0.0
    for size, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        miss = 0.0
        if n - size >= b:
            miss = math.exp(_log_falling(n - size, b) - _log_falling(n, b))
        total += count * (1 - miss)
    return total


def _log_falling(n: int, k: int) -> float:
    """log of n (n-1) ... (n-k+1); lgamma alone would lose the difference for large n."""
    if k <= 4096:
        return float(np.log(np.arange(n - k + 1, n + 1, dtype=np.float64)).sum())
    return math.lgamma(n + 1) - math.lgamma(n - k + 1)


def runs(labels: npt.NDArray[np.integer]) -> Score:
    """Stretches of one label in the order of delivery; at a full shuffle 1 + (n-1)(1 - sum n_k(n_k-1)/(n(n-1)))."""
    n = len(labels)
    sizes = np.bincount(labels).astype(np.float64)
    same = float((sizes * (sizes - 1)).sum())
    full = 1 + (n - 1) - same / n if n > 1 else float(n)
    return Score("label runs", float(1 + (labels[1:] != labels[:-1]).sum()) if n else 0.0, math.nan, full)


# -- over epochs, over ranks, over time -----------------------------------------------------------------------------


def freshness(before: I64, after: I64, n: int) -> Score:
    """How much more often than by chance two samples of a batch meet again in the next epoch (1 = chance).

    `before`, `after` int64[batches, b]: *stored* ids of two epochs' batches.
    """
    batch_of = np.full(n, -1, np.int64)
    batch_of[before.ravel()] = np.repeat(np.arange(len(before)), before.shape[1])
    codes = batch_of[after]
    rows, b = after.shape
    lost = codes < 0  # not in a full batch before: a class of its own, which forms no pair
    codes[lost] = len(before) + np.arange(int(lost.sum()))
    again = compose(codes).pairs
    chance = rows * b * (b - 1) / 2 * (before.shape[1] - 1) / max(n - 1, 1)
    source = (n - 1) / (before.shape[1] - 1) if before.shape[1] > 1 else math.nan
    return Score("epoch freshness", again / chance if chance else math.nan, source, 1.0)


def rank_skew(classes: list[npt.NDArray[np.integer]]) -> tuple[Score, Score]:
    """Design effect of the ranks x classes table, and the largest distance (total variation) of a rank's mixture of
    classes from that of all ranks, with what a full shuffle shows on average."""
    top = max(int(c.max(initial=0)) for c in classes) + 1
    table = np.stack([np.bincount(c, minlength=top) for c in classes]).astype(np.float64)  # [ranks, classes]
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    rows, columns = table.sum(1), table.sum(0)
    total = table.sum()
    value = total * float((table * table / rows[:, None] / columns).sum() - 1)
    mean, variance = chi_square_moments(rows, columns)
    share = columns / total
    far = 0.5 * np.abs(table / rows[:, None] - share).sum(1)
    chance = 0.5 * math.sqrt(2 / math.pi) * np.sqrt(share * (1 - share) * (1 / rows.min() - 1 / total)).sum()
    skew = ChiSquare(value, mean, variance).ratio
    return (
        Score("rank skew", skew, total / max(len(rows) - 1, 1), 1.0),
        Score("worst rank", float(far.max()), 1 - 1 / max(len(rows), 1), float(chance)),
    )


def spearman(order: I64, n: int) -> Score:
    """Correlation of position in the epoch and position in the source; sd at a full shuffle 1/sqrt(n-1)."""
    k = len(order)
    if k < 2:
        return Score("rank correlation", math.nan, 1.0, 0.0)
    t = np.arange(k, dtype=np.float64) - (k - 1) / 2
    x = order - float(order.mean())
    return Score("rank correlation", float((t @ x) / math.sqrt(float(t @ t) * float(x @ x))), 1.0, 0.0)


def drift(order: I64, n: int) -> Score:
    """Largest excursion of the running sum of source positions, sum(x - mean), over sqrt(n) sd: the
    Kolmogorov-Smirnov statistic of a bridge (mean 0.869 at a full shuffle)."""
    x = np.cumsum(order - (n - 1) / 2)
    scale = math.sqrt(n * ((n - 1) * (n + 1) / 12)) if n > 1 else 1.0
    return Score("drift", float(np.abs(x).max(initial=0)) / scale, math.sqrt(3 * n) / 4, 0.8687)


def first_tenth(order: I64, n: int) -> float:
    """Share of the source (in hundredths) that the first tenth of the epoch draws on."""
    part = order[: max(1, len(order) // 10)]
    return len(np.unique(part * 100 // n)) / min(n, 100)


def neighbours(table: I64, n: int) -> tuple[int, float, float]:
    """Pairs (i, i+1) of the source that share a batch; mean and variance at a full shuffle (b divides n)."""
    rows, b = table.shape
    batch_of = np.full(n, -1, np.int64)
    batch_of[table.ravel()] = np.repeat(np.arange(rows), b)
    count = int(((batch_of[1:] == batch_of[:-1]) & (batch_of[1:] >= 0)).sum())
    pairs, m = n - 1, rows * b  # a sample is in a full batch with probability m / n
    p1 = m / n * (b - 1) / (n - 1)
    p3 = p1 * (b - 2) / (n - 2) if n > 2 else 0.0
    p4 = p1 * ((b - 2) * (b - 3) + (m - b) * (b - 1)) / ((n - 2) * (n - 3)) if n > 3 else 0.0
    variance = pairs * p1 + 2 * (n - 2) * p3 + (pairs * (pairs - 1) - 2 * (n - 2)) * p4 - (pairs * p1) ** 2
    return count, pairs * p1, variance


def entropy(order: npt.NDArray[np.integer]) -> float:
    """MosaicML Streaming's measure (simulation/core/shuffle_quality.py): entropy in bits of |step| between
    consecutive samples."""
    counts = np.bincount(np.abs(np.diff(order)))
    share = counts[counts > 0] / max(len(order) - 1, 1)
    return float(-(share * np.log2(share)).sum())


def mosaic_entropy(order: I64, shard_of: npt.NDArray[np.integer] | None, shards: int) -> Score:
    """Harmonic mean of the entropies of sample ids and of shard ids (one shard: of sample ids alone), in bits.

    At a full shuffle |i-j| has the density 2(1-d): log2 n - 0.279 bits when every distance is seen often,
    log2 n - 1.017 when n distances are seen n times. Only a companion: entropy is logarithmic, a 0.2 % buffer
    already reaches 65 %.
    """
    samples, n = entropy(order), max(len(order), 2)
    ideal = math.log2(n) - 1.017
    if shard_of is None or shards < 2:
        return Score("entropy", samples, 0.0, ideal)
    of_shards, best = entropy(shard_of), max(0.1, math.log2(shards) - 0.279)
    value = 2 * samples * of_shards / (samples + of_shards) if samples + of_shards else 0.0
    return Score("entropy", value, 0.0, 2 * ideal * best / (ideal + best))


# -- is it a full shuffle? ------------------------------------------------------------------------------------------


def verdict(
    table: I64, pairs: Pairs, n: int, correlation: float, excursion: float, level: float = 0.01
) -> tuple[bool, str | None, dict[str, float]]:
    """Whether the order is indistinguishable from a full shuffle at `level`, the name of the test that fails most
    clearly, and all p-values. Five tests share the level (Bonferroni): distance of pairs in 64 equally likely bins,
    neighbours of the source in one batch, 64 blocks of the source over the batches, rank correlation, drift.

    `correlation`, `excursion`: values of `spearman` and `drift` on the same order.
    """
    order = table.ravel()
    values: dict[str, float] = {}
    if pairs.total >= 5 * 64 and n >= 1024:
        values["distance of pairs"] = _pair_test(pairs)
    if n > 3 and table.shape[1] > 1:
        count, mean, variance = neighbours(table, n)
        values["neighbours in a batch"] = _count_test(count, mean, variance)
    if n >= 1024 and len(table) >= 16:
        blocks = chi_square(compose(table * 64 // n))
        values["source blocks over batches"] = normal_tail(abs(blocks.z))
    if len(order) >= 64:
        values["rank correlation"] = normal_tail(abs(correlation) * math.sqrt(len(order) - 1))
        values["drift"] = kolmogorov_tail(excursion)
    if not values:
        return True, None, values
    worst = min(values, key=lambda name: values[name])
    fails = values[worst] < level / 5
    return not fails, worst if fails else None, values


def _pair_test(pairs: Pairs) -> float:
    """Chi-square of the distances in 64 bins of about equal probability."""
    n = pairs.n
    # P(distance < d) is close to 1 - (1-d/n)^2; edges at equal steps of it, then the exact probabilities.
    edges = np.unique(np.round(n * (1 - np.sqrt(1 - np.arange(65) / 64))).astype(np.int64).clip(1, n))
    null = distance_null(n, edges)
    seen = np.add.reduceat(pairs.counts, edges[:-1]).astype(np.float64)
    expected = pairs.total * null / null.sum()
    return chi_square_tail(float(((seen - expected) ** 2 / expected).sum()), len(null) - 1)


def _count_test(count: int, mean: float, variance: float) -> float:
    """Two-sided; counts of rare meetings are nearly Poisson, so small means use its tail."""
    if mean > 50:
        return normal_tail(abs(count - mean) / math.sqrt(variance)) if variance > 0 else 1.0
    term, low = math.exp(-mean), 0.0
    for k in range(count):
        low += term  # P(X < count)
        term *= mean / (k + 1)
    return float(min(1.0, 2 * min(max(1 - low, 1e-300), low + term)))


def normal_tail(z: float) -> float:
    """P(|Z| > z)."""
    return math.erfc(z / math.sqrt(2))


def chi_square_tail(x: float, df: int) -> float:
    """P(chi-square > x), by Wilson and Hilferty's cube root (within some per cent of itself for df >= 20)."""
    z = ((x / df) ** (1 / 3) - (1 - 2 / (9 * df))) / math.sqrt(2 / (9 * df))
    return 0.5 * math.erfc(z / math.sqrt(2))


def kolmogorov_tail(x: float) -> float:
    """P(sup of a Brownian bridge > x) = 2 sum (-1)^(k-1) exp(-2 k^2 x^2)."""
    if x < 0.2:
        return 1.0
    total: float = sum((-1.0) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * total))
