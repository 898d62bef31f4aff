"""Framers that change the format: members of a tar into a tf.train.Example, features of one into members of a tar.

Payloads are copied from where they lie; only what stands around them is made (disk/formats/example_encode.py and
layout/frames.py), and numbers, whose two forms have different bytes (disk/formats/values.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError
from ...base.ragged import Ragged
from ...layout.frames import pad512, tar_heads
from ...layout.index import I64, INT64_TEXT, Index, is_copied
from ..crc import crc32c, mask, masked, masked_of_lengths
from ..formats.example_encode import features_of
from ..formats.tfrecord import FOOT, HEAD
from ..formats.values import computed
from ..writer import ShardWriter
from .frames import Raw, Reads
from .job import CopyJob, SourceFiles
from .move import move

BLOCK = 512


class Parts:
    """Payloads of some parts, each with its place in the buffer.

    part, source, size, to  int64[q]: number in the index, source, bytes of the payload, place in the buffer
    """

    def __init__(self, index: Index, part: I64, source: I64, size: I64, to: I64) -> None:
        self._index = index
        self._part, self._source, self._size, self._to = part, source, size, to
        self._kind = np.zeros(len(part), np.uint8) if index.kind is None else index.kind.take(part)
        self._stored = size if index.stored is None else index.stored.take(part)
        self._plain = is_copied(self._kind)
        if index.sparse:
            self._plain &= np.fromiter((p not in index.sparse for p in part.tolist()), bool, len(part))

    def reads(self) -> Reads:
        """What is copied as it is stored."""
        keep = np.flatnonzero(self._plain & (self._size > 0))
        part = self._part[keep]
        offset = self._index.offset.take(part) + self._index.head.take(part)
        return self._source[keep], offset, self._size[keep], self._to[keep]

    def finish(self, view: memoryview, sources: SourceFiles) -> None:
        """The others, into their places."""
        for k in np.flatnonzero(~self._plain).tolist():
            at, size = int(self._to[k]), int(self._size[k])
            view[at : at + size] = self.payload(k, sources)

    def payload(self, k: int, sources: SourceFiles) -> bytes:
        """The payload of part k, computed or expanded."""
        part, source = int(self._part[k]), int(self._source[k])
        if self._kind[k] == INT64_TEXT:
            return b"%d" % self._stored[k]
        data = stored_bytes(self._index, part, source, sources)
        if is_copied(self._kind[k : k + 1])[0]:
            return data
        made = computed(int(self._kind[k]), data)
        if len(made) != self._size[k]:
            raise DataError(
                "the input changed during the run",
                file=self._index.sources[source if self._index.file is None else 0].name,
                offset=int(self._index.offset.take(np.array([part]))[0]),
                remedy="keep the input unchanged, then start again with --overwrite",
            )  # fmt: skip
        return made

    def pieces(self, k: int, sources: SourceFiles, writer: ShardWriter) -> Iterator[memoryview]:
        """The payload of part k, written piece by piece; every piece after it was written."""
        if not self._plain[k]:
            data = memoryview(self.payload(k, sources))
            writer.write(data)
            yield data
            return
        part, source = self._part[k : k + 1], int(self._source[k])
        offset = int((self._index.offset.take(part) + self._index.head.take(part))[0])
        size, done = int(self._size[k]), 0
        while done < size:
            space = writer.space()
            piece = space[: min(len(space), size - done)]
            sources.read_into(source, piece, offset + done)
            writer.commit(len(piece))
            yield piece
            done += len(piece)


def stored_bytes(index: Index, part: int, source: int, sources: SourceFiles) -> bytes:
    """What a source has of a part; the holes of a sparse member are zeros."""
    one = np.array([part], np.int64)
    size = index.size if index.stored is None else index.stored
    data = memoryview(bytearray(int(size.take(one)[0])))
    begin = int((index.offset.take(one) + index.head.take(one))[0])
    for at, offset, count in index.sparse.get(part, ((0, begin, len(data)),)):
        sources.read_into(source, data[at : at + count], offset)
    return bytes(data)


class ExampleFramer:
    """A TFRecord frame around a tf.train.Example whose features are the parts of the sample, and its key."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._index = job.index

    def plan(self, ids: I64, place: I64) -> Reads:
        features = features_of(self._index, self._job.keys, ids)
        begin, size = features.begin, features.size
        self._place = place
        self._heads, self._prefixes = self._frame_heads(features.heads(), np.diff(place)), features.prefixes()
        before_payload = self._prefixes.lengths()
        # place of every feature: behind the sample's heads and the features before it
        length = before_payload + size
        before = np.cumsum(length) - length
        start = place[:-1] + self._heads.lengths() - before[begin[:-1]]
        self._to = before + np.repeat(start, np.diff(begin))
        body = self._to + before_payload
        own = features.part < 0
        self._keys, self._key_to = features.keys, body[own]
        self._part = np.where(own, -1, np.cumsum(~own) - 1)  # in `_parts`; -1: the key
        part = ~own
        parts, index = features.part[part], self._index
        source = np.repeat(index.source_of(ids), np.diff(begin))[part] if index.file is None else index.file.take(parts)
        self._parts = Parts(index, parts, source.astype(np.int64), size[part], body[part])
        return self._parts.reads()

    @staticmethod
    def _frame_heads(heads: Ragged, frames: I64) -> Ragged:
        """Length and its checksum in front of what an Example begins with."""
        raw = np.empty((len(frames), HEAD), np.uint8)
        lengths = (frames - HEAD - FOOT).astype("<u8")
        raw[:, :8] = lengths.view(np.uint8).reshape(-1, 8)
        raw[:, 8:] = masked_of_lengths(lengths).astype("<u4").view(np.uint8).reshape(-1, 4)
        return Ragged.glue(Ragged(raw.reshape(-1), np.arange(len(frames) + 1, dtype=np.int64) * HEAD), heads)

    def finish(self, raw: Raw, view: memoryview, sources: SourceFiles) -> None:
        _lay(raw, self._place[:-1], self._heads)
        _lay(raw, self._to, self._prefixes)
        if self._keys is not None:
            _lay(raw, self._key_to, self._keys)
        self._parts.finish(view, sources)
        for a, b in zip(self._place[:-1].tolist(), self._place[1:].tolist(), strict=True):
            view[b - FOOT : b] = masked(view[a + HEAD : b - FOOT]).to_bytes(4, "little")

    def stream(self, sample: int, sources: SourceFiles, writer: ShardWriter) -> None:
        ids = np.array([sample], np.int64)
        size = int(features_of(self._index, self._job.keys, ids).example_bytes()[0])
        self.plan(ids, np.array([0, HEAD + size + FOOT], np.int64))
        head = self._heads[0]
        writer.write(head)
        crc = crc32c(head[HEAD:])
        for prefix, part in zip(self._prefixes, self._part.tolist(), strict=True):
            writer.write(prefix)
            crc = crc32c(prefix, crc)
            if part < 0:
                assert self._keys is not None
                writer.write(self._keys[0])
                crc = crc32c(self._keys[0], crc)
                continue
            for piece in self._parts.pieces(part, sources, writer):
                crc = crc32c(piece, crc)
        writer.write(mask(crc).to_bytes(4, "little"))


class MemberFramer:
    """Our own tar header before every payload, zeros behind it; payloads are values of a tf.train.Example."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job
        self._index = job.index

    def plan(self, ids: I64, place: I64) -> Reads:
        index = self._index
        parts, begin = index.parts_of(ids)
        self._size = index.size.take(parts)
        self._heads = tar_heads(self._job.keys.part_names(ids, parts, begin), self._size)
        head = self._heads.lengths()
        # place of every part's frame: its sample's place + the frames before it in the sample
        frame = head + pad512(self._size)
        before = np.cumsum(frame) - frame
        self._to = before + np.repeat(place[:-1] - before[begin[:-1]], np.diff(begin))
        self._body = self._to + head
        self._parts = Parts(index, parts, index.files_of(ids, parts, begin), self._size, self._body)
        return self._parts.reads()

    def finish(self, raw: Raw, view: memoryview, sources: SourceFiles) -> None:
        _lay(raw, self._to, self._heads)
        self._parts.finish(view, sources)
        zeros = bytes(BLOCK)
        end = self._body + self._size
        for at, count in zip(end.tolist(), (-self._size % BLOCK).tolist(), strict=True):
            view[at : at + count] = zeros[:count]

    def stream(self, sample: int, sources: SourceFiles, writer: ShardWriter) -> None:
        ids = np.array([sample], np.int64)
        self.plan(ids, np.zeros(2, np.int64))
        for k, size in enumerate(self._size.tolist()):
            writer.write(self._heads[k])
            for _ in self._parts.pieces(k, sources, writer):
                pass
            writer.write(bytes(-size % BLOCK))


def _lay(raw: Raw, to: I64, strings: Ragged) -> None:
    """Strings to their places, which ascend."""
    first: npt.NDArray[np.int64] = strings.first
    move(raw, to, strings.data, first[:-1], strings.lengths())
