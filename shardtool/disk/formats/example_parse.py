"""Strict parsing of tf.train.Example records: where every value lies, so that it can be copied.

A protobuf parser takes almost any bytes for some message. Here a record is an Example only when nothing is left
over: field 1 of Example alone, map entries with one name and one Feature each, a Feature with at most one list, a list
with nothing but values, at least one feature. Records of a shape that was seen before are walked together
(example_lockstep.py).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...layout.example import KEY
from ...layout.index import I64
from ..blocks import Blocks
from .example import fields, varint
from .example_lockstep import Shape, packed_floats, single_bytes, single_int64, walk

BYTES, FLOAT, INT64 = 1, 2, 3
_LIST_OF_TAG = {0x0A: BYTES, 0x12: FLOAT, 0x1A: INT64}

_TAG_OF_LIST = {0: 0, **{kind: tag for tag, kind in _LIST_OF_TAG.items()}}

WINDOW = 4 << 20
SHAPES = 8  # that are kept

U8 = npt.NDArray[np.uint8]

Span = tuple[int, int]


class NoExample(ValueError):
    """Why a record is no tf.train.Example."""


@dataclass(frozen=True)
class Refused:
    """The first record of a file that is no Example: its number in the file, its offset, and why."""

    record: int
    offset: int
    why: str


@dataclass
class Parsed:
    """All values in the records of one file. n records, q rows: one a bytes value, one a list of numbers.

    first   int64[n+1], rows of record i are first[i]:first[i+1]
    name    int32[q], number of the feature's name in `names`
    type    uint8[q], BYTES, FLOAT or INT64
    values  int64[q], how many values the feature has in this record
    place   int64[q], of a bytes value among them; 0 for numbers
    offset  int64[q], where the value (bytes) or the list message (numbers) begins in the file
    stored  int64[q], and how long it is
    number  int64[q], a single int64; of other rows 0
    empty   feature -> records that have it without a value
    keys    the only value of feature __key__ in every record; None when a record has none, several, or no bytes
    refused the first record that is no Example; then all else ends before it
    """

    names: tuple[bytes, ...]
    first: I64
    name: npt.NDArray[np.int32]
    type: npt.NDArray[np.uint8]
    values: I64
    place: I64
    offset: I64
    stored: I64
    number: I64
    empty: Counter[bytes] = field(default_factory=Counter)
    keys: list[bytes] | None = None
    refused: Refused | None = None


def parse_file(path: bytes, name: bytes, offset: I64, size: I64, *, lists: bool = False) -> Parsed:
    """Parse the records whose payloads lie at offset, int64[n], ascending, with size bytes, int64[n].

    lists  one row a feature, whatever it holds: the list message; type 0 for a feature without one
    """
    rows = _Rows(len(offset), lists)
    end = offset + size
    lo = 0
    with Blocks(path, name, WINDOW) as file:
        while lo < len(offset) and rows.refused is None:
            base = int(offset[lo])
            hi = max(lo + 1, int(np.searchsorted(end, base + WINDOW, side="right")))
            raw = np.frombuffer(file.peek(base, int(end[hi - 1]) - base), np.uint8)
            rows.window(raw, base, lo, offset[lo:hi] - base, end[lo:hi] - base)
            lo = hi
    return rows.parsed()


class _Rows:
    """Columns of a Parsed, as they grow: arrays of windows, in any order of records."""

    def __init__(self, records: int, lists: bool = False) -> None:
        self.lists = lists
        self.codes: dict[bytes, int] = {}
        self.shapes: list[Shape] = []
        self.columns: list[list[I64]] = [[np.zeros(0, np.int64)] for _ in range(8)]
        self.plain = [array("q") for _ in range(8)]
        self.empty: Counter[bytes] = Counter()
        self.keys: list[bytes | None] = [None] * records
        self.refused: Refused | None = None

    def window(self, raw: U8, base: int, first: int, begin: I64, end: I64) -> None:
        """Records raw[begin:end], the first of which is number `first` of the file."""
        todo = np.arange(len(begin), dtype=np.int64)
        for shape in self.shapes:
            todo = self._walked(raw, base, first, begin, end, todo, shape)
        while len(todo):
            k = int(todo[0])
            data = raw[begin[k] : end[k]].tobytes()
            try:
                made = self._take(data, base + int(begin[k]), first + k)
            except ValueError as error:
                why = "it is a SequenceExample" if is_sequence(data) else str(error)
                self.refused = Refused(first + k, base + int(begin[k]), why)
                return
            todo = todo[1:]
            if made and len(self.shapes) < SHAPES and len(todo) >= SHAPES:
                self.shapes.append(made)
                todo = self._walked(raw, base, first, begin, end, todo, made)

    def _walked(
        self, raw: U8, base: int, first: int, begin: I64, end: I64, todo: I64, shape: Shape
    ) -> I64:
        """Take the records of this shape; returns the others."""
        if not len(todo) or not len(raw):
            return todo
        found = walk(raw, begin[todo], end[todo], shape)
        right, rows = found.right, []
        for k, (_, tag) in enumerate(shape):
            values, start, stop, number = np.ones(len(todo), np.int64), found.lo[k], found.hi[k], None
            if tag == 0x0A:
                fits, start = single_bytes(raw, start, stop)
            elif tag == 0x12:
                fits, values = packed_floats(raw, start, stop)
            elif tag == 0x1A:
                fits, number = single_int64(raw, start, stop)
            else:
                fits, values = np.ones(len(todo), bool), np.zeros(len(todo), np.int64)
            right = right & fits
            if self.lists:
                values, start, number = np.ones(len(todo), np.int64), found.lo[k], None
            rows.append((values, start, stop, np.zeros(len(todo), np.int64) if number is None else number))
        taken = todo[right]
        for (name, tag), (values, start, stop, number) in zip(shape, rows, strict=True):
            size = stop - start
            self._put(name, tag, first + taken, *(c[right] for c in (values, base + start, size, number)))
            if name == KEY and tag == 0x0A and not self.lists:
                for k, a, b in zip(taken.tolist(), start[right].tolist(), stop[right].tolist(), strict=True):
                    self.keys[first + k] = raw[a:b].tobytes()
        return todo[~right]

    def _put(self, name: bytes, tag: int, record: I64, values: I64, offset: I64, stored: I64, number: I64) -> None:
        has = values > 0
        if int(has.sum()) < len(has):
            self.empty[name] += len(has) - int(has.sum())
            record, values, offset, stored, number = (c[has] for c in (record, values, offset, stored, number))
        if not len(record):
            return
        code = self.codes.setdefault(name, len(self.codes))
        same = np.full(len(record), code, np.int64), np.full(len(record), _LIST_OF_TAG.get(tag, 0), np.int64)
        row = (record, *same, values, np.zeros(len(record), np.int64), offset, stored, number)
        for column, part in zip(self.columns, row, strict=True):
            column.append(part)

    def _take(self, data: bytes, base: int, record: int) -> Shape | None:
        """One record by the plain loop; its shape, where others can be walked by it. Raises ValueError."""
        found = list(lists(data))
        if not found:
            raise NoExample("it has no feature")
        shape = tuple((name, _TAG_OF_LIST[kind]) for name, kind, _, _ in found)
        unique = len({name for name, _ in shape}) == len(found)
        if not unique:
            # in a map the last entry of a name counts
            found = list({one[0]: one for one in found}.values())
        rows = [(one[0], *_row(one[1], data, *one[2:])) for one in found]
        if self.lists:
            rows = [(name, kind, 1, [(lo, hi)], 0) for name, kind, lo, hi in found]
        for name, kind, count, spans, number in rows:
            if not count:
                self.empty[name] += 1
                continue
            if name == KEY and kind == BYTES and count == 1 and not self.lists:
                self.keys[record] = data[spans[0][0] : spans[0][1]]
            code = self.codes.setdefault(name, len(self.codes))
            for place, (lo, hi) in enumerate(spans):
                row = (record, code, kind, count, place, base + lo, hi - lo, number)
                for column, value in zip(self.plain, row, strict=True):
                    column.append(value)
        return shape if unique else None

    def parsed(self) -> Parsed:
        whole = [
            np.concatenate([*pieces, np.array(plain, np.int64)])
            for pieces, plain in zip(self.columns, self.plain, strict=True)
        ]
        self.columns.clear()
        order = np.argsort(whole[0], kind="stable")
        record, name, kind, values, place, offset, stored, number = (column[order] for column in whole)
        keys = [key for key in self.keys if key is not None]
        return Parsed(
            tuple(self.codes), np.searchsorted(record, np.arange(len(self.keys) + 1)).astype(np.int64),
            name.astype(np.int32), kind.astype(np.uint8), values, place, offset, stored, number, self.empty,
            keys if len(keys) == len(self.keys) else None, self.refused,
        )  # fmt: skip


def _row(kind: int, data: bytes, lo: int, hi: int) -> tuple[int, int, list[Span], int]:
    """(type, values, spans, number) of a list message data[lo:hi]."""
    if kind == BYTES:
        spans = list(_values(data, lo, hi))
        return kind, len(spans), spans, 0
    if kind == FLOAT:
        return kind, _floats(data, lo, hi), [(lo, hi)], 0
    if kind == INT64:
        count, last = _int64s(data, lo, hi)
        return kind, count, [(lo, hi)], last if count == 1 else 0
    return kind, 0, [], 0


def lists(data: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """(name, type, begin, end) of the list of every feature in stored order; type 0 for a Feature without a list.

    Raises ValueError for whatever is not strictly an Example.
    """
    at, end = 0, len(data)
    while at < end:
        at, features_end = _message(data, at, end, 0x0A, "Example")
        while at < features_end:
            at, entry_end = _message(data, at, features_end, 0x0A, "Features")
            at, name_end = _message(data, at, entry_end, 0x0A, "an entry of Features")
            name = data[at:name_end]
            if name_end == entry_end:
                raise NoExample("an entry of Features has no Feature")
            at, feature_end = _message(data, name_end, entry_end, 0x12, "an entry of Features")
            if feature_end != entry_end:
                raise NoExample("an entry of Features has more than a name and a Feature")
            if at == feature_end:
                yield name, 0, at, at
                continue
            kind = _LIST_OF_TAG.get(data[at])
            if kind is None:
                raise NoExample(f"a Feature has the unknown field {data[at] >> 3}")
            at, list_end = _message(data, at, feature_end, data[at], "Feature")
            if list_end != feature_end:
                raise NoExample("a Feature has more than one list")
            yield name, kind, at, list_end
            at = list_end


def _message(data: bytes, at: int, end: int, tag: int, where: str) -> Span:
    """Begin and end of the length-delimited field that must stand at `at`."""
    if data[at] != tag:
        raise NoExample(f"field {data[at] >> 3} of wire type {data[at] & 7} where {where} has none")
    if at + 1 < end and data[at + 1] < 128:
        length, at = data[at + 1], at + 2
    else:
        length, at = varint(data, at + 1)
    if at + length > end:
        raise NoExample(f"{where} is cut short")
    return at, at + length


def _values(data: bytes, at: int, end: int) -> Iterator[Span]:
    while at < end:
        at, stop = _message(data, at, end, 0x0A, "BytesList")
        yield at, stop
        at = stop


def _floats(data: bytes, at: int, end: int) -> int:
    count = 0
    while at < end:
        if data[at] == 0x0D:
            at, length = at + 5, 4
        else:
            at, stop = _message(data, at, end, 0x0A, "FloatList")
            length, at = stop - at, stop
        if length % 4 or at > end:
            raise NoExample("a FloatList has a length that is no multiple of four")
        count += length // 4
    return count


def _int64s(data: bytes, at: int, end: int) -> tuple[int, int]:
    """How many values, and the last one."""
    count = value = 0
    while at < end:
        if data[at] == 0x08:
            value, at = varint(data, at + 1)
            count += 1
            stop = at
        else:
            at, stop = _message(data, at, end, 0x0A, "Int64List")
        while at < stop:
            value, at = varint(data, at)
            count += 1
        if at > stop or at > end:
            raise NoExample("an Int64List is cut short")
    return count, value - (1 << 64) if value >> 63 else value


def is_sequence(data: bytes) -> bool:
    """Whether a record is a SequenceExample: field 1 its context, field 2 its feature lists, by name."""
    try:
        found = list(fields(data))
        named = [
            inner for number, wire, value in found if number == 2 and isinstance(value, bytes) and wire == 2
            for inner in fields(value)
        ]  # fmt: skip
    except ValueError:
        return False
    outer = all(number in (1, 2) and wire == 2 for number, wire, _ in found)
    return outer and bool(named) and all(number == 1 and wire == 2 for number, wire, _ in named)
