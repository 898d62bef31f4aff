"""128-bit hashes of many short byte strings at once: to find equal keys, not to withstand an attacker.

Two lanes of 64 bits take in a string eight bytes at a time, little-endian, the last word filled up with zeros:

    lane = mix64(length + start);  for every word: lane = mix64(lane ^ word) + start

with another start for each lane. mix64 is a bijection, so two strings of equal length that differ in one word differ in
both lanes for certain; any others have one lane in common with a probability of 2^-64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .ragged import Ragged
from .seeds import GOLDEN, mix64, mix64_inplace

U64 = npt.NDArray[np.uint64]

WORD = 8
# Strings hashed at a time: their lanes stay in the processor's cache.
STEP = 1 << 13
STARTS = (np.uint64(GOLDEN), np.uint64(mix64(GOLDEN)))


def hash128(keys: Ragged) -> U64:
    """uint64[n, 2]: both lanes of every string."""
    made = np.empty((len(keys), 2), np.uint64)
    data = np.concatenate([keys.data[keys.first[0] : keys.first[-1]], np.zeros(WORD, np.uint8)])
    first = keys.first - keys.first[0]
    # A word begins at every byte.
    words = np.ndarray(len(data) - WORD + 1, "<u8", data, strides=(1,))
    for lo in range(0, len(keys), STEP):
        made[lo : lo + STEP] = _hash(words, first[lo : lo + STEP + 1])
    return made


def _hash(words: U64, first: npt.NDArray[np.int64]) -> U64:
    length = np.diff(first)
    lanes = [mix64_inplace(length.astype(np.uint64) + start) for start in STARTS]
    at, rest, rows = first[:-1], length, None  # rows: those that are not at their end yet; None: all
    longest, shortest = int(length.max()), int(length.min())
    for done in range(0, longest, WORD):
        if shortest <= done:
            rows = np.flatnonzero(length > done)
            at, rest = first[rows], length[rows]
        word = words[at + done].astype(np.uint64)
        if shortest < done + WORD:
            over = np.maximum(done + WORD - rest, 0).astype(np.uint64) * np.uint64(8)
            word &= np.uint64(0xFFFFFFFFFFFFFFFF) >> over
        for lane, start in zip(lanes, STARTS, strict=True):
            if rows is None:
                lane ^= word
                mix64_inplace(lane)
                lane += start
            else:
                lane[rows] = mix64_inplace(lane[rows] ^ word) + start
    return np.stack(lanes, axis=1)
