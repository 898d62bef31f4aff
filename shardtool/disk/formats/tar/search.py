"""Looking for something in an archive, block by block."""

from __future__ import annotations

import numpy as np

from ....layout.frames import BLOCK
from ...blocks import Blocks
from ..sniff import checksum_right


def first_nonzero(blocks: Blocks, pos: int) -> int:
    """Offset of the first byte from `pos` on that is not zero, or -1."""
    while pos < blocks.size:
        data = np.frombuffer(blocks.window(pos), np.uint8)
        hit = int(np.argmax(data != 0))
        if data[hit]:
            return pos + hit
        pos += len(data)
    return -1


def next_header(blocks: Blocks, pos: int) -> int:
    """Offset of the first header with a right checksum, `pos` plus a multiple of 512, or -1."""
    while pos + BLOCK <= blocks.size:
        data = np.frombuffer(blocks.window(pos), np.uint8)
        rows = data[: len(data) // BLOCK * BLOCK].reshape(-1, BLOCK)  # [blocks, 512]
        # cheap sieve: a checksum field holds octal digits, blanks and NULs, and not nothing
        field = rows[:, 148:156]
        digit = (field >= 48) & (field < 56)
        likely = (digit | (field == 32) | (field == 0)).all(axis=1) & digit.any(axis=1)
        for row in np.flatnonzero(likely).tolist():
            if checksum_right(rows[row].tobytes()):
                return int(pos + row * BLOCK)
        pos += len(rows) * BLOCK
    return -1
