"""The size of every rank's shard in every epoch by the floor formula, with rotation and without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.cuts import floor_cut
from ..base.errors import UsageError

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FloorMatrix:
    """shard int64[epoch, rank]: (rank + epoch) % ranks, what rotation reads; without rotation it is the rank.
    size, first int64[shard]; bytes int64[shard] or None; skew float64[shard] or None: distance of a shard's
    label shares from those of the whole (half the sum of absolute differences, 0: alike, 1: disjoint)."""

    n: int
    shard: I64
    first: I64
    size: I64
    bytes: I64 | None = None
    skew: npt.NDArray[np.float64] | None = None

    @property
    def rotated(self) -> I64:
        """Samples with rotation, int64[epoch, rank]."""
        return self.size[self.shard]


def floor_matrix(
    n: int, ranks: int, epochs: int = 1, *, shard_samples: I64 | None = None, shard_bytes: I64 | None = None,
    shard_labels: I64 | None = None,
) -> FloorMatrix:  # fmt: skip
    """Shard k of N is [floor(k*n/N), floor((k+1)*n/N)).

    shard_samples, shard_bytes int64[s]: files; bytes of a piece count a cut file by its share of samples,
    rounded. shard_labels int64[s, classes]: samples of every class in every file, counted likewise.
    """
    for name, value, least in (("samples", n, 1), ("world size", ranks, 1), ("epochs", epochs, 1)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, not {value}")
    if ranks * epochs > 1 << 26:
        raise UsageError(
            f"{ranks:,} ranks x {epochs:,} epochs are too many for a table", remedy="ask for fewer epochs"
        )
    number = np.arange(ranks + 1, dtype=np.int64)
    cut = floor_cut(n, ranks, number)
    epoch = np.arange(epochs, dtype=np.int64)[:, None]
    piece_bytes, skew = None, None
    if shard_samples is not None and shard_bytes is not None:
        piece_bytes = np.diff(np.rint(_at_cuts(cut, shard_samples, shard_bytes[:, None])[:, 0])).astype(
            np.int64
        )
    if shard_samples is not None and shard_labels is not None:
        skew = label_skew(np.diff(_at_cuts(cut, shard_samples, shard_labels), axis=0))
    return FloorMatrix(n, (number[:-1] + epoch) % ranks, cut[:-1], np.diff(cut), piece_bytes, skew)


def _at_cuts(cut: I64, shard_samples: I64, amounts: I64) -> npt.NDArray[np.float64]:
    """Cumulative amounts float64[cuts, c] at sample numbers `cut`; inside a file they grow evenly."""
    first = np.concatenate([[0], np.cumsum(shard_samples)])
    before = np.concatenate([np.zeros((1, amounts.shape[1])), np.cumsum(amounts, axis=0)])
    at = np.minimum(np.searchsorted(first, cut, "right") - 1, len(shard_samples) - 1)
    share = (cut - first[at]) / np.maximum(shard_samples[at], 1)
    inside = before[at] + share[:, None] * amounts[at]
    return np.asarray(inside, np.float64)


def label_skew(labels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """labels float64[piece, class] -> distance of every piece's shares from the whole's, float64[piece]."""
    whole = labels.sum(axis=0)
    shares = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1e-300)
    distance = np.abs(shares - whole / max(float(whole.sum()), 1e-300)).sum(axis=1) / 2
    return np.where(labels.sum(axis=1) > 0, distance, 0.0)
