"""scan: what samples are there. Reads headers (and payloads where checksums or labels ask for it)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, UsageError, printable
from ..base.ragged import Ragged
from ..base.reporting import Reporter
from ..base.units import plural
from ..disk.blocks import WORTH_MAPPING
from ..disk.columns import Constant, Store, put
from ..disk.content import Content, content_of, scan_content
from ..disk.engines.job import SourceFile, SourceTable
from ..disk.packed import Packed
from ..disk.runners import Advance, run_tasks
from ..disk.samplefiles import SampleFiles
from ..disk.scanned import NAMED, Findings, Scanned
from ..disk.slim import Slim, slim
from ..disk.sources import Input, Inputs, SourceOptions, resolve
from ..disk.spool import Spool
from ..layout.index import I64, Column, Index, Runs, Source
from ..layout.rules import Rules

# Bytes of a source that a scan has mapped at a time: more lanes then walk side by side.
LEAST_WINDOW, LARGEST_WINDOW = 4 << 20, 64 << 20
MEMORY = 256 << 20  # where nobody said how much there is


@dataclass(frozen=True)
class Scan:
    """An input and what it holds.

    content  paths where the content of every source is read, in order: of the source itself, of its spool file, or
             (without a spool) a Packed one
    """

    inputs: Inputs
    index: Index
    findings: Findings
    content: tuple[bytes, ...]

    @property
    def format(self) -> str:
        """The format of the sources: 'tar', 'tfrecord' or 'folder'."""
        return self.inputs.format

    @property
    def source_files(self) -> Sequence[SourceFile]:
        """What engines read: sources as they were when they were resolved, or the spool files as they are; of
        folders their sample files."""
        files = [
            one.files if one.files is not None else _source_file(one, content)
            for one, content in zip(self.inputs.files, self.content, strict=True)
        ]
        if any(isinstance(one, SampleFiles) for one in files):
            return SourceTable(files)
        return tuple(one for one in files if isinstance(one, SourceFile))


def scan(
    sources: Sequence[str],
    options: SourceOptions | None = None,
    rules: Rules | None = None,
    *,
    jobs: int = 1,
    check_payload: bool = True,
    reporter: Reporter | None = None,
) -> Scan:
    """Find and walk all sources.

    Raises UsageError (no such file, contradicting options), DataError (damage, policies, no sample at all).
    """
    return scan_inputs(
        resolve(sources, options or SourceOptions(), rules or Rules()), rules or Rules(),
        jobs=jobs, check_payload=check_payload, reporter=reporter or Reporter(),
    )  # fmt: skip


def scan_inputs(
    inputs: Inputs, rules: Rules, *, jobs: int, check_payload: bool, reporter: Reporter, spool: Spool | None = None,
    store: Store | None = None, memory: int | None = None,
) -> Scan:  # fmt: skip
    """The same for sources that are found already. Compressed ones are decoded into the spool, or, without one, on
    the way and once more for whoever reads them again. Long columns go into the store."""
    large = any(file.size >= WORTH_MAPPING for file in inputs.files)
    window = min(LARGEST_WINDOW, max(LEAST_WINDOW, (memory or MEMORY) // (8 * jobs))) if large else None
    contents = _spooled(inputs, rules, jobs, reporter, spool)
    found: dict[int, tuple[Slim, bytes]] = {}
    reporter.stage("scan", sum(file.size for file in inputs.files), "B")

    def one(number: int, advance: Advance) -> tuple[Slim, bytes]:
        file = inputs.files[number]
        content = contents[number] if contents else content_of(file, rules)
        scanned = scan_content(file, content, rules, check_payload=check_payload, window=window)
        advance(file.size)
        return slim(scanned), content.path

    names = [file.name for file in inputs.files]
    tasks = _largest_first(inputs.files)
    for number, result in run_tasks(one, tasks, jobs, reporter.advance, apart=large, file_of=names.__getitem__):
        found[number] = result
    reporter.finish()
    slims = [found[number][0] for number in range(len(inputs.files))]
    parts = [part.rest for part in slims]
    findings = Findings()
    findings.add(inputs.findings)
    for part in parts:
        findings.add(part.findings)
    if not sum(part.samples for part in parts):
        raise DataError(
            "the input holds no samples",
            why="; ".join([f"{len(parts):,} files, all empty", *findings.sentences()]),
        )
    index = assemble(inputs.files, slims, rules, store)
    _require_label(index, rules)
    findings.warnings.extend(_empty_classes(inputs, index))
    links = sum(int(one.files.linked.sum()) for one in inputs.files if one.files is not None)
    if links:
        reporter.note(f"{links:,} sample files are symbolic links: what they point to is read.")
    for text in [*findings.warnings, *findings.sentences()]:
        reporter.warn(text)
    return Scan(inputs, index, findings, tuple(found[number][1] for number in range(len(inputs.files))))


def _spooled(
    inputs: Inputs, rules: Rules, jobs: int, reporter: Reporter, spool: Spool | None
) -> list[Content] | None:
    """Contents by way of the spool, if there is one and need for it."""
    packed = inputs.compressed
    if spool is None or not packed:
        return None
    reporter.stage("decompress", sum(inputs.files[number].size for number in packed), "B")
    contents = spool.fill(inputs.files, rules, jobs, reporter.advance)
    reporter.finish()
    return contents


def _source_file(file: Input, content: bytes) -> SourceFile:
    if file.compression is None or isinstance(content, Packed):
        return SourceFile(file.path, file.name, file.size, file.mtime_ns, file.inode)
    there = os.stat(content)
    return SourceFile(content, file.name, there.st_size, there.st_mtime_ns, there.st_ino)


def _largest_first(files: Sequence[Input]) -> list[int]:
    """So that the last task to finish is a short one."""
    return sorted(range(len(files)), key=lambda number: (-files[number].size, number))


def assemble(
    files: Sequence[Input], slims: Sequence[Slim], rules: Rules, store: Store | None = None
) -> Index:
    """One Index of the scans of all files, in the files' order."""
    store = store or Store(1 << 62)
    parts = [part.rest for part in slims]
    sources = tuple(
        Source(
            file.name, file.size, part.samples, file.format, None if file.files is None else file.files.listing
        )
        for file, part in zip(files, parts, strict=True)
    )
    exts = tuple(sorted({ext for part in parts for ext in part.exts}))
    classes: tuple[bytes, ...] = ()
    label = None
    if (first := files[0].files) is not None and first.classes is not None:
        classes = first.classes  # those of all folders
        label = np.concatenate([part.codes for part in parts if part.codes is not None])
    elif rules.label is not None:
        classes, label = _labels(parts)
    tar = any(part.first is not None for part in parts)
    return Index(
        sources=sources,
        first=_first(parts) if tar else None,
        size=_column(store, slims, lambda part: part.size, _narrow(slims)),
        head=_heads(store, slims),
        offset=_column(store, slims, Slim.offsets, None),
        ext=_exts(parts, exts) if tar else None,
        exts=exts,
        keys=Ragged.join(part.keys for part in parts if part.keys is not None) if tar else None,
        label=label,
        classes=classes,
        sparse=_sparse(slims),
        file=_files(files, slims),
    )


def _column(
    store: Store, slims: Sequence[Slim], values: Callable[[Slim], npt.NDArray[Any]], stored: str | None
) -> Column:
    """One column of all parts, filled file by file."""
    column, at = store.empty(sum(part.parts for part in slims), stored=stored), 0
    for part in slims:
        put(column, at, values(part))
        at += part.parts
    return column


def _heads(store: Store, slims: Sequence[Slim]) -> Column:
    known = {part.head if isinstance(part.head, int) else None for part in slims if part.parts}
    if len(known) == 1 and (value := known.pop()) is not None:
        return Constant(value, sum(part.parts for part in slims))
    return _column(store, slims, Slim.heads, None)


def _narrow(slims: Sequence[Slim]) -> str | None:
    return "<u4" if all(part.size.dtype == np.uint32 for part in slims) else None


def _joined(columns: Iterable[I64]) -> I64:
    return np.concatenate([np.zeros(0, np.int64), *columns])


def _first(parts: Sequence[Scanned]) -> I64:
    counts = [np.diff(part.first) if part.first is not None else np.ones(part.samples, np.int64) for part in parts]
    return np.cumsum(_joined([np.zeros(1, np.int64), *counts]))


def _files(files: Sequence[Input], slims: Sequence[Slim]) -> I64 | None:
    """Number of every part's file, counted as SourceTable counts; None when no source is a folder."""
    if all(file.files is None for file in files):
        return None
    columns, start = [], 0
    for file, part in zip(files, slims, strict=True):
        number = part.rest.file
        columns.append(np.full(part.parts, start, np.int64) if number is None else number + start)
        start += 1 if file.files is None else len(file.files) + 1
    return _joined(columns)


def _exts(parts: Sequence[Scanned], exts: tuple[bytes, ...]) -> npt.NDArray[np.uint32]:
    number = {ext: k for k, ext in enumerate(exts)}
    columns = [np.zeros(0, np.uint32)]
    for part in parts:
        if part.ext is not None and part.exts:
            columns.append(np.array([number[ext] for ext in part.exts], np.uint32).take(part.ext))
    return np.concatenate(columns)


def _sparse(slims: Sequence[Slim]) -> dict[int, Runs]:
    sparse, before = {}, 0
    for part in slims:
        for number, runs in part.rest.sparse.items():
            sparse[before + number] = runs
        before += part.parts
    return sparse


def _labels(parts: Sequence[Scanned]) -> tuple[tuple[bytes, ...], npt.NDArray[np.int32]]:
    """Classes (numbers in numeric order, else by bytes) and every sample's number among them, -1 for none."""
    values = [value for part in parts for value in part.labels or ()]
    present = {value for value in values if value is not None}
    number = {value: k for k, value in enumerate(sort_classes(present))}
    codes = np.fromiter((-1 if v is None else number[v] for v in values), np.int32, len(values))
    return tuple(number), codes


def sort_classes(values: set[bytes]) -> list[bytes]:
    """Label values in order: whole numbers by value, anything else by bytes."""
    try:
        return sorted(values, key=lambda value: (int(value), value))
    except ValueError:
        return sorted(values)


def _empty_classes(inputs: Inputs, index: Index) -> list[str]:
    """What to say of folders that are labels of no sample."""
    if inputs.files[0].files is None or inputs.files[0].files.classes is None or index.label is None:
        return []
    count = np.bincount(index.label[0 : index.samples], minlength=len(index.classes))
    empty = [printable(name) for name, n in zip(index.classes, count.tolist(), strict=True) if not n]
    if not empty:
        return []
    more = f" and {len(empty) - NAMED:,} more" if len(empty) > NAMED else ""
    listed = ", ".join(empty[:NAMED])
    return [f"{plural(len(empty), 'class', 'classes')} without samples, which keep their numbers: {listed}{more}"]


def _require_label(index: Index, rules: Rules) -> None:
    if rules.label is not None and not index.classes:
        known = ", ".join(ext.decode("utf-8", "replace") for ext in index.exts[:20])
        raise UsageError(
            f"no sample has the label field {rules.label!r}",
            remedy=f"--label one of: {known}" if known else "name a feature that the records have",
        )
