"""The keys that samples get in the output."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged
from .frames import BLOCK, NAME, tar_head_bytes
from .index import I64, Index

KEEP, SOURCE, ORDINAL, NONE = "keep", "source", "ordinal", "none"

_DIGITS = 9
_SHARD_EXTENSION = re.compile(rb"\.(tar|tgz|tfrecords?|tfrec|recordio|gz|zst|bz2|xz|zlib)$", re.IGNORECASE)

_META = re.compile(rb"__[^/]*__(/|$)")


@dataclass(frozen=True)
class OutputKeys:
    """Keys of samples by number.

    mode  'keep'; 'source': '<source without its shard extension, dots to _>/<key>', where the source has no keys
          '%09d' of the record's number in it; 'ordinal': '%09d' of the sample's number in source order; 'none':
          records have no key
    """

    mode: str
    index: Index

    def take(self, ids: I64) -> Ragged:
        """Keys of the samples `ids`, in their order."""
        if self.mode == ORDINAL:
            return ordinals(ids, self.index.samples)
        keys = self.index.keys
        if self.mode == KEEP:
            assert keys is not None
            return keys.take(ids)
        source = self.index.source_of(ids)
        prefixes = Ragged.of(source_prefix(source.name) for source in self.index.sources)
        if keys is None:
            most = max(source.samples for source in self.index.sources)
            return Ragged.glue(prefixes.take(source), ordinals(ids - self.index.source_first[source], most))
        return Ragged.glue(prefixes.take(source), keys.take(ids))

    def lengths(self, ids: I64) -> I64:
        """Bytes of the keys of the samples `ids`, int64[k]."""
        if self.mode != KEEP or self.index.keys is None:
            return self.take(ids).lengths()
        return self.index.keys.lengths_of(ids)

    def part_names(self, ids: I64, parts: I64, begin: I64) -> Ragged:
        """'<key>.<field>' of every part of the samples `ids`; `parts` and `begin` as Index.parts_of gives them."""
        assert self.index.ext is not None
        keys = self.take(np.repeat(ids, np.diff(begin)))  # one for each part
        return _with_fields(keys, self.index.ext.take(parts), self.index.exts)

    def part_head_bytes(self, ids: I64, parts: I64, begin: I64) -> I64:
        """Bytes of the tar header of every part, int64[q], without its name where the name is short."""
        assert self.index.ext is not None
        return part_head_bytes(self.take(ids), begin, self.index.ext.take(parts), self.index.exts)


def part_names(keys: Ragged, begin: I64, ext: npt.NDArray[np.uint32], exts: tuple[bytes, ...]) -> Ragged:
    """'<key>.<field>' of every part; part k has field exts[ext[k]]."""
    rows = np.repeat(np.arange(len(keys), dtype=np.int64), np.diff(begin))
    return _with_fields(keys.take(rows), ext, exts)


def _with_fields(keys: Ragged, ext: npt.NDArray[np.uint32], exts: tuple[bytes, ...]) -> Ragged:
    return Ragged.glue(keys, _fields(exts).take(ext.astype(np.int64)))


def part_head_bytes(keys: Ragged, begin: I64, ext: npt.NDArray[np.uint32], exts: tuple[bytes, ...]) -> I64:
    """Bytes of the tar header of every part, int64[q]; names are made only when one is over 100 bytes."""
    length = np.repeat(keys.lengths(), np.diff(begin)) + _fields(exts).lengths().take(ext)
    if int(length.max(initial=0)) <= NAME:
        return np.full(len(ext), BLOCK, np.int64)
    return tar_head_bytes(part_names(keys, begin, ext, exts))


@functools.lru_cache(maxsize=8)
def _fields(exts: tuple[bytes, ...]) -> Ragged:
    """'.<field>' of every field."""
    return Ragged.of(b"." + name for name in exts)


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
