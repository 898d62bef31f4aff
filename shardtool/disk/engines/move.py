"""Copying many frames from one piece of memory to another: the inner loop of every engine.

A Python slice per frame costs 0.15 to 0.3 microseconds beside the bytes; for frames of a few hundred bytes that is
most of the time. Numpy copies items of one fixed length from any places to any places without a loop in Python, so
frames are copied as items of a type `V<length>` through views with a stride of one byte. Two ways to make the lengths
equal:

over-copy  every frame is copied with the length of the longest. What is too much behind a frame is overwritten by the
           next one, which goes exactly there. That needs destinations one after the other and ascending, and relies on
           numpy assigning items in index order: a law test pins that.
grouped    frames of one length together. No assumption, more passes over the destination.

Long frames go by slices: there the copy itself is what costs.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...layout.index import I64

Raw = npt.NDArray[np.uint8]

# Above this mean the call per frame is small against the copy (measured: 3 KiB).
SLICES_FROM = 3 << 10
# Over-copy moves `longest` bytes a frame: worth it while that is below three times what is needed.
MOST_SURPLUS = 3
# Frames a numpy call: its two index arrays and the destination then stay in the second-level cache.
STEP_BYTES = 256 << 10


def move(target: Raw, to: I64, source: Raw, at: I64, length: I64, stop: I64 | None = None) -> None:
    """target[to:to+length] = source[at:at+length] for every frame.

    `to` must ascend, and frames must not overlap in the target. Nothing but the frames is changed there.
    stop  int64[k]: how far the source may be read for each frame; None: to its end
    """
    count, total = len(length), int(length.sum())
    if not total:
        return
    if total > count * SLICES_FROM or count < 16:
        _by_slices(target, to, source, at, length)
        return
    longest = int(length.max())
    adjacent = bool(np.array_equal(to[1:], to[:-1] + length[:-1]))
    if adjacent and longest * count <= MOST_SURPLUS * total:
        _over_copied(target, to, source, at, length, len(source) if stop is None else stop)
    else:
        _grouped(target, to, source, at, length)


def _by_slices(target: Raw, to: I64, source: Raw, at: I64, length: I64) -> None:
    into, out_of = target.data, source.data
    for a, b, size in zip(to.tolist(), at.tolist(), length.tolist(), strict=True):
        into[a : a + size] = out_of[b : b + size]


def _items(raw: Raw, size: int) -> npt.NDArray[np.void]:
    """Item i is raw[i:i+size]: overlapping items, one for every byte."""
    return np.ndarray((len(raw) - size + 1,), np.dtype((np.void, size)), raw, 0, (1,))


def _over_copied(target: Raw, to: I64, source: Raw, at: I64, length: I64, stop: I64 | int) -> None:
    # The last frames would read behind the end of their source, or write over bytes behind the last frame: by slices.
    longest, end = int(length.max()), int(to[-1] + length[-1])
    fits = (at + longest <= stop) & (to + longest <= end)
    last = int(np.flatnonzero(fits)[-1]) + 1 if fits.any() else 0
    into, out_of = (_items(target, longest), _items(source, longest)) if last else (None, None)
    step = max(8, STEP_BYTES // max(longest, 1))
    apart = np.flatnonzero(~fits[:last]).tolist()
    # A frame in the middle that cannot be over-copied from its source breaks the row there.
    for lo, hi in pairwise([-1, *apart, last]):
        for a in range(lo + 1, hi, step):
            b = min(a + step, hi)
            assert into is not None and out_of is not None
            into[to[a:b]] = out_of[at[a:b]]
    rest = np.array([*apart, *range(last, len(to))], np.int64)
    _by_slices(target, to[rest], source, at[rest], length[rest])


def _grouped(target: Raw, to: I64, source: Raw, at: I64, length: I64) -> None:
    order = np.argsort(length, kind="stable")
    ranked = length[order]
    cuts = [0, *(np.flatnonzero(np.diff(ranked)) + 1).tolist(), len(ranked)]
    for lo, hi in pairwise(cuts):
        size = int(ranked[lo])
        if not size:
            continue
        into, out_of = _items(target, size), _items(source, size)
        step = max(8, STEP_BYTES // size)
        for a in range(lo, hi, step):
            some = order[a : min(a + step, hi)]
            into[to[some]] = out_of[at[some]]
