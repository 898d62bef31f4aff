"""The content of a compressed file by position, without storing it: for commands that have no work folder.

Reading forward decodes forward; reading backward begins at the start again. The walks read forward, so one pass costs
one decoding. Whoever goes back more often than a few times gets the content in a temporary file without a name.
"""

from __future__ import annotations

import os
import tempfile

from ..base.errors import DataError
from .decode import Decoder
from .files import naming, read_at

# Content up to this size is kept in memory from the first pass.
SMALL = 4 << 20
# How often reading may begin again.
PASSES = 4


class Packed(bytes):
    """Path of a compressed file, for readers of its content (`Blocks`); to the system it is the path.

    kind       how it is compressed
    size       bytes of content that are to be read: all, or those in front of a damage
    fine_from  for `Decoder`, where the content in front of a damage is wanted to the last byte
    data       the content, when it is small
    """

    kind: str
    size: int
    fine_from: int | None
    data: bytes | None

    def __new__(
        cls, path: bytes, kind: str, size: int, fine_from: int | None = None, data: bytes | None = None
    ) -> Packed:
        made = super().__new__(cls, path)
        made.kind, made.size, made.fine_from, made.data = kind, size, fine_from, data
        return made

    def __reduce__(self) -> tuple[object, ...]:
        # Travels from a worker to the parent, without the data.
        return Packed, (bytes(self), self.kind, self.size, self.fine_from)

    def decoder(self, name: bytes) -> Decoder:
        """One that gives at least `size` bytes."""
        return Decoder(bytes(self), name, self.kind, fast=self.fine_from is None, fine_from=self.fine_from)


class DecodedFile:
    """Bytes of the content by position."""

    def __init__(self, packed: Packed, name: bytes) -> None:
        self.name, self.size = name, packed.size
        self._packed = packed
        self._decoder: Decoder | None = None
        self._piece, self._lo = memoryview(packed.data or b""), 0
        self._passes = 0
        self._stored = -1

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill `target` from `offset`; it must lie inside the content."""
        done = 0
        while done < len(target):
            if self._stored >= 0:
                with naming(self._stored):
                    got = os.preadv(self._stored, [target[done:]], offset + done)
            else:
                piece = self._from(offset + done)[: len(target) - done]
                got = len(piece)
                target[done : done + got] = piece
            if not got:
                raise self._shorter(offset + done)
            done += got

    def _from(self, offset: int) -> memoryview:
        """Content from `offset` on, as far as one decoded piece goes; empty when it was stored instead."""
        if self._lo <= offset < self._lo + len(self._piece):
            return self._piece[offset - self._lo :]
        if self._decoder is None or offset < self._lo:
            self._begin()
        while self._decoder is not None:
            self._lo += len(self._piece)
            self._piece = memoryview(self._decoder.read())
            if not self._piece:
                raise self._shorter(self._lo)
            if offset < self._lo + len(self._piece):
                return self._piece[offset - self._lo :]
        return self._read_stored(offset)

    def _begin(self) -> None:
        """From the start again, or store it all."""
        if self._decoder is not None:
            self._decoder.close()
        self._decoder = self._packed.decoder(self.name)
        self._piece, self._lo = memoryview(b""), 0
        self._passes += 1
        if self._passes > PASSES:
            self._store()

    def _store(self) -> None:
        assert self._decoder is not None
        with tempfile.TemporaryFile() as file, self._decoder as decoder:
            while file.tell() < self.size and (piece := decoder.read()):
                file.write(piece)
            file.flush()
            self._stored = os.dup(file.fileno())
        self._decoder = None

    def _read_stored(self, offset: int) -> memoryview:
        return memoryview(read_at(self._stored, 1 << 20, offset))

    def _shorter(self, offset: int) -> DataError:
        return DataError(
            "the file changed while it was read", file=self.name, offset=offset,
            why=f"it decoded to {self.size:,} bytes before, now to fewer",
            remedy="keep the input unchanged during the run, then start again",
        )  # fmt: skip

    def close(self) -> None:
        """Give descriptors back."""
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None
        if self._stored >= 0:
            os.close(self._stored)
            self._stored = -1
