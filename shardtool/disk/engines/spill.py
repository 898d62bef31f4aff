"""The spill of the bucket engine: frames on their way, sorted by bucket inside every block.

A block has a region of a data file, in it an extent for every bucket, and a file of its own with a directory and the
index rows of its samples, bucket after bucket. That file is renamed into place when the block is complete. Blocks take
turns with the data files: of two processes that write to one file, one waits for the other.

Nothing is synced: spill outlives the process, not a power cut. The folder's name has the boot in it, and the budget
that decides blocks and buckets; spill of another boot or budget is not used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ...base.errors import StateError
from ...layout.index import I64
from ...layout.rows import Rows
from ..boot import boot
from ..files import create, remove_folder, write_all

FILES = 16

# Columns of a block's directory, int64 each: bytes of frames, bytes of rows, parts, key bytes before each bucket.
DATA, ROWS, PARTS, KEYS = range(4)
ENTRY = 4 * 8


@dataclass(frozen=True)
class Piece:
    """One spilled block: the file with its directory and rows, the number of its data file, and where its frames begin
    there."""

    rows: bytes
    file: int
    at: int


@dataclass(frozen=True)
class Extent:
    """What a block has of a bucket: number of the data file, place there, bytes, and its samples."""

    file: int
    at: int
    bytes: int
    rows: Rows


class Spill:
    """Data files and their blocks, in one folder below `work`."""

    def __init__(self, work: bytes, name: bytes) -> None:
        self.folder = os.path.join(work, b"spill." + boot() + b"." + name)

    def data(self, file: int) -> bytes:
        """The path of a data file."""
        return os.path.join(self.folder, b"data.%02d" % file)

    def open(self) -> None:
        """Make folder and data files, or go on with those that are there."""
        os.makedirs(self.folder, exist_ok=True)
        for file in range(FILES):
            os.close(os.open(self.data(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def piece(self, block: int, at: int) -> Piece:
        """A block whose frames begin at byte `at` of its data file."""
        return Piece(self.rows(block), block % FILES, at)

    def rows(self, block: int) -> bytes:
        """The file with the directory and the rows of a block."""
        return os.path.join(self.folder, b"%08d" % block)

    def has(self, block: int) -> bool:
        """Whether a block is complete."""
        return os.path.exists(self.rows(block))

    def remove(self) -> None:
        """All of it."""
        remove_folder(self.folder)


def remove_others(work: bytes, kept: list[Spill]) -> None:
    """Remove spill that this run does not use."""
    folders = {spill.folder for spill in kept}
    for name in os.listdir(work):
        path = os.path.join(work, name)
        if name.startswith(b"spill.") and path not in folders:
            remove_folder(path)


def write_rows(path: bytes, rows: Rows, counts: I64) -> None:
    """Directory and rows of a block whose samples are sorted by bucket, counts[b] of them in bucket b; complete under
    its name or not there."""
    cuts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    directory = np.zeros((len(cuts), 4), "<i8")
    directory[:, DATA] = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows.length)])[cuts]
    packed, at = [], directory.nbytes
    for bucket, (lo, hi) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
        directory[bucket, ROWS] = at
        if lo < hi:
            some = rows.slice(lo, hi)
            packed.append(some.pack())
            at += len(packed[-1])
            directory[bucket + 1, PARTS] = some.parts
            directory[bucket + 1, KEYS] = some.key_bytes
    directory[-1, ROWS] = at
    np.cumsum(directory[:, PARTS:], axis=0, out=directory[:, PARTS:])
    fd = create(path + b".tmp")
    try:
        write_all(fd, b"".join([directory.tobytes(), *packed]))
    finally:
        os.close(fd)
    os.rename(path + b".tmp", path)


def totals(pieces: list[Piece], lo: int, hi: int) -> tuple[int, int]:
    """Parts and key bytes of buckets lo..hi-1."""
    parts = keys = 0
    for piece in pieces:
        with open(piece.rows, "rb") as file:
            a, b = (np.frombuffer(os.pread(file.fileno(), ENTRY, at * ENTRY), "<i8") for at in (lo, hi))
        parts += int(b[PARTS] - a[PARTS])
        keys += int(b[KEYS] - a[KEYS])
    return parts, keys


class DataFiles:
    """Descriptors of a spill's data files, opened when they are asked for. Belongs to one process."""

    def __init__(self, spill: Spill, flags: int) -> None:
        self._spill, self._flags = spill, flags | os.O_CLOEXEC
        self._fds: dict[int, int] = {}

    def fd(self, file: int) -> int:
        """The descriptor of a data file."""
        if file not in self._fds:
            self._fds[file] = os.open(self._spill.data(file), self._flags)
        return self._fds[file]

    def close(self) -> None:
        """Give the descriptors back."""
        while self._fds:
            os.close(self._fds.popitem()[1])


class Reader:
    """Reads buckets of one spill into a buffer that is used again. Belongs to one process.

    label, keys, parts  what rows have: see Rows.unpack
    """

    def __init__(self, spill: Spill, *, label: bool, keys: bool, parts: bool) -> None:
        self._spill = spill
        self._shape = {"label": label, "keys": keys, "parts": parts}
        self.buffer = bytearray()
        self._files = DataFiles(spill, os.O_RDONLY)

    def extents(self, pieces: list[Piece], bucket: int) -> list[Extent]:
        """Those of a bucket in every block that has some of it."""
        found = []
        for piece in pieces:
            with open(piece.rows, "rb") as file:
                fd = file.fileno()
                a, b = np.frombuffer(os.pread(fd, 2 * ENTRY, bucket * ENTRY), "<i8").reshape(2, 4).tolist()
                if b[ROWS] > a[ROWS]:
                    rows = Rows.unpack(os.pread(fd, b[ROWS] - a[ROWS], a[ROWS]), **self._shape)
                    found.append(Extent(piece.file, piece.at + a[DATA], b[DATA] - a[DATA], rows))
        return found

    def read(self, extents: list[Extent]) -> tuple[Rows, int]:
        """Rows of these extents, their frames in `buffer`, and how many bytes those are."""
        size = sum(extent.bytes for extent in extents)
        if len(self.buffer) < size:
            self.buffer = bytearray(size)
        view, done = memoryview(self.buffer), 0
        for extent in extents:
            self._read_all(view[done : done + extent.bytes], extent)
            done += extent.bytes
        return Rows.join([extent.rows for extent in extents]), size

    def _read_all(self, target: memoryview, extent: Extent) -> None:
        fd, done = self._files.fd(extent.file), 0
        while done < len(target):
            got = os.preadv(fd, [target[done:]], extent.at + done)
            if not got:
                raise StateError(
                    "a spill file is cut short", file=self._spill.data(extent.file),
                    remedy="start anew with --overwrite",
                )  # fmt: skip
            done += got

    def close(self) -> None:
        """Give the descriptors back."""
        self._files.close()
