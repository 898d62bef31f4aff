"""Lines of text from columns, many at once: 10^6 lines must not cost a second.

A column of n strings is a block: uint8[n, widest], NUL behind shorter strings. No string may hold a NUL;
leaving out all NULs joins the columns of a row and the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.ragged import Ragged
from ...layout.index import I64

# Rows at a time: few enough for the processor's cache to hold what is made of them.
STEP = 1 << 15

Block = npt.NDArray[np.uint8]

_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)


def decimals(values: I64, end: bytes = b"") -> Block:
    """Numbers >= 0 in decimal, without leading zeros; behind each the byte `end`."""
    width = np.searchsorted(_POWERS, values, side="right") + 1  # [n]
    most = int(width.max(initial=1))
    # the division of narrow numbers costs a third
    rest: npt.NDArray[np.integer[Any]] = values.astype(np.uint32 if most < 10 else np.int64)
    # [places, n]: a row for every place, because the loop writes whole rows
    digits = np.empty((most + len(end), len(values)), np.uint8)
    for place in range(most - 1, -1, -1):
        higher = rest // 10
        digits[place] = rest - higher * 10 + 48
        rest = higher
    if end:
        digits[most] = end[0]
    shortest = int(width.min(initial=most))
    for place in range(most - shortest):
        digits[place, width < most - place] = 0
    return digits.T


def padded(strings: Ragged) -> Block:
    """Any strings as a block."""
    lengths = strings.lengths()
    most = int(lengths.max(initial=0))
    data = strings.data[strings.first[0] : strings.first[-1]]
    if (lengths == most).all():
        return data.reshape(len(strings), most)
    block = np.zeros((len(strings), most), np.uint8)
    block[np.arange(most) < lengths[:, None]] = data
    return block


def lines(*blocks: Block) -> bytes:
    """Row by row, the columns one after the other."""
    row = np.concatenate(blocks, axis=1)
    text: bytes = row[row != 0].tobytes()
    return text
