"""The index of a shard that exists, from what its scan found. docs/manifest.md has the table of columns.

In a shard that somebody else wrote, other things may lie between the parts of a sample. Its `offset` is that
of its first header, its `length` reaches to the padded end of its last payload. A hard link's part_offset is
where the payload lies, which may be before; a sparse member's is -1: its bytes lie in no one place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..layout.frames import BLOCK, pad512
from ..layout.index import I64, Index, windows
from .formats.tfrecord import FRAME
from .indexfile import IndexWriter
from .shardindex import index_columns

STEP = 1 << 16
NO_PLACE = -1


def source_columns(index: Index) -> dict[str, str]:
    """Column -> dtype, the same for all shards: as narrow as the whole index allows."""
    frame = part = 0
    for source in range(len(index.sources)):
        for lo, hi in _windows(index, source):
            frame = max(frame, int(_frames(index, lo, hi)[1].max()))
    for lo, hi in windows(len(index.size), STEP):
        part = max(part, int(index.size[lo:hi].max()))
    return index_columns(index, frame, part)


def write_source_index(
    index: Index, source: int, columns: Mapping[str, str], shard: str, temporary: bytes, final: bytes
) -> None:
    """Write and publish the index of source number `source`, which is the shard called `shard`."""
    first = int(index.source_first[source])
    samples = index.sources[source].samples
    parts = key_bytes = 0
    if index.first is not None:
        before, behind = index.first[first : first + 1], index.first[first + samples : first + samples + 1]
        parts = int(behind[0] - before[0])
    if index.keys is not None:
        key_bytes = index.keys.bytes_of(first, first + samples)
    count = {"key": key_bytes, "part_ext": parts, "part_offset": parts, "part_size": parts}
    sized = {name: (dtype, count.get(name, samples)) for name, dtype in columns.items()}
    writer = IndexWriter(temporary, shard, sized, index.exts)
    try:
        for lo, hi in _windows(index, source):
            _put_samples(writer, index, lo, hi, first)
        writer.publish(final)
    finally:
        writer.close()


def _windows(index: Index, source: int) -> list[tuple[int, int]]:
    """Windows over the sample numbers of one source."""
    first = int(index.source_first[source])
    return [(first + lo, first + hi) for lo, hi in windows(index.sources[source].samples, STEP)]


def _put_samples(writer: IndexWriter, index: Index, lo: int, hi: int, first: int) -> None:
    """Samples lo..hi-1 of a source whose first sample is `first`."""
    at = lo - first
    offset, length = _frames(index, lo, hi)
    writer.put("offset", at, offset)
    writer.put("length", at, length)
    writer.put("number", at, np.arange(lo, hi, dtype=np.int64))
    if index.label is not None:
        writer.put("label", at, index.label[lo:hi])
    if index.keys is not None:
        keys, before = index.keys.window(lo, hi), index.keys.bytes_of(first, lo)
        writer.put("key", before, keys.data)
        writer.put("key_end", at, keys.first[1:] + before)
    if index.first is not None and index.ext is not None:
        begin = int(index.first[first : first + 1][0])
        ends = index.first[lo : hi + 1].astype(np.int64)
        a, b = int(ends[0]), int(ends[-1])
        place = index.offset[a:b] + index.head[a:b]
        place[_sparse(index, a, b) - a] = NO_PLACE
        writer.put("part_end", at, ends[1:] - begin)
        writer.put("part_ext", a - begin, index.ext[a:b])
        writer.put("part_offset", a - begin, place)
        writer.put("part_size", a - begin, index.size[a:b])


def _frames(index: Index, lo: int, hi: int) -> tuple[I64, I64]:
    """(offset, length) of the frames of samples lo..hi-1 of one source, int64[k] each."""
    if index.first is None:
        offset = index.offset[lo:hi].astype(np.int64)
        return offset, index.size[lo:hi].astype(np.int64) + FRAME
    first = index.first[lo : hi + 1].astype(np.int64)
    a, b = int(first[0]), int(first[-1])
    offset = index.offset[a:b].astype(np.int64)
    end = offset + index.head[a:b] + pad512(index.size[a:b].astype(np.int64))
    for part in _sparse(index, a, b).tolist():
        stored = max((at + count for _, at, count in index.sparse[part]), default=0)
        end[part - a] = max(pad512(stored), int(offset[part - a]) + BLOCK)
    # a hard link's payload lies before its header, of which there is one block at least
    np.maximum(end, offset + BLOCK, out=end)
    start = np.minimum.reduceat(offset, first[:-1] - a)
    return start, np.maximum.reduceat(end, first[:-1] - a) - start


def _sparse(index: Index, a: int, b: int) -> I64:
    """Numbers of the sparse parts among a..b-1."""
    return np.array([part for part in index.sparse if a <= part < b], np.int64)
