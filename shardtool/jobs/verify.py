"""verify: is what is on disk what the manifest says, and whole? docs/verify.md says what is covered and what not."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..base.cuts import floor_sizes
from ..base.errors import DataError, UsageError, printable
from ..base.keyhash import hash128
from ..base.ragged import Ragged
from ..base.reporting import Reporter
from ..disk.claims import claims, is_junk
from ..disk.content import content_of, scan_content
from ..disk.exports import EXPORTS
from ..disk.exports.dali_wds import OPTION, VERSIONS
from ..disk.files import absent, is_file, naming, read_small
from ..disk.indexfile import ShardIndex
from ..disk.journal import FOLDER as WORK_FOLDER
from ..disk.keycheck import KeyHashes, rows_of
from ..disk.readers import READERS
from ..disk.runners import Advance, run_tasks
from ..disk.sources import Input, SourceOptions, resolve
from ..layout.keys import KEEP, NONE, ORDINAL, SOURCE
from ..layout.layout import shard_names
from ..layout.manifest import Manifest, Receipt, public_name
from ..layout.multiset import MODULUS, show_sum
from ..layout.order import SHUFFLE
from ..layout.rules import Rules
from ..version import VERSION
from .compare import Side, converted_sides, converts, difference, multiset, same_format
from .host import default_memory
from .options import RepackOptions
from .recorded import merged, recorded_rules, recorded_source, shard_rules
from .summary import source_fingerprint
from .verify_shard import MOST, Checked, Finding, FindingList, Task, check_reader

MANIFEST = "manifest.json"

# Values that options of a manifest can have.
CHOICES: dict[str, tuple[Any, ...]] = {
    "on_corrupt": ("error", "skip", "resync"), "on_duplicate": ("error", "first", "last"),
    "on_unsafe_name": ("error", "skip"), "group": ("adjacent", "archive"),
    "keys": ("auto", *sorted({KEEP, SOURCE, ORDINAL})), "from": (None, "tar", "tfrecord", "folder"),
    "label_from": (None, "dir"), OPTION: VERSIONS, "balance": ("samples", "bytes"),
    "records": ("auto", "example", "raw"),
    **dict.fromkeys(
        ("ignore_zeros", "ignore_trailing", "allow_case_collision", "allow_incomplete", "strict", "verify"),
        (False, True),
    ),
}  # fmt: skip
KEY_MODES = (KEEP, SOURCE, ORDINAL, NONE)


@dataclass(frozen=True)
class VerifyOptions:
    """Names are those of the command line.

    against  another source that must hold the same multiset of samples
    readers  names from READERS
    jobs     processes
    source, rules  how SRC and --against are read; what a manifest records is added to it
    """

    against: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    jobs: int = 1
    source: SourceOptions = field(default_factory=SourceOptions)
    rules: Rules = field(default_factory=Rules)


@dataclass
class Report:
    """What was found.

    manifest  path of the manifest, or None
    findings  the first 20; findings_total counts all
    notes     odd, but no finding
    readers   name -> {"release", "samples", "differences"}
    against   {"sources", "samples", "equal", "missing", "extra", "sum"}, or None
    """

    manifest: str | None
    shards: int = 0
    samples: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_total: int = 0
    notes: list[str] = field(default_factory=list)
    readers: dict[str, dict[str, Any]] = field(default_factory=dict)
    against: dict[str, Any] | None = None
    sample_digest_sum: str | None = None
    seconds: float = 0.0

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {**asdict(self), "findings": [asdict(finding) for finding in self.findings]}


def verify(sources: Sequence[str], options: VerifyOptions | None = None, reporter: Reporter | None = None) -> Report:
    """Check a manifest and everything it lists, or shards that have none.

    Raises UsageError (no such file, unknown reader), DataError (SRC or --against cannot be read as a set of shards).
    Anything wrong with what is checked is a finding in the report, no exception.
    """
    options, reporter = options or VerifyOptions(), reporter or Reporter()
    started = time.monotonic()
    path = manifest_of(sources)
    work = _Bare(sources, options, reporter) if path is None else _Listed(path, options, reporter)
    work.run()
    report, found = work.report, work.findings
    report.findings, report.findings_total = found.items, found.total
    report.seconds = time.monotonic() - started
    return report


def manifest_of(sources: Sequence[str]) -> str | None:
    """Path of the manifest when SRC is one: a JSON file, or a folder that holds ours."""
    if len(sources) != 1:
        return None
    path = sources[0]
    if os.path.isdir(path):
        inner = os.path.join(path, MANIFEST)
        return inner if os.path.isfile(inner) and _mentions_us(inner) else None
    if os.path.isfile(path) and (os.path.basename(path) == MANIFEST or path.endswith(".json")):
        return path
    return None


def _mentions_us(path: str) -> bool:
    with open(path, "rb") as file, naming(os.fsencode(path)):
        return b"shardtool" in file.read()


class _Work:
    """What a check with and one without a manifest share."""

    def __init__(self, options: VerifyOptions, reporter: Reporter, manifest: str | None) -> None:
        self.options, self.reporter = options, reporter
        self.report = Report(manifest)
        self.findings = FindingList(most=MOST)

    def _readers(self, format: str) -> tuple[str, ...]:
        """Those of --reader that read this format. UsageError for an unknown, a missing, or no fitting one."""
        usable = []
        for name in self.options.readers:
            reader = READERS.get(name)
            if reader is None:
                raise UsageError(f"--reader {name!r} is none of {', '.join(sorted(READERS))}")
            if reader.missing:
                package = reader.missing[0]
                raise UsageError(
                    f"--reader {name}: the package {package} is not installed",
                    remedy=f"pip install {reader.install[0] if package == reader.packages[0] else package}",
                )
            for other in reader.not_with:
                if other in self.options.readers:
                    raise UsageError(
                        f"--reader {name} and {other} cannot be loaded into one process",
                        why="both define the same messages of protobuf", remedy="run verify once with each",
                    )  # fmt: skip
            if format in reader.formats:
                usable.append(name)
            else:
                self.note(f"--reader {name} reads {' and '.join(reader.formats)}, not {format}: left out")
        if self.options.readers and not usable:
            raise UsageError(
                f"no --reader of {', '.join(self.options.readers)} reads {format} shards",
                remedy=f"name one of {', '.join(n for n, r in sorted(READERS.items()) if format in r.formats)}",
            )
        for name in usable:
            self.report.readers[name] = {"release": READERS[name].release, "samples": 0, "differences": 0}
        return tuple(usable)

    def note(self, text: str) -> None:
        """Odd, but no finding."""
        self.report.notes.append(text)
        self.reporter.note(f"Note: {text}")

    def take(self, checked: Checked) -> None:
        """Counts of one shard."""
        self.findings.take(checked.findings)
        for text in checked.notes:
            self.note(text)
        self.report.shards += 1
        self.report.samples += checked.samples
        self.report.bytes += checked.bytes
        for name, (samples, differ) in checked.readers.items():
            self.report.readers[name]["samples"] += samples
            self.report.readers[name]["differences"] += differ

    def compare(
        self, ours: Side, source: SourceOptions, rules: Rules, whole: tuple[int, int] | None,
        manifest: Manifest | None = None,
    ) -> None:  # fmt: skip
        """--against. `whole`: sum and count of our side where they are known; `manifest`: may record a conversion."""
        inputs = resolve(self.options.against, source, rules)
        theirs = Side(inputs.files, rules)
        if manifest is not None and converts(manifest, inputs.format):
            ours, theirs = converted_sides(ours, inputs, rules, manifest, self.options.jobs, self.reporter)
            whole = None
        else:
            same_format(ours.files, inputs.files)
        jobs, reporter = self.options.jobs, self.reporter
        total, samples = whole or multiset(ours, jobs, reporter, "compare: ours")
        other, other_samples = multiset(theirs, jobs, reporter, "compare: theirs")
        equal = total == other and samples == other_samples
        self.report.sample_digest_sum = show_sum(total)
        self.report.against = {
            "sources": len(inputs.files), "samples": other_samples, "equal": equal, "missing": 0, "extra": 0,
            "sum": show_sum(other),
        }  # fmt: skip
        if not equal:
            self._differ(ours, theirs, samples, other_samples)

    def _differ(self, ours: Side, theirs: Side, samples: int, other_samples: int) -> None:
        found = difference(ours, theirs, self.options.jobs, self.reporter)
        assert self.report.against is not None
        self.report.against.update(missing=found.missing, extra=found.extra)
        self.findings.add(
            self.report.manifest or "SRC", "the samples are not those of --against",
            why=f"{samples:,} samples here, {other_samples:,} there; {found.missing:,} of theirs are missing, "
            f"{found.extra:,} are extra",
        )  # fmt: skip
        for file, offset, name in found.some_missing:
            self.findings.add(file, "a sample of --against is missing", offset=offset, member=name)
        for file, offset, name in found.some_extra:
            self.findings.add(file, "a sample that --against does not have", offset=offset, member=name)


class _Bare(_Work):
    """Shards without a manifest: structure, checksums, and what was asked for."""

    def __init__(self, sources: Sequence[str], options: VerifyOptions, reporter: Reporter) -> None:
        super().__init__(options, reporter, None)
        # Damage of one file must not keep the others from being checked: here no file is refused for its content.
        found = resolve(sources, options.source, replace(options.rules, on_corrupt="resync"))
        self.files = found.files
        for text in [*found.findings.warnings, *found.findings.sentences()]:
            self.note(text)
        for reason, count in found.findings.dropped.items():
            self.findings.add("SRC", f"{count:,} {reason.replace('_', ' ')}", why="; ".join(found.findings.warnings))

    def run(self) -> None:
        """Check all files."""
        readers = self._readers(self.files[0].format)

        def one(number: int, advance: Advance) -> Checked:
            checked = self._check(self.files[number], readers)
            advance(self.files[number].size)
            return checked

        self.reporter.stage("verify", sum(file.size for file in self.files), "B")
        for _, checked in sorted(run_tasks(one, range(len(self.files)), self.options.jobs, self.reporter.advance)):
            self.take(checked)
        self.reporter.finish()
        if self.options.against and not self.findings.total:
            side = Side(self.files, self.options.rules, payload_checked=True)
            self.compare(side, self.options.source, self.options.rules, None)
        elif self.options.against:
            self.note("--against was not compared: the shards are damaged")

    def _check(self, file: Input, readers: tuple[str, ...]) -> Checked:
        name, checked = printable(file.name), Checked(bytes=file.size)
        try:
            content = content_of(file, self.options.rules)
            scanned = scan_content(file, content, self.options.rules, check_payload=True)
        except DataError as error:
            checked.findings.put(Finding.of(error, name))
            return checked
        checked.samples = scanned.samples
        checked.notes = [*scanned.findings.warnings, *scanned.findings.sentences()]
        if file.files is not None:
            checked.notes.append(f"{name}: sample files have no checksums, only their names were checked")
        for reason, count in scanned.findings.dropped.items():
            checked.findings.add(name, f"{count:,} {reason.replace('_', ' ')} dropped for damage")
        if readers and file.compression:
            checked.notes.append(f"{name} is compressed: it was not opened with {', '.join(readers)}")
            readers = ()
        for reader in readers:
            checked.readers[reader] = check_reader(reader, file.path, name, scanned, checked.findings)
        return checked


class _Listed(_Work):
    """A manifest and all that it lists."""

    def __init__(self, path: str, options: VerifyOptions, reporter: Reporter) -> None:
        super().__init__(options, reporter, path)
        self.path = path
        self.folder = os.path.dirname(os.path.abspath(os.fsencode(path)))
        self.name = os.path.basename(path)
        self.hashes = KeyHashes(default_memory() // 8, most=10 * MOST)

    def run(self) -> None:
        """Check everything."""
        manifest = self._read()
        if manifest is None:
            return
        readers = self._readers(manifest.format)
        self._about(manifest)
        with self.hashes:
            checked = self._shards(manifest, readers)
            self._together(manifest, checked)
        self._exports(manifest)
        self._folder(manifest)
        if self.options.against:
            self._against(manifest, checked)

    # -- the manifest -----------------------------------------------------------------------------------------

    def _read(self) -> Manifest | None:
        """The manifest, or None with a finding."""
        data = read_small(os.fsencode(self.path))
        try:
            text = data.decode("ascii")
            manifest = Manifest.from_json(text, file=self.name)
            same = manifest.to_json() == text
        except UnicodeDecodeError as error:
            self.findings.add(self.name, "the manifest is damaged: it is no ASCII", offset=error.start)
            return None
        except DataError as error:
            self.findings.put(Finding.of(error, self.name))
            return None
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            self.findings.add(self.name, "the manifest is damaged", why=str(error))
            return None
        if not same:
            self.findings.add(self.name, "the manifest is not in the form in which it is written", why="was it edited?")
        bad = [r.name for r in manifest.shards if not _inside(r.name) or not _inside(r.index)]
        bad += [name for files in manifest.exports.values() for name in files if not _inside(name)]
        if bad:
            self.findings.add(self.name, "the manifest names a file outside its folder", member=printable(bad[0]))
            return None
        return manifest

    def _about(self, manifest: Manifest) -> None:
        """What the manifest says twice, or could not say of any run."""
        add = self.findings.add
        if manifest.format not in ("tar", "tfrecord"):
            add(self.name, f"unknown format {manifest.format!r}")
        if manifest.bytes != sum(r.bytes for r in manifest.shards):
            add(self.name, f'"bytes" is {manifest.bytes:,}, the shards have {sum(r.bytes for r in manifest.shards):,}')
        for name, count in Counter(r.name for r in manifest.shards).items():
            if count > 1:
                add(self.name, "a shard is listed twice", member=printable(name))
        if not manifest.shards:
            add(self.name, "no shards are listed")
        held = sum(source.samples for source in manifest.sources)
        if held != manifest.samples:
            add(self.name, f"the sources have {held:,} samples, the shards {manifest.samples:,}")
        if manifest.source_fingerprint != source_fingerprint(manifest.sources):
            add(self.name, '"source_fingerprint" is not that of "sources"')
        if manifest.order not in (SHUFFLE, "source"):
            add(self.name, f"unknown order {manifest.order!r}")
        if manifest.order == SHUFFLE:
            if manifest.seed is None:
                add(self.name, f'order {SHUFFLE} needs a "seed"')
            by_count = manifest.options.get("balance", "samples") == "samples"
            if by_count and manifest.shards and not np.array_equal(
                manifest.shard_samples, floor_sizes(manifest.samples, len(manifest.shards))
            ):
                add(self.name, "the samples of the shards are not those of the floor cut, floor(k * n / N)")

        self._about_options(manifest)

    def _about_options(self, manifest: Manifest) -> None:
        """ "options" against what came of them. Keys are compared when this very release wrote the manifest."""
        add, options = self.findings.add, manifest.options
        made: dict[str, Any] = {
            "seed": manifest.seed,
            "order": "shuffle" if manifest.order == SHUFFLE else manifest.order,
            "format": manifest.format,
            "shards": manifest.shards_requested,
            "label": manifest.labels.get("field") if manifest.labels else None,
        }
        if options.get("label_from") and options.get("label") is None:
            made["label"] = None  # folder names are the labels
        for name, value in made.items():
            if name in options and options[name] != value:
                add(self.name, f'"options" says {name} {options[name]!r}, the rest of the manifest {value!r}')
        # Exports and digests can be added later, so there may be more of them than the run was asked for.
        there = {"exports": set(manifest.exports), "digests": {d for r in manifest.shards for d in r.digests}}
        for name, values in there.items():
            if not set(options.get(name) or ()) <= values:
                add(self.name, f'"options" says {name} {options[name]!r}, the rest of the manifest {sorted(values)!r}')
        for name, known in CHOICES.items():
            if name in options and options[name] not in known:
                add(self.name, f'"options" says {name} {options[name]!r}', why=f"it is one of {known}")
        if manifest.keys.get("mode") not in KEY_MODES:
            add(self.name, f'"keys" has the unknown mode {manifest.keys.get("mode")!r}')
        if manifest.version != VERSION:
            self.note(f"the manifest was written by shardtool {manifest.version}, this is {VERSION}")
            return
        expected = {"keys": {"mode", "unique"}, "renamed": {"keys"}}
        found = {"keys": set(manifest.keys), "renamed": set(manifest.renamed) - {"fields", "types"}}
        if manifest.seed is not None:
            expected["options"], found["options"] = set(RepackOptions().public()), set(options)
            self._about_names(manifest)
        for name, keys in expected.items():
            if found[name] != keys:
                odd = ", ".join(sorted(found[name] ^ keys))
                add(self.name, f'"{name}" has not the keys that shardtool {VERSION} writes', why=odd)

    def _about_names(self, manifest: Manifest) -> None:
        """Names of shards and count of renamed keys, which a repack makes by rule."""
        if manifest.format in ("tar", "tfrecord"):
            names = shard_names(str(manifest.options.get("name")), manifest.format, len(manifest.shards))
            if names != tuple(receipt.name for receipt in manifest.shards):
                self.findings.add(self.name, '"options" says another name than the shards have')
        renamed = 0 if manifest.keys.get("mode") in (KEEP, NONE) else manifest.samples
        if manifest.renamed.get("keys") != renamed:
            self.findings.add(self.name, f'"renamed" does not say that {renamed:,} samples have another key')

    # -- shards -----------------------------------------------------------------------------------------------

    def _shards(self, manifest: Manifest, readers: tuple[str, ...]) -> list[Checked]:
        if manifest.format not in ("tar", "tfrecord"):
            return []
        position = np.concatenate([np.zeros(1, np.int64), np.cumsum(manifest.shard_samples)])
        task = Task(
            self.folder, manifest, shard_rules(manifest), position, readers,
            digest_sum=manifest.sample_digest_sum is not None or bool(self.options.against),
        )  # fmt: skip

        def one(number: int, advance: Advance) -> Checked:
            checked = task.check(number)
            advance(manifest.shards[number].bytes)
            return checked

        # the largest first, so that the last task to finish is a short one
        numbers = sorted(range(len(manifest.shards)), key=lambda k: (-manifest.shards[k].bytes, k))
        self.reporter.stage("verify", manifest.bytes, "B")
        found = {}
        for number, one_shard in run_tasks(one, numbers, self.options.jobs, self.reporter.advance):
            if one_shard.key_hashes is not None:
                self.hashes.add(one_shard.key_hashes)
                one_shard.key_hashes = None
            found[number] = one_shard
        self.reporter.finish()
        checked = [found[number] for number in range(len(manifest.shards))]
        for one_shard in checked:
            self.take(one_shard)
        return checked

    def _together(self, manifest: Manifest, checked: list[Checked]) -> None:
        """What no shard can say alone."""
        if not checked:
            return
        if manifest.order == SHUFFLE:
            self._neighbours(manifest, checked)
        self._unique_keys(manifest)
        self._labels(manifest, checked)
        if manifest.sample_digest_sum is not None and checked and all(c.digest_sum is not None for c in checked):
            total = sum(c.digest_sum or 0 for c in checked) % MODULUS
            self.report.sample_digest_sum = show_sum(total)
            if show_sum(total) != manifest.sample_digest_sum:
                self.findings.add(self.name, '"sample_digest_sum" is not that of the samples', why=show_sum(total))
        if manifest.format == "tar" and all(c.fields is not None for c in checked):
            fields = _merged_fields(c.fields or {} for c in checked)
            if manifest.fields != fields:
                self.findings.add(
                    self.name, '"fields" is not what the shards hold', why=_difference(manifest.fields, fields)
                )
            sets: Counter[str] = Counter()
            for one in checked:
                sets.update(one.field_sets or {})
            if manifest.field_sets is not None and manifest.field_sets != dict(sets):
                self.findings.add(
                    self.name, '"field_sets" is not what the shards hold', why=_difference(manifest.field_sets, sets)
                )

    def _neighbours(self, manifest: Manifest, checked: list[Checked]) -> None:
        last = None
        for receipt, one in zip(manifest.shards, checked, strict=True):
            if one.ends is None:
                last = None
                continue
            if last is not None and one.ends[0] <= last:
                self.findings.add(
                    receipt.index, f"the shard does not continue the order of seed {manifest.seed}",
                    why="its first sample stands before the last one of the shard before it",
                )  # fmt: skip
            last = one.ends[1]

    def _unique_keys(self, manifest: Manifest) -> None:
        if not self.hashes.total:
            return
        if not self.hashes.repeats():
            if manifest.keys.get("unique") is False:
                self.findings.add(self.name, '"keys" says that keys repeat, and none does')
            return
        if not manifest.keys.get("unique", True):
            return
        seen: dict[bytes, str] = {}
        for receipt in manifest.shards:
            for key in self._keys_with(receipt, self.hashes.twice):
                if key in seen:
                    self.findings.add(
                        receipt.name, "a key is there twice", member=printable(key), why=f"also in {seen[key]}"
                    )
                seen[key] = receipt.name

    def _keys_with(self, receipt: Receipt, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        """Keys of a shard that have one of these hashes."""
        try:
            with ShardIndex(os.path.join(self.folder, os.fsencode(receipt.index)), receipt.name, check=False) as index:
                keys: Ragged | None = index.keys()
        except (OSError, DataError):
            return []
        if keys is None:
            return []
        hashes = hash128(keys)
        rows = np.sort(np.concatenate([rows_of(hashes, one) for one in wanted]))
        return [keys[row] for row in rows.tolist()]

    def _labels(self, manifest: Manifest, checked: list[Checked]) -> None:
        """The histogram of the manifest against the label columns."""
        if manifest.labels is None or not checked or any(c.labels is None for c in checked):
            return
        count = sum((c.labels for c in checked if c.labels is not None), np.zeros(1, np.int64))
        names = [public_name(value) for value in manifest.classes or ()]
        found = dict(zip(names, count[1:].tolist(), strict=True))
        if manifest.labels.get("histogram") != found:
            self.findings.add(
                self.name, 'the histogram in "labels" is not that of the samples',
                why=_difference(manifest.labels.get("histogram") or {}, found),
            )  # fmt: skip
        if manifest.labels.get("missing") != int(count[0]):
            self.findings.add(self.name, f'"labels" does not say that {int(count[0]):,} samples have none')

    # -- beside the shards ------------------------------------------------------------------------------------

    def _exports(self, manifest: Manifest) -> None:
        for kind, names in manifest.exports.items():
            if kind not in EXPORTS:
                what = f"this release does not know the export {kind!r}, its files were not checked"
                if manifest.version == VERSION:
                    self.findings.add(self.name, what)
                else:
                    self.note(what)
                continue
            missing = [name for name in names if not is_file(self._at(name))]
            for name in missing:
                self.findings.add(name, f"a file of the export {kind} is missing")
            try:
                self._made_again(kind, manifest, set(names) - set(missing))
            except (DataError, OSError, ValueError, KeyError) as error:
                if isinstance(error, OSError) and not absent(error):
                    raise
                why = error.what if isinstance(error, DataError) else str(error)
                self.findings.add(self.name, f"the export {kind} cannot be made again", why=why)

    def _made_again(self, kind: str, manifest: Manifest, names: set[str]) -> None:
        """Every file of the export, made again from manifest and index, byte for byte."""

        def open_index(receipt: Receipt) -> ShardIndex:
            return ShardIndex(self._at(receipt.index), receipt.name)

        made = set()
        for name, pieces in EXPORTS[kind].files(manifest, open_index, lambda text: None, ""):
            made.add(name)
            if name not in manifest.exports[kind]:
                self.findings.add(
                    self.name, f"the export {kind} has a file that the manifest does not list", member=name
                )
            if name in names:
                at = _first_difference(self._at(name), pieces)
                if at is not None:
                    self.findings.add(
                        name, f"a file of the export {kind} is not what manifest and index give", offset=at
                    )
        for name in sorted(names - made):
            self.findings.add(self.name, f"the manifest lists a file that the export {kind} does not have", member=name)

    def _at(self, name: str) -> bytes:
        return os.path.join(self.folder, os.fsencode(name))

    def _folder(self, manifest: Manifest) -> None:
        """Left-overs of a run are a finding, files that nobody listed a note."""
        if os.path.lexists(os.path.join(self.folder, WORK_FOLDER)):
            self.findings.add(
                os.fsdecode(WORK_FOLDER), "a run in this folder was not finished",
                why="run the same repack again: it completes the clean-up",
            )  # fmt: skip
        listed = {os.fsencode(r.name) for r in manifest.shards} | {os.fsencode(r.index) for r in manifest.shards}
        indexes = {os.path.dirname(os.fsencode(r.index)) for r in manifest.shards}
        stray = []
        for folder in sorted({os.path.dirname(name) for name in listed}):
            path = os.path.join(self.folder, folder)
            for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
                whole = os.path.join(folder, name)
                looks = folder in indexes or (claims(name) and not is_junk(name))
                if looks and whole not in listed and os.path.isfile(os.path.join(path, name)):
                    stray.append(whole)
        if stray:
            more = f" and {len(stray) - 3:,} more" if len(stray) > 3 else ""
            self.note(f"the manifest does not list {', '.join(map(printable, stray[:3]))}{more}")

    # -- the other source -------------------------------------------------------------------------------------

    def _against(self, manifest: Manifest, checked: list[Checked]) -> None:
        if not checked or any(c.digest_sum is None for c in checked):
            self.note("--against was not compared: a shard cannot be read")
            return
        files = []
        for number, receipt in enumerate(manifest.shards):
            name = os.fsencode(receipt.name)
            files.append(Input(self._at(receipt.name), name, manifest.format, checked[number].bytes, 0, 0))
        ours = Side(tuple(files), shard_rules(manifest), payload_checked=True)
        whole = (
            sum(c.digest_sum or 0 for c in checked) % MODULUS,
            sum(c.samples for c in checked),
        )
        source = merged(self.options.source, recorded_source(manifest.options))
        rules = merged(self.options.rules, recorded_rules(manifest.options))
        self.compare(ours, source, replace(rules, label=None), whole, manifest)


def _inside(name: str) -> bool:
    """Whether a name of the manifest stays in its folder."""
    # What is longer no system takes for a name; asking for it would be an error of the host.
    short = len(name) < 4096 and all(len(os.fsencode(part)) < 256 for part in name.split("/"))
    return bool(name) and short and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def _first_difference(path: bytes, pieces: Iterable[bytes]) -> int | None:
    """Byte at which the file differs from the pieces in a row, or None."""
    at = 0
    with open(path, "rb") as file, naming(path):
        for piece in pieces:
            found = file.read(len(piece))
            if found != piece:
                same = next((i for i, (a, b) in enumerate(zip(found, piece, strict=False)) if a != b), len(found))
                return at + same
            at += len(piece)
        return at if file.read(1) else None


_COMBINE: dict[str, Callable[[int, int], int]] = {"smallest": min, "largest": max}


def _merged_fields(tables: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Summaries of fields of several shards as one."""
    whole: dict[str, dict[str, int]] = {}
    for table in tables:
        for name, facts in table.items():
            if name not in whole:
                whole[name] = dict(facts)
                continue
            for fact, value in facts.items():
                whole[name][fact] = _COMBINE.get(fact, int.__add__)(whole[name][fact], value)
    return whole


def _difference(stored: Any, found: Any) -> str:
    """The first entry of a JSON object that differs, in words."""
    for key in sorted({*stored, *found}):
        if stored.get(key) != found.get(key):
            return f"{key}: the manifest says {json.dumps(stored.get(key))}, found {json.dumps(found.get(key))}"
    return "the same"
