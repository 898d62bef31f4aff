"""Names and forms over which a known reader stumbles, though they are legal. docs/inspect.md has the table.

What each reader does was seen by running it: webdataset 0.2.111 and 1.0.2, wids 0.1.11, DALI 2.4.0 with and without
the index that its wds2idx makes; Hugging Face datasets 5.2.0 and Energon 7.4.1 were read in their source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged
from .index import I64, Index

# Examples that are named of each trap.
NAMED = 3
# A single message of protocol buffers ends here, and so does a tf.train.Example.
MESSAGE_LIMIT = 1 << 31

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trap:
    """what: in words, of members, samples or shards; readers: who stumbles, and how; remedy: what avoids it."""

    what: str
    readers: Mapping[str, str]
    remedy: str


TRAPS: dict[str, Trap] = {
    "prefix": Trap(
        "member names over 100 bytes, split into prefix and name",
        {"wids": "loses the folder; one basename in two folders becomes one sample"},
        "repack --keys ordinal",
    ),
    "gnu_long_name": Trap(
        "member names in a GNU long-name header",
        {"wids": "0 samples", "DALI with wds2idx": "wrong bytes, no error"},
        "repack --keys ordinal; or repack --export dali-wds for DALI",
    ),
    "pax_name": Trap(
        "member names in a pax header",
        {"wids": "0 samples; bytes beyond ASCII become '?'", "DALI without index": "empty samples"},
        "repack (it writes no pax), for long names with --keys ordinal",
    ),
    "white_space": Trap(
        "white space or control characters in member names",
        {"DALI with wds2idx": "refuses the index"},
        "repack --keys ordinal; or repack --export dali-wds",
    ),
    "white_space_in_field": Trap(
        "white space in field names",
        {"DALI": "no index can hold them"},
        "rename the members",
    ),
    "upper_case_field": Trap(
        "upper-case letters in field names",
        {"webdataset": "lower-cases them", "DALI": "no match, empty output", "wids": "keeps them"},
        "DALI: case_sensitive_extensions=False; webdataset: ask for the lower-case name",
    ),
    "case_colliding_fields": Trap(
        "fields of one sample that differ by letter case only",
        {"webdataset": "ValueError: duplicate file name"},
        "rename one of them",
    ),
    "inner_dots": Trap(
        "members of fields with a dot that most samples lack (names like IMG.2020.jpg, cut at the first dot?)",
        {"all readers": "the field is '2020.jpg', not 'jpg'"},
        "rename the files before they are packed",
    ),
    "duplicate_keys": Trap(
        "keys that several samples have",
        {"Energon": "refuses them", "any lookup by key": "finds one of them"},
        "repack (its keys are unique), or --keys ordinal",
    ),
    "case_colliding_keys": Trap(
        "keys that differ by letter case only",
        {"unpacking on macOS or Windows": "one overwrites the other"},
        "repack --keys ordinal",
    ),
    "not_adjacent": Trap(
        "samples whose members are not neighbours",
        {"webdataset": "half samples", "wids": "half samples", "DALI": "half samples"},
        "repack --group archive",
    ),
    "hard_links": Trap(
        "members stored as hard links",
        {"webdataset": "the field is missing, no error", "DALI": "the field is empty"},
        "repack (it stores the content)",
    ),
    "sparse": Trap(
        "sparse members",
        {"DALI with wds2idx": "the process dies", "DALI without index": "empty samples"},
        "repack (it stores the content)",
    ),
    "dot_slash": Trap(
        "member names that begin with './'",
        {"webdataset": "keys begin with './'", "DALI": "keys begin with './'"},
        "repack (it drops them)",
    ),
    "hidden": Trap(
        "hidden members (.x, d/.y, ._x, __MACOSX/)",
        {
            "webdataset": "a sample 'd/' of d/.y, or of all d/._y together", "wids": "extra samples",
            "DALI without index": "empty samples",
        },
        "repack (it leaves them out)",
    ),
    "no_extension": Trap(
        "members without an extension",
        {"DALI": "extra empty samples", "webdataset": "skips them", "wids": "skips them with a warning"},
        "repack (it leaves them out)",
    ),
    "meta": Trap(
        "metadata members (__name__)",
        {"DALI": "extra empty samples", "wids": "a sample", "webdataset": "skips __name__ without an extension only"},
        "repack (it leaves them out)",
    ),
    "empty_shards": Trap(
        "shards without a sample",
        {"DALI": "one empty sample; wds2idx fails"},
        "repack (it makes none)",
    ),
    "first_five_differ": Trap(
        "different sets of fields in the first five samples",
        {"Hugging Face datasets": "refuses the data set"},
        "repack --require the fields that all must have",
    ),
    "large_records": Trap(
        "records of 2 GiB or more",
        {"TensorFlow, protobuf": "cannot parse such a message"},
        "write them in parts",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Caught:
    """A trap that is there: how many, and a few names. at_least: not all were looked at."""

    trap: str
    count: int
    examples: tuple[bytes, ...] = ()
    at_least: bool = False


def caught(
    index: Index, hashes: npt.NDArray[np.uint64] | None, lower_hashes: npt.NDArray[np.uint64] | None
) -> list[Caught]:
    """Traps that the index alone shows.

    hashes, lower_hashes  a 64-bit hash of every key, and of it in lower case (ASCII)
    """
    found = [*_shards(index), *_large(index)]
    if index.ext is None or index.keys is None or index.first is None:
        return found
    first = index.first[0 : index.samples + 1]
    found += [*_names(index, first), *_fields(index, first), *_forms(index, first)]
    if hashes is not None and lower_hashes is not None:
        found += _keys(index.keys.whole(), hashes, lower_hashes)
    return found


def _shards(index: Index) -> list[Caught]:
    if index.ext is None:
        return []  # what was seen is of tars; a TFRecord file of no bytes is one of no records
    empty = [source.name for source in index.sources if not source.samples]
    return [Caught("empty_shards", len(empty), tuple(empty[:NAMED]))] if empty else []


def _large(index: Index) -> list[Caught]:
    if index.ext is not None:
        return []
    large = np.flatnonzero(index.size[0 : len(index.size)] >= MESSAGE_LIMIT)
    names = tuple(b"record %d" % number for number in large[:NAMED].tolist())
    return [Caught("large_records", len(large), names)] if len(large) else []


def _names(index: Index, first: I64) -> list[Caught]:
    """Length of member names and bytes in them."""
    assert index.keys is not None and index.ext is not None
    keys, ext = index.keys.whole(), index.ext[0 : len(index.ext)].astype(np.int64)
    ext_bytes = np.array([len(e) for e in index.exts] or [0], np.int64)
    lengths = np.repeat(keys.lengths(), np.diff(first)) + 1 + ext_bytes[ext]  # [parts]
    head = index.head[0 : len(index.head)]
    found = [_of_parts("prefix", index, first, (lengths > 100) & (head == 512))]
    data = keys.data[keys.first[0] : keys.first[-1]]
    odd = _rows(keys, (data <= 32) | (data == 127))
    if len(odd):
        found.append(Caught("white_space", len(odd), tuple(keys[i] for i in odd[:NAMED].tolist())))
    return [one for one in found if one.count]


def _rows(keys: Ragged, hits: Bools) -> I64:
    """Numbers of the keys that have a byte in `hits` (bool[bytes])."""
    at = np.flatnonzero(hits) + keys.first[0]
    rows: I64 = np.searchsorted(keys.first, at, side="right") - 1  # ascends with `at`
    return rows[np.diff(rows, prepend=-1) > 0]


def _fields(index: Index, first: I64) -> list[Caught]:
    assert index.ext is not None
    ext = index.ext[0 : len(index.ext)].astype(np.int64)
    count = np.bincount(ext, minlength=len(index.exts))
    found = []
    present = [(k, name) for k, name in enumerate(index.exts) if count[k]]
    for trap, codes in (
        ("white_space_in_field", [k for k, name in present if name.split() != [name] and name]),
        ("upper_case_field", [k for k, name in present if name != name.lower()]),
    ):
        if codes:
            found.append(Caught(trap, int(count[codes].sum()), tuple(index.exts[k] for k in codes[:NAMED])))
    dotted = [k for k, name in enumerate(index.exts) if b"." in name and 0 < 2 * count[k] < index.samples]
    if dotted:
        found.append(Caught("inner_dots", int(count[dotted].sum()), tuple(index.exts[k] for k in dotted[:NAMED])))
    found += _colliding_fields(index, first, ext)
    if index.samples > 1:
        sets = {tuple(sorted(ext[first[i] : first[i + 1]].tolist())) for i in range(min(5, index.samples))}
        if len(sets) > 1:
            found.append(Caught("first_five_differ", len(sets)))
    return found


def _colliding_fields(index: Index, first: I64, ext: I64) -> list[Caught]:
    by_lower: dict[bytes, list[int]] = {}
    for code, name in enumerate(index.exts):
        by_lower.setdefault(name.lower(), []).append(code)
    hit = np.zeros(index.samples, bool)
    for codes in by_lower.values():
        if len(codes) > 1:
            hit |= np.add.reduceat(np.isin(ext, codes).astype(np.int64), first[:-1]) > 1
    return _of_samples("case_colliding_fields", index, hit)


def _forms(index: Index, first: I64) -> list[Caught]:
    """Links, sparse members, members apart."""
    offset, head = index.offset[0 : len(index.offset)], index.head[0 : len(index.head)]
    found = [_of_parts("hard_links", index, first, head < 0)]
    sparse = np.zeros(len(offset), bool)
    sparse[list(index.sparse)] = True
    found.append(_of_parts("sparse", index, first, sparse))
    apart = np.zeros(index.samples, bool)
    cuts = index.source_first.tolist()
    for source, lo, hi in zip(index.sources, cuts[:-1], cuts[1:], strict=True):
        a, b = int(first[lo]), int(first[hi])
        if source.format == "folder":
            continue  # each part is a file
        if not (np.diff(offset[a:b]) < 0).any():
            continue  # ascending: members of a sample follow each other
        owner = np.repeat(np.arange(lo, hi), np.diff(first[lo : hi + 1]))[np.argsort(offset[a:b], kind="stable")]
        starts = owner[np.concatenate([[True], np.diff(owner) != 0])]  # the sample of every run of members
        apart[lo:hi] = np.bincount(starts - lo, minlength=hi - lo) > 1
    return [one for one in [*found, *_of_samples("not_adjacent", index, apart)] if one.count]


def _keys(keys: Ragged, hashes: npt.NDArray[np.uint64], lower_hashes: npt.NDArray[np.uint64]) -> list[Caught]:
    """A repeated 64-bit hash is taken for a repeated key: among 10^9 keys one pair in 37 collides by chance."""
    found = []
    again = _repeats(hashes)
    if len(again):
        found.append(Caught("duplicate_keys", len(again), tuple(keys[i] for i in again[:NAMED].tolist())))
    distinct = np.unique(hashes, return_index=True)[1]
    folded = distinct[_repeats(lower_hashes[distinct])]
    if len(folded):
        found.append(Caught("case_colliding_keys", len(folded), tuple(keys[i] for i in folded[:NAMED].tolist())))
    return found


def _repeats(hashes: npt.NDArray[np.uint64]) -> I64:
    """Numbers of all entries but the first of each value, ascending."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    return np.sort(order[1:][ranked[1:] == ranked[:-1]]).astype(np.int64)


def _of_samples(trap: str, index: Index, hit: Bools) -> list[Caught]:
    assert index.keys is not None
    rows = np.flatnonzero(hit)
    return [Caught(trap, len(rows), tuple(index.keys[i] for i in rows[:NAMED].tolist()))] if len(rows) else []


def _of_parts(trap: str, index: Index, first: I64, hit: Bools) -> Caught:
    parts = np.flatnonzero(hit)
    return Caught(trap, len(parts), tuple(member_name(index, first, int(part)) for part in parts[:NAMED]))


def member_name(index: Index, first: I64, part: int) -> bytes:
    """'<key>.<field>' of part number `part`."""
    assert index.keys is not None and index.ext is not None
    sample = int(np.searchsorted(first, part, side="right")) - 1
    return index.keys[sample] + b"." + index.exts[int(index.ext[part : part + 1][0])]
