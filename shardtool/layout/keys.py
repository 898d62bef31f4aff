"""The keys that samples get in the output."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged
from .index import I64, Index

KEEP, SOURCE, ORDINAL, NONE = "keep", "source", "ordinal", "none"

_DIGITS = 9
_SHARD_EXTENSION = re.compile(rb"\.(tar|tgz|tfrecords?|tfrec|recordio|gz|zst|bz2|xz|zlib)$", re.IGNORECASE)

_META = re.compile(rb"__[^/]*__(/|$)")


@dataclass(frozen=True)
class OutputKeys:
    """Keys of samples by number.

    mode  'keep'; 'source': '<source without its shard extension, dots to _>/<key>'; 'ordinal': '%09d' of the
          sample's number in source order; 'none': records have no key
    """

    mode: str
    index: Index

    def take(self, ids: I64) -> Ragged:
        """Keys of the samples `ids`, in their order."""
        if self.mode == ORDINAL:
            return ordinals(ids, self.index.samples)
        keys = self.index.keys
        assert keys is not None, "records without a key have mode 'none' or 'ordinal'"
        if self.mode == KEEP:
            return keys.take(ids)
        prefixes = Ragged.of(source_prefix(source.name) for source in self.index.sources)
        return Ragged.glue(prefixes.take(self.index.source_of(ids)), keys.take(ids))

    def part_names(self, ids: I64, parts: I64, begin: I64) -> Ragged:
        """'<key>.<field>' of every part of the samples `ids`; `parts` and `begin` as Index.parts_of gives them."""
        assert self.index.ext is not None
        return part_names(self.take(ids), begin, self.index.ext.take(parts), self.index.exts)


def part_names(keys: Ragged, begin: I64, ext: npt.NDArray[np.uint32], exts: tuple[bytes, ...]) -> Ragged:
    """'<key>.<field>' of every part; part k has field exts[ext[k]]."""
    rows = np.repeat(np.arange(len(keys), dtype=np.int64), np.diff(begin))
    fields = Ragged.of(b"." + name for name in exts)
    return Ragged.glue(keys.take(rows), fields.take(ext.astype(np.int64)))


def ordinals(ids: I64, samples: int) -> Ragged:
    """Decimal numbers of nine digits, or as many as the largest of `samples` needs."""
    width = max(_DIGITS, len(str(max(samples - 1, 0))))
    digits = np.empty((len(ids), width), np.uint8)
    rest = ids.astype(np.int64)
    for place in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        digits[:, place] = digit + 48
    return Ragged(digits.reshape(-1), np.arange(len(ids) + 1, dtype=np.int64) * width)


def source_prefix(name: bytes) -> bytes:
    """'a/b.c-000' + '/' for the source 'a/b.c-000.tar': no dot may stay, a key ends at its first one."""
    if name == b".":
        return b""  # a folder that is the base: its keys are unique, and what it is called is nobody's business
    stem = name
    while match := _SHARD_EXTENSION.search(stem):
        stem = stem[: match.start()]
    stem = stem.replace(b".", b"_")
    if _META.match(stem):
        stem = b"_" + stem[1:].replace(b"_", b"-", 1)  # webdataset skips whatever lies below a folder __name__
    return stem + b"/"


def first_repeated(keys: Ragged, hashes: npt.NDArray[np.uint64]) -> tuple[int, int] | None:
    """Numbers of two samples with equal keys, or None. `hashes`: a 64-bit hash of every key; only keys with equal
    hashes are compared."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    same = np.flatnonzero(ranked[1:] == ranked[:-1])
    for at in same.tolist():
        # a run of equal hashes may hold different keys; compare with all earlier ones of the run
        back = at
        while back >= 0 and ranked[back] == ranked[at]:
            a, b = int(order[back]), int(order[at + 1])
            if keys[a] == keys[b]:
                return min(a, b), max(a, b)
            back -= 1
    return None
