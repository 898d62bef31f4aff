"""How the frames of a window of samples come about: what is read where, and what is done to it in the buffer.

A framer is made for one shard. `plan` says which reads fill the buffer, `finish` completes the frames in it
(headers, padding, checksums); `stream` writes one frame that is larger than the buffer piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError
from ...layout.frames import NAME, pad512, put_tar_heads, tar_head_bytes, tar_heads
from ...layout.index import I64, Runs
from ...layout.rules import Rules
from ..crc import crc32c, mask, masked, masked_of_lengths
from ..crcruns import first_wrong
from ..formats.tfrecord import FOOT, FRAME, HEAD, scan
from ..lanes import words
from ..writer import ShardWriter
from .job import CopyJob, SourceFiles

Raw = npt.NDArray[np.uint8]
# number of a source (of its file, where a source has many), offset in it, bytes, place in the buffer: int64[r] each
Reads = tuple[I64, I64, I64, I64]

BLOCK = 512


class Framer(Protocol):
    """See the module."""

    def plan(self, ids: I64, place: I64) -> Reads: ...

    def finish(self, raw: Raw, view: memoryview, sources: SourceFiles) -> None: ...

    def stream(self, sample: int, sources: SourceFiles, writer: ShardWriter) -> None: ...


class TFRecordFramer:
    """Frames are carried verbatim; both checksums are checked on the copy."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._index = job.index

    def plan(self, ids: I64, place: I64) -> Reads:
        self._ids, self._place = ids, place
        self._source = self._index.source_of(ids)
        self._offset = self._index.offset.take(ids)
        return self._source, self._offset, np.diff(place), place[:-1]

    def finish(self, raw: Raw, view: memoryview, sources: SourceFiles) -> None:
        start, size = self._place[:-1], np.diff(self._place) - FRAME
        lengths = size.astype(np.uint64)
        found = words(raw, "<u8")[start]
        self._require(found == lengths, "the length of a record changed since it was scanned")
        if self._job.verify:
            wrong = first_wrong(raw, start, size)
            if wrong is not None:
                self._wrong_sum(*wrong)
        else:
            sums = masked_of_lengths(lengths)
            raw[start[:, None] + np.arange(8, HEAD)] = sums.astype("<u4").view(np.uint8).reshape(-1, 4)
            for a, b in zip(start.tolist(), self._place[1:].tolist(), strict=True):
                view[b - FOOT : b] = masked(view[a + HEAD : b - FOOT]).to_bytes(4, "little")

    def _wrong_sum(self, k: int, which: str) -> NoReturn:
        """Raise what is to be said of a wrong checksum; of a length what the scan would, had it looked at them all."""
        if which == "length":
            source = int(self._source[k])
            name = self._index.sources[source].name
            scan(self._job.sources[source].path, name, Rules(), check_payload=False)
        raise self._damage(f"the {which} checksum (CRC32C) of a record is wrong", k)

    def _require(self, right: npt.NDArray[np.bool_], what: str) -> None:
        if not right.all():
            raise self._damage(what, int(np.flatnonzero(~right)[0]))

    def _damage(self, what: str, k: int) -> DataError:
        source = int(self._source[k])
        record = int(self._ids[k] - self._index.source_first[source])
        return DataError(
            what, file=self._index.sources[source].name, offset=int(self._offset[k]), member=f"number {record}",
            why="the payload is damaged", remedy="fetch the file again, or keep what is intact: --on-corrupt skip",
        )  # fmt: skip

    def stream(self, sample: int, sources: SourceFiles, writer: ShardWriter) -> None:
        ids = np.array([sample], np.int64)
        size = int(self._index.size.take(ids)[0])
        self.plan(ids, np.array([0, size + FRAME], np.int64))
        source, at = int(self._source[0]), int(self._offset[0])
        head = size.to_bytes(8, "little")
        head += masked(head).to_bytes(4, "little")
        found = memoryview(bytearray(HEAD))
        sources.read_into(source, found, at)
        if found[:8] != head[:8]:
            raise self._damage("the length of a record changed since it was scanned", 0)
        if self._job.verify and found != head:
            self._wrong_sum(0, "length")
        writer.write(head)
        crc = 0
        for piece in _pieces(source, at + HEAD, size, sources, writer):
            crc = crc32c(piece, crc)
            writer.commit(len(piece))
        foot = memoryview(bytearray(FOOT))
        sources.read_into(source, foot, at + HEAD + size)
        right = mask(crc).to_bytes(4, "little")
        if self._job.verify and bytes(foot) != right:
            raise self._damage("the payload checksum (CRC32C) of a record is wrong", 0)
        writer.write(right)


def _pieces(source: int, offset: int, count: int, sources: SourceFiles, writer: ShardWriter) -> Iterator[memoryview]:
    """`count` bytes of a source, read into the writer's space piece by piece; each is to be committed."""
    done = 0
    while done < count:
        space = writer.space()
        piece = space[: min(len(space), count - done)]
        sources.read_into(source, piece, offset + done)
        yield piece
        done += len(piece)


class TarFramer:
    """Our own header before every payload, zeros behind it.

    Where the members of a sample lie one after the other with plain 512-byte headers, as in most archives, one
    read fetches them all and the new headers are laid over the old ones.
    """

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._index = job.index

    def plan(self, ids: I64, place: I64) -> Reads:
        index = self._index
        parts, begin = index.parts_of(ids)
        size = index.size.take(parts)
        payload = index.offset.take(parts) + index.head.take(parts)
        self._names = self._job.keys.part_names(ids, parts, begin)
        head = tar_head_bytes(self._names)
        # A name of more bytes may have a header of one block too, with a prefix.
        self._short = int(self._names.lengths().max(initial=0)) <= NAME
        # place of every part's frame: its sample's place + the frames before it in the sample
        frame = head + pad512(size)
        before = np.cumsum(frame) - frame
        to = before + np.repeat(place[:-1] - before[begin[:-1]], np.diff(begin))
        self._to, self._body, self._size, self._parts = to, to + head, size, parts
        self._stop = int(place[-1])
        source = index.files_of(ids, parts, begin)
        self._source = source
        self._sparse = [k for k, part in enumerate(parts.tolist()) if part in index.sparse] if index.sparse else []
        return self._merged(source, payload, begin)

    def _merged(self, source: I64, payload: I64, begin: I64) -> Reads:
        """One read for a run of parts whose payloads have the same distance in the source as in the output."""
        size, body = self._size, self._body
        joins = np.zeros(len(size), bool)  # part k is fetched by the read of part k-1
        # what lies between them in the source is then just as long as our padding and header, which go over it
        joins[1:] = (np.diff(payload) == np.diff(body)) & (source[1:] == source[:-1])
        joins[begin[:-1]] = False
        for k in self._sparse:
            joins[k : k + 2] = False
        first = np.flatnonzero(~joins)
        last = np.append(first[1:], len(size)) - 1
        length = body[last] + size[last] - body[first]
        keep = length > 0
        if self._sparse:
            keep &= ~np.isin(first, self._sparse)
        first, length = first[keep], length[keep]
        return source[first], payload[first], length, body[first]

    def finish(self, raw: Raw, view: memoryview, sources: SourceFiles) -> None:
        for k in self._sparse:
            self._expand(k, view, sources)
        self._pad(raw)
        self._lay_heads(raw)

    def _pad(self, raw: Raw) -> None:
        """Zeros behind every part, and over the header that follows, which is laid only then: so that all are of one
        length, and numpy can write them in one call. Nothing behind the window is touched."""
        end = self._body + self._size
        within = int(np.searchsorted(end, self._stop - BLOCK, side="right"))  # the last part has no header behind it
        padded = end[:within][self._size[:within] % BLOCK > 0]
        if len(padded):
            items = np.ndarray(len(raw) - BLOCK + 1, np.dtype((np.void, BLOCK)), raw, strides=(1,))
            items[padded] = np.zeros((), items.dtype)
        for k in range(within, len(end)):
            raw[end[k] : end[k] + -int(self._size[k]) % BLOCK] = 0

    def _lay_heads(self, raw: Raw) -> None:
        if self._short:
            blocks = raw[: len(raw) // BLOCK * BLOCK].reshape(-1, BLOCK)
            put_tar_heads(blocks, self._to // BLOCK, self._names, self._size)
            return
        heads = tar_heads(self._names, self._size)
        data = heads.data
        for k, at in enumerate(self._to.tolist()):
            a, b = int(heads.first[k]), int(heads.first[k + 1])
            raw[at : at + b - a] = data[a:b]

    def _expand(self, k: int, view: memoryview, sources: SourceFiles) -> None:
        """A sparse member: zeros, then the stored runs over them."""
        body, size = int(self._body[k]), int(self._size[k])
        view[body : body + size] = bytes(size)
        for at, offset, count in self._index.sparse[int(self._parts[k])]:
            sources.read_into(int(self._source[k]), view[body + at : body + at + count], offset)

    def stream(self, sample: int, sources: SourceFiles, writer: ShardWriter) -> None:
        index = self._index
        ids = np.array([sample], np.int64)
        parts, begin = index.parts_of(ids)
        size = index.size.take(parts)
        payload = index.offset.take(parts) + index.head.take(parts)
        heads = tar_heads(self._job.keys.part_names(ids, parts, begin), size)
        source = index.files_of(ids, parts, begin).tolist()
        for k, part in enumerate(parts.tolist()):
            writer.write(heads[k])
            runs = index.sparse.get(part, ((0, int(payload[k]), int(size[k])),))
            _stream_payload(runs, int(size[k]), source[k], sources, writer)
            writer.write(bytes(-int(size[k]) % BLOCK))


def _stream_payload(runs: Runs, size: int, source: int, sources: SourceFiles, writer: ShardWriter) -> None:
    """The payload of a part piece by piece: stored runs, zeros between them."""
    at = 0
    for place, offset, count in [*runs, (size, 0, 0)]:
        while at < place:
            space = writer.space()
            gap = min(place - at, len(space))
            space[:gap] = bytes(gap)
            writer.commit(gap)
            at += gap
        for piece in _pieces(source, offset, count, sources, writer):
            writer.commit(len(piece))
        at += count
