"""inspect: what is there, how evenly it is spread, and which readers will stumble. Reads headers, no payload (but the
first records of TFRecords for their fields, and label fields when asked).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import printable
from ..base.keyhash import hash128
from ..base.reporting import Reporter
from ..disk.content import first_bytes
from ..disk.files import read_small
from ..disk.formats.tar.extensions import first_name, name_carriers
from ..disk.formats.tfrecord import FRAME
from ..disk.keycheck import fold
from ..disk.packed import Packed
from ..disk.sideindex import SideIndex, check_components, check_spans
from ..disk.sources import Input, Inputs, SourceOptions, resolve, side_indexes
from ..layout.index import Index
from ..layout.manifest import Manifest, public_name
from ..layout.rules import Rules
from ..layout.spread import h_d_cells, h_d_null
from ..layout.traps import MESSAGE_LIMIT, NAMED, TRAPS, Caught, caught, member_name
from .recorded import merged, recorded_source, shard_rules
from .scan import Scan, scan_inputs
from .summary import SAMPLED, field_sets, fields_of, labels_of, tfrecord_fields_sample
from .verify import manifest_of

I64 = npt.NDArray[np.int64]

# Extension headers that are looked into; more are not, and counts say "at least".
LOOKED_INTO = 1 << 17
# The same for headers of a compressed source: those in the first bytes of its content.
UNPACKED = 16 << 20


@dataclass(frozen=True)
class InspectOptions:
    """How SRC is read (rules.label: the label field), and how many processes read it."""

    jobs: int = 1
    source: SourceOptions = field(default_factory=SourceOptions)
    rules: Rules = field(default_factory=Rules)


@dataclass
class Inspected:
    """What was found; sizes in bytes.

    shard_names    S names relative to the base
    shard_bytes, shard_samples  int64[S]
    sample_bytes   {"min", "median", "max"} of the payloads of a sample together
    fields         name -> facts; TFRecord: of the first records only, then "sampled" says of how many
    field_sets     'cls,jpg' -> samples; None for records
    labels         {"field", "histogram", "missing"}, or None
    label_spread   by shard (name, classes in it, its largest class, share of that), or None
    h_d            see layout.spread; h_d_mixed: its mean for shuffled shards; h_d_sorted: for one class a shard
    traps          name -> {"count", "at_least", "what", "examples", "readers", "remedy"}
    side_indexes   {"file", "of", "entries", "records", "wrong", "fits", "words"}
    """

    format: str
    compression: dict[str, int]
    samples: int
    bytes: int
    shard_names: list[str]
    shard_bytes: I64
    shard_samples: I64
    sample_bytes: dict[str, int]
    fields: dict[str, dict[str, Any]]
    fields_sampled: int | None
    field_sets: dict[str, int] | None
    labels: dict[str, Any] | None = None
    label_spread: list[tuple[str, int, str, float]] | None = None
    h_d: float | None = None
    h_d_mixed: float | None = None
    h_d_sorted: float | None = None
    traps: dict[str, dict[str, Any]] = field(default_factory=dict)
    side_indexes: list[dict[str, Any]] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """For --json."""
        facts = asdict(self)
        for name in ("shard_names", "shard_bytes", "shard_samples"):
            del facts[name]
        facts["shards"] = [
            {"name": name, "bytes": size, "samples": count}
            for name, size, count in zip(
                self.shard_names, self.shard_bytes.tolist(), self.shard_samples.tolist(), strict=True
            )
        ]
        facts["shard_bytes"] = spread(self.shard_bytes)
        facts["shard_samples"] = spread(self.shard_samples)
        if self.label_spread is not None:
            facts["label_spread"] = [
                {"name": name, "classes": classes, "largest": largest, "share": round(share, 6)}
                for name, classes, largest, share in self.label_spread
            ]
        return facts


def inspect(
    sources: Sequence[str], options: InspectOptions | None = None, reporter: Reporter | None = None
) -> Inspected:
    """Look at SRC, or at the shards of a manifest.

    Raises UsageError, DataError (damage, policies) as a scan does.
    """
    options, reporter = options or InspectOptions(), reporter or Reporter()
    source, rules = options.source, options.rules
    if (path := manifest_of(sources)) is not None:
        manifest = Manifest.from_json(read_small(os.fsencode(path)).decode("ascii", "replace"), file=path)
        source, rules = (
            merged(source, recorded_source({**manifest.options, "from": None, "label_from": None})),
            merged(rules, shard_rules(manifest)),
        )
        sources = [path]
    inputs = resolve(sources, source, rules)
    scan = scan_inputs(inputs, rules, jobs=options.jobs, check_payload=False, reporter=reporter)
    found = _counts(scan)
    _labels(scan.index, rules, found)
    _traps(scan, found)
    found.side_indexes = _side_indexes(inputs, scan.index)
    found.ignored, found.dropped = dict(scan.findings.ignored), dict(scan.findings.dropped)
    found.warnings = list(reporter.warnings)
    return found


def spread(values: I64) -> dict[str, int]:
    """{"min", "median", "max"}; the median is the lower one of two."""
    if not len(values):
        return {"min": 0, "median": 0, "max": 0}
    middle = np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2]
    return {"min": int(values.min()), "median": int(middle), "max": int(values.max())}


# -- counts -------------------------------------------------------------------------------------------------------


def _counts(scan: Scan) -> Inspected:
    index, files = scan.index, scan.inputs.files
    size = index.size[0 : len(index.size)]
    if index.first is not None:
        size = np.add.reduceat(size, index.first[0 : index.samples])
    records = index.ext is None
    fields: dict[str, dict[str, Any]] = {}
    if records and not (size[:SAMPLED] >= MESSAGE_LIMIT).any():  # such a record is no message, and fills the memory
        fields.update(tfrecord_fields_sample(scan.content, index))
    elif not records:
        fields.update(fields_of(index))
    sampled = next((int(facts["sampled"]) for facts in fields.values()), SAMPLED) if records else None
    for facts in fields.values():
        facts["share"] = round(facts["samples"] / (facts.get("sampled") or index.samples), 6)
    compression: dict[str, int] = {}
    for file in files:
        compression[file.compression or "none"] = compression.get(file.compression or "none", 0) + 1
    return Inspected(
        format=scan.format, compression=compression, samples=index.samples, bytes=sum(file.size for file in files),
        shard_names=[printable(file.name) for file in files],
        shard_bytes=np.array([file.size for file in files], np.int64), shard_samples=np.diff(index.source_first),
        sample_bytes=spread(size), fields=fields, fields_sampled=sampled, field_sets=field_sets(index),
    )  # fmt: skip


# -- labels -------------------------------------------------------------------------------------------------------


def _labels(index: Index, rules: Rules, found: Inspected) -> None:
    found.labels = labels_of(index, rules.label)
    if index.label is None:
        return
    code = index.label[0 : index.samples].astype(np.int64)
    shard = np.repeat(np.arange(len(index.sources)), found.shard_samples)[code >= 0]
    # the cells of the shard-by-class table that are not zero: tables of many classes are mostly zeros
    cell, count = np.unique(shard * len(index.classes) + code[code >= 0], return_counts=True)
    row, column = np.divmod(cell, max(1, len(index.classes)))
    found.label_spread = _by_shard(index, row, column, count.astype(np.int64))
    value = h_d_cells(row, column, count.astype(np.int64))
    if np.isnan(value):
        return
    shards, samples = len(np.unique(row)), int(count.sum())
    found.h_d, found.h_d_mixed = round(value, 6), round(h_d_null(samples, shards), 6)
    found.h_d_sorted = round(samples / shards, 6)


def _by_shard(index: Index, row: I64, column: I64, count: I64) -> list[tuple[str, int, str, float]]:
    table = []
    start = np.searchsorted(row, np.arange(len(index.sources) + 1))
    for number, source in enumerate(index.sources):
        lo, hi = int(start[number]), int(start[number + 1])
        if lo == hi:
            table.append((printable(source.name), 0, "", 0.0))
            continue
        top = lo + int(count[lo:hi].argmax())
        share = float(count[top] / count[lo:hi].sum())
        table.append((printable(source.name), hi - lo, public_name(index.classes[int(column[top])]), share))
    return table


# -- traps --------------------------------------------------------------------------------------------------------


def _traps(scan: Scan, found: Inspected) -> None:
    index = scan.index
    keys = None if index.keys is None else index.keys.whole()
    hashes = lower = None
    if keys is not None:
        hashes = lower = hash128(keys)[:, 0]
        small = fold(keys)
        if small is not keys:
            lower = hash128(small)[:, 0]
    items = caught(index, hashes, lower)
    if index.ext is not None:
        items += _headers(scan)
        for reason in ("hidden", "no_extension", "meta"):
            if count := scan.findings.ignored.get(reason):
                items.append(Caught(reason, count, tuple(scan.findings.examples.get(reason, [])[:NAMED])))
    by_name = {one.trap: one for one in items}
    for name, trap in TRAPS.items():
        if (one := by_name.get(name)) is not None:
            found.traps[name] = {
                "count": one.count, "at_least": one.at_least, "what": trap.what,
                "examples": [printable(example) for example in one.examples],
                "readers": dict(trap.readers), "remedy": trap.remedy,
            }  # fmt: skip


def _headers(scan: Scan) -> list[Caught]:
    """What only the headers in the files say: where a long name stands, a leading './'."""
    index = scan.index
    assert index.first is not None
    first = index.first[0 : index.samples + 1]
    offset, head = index.offset[0 : len(index.offset)], index.head[0 : len(index.head)]
    source_part = first[index.source_first]  # [S+1]
    wanted = np.flatnonzero(head > 512)
    more, wanted = len(wanted) > LOOKED_INTO, wanted[:LOOKED_INTO]
    count: dict[str, int] = {}
    names: dict[str, list[bytes]] = {}

    def hit(trap: str, example: bytes) -> None:
        count[trap] = count.get(trap, 0) + 1
        if len(names.setdefault(trap, [])) < NAMED:
            names[trap].append(example)

    for number, path in enumerate(scan.content):
        if scan.inputs.files[number].files is not None:
            continue  # files have no headers
        lo, hi = int(source_part[number]), int(source_part[number + 1])
        if lo == hi:
            continue
        fd = first_bytes(path, UNPACKED)
        try:
            if (name := first_name(fd, int(offset[lo]) + max(0, int(head[lo]) - 512))).startswith(b"./"):
                hit("dot_slash", name)
            a, b = np.searchsorted(wanted, (lo, hi))
            for part in wanted[a:b].tolist():
                if isinstance(path, Packed) and offset[part] + head[part] > UNPACKED:
                    more = True
                    break
                for trap in name_carriers(fd, int(offset[part]), int(head[part])):
                    hit(trap, member_name(index, first, part))
        finally:
            os.close(fd)
    # only the first member of every shard was looked at for './'
    return [Caught(trap, n, tuple(names[trap]), more or trap == "dot_slash") for trap, n in count.items()]


# -- indexes beside the shards ------------------------------------------------------------------------------------


def _side_indexes(inputs: Inputs, index: Index) -> list[dict[str, Any]]:
    listed = []
    for number, file in enumerate(inputs.files):
        for path in side_indexes(file):
            found = _side_index(path, number, index)
            listed.append(
                {
                    "file": _relative(path, inputs, file),
                    "of": printable(file.name),
                    "entries": found.entries,
                    "records": found.records,
                    "wrong": found.wrong,
                    "fits": found.fits,
                    "words": found.words,
                }
            )
    return listed


def _side_index(path: bytes, number: int, index: Index) -> SideIndex:
    lo, hi = (int(cut) for cut in index.source_first[number : number + 2])
    if index.first is None or index.ext is None:
        return check_spans(path, index.offset[lo:hi], index.size[lo:hi] + FRAME)
    a, b = (int(index.first[cut : cut + 1][0]) for cut in (lo, hi))
    place = index.offset[a:b] + index.head[a:b]
    return check_components(path, hi - lo, index.exts, index.ext[a:b], place, index.size[a:b])


def _relative(path: bytes, inputs: Inputs, file: Input) -> str:
    """As the source is named: relative to the base."""
    return printable(os.path.join(os.path.dirname(file.name), os.path.basename(path)))
