"""The index of a shard that is being written, from layout and index columns: no payload is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..layout.frames import pad512
from ..layout.index import I64, Index, windows
from ..layout.keys import part_head_bytes
from ..layout.rows import Rows, rows_of
from .indexfile import IndexWriter

if TYPE_CHECKING:
    from .engines.job import CopyJob

FOLDER = "index"
STEP = 1 << 16


def index_name(shard_name: str) -> str:
    """Name of a shard's index file, relative to the manifest."""
    return f"{FOLDER}/{shard_name}.index"


def index_columns(index: Index, frame: int, part: int) -> dict[str, str]:
    """Column -> dtype, the same for all shards: as narrow as all of them allow.

    frame  bytes of the longest sample in a shard; part of the largest payload (or anything above it)
    """
    columns = {"offset": "<i8", "length": _narrow(frame), "number": _narrow(index.samples)}
    if index.label is not None:
        columns["label"] = "<i4"
    if index.records:
        return columns
    if index.keys is not None:
        columns |= {"key": "|u1", "key_end": "<i8"}
    if index.ext is not None:
        ext = "<u2" if len(index.exts) <= 1 << 16 else "<u4"
        columns |= {"part_end": "<i8", "part_ext": ext, "part_offset": "<i8", "part_size": _narrow(part)}
    return columns


def _narrow(largest: int) -> str:
    return "<u4" if largest < 1 << 32 else "<i8"


class ShardIndexWriter:
    """The index of one shard, row after row in output order.

    parts, key_bytes  how many there will be: they decide where the columns lie
    name              relative to the manifest
    temporary, path   where the file is until `sync`, and where it then belongs
    """

    def __init__(self, job: CopyJob, shard: int, parts: int, key_bytes: int) -> None:
        samples = int(job.layout.cuts[shard + 1] - job.layout.cuts[shard])
        count = {"key": key_bytes, "part_ext": parts, "part_offset": parts, "part_size": parts}
        columns = {column: (dtype, count.get(column, samples)) for column, dtype in job.columns.items()}
        self.name = index_name(job.names[shard])
        self.temporary, self.path = job.temporary(shard, "index"), job.out + b"/" + self.name.encode()
        self._exts = job.index.exts
        self._file = IndexWriter(self.temporary, job.names[shard], columns, self._exts)
        self._rows = self._bytes = self._parts = self._keys = 0

    def put(self, rows: Rows) -> None:
        """The next rows."""
        put, at = self._file.put, self._rows
        ends = np.cumsum(rows.length)
        put("offset", at, ends - rows.length + self._bytes)
        put("length", at, rows.length)
        put("number", at, rows.ids)
        if rows.label is not None:
            put("label", at, rows.label)
        if rows.keys is not None:
            keys = rows.keys
            put("key", self._keys, keys.data[keys.first[0] : keys.first[-1]])
            put("key_end", at, keys.first[1:] - keys.first[0] + self._keys)
            self._keys += rows.key_bytes
        if rows.begin is not None:
            self._put_parts(rows, rows.begin)
        self._rows += len(rows)
        self._bytes += int(ends[-1]) if len(ends) else 0

    def _put_parts(self, rows: Rows, begin: I64) -> None:
        put, at = self._file.put, self._parts
        assert rows.keys is not None and rows.ext is not None and rows.size is not None
        padded = pad512(rows.size)
        head = part_head_bytes(rows.keys, begin, rows.ext, self._exts)
        put("part_end", self._rows, begin[1:] + at)
        put("part_ext", at, rows.ext)
        put("part_offset", at, np.cumsum(head + padded) - padded + self._bytes)
        put("part_size", at, rows.size)
        self._parts += rows.parts

    def end(self) -> None:
        """All rows are there."""
        self._file.end()

    def sync(self) -> None:
        """Make it durable, close."""
        self._file.sync()

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()


def filled_index(job: CopyJob, shard: int) -> ShardIndexWriter:
    """The index of one shard with all rows in it, from the columns."""
    lo, hi = int(job.layout.cuts[shard]), int(job.layout.cuts[shard + 1])
    writer = ShardIndexWriter(job, shard, *_totals(job, lo, hi))
    try:
        for a, b in windows(hi - lo, STEP):
            ids, place = job.layout.window(lo + a, lo + b)
            writer.put(rows_of(job.index, job.keys, ids, np.diff(place)))
    except BaseException:
        writer.close()
        raise
    return writer


def _totals(job: CopyJob, lo: int, hi: int) -> tuple[int, int]:
    """Parts and key bytes of output positions lo..hi-1."""
    parts = key_bytes = 0
    for a, b in windows(hi - lo, STEP):
        ids, _ = job.layout.window(lo + a, lo + b)
        if job.index.first is not None and not job.index.records:
            parts += int((job.index.first.take(ids + 1) - job.index.first.take(ids)).sum())
        if "key" in job.columns:
            key_bytes += int(job.keys.lengths(ids).sum())
    return parts, key_bytes
