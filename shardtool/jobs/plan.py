"""Who reads what, and what it costs: the `plan` command's work, and the floor matrix of `inspect
--world-size`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, UsageError, printable
from ..base.reporting import Reporter
from ..disk.indexfile import ShardIndex
from ..disk.sources import SourceOptions
from ..layout.manifest import Manifest
from ..layout.rules import Rules
from ..loaders.base import Loader
from ..schedule import matrix
from ..schedule.capacity import Demand, capacity
from ..schedule.counts import Counts
from ..schedule.schedule import Schedule
from ..schedule.verdict import Verdict, judge
from ..schedule.world import World
from .elastic import ElasticRow, elastic_rows
from .scan import scan

I64 = npt.NDArray[np.int64]

# Every id is printed; beyond this many the output is of no use and does not fit in memory as text.
MOST_IDS = 20_000_000
MOST_SAMPLES = 1 << 60
MOST_SHARDS = 50_000_000


@dataclass(frozen=True)
class ShardTable:
    """Files and what is in them: names · samples int64[s] · bytes int64[s] or None · labels int64[s, classes]
    or None (samples of every class in every file)."""

    names: list[str]
    samples: I64
    bytes: I64 | None = None
    labels: I64 | None = None

    @property
    def n(self) -> int:
        return int(self.samples.sum())


# -- what there is to read -----------------------------------------------------------------------------------


def table_of_counts(
    n: int, samples_per_shard: int | None = None, sample_bytes: float | None = None
) -> ShardTable:
    """n samples in one shard, or in shards of `samples_per_shard` (the last one may be smaller)."""
    if n < 1:
        raise UsageError(
            f"the number of samples must be at least 1, not {n}", remedy="give --samples 1 or more"
        )
    if n > MOST_SAMPLES:
        raise UsageError(f"{n:,} samples are beyond 2^60", remedy="give a smaller --samples")
    if samples_per_shard is None:
        samples = np.array([n], np.int64)
    else:
        if samples_per_shard < 1:
            raise UsageError(f"samples per shard must be at least 1, not {samples_per_shard}")
        if n // samples_per_shard > MOST_SHARDS:
            raise UsageError(
                f"{n:,} samples in shards of {samples_per_shard:,} are more than {MOST_SHARDS:,} shards",
                remedy="give a larger --samples-per-shard",
            )
        whole, rest = divmod(n, samples_per_shard)
        samples = np.full(whole + (rest > 0), samples_per_shard, np.int64)
        if rest:
            samples[-1] = rest
    return _sized(samples, sample_bytes)


def table_of_sizes(text: str, sample_bytes: float | None = None) -> ShardTable:
    """'10,10,10' or '146x1000' (146 shards of 1,000 samples), or both: '3x10,7'."""
    sizes: list[I64] = []
    shards = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:([0-9]{1,12})\s*[x*]\s*)?([0-9]{1,19})\s*", part)
        if not match:
            raise UsageError(
                f"--shard-sizes: {part.strip()!r} is neither a count nor SHARDSxSAMPLES",
                remedy="write 10,10,10 or 146x1000",
            )
        many, size = int(match[1] or 1), int(match[2])
        shards += many
        if many < 1 or shards > MOST_SHARDS or size > MOST_SAMPLES:
            raise UsageError(
                f"--shard-sizes: {part.strip()} is out of range (1 to {MOST_SHARDS:,} shards, below 2^60 "
                f"samples)"
            )
        sizes.append(np.full(many, size, np.int64))
    samples = np.concatenate(sizes)
    if sum(int(s.sum(dtype=object)) for s in sizes) > MOST_SAMPLES:
        raise UsageError("--shard-sizes: more than 2^60 samples in all", remedy="give smaller shards")
    if not samples.any():
        raise UsageError("--shard-sizes: there is not one sample", remedy="give a shard at least one sample")
    return _sized(samples, sample_bytes)


def _sized(samples: I64, sample_bytes: float | None) -> ShardTable:
    names = [] if len(samples) > 1_000_000 else [f"shard {i}" for i in range(len(samples))]
    size = None if sample_bytes is None else np.rint(samples * sample_bytes).astype(np.int64)
    return ShardTable(names, samples, size)


def shard_table(
    sources: Sequence[str], source: SourceOptions | None = None, rules: Rules | None = None, *,
    jobs: int = 1, reporter: Reporter | None = None,
) -> ShardTable:  # fmt: skip
    """Names, samples and bytes of the shards behind SRC...: from one manifest.json (or the folder that holds it)
    without opening a shard, from anything else by a scan of headers. Labels too, where they are stored or asked for.

    Raises UsageError and DataError as a scan does, DataError for a manifest that is none.
    """
    path = manifest_of(sources)
    if path is not None:
        return _table_of_manifest(path)
    if not sources:
        raise UsageError("nothing to plan for", remedy="give SRC, a manifest.json, -n or --shard-sizes")
    found = scan(sources, source, rules, jobs=jobs, check_payload=False, reporter=reporter)
    names = [printable(one.name) for one in found.index.sources]
    samples = np.array([one.samples for one in found.index.sources], np.int64)
    size = np.array([one.bytes for one in found.index.sources], np.int64)
    labels = None
    if found.index.label is not None:
        codes = found.index.label[0 : found.index.samples]
        labels = _by_shard(codes, samples, len(found.index.classes))
    return ShardTable(names, samples, size, labels)


def manifest_of(sources: Sequence[str]) -> str | None:
    """The manifest that SRC is, or the one in the folder that it is."""
    if len(sources) != 1:
        return None
    inside = os.path.join(sources[0], "manifest.json")
    if os.path.isfile(inside):
        return inside
    return sources[0] if sources[0].endswith(".json") else None


def _by_shard(codes: npt.NDArray[np.int32], samples: I64, classes: int) -> I64:
    """Samples of every class in every shard, int64[s, C]; samples without a label count nowhere."""
    shard = np.repeat(np.arange(len(samples), dtype=np.int64), samples)
    known = codes >= 0
    cells = shard[known] * classes + codes[known]
    return np.bincount(cells, minlength=len(samples) * classes).reshape(len(samples), classes).astype(np.int64)


def _table_of_manifest(path: str) -> ShardTable:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    if '"shardtool"' not in text:
        return _table_of_list(path, text)
    manifest = read_manifest_file(path)
    samples, labels = manifest.shard_samples, None
    codes = stored_codes(path, manifest)
    if codes is not None:
        labels = _by_shard(codes, samples, len(manifest.classes or ()))
    return ShardTable([r.name for r in manifest.shards], samples, manifest.shard_sizes, labels)


def read_manifest_file(path: str) -> Manifest:
    """A manifest of ours with at least one sample; DataError for anything else."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        manifest = Manifest.from_json(file.read(), file=path)
    if not manifest.samples:
        raise DataError("the manifest has no samples", file=path, remedy="look at how it was made")
    return manifest


def stored_codes(path: str, manifest: Manifest) -> npt.NDArray[np.int32] | None:
    """Label numbers of all samples in stored order, int32[n], from the index; None when it has none."""
    if not manifest.classes:
        return None
    folder, codes = os.fsencode(os.path.dirname(path)), []
    for receipt in manifest.shards:
        with ShardIndex(os.path.join(folder, os.fsencode(receipt.index)), receipt.name, check=False) as index:
            codes.append(index.column("label").astype(np.int32))
    return np.concatenate(codes)


def _table_of_list(path: str, text: str) -> ShardTable:
    """A list of shards that another tool wrote: {"shards": [{"name", "samples", "bytes"}, ...]}."""
    try:
        shards = json.loads(text)["shards"]
        samples = np.array([_count(one["samples"]) for one in shards], np.int64)
        size = np.array([_count(one["bytes"]) for one in shards], np.int64)
        names = [str(one["name"]) for one in shards]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            "this is no manifest.json of shards", file=path,
            why=f"{type(error).__name__}: {error}; it needs a list `shards` of name, samples and bytes",
            remedy="make one with `shardtool manifest SRC... -o manifest.json`",
        ) from None  # fmt: skip
    if not samples.any():
        raise DataError("the manifest has no samples", file=path, remedy="look at how it was made")
    return ShardTable(names, samples, size)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_SAMPLES:
        raise ValueError(f"{value!r} is no count")
    return value


# -- the plan ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanRequest:
    """Options of the job. sample_bytes and buffer: None: from the table, and the loader's own default."""

    loader: Loader
    table: ShardTable
    world: World
    epochs: int = 1
    seed: int = 0
    elastic: list[int] = field(default_factory=list)
    elastic_workers: list[int] | None = None
    buffer: int | None = None
    samples_per_second: float | None = None
    disk_speed: int = 500_000_000


@dataclass(frozen=True)
class Plan:
    """The outcome, numbers only; ids come from `readings`."""

    request: PlanRequest
    counts: Counts
    verdict: Verdict
    notes: list[str]
    ways_out: list[str]
    elastic: list[ElasticRow]
    capacity: dict[str, Any]


def make_plan(request: PlanRequest) -> Plan:
    """Counts, verdict, ways out, elastic table and capacity. Raises UsageError where the loader would
    raise."""
    loader, table, world = request.loader, request.table, request.world
    if request.epochs < 1:
        raise UsageError(f"epochs must be at least 1, not {request.epochs}", remedy="give --epochs 1 or more")
    if request.epochs * world.ranks > 1 << 24:
        raise UsageError(
            f"{request.epochs:,} epochs x {world.ranks:,} ranks are too many to plan at once",
            remedy="ask for fewer --epochs",
        )
    loader.check(table.samples, world)
    counts = loader.counts(table.samples, world, request.epochs, request.seed)
    lanes = loader.lanes_per_rank(world)
    workers = loader.uses_workers and world.workers_per_rank > 0
    verdict = judge(counts, table.n, world, workers)
    wrong = _wrong(counts, verdict)
    ways = [*loader.ways_out(wrong, table.samples, world), *_tried(request, wrong)] if wrong else []
    mean = None if table.bytes is None else float(table.bytes.sum()) / table.n
    buffer, fill = loader.buffered()
    if request.buffer is not None:
        buffer, fill = request.buffer, min(fill, request.buffer) if fill else request.buffer
    demand = Demand(
        mean, buffer, fill, request.samples_per_second, request.disk_speed,
        loader.read_factor(table.samples, world),
    )  # fmt: skip
    return Plan(
        request, counts, verdict, loader.notes(table.samples, world), ways,
        elastic_rows(loader, table.samples, world, request.elastic, request.elastic_workers),
        capacity(counts, table.n, len(table.samples), world, demand, unit=loader.unit, lanes_per_rank=lanes),
    )  # fmt: skip


def _wrong(counts: Counts, verdict: Verdict) -> set[str]:
    """What one would wish otherwise: the verdict's findings, batches without samples, batches of copies."""
    batches = {"empty batches": counts.zero_batches, "batches of copies": counts.copy_batches}
    return verdict.found | {name for name, array in batches.items() if array.any()}


def _tried(request: PlanRequest, wrong: set[str]) -> list[str]:
    """Other settings of the loader, run through the same counting: the words of those that leave less
    wrong."""
    found = []
    for words, other in request.loader.alternatives():
        if other == request.loader:
            continue
        try:
            other.check(request.table.samples, request.world)
            counts = other.counts(request.table.samples, request.world, request.epochs, request.seed)
        except UsageError:
            continue
        workers = other.uses_workers and request.world.workers_per_rank > 0
        now = _wrong(counts, judge(counts, request.table.n, request.world, workers))
        cured = sorted(wrong - now)
        if cured:
            batches = counts.of_rank("batches")[0]
            low, high = int(batches.min()), int(batches.max())
            many = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            left = f"; leaves: {', '.join(sorted(now))}" if now else ""
            found.append(f"{words}: {many} batches a rank, ends: {', '.join(cured)}{left}")
    return found


# -- JSON ----------------------------------------------------------------------------------------------------


def plan_facts(plan: Plan, *, per_worker: bool = False, ids: bool = False) -> dict[str, Any]:
    """The object of `plan --json`."""
    request = plan.request
    world = request.world
    schedules = readings(plan) if ids else []
    facts: dict[str, Any] = {
        "loader": request.loader.name,
        "samples": request.table.n,
        "shard_samples": request.table.samples.tolist(),
        "world": {
            "ranks": world.ranks,
            "ranks_per_node": world.ranks_on_node,
            "workers_per_rank": world.workers_per_rank,
            "batch_size": world.batch_size,
        },
        "epochs": [
            {"epoch": epoch, "ranks": _rank_facts(plan, epoch, per_worker, schedules)}
            for epoch in range(request.epochs)
        ],
        "verdict": {**plan.verdict.facts(), "reasons": reasons(plan)},
        "elastic": [row.facts() for row in plan.elastic],
        "capacity": plan.capacity,
    }
    if ids:
        facts["ids_opaque"] = any(s.opaque for s in schedules)
    return facts


def reasons(plan: Plan) -> list[str]:
    """The verdict's sentences, what is odd about the loader, and the ways out."""
    return [*plan.verdict.reasons, *plan.notes, *(f"way out: {w}" for w in plan.ways_out)]


def _rank_facts(plan: Plan, epoch: int, per_worker: bool, schedules: list[Schedule]) -> list[dict[str, Any]]:
    counts = plan.counts
    columns = {
        "shard": counts.shard[epoch], "first": counts.first[epoch],
        **{name: counts.of_rank(name)[epoch] for name in ("samples", "batches", "padding", "dropped")},
    }  # fmt: skip
    lists = {name: column.tolist() for name, column in columns.items()}
    rows: list[dict[str, Any]] = []
    for rank in range(plan.request.world.ranks):
        row: dict[str, Any] = {"rank": rank, **{name: values[rank] for name, values in lists.items()}}
        for name in ("shard", "first"):
            row[name] = None if row[name] < 0 else row[name]
        if per_worker:
            pairs = zip(
                counts.samples[epoch, rank].tolist(), counts.batches[epoch, rank].tolist(), strict=True
            )
            row["workers"] = [{"worker": w, "samples": s, "batches": b} for w, (s, b) in enumerate(pairs)]
        if schedules:
            reading = schedules[epoch].rank(rank)
            row["ids"] = reading.ids.tolist()
            row["padding_mask"] = reading.padding.tolist()
        rows.append(row)
    return rows


def readings(plan: Plan) -> list[Schedule]:
    """One schedule an epoch; UsageError when all their ids are too many to print."""
    request = plan.request
    many = int(plan.counts.samples.sum())
    if many > MOST_IDS:
        raise UsageError(
            f"{many:,} ids are too many to print",
            remedy=f"ask for at most {MOST_IDS:,}: fewer --epochs or samples",
        )
    return [
        request.loader.split(request.table.samples, request.world, epoch, request.seed)
        for epoch in range(request.epochs)
    ]



# -- inspect --world-size ------------------------------------------------------------------------------------


def floor_matrix(table: ShardTable, world_size: int, epochs: int = 1) -> matrix.FloorMatrix:
    """Size, bytes and label skew of every rank's shard by the floor formula, for `inspect --world-size`."""
    return matrix.floor_matrix(
        table.n,
        world_size,
        epochs,
        shard_samples=table.samples,
        shard_bytes=table.bytes,
        shard_labels=table.labels,
    )
