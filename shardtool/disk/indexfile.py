"""The index of one shard: columns in one file that checks itself. docs/manifest.md has the table.

    0    8   magic "SHTLIDX1"
    8    8   length h of the header (little-endian)
    16   h   header, ASCII JSON: {"columns": [[name, dtype, count, offset], ...], "exts": [...], "shard": name}
    ...      columns, little-endian, each at a multiple of 64
    -16  16  xxh3-128 of everything before
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ..base.errors import DataError
from ..base.ragged import Ragged
from ..layout.manifest import decode_name, encode_name
from .files import create, named, naming, read_at, rename, sync, write_all

MAGIC = b"SHTLIDX1"
ALIGN = 64
TRAILER = 16
STEP = 1 << 20


class IndexWriter:
    """Writes columns whose sizes are known beforehand, a window at a time, in any order.

    columns  name -> (dtype, count)
    """

    def __init__(
        self, temporary: bytes, shard: str, columns: Mapping[str, tuple[str, int]], exts: Sequence[bytes]
    ) -> None:
        self._temporary = temporary
        self._dtype = {name: np.dtype(dtype) for name, (dtype, _) in columns.items()}
        # The offsets stand in the header and the header's length decides them: reserve by the largest numbers.
        facts: dict[str, Any] = {"shard": shard, "exts": [encode_name(e) for e in exts]}
        rows: list[list[Any]] = [[name, self._dtype[name].str, count, 1 << 62] for name, (_, count) in columns.items()]
        reserved = len(json.dumps({**facts, "columns": rows}, ensure_ascii=True, sort_keys=True))
        at = _align(16 + reserved)
        self._offset = {}
        for row in rows:
            self._offset[row[0]] = row[3] = at
            at = _align(at + row[2] * self._dtype[row[0]].itemsize)
        text = json.dumps({**facts, "columns": rows}, ensure_ascii=True, sort_keys=True).ljust(reserved)
        self._end = at
        self._fd = create(temporary)
        head = MAGIC + reserved.to_bytes(8, "little") + text.encode("ascii")
        write_all(self._fd, head, 0)
        with naming(temporary):
            os.ftruncate(self._fd, self._end)

    def put(self, name: str, first: int, values: npt.NDArray[Any]) -> None:
        """values are elements first, first+1, ... of the column."""
        dtype = self._dtype[name]
        data = np.ascontiguousarray(values, dtype)
        write_all(self._fd, data.view(np.uint8).data, self._offset[name] + first * dtype.itemsize)

    def end(self) -> None:
        """Add the trailer: all columns are there."""
        digest = _digest(self._fd, self._end)
        write_all(self._fd, digest, self._end)

    def sync(self) -> None:
        """Make it durable, close."""
        sync(self._fd)
        self.close()

    def publish(self, final: bytes) -> None:
        """End, sync, rename."""
        self.end()
        self.sync()
        rename((self._temporary, final))

    def close(self) -> None:
        """Give the descriptor back; an unpublished file stays under its temporary name."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ShardIndex:
    """An index file opened for reading; columns are read when asked for.

    Raises DataError naming file and field when it is cut short, altered or of another shard.
    """

    def __init__(self, path: bytes, shard: str, *, check: bool = True) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._open(shard, check)
        except BaseException:
            self.close()
            raise

    def _open(self, shard: str, check: bool) -> None:
        size = os.fstat(self._fd).st_size
        head = read_at(self._fd, 16, 0)
        length = int.from_bytes(head[8:16], "little")
        if head[:8] != MAGIC or 16 + length + TRAILER > size:
            raise self._damage("it does not begin as an index file, or is cut short", 0)
        if check and _digest(self._fd, size - TRAILER) != read_at(self._fd, TRAILER, size - TRAILER):
            raise self._damage("its checksum is wrong", size - TRAILER)
        try:
            facts = json.loads(read_at(self._fd, length, 16))
            self.exts = tuple(decode_name(e) for e in facts["exts"])
            self._columns = {
                str(name): (np.dtype(dtype), int(count), int(offset))
                for name, dtype, count, offset in facts["columns"]
            }
            named = facts["shard"]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, SyntaxError) as error:
            # numpy evaluates some names of types as Python
            raise self._damage(f"its header cannot be read: {error}", 16) from None
        for name, (dtype, count, offset) in self._columns.items():
            if dtype.kind not in "iu":
                raise self._damage(f"column {name!r} is of type {dtype.str!r}: no whole numbers", 16)
            if count < 0 or offset < 16 + length or offset + count * dtype.itemsize > size - TRAILER:
                raise self._damage(f"column {name!r} lies outside the file", offset)
        if named != shard:
            raise self._damage(f"it is the index of {named!r}, not of {shard!r}", 16)

    def _damage(self, why: str, offset: int) -> DataError:
        return DataError(
            "the index of a shard is damaged", file=self._path, offset=offset, why=why,
            remedy="write it again: shardtool manifest SHARDS... -o manifest.json",
        )  # fmt: skip

    @property
    def columns(self) -> dict[str, tuple[str, int]]:
        """name -> (dtype, count)"""
        return {name: (dtype.str, count) for name, (dtype, count, _) in self._columns.items()}

    @property
    def places(self) -> dict[str, tuple[np.dtype[Any], int, int]]:
        """name -> (dtype, count, byte offset in the file), checked to lie inside it: for readers that map the file."""
        return dict(self._columns)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def column(self, name: str) -> npt.NDArray[Any]:
        """A whole column; DataError when the index has none of that name."""
        if name not in self._columns:
            raise self._damage(f"it has no column {name!r}", 16)
        dtype, count, offset = self._columns[name]
        data = bytearray(count * dtype.itemsize)
        view, done = memoryview(data), 0
        while done < len(view):
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                raise named(error, self._path) from None
            if not got:
                raise self._damage(f"column {name!r} is cut short", offset + done)
            done += got
        return np.frombuffer(data, dtype)

    def keys(self) -> Ragged | None:
        """The samples' keys, or None for samples without (TFRecord)."""
        if "key_end" not in self:
            return None
        end = self.column("key_end").astype(np.int64)
        return Ragged(self.column("key"), np.concatenate([np.zeros(1, np.int64), end]))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> ShardIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _align(at: int) -> int:
    return -(-at // ALIGN) * ALIGN


def _digest(fd: int, size: int) -> bytes:
    state = xxhash.xxh3_128()
    for lo in range(0, size, STEP):
        state.update(read_at(fd, min(STEP, size - lo), lo))
    return state.digest()
