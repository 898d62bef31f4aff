"""A part of what is known of samples, numbered anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..disk.scanned import Scanned
from ..layout.index import Index


def scanned_of(index: Index, source: int) -> Scanned:
    """The samples of one source as its own scan gives them; `file` numbers files of all sources."""
    lo, hi = (int(index.source_first[s]) for s in (source, source + 1))
    assert index.first is not None and index.ext is not None
    first = index.first[lo : hi + 1].astype(np.int64)
    parts = slice(int(first[0]), int(first[-1]))
    return Scanned(
        hi - lo, first - parts.start, index.offset[parts], index.head[parts], index.size[parts], index.ext[parts],
        index.exts, None if index.keys is None else index.keys.window(lo, hi),
        {part - parts.start: runs for part, runs in index.sparse.items() if parts.start <= part < parts.stop},
        kind=None if index.kind is None else index.kind[parts],
        stored=None if index.stored is None else index.stored[parts],
        file=None if index.file is None else index.file[parts],
    )  # fmt: skip


def part_of(scanned: Scanned, lo: int, hi: int) -> Scanned:
    """Samples lo..hi-1 of a folder."""
    assert scanned.first is not None and scanned.ext is not None and scanned.file is not None
    first = scanned.first[lo : hi + 1]
    parts = slice(int(first[0]), int(first[-1]))
    return replace(
        scanned, samples=hi - lo, first=first - parts.start, offset=scanned.offset[parts], head=scanned.head[parts],
        size=scanned.size[parts], ext=scanned.ext[parts], file=scanned.file[parts],
        keys=None if scanned.keys is None else scanned.keys.window(lo, hi),
        kind=None if scanned.kind is None else scanned.kind[parts],
        stored=None if scanned.stored is None else scanned.stored[parts], labels=None, codes=None,
    )  # fmt: skip
