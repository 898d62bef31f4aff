"""repack: every sample of the input, uniformly at random, into equal shards.

    scan -> Index -> lay_out -> Layout -> engine -> receipts -> Manifest -> publish

What happens when it is stopped anywhere, and what a rerun does, is in docs/crash.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import DataError, ShardtoolError, StateError, UsageError
from ..base.reporting import Reporter
from ..base.units import show_size
from ..disk.columns import Store
from ..disk.engines import ENGINES
from ..disk.engines.job import CopyJob, SourceFile
from ..disk.engines.mapped import worth_mapping
from ..disk.exports import EXPORTS
from ..disk.files import fsync_folder, is_file, publish, remove, remove_folder
from ..disk.journal import FOLDER, Journal
from ..disk.runners import Later, run_tasks
from ..disk.shardindex import FOLDER as INDEX_FOLDER
from ..disk.shardindex import index_columns, index_name
from ..disk.sourcefile import gone
from ..disk.sources import RATIO, SLACK, Inputs, check_apart, resolve
from ..disk.spool import Spool
from ..layout.cost import Cost, prepared
from ..layout.index import Index
from ..layout.keys import NONE
from ..layout.layout import shard_names
from ..layout.manifest import Manifest, Receipt, encode_name, public_name
from ..layout.output_traps import output_traps, sentences
from ..version import VERSION
from . import state
from .convert import changes_samples, convert, feature_facts, way_back
from .export import check_names, resolve_exports, write_exports
from .fieldnames import Converted
from .host import default_jobs, default_memory
from .lay_out import LaidOut, lay_out, name_of
from .options import RepackOptions
from .scan import Scan, scan_inputs
from .summary import field_sets, fields_of, labels_of, source_fingerprint, tfrecord_fields_sample

MANIFEST = "manifest.json"
LAYOUT_VERSION = 1


@dataclass(frozen=True)
class Result:
    """What a repack came to.

    manifest  None after a dry run
    done      'written', 'resumed', 'nothing to do' or 'dry run'
    """

    done: str
    manifest: Manifest | None
    path: str
    laid_out: LaidOut | None = None
    cost: Cost | None = None
    engine: str = "gather"
    bytes_read: int = 0
    seconds: float = 0.0
    scan_seconds: float = 0.0
    resumed_shards: int = 0
    warnings: tuple[str, ...] = ()
    inputs: Inputs | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def repack(
    sources: Sequence[str],
    out: str,
    options: RepackOptions | None = None,
    *,
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Result:
    """Repack `sources` into the folder `out`. With dry_run nothing is written.

    Raises UsageError, DataError, StateError or HostError; OUT then holds no manifest of this run.
    """
    options, reporter = options or RepackOptions(), reporter or Reporter()
    started = time.monotonic()
    inputs = resolve(sources, options.source, options.rules)
    check_apart(out, inputs)
    if options.work_dir is not None:
        _check_work_dir(options.work_dir, out, inputs)
    options = _settled(options, inputs)
    if dry_run:
        plan, seconds = _prepared(inputs, options, reporter)
        if not inputs.compressed:  # else nothing was stored that could be looked into
            _check_exports(plan)
        return Result(
            "dry run", None, os.path.join(out, MANIFEST), plan.laid_out, plan.laid_out.cost,
            scan_seconds=seconds, seconds=time.monotonic() - started, warnings=tuple(reporter.warnings), inputs=inputs,
            extra=_facts(plan),
        )  # fmt: skip
    folder = os.path.abspath(os.fsencode(out))
    existed = os.path.isdir(folder)
    if existed and (finished := _finished(folder, inputs, options)):
        _clear(folder)
        reporter.note("Nothing to do: the output is complete and newer than its input.")
        return Result(
            "nothing to do", finished, os.path.join(out, MANIFEST),
            seconds=time.monotonic() - started, warnings=tuple(reporter.warnings), inputs=inputs,
        )  # fmt: skip
    _refuse_early(folder, inputs, options)
    journal = Journal(folder)
    try:
        with journal.locked():
            try:
                result = _run(folder, inputs, options, journal, reporter)
            except (ShardtoolError, OSError):
                with contextlib.suppress(OSError):  # the error that is on its way says more
                    _tidy(journal, options.work_dir)
                raise
    except (ShardtoolError, OSError):
        if not existed:
            _remove_empty(folder)
        raise
    return replace(
        result, path=os.path.join(out, MANIFEST), seconds=time.monotonic() - started,
        warnings=tuple(reporter.warnings), inputs=inputs,
    )  # fmt: skip


def _check_work_dir(work_dir: str, out: str, inputs: Inputs) -> None:
    """UsageError for bulk data in OUT, which holds what a run writes and nothing else, or in the input."""
    target = os.path.realpath(os.fsencode(work_dir))
    for folder, what in ((os.fsencode(out), "OUT"), *((root, "a folder of SRC") for root in inputs.roots)):
        real = os.path.realpath(folder)
        if os.path.commonpath([real, target]) == real:
            raise UsageError(
                f"--work-dir is, or lies in, {what}", file=work_dir,
                remedy="give another folder; without --work-dir bulk data go to OUT/.shardtool",
            )  # fmt: skip


def _settled(options: RepackOptions, inputs: Inputs) -> RepackOptions:
    """Defaults that depend on input and machine, filled in."""
    format = options.format or inputs.output_format
    changes_samples(inputs.output_format, format, options.conversion)
    names, types = options.names, options.types
    if (inputs.format, format) == ("tar", "tfrecord") and (names is None or types is None):
        olds, old_types = way_back(inputs)
        names = {os.fsdecode(name): os.fsdecode(old) for name, old in olds.items()} if names is None else names
        types = {os.fsdecode(name): type for name, type in old_types.items()} if types is None else types
    exports = resolve_exports(options.exports, format)
    digests = {*options.digests, *(name for kind in exports for name in EXPORTS[kind].digests)}
    if options.engine not in ("auto", *ENGINES):
        raise UsageError(f"--engine {options.engine!r} is none of auto, {', '.join(ENGINES)}")
    return replace(
        options, format=format, names=names or {}, types=types or {}, exports=exports, digests=tuple(sorted(digests)),
        jobs=options.jobs or default_jobs(), memory=options.memory or default_memory(),
    )  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """Everything is decided, nothing is written."""

    converted: Converted
    laid_out: LaidOut
    names: tuple[str, ...]
    options: RepackOptions

    @property
    def scan(self) -> Scan:
        """With the index of what is written."""
        return self.converted.scan


def _prepared(
    inputs: Inputs, options: RepackOptions, reporter: Reporter, bulk: bytes | None = None
) -> tuple[_Plan, float]:
    """Scan and lay out; and the seconds that the scan took. With a folder for bulk data compressed sources are decoded
    into a spool there."""
    assert options.jobs and options.memory and options.format
    started = time.monotonic()
    # Payload checksums are checked on the copy, while they are in the processor's cache; a scan that must know
    # beforehand which records to leave out checks them itself.
    # So does one of records that are taken apart. The same holds for lengths, whose checksums the copy looks at anyway;
    # a dry run has no copy.
    converts = changes_samples(inputs.output_format, options.format, options.conversion)
    check = options.rules.on_corrupt != "error" or (converts and inputs.format == "tfrecord")
    store = Store(options.memory // 3, bulk)
    scan = scan_inputs(
        inputs, options.rules, jobs=options.jobs, check_payload=check, reporter=reporter,
        spool=None if bulk is None else Spool(bulk), store=store, memory=options.memory,
        check_length=check or bulk is None,
    )  # fmt: skip
    _check_holes(scan.index, options.source.spool_limit)
    converted = Converted(scan)
    if converts:
        converted = convert(
            scan, options.format, options.conversion, options.rules, jobs=options.jobs, reporter=reporter, store=store
        )
        scan = converted.scan
    seconds = time.monotonic() - started
    laid_out = lay_out(
        scan.index, options.limits, format=options.format, seed=options.seed, order=options.order,
        keys=options.keys, strict=options.strict, jobs=options.jobs, memory=options.memory,
        engine=options.engine, store=store,
    )  # fmt: skip
    parsing = 0
    if scan.index.kind is not None:
        from .parsed import task_bytes

        parsing = store.held + options.jobs * task_bytes(store)
    before = scan.spool_bytes, parsing
    laid_out = replace(
        laid_out, cost=prepared(laid_out.cost, *before),
        costs=tuple((prepared(cost, *before), against) for cost, against in laid_out.costs),
    )  # fmt: skip
    traps = [*output_traps(scan.index, laid_out.keys, laid_out.layout), laid_out.colliding]
    stumbled = sentences(traps, options.exports)
    for text in (*laid_out.warnings, *stumbled):
        reporter.warn(text)
    names = shard_names(options.name, options.format, laid_out.layout.shards)
    return _Plan(converted, laid_out, names, options), seconds


def _check_holes(index: Index, limit: int | None) -> None:
    """DataError where sparse members would be written out to more than compressed sources may decode to."""
    if not index.sparse:
        return
    sizes = {part: int(index.size.take(np.array([part], np.int64))[0]) for part in index.sparse}
    most = limit or RATIO * sum(source.bytes for source in index.sources) + SLACK
    if sum(sizes.values()) <= most:
        return
    part = max(sizes, key=lambda one: (sizes[one], -one))
    assert index.first is not None
    sample = int(np.searchsorted(index.first[0 : index.samples + 1], part, side="right")) - 1
    raise DataError(
        f"sparse members come to {show_size(sum(sizes.values()))} with their holes written out, the limit is "
        f"{show_size(most)}", member=name_of(index, sample), why=f"it alone has {show_size(sizes[part])}",
        remedy="a larger --spool-limit, where that is meant",
    )  # fmt: skip


def _refuse_early(folder: bytes, inputs: Inputs, options: RepackOptions) -> None:
    """What needs no scan to be refused: a folder that is not ours and not empty, or the output of another job."""
    found = _found(folder)
    if found.journal is None:
        sources = [file.identity for file in inputs.files]
        job = {"options": options.public(), "version": VERSION, "sources": sources}
        state.decide(found, job, overwrite=options.overwrite, out=folder)


def _run(folder: bytes, inputs: Inputs, options: RepackOptions, journal: Journal, reporter: Reporter) -> Result:
    """With the lock held: from the scan to the manifest."""
    bulk = bulk_folder(journal, options.work_dir)
    plan, scan_seconds = _prepared(inputs, options, reporter, bulk)
    _check_exports(plan)
    job = _journal_facts(plan, bulk)
    found = _found(folder)
    what = state.decide(found, job, overwrite=options.overwrite, out=folder)
    old = read_manifest(folder)
    if what == state.CLEAN_UP and old is not None:
        _end(journal, bulk)
        return Result("nothing to do", old, "", plan.laid_out)
    _forget_bulk(found.journal, bulk)
    if what != state.RESUME:
        _begin(folder, journal, job, _written_by(found.journal, old))
    _finish_replacing(folder, journal)
    try:
        receipts, resumed = _copy(folder, plan, journal, bulk, reporter)
        _unchanged(inputs)
        manifest = _manifest(plan, receipts, reporter)
        exports = write_exports(folder, journal.folder, manifest, options.exports, reporter)
        manifest = replace(manifest, exports=exports, warnings=tuple(reporter.warnings))
    except DataError:
        # Damage: this job can never end well, so nothing of it stays.
        for name in job["files"]:
            remove(os.path.join(folder, name.encode()))
        _remove_empty(os.path.join(folder, INDEX_FOLDER.encode()))
        _end(journal, bulk)
        raise
    text = manifest.to_json().encode("ascii")
    publish(os.path.join(journal.folder, b"manifest.tmp"), os.path.join(folder, MANIFEST.encode()), [text])
    _end(journal, bulk)
    total = sum(source.bytes for source in plan.scan.index.sources)
    return Result(
        "resumed" if resumed else "written", manifest, "", plan.laid_out, plan.laid_out.cost,
        engine=plan.laid_out.cost.engine, bytes_read=total, scan_seconds=scan_seconds, resumed_shards=resumed,
    )  # fmt: skip


def _check_exports(plan: _Plan) -> None:
    """DataError for an export that these samples cannot have: before the copy, not behind it."""
    if not plan.options.exports:
        return
    manifest = replace(_manifest(plan, [], Reporter(), shards=plan.names), fields=_fields(plan))
    for kind in plan.options.exports:
        EXPORTS[kind].check(manifest)


# -- what is in OUT -------------------------------------------------------------------------------------------


def read_manifest(folder: bytes) -> Manifest | None:
    """The manifest in a folder; None when there is none of ours."""
    path = os.path.join(folder, MANIFEST.encode())
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return Manifest.from_json(file.read(), file=path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, DataError):
        return None


def _found(folder: bytes) -> state.Found:
    try:
        entries = sorted(os.listdir(folder))
    except FileNotFoundError:
        return state.Found(None, None, ())
    except NotADirectoryError:
        raise StateError("the output is a file, not a folder", file=folder, remedy="choose another -o") from None
    manifest = read_manifest(folder)
    facts = None
    if manifest is not None:
        facts = {
            "options": manifest.options, "version": manifest.version, "public": manifest.source_fingerprint,
            "sources": [source.identity for source in manifest.sources],
        }  # fmt: skip
    others = tuple(name for name in entries if name != FOLDER)[:3]
    return state.Found(Journal(folder).read_run(), facts, others)


def _finished(folder: bytes, inputs: Inputs, options: RepackOptions) -> Manifest | None:
    """The manifest in OUT when it is that of this job, complete, and no input is newer."""
    manifest = read_manifest(folder)
    if manifest is None or options.overwrite or Journal(folder).read_run() is not None:
        return None
    here = [file.identity for file in inputs.files]
    there = [source.identity for source in manifest.sources]
    if here != there or manifest.version != VERSION or dict(manifest.options) != options.public():
        return None
    written = os.stat(os.path.join(folder, MANIFEST.encode())).st_mtime_ns
    if any(file.mtime_ns > written for file in inputs.files):
        return None
    for receipt in manifest.shards:
        path = os.path.join(folder, receipt.name.encode())
        if not is_file(path) or os.stat(path).st_size != receipt.bytes:
            raise StateError(
                "a shard that the manifest lists is missing or has another size", file=path,
                remedy="write everything again with --overwrite",
            )  # fmt: skip
    return manifest


def _clear(folder: bytes) -> None:
    """Remove a work folder whose run ended just before it did so itself."""
    journal = Journal(folder)
    if os.path.isdir(journal.folder):
        with journal.locked():
            journal.remove()


def _written_by(journal: dict[str, Any] | Any, manifest: Manifest | None) -> list[str]:
    """Files that an earlier run says it wrote or was about to write."""
    names = list(journal["files"]) if journal else []
    if journal:
        names += journal["replaces"]
    if manifest is not None:
        names += [r.index for r in manifest.shards]
        if manifest.seed is not None:  # else `shardtool manifest` wrote it: the shards are the user's own
            names += [r.name for r in manifest.shards]
        names += [name for files in manifest.exports.values() for name in files]
    # Only names below OUT: a manifest is input too.
    return sorted({name for name in names if not name.startswith("/") and ".." not in name.split("/")})


# -- the journal ----------------------------------------------------------------------------------------------


def _journal_facts(plan: _Plan, bulk: bytes) -> dict[str, Any]:
    """What run.json holds: all that decides the bytes, and the files that the run will write."""
    names = [*plan.names, *map(index_name, plan.names)]
    empty = _manifest(plan, [], Reporter(), shards=plan.names)
    for files in check_names(empty, plan.options.exports).values():
        names += files
    return {
        "layout": LAYOUT_VERSION,
        "version": VERSION,
        "options": plan.options.public(),
        "public": source_fingerprint(plan.scan.index.sources),
        "private": [file.private for file in plan.scan.inputs.files],
        "files": names,
        "bulk": os.fsdecode(bulk),
        "replaces": [],
    }


def _begin(folder: bytes, journal: Journal, job: dict[str, Any], replaces: list[str]) -> None:
    """Make this job the one of OUT. Refuses to write over files that no run of ours wrote."""
    known = {*replaces, MANIFEST}
    for name in job["files"]:
        if name not in known and os.path.lexists(os.path.join(folder, name.encode())):
            raise StateError(
                "a file that no run of this tool wrote has the name of an output file",
                file=os.path.join(folder, name.encode()), remedy="move it away, or choose another -o or --name",
            )  # fmt: skip
    journal.forget_receipts()
    journal.write_run({**job, "replaces": replaces})


def _finish_replacing(folder: bytes, journal: Journal) -> None:
    """Remove what the run before wrote: the manifest first, then the files that it listed."""
    facts = journal.read_run()
    if not facts or not facts["replaces"]:
        return
    remove(os.path.join(folder, MANIFEST.encode()))
    fsync_folder(folder)
    for name in facts["replaces"]:
        remove(os.path.join(folder, name.encode()))
    # else the folder of an export that is no longer asked for would stay, and some readers look for it
    for inner in {os.path.dirname(name) for name in facts["replaces"]} - {""}:
        _remove_empty(os.path.join(folder, inner.encode()))
    fsync_folder(folder)
    journal.write_run({**facts, "replaces": []})


def _tidy(journal: Journal, work_dir: str | None) -> None:
    """After an error, with the lock held: where no run had begun, take away what the lock needed and the spool."""
    if journal.read_run() is None:
        if work_dir is not None:
            remove_folder(_bulk_of(journal, work_dir))
        if os.path.isdir(journal.folder):
            journal.remove()


def _remove_empty(folder: bytes) -> None:
    with contextlib.suppress(OSError):  # somebody else's files are in it, or it is not there
        os.rmdir(folder)


def bulk_folder(journal: Journal, work_dir: str | None) -> bytes:
    """Where spool and spill of the run in this OUT go: its work folder, or one of its own in `work_dir`."""
    if work_dir is None:
        return journal.folder
    folder = _bulk_of(journal, work_dir)
    os.makedirs(folder, exist_ok=True)
    return folder


def _bulk_of(journal: Journal, work_dir: str) -> bytes:
    mark = hashlib.sha256(os.path.realpath(journal.out)).hexdigest()[:16]
    return os.path.join(os.path.abspath(os.fsencode(work_dir)), b"shardtool-" + mark.encode())


def _forget_bulk(facts: Mapping[str, Any] | None, bulk: bytes) -> None:
    """Remove bulk data of an earlier run that was given another --work-dir."""
    old = os.fsencode(facts["bulk"]) if facts else bulk
    if old != bulk and os.path.basename(old).startswith(b"shardtool-"):
        remove_folder(old)


def _end(journal: Journal, bulk: bytes) -> None:
    """The last act of a run."""
    if bulk != journal.folder:
        remove_folder(bulk)
    journal.remove()


# -- the copy -------------------------------------------------------------------------------------------------


def _copy(
    folder: bytes, plan: _Plan, journal: Journal, bulk: bytes, reporter: Reporter
) -> tuple[list[Receipt], int]:
    """Receipts of all shards in their order, and how many of them an earlier run had finished."""
    options, layout = plan.options, plan.laid_out.layout
    assert options.jobs and options.memory
    os.makedirs(os.path.join(folder, INDEX_FOLDER.encode()), exist_ok=True)
    receipts = journal.receipts()
    resumed = len(receipts)
    job = copy_job(plan.scan, plan.laid_out, plan.names, options, folder, journal.folder, bulk)
    cost = plan.laid_out.cost
    reporter.stage("repack", cost.passes * int(layout.shard_bytes.sum()), "B")
    reporter.advance(sum(receipt.bytes for receipt in receipts.values()))
    missing = [shard for shard in range(layout.shards) if shard not in receipts]
    if not missing:
        return [receipts[shard] for shard in range(layout.shards)], resumed
    with ENGINES[cost.engine](job, options.jobs, reporter.advance) as write:

        def kept(receipt: Receipt) -> Receipt:
            journal.write_receipt(receipt)
            return receipt

        def one(shard: int, advance: Any) -> Later[Receipt]:
            return write(shard, advance).then(kept)

        done = run_tasks(one, missing, options.jobs, reporter.advance, apart=job.mapped, ahead=True)
        for shard, receipt in done:
            receipts[shard] = receipt
    reporter.finish()
    return [receipts[shard] for shard in range(layout.shards)], resumed


def copy_job(
    scan: Scan, laid_out: LaidOut, names: tuple[str, ...], options: RepackOptions, out: bytes, work: bytes, bulk: bytes
) -> CopyJob:
    """The engine's whole input."""
    index, layout = scan.index, laid_out.layout
    columns = index_columns(index, laid_out.largest_frame, laid_out.largest_frame)
    if laid_out.keys.mode != NONE and not index.records:
        columns.update({"key": "|u1", "key_end": "<i8"})
    # Mappings are shared, but whoever adds up the processes' memory counts them once for each.
    room = ((options.memory or 0) - laid_out.cost.peak_ram_bytes) // (options.jobs or 1)
    mapped = laid_out.cost.engine == "gather" and index.file is None and _worth_mapping(scan, room)
    return CopyJob(
        layout=layout, index=index, keys=laid_out.keys, names=names, out=out, work=work, bulk=bulk,
        frames=laid_out.frames, budget=laid_out.budget,
        sources=scan.source_files,
        verify=options.rules.verify, digests=options.digests, columns=columns, chunk=laid_out.chunk, mapped=mapped,
    )  # fmt: skip


def _unchanged(inputs: Inputs) -> None:
    """DataError when an input is no longer what was scanned."""
    for file in inputs.files:
        if file.files is not None:
            file.files.check()
            continue
        try:
            found = os.stat(file.path)
        except (FileNotFoundError, NotADirectoryError):
            raise gone(file.name) from None
        SourceFile(file.path, file.name, file.size, file.mtime_ns, file.inode).check(found)


def _worth_mapping(scan: Scan, room: int) -> bool:
    sizes = np.array([file.size for file in scan.source_files], np.int64)
    return worth_mapping(sizes, scan.index.samples, room)


# -- the manifest ---------------------------------------------------------------------------------------------


def _manifest(
    plan: _Plan, receipts: list[Receipt], reporter: Reporter, shards: tuple[str, ...] = ()
) -> Manifest:
    """The manifest of these receipts. With `shards` instead: one that has names only, for what depends on them."""
    index, layout, options = plan.scan.index, plan.laid_out.layout, plan.options
    if shards:
        sizes = np.diff(layout.cuts).tolist()
        receipts = [
            Receipt(k, name, sizes[k], int(layout.shard_bytes[k]), "", {}, index_name(name))
            for k, name in enumerate(shards)
        ]
    kept_keys = plan.laid_out.keys.mode
    return Manifest(
        version=VERSION, format=layout.format, samples=layout.samples,
        bytes=int(layout.shard_bytes.sum()), seed=options.seed % (1 << 64), order=layout.order.kind,
        shards_requested=options.shards, shards=tuple(receipts),
        index=copy_job(plan.scan, plan.laid_out, plan.names, options, b"", b"", b"").columns,
        sources=index.sources, source_fingerprint=source_fingerprint(index.sources), sample_digest_sum=None,
        keys={"mode": kept_keys, "unique": True if kept_keys != NONE else None},
        fields={} if shards else _fields(plan), field_sets=None if shards or index.records else field_sets(index),
        classes=index.classes if index.label is not None else None,
        labels=labels_of(index, options.rules.label) if index.label is not None and not shards else None,
        options=options.public(), ignored=dict(plan.scan.findings.ignored), dropped=dict(plan.scan.findings.dropped),
        renamed=_renamed(plan), warnings=tuple(reporter.warnings),
    )  # fmt: skip


def _renamed(plan: _Plan) -> dict[str, Any]:
    """Samples with another key; fields with another name, when anything was converted."""
    found: dict[str, Any] = {"keys": plan.laid_out.renamed_keys}
    if plan.converted.renamed:
        found["fields"] = {public_name(old): encode_name(new) for old, new in plan.converted.renamed.items()}
    if plan.laid_out.layout.format == "tar" and plan.converted.types:
        found["types"] = {public_name(name): type for name, type in sorted(plan.converted.types.items())}
    return found


def _fields(plan: _Plan) -> dict[str, dict[str, Any]]:
    """Fields of tar members; of records, what the first thousand show."""
    if plan.laid_out.layout.format == "tar":
        return {**fields_of(plan.scan.index)}
    if plan.scan.index.records:
        return feature_facts(plan.converted)
    return {**tfrecord_fields_sample(plan.scan.content, plan.scan.index)}


def _facts(plan: _Plan) -> dict[str, Any]:
    """Counts of a dry run's --json that a manifest would hold."""
    return {
        "ignored": dict(plan.scan.findings.ignored),
        "dropped": dict(plan.scan.findings.dropped),
        "renamed_keys": plan.laid_out.renamed_keys,
        "shard_size": show_size(int(plan.laid_out.layout.shard_bytes.max())),
    }
