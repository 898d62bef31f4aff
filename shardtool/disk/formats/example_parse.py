"""Strict parsing of tf.train.Example records: where every value lies, so that it can be copied.

A protobuf parser takes almost any bytes for some message. Here a record is an Example only when nothing is left
over: field 1 of Example alone, map entries with one name and one Feature each, a Feature with at most one list, a list
with nothing but values, at least one feature.
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

BYTES, FLOAT, INT64 = 1, 2, 3
_LIST_OF_TAG = {0x0A: BYTES, 0x12: FLOAT, 0x1A: INT64}

WINDOW = 4 << 20

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
    digits  int64[q], length of a single int64 as decimal text; else 0
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
    digits: I64
    empty: Counter[bytes] = field(default_factory=Counter)
    keys: list[bytes] | None = None
    refused: Refused | None = None


def parse_file(path: bytes, name: bytes, offset: I64, size: I64) -> Parsed:
    """Parse the records whose payloads lie at offset, int64[n], with size bytes, int64[n]."""
    rows = _Rows()
    with Blocks(path, name, WINDOW) as file:
        for number, (at, count) in enumerate(zip(offset.tolist(), size.tolist(), strict=True)):
            data = bytes(file.peek(at, count))
            try:
                rows.take(data, at)
            except ValueError as error:
                why = "it is a SequenceExample" if is_sequence(data) else str(error)
                rows.refused = Refused(number, at, why)
                break
    return rows.parsed()


class _Rows:
    """Columns of a Parsed, as they grow."""

    def __init__(self) -> None:
        self.codes: dict[bytes, int] = {}
        self.name, self.type = array("i"), array("B")
        self.values, self.place, self.offset, self.stored, self.digits = (array("q") for _ in range(5))
        self.first = array("q", [0])
        self.empty: Counter[bytes] = Counter()
        self.keys: list[bytes] | None = []
        self.refused: Refused | None = None

    def take(self, data: bytes, base: int) -> None:
        """One record. Raises ValueError (nothing is kept of it)."""
        found = list(lists(data))
        if not found:
            raise NoExample("it has no feature")
        if len({name for name, _, _, _ in found}) < len(found):
            # in a map the last entry of a name counts
            found = list({one[0]: one for one in found}.values())
        whole = [(name, *_row(kind, data, lo, hi)) for name, kind, lo, hi in found]
        key = None
        for name, kind, count, spans, digits in whole:
            if not count:
                self.empty[name] += 1
                continue
            if name == KEY and kind == BYTES and count == 1:
                key = data[spans[0][0] : spans[0][1]]
            code = self.codes.setdefault(name, len(self.codes))
            for place, (lo, hi) in enumerate(spans):
                self.name.append(code)
                self.type.append(kind)
                self.values.append(count)
                self.place.append(place)
                self.offset.append(base + lo)
                self.stored.append(hi - lo)
                self.digits.append(digits)
        self.first.append(len(self.name))
        if key is None:
            self.keys = None
        elif self.keys is not None:
            self.keys.append(key)

    def parsed(self) -> Parsed:
        def column(values: array[int]) -> I64:
            return np.array(values, np.int64)

        return Parsed(
            tuple(self.codes), column(self.first), np.array(self.name, np.int32), np.array(self.type, np.uint8),
            column(self.values), column(self.place), column(self.offset), column(self.stored), column(self.digits),
            self.empty, self.keys, self.refused,
        )  # fmt: skip


def _row(kind: int, data: bytes, lo: int, hi: int) -> tuple[int, int, list[Span], int]:
    """(type, values, spans, digits) of a list message data[lo:hi]."""
    if kind == BYTES:
        spans = list(_values(data, lo, hi))
        return kind, len(spans), spans, 0
    if kind == FLOAT:
        return kind, _floats(data, lo, hi), [(lo, hi)], 0
    if kind == INT64:
        count, last = _int64s(data, lo, hi)
        return kind, count, [(lo, hi)], len(b"%d" % last) if count == 1 else 0
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
