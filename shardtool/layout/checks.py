"""Checks of an order that need no memory of the whole: each shard is judged alone, and by its neighbours' ends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..base.seeds import GOLDEN, mix64, mix64_inplace

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


def sort_keys_of(seed: int, numbers: I64) -> U64:
    """base.seeds.sort_key of each sample number, uint64[k]."""
    z = numbers.astype(np.uint64) + np.uint64(1)
    z *= np.uint64(GOLDEN)
    z += np.uint64(mix64(seed + GOLDEN))
    return mix64_inplace(z)


def first_descent(keys: U64) -> int | None:
    """The first i with keys[i+1] <= keys[i], or None.

    Sample numbers below n, n of them, with strictly ascending sort keys over all shards *are* the shuffled order: a
    sort key is a bijection of the number, so no number repeats, so every one below n is there, and only one
    arrangement has ascending keys. So the order is checked without computing it.
    """
    down = np.flatnonzero(keys[1:] <= keys[:-1])
    return int(down[0]) if len(down) else None


def first_outside(numbers: I64, samples: int) -> int | None:
    """The first i with numbers[i] not in 0..samples-1, or None."""
    out = np.flatnonzero((numbers < 0) | (numbers >= samples))
    return int(out[0]) if len(out) else None
