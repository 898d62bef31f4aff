"""Ways to cut n samples into k pieces. Every loader and every layout uses one of these.

With n = 10 and k = 4:

    rule     piece i holds                                        sizes
    -------  ---------------------------------------------------  ----------
    floor    [floor(i*n/k), floor((i+1)*n/k))                      2 3 2 3
    front    the first n % k pieces get one more                   3 3 2 2
    ceil     [i*c, (i+1)*c) cut at n, c = ceil(n/k)                3 3 3 1
    equal    [i*f, (i+1)*f), f = n // k; the rest is dropped       2 2 2 2
    stride   i, i+k, i+2k, ...                                     3 3 2 2

All take ints or int64 arrays for `i` and never multiply i by n, so that n = 10**15 and k = 10**6 stay inside
64 bits.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

I = TypeVar("I", int, npt.NDArray[np.int64])  # noqa: E741


def floor_cut(n: int, k: int, i: I) -> I:
    """floor(i*n/k) for 0 <= i <= k, without the product i*n."""
    return i * (n // k) + i * (n % k) // k


def floor_sizes(n: int, k: int) -> npt.NDArray[np.int64]:
    """Sizes of all k pieces of the floor rule, int64[k]."""
    return np.diff(floor_cut(n, k, np.arange(k + 1, dtype=np.int64)))


def front_cut(n: int, k: int, i: I) -> I:
    """Start of piece i when the first n % k pieces get one sample more."""
    each, rest = divmod(n, k)
    return i * each + _at_most(i, rest)


def ceil_cut(n: int, k: int, i: I) -> I:
    """Start of piece i when every piece takes ceil(n/k) until nothing is left."""
    return _at_most(i * -(-n // k), n)


def equal_cut(n: int, k: int, i: I) -> I:
    """Start of piece i when all have n // k and the rest is dropped."""
    return i * (n // k)


def stride_size(n: int, k: int, i: I) -> I:
    """How many of 0..n-1 are congruent to i modulo k, for 0 <= i < k."""
    return (n - i + k - 1) // k


def _at_most(value: I, bound: int) -> I:
    if isinstance(value, np.ndarray):
        return np.minimum(value, bound)
    return min(value, bound)
