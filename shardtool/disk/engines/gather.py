"""The gather engine: for every shard from its first byte to its last, read each frame from where it lies.

One pass over the output, random reads from the sources: right as long as the sources are in the page cache or
on a device that does not mind. Samples are taken by windows of positions whose frames fill one buffer.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import numpy as np

from ...layout.frames import tar_file_bytes
from ...layout.manifest import Receipt
from ..digests import XXH3
from ..files import rename
from ..shardindex import write_index
from ..writer import ShardWriter
from .framers import framer_of
from .frames import Reads
from .job import CopyJob, SourceFiles

Advance = Callable[[int], None]


@contextlib.contextmanager
def gather(job: CopyJob) -> Iterator[Callable[[int, Advance], Receipt]]:
    """What writes one shard after the other of this job."""
    # Thread and buffers come with the first shard: in a worker, after its fork.
    most = int(job.layout.shard_bytes.max(initial=0))
    writer = ShardWriter(min(job.chunk, most + 512), job.digests)
    try:
        yield functools.partial(_write_shard, job, writer)
    finally:
        writer.close()


def _write_shard(job: CopyJob, writer: ShardWriter, shard: int, advance: Advance) -> Receipt:
    """Write, sync and publish one shard and its index."""
    layout = job.layout
    lo, hi = int(layout.cuts[shard]), int(layout.cuts[shard + 1])
    temporary = job.temporary(shard, "data")
    sources = SourceFiles(job.sources)
    try:
        writer.begin(temporary)
        _copy(job, sources, writer, lo, hi, advance)
        if layout.format == "tar":
            writer.write(bytes(int(tar_file_bytes(writer.bytes)) - writer.bytes))
        writer.end()
        index = write_index(job, shard)  # while the disk takes the last buffers
        digests = writer.finish()
    finally:
        writer.abort()
        sources.close()
    if writer.bytes != layout.shard_bytes[shard]:
        raise AssertionError(f"shard {shard} has {writer.bytes} bytes, the layout says {layout.shard_bytes[shard]}")
    name = job.names[shard]
    rename(temporary, job.out + b"/" + name.encode())
    return Receipt(
        shard=shard, name=name, samples=hi - lo, bytes=writer.bytes,
        digest=f"{XXH3}:{digests.pop(XXH3)}", digests=digests, index=index,
    )  # fmt: skip


def _copy(job: CopyJob, sources: SourceFiles, writer: ShardWriter, lo: int, hi: int, advance: Advance) -> None:
    framer = framer_of(job)
    while lo < hi:
        view = writer.space()
        until = job.layout.cut_by_bytes(lo, len(view))
        ids, place = job.layout.window(lo, until)
        place = place - place[0]
        size = int(place[-1])
        if size <= len(view):
            _read(sources, framer.plan(ids, place), view)
            framer.finish(np.frombuffer(view, np.uint8), view, sources)
            writer.commit(size)
        else:
            # one frame larger than the buffer: in pieces
            framer.stream(int(ids[0]), sources, writer)
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
