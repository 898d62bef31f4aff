"""The index of a shard that is being written, from layout and index columns: no payload is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..layout.frames import pad512, tar_head_bytes
from ..layout.index import Index, windows
from ..layout.layout import Layout
from .indexfile import IndexWriter

if TYPE_CHECKING:
    from .engines.job import CopyJob

FOLDER = "index"
STEP = 1 << 16


def index_name(shard_name: str) -> str:
    """Name of a shard's index file, relative to the manifest."""
    return f"{FOLDER}/{shard_name}.index"


def index_columns(index: Index, layout: Layout, largest_frame: int, largest_part: int) -> dict[str, str]:
    """Column -> dtype, the same for all shards: as narrow as the whole output allows."""
    columns = {
        "offset": "<i8",
        "length": _narrow(largest_frame),
        "number": _narrow(layout.samples),
    }
    if index.label is not None:
        columns["label"] = "<i4"
    if index.keys is not None:
        columns["key"] = "|u1"
        columns["key_end"] = "<i8"
    if index.ext is not None:
        columns["part_end"] = "<i8"
        columns["part_ext"] = "<u2" if len(index.exts) <= 1 << 16 else "<u4"
        columns["part_offset"] = "<i8"
        columns["part_size"] = _narrow(largest_part)
    return columns


def _narrow(largest: int) -> str:
    return "<u4" if largest < 1 << 32 else "<i8"


def write_index(job: CopyJob, shard: int) -> str:
    """Write and publish the index of one shard; returns its name relative to the manifest."""
    name = job.names[shard]
    lo, hi = int(job.layout.cuts[shard]), int(job.layout.cuts[shard + 1])
    parts, key_bytes = _totals(job, lo, hi)
    count = {"key": key_bytes, "part_ext": parts, "part_offset": parts, "part_size": parts}
    columns = {column: (dtype, count.get(column, hi - lo)) for column, dtype in job.columns.items()}
    writer = IndexWriter(job.temporary(shard, "index"), name, columns, job.index.exts)
    try:
        _fill(job, writer, lo, hi)
        writer.publish(job.out + b"/" + index_name(name).encode())
    finally:
        writer.close()
    return index_name(name)


def _totals(job: CopyJob, lo: int, hi: int) -> tuple[int, int]:
    """Parts and key bytes of output positions lo..hi-1."""
    parts = key_bytes = 0
    for a, b in windows(hi - lo, STEP):
        ids, _ = job.layout.window(lo + a, lo + b)
        if job.index.first is not None:
            parts += int((job.index.first.take(ids + 1) - job.index.first.take(ids)).sum())
        if "key" in job.columns:
            key_bytes += len(job.keys.take(ids).data)
    return parts, key_bytes


def _fill(job: CopyJob, writer: IndexWriter, lo: int, hi: int) -> None:
    parts_before = keys_before = 0
    for a, b in windows(hi - lo, STEP):
        ids, place = job.layout.window(lo + a, lo + b)
        writer.put("offset", a, place[:-1])
        writer.put("length", a, np.diff(place))
        writer.put("number", a, ids)
        if job.index.label is not None:
            writer.put("label", a, job.index.label.take(ids))
        if "key" in job.columns:
            keys = job.keys.take(ids)
            writer.put("key", keys_before, keys.data)
            writer.put("key_end", a, keys.first[1:] + keys_before)
            keys_before += len(keys.data)
        if job.index.ext is not None:
            parts, begin = job.index.parts_of(ids)
            size = job.index.size.take(parts)
            head = tar_head_bytes(job.keys.part_names(ids, parts, begin))
            frame = head + pad512(size)
            body = np.cumsum(frame) - pad512(size) + place[0]
            writer.put("part_end", a, begin[1:] + parts_before)
            writer.put("part_ext", parts_before, job.index.ext.take(parts))
            writer.put("part_offset", parts_before, body)
            writer.put("part_size", parts_before, size)
            parts_before += len(parts)
