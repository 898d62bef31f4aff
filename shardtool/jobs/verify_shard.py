"""One shard held against its receipt, its index and other people's readers. Runs in a worker."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from ..base.errors import DataError, printable
from ..base.keyhash import hash128
from ..base.ragged import Ragged
from ..disk.digests import XXH3
from ..disk.files import absent, naming
from ..disk.formats import scan_file
from ..disk.formats.tar.names import strip_dot_slash
from ..disk.formats.tfrecord import FRAME
from ..disk.indexfile import ShardIndex
from ..disk.payloads import sample_digests
from ..disk.readers import READERS
from ..disk.scanned import Scanned
from ..disk.slim import slim
from ..disk.sources import Input
from ..layout.checks import first_descent, first_outside, sort_keys_of
from ..layout.frames import pad512
from ..layout.index import I64
from ..layout.manifest import Manifest, Receipt
from ..layout.multiset import U8, U64, multiset_sum, sample_digest
from ..layout.order import SHUFFLE
from ..layout.rules import Rules
from .assemble import assemble
from .summary import field_sets, fields_of

STEP = 4 << 20
# Findings that one shard reports; more are counted.
MOST = 20


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    file    relative to the folder of the manifest, or as it was named
    what    one sentence; why: the reason behind it, or what was compared
    offset  byte in that file, where known
    member  member of a tar, key, or number of a sample
    """

    file: str
    what: str
    offset: int | None = None
    member: str | None = None
    why: str | None = None

    @classmethod
    def of(cls, error: DataError, file: str) -> Finding:
        """From the error of a scan."""
        member = None if error.member is None else printable(error.member)
        return cls(file, error.what, error.offset, member, error.why)

    def __str__(self) -> str:
        where = self.file
        if self.offset is not None:
            where += f", byte offset {self.offset}"
        if self.member is not None:
            where += f", {self.member}"
        return f"{where}: {self.what}" + (f" ({self.why})" if self.why else "")


@dataclass
class FindingList:
    """The first ones, and how many in all."""

    items: list[Finding] = field(default_factory=list)
    total: int = 0
    most: int = MOST

    def add(
        self, file: str, what: str, *, offset: int | None = None, member: str | None = None, why: str | None = None
    ) -> None:
        """One more."""
        self.put(Finding(file, what, offset, member, why))

    def put(self, finding: Finding) -> None:
        """One more, made already."""
        self.total += 1
        if len(self.items) < self.most:
            self.items.append(finding)

    def take(self, other: FindingList) -> None:
        """All of another."""
        self.total += other.total
        self.items.extend(other.items[: self.most - len(self.items)])


@dataclass
class Checked:
    """What a worker found out about one shard; None where it could not.

    ends         sort keys of the first and the last sample (order splitmix64-sort/1)
    key_hashes   of every key (base/keyhash.py), uint64[k, 2]
    digest_sum   sum of the sample digests modulo 2^256, when asked for
    labels       code + 1 -> samples, int64[classes + 1]
    readers      name -> (samples, samples that differ)
    """

    findings: FindingList = field(default_factory=FindingList)
    notes: list[str] = field(default_factory=list)
    samples: int = 0
    bytes: int = 0
    ends: tuple[int, int] | None = None
    key_hashes: U64 | None = None
    digest_sum: int | None = None
    fields: dict[str, dict[str, int]] | None = None
    field_sets: dict[str, int] | None = None
    labels: I64 | None = None
    readers: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """What all shards have in common. position: int64[N+1], output position of each shard's first sample."""

    folder: bytes
    manifest: Manifest
    rules: Rules
    position: I64
    readers: tuple[str, ...]
    digest_sum: bool

    def check(self, number: int) -> Checked:
        """Everything about shard `number`."""
        return _Shard(self, self.manifest.shards[number]).run()


class _Shard:
    def __init__(self, task: Task, receipt: Receipt) -> None:
        self.task, self.receipt = task, receipt
        self.path = os.path.join(task.folder, os.fsencode(receipt.name))
        self.out = Checked()
        self.findings = self.out.findings

    def run(self) -> Checked:
        if not self.receipt.samples:
            self.findings.add(self.receipt.name, "the shard is empty", why="a reader may wait for its first sample")
        try:
            found = os.stat(self.path)
            if not stat.S_ISREG(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a file")
        except OSError as error:
            if not absent(error):
                raise
            self.findings.add(self.receipt.name, "the shard is missing")
            self._index(None)
            return self.out
        self.out.bytes = size = found.st_size
        if size != self.receipt.bytes:
            self.findings.add(
                self.receipt.name, f"the shard has {size:,} bytes, the manifest says {self.receipt.bytes:,}",
                offset=min(size, self.receipt.bytes),
            )  # fmt: skip
        self._digests()
        scanned = self._scan()
        self._index(scanned)
        if scanned is not None:
            self._samples(scanned)
        return self.out

    # -- the file ---------------------------------------------------------------------------------------------

    def _digests(self) -> None:
        states: dict[str, Any] = {XXH3: xxhash.xxh3_128()}
        wrong = []
        for name in self.receipt.digests:
            try:
                states[name] = hashlib.new(name, usedforsecurity=False)
            except ValueError:
                wrong.append(name)
        with open(self.path, "rb", buffering=0) as file, naming(self.path):
            buffer = memoryview(bytearray(STEP))
            while got := file.readinto(buffer):
                for state in states.values():
                    state.update(buffer[:got])
        stored = {name: f"{name}:{digest}" for name, digest in self.receipt.digests.items()}
        stored[XXH3] = self.receipt.digest
        for name, state in states.items():
            found = f"{name}:{state.hexdigest()}"
            if found != stored[name]:
                self.findings.add(
                    self.receipt.name, f"the {name} digest of the shard is wrong",
                    why=f"it is {found}, the manifest says {stored[name]}",
                )  # fmt: skip
        for name in wrong:
            self.findings.add(
                "manifest.json", f"{name!r} is no digest that this Python knows", member=self.receipt.name
            )

    def _scan(self) -> Scanned | None:
        name = os.fsencode(self.receipt.name)
        try:
            scanned = scan_file(self.task.manifest.format, self.path, name, self.task.rules, check_payload=True)
        except DataError as error:
            self.findings.put(Finding.of(error, self.receipt.name))
            return None
        self.out.samples = scanned.samples
        if scanned.samples != self.receipt.samples:
            self.findings.add(
                self.receipt.name,
                f"the shard has {scanned.samples:,} samples, the manifest says {self.receipt.samples:,}",
            )
        self.out.notes.extend([*scanned.findings.warnings, *scanned.findings.sentences()])
        return scanned

    # -- the samples ------------------------------------------------------------------------------------------

    def _samples(self, scanned: Scanned) -> None:
        name = os.fsencode(self.receipt.name)
        file = Input(self.path, name, self.task.manifest.format, self.out.bytes, 0, 0)
        index = assemble([file], [slim(scanned)], Rules())
        self.out.fields, self.out.field_sets = fields_of(index), field_sets(index)
        if scanned.keys is not None:
            self.out.key_hashes = hash128(scanned.keys)
        if self.task.digest_sum:
            self.out.digest_sum = multiset_sum(sample_digests(self.path, name, scanned))
        for reader in self.task.readers:
            self.out.readers[reader] = check_reader(reader, self.path, self.receipt.name, scanned, self.findings)

    # -- the index --------------------------------------------------------------------------------------------

    def _index(self, scanned: Scanned | None) -> None:
        path = os.path.join(self.task.folder, os.fsencode(self.receipt.index))
        try:
            with ShardIndex(path, self.receipt.name) as index:
                self._columns(index, scanned)
        except OSError as error:
            if not absent(error):
                raise
            self.findings.add(self.receipt.index, "the index of the shard is missing", member=self.receipt.name)
        except DataError as error:
            self.findings.put(Finding.of(error, self.receipt.index))

    def _columns(self, index: ShardIndex, scanned: Scanned | None) -> None:
        dtypes = {name: dtype for name, (dtype, _) in index.columns.items()}
        if dtypes != dict(self.task.manifest.index):
            self.findings.add(
                self.receipt.index, "the columns are not those of the manifest",
                why=f"they are {dtypes}, the manifest says {dict(self.task.manifest.index)}",
            )  # fmt: skip
        self._order(index)
        if scanned is None:
            return
        for name, expected in expected_columns(scanned, index, self.out.bytes):
            if name in index:
                self._compare(name, expected, index.column(name))
        self._labels(index, scanned)
        keys = index.keys()
        if keys is not None and scanned.keys is not None:
            self._keys(keys, scanned.keys)
        elif (keys is None) != (scanned.keys is None):
            self.findings.add(self.receipt.index, "the index and the shard disagree on whether samples have keys")

    def _compare(self, name: str, expected: I64, stored: npt.NDArray[Any]) -> None:
        """One finding for a column, naming the first value that differs. -1 in `expected`: not known."""
        if len(stored) != len(expected):
            self.findings.add(
                self.receipt.index, f"column {name!r} has {len(stored):,} values, the shard has {len(expected):,}"
            )
            return
        wrong = np.flatnonzero((stored.astype(np.int64) != expected) & (expected >= 0))
        if len(wrong):
            at = int(wrong[0])
            self.findings.add(
                self.receipt.index, f"column {name!r} does not fit the shard", member=f"value {at}",
                why=f"it says {int(stored[at]):,}, the shard {int(expected[at]):,}; {len(wrong):,} values differ",
            )  # fmt: skip

    def _keys(self, stored: Ragged, found: Ragged) -> None:
        if len(stored) != len(found):
            self.findings.add(self.receipt.index, f"it has {len(stored):,} keys, the shard {len(found):,} samples")
            return
        if np.array_equal(stored.first, found.first) and np.array_equal(stored.data, found.data):
            return
        for number, (a, b) in enumerate(zip(stored, found, strict=True)):
            if a != b:
                self.findings.add(
                    self.receipt.index, "a key is not that of the shard", member=f"sample {number}",
                    why=f"it is {printable(a)}, in the shard {printable(b)}",
                )  # fmt: skip
                return

    def _labels(self, index: ShardIndex, scanned: Scanned) -> None:
        """The label column against the label fields of the shard."""
        if "label" not in index:
            return
        classes = self.task.manifest.classes or ()
        stored = index.column("label").astype(np.int64)
        outside = np.flatnonzero((stored < -1) | (stored >= len(classes)))
        if len(outside):
            at = int(outside[0])
            self.findings.add(
                self.receipt.index,
                f"label {int(stored[at])} is none of {len(classes):,} classes",
                member=f"sample {at}",
            )
            return
        self.out.labels = np.bincount(stored + 1, minlength=len(classes) + 1).astype(np.int64)
        if scanned.labels is not None and len(scanned.labels) == len(stored):
            number: dict[bytes | None, int] = {value: code for code, value in enumerate(classes)}
            number[None] = -1
            found = np.fromiter((number.get(value, -2) for value in scanned.labels), np.int64, len(stored))
            wrong = np.flatnonzero(found != stored)
            if len(wrong):
                at = int(wrong[0])
                value = scanned.labels[at]
                self.findings.add(
                    self.receipt.index, "a label is not that of the sample", member=f"sample {at}",
                    why=f"the index has code {int(stored[at])}, the sample's field is "
                    f"{'absent' if value is None else printable(value)}; {len(wrong):,} differ",
                )  # fmt: skip

    def _order(self, index: ShardIndex) -> None:
        """Column `number`: the order that the manifest names."""
        manifest, receipt = self.task.manifest, self.receipt
        numbers = index.column("number").astype(np.int64)
        if len(numbers) != receipt.samples:
            self.findings.add(receipt.index, f"it has {len(numbers):,} samples, the manifest says {receipt.samples:,}")
            return
        outside = first_outside(numbers, manifest.samples)
        if outside is not None:
            self.findings.add(
                receipt.index, f"number {int(numbers[outside]):,} is none of {manifest.samples:,} samples",
                member=f"sample {outside}",
            )  # fmt: skip
        elif manifest.order == SHUFFLE:
            if len(numbers):
                self._shuffled(numbers)
        else:
            self._in_order(numbers, int(self.task.position[receipt.shard]))

    def _shuffled(self, numbers: I64) -> None:
        keys = sort_keys_of(self.task.manifest.seed or 0, numbers)
        at = first_descent(keys)
        if at is not None:
            self.findings.add(
                self.receipt.index, f"the samples are not in the order of seed {self.task.manifest.seed}",
                member=f"sample {at + 1}",
                why=f"number {int(numbers[at + 1]):,} stands behind {int(numbers[at]):,}",
            )  # fmt: skip
        self.out.ends = int(keys[0]), int(keys[-1])

    def _in_order(self, numbers: I64, first: int) -> None:
        wrong = np.flatnonzero(numbers != np.arange(first, first + len(numbers)))
        if len(wrong):
            at = int(wrong[0])
            self.findings.add(
                self.receipt.index, "the samples are not in source order", member=f"sample {at}",
                why=f"its number is {int(numbers[at]):,}, in source order {first + at:,}",
            )  # fmt: skip


def expected_columns(scanned: Scanned, index: ShardIndex, size: int) -> Iterator[tuple[str, I64]]:
    """(column, what the shard says of it). -1: the scan cannot say it."""
    if scanned.first is None:
        yield "offset", scanned.offset
        yield "length", scanned.size + FRAME
        return
    assert scanned.ext is not None
    starts = scanned.offset[scanned.first[:-1]]
    yield "offset", starts
    yield "length", _lengths(scanned, starts)
    yield "part_end", scanned.first[1:]
    place = scanned.offset + scanned.head
    place[list(scanned.sparse)] = -1  # the payload of a sparse member is not one run
    yield "part_offset", place
    yield "part_size", scanned.size
    number = {ext: code for code, ext in enumerate(index.exts)}
    # a field that the index does not know must not pass for "cannot say"
    codes = np.array([number.get(ext, 1 << 40) for ext in scanned.exts] or [0], np.int64)
    yield "part_ext", codes[scanned.ext.astype(np.int64)]


def _lengths(scanned: Scanned, starts: I64) -> I64:
    """From a sample's first header to the padded end of its last payload, int64[n]; -1 where a hard link, whose
    payload lies elsewhere, or a sparse member, which stores less than its size, ends it."""
    assert scanned.first is not None
    ends = scanned.offset + scanned.head + pad512(scanned.size)
    ends[scanned.head < 0] = -1
    ends[list(scanned.sparse)] = -1
    last = ends[scanned.first[1:] - 1]
    return np.where(last < 0, -1, last - starts)


def check_reader(name: str, path: bytes, file: str, scanned: Scanned, findings: FindingList) -> tuple[int, int]:
    """Open a shard with a real library; (samples it gave, samples that differ from ours)."""
    reader = READERS[name]
    ours = sample_digests(
        path, os.fsencode(file), scanned, fold_case=reader.fold_case, skip_empty=reader.skip_empty
    )
    keys = None if scanned.keys is None else iter(scanned.keys)
    count = differ = 0
    try:
        # what a library prints must not stand in the middle of --json
        with contextlib.redirect_stdout(sys.stderr):
            for key, content in reader.samples(path, scanned.exts):
                if count < len(ours):
                    own_key = None if keys is None else next(keys)
                    wrong = _differs(key, content, own_key, ours[count])
                    if wrong:
                        differ += 1
                        if differ == 1:
                            findings.add(file, f"{name} reads another sample than is stored", member=f"sample {count}",
                                         why=wrong)  # fmt: skip
                count += 1
    except Exception as error:
        findings.add(file, f"{name} fails on sample {count}", why=f"{type(error).__name__}: {error}")
        return count, differ + max(0, len(ours) - count)
    if count != len(ours):
        findings.add(file, f"{name} reads {count:,} samples, the shard has {len(ours):,}")
    return count, differ + abs(count - len(ours))


def _differs(key: bytes | None, content: Any, own_key: bytes | None, own: U8) -> str | None:
    """How a library's sample differs from ours, or None."""
    if isinstance(content, bytes):
        digest = hashlib.sha256(content).digest()
    else:
        digest = sample_digest((field, hashlib.sha256(data).digest()) for field, data in content.items())
    if key is not None and own_key is not None and strip_dot_slash(key) != own_key:
        return f"its key is {printable(key)}, ours {printable(own_key)}"
    return None if digest == own.tobytes() else f"other content under key {printable(key or b'(none)')}"
