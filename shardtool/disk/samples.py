"""Samples of shards by their stored number, from manifest and index alone: no shard is walked.

What is wanted at one time is sorted by place and read in runs: neighbours, and what lies no further apart than GAP,
come with one system call. Nothing but the wanted samples is held, apart from such gaps and headers.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ..base.errors import DataError, UsageError
from ..layout.manifest import Manifest, Receipt
from .crc import masked
from .indexfile import ShardIndex

I64 = npt.NDArray[np.int64]

# A read call costs about as much as copying this many bytes that nobody wants.
GAP = 1 << 14
# No single read is larger, so that no one allocation is.
MOST = 32 << 20
# Shards that are open at a time: one descriptor each, and the index mapped.
OPEN = 256
CHECKS = ("crc", "digest")


@dataclass(frozen=True)
class Stored:
    """A manifest and the folder that it describes."""

    manifest: Manifest
    path: str

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Stored:
        """A manifest.json, or the folder that holds one, with every shard and index there and of the size it says.

        Raises DataError naming file and field; for a newer schema too.
        """
        name = os.fspath(path)
        if os.path.isdir(name):
            name = os.path.join(name, "manifest.json")
        try:
            with open(name, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except FileNotFoundError:
            raise DataError(
                "there is no manifest", file=name,
                remedy="make one: shardtool repack SRC... -o OUT, or shardtool manifest SHARDS... -o manifest.json",
            ) from None  # fmt: skip
        manifest = Manifest.from_json(text, file=name)
        if not manifest.samples:
            raise DataError("the manifest has no samples", file=name, remedy="look at how it was made")
        if manifest.format not in ("tfrecord", "tar"):
            raise DataError(f"no loader for format {manifest.format!r}", file=name, why='its "format"')
        stored = cls(manifest, name)
        for receipt in manifest.shards:
            stored._check_there(receipt)
        return stored

    def file_of(self, name: str) -> bytes:
        """Path of a file that the manifest names."""
        return os.path.join(os.fsencode(os.path.dirname(self.path)), os.fsencode(name))

    def _check_there(self, receipt: Receipt) -> None:
        field = f"shards[{receipt.shard}]"
        try:
            size = os.stat(self.file_of(receipt.name)).st_size
            os.stat(self.file_of(receipt.index))
        except OSError as error:
            raise DataError(
                f"a file of the manifest is missing: {error.strerror}", file=error.filename,
                why=f"{field} of {self.path} names it", remedy="restore it, or make the manifest again",
            ) from None  # fmt: skip
        if size != receipt.bytes:
            raise DataError(
                "a shard has another size than its manifest says", file=self.file_of(receipt.name),
                why=f'"bytes" of {field} in {self.path} is {receipt.bytes:,}, the file has {size:,}',
                remedy="restore the shard, or make the manifest again",
            )  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """xxh3-128 over names, samples, bytes and digests of the shards: what stored numbers mean."""
        state = xxhash.xxh3_128()
        for r in self.manifest.shards:
            state.update(f"{r.name}\0{r.samples}\0{r.bytes}\0{r.digest}\n".encode("utf-8", "surrogateescape"))
        return state.hexdigest()


class _Shard:
    """One open shard: its descriptor and columns of its index, mapped."""

    def __init__(self, stored: Stored, receipt: Receipt, check: str | None) -> None:
        self.receipt, self.path = receipt, stored.file_of(receipt.name)
        self.index_path = stored.file_of(receipt.index)
        with ShardIndex(self.index_path, receipt.name) as index:
            self.exts = index.exts
            self.columns = _mapped(self.index_path, index.places)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._check(stored.manifest.format, check)
        except BaseException:
            os.close(self.fd)
            raise

    def _check(self, format: str, check: str | None) -> None:
        wanted = ["offset", "length"] + (["key_end", "part_end", "part_offset", "part_size"] * (format == "tar"))
        for name in wanted:
            if name not in self.columns:
                raise self._damage(f"it has no column {name!r}")
        offset, length = self.columns["offset"], self.columns["length"]
        if len(offset) != self.receipt.samples or len(length) != self.receipt.samples:
            raise self._damage(f"it has {len(offset):,} samples, the manifest says {self.receipt.samples:,}")
        size = os.fstat(self.fd).st_size
        if size != self.receipt.bytes or (len(offset) and int(offset[-1]) + int(length[-1]) > size):
            raise DataError(
                "a shard is cut short or is another file than its manifest describes", file=self.path,
                why=f"it has {size:,} bytes, the manifest says {self.receipt.bytes:,}",
            )  # fmt: skip
        if check == "digest":
            self._check_digest(size)

    def _check_digest(self, size: int) -> None:
        state = xxhash.xxh3_128()
        for at in range(0, size, 1 << 20):
            state.update(os.pread(self.fd, 1 << 20, at))
        found = f"xxh3-128:{state.hexdigest()}"
        if found != self.receipt.digest:
            raise DataError(
                "a shard is damaged", file=self.path,
                why=f'"digest" of the manifest is {self.receipt.digest}, the file has {found}',
                remedy="restore the shard; `shardtool verify` says where it is damaged",
            )  # fmt: skip

    def _damage(self, why: str) -> DataError:
        return DataError(
            "the index of a shard does not belong to it", file=self.index_path, why=why,
            remedy="write it again: shardtool manifest SHARDS... -o manifest.json",
        )  # fmt: skip

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size); DataError when the shard ends before."""
        data = os.pread(self.fd, size, offset)
        while len(data) < size:
            more = os.pread(self.fd, size - len(data), offset + len(data))
            if not more:
                raise DataError("a shard is cut short", file=self.path, offset=offset + len(data),
                                remedy="restore the shard, or make the manifest again")  # fmt: skip
            data += more
        return data

    def key(self, row: int) -> str:
        """The sample's key; bytes that are no UTF-8 as surrogates."""
        lo = int(self.columns["key_end"][row - 1]) if row else 0
        raw: bytes = self.columns["key"][lo : int(self.columns["key_end"][row])].tobytes()
        return raw.decode("utf-8", "surrogateescape")


def _mapped(path: bytes, places: dict[str, tuple[np.dtype[Any], int, int]]) -> dict[str, npt.NDArray[Any]]:
    """Read-only views of an index file's columns. The descriptor is not kept; the pages are shared by all workers."""
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {name: np.frombuffer(view, dtype, count, offset) for name, (dtype, count, offset) in places.items()}


class SampleReader:
    """Reads samples by number.

    fields  names of what is wanted; None: everything. Other parts of a tar are not read
    check   None; 'crc': the checksum of every record (TFRecord only; measured: 0.05 ms a MiB, 0.4 µs a record of 1
            KiB); 'digest': every shard is read whole once, by every process that opens it, and compared with the
            manifest

    Raises UsageError for a field that no sample has or a check that the format has not.
    """

    def __init__(self, stored: Stored, fields: Sequence[str] | None = None, check: str | None = None) -> None:
        self.stored, self.check = stored, check
        self.samples = stored.manifest.samples
        self._ends = np.cumsum(stored.manifest.shard_samples)
        self._tar = stored.manifest.format == "tar"
        self._fields = None if fields is None else frozenset(fields)
        self._open: OrderedDict[int, _Shard] = OrderedDict()
        self._verified: set[int] = set()
        self.reads = 0
        if check is not None and check not in CHECKS:
            raise UsageError(f"check {check!r} is none of {', '.join(CHECKS)}")
        if check == "crc" and self._tar:
            raise UsageError("a tar holds no checksum of its payload", remedy="check='digest', or none")
        self._check_fields()

    def _check_fields(self) -> None:
        if self._fields is None:
            return
        known = self.stored.manifest.fields
        have = {"record"} if not self._tar else set(map(str, known))
        odd = sorted(self._fields - have - {"__key__", "__id__", "__seed__"})
        if odd and (have or not self._tar):
            raise UsageError(
                f"no sample has a field {odd[0]!r}", why=f"the manifest knows {', '.join(sorted(have))}",
                remedy="see `shardtool inspect`",
            )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict(), "_verified": set()}

    def close(self) -> None:
        """Give descriptors back."""
        while self._open:
            os.close(self._open.popitem()[1].fd)

    def _shard(self, number: int) -> _Shard:
        found = self._open.get(number)
        if found is not None:
            self._open.move_to_end(number)
            return found
        if len(self._open) >= OPEN:
            os.close(self._open.popitem(last=False)[1].fd)
        # A digest is checked once in a process, not each time that a shard is opened again.
        check = None if number in self._verified else self.check
        found = self._open[number] = _Shard(self.stored, self.stored.manifest.shards[number], check)
        self._verified.add(number)
        return found

    def fetch(self, ids: I64) -> Fetched:
        """Reads samples `ids` int64[k], in any order, twice where asked twice; raises DataError for damage."""
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.samples:
            raise IndexError(f"samples are 0..{self.samples - 1}")
        found = Fetched(self, len(ids))
        order = np.argsort(ids, kind="stable")
        ranked = ids[order]
        shard_of = np.searchsorted(self._ends, ranked, side="right")
        bounds = np.flatnonzero(np.diff(shard_of)) + 1
        for places in np.split(np.arange(len(ids)), bounds) if len(ids) else []:
            number = int(shard_of[places[0]])
            first = int(self._ends[number]) - self.stored.manifest.shards[number].samples
            self._fetch_shard(self._shard(number), ranked[places] - first, order[places], found)
        return found

    def _fetch_shard(self, shard: _Shard, rows: I64, places: I64, found: Fetched) -> None:
        """rows int64[k] ascending."""
        column = shard.columns
        if not self._tar:
            begin, size = column["offset"][rows].astype(np.int64), column["length"][rows].astype(np.int64)
            run, at = self._read_runs(shard, begin, size, found)
            found.put_records(shard, places.tolist(), run, at, size.tolist(), begin.tolist(), self.check == "crc")
            return
        last = column["part_end"][rows].astype(np.int64)
        first = np.where(rows > 0, column["part_end"][rows - 1], 0).astype(np.int64)
        count = last - first
        part = np.arange(int(count.sum()), dtype=np.int64)
        part += np.repeat(first - (np.cumsum(count) - count), count)  # numbers of all parts of all rows
        owner = np.repeat(np.arange(len(rows), dtype=np.int64), count)
        ext = column["part_ext"][part].astype(np.int64) if "part_ext" in column else np.zeros(len(part), np.int64)
        names = [e.decode("utf-8", "surrogateescape") for e in shard.exts]
        if self._fields is not None:
            wanted = np.array([name in self._fields for name in names], bool)[ext]
            part, owner, ext = part[wanted], owner[wanted], ext[wanted]
        begin, size = column["part_offset"][part].astype(np.int64), column["part_size"][part].astype(np.int64)
        run, at = self._read_runs(shard, begin, size, found)
        keyed = self._fields is None or "__key__" in self._fields
        found.put_parts(
            places.tolist(), [shard.key(row) for row in rows.tolist()] if keyed else None, owner.tolist(),
            [names[e] for e in ext.tolist()], run, at, size.tolist(),
        )  # fmt: skip

    def _read_runs(self, shard: _Shard, begin: I64, size: I64, found: Fetched) -> tuple[list[bytes], list[int]]:
        """Reads spans in order of place: (the run that holds each, where in it)."""
        if not len(begin):
            return [], []
        order = np.argsort(begin, kind="stable")
        lo, hi = begin[order], np.maximum.accumulate(begin[order] + size[order])
        if int(lo[0]) == -1:
            raise DataError("a sparse member has its bytes in no one place", file=shard.path,
                            remedy="write the shards new with `shardtool repack`")  # fmt: skip
        if int(lo[0]) < 0 or int(hi[-1]) > shard.receipt.bytes:
            raise shard._damage("it names bytes that lie outside the shard")
        breaks = lo[1:] - hi[:-1] > GAP
        chunk = (lo[1:] - lo[0]) // MOST != (lo[:-1] - lo[0]) // MOST
        # A run may be cut at MOST only between spans, not within one that overlaps the next (a sample asked twice).
        starts = np.flatnonzero(np.concatenate([[True], breaks | (chunk & (lo[1:] >= hi[:-1]))]))
        ends = np.append(starts[1:], len(lo))
        runs: list[bytes] = [b""] * len(lo)
        at = np.empty(len(lo), np.int64)
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
            origin = int(lo[a])
            data = shard.read(origin, int(hi[b - 1]) - origin)
            self.reads += 1
            found.held += len(data)
            for place in order[a:b].tolist():
                runs[place] = data
            at[order[a:b]] = lo[a:b] - origin
        return runs, at.tolist()


class Fetched:
    """Samples that were read: `take(i)` is the i-th of those asked for.

    held   bytes of the runs that lie in memory
    """

    def __init__(self, reader: SampleReader, count: int) -> None:
        self._reader = reader
        self._made: list[Any] = [None] * count
        self.held = 0

    def put_records(
        self, shard: _Shard, places: list[int], run: list[bytes], at: list[int], size: list[int], begin: list[int],
        check: bool,
    ) -> None:  # fmt: skip
        """Spans of whole TFRecord frames; the length that stands in each must be the index's."""
        for place, data, a, whole, offset in zip(places, run, at, size, begin, strict=True):
            if int.from_bytes(data[a : a + 8], "little") != whole - 16:
                raise DataError(
                    "a record is not where the index says", file=shard.path, offset=offset,
                    why=f"its length should be {whole - 16:,} and is {int.from_bytes(data[a : a + 8], 'little'):,}",
                    remedy="restore the shard, or make the manifest again; `shardtool verify` says what is damaged",
                )  # fmt: skip
            if check:
                self._check_crc(shard, data, a, whole, offset)
            self._made[place] = (data, a + 12, a + whole - 4)

    @staticmethod
    def _check_crc(shard: _Shard, data: bytes, a: int, whole: int, offset: int) -> None:
        view = memoryview(data)
        head = int.from_bytes(view[a + 8 : a + 12], "little")
        tail = int.from_bytes(view[a + whole - 4 : a + whole], "little")
        if masked(view[a : a + 8]) != head or masked(view[a + 12 : a + whole - 4]) != tail:
            raise DataError(
                "a record is damaged", file=shard.path, offset=offset, why="its checksum is wrong",
                remedy="restore the shard; `shardtool verify` lists all damage",
            )  # fmt: skip

    def put_parts(
        self, places: list[int], keys: list[str] | None, owner: list[int], names: list[str], run: list[bytes],
        at: list[int], size: list[int],
    ) -> None:  # fmt: skip
        """Payloads of tar members, of sample `places[owner]`."""
        for i, place in enumerate(places):
            self._made[place] = (None if keys is None else keys[i], [])
        for i, name, data, a, length in zip(owner, names, run, at, size, strict=True):
            self._made[places[i]][1].append((name, data, a, a + length))

    def take(self, i: int) -> dict[str, Any]:
        """The i-th sample, a dict of bytes, in stored order of its fields. What it needs is copied; it may be called
        once a sample, since the run is then let go."""
        made, self._made[i] = self._made[i], None
        if not self._reader._tar:
            data, lo, hi = made
            return {"record": data[lo:hi]}
        key, parts = made
        sample: dict[str, Any] = {} if key is None else {"__key__": key}
        for name, data, lo, hi in parts:
            sample[name] = data[lo:hi]
        return sample

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.take(i) for i in range(len(self._made)))

