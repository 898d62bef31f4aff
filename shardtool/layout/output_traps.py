"""Names and forms that a repack would write and a known reader stumbles over; with the option that avoids each.

The traps themselves, and who stumbles how, are those of traps.py; here is which of them the output will have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.errors import printable
from ..base.units import plural
from .frames import BLOCK, tar_head_bytes
from .index import I64, Index, windows
from .keys import ORDINAL, OutputKeys
from .layout import Layout
from .traps import MESSAGE_LIMIT, NAMED, TRAPS, Caught

STEP = 1 << 16
# What avoids them on this very command; None: what the trap says.
REMEDY = {
    "prefix": "--keys ordinal",
    "gnu_long_name": "--keys ordinal, or --export dali-wds for DALI",
    "white_space": "--keys ordinal, or --export dali-wds for DALI",
    "case_colliding_keys": "--keys ordinal",
    "first_five_differ": "--require the fields that all samples must have",
}


def output_traps(index: Index, keys: OutputKeys, layout: Layout) -> list[Caught]:
    """Traps of the shards that this layout writes, but for keys that differ by letter case only: whoever looked for
    equal keys knows those."""
    if layout.format != "tar":
        return _large(index)
    if index.ext is None or index.first is None or not index.samples:
        return []
    found = [*_names(index, keys), *_fields(index), *_first_five(index, layout)]
    return [one for one in found if one.count]


def sentences(found: Sequence[Caught], exports: Sequence[str]) -> list[str]:
    """Each trap as a warning: what, who stumbles over it and how, what avoids it."""
    made = []
    for one in found:
        if not one.count:
            continue
        trap = TRAPS[one.trap]
        readers = {
            who: how
            for who, how in trap.readers.items()
            if not (who == "DALI with wds2idx" and "dali-wds" in exports)  # the index that comes along is read instead
        }
        if not readers:
            continue
        named = ", ".join(printable(name) for name in one.examples)
        what = f"{one.count:,} {trap.what}" + (f" (first {named})" if named else "")
        if one.trap == "first_five_differ":
            what = f"the first five samples of a shard have {plural(one.count, 'set')} of fields"
        who = "; ".join(f"{who}: {how}" for who, how in readers.items())
        made.append(f"{what}: {who}. What avoids it: {REMEDY.get(one.trap, trap.remedy)}")
    return made


def _large(index: Index) -> list[Caught]:
    count, names = 0, []
    for lo, hi in windows(len(index.size), STEP):
        large = np.flatnonzero(index.size[lo:hi] >= MESSAGE_LIMIT)
        count += len(large)
        names += [b"record %d" % (lo + k) for k in large[:NAMED].tolist()]
    return [Caught("large_records", count, tuple(names[:NAMED]))] if count else []


def _names(index: Index, keys: OutputKeys) -> list[Caught]:
    """Long names, and bytes in keys that an index of DALI's cannot hold."""
    assert index.ext is not None
    ext_bytes = np.array([len(ext) for ext in index.exts] or [0], np.int64)
    counts = {"prefix": 0, "gnu_long_name": 0, "white_space": 0}
    examples: dict[str, list[bytes]] = {name: [] for name in counts}
    if keys.mode == ORDINAL and int(ext_bytes.max()) < 64:
        return []
    for lo, hi in windows(index.samples, STEP):
        ids = np.arange(lo, hi, dtype=np.int64)
        parts, begin = index.parts_of(ids)
        taken = keys.take(ids)
        longest = taken.lengths()  # [samples], then of the whole member names
        longest += 1 + np.maximum.reduceat(ext_bytes[index.ext.take(parts).astype(np.int64)], begin[:-1])
        long = ids[longest > 100]
        if len(long):
            parts, begin = index.parts_of(long)
            names = keys.part_names(long, parts, begin)
            heads = tar_head_bytes(names)
            lengths = names.lengths()
            for trap, hit in (("prefix", (lengths > 100) & (heads == BLOCK)), ("gnu_long_name", heads > BLOCK)):
                rows = np.flatnonzero(hit)
                counts[trap] += len(rows)
                examples[trap] += [names[row] for row in rows[:NAMED].tolist()]
        data = taken.data[taken.first[0] : taken.first[-1]]
        at = np.flatnonzero((data <= 32) | (data == 127)) + taken.first[0]
        odd = np.unique(np.searchsorted(taken.first, at, side="right") - 1)
        counts["white_space"] += len(odd)
        examples["white_space"] += [taken[row] for row in odd[:NAMED].tolist()]
    return [Caught(trap, count, tuple(examples[trap][:NAMED])) for trap, count in counts.items()]


def _fields(index: Index) -> list[Caught]:
    """Field names by themselves, and fields of one sample that differ by letter case only."""
    assert index.ext is not None and index.first is not None
    count = np.zeros(len(index.exts), np.int64)
    by_lower: dict[bytes, list[int]] = {}
    for code, name in enumerate(index.exts):
        by_lower.setdefault(name.lower(), []).append(code)
    groups = [np.array(codes) for codes in by_lower.values() if len(codes) > 1]
    colliding, examples = 0, []
    for lo, hi in windows(index.samples, STEP):
        parts, begin = index.parts_of(np.arange(lo, hi, dtype=np.int64))
        ext = index.ext.take(parts).astype(np.int64)
        count += np.bincount(ext, minlength=len(count))
        for group in groups:
            rows = np.flatnonzero(np.add.reduceat(np.isin(ext, group).astype(np.int64), begin[:-1]) > 1)
            colliding += len(rows)
            examples += [_key(index, lo + row) for row in rows[:NAMED].tolist()]
    found = []
    present = [(code, name) for code, name in enumerate(index.exts) if count[code]]
    for trap, codes in (
        ("white_space_in_field", [code for code, name in present if name.split() != [name]]),
        ("upper_case_field", [code for code, name in present if name != name.lower()]),
    ):
        names = tuple(index.exts[code] for code in codes[:NAMED])
        found.append(Caught(trap, int(count[codes].sum()) if codes else 0, names))
    return [*found, Caught("case_colliding_fields", colliding, tuple(examples[:NAMED]))]


def _key(index: Index, sample: int) -> bytes:
    return index.keys[sample] if index.keys is not None else b"%d" % sample


def _first_five(index: Index, layout: Layout) -> list[Caught]:
    """Sets of fields among the first five samples of the first shard: all that datasets looks at."""
    assert index.ext is not None
    ids, _ = layout.window(0, min(5, int(layout.cuts[1])))
    sets = {_codes(index, int(sample)) for sample in ids.tolist()}
    return [Caught("first_five_differ", len(sets))] if len(sets) > 1 else []


def _codes(index: Index, sample: int) -> tuple[int, ...]:
    assert index.ext is not None
    parts: I64 = index.parts_of(np.array([sample], np.int64))[0]
    return tuple(sorted(index.ext.take(parts).tolist()))


