"""Samples of shards by their stored number, from manifest and index alone: no shard is walked.

What is wanted at one time is sorted by place and read in runs: neighbours, and what lies no further apart than GAP,
come with one system call. Nothing but the wanted samples is held, apart from such gaps and headers. Steps in Python are
a few a sample and none a shard beyond looking its rows up: a full shuffle asks every shard for one sample.
"""

from __future__ import annotations

import os
import resource
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt
import xxhash

from ..base.errors import DataError, UsageError
from ..layout.manifest import Manifest, Receipt
from .crc import masked, masked_of_lengths, masks
from .indexfile import ShardIndex
from .mapping import mapped

I64 = npt.NDArray[np.int64]

# A read call costs about as much as copying this many bytes that nobody wants.
GAP = 1 << 14
# No single read is larger, so that no one allocation is.
MOST = 32 << 20
# Shards that are open at a time, a descriptor each: half of what the process may have, since it has other files.
OPEN = max(64, min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
# Index files that are mapped at a time: a quarter of the maps that Linux allows a process.
MAPPED = 1 << 14
# Runs that are looked at to learn whether a window is in memory.
PROBES = 8
CHECKS = ("crc", "digest")
_CHECKSUM = struct.Struct("<I").unpack_from
_LENGTH = struct.Struct("<Q").unpack_from
_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)


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
    """What is known of one shard: columns of its index, mapped. Its descriptor is the reader's."""

    def __init__(self, stored: Stored, receipt: Receipt, check_index: bool) -> None:
        self.receipt, self.path = receipt, stored.file_of(receipt.name)
        self.index_path = stored.file_of(receipt.index)
        with ShardIndex(self.index_path, receipt.name, check=check_index) as index:
            self.exts = tuple(e.decode("utf-8", "surrogateescape") for e in index.exts)
            data = mapped(self.index_path)
            self.columns = {
                name: np.frombuffer(data, dtype, count, offset)
                for name, (dtype, count, offset) in index.places.items()
            }
        self._check(stored.manifest.format)

    def _check(self, format: str) -> None:
        wanted = ["offset", "length"] + (["key", "key_end", "part_end", "part_offset", "part_size"] * (format == "tar"))
        for name in wanted:
            if name not in self.columns:
                raise self.damage(f"it has no column {name!r}")
        offset, length = self.columns["offset"], self.columns["length"]
        if len(offset) != self.receipt.samples or len(length) != self.receipt.samples:
            raise self.damage(f"it has {len(offset):,} samples, the manifest says {self.receipt.samples:,}")
        if len(offset) and int(offset[-1]) + int(length[-1]) > self.receipt.bytes:
            raise self.damage("it names bytes that lie outside the shard")

    def open(self) -> int:
        """A descriptor of the shard; DataError unless it has the size that the manifest says."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise DataError("a file of the manifest is missing", file=self.path, why=str(error.strerror),
                            remedy="restore it, or make the manifest again") from None  # fmt: skip
        size = os.fstat(fd).st_size
        if size != self.receipt.bytes:
            os.close(fd)
            raise DataError(
                "a shard is cut short or is another file than its manifest describes", file=self.path,
                why=f"it has {size:,} bytes, the manifest says {self.receipt.bytes:,}",
            )  # fmt: skip
        return fd

    def check_digest(self, fd: int) -> None:
        """Reads it whole; DataError for other bytes than the manifest's."""
        state = xxhash.xxh3_128()
        for at in range(0, self.receipt.bytes, 1 << 20):
            state.update(os.pread(fd, 1 << 20, at))
        found = f"xxh3-128:{state.hexdigest()}"
        if found != self.receipt.digest:
            raise DataError(
                "a shard is damaged", file=self.path,
                why=f'"digest" of the manifest is {self.receipt.digest}, the file has {found}',
                remedy="restore the shard; `shardtool verify` says where it is damaged",
            )  # fmt: skip

    def damage(self, why: str) -> DataError:
        """The error for an index that is whole but wrong."""
        return DataError(
            "the index of a shard does not belong to it", file=self.index_path, why=why,
            remedy="write it again: shardtool manifest SHARDS... -o manifest.json",
        )  # fmt: skip

    def rest(self, fd: int, data: bytes, size: int, offset: int) -> bytes:
        """`data` and what a short read left of [offset, offset + size); DataError when the shard ends before."""
        while len(data) < size:
            more = os.pread(fd, size - len(data), offset + len(data))
            if not more:
                raise DataError("a shard is cut short", file=self.path, offset=offset + len(data),
                                remedy="restore the shard, or make the manifest again")  # fmt: skip
            data += more
        return data

    def keys(self, rows: I64) -> list[str]:
        """Keys of rows int64[k]; bytes that are no UTF-8 as surrogates."""
        first, end = _stretches(self.columns["key_end"], rows)
        raw = self.columns["key"].data
        return [str(raw[a:b], "utf-8", "surrogateescape") for a, b in zip(first.tolist(), end.tolist(), strict=True)]


def _stretches(ends: npt.NDArray[Any], rows: I64) -> tuple[I64, I64]:
    """(first, end) int64[k] of rows of a column of running ends."""
    end: I64 = ends[rows].astype(np.int64)
    first: I64 = np.where(rows > 0, ends[rows - 1], 0).astype(np.int64)
    return first, end


@dataclass(frozen=True)
class _Wanted:
    """Spans to read, m of them, in no order: `shard` numbers, `begin` and `size` int64[m]."""

    shard: I64
    begin: I64
    size: I64


class SampleReader:
    """Reads samples by number.

    fields  names of what is wanted; None: everything. Other parts of a tar are not read
    check   None; 'crc': both checksums of every record (TFRecord only; docs/benchmarks.md has the cost); 'digest':
            every shard is read whole once, by every process that opens it, and compared with the manifest

    Raises UsageError for a field that no sample has or a check that the format has not.
    """

    def __init__(self, stored: Stored, fields: Sequence[str] | None = None, check: str | None = None) -> None:
        self.stored, self.check = stored, check
        self.samples = stored.manifest.samples
        sizes, samples = stored.manifest.shard_sizes, stored.manifest.shard_samples
        self._ends = np.cumsum(samples)
        self._first = self._ends - samples
        self._bytes = sizes
        # Where every shard would begin were they one file.
        self._base = np.cumsum(sizes) - sizes
        self._tar = stored.manifest.format == "tar"
        self._fields = None if fields is None else frozenset(fields)
        self._shards: OrderedDict[int, _Shard] = OrderedDict()
        self._fds: OrderedDict[int, int] = OrderedDict()
        self._mapped: set[int] = set()
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
        fresh: dict[str, Any] = {"_shards": OrderedDict(), "_fds": OrderedDict(), "_mapped": set(), "_verified": set()}
        return {**self.__dict__, **fresh}

    def close(self) -> None:
        """Give descriptors back."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _shard(self, number: int) -> _Shard:
        found = self._shards.get(number)
        if found is not None:
            self._shards.move_to_end(number)
            return found
        if len(self._shards) >= MAPPED:
            self._shards.popitem(last=False)
        # A checksum is checked once in a process, not each time that a file is opened again.
        found = _Shard(self.stored, self.stored.manifest.shards[number], number not in self._mapped)
        self._shards[number] = found
        self._mapped.add(number)
        return found

    def _fd(self, number: int) -> int:
        fd = self._fds.get(number)
        if fd is not None:
            self._fds.move_to_end(number)
            return fd
        if len(self._fds) >= OPEN:
            os.close(self._fds.popitem(last=False)[1])
        shard = self._shard(number)
        fd = self._fds[number] = shard.open()
        if self.check == "digest" and number not in self._verified:
            shard.check_digest(fd)
            self._verified.add(number)
        return fd

    def fetch(self, ids: I64) -> Fetched:
        """Reads samples `ids` int64[k], in any order, twice where asked twice; raises DataError for damage."""
        if not len(ids):
            return Fetched([], 0, self._tar)
        if not 0 <= int(ids.min()) <= int(ids.max()) < self.samples:
            raise IndexError(f"samples are 0..{self.samples - 1}")
        order = np.argsort(ids, kind="stable")
        ranked = ids[order]
        number = np.searchsorted(self._ends, ranked, side="right").astype(np.int64)
        rows = ranked - self._first[number]
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(ids)]
        groups = [(self._shard(int(number[a])), a, b) for a, b in pairwise(cuts)]
        place = np.empty_like(order)  # of every one of ids among the ranked
        place[order] = np.arange(len(ids))
        return (self._parts if self._tar else self._records)(groups, number, rows, place)

    def _records(self, groups: list[tuple[_Shard, int, int]], number: I64, rows: I64, place: I64) -> Fetched:
        """Whole frames; the length that stands in each must be the index's."""
        begin, size = np.empty_like(rows), np.empty_like(rows)
        for shard, a, b in groups:
            begin[a:b] = shard.columns["offset"][rows[a:b]]
            size[a:b] = shard.columns["length"][rows[a:b]]
        wanted = _Wanted(number, begin, size)
        data, run, at, held = self._read(wanted)
        frames = [data[r] for r in run[place].tolist()]
        at, size = at[place], size[place]
        told = [_LENGTH(frame, a)[0] for frame, a in zip(frames, at.tolist(), strict=True)]
        if told != (size - 16).tolist() or (self.check == "crc" and not _checksums_right(frames, at, size)):
            self._check_records(wanted, place, frames, at, told)
        spans = zip(frames, (at + 12).tolist(), (at + size - 4).tolist(), strict=True)
        return Fetched(list(spans), held, False)

    def _check_records(self, wanted: _Wanted, place: I64, frames: list[bytes], at: I64, told: list[int]) -> None:
        """One by one; raises DataError for the first that is wrong, if any is."""
        for i, (frame, a, length, p) in enumerate(zip(frames, at.tolist(), told, place.tolist(), strict=True)):
            size, offset = int(wanted.size[p]), int(wanted.begin[p])
            path = self._shard(int(wanted.shard[p])).path
            if length != size - 16:
                raise DataError(
                    "a record is not where the index says", file=path, offset=offset,
                    why=f"its length should be {size - 16:,} and is {told[i]:,}",
                    remedy="restore the shard, or make the manifest again; `shardtool verify` says what is damaged",
                )  # fmt: skip
            if self.check == "crc":
                _check_crc(path, frame, a, size, offset)

    def _parts(self, groups: list[tuple[_Shard, int, int]], number: I64, rows: I64, place: I64) -> Fetched:
        """Payloads of tar members."""
        first, end = np.empty_like(rows), np.empty_like(rows)
        for shard, a, b in groups:
            first[a:b], end[a:b] = _stretches(shard.columns["part_end"], rows[a:b])
        count = end - first
        bound = np.append(0, np.cumsum(count))  # parts of ranked sample i: [bound[i], bound[i + 1])
        part = np.arange(int(bound[-1]), dtype=np.int64) + np.repeat(first - bound[:-1], count)
        wanted = _Wanted(np.repeat(number, count), np.empty_like(part), np.empty_like(part))
        names: list[str] = []
        for shard, a, b in groups:
            lo, hi = int(bound[a]), int(bound[b])
            mine = part[lo:hi]
            wanted.begin[lo:hi] = shard.columns["part_offset"][mine]
            wanted.size[lo:hi] = shard.columns["part_size"][mine]
            code = shard.columns["part_ext"][mine].tolist() if "part_ext" in shard.columns else [0] * (hi - lo)
            names += map(shard.exts.__getitem__, code)
        if self._fields is not None:
            keep = np.array([name in self._fields for name in names], bool)
            names = [name for name in names if name in self._fields]
            bound = np.append(0, np.cumsum(keep))[bound]
            wanted = _Wanted(wanted.shard[keep], wanted.begin[keep], wanted.size[keep])
        keys: list[str | None] = [None] * len(rows)
        if self._fields is None or "__key__" in self._fields:
            keys = [key for shard, a, b in groups for key in shard.keys(rows[a:b])]
        data, run, at, held = self._read(wanted)
        runs = [data[r] for r in run.tolist()]
        spans = list(zip(names, runs, at.tolist(), (at + wanted.size).tolist(), strict=True))
        cut = bound.tolist()
        return Fetched([(keys[p], spans[cut[p] : cut[p + 1]]) for p in place.tolist()], held, True)

    def _read(self, wanted: _Wanted) -> tuple[list[bytes], I64, I64, int]:
        """(runs that were read, run of every span, where in it, bytes of all runs)"""
        shard, begin, size = wanted.shard, wanted.begin, wanted.size
        if not len(begin):
            return [], begin, begin, 0
        wrong = np.flatnonzero((begin < 0) | (begin + size > self._bytes[shard]))
        if len(wrong):
            raise self._odd_span(self._shard(int(shard[wrong[0]])), int(begin[wrong[0]]))
        # As if all shards were one file: one sort, and runs that end where a shard does.
        virtual = self._base[shard] + begin
        order = np.argsort(virtual, kind="stable")
        lo, owner = virtual[order], shard[order]
        hi = np.maximum.accumulate(lo + size[order])
        breaks = (lo[1:] - hi[:-1] > GAP) | (owner[1:] != owner[:-1])
        chunk = lo[1:] // MOST != lo[:-1] // MOST
        # A run may be cut at MOST only between spans, not within one that overlaps the next (a sample asked twice).
        starts = np.flatnonzero(np.concatenate([[True], breaks | (chunk & (lo[1:] >= hi[:-1]))]))
        ends = np.append(starts[1:], len(lo))
        origin = begin[order[starts]]
        length = hi[ends - 1] - lo[starts]
        data = self._read_runs(owner[starts].tolist(), origin.tolist(), length.tolist())
        run_of = np.repeat(np.arange(len(starts)), ends - starts)
        run, at = np.empty_like(order), np.empty_like(order)
        run[order], at[order] = run_of, lo - lo[starts][run_of]
        return data, run, at, int(length.sum())

    def _read_runs(self, owner: list[int], origin: list[int], length: list[int]) -> list[bytes]:
        if len(owner) >= PROBES and not self._cached(owner, origin):
            for number, offset, size in zip(owner, origin, length, strict=True):
                os.posix_fadvise(self._fd(number), offset, size, os.POSIX_FADV_WILLNEED)
        data, pread, last, fd = [], os.pread, -1, -1
        for number, offset, size in zip(owner, origin, length, strict=True):
            if number != last:
                last, fd = number, self._fd(number)
            got = pread(fd, size, offset)
            data.append(got if len(got) == size else self._shard(number).rest(fd, got, size, offset))
        self.reads += len(data)
        return data

    def _cached(self, owner: list[int], origin: list[int]) -> bool:
        """Whether a few of the runs lie in memory. Where they do not, all are asked for at once, so that the disk has
        many to do at a time; where they do, that would only cost."""
        one = bytearray(1)
        try:
            for i in range(0, len(owner), len(owner) // PROBES):
                os.preadv(self._fd(owner[i]), [one], origin[i], _NO_WAIT)
        except OSError:  # BlockingIOError: it would wait; others: this file system cannot tell
            return False
        return True

    @staticmethod
    def _odd_span(shard: _Shard, begin: int) -> DataError:
        if begin == -1:
            return DataError("a sparse member has its bytes in no one place", file=shard.path,
                             remedy="write the shards new with `shardtool repack`")  # fmt: skip
        return shard.damage("it names bytes that lie outside the shard")


def _checksums_right(frames: list[bytes], at: I64, size: I64) -> bool:
    """Whether both checksums of every record are right; frames int64[k] begin at `at` of their runs."""
    of_body, lo, hi = crc32c.crc32c, (at + 12).tolist(), (at + size - 4).tolist()
    body = [of_body(memoryview(frame)[a:b]) for frame, a, b in zip(frames, lo, hi, strict=True)]
    head = [_CHECKSUM(frame, a - 4)[0] for frame, a in zip(frames, lo, strict=True)]
    tail = [_CHECKSUM(frame, b)[0] for frame, b in zip(frames, hi, strict=True)]
    right: bool = masks(np.array(body, np.uint32)).tolist() == tail
    return right and masked_of_lengths((size - 16).astype(np.uint64)).tolist() == head


def _check_crc(path: bytes, data: bytes, a: int, whole: int, offset: int) -> None:
    view = memoryview(data)
    head = int.from_bytes(view[a + 8 : a + 12], "little")
    tail = int.from_bytes(view[a + whole - 4 : a + whole], "little")
    if masked(view[a : a + 8]) != head or masked(view[a + 12 : a + whole - 4]) != tail:
        raise DataError(
            "a record is damaged", file=path, offset=offset, why="its checksum is wrong",
            remedy="restore the shard; `shardtool verify` lists all damage",
        )  # fmt: skip


class Fetched:
    """Samples that were read: `take(a, b)` are those that were asked for at places a..b-1.

    held   bytes of the runs that lie in memory
    """

    def __init__(self, made: list[Any], held: int, tar: bool) -> None:
        self._made, self._tar = made, tar
        self.held = held

    def __len__(self) -> int:
        return len(self._made)

    def take(self, a: int, b: int) -> list[dict[str, Any]]:
        """Dicts of bytes, in stored order of their fields. What they need is copied; it may be called once a sample,
        since the runs are then let go."""
        made, self._made[a:b] = self._made[a:b], [None] * (b - a)
        if not self._tar:
            return [{"record": data[lo:hi]} for data, lo, hi in made]
        samples: list[dict[str, Any]] = []
        for key, parts in made:
            sample: dict[str, Any] = {} if key is None else {"__key__": key}
            for name, data, lo, hi in parts:
                sample[name] = data[lo:hi]
            samples.append(sample)
        return samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.take(i, i + 1)[0] for i in range(len(self._made)))
