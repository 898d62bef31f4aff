"""Fields of samples under other names, or left out: columns in, columns out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .index import I64, Index, Runs, windows

STEP = 1 << 16


def with_fields(index: Index, names: Sequence[bytes | None], *, by_name: bool) -> Index:
    """The index with field k called names[k], or left out where that is None.

    by_name  parts of every sample in ascending order of their names' bytes, as in a tf.train.Example; else as before

    A sample may be left without parts.
    """
    assert index.first is not None and index.ext is not None
    exts = tuple(sorted({name for name in names if name is not None}))
    number = {name: code for code, name in enumerate(exts)}
    new = np.array([-1 if name is None else number[name] for name in names] or [0], np.int64)
    first = np.zeros(index.samples + 1, np.int64)
    parts_of, ext_of = [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)]
    for lo, hi in windows(index.samples, STEP):
        bounds = index.first[lo : hi + 1].astype(np.int64)
        ext = new[index.ext[int(bounds[0]) : int(bounds[-1])].astype(np.int64)]
        owner = np.repeat(np.arange(hi - lo, dtype=np.int64), np.diff(bounds))
        kept = np.flatnonzero(ext >= 0)
        first[lo + 1 : hi + 1] = np.bincount(owner[kept], minlength=hi - lo)
        if by_name:
            kept = kept[np.lexsort((ext[kept], owner[kept]))]
        parts_of.append(kept + bounds[0])
        ext_of.append(ext[kept].astype(np.uint32))
    np.cumsum(first, out=first)
    parts, ext = np.concatenate(parts_of), np.concatenate(ext_of)
    if len(parts) == len(index.size) and not by_name:
        return replace(index, exts=exts, ext=ext)
    return replace(
        index, first=first, exts=exts, ext=ext,
        offset=index.offset.take(parts), head=index.head.take(parts), size=index.size.take(parts),
        sparse=_renumbered(index.sparse, parts),
        kind=None if index.kind is None else index.kind.take(parts),
        stored=None if index.stored is None else index.stored.take(parts),
    )  # fmt: skip


def _renumbered(sparse: Mapping[int, Runs], parts: I64) -> dict[int, Runs]:
    if not sparse:
        return {}
    return {new: sparse[old] for new, old in enumerate(parts.tolist()) if old in sparse}


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
