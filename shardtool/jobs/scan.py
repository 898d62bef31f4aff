"""scan: what samples are there. Reads headers (and payloads where checksums or labels ask for it)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.errors import DataError, UsageError, printable
from ..base.reporting import Reporter
from ..base.units import plural
from ..disk.blocks import WORTH_MAPPING
from ..disk.columns import Store
from ..disk.content import Content, content_of, scan_content
from ..disk.engines.job import SourceFile, SourceTable
from ..disk.packed import Packed
from ..disk.runners import Advance, run_tasks
from ..disk.samplefiles import SampleFiles
from ..disk.scanned import NAMED, Findings
from ..disk.slim import Slim, slim
from ..disk.sources import Input, Inputs, SourceOptions, resolve
from ..disk.spool import Spool
from ..layout.index import Index
from ..layout.rules import Rules
from .assemble import Assembly

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
    def spool_bytes(self) -> int:
        """What the compressed sources decode to; it is known, for they were decoded to their ends."""
        pairs = zip(self.inputs.files, self.content, strict=True)
        return sum(
            content.size if isinstance(content, Packed) else os.stat(content).st_size
            for file, content in pairs if file.compression is not None
        )  # fmt: skip

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
    store: Store | None = None, memory: int | None = None, check_length: bool = True,
) -> Scan:  # fmt: skip
    """The same for sources that are found already. Compressed ones are decoded into the spool, or, without one, on
    the way and once more for whoever reads them again. Long columns go into the store. `check_length` as for
    formats.tfrecord.scan."""
    large = any(file.size >= WORTH_MAPPING for file in inputs.files)
    window = min(LARGEST_WINDOW, max(LEAST_WINDOW, (memory or MEMORY) // (8 * jobs))) if large else None
    contents = _spooled(inputs, rules, jobs, reporter, spool)
    assembly = Assembly(inputs.files, store)
    places: dict[int, bytes] = {}
    reporter.stage("scan", sum(file.size for file in inputs.files), "B")

    def one(number: int, advance: Advance) -> tuple[Slim, bytes]:
        file = inputs.files[number]
        content = contents[number] if contents else content_of(file, rules)
        scanned = scan_content(
            file, content, rules, check_payload=check_payload, check_length=check_length, window=window
        )
        advance(file.size)
        return slim(scanned), content.path

    names = [file.name for file in inputs.files]
    tasks = _largest_first(inputs.files)
    made = run_tasks(one, tasks, jobs, reporter.advance, apart=large, file_of=names.__getitem__)
    for number, (scanned, place) in made:
        assembly.add(number, scanned)
        places[number] = place
        del scanned
    reporter.finish()
    findings = Findings()
    findings.add(inputs.findings)
    for one_file in assembly.findings():
        findings.add(one_file)
    if not assembly.samples:
        raise DataError(
            "the input holds no samples",
            why="; ".join([f"{len(inputs.files):,} files, all empty", *findings.sentences()]),
        )
    index = assembly.finish(rules)
    _require_label(index, rules)
    findings.warnings.extend(_empty_classes(inputs, index))
    links = sum(int(one.files.linked.sum()) for one in inputs.files if one.files is not None)
    if links:
        reporter.note(f"{links:,} sample files are symbolic links: what they point to is read.")
    for text in [*findings.warnings, *findings.sentences()]:
        reporter.warn(text)
    return Scan(inputs, index, findings, tuple(places[number] for number in range(len(inputs.files))))


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
