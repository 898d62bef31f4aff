"""What a job costs, as formulas: engine choice and `--dry-run` read nothing else.

Counts are of this release's arrays; the test of law 4 holds the measured peak against `peak_ram_bytes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .buckets import buckets_at_once
from .index import Index
from .layout import Layout


@dataclass(frozen=True)
class Cost:
    """passes over the data; bytes read, written, and stored for the time of the job; reads that are not
    sequential; memory at the peak, over all processes, above the interpreters' own; descriptors a process; and how much
    of the temporary bytes is what compressed sources decode to."""

    engine: str
    passes: int
    read_bytes: int
    written_bytes: int
    temporary_bytes: int
    seeks: int
    peak_ram_bytes: int
    open_files: int
    spool_bytes: int = 0


def prepared(cost: Cost, spool: int, memory: int) -> Cost:
    """With what goes before the engine: compressed sources decoded into `spool` bytes, and a conversion that takes
    `memory` bytes at its peak."""
    return replace(
        cost, temporary_bytes=cost.temporary_bytes + spool, spool_bytes=spool,
        peak_ram_bytes=max(cost.peak_ram_bytes, memory),
    )  # fmt: skip


# Of a sample file while the table of files is made, with a path of 64 bytes below its source (measured: 255 with 29,
# disk/samplefiles.py). Afterwards it is a third of that, and the number of its file.
FILE_BYTES = 330


def columns_bytes(index: Index, layout: Layout, stored: int) -> int:
    """What the index and the layout hold in memory: `stored` bytes of columns, and the table of sample files where
    parts are files. While keys are compared there are 8 bytes more for each."""
    total = stored
    if index.file is not None:
        total += FILE_BYTES * len(index.size)
    if index.keys is not None:
        total += 8 * layout.samples
    return total


# Bytes of scratch for a part of a window: ids, places, reads, names, headers (see engines/frames.py).
_SCRATCH_A_PART = {"tfrecord": 120, "tar": 900}
# The same where rows of the index are packed and sorted too (engines/bucket.py).
_ROWS_A_PART = {"tfrecord": 200, "tar": 1200}
_SCRATCH_A_FEATURE = 700  # of an Example that is made (see formats/example_encode.py)
# From this mean on a read from the page cache costs less than writing the bytes to the spill and reading them again.
SMALL = 768
# and above this mean it costs nothing even when it comes from the disk.
LARGE = 1 << 20
# One read of the spill should have at least so many bytes.
EXTENT = 256 << 10
# Frames that the bucket engine holds at least: of features of a few bytes these are ten thousand parts.
LEAST_BUDGET = 256 << 10
# Sources below this size are nothing to be clever about.
LITTLE = 32 << 20


def _rows_a_part(index: Index, layout: Layout) -> int:
    return _SCRATCH_A_FEATURE + _ROWS_A_PART["tfrecord"] if index.records else _ROWS_A_PART[layout.format]


def _mean_part(index: Index, layout: Layout) -> int:
    return max(1, int(layout.shard_bytes.sum()) // max(len(index.size), 1))


def gather_cost(index: Index, layout: Layout, *, held: int, jobs: int, chunk: int, buffers: int) -> Cost:
    """One pass: every frame is read where it lies, every shard written from its first byte to its last.

    held     bytes of columns
    chunk    bytes of frames that are made at a time
    buffers  bytes of all output buffers of a process
    """
    window_parts = min(len(index.size), chunk // _mean_part(index, layout) + 1)
    a_part = _SCRATCH_A_FEATURE if index.records else _SCRATCH_A_PART[layout.format]
    return Cost(
        engine="gather", passes=1, read_bytes=_read(index), written_bytes=int(layout.shard_bytes.sum()),
        temporary_bytes=0, seeks=layout.samples,
        peak_ram_bytes=held + jobs * (buffers + window_parts * a_part),
        open_files=min(len(index.sources), 256) + 8,
    )  # fmt: skip


def bucket_budget(index: Index, layout: Layout, memory: int) -> int:
    """Frames that a process of the bucket engine may hold at a time, in `memory` bytes: it needs room for them twice,
    and for their rows."""
    mean = _mean_part(index, layout)
    most = (memory - (2 << 20)) * mean // (2 * mean + _rows_a_part(index, layout) + mean // 4 + 1)
    # A block has an extent for every bucket, of budget^2 / data bytes. More than it takes to make those as long as one
    # read is worth gains nothing, and fresh memory is dear.
    enough = max(16 << 20, math.isqrt(int(layout.shard_bytes.sum()) * EXTENT))
    return max(LEAST_BUDGET, min(most, enough))


def bucket_cost(index: Index, layout: Layout, *, held: int, jobs: int, budget: int, buffers: int) -> Cost:
    """Two passes: sources into a spill file by bucket, buckets into shards; three where buckets are too many."""
    written = int(layout.shard_bytes.sum())
    parts = min(len(index.size), budget // _mean_part(index, layout) + 1)
    blocks = written // budget + len(index.sources)
    process = min(2 * budget + budget // 4, 2 * written) + buffers + parts * _rows_a_part(index, layout)
    between = int(buckets_at_once(written // budget + layout.shards, budget) > 1)
    return Cost(
        engine="bucket", passes=2 + between, read_bytes=_read(index), written_bytes=written,
        temporary_bytes=written * (1 + between),
        seeks=blocks * (written // budget + layout.shards), peak_ram_bytes=held + jobs * process,
        open_files=44,
    )  # fmt: skip


def against_gather(index: Index, layout: Layout, room: int, cache: int) -> str:
    """Why reading samples where they lie would be slow, or ''.

    room   bytes of --memory that are left for mappings of the sources
    cache  bytes of page cache that the machine or cgroup can have at most
    """
    total, mean = _read(index), int(layout.shard_bytes.sum()) // layout.samples
    if mean < LARGE and total > cache // 10 * 7:
        return "the sources do not fit into the page cache: every sample would be a read from the disk"
    if mean < SMALL and total > max(LITTLE, room):
        return "small samples one by one cost more than reading everything twice"
    return ""


def _read(index: Index) -> int:
    return sum(source.bytes for source in index.sources)
