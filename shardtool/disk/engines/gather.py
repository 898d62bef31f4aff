"""The gather engine: for every shard from its first byte to its last, read each frame from where it lies.

One pass over the output, random reads from the sources: right as long as the sources are in the page cache or
on a device that does not mind. Samples are taken by windows of positions whose frames fill one buffer.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import numpy as np

from ...layout.manifest import Receipt
from ..runners import Later
from ..shardindex import filled_index
from ..writer import ShardWriter
from .framers import framer_of
from .frames import Reads
from .job import CopyJob, SourceFiles
from .mapped import MappedSources
from .shards import finish_shard

Advance = Callable[[int], None]
Write = Callable[[int, Advance], Later[Receipt]]


@contextlib.contextmanager
def gather(job: CopyJob, jobs: int, advance: Advance) -> Iterator[Write]:
    """What writes one shard after the other of this job. See ENGINES."""
    # Thread and buffers come with the first shard: in a worker, after its fork.
    most = int(job.layout.shard_bytes.max(initial=0))
    writer = ShardWriter(min(job.chunk, most + 512), job.digests)
    try:
        yield functools.partial(_write_shard, job, writer, _Reader(job))
    finally:
        writer.close()


class _Reader:
    """Fetches the frames of a window: through mappings, or read by read. Belongs to one process."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._mapped: MappedSources | None = None

    def read(self, sources: SourceFiles, reads: Reads, view: memoryview) -> None:
        if not self._job.mapped:
            sources.read_many(*reads, view)
            return
        if self._mapped is None:
            self._mapped = MappedSources(self._job.sources)
        self._mapped.read(reads, np.frombuffer(view, np.uint8))


def _write_shard(
    job: CopyJob, writer: ShardWriter, reader: _Reader, shard: int, advance: Advance
) -> Later[Receipt]:
    """Write one shard and its index; later sync and publish them."""
    lo, hi = int(job.layout.cuts[shard]), int(job.layout.cuts[shard + 1])
    temporary = job.temporary(shard, "data")
    sources = SourceFiles(job.sources)
    try:
        writer.begin(temporary)
        _copy(job, sources, reader, writer, lo, hi, advance)
        return finish_shard(job, shard, writer, temporary, lambda: filled_index(job, shard))
    finally:
        writer.abort()
        sources.close()


def _copy(
    job: CopyJob, sources: SourceFiles, reader: _Reader, writer: ShardWriter, lo: int, hi: int, advance: Advance
) -> None:
    framer = framer_of(job)
    while lo < hi:
        view = writer.space()
        until = job.layout.cut_by_bytes(lo, len(view))
        ids, place = job.layout.window(lo, until)
        place = place - place[0]
        size = int(place[-1])
        if size <= len(view):
            reader.read(sources, framer.plan(ids, place), view)
            framer.finish(np.frombuffer(view, np.uint8), view, sources)
            writer.commit(size)
        else:
            # one frame larger than the buffer: in pieces
            framer.stream(int(ids[0]), sources, writer)
        advance(size)
        lo = until
