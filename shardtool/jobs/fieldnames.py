"""What a conversion is asked for, and what fields are called in the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import DataError, UsageError, printable
from ..layout.example import KEY
from ..layout.fields import repeated_field, without_fields
from ..layout.index import SPAN, TO_FLOAT, TO_INT64, Index
from ..layout.rules import Rules
from .scan import Scan

TYPES = {"bytes": SPAN, "int64": TO_INT64, "float": TO_FLOAT}
TYPE_NAMES = {SPAN: "bytes", TO_INT64: "int64", TO_FLOAT: "float"}
# Bytes that a message about a name shows
NAMED = 20


@dataclass(frozen=True)
class Conversion:
    """What is asked for; names are bytes as in the source.

    rename   OLD -> NEW
    drop     fields that are left out
    fields   field -> 'int64', 'float' or 'bytes': its type in a tf.train.Example
    records  'auto': records are Examples when all are; 'example': they must be; 'raw': they are not looked into
    names    member -> the name that it had as a feature; where a sample has such a member and nothing else is asked
    types    member -> the type that it had as a feature, in the same way
    """

    rename: Mapping[bytes, bytes] = field(default_factory=dict)
    drop: tuple[bytes, ...] = ()
    fields: Mapping[bytes, str] = field(default_factory=dict)
    records: str = "auto"
    names: Mapping[bytes, bytes] = field(default_factory=dict)
    types: Mapping[bytes, str] = field(default_factory=dict)

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
    facts    what the manifest says of the fields, where records stay records
    """

    scan: Scan
    renamed: Mapping[bytes, bytes] = field(default_factory=dict)
    types: Mapping[bytes, str] = field(default_factory=dict)
    values: Mapping[bytes, tuple[int, int, int]] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] | None = None


def new_names(old: Sequence[bytes], conversion: Conversion, default: Mapping[bytes, bytes]) -> list[bytes | None]:
    """The name of every field in the output, None for those left out. UsageError for an option about no field."""
    known = set(old)
    for option, names in (
        ("--rename", conversion.rename), ("--drop", conversion.drop), ("--field", conversion.fields),
    ):  # fmt: skip
        for name in names:
            if name not in known:
                has = ", ".join(printable(one) for one in sorted(known - {KEY})[:NAMED])
                raise UsageError(f"{option} {printable(name)}: no sample has this field", why=f"they have {has}")
    both = set(conversion.drop) & (set(conversion.rename) | set(conversion.fields))
    if both:
        raise UsageError(f"--drop {printable(min(both))} leaves out a field that another option is about")
    return [
        None if name in conversion.drop else conversion.rename.get(name, default.get(name, name)) for name in old
    ]


def require_names(old: Sequence[bytes], new: Sequence[bytes | None], format: str) -> None:
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


def require_apart(index: Index, names: Mapping[bytes, list[bytes]], format: str, rules: Rules) -> None:
    """DataError when a sample would have a name twice, or, in a tar, two that differ by letter case only."""
    found = repeated_field(index, fold_case=format == "tar" and not rules.allow_case_collision)
    if found is None:
        return
    sample, a, b = found
    olds = [printable(old) for code in {a: 0, b: 0} for old in names[index.exts[code]]]
    same = "have one name" if a == b else "have names that differ by letter case only"
    raise of_sample(
        index, sample, f"fields {' and '.join(olds)} {same} in the output",
        f"they would be {printable(index.exts[a])} and {printable(index.exts[b])}",
        "give one of them another name: --rename OLD=NEW",
    )  # fmt: skip


def of_sample(index: Index, sample: int, what: str, why: str, remedy: str) -> DataError:
    source = int(index.source_of(np.array([sample], np.int64))[0])
    record = sample - int(index.source_first[source])
    member = f"number {record}" if index.keys is None else index.keys[sample]
    return DataError(what, file=index.sources[source].name, member=member, why=why, remedy=remedy)


def require_parts(index: Index, remedy: str) -> None:
    sample = without_fields(index)
    if sample is not None:
        what = "a sample would have no field in the output"
        raise of_sample(index, sample, what, "none of its fields is kept", remedy)


def by_new(old: Sequence[bytes], new: Sequence[bytes | None]) -> dict[bytes, list[bytes]]:
    names: dict[bytes, list[bytes]] = {}
    for one, name in zip(old, new, strict=True):
        if name is not None:
            names.setdefault(name, []).append(one)
    return names


def table(old: Sequence[bytes], new: Sequence[bytes | None]) -> dict[bytes, bytes]:
    return {one: name for one, name in zip(old, new, strict=True) if name is not None and name != one}


