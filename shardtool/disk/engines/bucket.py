"""The bucket engine: two passes, both sequential, in memory that does not depend on the amount of data.

Pass 1 takes the sources block after block in their order, makes the output frames of a block, sorts them by bucket
(a range of output positions, known from the sample's sort key alone) and appends them to the spill. Pass 2 takes
bucket after bucket: reads its extent of every block, puts the frames into their final order in memory, writes them on.
A run that was stopped repeats only blocks that are not complete, and shards without a receipt.

With data of D bytes and blocks of m bytes an extent has m*m/D bytes. Where that would be so short that pass 2 read at
random, pass 1 sorts by wide buckets, many buckets each, and a pass between sorts every wide bucket by bucket.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...base.errors import StateError
from ...layout.buckets import Buckets, buckets_at_once, plan_buckets
from ...layout.index import I64, windows
from ...layout.manifest import Receipt
from ...layout.rows import Rows, rows_of
from ..files import naming, write_all
from ..runners import Advance, Later, run_tasks
from ..shardindex import ShardIndexWriter
from ..writer import ShardWriter
from .framers import framer_of
from .job import CopyJob, SourceFiles
from .move import move
from .shards import finish_shard
from .spill import DataFiles, Extent, Piece, Reader, Spill, remove_others, totals, write_rows

Raw = npt.NDArray[np.uint8]

_SAMPLES = 1 << 16


@dataclass(frozen=True)
class Block:
    """Samples lo..hi-1, all of one source, whose frames begin at byte `at` of a spill file."""

    source: int
    lo: int
    hi: int
    at: int


@contextlib.contextmanager
def bucket(job: CopyJob, jobs: int, advance: Advance) -> Iterator[Callable[[int, Advance], Later[Receipt]]]:
    """All passes but the last on entering; what it gives is the last, a shard a call. See ENGINES."""
    most = job.budget
    buckets = plan_buckets(job.layout, most)
    blocks = plan_blocks(job, most, most)
    group = buckets_at_once(len(buckets), most)
    name = b"%d." % most
    first, second = Spill(job.bulk, name + b"1"), Spill(job.bulk, name + b"2")
    used = [first] if group == 1 else [first, second]
    remove_others(job.bulk, used)
    for spill in used:
        spill.open()
    wide = buckets.grouped(group)
    _each(_Scatter(job, wide, blocks, first, most), len(blocks), first, jobs, advance)
    pieces = [first.piece(number, block.at) for number, block in enumerate(blocks)]
    if group == 1:
        collect = _Collect(job, buckets, first, lambda bucket: (pieces, bucket), most)
    else:
        regroup = _Regroup(job, buckets, wide, group, first, pieces, second, most)
        _each(regroup, len(wide), second, jobs, advance)
        collect = _Collect(job, buckets, second, regroup.where, most)
    try:
        yield collect
    finally:
        collect.close()
    for spill in used:  # not after an error: the next run goes on with them
        spill.remove()


def _each(task: _Scatter | _Regroup, count: int, spill: Spill, jobs: int, advance: Advance) -> None:
    """A pass: every block that is not there yet."""
    try:
        for _ in run_tasks(task, [number for number in range(count) if not spill.has(number)], jobs, advance):
            pass
    finally:
        task.close()


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


class _Scatter:
    """Pass 1, a block a call. Buffers are made in the worker that needs them and used again."""

    def __init__(self, job: CopyJob, buckets: Buckets, blocks: list[Block], spill: Spill, most: int) -> None:
        self._job, self._buckets, self._blocks, self._spill, self._most = job, buckets, blocks, spill, most
        self._sources: SourceFiles | None = None
        self._out = self._in = bytearray()
        self._files = DataFiles(spill, os.O_WRONLY)

    def __call__(self, number: int, advance: Advance) -> None:
        block = self._blocks[number]
        ids, order_frames, counts = self._sorted(block)
        place = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(order_frames, out=place[1:])
        data = self._frames(block, ids, place)
        piece = self._spill.piece(number, block.at)
        write_all(self._files.fd(piece.file), data, piece.at)
        rows = rows_of(self._job.index, self._job.keys, ids, order_frames)
        write_rows(piece.rows, rows, counts)
        advance(len(data))

    def close(self) -> None:
        """Give back what this process holds."""
        if self._sources is not None:
            self._sources.close()
        self._sources = None
        self._files.close()

    def _sorted(self, block: Block) -> tuple[I64, I64, I64]:
        """The block's samples by bucket, their frames' lengths, and how many each bucket has."""
        ids = np.arange(block.lo, block.hi, dtype=np.int64)
        frames = self._job.frames[block.lo : block.hi].astype(np.int64)
        if (frames > self._most).any():
            small = frames <= self._most
            ids, frames = ids[small], frames[small]
        bucket = self._buckets.of(ids)
        # numpy sorts numbers of 16 bits by counting, others by comparing
        narrow = bucket.astype(np.uint16) if len(self._buckets) <= 1 << 16 else bucket
        order = np.argsort(narrow, kind="stable")
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
        framer = framer_of(self._job)
        source, start, length, to = framer.plan(ids, place)
        if len(start):
            self._fetch(source, raw, start, length, to)
        framer.finish(raw, view, self._sources)
        return view

    def _fetch(self, source: I64, raw: Raw, start: I64, length: I64, to: I64) -> None:
        """Read the block's stretch of the source at once, and put the pieces where they go; where the pieces lie in
        several files (a folder), or the stretch is far larger than they are (links into another part of an archive),
        read each by itself."""
        assert self._sources is not None
        lo, hi = int(start.min()), int((start + length).max())
        if source[0] != source[-1] or (source != source[0]).any() or hi - lo > 2 * len(raw) + (1 << 20):
            view = memoryview(self._out)
            reads = zip(source.tolist(), start.tolist(), length.tolist(), to.tolist(), strict=True)
            for number, offset, count, at in reads:
                self._sources.read_into(number, view[at : at + count], offset)
            return
        if len(self._in) < hi - lo:
            self._in = bytearray(hi - lo)
        self._sources.read_into(int(source[0]), memoryview(self._in)[: hi - lo], lo)
        move(raw, to, np.frombuffer(self._in, np.uint8)[: hi - lo], start - lo, length)



class _Regroup:
    """The pass between, where there is one: a wide bucket a call. Its frames, as many at a time as fit, are sorted by
    bucket into the second spill; a mark says how many pieces that made."""

    def __init__(
        self, job: CopyJob, buckets: Buckets, wide: Buckets, group: int, first: Spill, pieces: list[Piece],
        second: Spill, most: int,
    ) -> None:  # fmt: skip
        self._job, self._buckets, self._wide, self._group = job, buckets, wide, group
        self._pieces, self._second, self._most = pieces, second, most
        self._reader = _reader(job, first)
        self._out = bytearray()
        self._files = DataFiles(second, os.O_WRONLY)

    def __call__(self, number: int, advance: Advance) -> None:
        at = self._start(number)
        places: list[int] = []
        for extents in _portions(self._reader.extents(self._pieces, number), self._most):
            rows, size = self._reader.read(extents)
            self._sort(number, rows, size, at, len(places))
            places.append(at)
            at += size
            advance(size)
        final = self._second.rows(number)
        with naming(final), open(final + b".tmp", "wb") as file:
            file.write(np.array(places, "<i8").tobytes())
        os.rename(final + b".tmp", final)

    def _start(self, number: int) -> int:
        """Where the wide bucket's frames go: behind those of all positions before it."""
        lo = int(self._wide.cuts[number])
        return int(self._job.layout.end[lo - 1 : lo][0]) if lo else 0

    def _sort(self, number: int, rows: Rows, size: int, at: int, piece: int) -> None:
        first = number * self._group
        local = self._buckets.of(rows.ids) - first
        order = np.argsort(local, kind="stable")
        start = (np.cumsum(rows.length) - rows.length)[order]
        rows = rows.take(order)
        if len(self._out) < size:
            self._out = bytearray(size)
        to = np.cumsum(rows.length) - rows.length
        source, target = (np.frombuffer(b, np.uint8)[:size] for b in (self._reader.buffer, self._out))
        move(target, to, source, start, rows.length)
        write_all(self._files.fd(self._second.piece(number, at).file), memoryview(self._out)[:size], at)
        count = min(self._group, len(self._buckets) - first)
        write_rows(self._name(number, piece), rows, np.bincount(local, minlength=count))

    def _name(self, number: int, piece: int) -> bytes:
        return self._second.rows(number) + b".%06d" % piece

    def where(self, bucket: int) -> tuple[list[Piece], int]:
        """The pieces that hold a bucket, and its number in their directories."""
        number = bucket // self._group
        with open(self._second.rows(number), "rb") as marks:
            places = np.frombuffer(marks.read(), "<i8").tolist()
        file = self._second.piece(number, 0).file
        pieces = [Piece(self._name(number, k), file, at) for k, at in enumerate(places)]
        return pieces, bucket - number * self._group

    def close(self) -> None:
        """Give back what this process holds."""
        self._reader.close()
        self._files.close()


def _portions(extents: list[Extent], most: int) -> Iterator[list[Extent]]:
    """Extents in portions of at most `most` bytes (one extent is never larger)."""
    some: list[Extent] = []
    size = 0
    for extent in extents:
        if some and size + extent.bytes > most:
            yield some
            some, size = [], 0
        some.append(extent)
        size += extent.bytes
    if some:
        yield some


def _reader(job: CopyJob, spill: Spill) -> Reader:
    parts = job.index.ext is not None and not job.index.records
    return Reader(spill, label=job.index.label is not None, keys="key" in job.columns, parts=parts)


class _Collect:
    """The last pass, a shard a call.

    where  bucket -> the pieces of the spill that hold it, and its number in their directories
    """

    def __init__(
        self, job: CopyJob, buckets: Buckets, spill: Spill, where: Callable[[int], tuple[list[Piece], int]], most: int
    ) -> None:
        self._job, self._buckets, self._spill, self._where, self._most = job, buckets, spill, where, most
        self._reader = _reader(job, spill)
        self._writer: ShardWriter | None = None

    def __call__(self, shard: int, advance: Advance) -> Later[Receipt]:
        job, first = self._job, self._buckets.shard_first
        lo, hi = int(first[shard]), int(first[shard + 1])
        if self._writer is None:
            self._writer = ShardWriter(job.chunk, job.digests)
        writer = self._writer
        index = ShardIndexWriter(job, shard, *self._totals(lo, hi))
        temporary = job.temporary(shard, "data")
        writer.begin(temporary)
        try:
            for bucket in range(lo, hi):
                self._bucket(bucket, writer, index, advance)
            return finish_shard(job, shard, writer, temporary, lambda: index)
        except BaseException:
            index.close()
            raise
        finally:
            writer.abort()

    def close(self) -> None:
        """Give back what this process holds."""
        self._reader.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _totals(self, lo: int, hi: int) -> tuple[int, int]:
        """Parts and key bytes of buckets lo..hi-1, samples with frames above the bound included."""
        parts = keys = 0
        for bucket in range(lo, hi):
            pieces, local = self._where(bucket)
            more = totals(pieces, local, local + 1)
            parts, keys = parts + more[0], keys + more[1]
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
        pieces, local = self._where(bucket)
        rows, size = self._reader.read(self._reader.extents(pieces, local))
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
        self._write(rows.length, at, np.frombuffer(self._reader.buffer, np.uint8)[:size], writer)
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

    def _stream(self, sample: int, writer: ShardWriter) -> None:
        sources = SourceFiles(self._job.sources, most=4)
        try:
            framer_of(self._job).stream(sample, sources, writer)
        finally:
            sources.close()
