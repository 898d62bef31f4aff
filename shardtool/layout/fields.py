"""Fields of samples under other names, or left out: columns in, columns out, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .index import FRONT, I64, ColumnStore, Index, Runs, windows

STEP = 1 << 16

_TYPES = {"offset": "<i8", "head": "<i8", "size": "<i8", "kind": "|u1", "stored": "<i8", "file": "<i8"}


def with_fields(index: Index, names: Sequence[bytes | None], store: ColumnStore, *, by_name: bool) -> Index:
    """The index with field k called names[k], or left out where that is None; its columns are made by `store`.

    by_name  parts of every sample in ascending order of their names' bytes, as in a tf.train.Example; else as before

    A sample may be left without parts.
    """
    assert index.first is not None and index.ext is not None
    exts = tuple(sorted({name for name in names if name is not None}))
    number = {name: code for code, name in enumerate(exts)}
    new = np.array([-1 if name is None else number[name] for name in names] or [0], np.int64)
    olds = {name: column for name in _TYPES if (column := getattr(index, name)) is not None}
    if not by_name and None not in names:
        olds = {}  # all parts stay where they are
    made = {name: store.growing(_TYPES[name]) for name in olds}
    firsts, exts_of = store.growing(), store.growing("<u4")
    firsts.add(FRONT, np.zeros(1, np.int64))
    sparse: dict[int, Runs] = {}
    before = [0]
    known = np.array(sorted(index.sparse), np.int64)
    for number_of, (lo, hi) in enumerate(windows(index.samples, STEP)):
        bounds = index.first[lo : hi + 1].astype(np.int64)
        a, b = int(bounds[0]), int(bounds[-1])
        ext = new[index.ext[a:b].astype(np.int64)]
        owner = np.repeat(np.arange(hi - lo, dtype=np.int64), np.diff(bounds))
        kept = np.flatnonzero(ext >= 0)
        ends = np.cumsum(np.bincount(owner[kept], minlength=hi - lo))
        if by_name:
            kept = kept[np.lexsort((ext[kept], owner[kept]))]
        firsts.add(number_of, ends)
        exts_of.add(number_of, ext[kept].astype(np.uint32))
        for name, column in olds.items():
            made[name].add(number_of, column[a:b][kept])
        some = known[np.searchsorted(known, a) : np.searchsorted(known, b)]
        if len(some):
            sparse.update(_renumbered(index, some, kept + a, before[-1]))
        before.append(before[-1] + len(kept))
    numbers = range(len(before) - 1)
    renamed = replace(index, exts=exts, ext=exts_of.finish(numbers))
    if not olds:
        return renamed
    columns: dict[str, Any] = {name: column.finish(numbers) for name, column in made.items()}
    first = firsts.finish([FRONT, *numbers], [0, *before[:-1]])
    return replace(renamed, first=first, sparse=sparse, **columns)


def _renumbered(index: Index, some: I64, parts: I64, before: int) -> dict[int, Runs]:
    """Runs of the sparse parts `some`, by number in a list of parts whose first has the number `before`."""
    return {before + k: index.sparse[int(parts[k])] for k in np.flatnonzero(np.isin(parts, some)).tolist()}


def without_fields(index: Index) -> int | None:
    """A sample that has no part, or None."""
    assert index.first is not None
    for lo, hi in windows(index.samples, STEP):
        empty = np.flatnonzero(np.diff(index.first[lo : hi + 1].astype(np.int64)) == 0)
        if len(empty):
            return lo + int(empty[0])
    return None


def repeated_field(index: Index, *, fold_case: bool) -> tuple[int, int, int] | None:
    """(sample, field, field): numbers of two parts' fields of one sample that have one name; None when there are none.

    fold_case  names that differ by letter case only are one
    """
    assert index.first is not None and index.ext is not None
    names = [ext.decode("utf-8", "surrogateescape").lower() if fold_case else ext for ext in index.exts]
    code = {name: k for k, name in reversed(list(enumerate(names)))}
    folded = np.array([code[name] for name in names] or [0], np.int64)
    for lo, hi in windows(index.samples, STEP):
        first = index.first[lo : hi + 1].astype(np.int64)
        ext = index.ext[int(first[0]) : int(first[-1])].astype(np.int64)
        owner = np.repeat(np.arange(hi - lo, dtype=np.int64), np.diff(first))
        order = np.lexsort((folded[ext], owner))
        name, sample = folded[ext][order], owner[order]
        same = np.flatnonzero((name[1:] == name[:-1]) & (sample[1:] == sample[:-1]))
        if len(same):
            a, b = order[same[0]], order[same[0] + 1]
            return lo + int(owner[a]), int(ext[a]), int(ext[b])
    return None
