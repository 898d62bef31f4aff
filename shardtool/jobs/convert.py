"""From what a source has to what the shards get: fields renamed and left out, features into members and back.

    Scan -> Scan      the same samples; the index then describes the parts of the output

Nothing is written, and no payload is kept: an index of parts says where each lies and, for numbers, what its other
form comes to. docs/formats/conversion.md has the rules.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, UsageError, printable
from ..base.ragged import Ragged
from ..base.reporting import Reporter
from ..disk.blocks import Blocks
from ..disk.engines.job import SourceFiles
from ..disk.files import read_small
from ..disk.formats.example_parse import BYTES, FLOAT, INT64, Parsed, parse_file
from ..disk.formats.tar.names import ignored_as, split, unsafe
from ..disk.formats.values import NPY_HEAD, computed, decimal_bytes
from ..disk.runners import Advance, run_tasks
from ..disk.scanned import Scanned
from ..disk.sources import Inputs
from ..layout.example import KEY, varint_bytes
from ..layout.fields import repeated_field, with_fields, without_fields
from ..layout.index import FLOAT_NPY, I64, INT64_NPY, INT64_TEXT, SPAN, TO_FLOAT, TO_INT64, Index
from ..layout.keys import first_repeated
from ..layout.manifest import Manifest, decode_name, parse_public_name, public_name
from ..layout.rules import Rules
from .scan import Scan

RAW = b"bin"  # the member of a record that is no Example
TYPES = {"bytes": SPAN, "int64": TO_INT64, "float": TO_FLOAT}
_TYPE_NAMES = {SPAN: "bytes", TO_INT64: "int64", TO_FLOAT: "float"}
# Bytes that a message about a name shows
_NAMED = 20


@dataclass(frozen=True)
class Conversion:
    """What is asked for; names are bytes as in the source.

    rename   OLD -> NEW
    drop     fields that are left out
    fields   field -> 'int64', 'float' or 'bytes': its type in a tf.train.Example
    records  'auto': records are Examples when all are; 'example': they must be; 'raw': they are not looked into
    names    member -> the name that it had as a feature; where a sample has such a member and nothing else is asked
    """

    rename: Mapping[bytes, bytes] = field(default_factory=dict)
    drop: tuple[bytes, ...] = ()
    fields: Mapping[bytes, str] = field(default_factory=dict)
    records: str = "auto"
    names: Mapping[bytes, bytes] = field(default_factory=dict)

    @property
    def asked(self) -> bool:
        """Whether anything but the default is."""
        return bool(self.rename or self.drop or self.fields or self.records != "auto")


@dataclass(frozen=True)
class Converted:
    """A scan whose index describes the output.

    renamed  field of the source -> field of the output, where they differ
    types    field of the output -> type in a tf.train.Example
    values   field -> (fewest, most, all) values of a number in a sample, where types says so
    """

    scan: Scan
    renamed: Mapping[bytes, bytes] = field(default_factory=dict)
    types: Mapping[bytes, str] = field(default_factory=dict)
    values: Mapping[bytes, tuple[int, int, int]] = field(default_factory=dict)


def changes_samples(source: str, format: str, conversion: Conversion) -> bool:
    """Whether the samples of these sources come out other than they are. Raises UsageError for what cannot be asked."""
    if conversion.fields and (source, format) == ("tfrecord", "tar"):
        raise UsageError("--field gives the type of a feature, members of a tar have none", remedy="leave it out")
    if conversion.fields and format == "tar":
        raise UsageError("--field gives the type of a feature", remedy="add --format tfrecord")
    if conversion.records != "auto" and source != "tfrecord":
        raise UsageError(f"--records says what TFRecords hold, the source is {source}", remedy="leave it out")
    if source == format == "tfrecord" and conversion.asked:
        raise UsageError(
            "records are carried over whole: no feature can be renamed, left out or read in another way",
            remedy="convert to tar first: --format tar",
        )
    return source != format or conversion.asked


def convert(
    scan: Scan, format: str, conversion: Conversion, rules: Rules, *, jobs: int, reporter: Reporter
) -> Converted:
    """The scan with an index of the output's parts.

    Raises DataError (records that are no Examples, fields that cannot be converted, names that cannot be written),
    UsageError (a field that no sample has).
    """
    if scan.format == "tfrecord":
        return _members(scan, conversion, rules, jobs, reporter)
    return _fields(scan, format, conversion, rules, jobs, reporter)


# -- names ------------------------------------------------------------------------------------------------------


def new_names(old: Sequence[bytes], conversion: Conversion, default: Mapping[bytes, bytes]) -> list[bytes | None]:
    """The name of every field in the output, None for those left out. UsageError for an option about no field."""
    known = set(old)
    for option, names in (
        ("--rename", conversion.rename), ("--drop", conversion.drop), ("--field", conversion.fields),
    ):  # fmt: skip
        for name in names:
            if name not in known:
                has = ", ".join(printable(one) for one in sorted(known - {KEY})[:_NAMED])
                raise UsageError(f"{option} {printable(name)}: no sample has this field", why=f"they have {has}")
    both = set(conversion.drop) & (set(conversion.rename) | set(conversion.fields))
    if both:
        raise UsageError(f"--drop {printable(min(both))} leaves out a field that another option is about")
    return [
        None if name in conversion.drop else conversion.rename.get(name, default.get(name, name)) for name in old
    ]


def _require_names(old: Sequence[bytes], new: Sequence[bytes | None], format: str) -> None:
    """DataError for a name that the format cannot hold."""
    for one, name in zip(old, new, strict=True):
        why = None if name is None else _unfit(name, format)
        if why:
            raise DataError(
                f"field {printable(one)!r} would be called {printable(name or b'')!r} in the output", why=why,
                remedy=f"--rename {printable(one)}=NEW, or --drop {printable(one)}",
            )  # fmt: skip


def _unfit(name: bytes, format: str) -> str | None:
    text = name.decode("utf-8", "surrogateescape")
    if not name:
        return "a field needs a name"
    if b"\0" in name or any(c.isspace() for c in text):
        return "the name holds a NUL byte or white space"
    if format == "tfrecord" and any("\udc80" <= c <= "\udcff" for c in text):
        return "names in a tf.train.Example are UTF-8"
    if format == "tfrecord" and name == KEY:
        return "that feature carries the key of the sample"
    if format == "tar" and b"/" in name:
        return "what stands before a '/' would be part of the key"
    return None


def _require_apart(index: Index, names: Mapping[bytes, list[bytes]], format: str, rules: Rules) -> None:
    """DataError when a sample would have a name twice, or, in a tar, two that differ by letter case only."""
    found = repeated_field(index, fold_case=format == "tar" and not rules.allow_case_collision)
    if found is None:
        return
    sample, a, b = found
    olds = [printable(old) for code in {a: 0, b: 0} for old in names[index.exts[code]]]
    same = "have one name" if a == b else "have names that differ by letter case only"
    raise _of_sample(
        index, sample, f"fields {' and '.join(olds)} {same} in the output",
        f"they would be {printable(index.exts[a])} and {printable(index.exts[b])}",
        "give one of them another name: --rename OLD=NEW",
    )  # fmt: skip


def _of_sample(index: Index, sample: int, what: str, why: str, remedy: str) -> DataError:
    source = int(index.source_of(np.array([sample], np.int64))[0])
    record = sample - int(index.source_first[source])
    member = f"number {record}" if index.keys is None else index.keys[sample]
    return DataError(what, file=index.sources[source].name, member=member, why=why, remedy=remedy)


def _require_parts(index: Index, remedy: str) -> None:
    sample = without_fields(index)
    if sample is not None:
        what = "a sample would have no field in the output"
        raise _of_sample(index, sample, what, "none of its fields is kept", remedy)


def _by_new(old: Sequence[bytes], new: Sequence[bytes | None]) -> dict[bytes, list[bytes]]:
    names: dict[bytes, list[bytes]] = {}
    for one, name in zip(old, new, strict=True):
        if name is not None:
            names.setdefault(name, []).append(one)
    return names


def _table(old: Sequence[bytes], new: Sequence[bytes | None]) -> dict[bytes, bytes]:
    return {one: name for one, name in zip(old, new, strict=True) if name is not None and name != one}


# -- fields of tar members --------------------------------------------------------------------------------------


def _fields(
    scan: Scan, format: str, conversion: Conversion, rules: Rules, jobs: int, reporter: Reporter
) -> Converted:
    index = scan.index
    records = format == "tfrecord"
    keyless = records and KEY in conversion.drop and KEY not in index.exts
    known = [*index.exts, KEY] if keyless else list(index.exts)
    new = new_names(known, conversion, conversion.names if records else {})[: len(index.exts)]
    _require_names(index.exts, new, format)
    made = with_fields(index, new, by_name=records)
    _require_parts(made, "--drop fewer fields")
    _require_apart(made, _by_new(index.exts, new), format, rules)
    table = _table(index.exts, new)
    if not records:
        return Converted(replace(scan, index=made), table)
    if keyless:
        made = replace(made, keys=None)
    kinds: dict[bytes, int] = {}
    for old, name in zip(index.exts, new, strict=True):
        if name is not None:
            kinds[name] = max(kinds.get(name, SPAN), TYPES[conversion.fields.get(old, "bytes")])
    made = replace(made, records=True)
    values: dict[bytes, tuple[int, int, int]] = {}
    if any(kinds.values()):
        made, values = _typed(replace(scan, index=made), kinds, jobs, reporter)
    types = {name: _TYPE_NAMES[kind] for name, kind in kinds.items()}
    return Converted(replace(scan, index=made), table, types=types, values=values)


def way_back(inputs: Inputs) -> dict[bytes, bytes]:
    """Member -> the name that it had as a feature, where manifests of ours beside the sources say so.

    Raises UsageError when they disagree.
    """
    back: dict[bytes, bytes] = {}
    beside = {os.path.join(os.path.dirname(file.path), b"manifest.json") for file in inputs.files}
    for path in sorted({*inputs.manifests, *beside}):
        try:
            manifest = Manifest.from_json(read_small(path).decode("ascii"), file=path)
        except (OSError, ValueError, DataError):
            continue  # none, or not ours
        if any(source.format != "tfrecord" for source in manifest.sources):
            continue
        for public, name in manifest.renamed.get("fields", {}).items():
            old = parse_public_name(public)
            if back.setdefault(decode_name(name), old) != old:
                raise UsageError(
                    f"the manifests of SRC disagree on the name that {printable(decode_name(name))} had",
                    remedy="say it: --rename OLD=NEW",
                )  # fmt: skip
    return back


def _typed(
    scan: Scan, kinds: Mapping[bytes, int], jobs: int, reporter: Reporter
) -> tuple[Index, dict[bytes, tuple[int, int, int]]]:
    """The index with sizes of numbers as packed lists; how many values they have."""
    index = scan.index
    assert index.first is not None and index.ext is not None
    by_code = np.array([kinds[ext] for ext in index.exts], np.uint8)
    kind = by_code[index.ext[0 : len(index.ext)].astype(np.int64)]
    stored = index.size[0 : len(index.size)].astype(np.int64)
    size = stored.copy()
    count = np.zeros(len(kind), np.int64)
    index = replace(index, kind=kind, stored=stored)
    reporter.stage("read numbers", int((kind != SPAN).sum()), "")

    def one(source: int, advance: Advance) -> tuple[I64, I64, I64]:
        lo, hi = (int(index.source_first[s]) for s in (source, source + 1))
        a, b = int(index.first[lo : lo + 1][0]), int(index.first[hi : hi + 1][0])  # type: ignore[index]
        parts = a + np.flatnonzero(kind[a:b] != SPAN)
        sizes, counts = np.zeros(len(parts), np.int64), np.zeros(len(parts), np.int64)
        with _peeking(scan, source) as peek:
            for k, part in enumerate(parts.tolist()):
                made = _number(index, source, part, peek)
                sizes[k] = len(made)
                counts[k] = len(made) // 4 if kind[part] == TO_FLOAT else sum(byte < 128 for byte in made)
        advance(len(parts))
        return parts, sizes, counts

    for _, (parts, sizes, counts) in run_tasks(one, range(len(index.sources)), jobs, reporter.advance):
        size[parts], count[parts] = sizes, counts
    reporter.finish()
    values = {}
    codes = scan.index.ext[0 : len(kind)]  # type: ignore[index]
    for code, ext in enumerate(index.exts):
        if by_code[code] != SPAN:
            of = count[codes == code]
            values[ext] = int(of.min()), int(of.max()), int(of.sum())
    return replace(index, size=size), values


Peek = Callable[[int, int, int], bytes | memoryview]


@contextlib.contextmanager
def _peeking(scan: Scan, source: int) -> Iterator[Peek]:
    """What reads (part, offset, bytes) of a source, or of the part's own file where the source is a folder."""
    if scan.index.file is None:
        with Blocks(scan.content[source], scan.index.sources[source].name) as file:
            yield lambda _, offset, count: file.peek(offset, count)
        return
    files, number = SourceFiles(scan.source_files), scan.index.file

    def peek(part: int, offset: int, count: int) -> bytes:
        data = bytearray(count)
        files.read_into(int(number[part : part + 1][0]), memoryview(data), offset)
        return bytes(data)

    try:
        yield peek
    finally:
        files.close()


def _number(index: Index, source: int, part: int, peek: Peek) -> bytes:
    """The packed values of one part. Raises DataError."""
    assert index.kind is not None and index.stored is not None and index.ext is not None
    window = slice(part, part + 1)
    at = int(index.offset[window][0] + index.head[window][0])
    data = bytearray(int(index.stored[window][0]))
    for place, offset, count in index.sparse.get(part, ((0, at, len(data)),)):
        data[place : place + count] = peek(part, offset, count)
    kind = int(index.kind[window][0])
    try:
        return computed(kind, bytes(data))
    except ValueError as error:
        assert index.first is not None
        name = index.exts[int(index.ext[window][0])]
        sample = int(np.searchsorted(index.first[0 : index.samples + 1], part, side="right")) - 1
        key = b"" if index.keys is None else index.keys[sample] + b"."
        raise DataError(
            f"field {printable(name)} cannot become {_TYPE_NAMES[kind]}", file=index.sources[source].name, offset=at,
            member=key + name, why=str(error), remedy=f"leave out --field {printable(name)}={_TYPE_NAMES[kind]}",
        ) from None  # fmt: skip


# -- features of records ----------------------------------------------------------------------------------------


def _members(scan: Scan, conversion: Conversion, rules: Rules, jobs: int, reporter: Reporter) -> Converted:
    if conversion.records == "raw":
        return _raw(scan, conversion)
    parsed = parse(scan, jobs, reporter)
    refused = next(((k, one.refused) for k, one in enumerate(parsed) if one.refused), None)
    if refused is None:
        return _examples(scan, parsed, conversion, rules, reporter)
    number, first = refused
    name = scan.index.sources[number].name
    if conversion.records == "example":
        raise DataError(
            "a record is no tf.train.Example", file=name, offset=first.offset, member=f"number {first.record}",
            why=first.why, remedy="--records raw writes every record as one .bin member",
        )  # fmt: skip
    reporter.warn(
        f"record {first.record} of {printable(name)} is no tf.train.Example ({first.why}): all records of the input "
        "are written as they are, one .bin member each"
    )
    return _raw(scan, conversion)


def _raw(scan: Scan, conversion: Conversion) -> Converted:
    """One member a record."""
    new = new_names([RAW], conversion, {})
    _require_names([RAW], new, "tar")
    index = scan.index
    one = replace(
        index, first=np.arange(index.samples + 1, dtype=np.int64), ext=np.zeros(index.samples, np.uint32), exts=(RAW,)
    )
    made = with_fields(one, new, by_name=True)
    _require_parts(made, "leave out --drop")
    return Converted(replace(scan, index=made), _table([RAW], new))


def parse(scan: Scan, jobs: int, reporter: Reporter) -> list[Parsed]:
    """Where the values of all records lie, by source."""
    index = scan.index
    found: dict[int, Parsed] = {}
    reporter.stage("parse records", sum(source.bytes for source in index.sources), "B")

    def one(source: int, advance: Advance) -> Parsed:
        lo, hi = (int(index.source_first[s]) for s in (source, source + 1))
        place = (index.offset[lo:hi] + index.head[lo:hi]).astype(np.int64)
        made = parse_file(scan.content[source], index.sources[source].name, place, index.size[lo:hi].astype(np.int64))
        advance(index.sources[source].bytes)
        return made

    for number, parsed in run_tasks(one, range(len(index.sources)), jobs, reporter.advance):
        found[number] = parsed
    reporter.finish()
    return [found[number] for number in range(len(index.sources))]


@dataclass(frozen=True)
class Rows:
    """The values of all records, as Parsed has those of one file. `names` by bytes."""

    names: tuple[bytes, ...]
    first: I64
    name: I64
    type: npt.NDArray[np.uint8]
    values: I64
    place: I64
    offset: I64
    stored: I64
    number: I64
    empty: Counter[bytes]
    keys: Ragged | None


def joined(parsed: Sequence[Parsed]) -> Rows:
    """Rows of all files in a row."""
    names = tuple(sorted({name for one in parsed for name in one.names}))
    number = {name: k for k, name in enumerate(names)}
    none = np.zeros(0, np.int64)
    code = [np.array([number[name] for name in one.names] or [0], np.int64)[one.name] for one in parsed]
    counts = [np.diff(one.first) for one in parsed]
    empty: Counter[bytes] = Counter()
    for one in parsed:
        empty.update(one.empty)
    keys = None
    if all(one.keys is not None for one in parsed):
        keys = Ragged.of(key for one in parsed for key in one.keys or ())

    def column(name: str) -> I64:
        return np.concatenate([none, *(getattr(one, name) for one in parsed)])

    return Rows(
        names, np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts])), np.concatenate([none, *code]),
        np.concatenate([np.zeros(0, np.uint8), *(one.type for one in parsed)]), column("values"), column("place"),
        column("offset"), column("stored"), column("number"), empty, keys,
    )  # fmt: skip


def _examples(
    scan: Scan, parsed: list[Parsed], conversion: Conversion, rules: Rules, reporter: Reporter
) -> Converted:
    """Features as members of a tar."""
    rows = joined(parsed)
    parsed.clear()
    known = sorted({*rows.names, *rows.empty})
    new = dict(
        zip(known, new_names(known, conversion, {name: name.replace(b"/", b".") for name in known}), strict=True)
    )
    keys = None
    if new.get(KEY) == KEY:
        keys = _keys(rows, reporter)
        new[KEY] = None
    _require_names(list(new), list(new.values()), "tar")
    _count_empty(rows.empty, new, reporter)
    exts, ext, kind, size, stored = _decided(rows, new, scan.index)
    index = replace(
        scan.index, first=rows.first, offset=rows.offset, head=np.zeros(len(rows.offset), np.int64), size=size,
        stored=stored, kind=kind, ext=ext, exts=tuple(exts), keys=keys,
    )  # fmt: skip
    made = with_fields(index, [name for name, _ in exts.values()], by_name=True)
    _require_parts(made, "--records raw writes every record as one .bin member")
    olds: dict[bytes, list[bytes]] = {}
    for name, old in exts.values():
        if name is not None:
            olds.setdefault(name, []).append(old)
    _require_apart(made, olds, "tar", rules)
    return Converted(replace(scan, index=made), _table(list(new), list(new.values())))


def _count_empty(empty: Mapping[bytes, int], new: Mapping[bytes, bytes | None], reporter: Reporter) -> None:
    """Say which features have no value, in how many records."""
    counted = [f"{printable(name)} ({count:,})" for name, count in sorted(empty.items()) if new[name] is not None]
    if counted:
        more = f" and {len(counted) - _NAMED} more features" if len(counted) > _NAMED else ""
        reporter.warn(f"features without a value give no member (records): {', '.join(counted[:_NAMED])}{more}")


def _decided(
    rows: Rows, new: Mapping[bytes, bytes | None], index: Index
) -> tuple[dict[bytes, tuple[bytes | None, bytes]], npt.NDArray[np.uint32], npt.NDArray[np.uint8], I64, I64]:
    """What becomes of every row: members, and per row the number of its member, its kind, its size and what is stored.

    Members are keyed by a mark of their own and hold (name, feature): two features may want one name, which is found
    out later, sample by sample.
    """
    members: dict[bytes, tuple[bytes | None, bytes]] = {}
    ext = np.zeros(len(rows.name), np.uint32)
    kind = np.full(len(rows.name), SPAN, np.uint8)
    size, stored = rows.stored.copy(), rows.stored.copy()
    order = np.argsort(rows.name, kind="stable")
    bounds = np.searchsorted(rows.name[order], np.arange(len(rows.names) + 1))
    for code, old in enumerate(rows.names):
        at = order[bounds[code] : bounds[code + 1]]
        name = new[old]
        base = len(members)
        type = _one_type(rows, at, old, index) if name is not None else BYTES
        most = int(rows.values[at].max(initial=1))
        if name is None or type != BYTES or most == 1:
            members[b"%d" % base] = name, old
            ext[at] = base
        else:
            for place in range(most):
                members[b"%d" % (base + place)] = name + b".%d" % place, old
            ext[at] = base + rows.place[at]
        if type == INT64 and most == 1:
            kind[at], size[at], stored[at] = INT64_TEXT, decimal_bytes(rows.number[at]), rows.number[at]
        elif type == INT64:
            kind[at], size[at] = INT64_NPY, NPY_HEAD + 8 * rows.values[at]
        elif type == FLOAT:
            kind[at], size[at] = FLOAT_NPY, NPY_HEAD + 4 * rows.values[at]
    return members, ext, kind, size, stored


def _one_type(rows: Rows, at: I64, name: bytes, index: Index) -> int:
    """The type that a feature has in all records. DataError when they disagree."""
    types = rows.type[at]
    other = np.flatnonzero(types != types[0])
    if len(other):
        sample = int(np.searchsorted(rows.first, at[other[0]], side="right")) - 1
        words = {BYTES: "bytes", FLOAT: "float", INT64: "int64"}
        raise _of_sample(
            index, sample, f"feature {printable(name)} is {words[int(types[other[0]])]} here",
            f"it is {words[int(types[0])]} in an earlier record, and a member has one form",
            f"--drop {printable(name)}, or --records raw",
        )  # fmt: skip
    return int(types[0])


def _keys(rows: Rows, reporter: Reporter) -> Ragged | None:
    """Keys of all records from the feature of that name; None, with a warning, when they cannot be."""
    why = None
    if rows.keys is None:
        why = "not every record has it with one bytes value"
    else:
        bad = next((key for key in rows.keys if not _usable(key)), None)
        if bad is not None:
            why = f"{printable(bad)!r} cannot be the key of a tar member"
        else:
            import xxhash

            hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, rows.keys), np.uint64, len(rows.keys))
            twice = first_repeated(rows.keys, hashes)
            if twice is not None:
                why = f"{printable(rows.keys[twice[0]])!r} is there twice"
    if why is None:
        return rows.keys
    reporter.warn(
        f"feature __key__ gives no keys, and is left out: {why}; keys are numbers (--rename __key__=NEW keeps it)"
    )
    return None


def _usable(key: bytes) -> bool:
    """Whether a scan of the tar finds this key again."""
    name = key + b".x"
    return (
        split(name) == (key, b"x") and bool(key) and not key.endswith(b"/") and b"\0" not in key
        and not unsafe(name) and ignored_as(name) is None and not key.startswith(b"./")
    )  # fmt: skip


# -- for a comparison --------------------------------------------------------------------------------------------


def features(scan: Scan, *, jobs: int, reporter: Reporter) -> Scan:
    """The features of records that this tool encoded, keys left out; the payload of numbers is the packed list."""
    parsed = parse(scan, jobs, reporter)
    for number, one in enumerate(parsed):
        if one.refused:
            raise DataError(
                "a record is no tf.train.Example", file=scan.index.sources[number].name, offset=one.refused.offset,
                member=f"number {one.refused.record}", why=one.refused.why,
            )  # fmt: skip
    rows = joined(parsed)
    # a list of numbers is one packed field: its tag, its length, its payload
    size, numbers = rows.stored.copy(), rows.type != BYTES
    for count in range(1, 6):
        payload = np.maximum(rows.stored - 1 - count, 0)
        fits = numbers & (varint_bytes(payload) == count)
        size[fits] = payload[fits]
    index = replace(
        scan.index, first=rows.first, offset=rows.offset + rows.stored - size, size=size,
        head=np.zeros(len(size), np.int64), ext=rows.name.astype(np.uint32), exts=rows.names,
    )  # fmt: skip
    return replace(scan, index=with_fields(index, [None if n == KEY else n for n in rows.names], by_name=True))


def scanned_of(index: Index, source: int) -> Scanned:
    """The samples of one source as its own scan gives them."""
    lo, hi = (int(index.source_first[s]) for s in (source, source + 1))
    assert index.first is not None and index.ext is not None
    first = index.first[lo : hi + 1].astype(np.int64)
    parts = slice(int(first[0]), int(first[-1]))
    return Scanned(
        hi - lo, first - parts.start, index.offset[parts], index.head[parts], index.size[parts], index.ext[parts],
        index.exts, None if index.keys is None else index.keys.take(np.arange(lo, hi, dtype=np.int64)),
        {part - parts.start: runs for part, runs in index.sparse.items() if parts.start <= part < parts.stop},
        kind=None if index.kind is None else index.kind[parts],
        stored=None if index.stored is None else index.stored[parts],
    )  # fmt: skip


# -- for the manifest -------------------------------------------------------------------------------------------


def feature_facts(converted: Converted) -> dict[str, dict[str, Any]]:
    """The manifest's "fields" of converted records: as of sampled TFRecords, over all samples."""
    index = converted.scan.index
    assert index.ext is not None
    ext = index.ext[0 : len(index.ext)].astype(np.int64)
    count = np.bincount(ext, minlength=len(index.exts))
    total = np.bincount(ext, weights=index.size[0 : len(index.size)], minlength=len(index.exts))
    facts = {}
    for code, name in enumerate(index.exts):
        kind = converted.types.get(name, "bytes")
        fewest, most, values = converted.values.get(name, (1, 1, int(count[code])))
        size = {"bytes": int(total[code]), "float": 4 * values, "int64": 8 * values}[kind]
        facts[public_name(name)] = {
            "type": kind, "samples": int(count[code]), "bytes": size, "fewest": fewest, "most": most,
            "sampled": index.samples,
        }  # fmt: skip
    return facts
