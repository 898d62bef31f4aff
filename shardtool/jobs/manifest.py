"""manifest: index and manifest.json for shards that exist, which stay as they are; and exports of a manifest.

Everything is written in full under temporary names first; then the index files get their names, then the
exports, the manifest last. What it replaces of an earlier run is removed in between, the old manifest first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.errors import DataError, StateError, UsageError, printable
from ..base.reporting import Reporter
from ..disk.digests import XXH3, digest_file
from ..disk.engines.job import SourceFile
from ..disk.exports.dali_wds import OPTION, VERSIONS
from ..disk.files import fsync_folder, publish, read_small, remove
from ..disk.indexfile import MAGIC
from ..disk.journal import FOLDER, Journal
from ..disk.keycheck import check_keys, windows_of
from ..disk.runners import Advance, run_tasks
from ..disk.sourceindex import source_columns, write_source_index
from ..disk.sources import Input, Inputs, SourceOptions, resolve
from ..layout.index import Index
from ..layout.keys import KEEP, NONE
from ..layout.manifest import Manifest, Receipt, dumps
from ..layout.order import SOURCE
from ..layout.rules import Rules
from ..version import VERSION
from .export import Staged, check_names, digests_of, place, refuse_others, resolve_exports, stage_exports
from .host import default_jobs, default_memory
from .options import check_idx_version, public_rules
from .scan import Scan, scan_inputs
from .summary import field_sets, fields_of, labels_of, source_fingerprint, tfrecord_fields_sample

MANIFEST = "manifest.json"
# In the work folder: what is about to be removed and to appear.
PLACING = b"placing.json"
ALGORITHMS = ("md5", "sha256")


@dataclass(frozen=True)
class ManifestOptions:
    """Names are those of the command line (docs/cli.md).

    exports    kinds of index files for other loaders
    dali_idx_version  of the export dali-wds: '1.2', '1.1', or None: as the manifest says, else 1.2
    digests    algorithms besides xxh3-128
    jobs       processes; None: the cores this process may use
    overwrite  replace the manifest of a repack, and files of other content that have the names of exports
    """

    exports: tuple[str, ...] = ()
    dali_idx_version: str | None = None
    digests: tuple[str, ...] = ()
    jobs: int | None = None
    overwrite: bool = False
    source: SourceOptions = field(default_factory=SourceOptions)
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs} is less than 1")
        for algorithm in self.digests:
            if algorithm not in ALGORITHMS:
                raise UsageError(f"--digest {algorithm!r} is none of {', '.join(ALGORITHMS)}")
        if self.dali_idx_version is not None:
            check_idx_version(self.dali_idx_version)


@dataclass(frozen=True)
class ManifestResult:
    """What was written.

    path      of the manifest, as it was given
    written   whether the manifest itself was written
    folder    of the exports, as it was given
    exports   kind -> names below `folder`, of this run
    """

    path: str
    manifest: Manifest
    written: bool
    folder: str
    exports: Mapping[str, tuple[str, ...]]
    seconds: float
    warnings: tuple[str, ...]


def write_manifest(
    sources: Sequence[str],
    path: str,
    options: ManifestOptions | None = None,
    *,
    reporter: Reporter | None = None,
) -> ManifestResult:
    """Index the shards `sources`, which stay as they are, and write the manifest `path`.

    The shards must lie in or below the manifest's folder: it names them relative to itself.

    Raises UsageError, DataError, StateError or HostError; there is then no new manifest.
    """
    options, reporter = options or ManifestOptions(), reporter or Reporter()
    started = time.monotonic()
    target = _Target.of(path)
    inputs = resolve(sources, options.source, options.rules)
    _refuse_no_shards(inputs)
    names = shard_names(inputs, target.folder)
    exports = resolve_exports(options.exports, inputs.format)
    old = target.old(options.overwrite)
    if old is not None:
        _disregard(inputs, {target.path, *(os.path.join(target.folder, n.encode()) for n in _listed(old))})
    scan = scan_inputs(
        inputs, options.rules, jobs=options.jobs or default_jobs(), check_payload=True, reporter=reporter
    )
    index = replace(
        scan.index,
        sources=tuple(replace(s, name=n.encode()) for s, n in zip(scan.index.sources, names, strict=True)),
    )
    run = _Run(target, replace(options, exports=exports), replace(scan, index=index), names, reporter)
    with _work_folder(target.folder) as work:
        manifest = run.carry_out(work)
    return ManifestResult(
        path, manifest, True, os.path.dirname(path) or ".", manifest.exports,
        time.monotonic() - started, tuple(reporter.warnings),
    )  # fmt: skip


def add_exports(
    path: str, options: ManifestOptions, *, folder: str | None = None, reporter: Reporter | None = None
) -> ManifestResult:
    """Write exports of the manifest `path`: beside its shards, and then the manifest lists them; or into
    `folder`, and then nothing else is written. Digests that the manifest lacks are computed.

    Raises UsageError, DataError (a shard is not what the manifest says), StateError or HostError.
    """
    reporter, started = reporter or Reporter(), time.monotonic()
    home = _Target.of(path)
    beside = folder is None or os.path.realpath(os.fsencode(folder)) == os.path.realpath(home.folder)
    target = home.folder if beside or folder is None else os.path.abspath(os.fsencode(folder))
    if not beside:
        os.makedirs(target, exist_ok=True)
    with _work_folder(target) as work:
        manifest = home.read()
        kinds = resolve_exports(options.exports, manifest.format)
        algorithms = digests_of(kinds) | set(options.digests)
        # An export beside the shards is made again from the manifest by `verify`, so the manifest has to say how.
        if options.dali_idx_version is not None and "dali-wds" in kinds:
            manifest = replace(manifest, options={**manifest.options, OPTION: options.dali_idx_version})
        manifest = _with_digests(manifest, home.folder, algorithms, options, reporter)
        staged = stage_exports(manifest, kinds, reporter, work=work, target=target, folder=home.folder)
        ours = {name for names in manifest.exports.values() for name in names} if beside else set()
        if not options.overwrite:
            _refuse_foreign(staged, target, ours)
        place(staged.files)
        if beside:
            warnings = tuple(dict.fromkeys([*manifest.warnings, *reporter.warnings]))
            manifest = replace(manifest, exports={**manifest.exports, **staged.names}, warnings=warnings)
            _publish(manifest, home.path, work)
    return ManifestResult(
        path, manifest, beside, os.path.dirname(path) or "." if folder is None else folder, staged.names,
        time.monotonic() - started, tuple(reporter.warnings),
    )  # fmt: skip


def _disregard(inputs: Inputs, own: set[bytes]) -> None:
    """Take files of the manifest that will be replaced out of those that were ignored: else the second run would
    say something else than the first."""
    folders = set(inputs.folders)
    there = {path for path in own if os.path.dirname(path) in folders and os.path.isfile(path)}
    findings = inputs.findings
    left = findings.ignored.pop("files", 0) - len(there)
    names = [n for n in findings.examples.pop("files", []) if os.path.join(inputs.base, n) not in there]
    if left > 0:
        findings.ignored["files"], findings.examples["files"] = left, names


def is_manifest(path: str) -> bool:
    """Whether `path` is a manifest of ours."""
    try:
        Manifest.from_json(read_small(os.fsencode(path)).decode("ascii"))
    except (OSError, UnicodeDecodeError, DataError):
        return False
    return True


def _refuse_no_shards(inputs: Inputs) -> None:
    """Offsets and indexes are places in a shard; loaders cannot start inside a compressed one."""
    for file in inputs.files:
        if file.files is not None:
            raise UsageError(
                "a manifest lists shards, this is a folder of sample files", file=file.path,
                remedy="pack them with `shardtool repack`, which writes a manifest",
            )  # fmt: skip
    for number in inputs.compressed:
        raise UsageError(
            f"a manifest lists shards that can be read by position, this is {inputs.files[number].compression} data",
            file=inputs.files[number].path, remedy="decompress it first, or write new shards with `shardtool repack`",
        )  # fmt: skip


def shard_names(inputs: Inputs, folder: bytes) -> tuple[str, ...]:
    """Names of the shards relative to `folder`. UsageError for one outside of it or with a name not in UTF-8."""
    names = []
    for file in inputs.files:
        name = _below(folder, file.path)
        if name is None:
            better = os.path.join(inputs.base, MANIFEST.encode())
            raise UsageError(
                "a shard lies outside the folder of the manifest, which names shards relative to itself",
                file=file.path, why=f"the manifest is to be in {printable(folder)}",
                remedy=f"write it to {printable(better)}; where that cannot be written, link the folder of the "
                "shards into that of the manifest and give the link as SRC",
            )  # fmt: skip
        try:
            names.append(name.decode("utf-8"))
        except UnicodeDecodeError:
            raise UsageError(
                "the name of a shard is no UTF-8, so the manifest cannot hold it", file=file.path,
                remedy="rename the shard",
            ) from None  # fmt: skip
    return tuple(names)


def _below(folder: bytes, path: bytes) -> bytes | None:
    """`path` relative to `folder`, or None when it lies outside. Links below the folder stay."""
    shard_folder, base = os.path.split(path)
    ways = [(folder, path), (os.path.realpath(folder), os.path.join(os.path.realpath(shard_folder), base))]
    for start, way in ways:
        prefix = os.path.join(start, b"")
        if way.startswith(prefix):
            return way[len(prefix) :]
    return None


@dataclass(frozen=True)
class _Target:
    """Where a manifest is or will be. index_folder: name of the folder of its index files beside it."""

    path: bytes
    folder: bytes
    index_folder: str

    @classmethod
    def of(cls, path: str) -> _Target:
        absolute = os.path.abspath(os.fsencode(path))
        if os.path.isdir(absolute):
            raise UsageError(
                "the manifest would be a folder", file=path, remedy=f"write {os.path.join(path, MANIFEST)}"
            )
        name = os.fsdecode(os.path.basename(absolute))
        # Two manifests in one folder may index the same shard differently.
        index_folder = "index" if name == MANIFEST else f"{name.removesuffix('.json')}.index"
        return cls(absolute, os.path.dirname(absolute), index_folder)

    def read(self) -> Manifest:
        """The manifest that is there."""
        try:
            text = read_small(self.path).decode("ascii")
        except UnicodeDecodeError as error:
            raise DataError("this is no manifest of shardtool", file=self.path, why=str(error)) from None
        except FileNotFoundError:
            raise UsageError("there is no such manifest", file=self.path) from None
        return Manifest.from_json(text, file=self.path)

    def old(self, overwrite: bool) -> Manifest | None:
        """The manifest that a new one would replace, or None; StateError where that may not be."""
        if not os.path.lexists(self.path):
            return None
        try:
            manifest = self.read()
        except DataError as error:
            raise StateError(
                "a file that is no manifest has the manifest's name", file=self.path, why=error.what,
                remedy="move it away, or choose another name with -o",
            ) from None  # fmt: skip
        # Only a repack has a seed; what made its shards cannot be found out again.
        if manifest.seed is not None and not overwrite:
            raise StateError(
                "the manifest of a repack would be lost", file=self.path,
                why="it says how the shards were made, a new one could not",
                remedy="choose another name with -o, add --export to it without SRC, or give --overwrite",
            )  # fmt: skip
        return manifest


@contextmanager
def _work_folder(folder: bytes) -> Iterator[bytes]:
    """Hold the lock of `folder` and a folder for temporary files in it, which is removed at the end."""
    journal = Journal(folder)
    with journal.locked():
        if journal.read_run() is not None:
            raise StateError(
                "an unfinished repack is in this folder", file=os.path.join(folder, FOLDER),
                remedy="finish it first: run it again with the same arguments",
            )  # fmt: skip
        try:
            yield journal.folder
        finally:
            journal.remove()


@dataclass(frozen=True)
class _Run:
    """Manifest and index of shards that were scanned. `scan.index` names sources as the manifest will."""

    target: _Target
    options: ManifestOptions
    scan: Scan
    names: tuple[str, ...]
    reporter: Reporter

    def carry_out(self, work: bytes) -> Manifest:
        """With the lock held: index, exports, manifest."""
        folder, index = self.target.folder, self.scan.index
        old = self.target.old(self.options.overwrite)
        columns = source_columns(index)
        manifest = self.manifest(columns, work)
        self._check_names(manifest)  # before the long part
        receipts = self.receipts(columns, work)
        manifest = replace(manifest, shards=tuple(receipts))
        exports = stage_exports(
            manifest, self.options.exports, self.reporter, work=work, target=folder, folder=folder,
            index_path=lambda receipt: _staged_index(work, receipt.shard),
        )  # fmt: skip
        indexes = [(_staged_index(work, r.shard), os.path.join(folder, r.index.encode())) for r in receipts]
        ours = self._left_over(work) | (_listed(old) if old is not None else set())
        if not self.options.overwrite:
            refuse_others((a, b) for a, b in indexes if not _is_index(b))
            _refuse_foreign(exports, folder, ours)
        names = {receipt.index for receipt in receipts}.union(*exports.names.values())
        facts = {"manifest": printable(self.target.path), "files": sorted(ours | names)}
        publish(os.path.join(work, b"placing.tmp"), os.path.join(work, PLACING), [dumps(facts).encode("ascii")])
        self._remove(ours)
        place(indexes)
        place(exports.files)
        manifest = replace(manifest, exports=exports.names, warnings=tuple(self.reporter.warnings))
        _publish(manifest, self.target.path, work)
        return manifest

    def _check_names(self, manifest: Manifest) -> None:
        """UsageError when two files would have one name."""
        own = os.path.basename(self.target.path)
        made = check_names(manifest, self.options.exports)
        if any(os.fsencode(name) == own for names in made.values() for name in names):
            raise UsageError("the manifest and an export would have the same name", file=self.target.path)

    def _expected(self, shard: int) -> Receipt:
        """The receipt of a shard before its digests are known."""
        source = self.scan.index.sources[shard]
        name = self.names[shard]
        return Receipt(
            shard, name, source.samples, source.bytes, "", {}, f"{self.target.index_folder}/{name}.index"
        )  # fmt: skip

    def receipts(self, columns: Mapping[str, str], work: bytes) -> list[Receipt]:
        """Read every shard for its digests, and write its index under a temporary name."""
        files = self.scan.inputs.files
        algorithms = tuple(sorted({*self.options.digests, *digests_of(self.options.exports)}))
        receipts: dict[int, Receipt] = {}

        def one(shard: int, advance: Advance) -> Receipt:
            digests = digest_file(_source_file(files[shard]), algorithms, advance)
            staged = _staged_index(work, shard)
            write_source_index(self.scan.index, shard, columns, self.names[shard], staged + b".tmp", staged)
            return replace(self._expected(shard), digest=f"{XXH3}:{digests.pop(XXH3)}", digests=digests)

        self.reporter.stage("digest", sum(file.size for file in files), "B")
        jobs = self.options.jobs or default_jobs()
        for shard, receipt in run_tasks(one, range(len(files)), jobs, self.reporter.advance):
            receipts[shard] = receipt
        self.reporter.finish()
        return [receipts[shard] for shard in range(len(files))]

    def manifest(self, columns: Mapping[str, str], work: bytes) -> Manifest:
        """The manifest, yet without digests and exports."""
        index, findings = self.scan.index, self.scan.findings
        receipts = [self._expected(shard) for shard in range(len(self.names))]
        return Manifest(
            version=VERSION, format=self.scan.format, samples=index.samples,
            bytes=sum(receipt.bytes for receipt in receipts), seed=None, order=SOURCE, shards_requested=None,
            shards=tuple(receipts), index=dict(columns), sources=index.sources,
            source_fingerprint=source_fingerprint(index.sources), sample_digest_sum=None, keys=_keys(index, work),
            fields=self._fields(), field_sets=field_sets(index),
            classes=index.classes if index.label is not None else None,
            labels=labels_of(index, self.options.rules.label), options=self._public(),
            ignored=dict(findings.ignored), dropped=dict(findings.dropped), renamed={"keys": 0},
            warnings=tuple(self.reporter.warnings),
        )  # fmt: skip

    def _fields(self) -> Mapping[str, Mapping[str, Any]]:
        if self.scan.format == "tfrecord":
            return tfrecord_fields_sample([file.path for file in self.scan.inputs.files], self.scan.index)
        return fields_of(self.scan.index)

    def _public(self) -> dict[str, Any]:
        """All options that decide what the manifest says."""
        options = self.options
        return {
            "digests": sorted(options.digests), "exports": sorted(options.exports),
            OPTION: options.dali_idx_version or VERSIONS[0],
            "label_from": options.source.label_from, "from": options.source.from_,
            "allow_incomplete": options.source.allow_incomplete, **public_rules(options.rules),
        }  # fmt: skip

    def _left_over(self, work: bytes) -> set[str]:
        """Files that a run for the same manifest was giving their names when it was killed."""
        try:
            facts = json.loads(read_small(os.path.join(work, PLACING)))
        except (FileNotFoundError, ValueError):
            return set()
        return set(facts["files"]) if facts["manifest"] == printable(self.target.path) else set()

    def _remove(self, listed: set[str]) -> None:
        """The old manifest, then these files of ours."""
        folder = self.target.folder
        remove(self.target.path)
        fsync_folder(folder)
        for name in sorted(listed):
            remove(os.path.join(folder, name.encode()))


def _staged_index(work: bytes, shard: int) -> bytes:
    return os.path.join(work, b"index-%06d" % shard)


def _source_file(file: Input) -> SourceFile:
    return SourceFile(file.path, file.name, file.size, file.mtime_ns, file.inode)


def _keys(index: Index, work: bytes) -> dict[str, Any]:
    if index.keys is None:
        return {"mode": NONE, "unique": None}
    found = check_keys(windows_of(index.keys), default_memory() // 8, work, fold_case=False)
    return {"mode": KEEP, "unique": found.repeated is None}


def _listed(manifest: Manifest) -> set[str]:
    """Index and export files that a manifest lists, if below its folder: a manifest is input too."""
    names = {receipt.index for receipt in manifest.shards}
    names.update(name for files in manifest.exports.values() for name in files)
    shards = {receipt.name for receipt in manifest.shards}
    return {n for n in names if n not in shards and not n.startswith("/") and ".." not in n.split("/")}


def _is_index(path: bytes) -> bool:
    """Whether an index file of ours stands there."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _refuse_foreign(staged: Staged, folder: bytes, ours: set[str]) -> None:
    """StateError when an export would replace a file that is not ours."""
    known = {os.path.join(folder, name.encode()) for name in ours}
    refuse_others((temporary, final) for temporary, final in staged.files if final not in known)


def _publish(manifest: Manifest, path: bytes, work: bytes) -> None:
    publish(os.path.join(work, b"manifest.tmp"), path, [manifest.to_json().encode("ascii")])


def _with_digests(
    manifest: Manifest, folder: bytes, algorithms: set[str], options: ManifestOptions, reporter: Reporter
) -> Manifest:
    """The manifest with these digests of every shard. DataError when a shard is not what it says."""
    files = [_present(receipt, folder) for receipt in manifest.shards]
    receipts = list(manifest.shards)
    missing = [r.shard for r in receipts if not algorithms <= set(r.digests)]

    def one(shard: int, advance: Advance) -> Receipt:
        receipt = manifest.shards[shard]
        digests = digest_file(files[shard], tuple(sorted(algorithms)), advance)
        if f"{XXH3}:{digests.pop(XXH3)}" != receipt.digest:
            raise DataError(
                "a shard is not what the manifest says: its digest is another", file=files[shard].path,
                remedy="find out what changed it; `shardtool manifest SRC...` describes the shards as they are",
            )  # fmt: skip
        return replace(receipt, digests={**receipt.digests, **digests})

    if missing:
        reporter.stage("digest", sum(files[shard].size for shard in missing), "B")
        for shard, receipt in run_tasks(one, missing, options.jobs or default_jobs(), reporter.advance):
            receipts[shard] = receipt
        reporter.finish()
    return replace(manifest, shards=tuple(receipts))


def _present(receipt: Receipt, folder: bytes) -> SourceFile:
    """The shard on disk; DataError when it is missing or has another size than the manifest says."""
    path = os.path.join(folder, os.fsencode(receipt.name))
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise DataError("a shard that the manifest lists is missing", file=path) from None
    if found.st_size != receipt.bytes:
        raise DataError(
            f"a shard has {found.st_size:,} bytes, the manifest says {receipt.bytes:,}", file=path,
            remedy="`shardtool manifest SRC...` describes the shards as they are now",
        )  # fmt: skip
    return SourceFile(path, os.fsencode(receipt.name), found.st_size, found.st_mtime_ns, found.st_ino)
