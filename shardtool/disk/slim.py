"""Columns of one scanned file on their way to the parent, as small as they can be said."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..layout.index import I64
from .scanned import Scanned

NONE = np.zeros(0, np.int64)
FRAME = 16


@dataclass(frozen=True)
class Slim:
    """A Scanned whose three long columns are told shorter.

    rest    the Scanned without them
    offset  int64[p]; or None: frames of records one after the other from byte 0 on
    head    int64[p], or the one value of all
    size    int64[p] or uint32[p]
    """

    rest: Scanned
    offset: I64 | None
    head: I64 | int
    size: npt.NDArray[np.integer]

    @property
    def parts(self) -> int:
        """p"""
        return len(self.size)

    def offsets(self) -> I64:
        """int64[p]"""
        if self.offset is not None:
            return self.offset
        made = np.zeros(self.parts, np.int64)
        np.cumsum(self.size[:-1], out=made[1:])
        made += FRAME * np.arange(self.parts, dtype=np.int64)
        return made

    def heads(self) -> I64:
        """int64[p]"""
        return np.full(self.parts, self.head, np.int64) if isinstance(self.head, int) else self.head


def slim(scanned: Scanned) -> Slim:
    """The same, smaller."""
    offset, head, size = scanned.offset, scanned.head, scanned.size
    row = scanned.first is None and len(offset) > 0 and offset[0] == 0
    row = row and bool(np.array_equal(offset[1:], offset[:-1] + size[:-1] + FRAME))
    one = len(head) > 0 and bool((head == head[0]).all())
    narrow = len(size) == 0 or int(size.max()) < 1 << 32
    return Slim(
        replace(scanned, offset=NONE, head=NONE, size=NONE),
        None if row else offset, int(head[0]) if one else head, size.astype(np.uint32) if narrow else size,
    )  # fmt: skip
