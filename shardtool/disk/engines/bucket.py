"""The bucket engine: two passes, both sequential, in memory that does not depend on the amount of data.

Pass 1 takes the sources block after block in their order, makes the output frames of a block, sorts them by bucket
(a range of output positions, known from the sample's sort key alone) and appends them to one spill file. Pass 2 takes
bucket after bucket: reads its piece of every block, puts the frames into their final order in memory, writes them on.

The spill file has a region for every block, and in it an extent for every bucket; a small file beside it says where
they lie, and is renamed into place when the block is complete. So a run that was stopped repeats only blocks without
that file, and shards without a receipt.

data in one block of size m, B buckets: an extent has m/B bytes. With data of D bytes and buckets of m bytes that is
m*m/D: below some tens of KiB the extents' reads become random ones (2 GiB of memory: beyond about 4 TB).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...base.errors import StateError
from ...layout.buckets import Buckets, plan_buckets
from ...layout.index import I64, windows
from ...layout.manifest import Receipt
from ...layout.rows import Rows, rows_of
from ..boot import boot
from ..files import create, remove_folder, write_all
from ..runners import Advance, run_tasks
from ..shardindex import ShardIndexWriter
from ..writer import ShardWriter
from .frames import FRAMERS
from .job import CopyJob, SourceFiles
from .move import move
from .shards import finish_shard

Raw = npt.NDArray[np.uint8]

# Columns of a block's directory, int64 each: bytes of frames, bytes of rows, parts, key bytes before each bucket.
_DATA, _ROWS, _PARTS, _KEYS = range(4)
_ENTRY = 4 * 8
_SAMPLES = 1 << 16


@dataclass(frozen=True)
class Block:
    """Samples lo..hi-1, all of one source, whose frames begin at byte `at` of the spill file."""

    source: int
    lo: int
    hi: int
    at: int


@contextlib.contextmanager
def bucket(job: CopyJob, jobs: int, advance: Advance) -> Iterator[Callable[[int, Advance], Receipt]]:
    """Pass 1 on entering; what it gives is pass 2, a shard a call. See ENGINES."""
    most = job.budget
    buckets = plan_buckets(job.layout, most)
    blocks = plan_blocks(job, most, most)
    spill = Spill(job.bulk)
    spill.open()
    scatter = _Scatter(job, buckets, blocks, spill, most)
    try:
        waiting = [number for number in range(len(blocks)) if not spill.has(number)]
        for _ in run_tasks(scatter, waiting, jobs, advance):
            pass
    finally:
        scatter.close()
    collect = _Collect(job, buckets, blocks, spill, most)
    try:
        yield collect
    finally:
        collect.close()
    spill.remove()  # not after an error: the next run goes on with it


def plan_blocks(job: CopyJob, most: int, block: int) -> list[Block]:
    """Blocks of at most `block` bytes of frames, at least one sample. Frames above `most` take no room in the spill."""
    blocks, at = [], 0
    first = job.index.source_first
    for source in range(len(job.index.sources)):
        lo, size = int(first[source]), 0
        for a, b in windows(int(first[source + 1] - first[source]), _SAMPLES):
            base = int(first[source]) + a
            frames = job.frames[base : base + b - a].astype(np.int64)
            ends = np.cumsum(np.where(frames > most, 0, frames)) + size
            start = 0
            while (cut := int(np.searchsorted(ends, block, side="right"))) < len(ends):
                stop = max(base + cut, lo + 1)
                held = int(ends[stop - base - 1]) if stop > base else size
                blocks.append(Block(source, lo, stop, at))
                at, ends, lo, start = at + held, ends - held, stop, stop - base
            size = int(ends[-1]) if start < len(ends) else 0
        if lo < first[source + 1]:
            blocks.append(Block(source, lo, int(first[source + 1]), at))
            at += size
    return blocks


class Spill:
    """The spill file and the blocks' directories, in one folder.

    They are not synced: they outlive the process, not a power cut. The folder's name has the boot in it, and spill of
    another boot is not used.
    """

    def __init__(self, work: bytes) -> None:
        self._work = work
        self.folder = os.path.join(work, b"spill." + boot())
        self.data = os.path.join(self.folder, b"data")

    def open(self) -> None:
        """Make the folder; remove spill of another boot."""
        os.makedirs(self.folder, exist_ok=True)
        for name in os.listdir(self._work):
            if name.startswith(b"spill.") and os.path.join(self._work, name) != self.folder:
                remove_folder(os.path.join(self._work, name))
        os.close(os.open(self.data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def rows(self, block: int) -> bytes:
        """The file with the directory and the rows of a block."""
        return os.path.join(self.folder, b"%08d" % block)

    def has(self, block: int) -> bool:
        """Whether a block is complete."""
        return os.path.exists(self.rows(block))

    def remove(self) -> None:
        """All of it."""
        remove_folder(self.folder)


class _Scatter:
    """Pass 1, a block a call. Buffers are made in the worker that needs them and used again."""

    def __init__(self, job: CopyJob, buckets: Buckets, blocks: list[Block], spill: Spill, most: int) -> None:
        self._job, self._buckets, self._blocks, self._spill, self._most = job, buckets, blocks, spill, most
        self._sources: SourceFiles | None = None
        self._out = self._in = bytearray()
        self._fd = -1

    def __call__(self, number: int, advance: Advance) -> None:
        block = self._blocks[number]
        ids, order_frames, counts = self._sorted(block)
        place = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(order_frames, out=place[1:])
        data = self._frames(block, ids, place)
        if self._fd < 0:
            self._fd = os.open(self._spill.data, os.O_WRONLY | os.O_CLOEXEC)
        write_all(self._fd, data, block.at)
        self._write_rows(number, ids, order_frames, place, counts)
        advance(len(data))

    def close(self) -> None:
        """Give back what this process holds."""
        if self._sources is not None:
            self._sources.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._sources, self._fd = None, -1

    def _sorted(self, block: Block) -> tuple[I64, I64, I64]:
        """The block's samples by bucket, their frames' lengths, and how many each bucket has."""
        ids = np.arange(block.lo, block.hi, dtype=np.int64)
        frames = self._job.frames[block.lo : block.hi].astype(np.int64)
        if (frames > self._most).any():
            small = frames <= self._most
            ids, frames = ids[small], frames[small]
        bucket = self._buckets.of(ids)
        order = np.argsort(bucket, kind="stable")
        return ids[order], frames[order], np.bincount(bucket, minlength=len(self._buckets))

    def _frames(self, block: Block, ids: I64, place: I64) -> memoryview:
        """Encoded frames of `ids`, one behind the other."""
        size = int(place[-1])
        if len(self._out) < size:
            self._out = bytearray(size)
        view, raw = memoryview(self._out)[:size], np.frombuffer(self._out, np.uint8)[:size]
        if not size:
            return view
        if self._sources is None:
            self._sources = SourceFiles(self._job.sources)
        framer = FRAMERS[self._job.layout.format](self._job)
        _, start, length, to = framer.plan(ids, place)
        if len(start):
            self._fetch(block.source, raw, start, length, to)
        framer.finish(raw, view, self._sources)
        return view

    def _fetch(self, source: int, raw: Raw, start: I64, length: I64, to: I64) -> None:
        """Read the block's stretch of the source at once, and put the pieces where they go; where the stretch is far
        larger than the pieces (links into another part of the archive), read each by itself."""
        assert self._sources is not None
        lo, hi = int(start.min()), int((start + length).max())
        if hi - lo > 2 * len(raw) + (1 << 20):
            view = memoryview(self._out)
            for offset, count, at in zip(start.tolist(), length.tolist(), to.tolist(), strict=True):
                self._sources.read_into(source, view[at : at + count], offset)
            return
        if len(self._in) < hi - lo:
            self._in = bytearray(hi - lo)
        self._sources.read_into(source, memoryview(self._in)[: hi - lo], lo)
        move(raw, to, np.frombuffer(self._in, np.uint8)[: hi - lo], start - lo, length)

    def _write_rows(self, number: int, ids: I64, frames: I64, place: I64, counts: I64) -> None:
        """Directory and rows of the block, complete under their name or not there."""
        rows = rows_of(self._job.index, self._job.keys, ids, frames)
        cuts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        directory = np.zeros((len(cuts), 4), "<i8")
        directory[:, _DATA] = place[cuts]
        packed, at = [], directory.nbytes
        for bucket, (lo, hi) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
            directory[bucket, _ROWS] = at
            if lo < hi:
                some = rows.slice(lo, hi)
                packed.append(some.pack())
                at += len(packed[-1])
                directory[bucket + 1 :, _PARTS] += some.parts
                directory[bucket + 1 :, _KEYS] += some.key_bytes
        directory[-1, _ROWS] = at
        final = self._spill.rows(number)
        fd = create(final + b".tmp")
        try:
            write_all(fd, b"".join([directory.tobytes(), *packed]))
        finally:
            os.close(fd)
        os.rename(final + b".tmp", final)


class _Collect:
    """Pass 2, a shard a call."""

    def __init__(self, job: CopyJob, buckets: Buckets, blocks: list[Block], spill: Spill, most: int) -> None:
        self._job, self._buckets, self._blocks, self._spill, self._most = job, buckets, blocks, spill, most
        self._writer: ShardWriter | None = None
        self._data = bytearray()
        self._fd = -1

    def __call__(self, shard: int, advance: Advance) -> Receipt:
        job, first = self._job, self._buckets.shard_first
        lo, hi = int(first[shard]), int(first[shard + 1])
        if self._writer is None:
            self._writer = ShardWriter(job.chunk, job.digests)
            self._fd = os.open(self._spill.data, os.O_RDONLY | os.O_CLOEXEC)
        writer = self._writer
        index = ShardIndexWriter(job, shard, *self._totals(lo, hi))
        temporary = job.temporary(shard, "data")
        writer.begin(temporary)
        try:
            for bucket in range(lo, hi):
                self._bucket(bucket, writer, index, advance)
            return finish_shard(job, shard, writer, temporary, index.publish)
        finally:
            writer.abort()
            index.close()

    def close(self) -> None:
        """Give back what this process holds."""
        if self._writer is not None:
            self._writer.close()
            os.close(self._fd)
            self._writer = None

    def _totals(self, lo: int, hi: int) -> tuple[int, int]:
        """Parts and key bytes of buckets lo..hi-1, samples with frames above the bound included."""
        parts = keys = 0
        for block in range(len(self._blocks)):
            with open(self._spill.rows(block), "rb") as file:
                a, b = (np.frombuffer(os.pread(file.fileno(), _ENTRY, at * _ENTRY), "<i8") for at in (lo, hi))
            parts += int(b[_PARTS] - a[_PARTS])
            keys += int(b[_KEYS] - a[_KEYS])
        for bucket in range(lo, hi):
            if (rows := self._large(bucket)) is not None:
                parts, keys = parts + rows.parts, keys + rows.key_bytes
        return parts, keys

    def _large(self, bucket: int) -> Rows | None:
        """The rows of a bucket whose one frame is above the bound, and so not in the spill."""
        at = int(self._buckets.cuts[bucket])
        if int(self._buckets.cuts[bucket + 1]) - at > 1:
            return None
        ids, place = self._job.layout.window(at, at + 1)
        length = np.diff(place)
        return rows_of(self._job.index, self._job.keys, ids, length) if length[0] > self._most else None

    def _bucket(self, bucket: int, writer: ShardWriter, index: ShardIndexWriter, advance: Advance) -> None:
        large = self._large(bucket)
        if large is not None:
            self._stream(int(large.ids[0]), writer)
            index.put(large)
            advance(int(large.length[0]))
            return
        rows, size = self._read(bucket)
        expected = int(self._buckets.cuts[bucket + 1] - self._buckets.cuts[bucket])
        if len(rows) != expected:
            raise StateError(
                f"the spill of an earlier run has {len(rows)} samples where {expected} belong", file=self._spill.folder,
                remedy="remove the work folder, or start anew with --overwrite",
            )  # fmt: skip
        at = np.cumsum(rows.length) - rows.length
        order = np.argsort(self._buckets.rank_keys(rows.ids))
        rows, at = rows.take(order), at[order]
        index.put(rows)
        self._write(rows.length, at, np.frombuffer(self._data, np.uint8)[:size], writer)
        advance(size)

    def _write(self, length: I64, at: I64, data: Raw, writer: ShardWriter) -> None:
        """Frames in their order, a buffer at a time. None is larger than a bucket; a buffer may be smaller."""
        ends = np.cumsum(length)
        lo = 0
        while lo < len(length):
            before = int(ends[lo - 1]) if lo else 0
            hi = int(np.searchsorted(ends, before + self._job.chunk, side="right"))
            if hi <= lo:
                writer.write(data.data[int(at[lo]) : int(at[lo] + length[lo])])
                lo += 1
                continue
            space = writer.space()
            count = int(ends[hi - 1]) - before
            to = ends[lo:hi] - length[lo:hi] - before
            move(np.frombuffer(space, np.uint8)[:count], to, data, at[lo:hi], length[lo:hi])
            writer.commit(count)
            lo = hi

    def _read(self, bucket: int) -> tuple[Rows, int]:
        """Rows of a bucket in the spill's order, its frames in `self._data`, and their size."""
        shape = {
            "label": self._job.index.label is not None,
            "keys": "key" in self._job.columns,
            "parts": self._job.index.ext is not None,
        }
        pieces, extents, size = [], [], 0
        for number, block in enumerate(self._blocks):
            with open(self._spill.rows(number), "rb") as file:
                fd = file.fileno()
                a, b = np.frombuffer(os.pread(fd, 2 * _ENTRY, bucket * _ENTRY), "<i8").reshape(2, 4).tolist()
                if b[_ROWS] > a[_ROWS]:
                    pieces.append(Rows.unpack(os.pread(fd, b[_ROWS] - a[_ROWS], a[_ROWS]), **shape))
                    extents.append((block.at + a[_DATA], b[_DATA] - a[_DATA]))
                    size += b[_DATA] - a[_DATA]
        if len(self._data) < size:
            self._data = bytearray(size)
        view, done = memoryview(self._data), 0
        for at, count in extents:
            _read_all(self._fd, view[done : done + count], at, self._spill.data)
            done += count
        return Rows.join(pieces), size

    def _stream(self, sample: int, writer: ShardWriter) -> None:
        sources = SourceFiles(self._job.sources, most=4)
        try:
            FRAMERS[self._job.layout.format](self._job).stream(sample, sources, writer)
        finally:
            sources.close()


def _read_all(fd: int, target: memoryview, offset: int, name: bytes) -> None:
    done = 0
    while done < len(target):
        got = os.preadv(fd, [target[done:]], offset + done)
        if not got:
            raise StateError("the spill file is cut short", file=name, remedy="start anew with --overwrite")
        done += got
