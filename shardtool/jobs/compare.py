"""--against: is it the same multiset of samples? And where not, which ones differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import UsageError, printable
from ..base.reporting import Reporter
from ..disk.content import content_of, scan_content
from ..disk.engines.job import SourceTable
from ..disk.payloads import folder_digests, sample_digests
from ..disk.runners import Advance, run_tasks
from ..disk.scanned import Findings, Scanned
from ..disk.sourcefile import SourceFile
from ..disk.sources import FOLDER, Input, Inputs
from ..layout.index import windows
from ..layout.manifest import Manifest
from ..layout.multiset import MODULUS, U8, U64, multiset_sum, prefixes, surplus
from ..layout.rules import Rules
from .convert import convert
from .members import features
from .recorded import recorded_conversion
from .records import lists_of
from .scan import Scan, scan_inputs
from .slices import part_of, scanned_of

# Samples of each side that are named when the two differ.
NAMED = 3
# Samples of a folder that are digested at a time
FOLDER_STEP = 2048


@dataclass(frozen=True)
class Side:
    """Files and how to read them; what the scan of one costs is paid again by every pass.

    converted  the samples as a conversion makes them, where there is one: its index stays in memory
    """

    files: tuple[Input, ...]
    rules: Rules
    payload_checked: bool = False
    converted: Scan | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of one pass."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Difference:
    """missing: samples that only the other side has; extra: that only ours has; with a few of each, as
    (file, byte offset, key or record number)."""

    missing: int
    extra: int
    some_missing: tuple[tuple[str, int, str], ...]
    some_extra: tuple[tuple[str, int, str], ...]


def multiset(side: Side, jobs: int, reporter: Reporter, label: str) -> tuple[int, int]:
    """(sum of all sample digests, samples), in memory of one file a process. Raises DataError for damage."""

    work = _Tasks(side)

    def one(number: int, advance: Advance) -> tuple[int, int]:
        digests = work.digests(number)
        advance(work.bytes_of(number))
        return multiset_sum(digests), len(digests)

    total = samples = 0
    reporter.stage(label, side.total_bytes, "B")
    for _, (part, count) in run_tasks(one, range(len(work.tasks)), jobs, reporter.advance):
        total, samples = (total + part) % MODULUS, samples + count
    reporter.finish()
    return total, samples


def difference(ours: Side, theirs: Side, jobs: int, reporter: Reporter) -> Difference:
    """Which samples differ. A second pass over both sides that keeps 8 bytes a sample."""
    mine = _marks(ours, jobs, reporter, "compare: ours")
    other = _marks(theirs, jobs, reporter, "compare: theirs")
    extra, extra_count = surplus(_joined(mine), _joined(other))
    missing, missing_count = surplus(_joined(other), _joined(mine))
    return Difference(
        int(missing_count.sum()), int(extra_count.sum()), _locate(theirs, other, missing), _locate(ours, mine, extra)
    )


def same_format(ours: Sequence[Input], theirs: Sequence[Input]) -> None:
    """UsageError for sides of two formats: their samples are equal only by way of a conversion."""
    # sample files and members of tars are the same samples
    a, b = (_as_tar(side[0].format) for side in (ours, theirs))
    if a != b:
        raise UsageError(
            f"the shards are {a}, --against is {b}", why="samples of two formats cannot be compared yet",
            remedy="name a source of the same format",
        )  # fmt: skip


def converts(manifest: Manifest, format: str) -> bool:
    """Whether a source of this format becomes what the manifest lists by a conversion that it records."""
    if manifest.seed is None or any(source.format != format for source in manifest.sources):
        return False
    return _as_tar(format) != manifest.format or recorded_conversion(manifest.options).asked


def converted_sides(
    ours: Side, inputs: Inputs, rules: Rules, manifest: Manifest, jobs: int, reporter: Reporter
) -> tuple[Side, Side]:
    """Both sides with the same fields: the source as the recorded conversion makes it, and our shards, records as
    their features. Numbers are compared as packed lists, keys not at all."""
    scan = scan_inputs(inputs, rules, jobs=jobs, check_payload=True, reporter=reporter)
    made = convert(scan, manifest.format, recorded_conversion(manifest.options), rules, jobs=jobs, reporter=reporter)
    theirs = Side(inputs.files, rules, converted=made.scan)
    if manifest.format != "tfrecord":
        return ours, theirs
    held = Inputs(b"", ours.files, Findings())
    shards = scan_inputs(held, ours.rules, jobs=jobs, check_payload=False, reporter=reporter)
    if inputs.format == "tfrecord":
        return replace(ours, converted=lists_of(shards, jobs, reporter)), theirs
    return replace(ours, converted=features(shards, jobs=jobs, reporter=reporter)), theirs


def _as_tar(format: str) -> str:
    return "tar" if format == FOLDER else format


@dataclass(frozen=True)
class _Task:
    """Samples lo..hi-1 of a file; hi None: all of them."""

    file: int
    lo: int = 0
    hi: int | None = None


class _Tasks:
    """What workers digest: whole files, and folders by ranges of samples, for their files are many and one folder is
    often all there is."""

    def __init__(self, side: Side) -> None:
        self._side = side
        # of folders: only the names of their files are needed
        self._folders = {
            number: _scanned(side, number) for number, file in enumerate(side.files) if file.files is not None
        }  # fmt: skip
        self.tasks: list[_Task] = []
        for number, file in enumerate(side.files):
            if file.files is None:
                self.tasks.append(_Task(number))
            else:
                samples = self._folders[number].samples
                self.tasks += [_Task(number, lo, hi) for lo, hi in windows(samples, FOLDER_STEP)]

    def digests(self, number: int) -> U8:
        """Of the samples of a task."""
        task = self.tasks[number]
        side, file = self._side, self._side.files[task.file]
        if file.files is not None and task.hi is not None:
            return folder_digests(file.files, part_of(self._folders[task.file], task.lo, task.hi))
        if side.converted is not None:
            return sample_digests(side.converted.content[task.file], file.name, _scanned(side, task.file))
        content = content_of(file, side.rules)
        scanned = scan_content(file, content, side.rules, check_payload=not side.payload_checked)
        return sample_digests(content.path, file.name, scanned)

    def bytes_of(self, number: int) -> int:
        """Of a task, for its progress."""
        task, size = self.tasks[number], self._side.files[self.tasks[number].file].size
        if task.hi is None:
            return size
        samples = self._folders[task.file].samples
        return size * task.hi // samples - size * task.lo // samples


def _scanned(side: Side, number: int) -> Scanned:
    """The samples of one file as its own scan gives them, after the conversion where there is one."""
    if side.converted is None:
        file = side.files[number]
        return scan_content(file, content_of(file, side.rules), side.rules, check_payload=False)
    made = scanned_of(side.converted.index, number)
    if made.file is not None:
        before = SourceTable(file.files or _one(file) for file in side.files).starts[number]
        made.file = made.file - before
    return made


def _one(file: Input) -> SourceFile:
    return SourceFile(file.path, file.name, file.size, file.mtime_ns, file.inode)


def _marks(side: Side, jobs: int, reporter: Reporter, label: str) -> list[U64]:
    """The first eight bytes of every sample's digest, by file."""
    work = _Tasks(side)

    def one(number: int, advance: Advance) -> U64:
        found = prefixes(work.digests(number))
        advance(work.bytes_of(number))
        return found

    reporter.stage(label, side.total_bytes, "B")
    found = dict(run_tasks(one, range(len(work.tasks)), jobs, reporter.advance))
    reporter.finish()
    by_file: list[list[U64]] = [[] for _ in side.files]
    for number, task in enumerate(work.tasks):
        by_file[task.file].append(found[number])
    return [_joined(marks) for marks in by_file]


def _joined(marks: list[U64]) -> U64:
    return np.concatenate([np.zeros(0, np.uint64), *marks])


def _locate(side: Side, marks: list[U64], wanted: U64) -> tuple[tuple[str, int, str], ...]:
    """File, byte offset and name of a few samples with these marks."""
    named: list[tuple[str, int, str]] = []
    seen: set[int] = set()
    for number, found in enumerate(marks):
        hits = np.flatnonzero(np.isin(found, wanted))
        fresh = [at for at in hits.tolist() if int(found[at]) not in seen][: NAMED - len(named)]
        if fresh:
            seen.update(int(found[at]) for at in fresh)
            named.extend(_names(side, number, fresh))
        if len(named) >= NAMED:
            break
    return tuple(named)


def _names(side: Side, number: int, samples: list[int]) -> list[tuple[str, int, str]]:
    file, scanned = side.files[number], _scanned(side, number)
    named = []
    for at in samples:
        part = at if scanned.first is None else int(scanned.first[at])
        name = f"record {at}" if scanned.keys is None else printable(scanned.keys[at])
        named.append((printable(file.name), int(scanned.offset[part]), name))
    return named
