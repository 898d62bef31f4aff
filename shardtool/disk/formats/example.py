"""One feature of a serialized tf.train.Example, without protobuf.

Example { Features features = 1; }  Features { map<string, Feature> feature = 1; }
Feature { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }, each list { repeated value = 1 }
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...base.errors import DataError

Field = tuple[int, int, bytes | int]


def feature_text(record: bytes, name: bytes, *, file: bytes, offset: int) -> bytes | None:
    """The feature's single value as text (an int64 in decimal, a float by repr), None when the record has none.

    Raises DataError when the record is no Example or the feature has several values.
    """
    try:
        values = feature_values(record, name)
    except ValueError as error:
        raise DataError(
            f"no tf.train.Example, so it has no feature {name.decode('utf-8', 'replace')!r}",
            file=file, offset=offset, why=str(error), remedy="leave out --label",
        ) from None  # fmt: skip
    if values is None or not values:
        return None
    if len(values) > 1:
        raise DataError(
            f"feature {name.decode('utf-8', 'replace')!r} has {len(values)} values, a label is one",
            file=file, offset=offset,
        )  # fmt: skip
    value = values[0]
    return value if isinstance(value, bytes) else repr(value).encode()


def feature_values(record: bytes, name: bytes) -> list[bytes | int | float] | None:
    """All values of a feature; None when it is not there. ValueError for what is no Example."""
    for entry in entries(record):
        key, value = entry
        if key == name:
            return list_values(value)
    return None


def entries(record: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(name, serialized Feature) of every map entry, in stored order."""
    for number, kind, features in fields(record):
        if number != 1 or kind != 2 or not isinstance(features, bytes):
            raise ValueError(f"unexpected field {number} in Example")
        for inner, inner_kind, entry in fields(features):
            if inner != 1 or inner_kind != 2 or not isinstance(entry, bytes):
                raise ValueError(f"unexpected field {inner} in Features")
            key, value = b"", b""
            for part, part_kind, data in fields(entry):
                if part not in (1, 2) or part_kind != 2 or not isinstance(data, bytes):
                    raise ValueError(f"unexpected field {part} in a feature's entry")
                if part == 1:
                    key = data
                else:
                    value = data
            yield key, value


def list_values(feature: bytes) -> list[bytes | int | float]:
    """Values of a serialized Feature."""
    values: list[bytes | int | float] = []
    for kind, wire, data in fields(feature):
        if kind not in (1, 2, 3) or wire != 2 or not isinstance(data, bytes):
            raise ValueError(f"unexpected field {kind} in Feature")
        for number, inner, item in fields(data):
            if number != 1:
                raise ValueError(f"unexpected field {number} in a value list")
            if kind == 1 and isinstance(item, bytes) and inner == 2:
                values.append(item)
            elif kind == 2 and isinstance(item, bytes):
                if len(item) % 4:
                    raise ValueError("a list of floats has a length that is no multiple of four")
                values.extend(struct.unpack(f"<{len(item) // 4}f", item))
            elif kind == 3:
                values.extend(map(_signed, _packed(item) if isinstance(item, bytes) else [item]))
            else:
                raise ValueError("a value has the wrong wire type")
    return values


def fields(data: bytes) -> Iterator[Field]:
    """(number, wire type, value) of a message; length-delimited and fixed values as bytes, varints as ints."""
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise ValueError("field number 0")
        if wire == 0:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            length, at = varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + length > end:
            raise ValueError(f"field {number} is cut short")
        yield number, wire, data[at : at + length]
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it); ValueError when it is cut short or longer than ten bytes."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a varint is cut short or too long")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
