"""Numbers for the four figures, without drawing anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .metrics import Pairs

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


def heatmap(order: I64, n: int, height: int, width: int) -> F64:
    """Where in the source (rows, 0 first) the epoch (columns) draws from: density relative to an even one,
    float[height, width]; 1 everywhere at a full shuffle."""
    k = len(order)
    if not k:
        return np.zeros((height, width))
    column = np.arange(k, dtype=np.int64) * width // k
    counts = np.bincount(order * height // n * width + column, minlength=height * width).reshape(height, width)
    share = np.full(height, 1 / height)  # of the source in each row
    if n < 100 * height:
        share = np.bincount(np.arange(n) * height // n, minlength=height) / n
    expected = share[:, None] * np.bincount(column, minlength=width)
    return counts / np.maximum(expected, 1e-12)


def strip(classes: npt.NDArray[np.integer], kinds: int, columns: int = 120) -> F64:
    """Shares of the classes in `columns` batches spread over the epoch, float[columns, kinds].

    `classes` [batches, b]
    """
    rows = len(classes)
    chosen: I64 = np.unique(np.linspace(0, max(rows - 1, 0), min(columns, rows)).astype(np.int64))
    return np.array([np.bincount(classes[r], minlength=kinds) / classes.shape[1] for r in chosen]).reshape(-1, kinds)


@dataclass(frozen=True)
class DistanceCurve:
    """Share of the pairs of a batch that lay closer than `distance` in the source; `full`: at a full shuffle."""

    distance: F64
    share: F64
    full: F64


def distance_curve(pairs: Pairs, points: int = 160) -> DistanceCurve:
    """At log-spaced distances 1..n."""
    n = pairs.n
    at = np.unique(np.round(np.geomspace(1, max(n - 1, 1), points)).astype(np.int64))
    share = np.cumsum(pairs.counts)[np.minimum(at, n - 1)] / max(pairs.total, 1)
    d = at + 1.0  # pairs at most `at` apart
    full = 1 - (n - d) / n * ((n - d + 1) / max(n - 1, 1))
    return DistanceCurve(at.astype(np.float64), share, full)


def curve_buffers(most: int, marks: list[int], points: int = 24) -> list[int]:
    """Buffer sizes for the curve: log-spaced to `most`, round numbers, with the marks among them."""
    low = max(2, min(64, most // 100))
    raw = np.geomspace(low, max(most, low), points)
    nice = {_round(int(x)) for x in raw}
    return sorted({b for b in [*nice, *marks] if 1 <= b <= most})


def _round(x: int) -> int:
    """To two digits."""
    if x < 100:
        return x
    unit: int = 10 ** (int(math.log10(x)) - 1)
    return round(x / unit) * unit
