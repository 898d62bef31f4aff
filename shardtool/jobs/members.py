"""Records as members of a tar: what becomes of every feature, decided over the whole input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..base.errors import printable
from ..base.reporting import Reporter
from ..disk.columns import Constant, Derived, Store
from ..disk.formats.example_parse import BYTES, FLOAT, INT64
from ..disk.formats.tar.names import ignored_as, split, unsafe
from ..disk.formats.values import NPY_HEAD, decimal_bytes
from ..disk.keycheck import check_keys, windows_of
from ..layout.example import KEY, varint_bytes
from ..layout.fields import with_fields
from ..layout.index import FLOAT_NPY, I64, INT64_NPY, INT64_TEXT, SPAN, Index, Strings, windows
from ..layout.rules import Rules
from .fieldnames import (
    NAMED,
    Conversion,
    Converted,
    new_names,
    of_sample,
    require_apart,
    require_names,
    require_parts,
    table,
)  # fmt: skip
from .parsed import NotExamples, Rows, first_other_type, known_names, not_an_example, parse
from .scan import Scan

RAW = b"bin"  # the member of a record that is no Example
TYPE_WORDS = {BYTES: "bytes", FLOAT: "float", INT64: "int64"}


def members_of(
    scan: Scan, conversion: Conversion, rules: Rules, jobs: int, reporter: Reporter, store: Store
) -> Converted:
    """Features as members; records that are no Examples as one member each."""
    if conversion.records == "raw":
        return _raw(scan, conversion, store)
    rows = parse(scan, jobs, reporter, store)
    if isinstance(rows, Rows):
        return _examples(scan, rows, conversion, rules, reporter, store)
    if conversion.records == "example":
        raise not_an_example(scan.index, rows, "--records raw writes every record as one .bin member")
    name = scan.index.sources[rows.source].name
    reporter.warn(
        f"record {rows.refused.record} of {printable(name)} is no tf.train.Example ({rows.refused.why}): all records "
        "of the input are written as they are, one .bin member each"
    )
    return _raw(scan, conversion, store)


def _raw(scan: Scan, conversion: Conversion, store: Store) -> Converted:
    """One member a record."""
    new = new_names([RAW], conversion, {})
    require_names([RAW], new, "tar")
    index = scan.index
    first = store.growing()
    steps = list(windows(index.samples + 1, 1 << 16))
    for number, (lo, hi) in enumerate(steps):
        first.add(number, np.arange(lo, hi, dtype=np.int64))
    ext = Constant(0, index.samples, np.dtype(np.uint32))
    one = replace(index, first=first.finish(range(len(steps))), ext=ext, exts=(RAW,))
    made = with_fields(one, new, store, by_name=False)
    require_parts(made, "leave out --drop")
    return Converted(replace(scan, index=made), table([RAW], new))


def _examples(
    scan: Scan, rows: Rows, conversion: Conversion, rules: Rules, reporter: Reporter, store: Store
) -> Converted:
    """Features as members of a tar."""
    known = known_names(rows)
    new = dict(
        zip(known, new_names(known, conversion, {name: name.replace(b"/", b".") for name in known}), strict=True)
    )
    keys = None
    if new.get(KEY) == KEY:
        keys = _keys(rows, reporter, store)
        new[KEY] = None
    require_names(list(new), list(new.values()), "tar")
    _count_empty(rows.empty, new, reporter)
    members = _decided(rows, new, scan.index)
    index = replace(
        scan.index, first=rows.first, offset=rows.offset, head=Constant(0, len(rows.offset)), size=members.size(rows),
        stored=members.stored(rows), kind=members.kind(rows), ext=members.ext(rows),
        exts=tuple(b"%d" % number for number in range(len(members.names))), keys=keys,
    )  # fmt: skip
    made = with_fields(index, [name for name, _ in members.names], store, by_name=True)
    require_parts(made, "--records raw writes every record as one .bin member")
    olds: dict[bytes, list[bytes]] = {}
    for name, old in members.names:
        if name is not None:
            olds.setdefault(name, []).append(old)
    require_apart(made, olds, "tar", rules)
    types = {
        name: TYPE_WORDS[min(rows.types[code])]
        for code, old in enumerate(rows.names) if (name := new[old]) is not None and members.kinds[code] != SPAN
    }  # fmt: skip
    return Converted(replace(scan, index=made), table(list(new), list(new.values())), types=types)


def _count_empty(empty: Mapping[bytes, int], new: Mapping[bytes, bytes | None], reporter: Reporter) -> None:
    """Say which features have no value, in how many records."""
    counted = [f"{printable(name)} ({count:,})" for name, count in sorted(empty.items()) if new[name] is not None]
    if counted:
        more = f" and {len(counted) - NAMED} more features" if len(counted) > NAMED else ""
        reporter.warn(f"features without a value give no member (records): {', '.join(counted[:NAMED])}{more}")


@dataclass(frozen=True)
class _Members:
    """What becomes of every feature.

    names    (name, feature) of every member; two features may want one name, which is found out later, by sample
    base     int64[names of Rows], the first member of a feature
    several  bool[names], whether its values are members of their own
    kinds    uint8[names], how their payload comes about
    """

    names: list[tuple[bytes | None, bytes]]
    base: I64
    several: npt.NDArray[np.bool_]
    kinds: npt.NDArray[np.uint8]

    def ext(self, rows: Rows) -> Derived:
        """Member of every row."""

        def made(name: I64, place: I64) -> npt.NDArray[np.uint32]:
            return (self.base[name] + np.where(self.several[name], place, 0)).astype(np.uint32)

        return Derived(made, rows.name, rows.place)

    def kind(self, rows: Rows) -> Derived:
        """Of every row."""
        return Derived(self.kinds.__getitem__, rows.name)

    def stored(self, rows: Rows) -> Derived:
        """Bytes in the source, or the number itself."""

        def made(name: I64, number: I64, stored: I64) -> I64:
            return np.where(self.kinds[name] == INT64_TEXT, number, stored)

        return Derived(made, rows.name, rows.number, rows.stored)

    def size(self, rows: Rows) -> Derived:
        """Bytes of the payload."""

        def made(name: I64, values: I64, number: I64, stored: I64) -> I64:
            kind, size = self.kinds[name], stored.copy()
            text, ints, floats = kind == INT64_TEXT, kind == INT64_NPY, kind == FLOAT_NPY
            size[text] = decimal_bytes(number[text])
            size[ints] = NPY_HEAD + 8 * values[ints]
            size[floats] = NPY_HEAD + 4 * values[floats]
            return size

        return Derived(made, rows.name, rows.values, rows.number, rows.stored)


def _decided(rows: Rows, new: Mapping[bytes, bytes | None], index: Index) -> _Members:
    """What becomes of every feature. DataError for one whose records disagree on its type."""
    members: list[tuple[bytes | None, bytes]] = []
    base, several = np.zeros(len(rows.names), np.int64), np.zeros(len(rows.names), bool)
    kinds = np.full(len(rows.names), SPAN, np.uint8)
    for code, old in enumerate(rows.names):
        name, most = new[old], int(rows.most[code])
        base[code] = len(members)
        type = _one_type(rows, code, index) if name is not None else BYTES
        if name is None or type != BYTES or most <= 1:
            members.append((name, old))
        else:
            several[code] = True
            members += [(name + b".%d" % place, old) for place in range(most)]
        if type == INT64:
            kinds[code] = INT64_TEXT if most == 1 else INT64_NPY
        elif type == FLOAT:
            kinds[code] = FLOAT_NPY
    return _Members(members, base, several, kinds)


def _one_type(rows: Rows, code: int, index: Index) -> int:
    """The type that a feature has in all records. DataError when they disagree."""
    if len(rows.types[code]) == 1:
        return min(rows.types[code])
    sample, here, earlier = first_other_type(rows, code)
    name = printable(rows.names[code])
    raise of_sample(
        index, sample, f"feature {name} is {TYPE_WORDS[here]} here",
        f"it is {TYPE_WORDS[earlier]} in an earlier record, and a member has one form",
        f"--drop {name}, or --records raw",
    )  # fmt: skip


def _keys(rows: Rows, reporter: Reporter, store: Store) -> Strings | None:
    """Keys of all records from the feature of that name; None, with a warning, when they cannot be."""
    keys, why = rows.keys, None
    if keys is None:
        why = "not every record has it with one bytes value"
    else:
        bad = next((key for key in keys if not _usable(key)), None)
        if bad is not None:
            why = f"{printable(bad)!r} cannot be the key of a tar member"
        else:
            found = check_keys(windows_of(keys), store.budget, store.folder, fold_case=False)
            if found.repeated is not None:
                why = f"{printable(keys[found.repeated[0]])!r} is there twice"
    if why is None:
        return keys
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
    store = Store(1 << 62)
    rows = parse(scan, jobs, reporter, store)
    if isinstance(rows, NotExamples):
        raise not_an_example(scan.index, rows)

    def size(type: npt.NDArray[np.uint8], stored: I64) -> I64:
        # a list of numbers is one packed field: its tag, its length, its payload
        made, numbers = stored.copy(), type != BYTES
        for count in range(1, 6):
            payload = np.maximum(stored - 1 - count, 0)
            fits = numbers & (varint_bytes(payload) == count)
            made[fits] = payload[fits]
        return made

    sizes = Derived(size, rows.type, rows.stored)
    index = replace(
        scan.index, first=rows.first, size=sizes, offset=Derived(_behind, rows.offset, rows.stored, sizes),
        head=Constant(0, len(rows.offset)), ext=rows.name, exts=rows.names,
    )  # fmt: skip
    names = [None if name == KEY else name for name in rows.names]
    return replace(scan, index=with_fields(index, names, store, by_name=True))


def _behind(offset: I64, stored: I64, size: I64) -> I64:
    return offset + stored - size
