"""Encoding tf.train.Example: the bytes around the payloads, so that payloads are copied where they go.

What these bytes are is in layout/example.py. Here they are made for all features of a window at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...base.ragged import Ragged
from ...layout.example import (
    BYTES_TAG,
    FLOAT_TAG,
    INT64_TAG,
    KEY,
    LIST,
    MESSAGE_TAG,
    NOTHING,
    VALUE,
    VALUE_TAG,
    example_bytes,
    feature_lengths,
    features_bytes,
    varint_bytes,
)
from ...layout.index import I64, NO_LIST, TO_FLOAT, TO_INT64, Index
from ...layout.keys import NONE, OutputKeys

_TAG_OF_TYPE = np.array([0, BYTES_TAG, FLOAT_TAG, INT64_TAG], np.uint8)  # bytes, float, int64 from 1 on
_TAG_OF_KIND = {TO_INT64: INT64_TAG, TO_FLOAT: FLOAT_TAG}


def varints(value: I64) -> Ragged:
    """The shortest varint of every value >= 0."""
    length = varint_bytes(value)
    most = int(length.max(initial=1))
    shift = 7 * np.arange(most, dtype=np.int64)
    # digit j of seven bits of every value [k, most]; all but the last have the high bit
    digits = (value[:, None] >> shift) & 127
    place = np.arange(most)[None, :]
    digits |= np.where(place < length[:, None] - 1, 128, 0)
    first = np.zeros(len(value) + 1, np.int64)
    np.cumsum(length, out=first[1:])
    return Ragged(digits[place < length[:, None]].astype(np.uint8), first)


@dataclass(frozen=True)
class Features:
    """Features of k samples in the order in which they are written: parts of the index, and keys among them.

    begin  int64[k+1], features of sample i are begin[i]:begin[i+1]
    part   int64[q], number of the part in the index; -1: the feature is the sample's key
    name   int64[q], number of the name in `names`
    size   int64[q], bytes of the payload
    tag    uint8[q], of the list: bytes, float or int64
    keys   of the samples, or None when they carry none
    forms  uint8[q] as in layout/example.py; None: every payload is the field of a list
    """

    names: tuple[bytes, ...]
    begin: I64
    part: I64
    name: I64
    size: I64
    tag: npt.NDArray[np.uint8]
    keys: Ragged | None
    forms: npt.NDArray[np.uint8] | None = None

    @property
    def name_lengths(self) -> I64:
        """int64[q]"""
        return np.array([len(name) for name in self.names], np.int64).take(self.name)

    def example_bytes(self) -> I64:
        """Length of every sample's Example, int64[k]."""
        return example_bytes(self.begin, self.name_lengths, self.size, self.forms)

    def heads(self) -> Ragged:
        """The bytes in front of every sample's first feature: tag and length of Features."""
        length = features_bytes(self.begin, self.name_lengths, self.size, self.forms)
        return Ragged.glue(Ragged.repeat(bytes([MESSAGE_TAG]), len(length)), varints(length))

    def prefixes(self) -> Ragged:
        """The bytes between the payload before and this one's, q strings."""
        count = len(self.part)
        entry, feature, inner = feature_lengths(self.name_lengths, self.size, self.forms)
        named = Ragged.of(
            bytes([MESSAGE_TAG]) + varints(np.array([len(name)], np.int64)).data.tobytes() + name + bytes([VALUE_TAG])
            for name in self.names
        )
        tag = Ragged(self.tag, np.arange(count + 1, dtype=np.int64))
        message = Ragged.repeat(bytes([MESSAGE_TAG]), count)
        lists, fields = [tag, varints(inner)], [message, varints(self.size)]
        if self.forms is not None:
            lists = [_only(strings, self.forms != NOTHING) for strings in lists]
            fields = [_only(strings, self.forms == VALUE) for strings in fields]
        return Ragged.glue(message, varints(entry), named.take(self.name), varints(feature), *lists, *fields)


def _only(strings: Ragged, keep: npt.NDArray[np.bool_]) -> Ragged:
    """The strings, empty where not `keep`."""
    length = strings.lengths()
    first = np.zeros(len(strings) + 1, np.int64)
    np.cumsum(np.where(keep, length, 0), out=first[1:])
    return Ragged(strings.data[np.repeat(keep, length)], first)


def features_of(index: Index, keys: OutputKeys, ids: I64) -> Features:
    """Features of the samples `ids`. The parts of every sample stand in ascending order of their names already."""
    assert index.ext is not None
    parts, begin = index.parts_of(ids)
    name = index.ext.take(parts).astype(np.int64)
    size = index.size.take(parts).astype(np.int64)
    tag = np.full(len(parts), BYTES_TAG, np.uint8)
    forms = None
    if index.kind is not None:
        kind = index.kind.take(parts)
        for computed, value in _TAG_OF_KIND.items():
            tag[kind == computed] = value
        if bool((kind >= NO_LIST).any()):
            forms = np.where(kind > NO_LIST, LIST, np.where(kind == NO_LIST, NOTHING, VALUE)).astype(np.uint8)
            tag = np.where(kind > NO_LIST, _TAG_OF_TYPE[np.maximum(kind, NO_LIST) - NO_LIST], tag)
    if keys.mode == NONE:
        return Features(index.exts, begin, parts, name, size, tag, None, forms)
    assert forms is None  # records have no keys
    own = keys.take(ids)
    # the key's place in every sample: behind the features with smaller names
    smaller = sum(ext < KEY for ext in index.exts)
    before = np.zeros(len(name) + 1, np.int64)
    np.cumsum(name < smaller, out=before[1:])
    at = begin[:-1] + before[begin[1:]] - before[begin[:-1]]
    grown = begin + np.arange(len(begin), dtype=np.int64)
    return Features(
        (*index.exts, KEY), grown, np.insert(parts, at, -1), np.insert(name, at, len(index.exts)),
        np.insert(size, at, own.lengths()), np.insert(tag, at, BYTES_TAG), own,
    )  # fmt: skip
