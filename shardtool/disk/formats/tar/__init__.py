"""The tar format, read: any tar of the last forty years, by the policies of `Rules`."""

from __future__ import annotations

import numpy as np

from ....base.errors import DataError, printable
from ....layout.index import Runs
from ....layout.rules import Rules
from ...blocks import Blocks
from ...packed import Packed
from ...scanned import Findings, Scanned
from . import vector
from .events import DAMAGE, FILE, FOUND, LINK, OTHER, SPARSE, Damage
from .group import Columns, Samples
from .names import PLAIN, ignored_as, split, strip_dot_slash, unsafe
from .walk import WINDOW, Walk

__all__ = ["scan"]

LABEL_BYTES = 1024

Target = tuple[int, int, Runs | None]  # payload (offset in the file), size, runs


def scan(path: bytes, name: bytes, rules: Rules, *, mapped: bool = False) -> Scanned:
    """Samples of the archive at `path`; `name` is what messages call it. Raises DataError.

    mapped  look at headers in a mapping (see Blocks) as long as they are ordinary ones

    Hard links need the place of every member before them, which most archives can be spared: the first link
    that is met starts the scan again, with names kept.
    """
    try:
        return _Scan(path, name, rules, keep_names=False, mapped=mapped).run()
    except _LinkMet:
        return _Scan(path, name, rules, keep_names=True, mapped=mapped).run()


class _LinkMet(Exception):
    pass


class _Scan:
    """One pass over one archive: sorts events of a Walk into samples, counts, and damage."""

    def __init__(self, path: bytes, name: bytes, rules: Rules, keep_names: bool, mapped: bool) -> None:
        self.mapped = mapped
        self.path, self.name, self.rules = path, name, rules
        self.findings = Findings()
        self.samples = Samples(name, rules)
        self.targets: dict[bytes, Target] | None = {} if keep_names else None
        self.believed = False  # the last damage cannot have hit members of the sample behind it
        self.behind_marker = False  # the last damage was that something follows an end marker
        self.first_found = False  # the next sample is the first behind a damage
        self.mark: tuple[int, int] | None = None  # (parts, samples) when reading went on by search

    def run(self) -> Scanned:
        """Read the archive."""
        with Blocks(self.path, self.name, WINDOW) as blocks:
            if blocks.size == 0:
                self._empty()
                return self._scanned(0)
            found = self._ordinary()
            if found is not None:
                columns, labels, end = found
                return self._scanned(end, columns, labels or self._labels(blocks, columns))
            walk = Walk(blocks, self.rules)
            self._read(walk)
            self.samples.finish()
            self._settle()
            columns = self.samples.columns()
            self.findings.warnings.extend(walk.warnings)
            self._sum_up()
            return self._scanned(walk.end, columns, self._labels(blocks, columns))

    def _ordinary(self) -> vector.Found | None:
        if isinstance(self.path, Packed):  # what is decoded on the way is not read twice
            return None
        with Blocks(self.path, self.name, vector.MAPPED_PIECE, mapped=self.mapped) as blocks:
            return vector.columns(blocks, self.rules)

    def _read(self, walk: Walk) -> None:
        add, targets, match = self.samples.add, self.targets, PLAIN.fullmatch
        for kind, name, offset, payload, size, extra in walk.members():
            if kind == FILE and targets is None:
                plain = match(name)
                if plain is not None and not self.first_found:
                    key, ext = plain.groups()
                    add(key, ext, offset, payload, size)
                    continue
            if kind <= SPARSE:
                if targets is not None:
                    targets[strip_dot_slash(name)] = (payload, size, extra)
                self._member(name, offset, payload, size, extra)
            elif kind == LINK:
                self._link(name, offset, extra)
            elif kind == OTHER:
                self.findings.ignore(extra, name)
            elif kind == DAMAGE:
                self._damage(name, offset, walk.blocks.size, extra)
                if self.rules.on_corrupt == "skip":
                    return
            elif kind == FOUND:
                self._found(offset, payload, walk.blocks.size)

    # -- members ------------------------------------------------------------------------------------

    def _member(self, name: bytes, offset: int, payload: int, size: int, runs: Runs | None) -> None:
        parts = self._sort(name, offset)
        if parts is None:
            return
        key, ext = parts
        if self.first_found:
            self._first_behind(key)
        if self.samples.add(key, ext, offset, payload, size) and runs is not None:
            self.samples.sparse[len(self.samples.offset) - 1] = runs

    def _sort(self, name: bytes, offset: int) -> tuple[bytes, bytes] | None:
        """(key, extension), or None for a member that is ignored."""
        name = strip_dot_slash(name)
        if unsafe(name):
            if self.rules.on_unsafe_name == "error":
                raise DataError(
                    "unsafe member name: absolute, or with '..'", file=self.name, offset=offset, member=name,
                    why="unpacked by a careless tool it would be written outside of its folder",
                    remedy="--on-unsafe-name skip ignores such members",
                )  # fmt: skip
            self.findings.ignore("unsafe_names", name)
            return None
        reason = "directories" if name.endswith(b"/") else ignored_as(name)
        if reason is None:
            return split(name)
        if reason == "no_extension" and self.rules.strict:
            raise DataError(
                "a member without an extension", file=self.name, offset=offset, member=name,
                why="--strict", remedy="remove it from the archive, or omit --strict: it is then ignored",
            )  # fmt: skip
        self.findings.ignore(reason, name)
        return None

    def _link(self, name: bytes, offset: int, target: bytes) -> None:
        parts = self._sort(name, offset)
        if parts is None and self.targets is None:
            return
        if self.targets is None:
            raise _LinkMet
        found = self.targets.get(strip_dot_slash(target))
        if found is not None:
            self.targets[strip_dot_slash(name)] = found
        if parts is None:
            return
        if self.first_found:
            self._first_behind(parts[0])
        if found is None:
            self._dangling(name, offset, target, parts[0])
            return
        payload, size, runs = found
        if self.samples.add(*parts, offset, payload, size) and runs is not None:
            self.samples.sparse[len(self.samples.offset) - 1] = runs

    def _dangling(self, name: bytes, offset: int, target: bytes, key: bytes) -> None:
        if self.rules.on_corrupt == "error":
            raise DataError(
                f"hard link {printable(name)} to {printable(target)}, which is no member before it",
                file=self.name, offset=offset, member=name,
                remedy="--on-corrupt skip drops the sample",
            )  # fmt: skip
        self.samples.cut_sample(key)
        self.findings.warnings.append(
            f"{printable(self.name)}: sample {printable(key)} dropped: {printable(name)} is a hard link to "
            f"{printable(target)}, which is no member before it"
        )

    # -- damage -------------------------------------------------------------------------------------

    def _empty(self) -> None:
        if self.rules.on_corrupt == "error":
            raise DataError(
                "the archive is empty, 0 bytes", file=self.name,
                why="even an archive without members has 1,024 bytes",
                remedy="get the file again, or --on-corrupt skip",
            )  # fmt: skip
        self.findings.dropped["archives_damaged"] += 1
        self.findings.warnings.append(f"{printable(self.name)}: the archive is empty, 0 bytes: skipped")

    def _damage(self, name: bytes, offset: int, size: int, damage: Damage) -> None:
        """Drop what the damage hit; the samples before it stay."""
        if self.rules.on_corrupt == "error":
            raise damage.error
        self.findings.dropped["archives_damaged"] = 1
        self.findings.dropped["bytes"] += size - offset
        note = f"{printable(self.name)}: {damage.error.what} (byte {offset:,})"
        if damage.after_marker and self.mark is not None:
            self._refuse()
            self.believed = False
        else:
            self._judge(name if damage.known else None)
            self.believed = damage.known or damage.after_marker
        self.behind_marker = damage.after_marker
        if self.rules.on_corrupt == "skip":
            note += "; the rest is dropped"
        self.findings.warnings.append(note)

    def _judge(self, name: bytes | None) -> None:
        """Which samples did the damage hit? `name`: the damaged member, if known."""
        samples = self.samples
        if name is not None:
            name = strip_dot_slash(name)
            parts = split(name)
            if parts is None or ignored_as(name):
                return  # the lost member belonged to no sample
            samples.cut_sample(parts[0])
        if samples.last is not None:
            samples.doubt(samples.last)
        if samples.collect:
            self.findings.warnings.append(
                f"{printable(self.name)}: samples are collected over the whole archive, so that any may have had "
                "more fields behind the damage"
            )

    def _settle(self) -> None:
        for key in self.samples.settle():
            self.findings.warnings.append(
                f"{printable(self.name)}: sample {printable(key)} is kept; it stands beside the damage and may "
                "have had more fields"
            )

    def _found(self, damaged: int, found: int, size: int) -> None:
        self.findings.dropped["bytes"] -= size - found
        self.findings.warnings.append(
            f"{printable(self.name)}: reading went on at byte {found:,}, found by search, "
            f"{found - damaged:,} bytes behind the damage"
        )
        self.samples.finish()
        self.first_found = True
        self.mark = None if self.behind_marker else (len(self.samples.offset), len(self.samples.first))

    def _first_behind(self, key: bytes) -> None:
        """The first sample behind a damage: its first members, or its true name, may be lost."""
        self.first_found = False
        if key == self.samples.last or not self.believed:
            self.samples.cut_sample(key)
        self.samples.doubt(key)

    def _refuse(self) -> None:
        """An end marker with more behind it: what was found by search lay in an archive in the archive."""
        assert self.mark is not None
        count = len(self.samples.first) - self.mark[1]
        self.samples.truncate(*self.mark)
        self.findings.warnings.append(
            f"{printable(self.name)}: {count:,} samples found by search not taken: they lay in an archive "
            "inside of a damaged member"
        )

    # -- results ------------------------------------------------------------------------------------

    def _sum_up(self) -> None:
        samples = self.samples
        if samples.dropped:
            self.findings.dropped["samples"] += samples.dropped
        if not self.findings.dropped["bytes"]:
            del self.findings.dropped["bytes"]
        if samples.repeats:
            listed = ", ".join(printable(name) for name in samples.repeated)
            self.findings.warnings.append(
                f"{printable(self.name)}: {samples.repeats:,} duplicate members left out, "
                f"the {self.rules.on_duplicate} kept: {listed}"
            )

    def _labels(self, blocks: Blocks, columns: Columns) -> list[bytes | None] | None:
        if self.rules.label is None:
            return None
        return _labels(blocks, columns, self.rules.label.encode("utf-8", "surrogateescape"))

    def _scanned(
        self, end: int, columns: Columns | None = None, labels: list[bytes | None] | None = None
    ) -> Scanned:
        c = columns or Samples(self.name, self.rules).columns()
        if columns is None and self.rules.label is not None:
            labels = []
        return Scanned(
            len(c.first) - 1, c.first, c.offset, c.head, c.size, c.ext, c.exts, c.keys, c.sparse, labels, end,
            self.findings,
        )  # fmt: skip


def _labels(blocks: Blocks, c: Columns, field: bytes) -> list[bytes | None]:
    """Payload of the label field of every sample, without white space around it."""
    labels: list[bytes | None] = [None] * (len(c.first) - 1)
    if field not in c.exts:
        return labels
    parts = np.flatnonzero(c.ext == c.exts.index(field))
    owners = np.searchsorted(c.first, parts, side="right") - 1
    buffer = memoryview(bytearray(LABEL_BYTES))
    for part, owner in zip(parts.tolist(), owners.tolist(), strict=True):
        payload, size = int(c.offset[part] + c.head[part]), int(c.size[part])
        if size > LABEL_BYTES:
            raise DataError(
                f"the label field {printable(field)} is larger than {LABEL_BYTES} bytes ({size:,})",
                file=blocks.name, offset=int(c.offset[part]), member=c.keys[owner] + b"." + field,
                remedy="name a field that holds a class, not content",
            )  # fmt: skip
        text = buffer[:size]
        if part in c.sparse:
            text[:] = bytes(size)
            for place, source, count in c.sparse[part]:
                blocks.read_into(text[place : place + count], source)
        else:
            blocks.read_into(text, payload)
        labels[owner] = bytes(text).strip()
    return labels
