"""How evenly labels are spread over shards."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


def h_d(counts: I64) -> float:
    """h_D of counts int64[s, C], samples by shard and class: see `h_d_cells`."""
    shard, label = np.nonzero(counts)
    return h_d_cells(shard.astype(np.int64), label.astype(np.int64), counts[shard, label])


def h_d_cells(shard: I64, label: I64, count: I64) -> float:
    """The same from the cells that are not zero: cell i says that `count[i]` samples of shard `shard[i]` have class
    `label[i]`; no cell is named twice.

    With r samples a shard, c samples a class, o in both, n in all, s shards and C classes that are not empty:

        X2 = n * (sum of o^2 / (r c) - 1)          Pearson's chi-square of the shard-by-class table
        h_D = X2 / (s (C - 1))

    This is the design effect of a batch that is one shard: how many times larger the variance of its class shares is
    than that of independent draws, weighted over classes by 1/c. Shards of m samples with one class each give m. When
    labels are dealt to the shards at random, X2 has the mean n (s-1) (C-1) / (n-1) for these margins (Haldane 1940),
    so h_D has the mean n (s-1) / (s (n-1)), with equal shards (n-m)/(n-1): just below 1.

    nan when there is nothing to compare: fewer than two shards or two classes.
    """
    n = int(count.sum())
    rows, row = np.unique(shard, return_inverse=True)
    columns, column = np.unique(label, return_inverse=True)
    if len(rows) < 2 or len(columns) < 2:
        return float("nan")
    weights = count.astype(np.float64)
    r = np.bincount(row.reshape(-1), weights)
    c = np.bincount(column.reshape(-1), weights)
    # sum of (o - e)^2 / e over all cells: over the present ones, and e over the absent ones; no difference of large
    # numbers, so an exactly even table gives exactly 0 up to rounding
    e = r[row.reshape(-1)] * c[column.reshape(-1)] / n
    chi2 = float(((weights - e) ** 2 / e).sum() + max(0.0, n - float(e.sum())))
    return chi2 / (len(rows) * (len(columns) - 1))


def h_d_null(samples: int, shards: int) -> float:
    """Mean of h_D when labels are dealt to the shards at random."""
    return samples * (shards - 1) / (shards * (samples - 1))
