"""The gather engine: for every shard from its first byte to its last, read each frame from where it lies.

One pass over the output, random reads from the sources: right as long as the sources are in the page cache or
on a device that does not mind. Samples are taken by windows of positions whose frames fill one buffer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...layout.frames import tar_file_bytes
from ...layout.manifest import Receipt
from ..files import rename
from ..shardindex import write_index
from .frames import FRAMERS, Reads
from .job import XXH3, CopyJob, ShardWriter, SourceFiles

Advance = Callable[[int], None]


def write_shard(job: CopyJob, shard: int, advance: Advance) -> Receipt:
    """Write, sync and publish one shard and its index."""
    layout = job.layout
    lo, hi = int(layout.cuts[shard]), int(layout.cuts[shard + 1])
    temporary = job.temporary(shard, "data")
    writer = ShardWriter(temporary, job.digests)
    sources = SourceFiles(job.sources)
    try:
        _copy(job, sources, writer, lo, hi, advance)
        if layout.format == "tar":
            writer.write(bytes(int(tar_file_bytes(writer.bytes)) - writer.bytes))
        digests = writer.finish()
    finally:
        writer.close()
        sources.close()
    if writer.bytes != layout.shard_bytes[shard]:
        raise AssertionError(f"shard {shard} has {writer.bytes} bytes, the layout says {layout.shard_bytes[shard]}")
    name = job.names[shard]
    index = write_index(job, shard)
    rename(temporary, job.out + b"/" + name.encode())
    return Receipt(
        shard=shard, name=name, samples=hi - lo, bytes=writer.bytes,
        digest=f"{XXH3}:{digests.pop(XXH3)}", digests=digests, index=index,
    )  # fmt: skip


def _copy(job: CopyJob, sources: SourceFiles, writer: ShardWriter, lo: int, hi: int, advance: Advance) -> None:
    framer = FRAMERS[job.layout.format](job)
    buffer = bytearray(min(job.chunk, int(job.layout.shard_bytes.max()) + 512))
    view, raw = memoryview(buffer), np.frombuffer(buffer, np.uint8)
    while lo < hi:
        until = job.layout.cut_by_bytes(lo, len(buffer))
        ids, place = job.layout.window(lo, until)
        place = place - place[0]
        size = int(place[-1])
        if size <= len(buffer):
            _read(sources, framer.plan(ids, place), view)
            framer.finish(raw, view, sources)
            writer.write(view[:size])
        else:
            # one frame larger than the buffer: in pieces
            for piece in framer.stream(int(ids[0]), sources, view):
                writer.write(piece)
        advance(size)
        lo = until


def _read(sources: SourceFiles, reads: Reads, view: memoryview) -> None:
    """Carry out the reads of a window; by source when there are more sources than descriptors."""
    source, start, length, to = reads
    if sources.scarce:
        by = np.lexsort((start, source))
        source, start, length, to = source[by], start[by], length[by], to[by]
    read = sources.read_into
    for number, offset, count, at in zip(
        source.tolist(), start.tolist(), length.tolist(), to.tolist(), strict=True
    ):
        read(number, view[at : at + count], offset)
