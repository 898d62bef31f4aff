"""What a job costs, as formulas: engine choice and `--dry-run` read nothing else.

Counts are of this release's arrays; the test of law 4 holds the measured peak against `peak_ram_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .index import Index
from .layout import Layout


@dataclass(frozen=True)
class Cost:
    """passes over the data; bytes read, written, and stored for the time of the job; reads that are not
    sequential; memory at the peak, over all processes, above the interpreters' own; descriptors a process."""

    engine: str
    passes: int
    read_bytes: int
    written_bytes: int
    temporary_bytes: int
    seeks: int
    peak_ram_bytes: int
    open_files: int


# Of a sample file while the table of files is made, with a path of 64 bytes below its source (measured: 255 with 29,
# disk/samplefiles.py). Afterwards it is a third of that, and the number of its file.
FILE_BYTES = 330


def columns_bytes(index: Index, layout: Layout) -> int:
    """Index and layout in memory: 24 bytes a part (offset, head, size), more where parts are files, 4 more and 8 a
    sample for fields and parts, keys and 8 a key, 4 for a label, 16 for the order and the ends."""
    parts, samples = len(index.offset), layout.samples
    total = 24 * parts + 16 * samples
    if index.file is not None:
        total += FILE_BYTES * parts
    if index.first is not None:
        total += 4 * parts + 8 * samples
    if index.keys is not None:
        total += len(index.keys.data) + 8 * samples
    if index.label is not None:
        total += 4 * samples
    return total


# Bytes of scratch for a sample of a window: ids, places, reads, names, headers (see engines/frames.py).
_SCRATCH_A_PART = {"tfrecord": 120, "tar": 900}


def gather_cost(index: Index, layout: Layout, *, jobs: int, chunk: int, buffers: int, sources: int) -> Cost:
    """One pass: every frame is read where it lies, every shard written from its first byte to its last.

    chunk    bytes of frames that are made at a time
    buffers  bytes of all output buffers of a process
    """
    written = int(layout.shard_bytes.sum())
    parts = len(index.offset)
    mean = max(1, written // max(parts, 1))
    window_parts = min(parts, chunk // mean + 1)
    columns = columns_bytes(index, layout)
    # the sort of the order holds the packed keys beside the ids; before the workers start
    scratch = max(24 * layout.samples, jobs * (buffers + window_parts * _SCRATCH_A_PART[layout.format]))
    return Cost(
        engine="gather", passes=1, read_bytes=sum(s.bytes for s in index.sources), written_bytes=written,
        temporary_bytes=0, seeks=layout.samples, peak_ram_bytes=columns + scratch,
        open_files=min(sources, 256) + 8,
    )  # fmt: skip
