"""What `shardtool inspect` shows: at 80 columns, for two shards and for two thousand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ..base.units import plural, show_count, show_size
from ..jobs.inspect import Inspected, spread
from .console import Console

# Rows of a table before it is folded, and how many a folded one names.
ROWS, NAMED = 20, 5
WIDTH, NAME = 80, 36  # columns of a line, and of a name


def show(console: Console, found: Inspected) -> None:
    """Everything; with --json one object."""
    console.result(found.facts())
    console.table(("", ""), _head(found), left=2)
    _table(console, ("", "min", "median", "max"), _sizes(found), title="Sizes")
    _fields(console, found)
    _labels(console, found)
    _shards(console, found)
    _traps(console, found)
    _side_indexes(console, found)


def _side_indexes(console: Console, found: Inspected) -> None:
    stale = [index for index in found.side_indexes if not index["fits"]]
    if found.side_indexes:
        fit = len(found.side_indexes) - len(stale)
        console.print(f"\nIndexes beside the shards: {fit:,} fit" + (f", {len(stale):,} do not" if stale else ""))
    for index in stale[:NAMED]:
        console.print(_wrapped(f"{_short(index['file'], 60)}: {index['words']}", 2))
    if len(stale) > NAMED:
        console.print(f"  ... {len(stale) - NAMED:,} more")


def _table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str) -> None:
    console.print()
    console.table(columns, rows, title=title)


def _head(found: Inspected) -> list[tuple[str, str]]:
    packed = ", ".join(
        f"{name} ({show_count(count)})" if len(found.compression) > 1 else name
        for name, count in sorted(found.compression.items())
    )
    rows = [
        ("format", found.format), ("compression", packed),
        ("shards", show_count(len(found.shard_names))), ("samples", show_count(found.samples)),
        ("bytes", show_size(found.bytes)),
    ]  # fmt: skip
    for word, counts in (("ignored", found.ignored), ("dropped", found.dropped)):
        if counts:
            rows.append(
                (word, ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(counts.items())))
            )
    return rows


def _sizes(found: Inspected) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, values, words in (
        ("shard", spread(found.shard_bytes), show_size),
        ("samples in a shard", spread(found.shard_samples), show_count),
        ("sample", found.sample_bytes, show_size),
    ):
        rows.append((name, *(words(values[key]) for key in ("min", "median", "max"))))
    return rows


def _fields(console: Console, found: Inspected) -> None:
    if found.fields_sampled is not None:
        title = f"Fields, from the first {plural(found.fields_sampled, 'record')}"
        if not found.fields:
            console.print("\nFields: the records are no tf.train.Example")
            return
        columns = ("field", "type", "share", "values", "bytes")
        rows: list[tuple[str, ...]] = [
            (_short(name), facts["type"], _percent(facts["share"]), _range(facts["fewest"], facts["most"], show_count),
             show_size(facts["bytes"]))
            for name, facts in found.fields.items()
        ]  # fmt: skip
    else:
        title, columns = "Fields", ("field", "samples", "share", "bytes", "size of one")
        rows = [
            (_short(name), show_count(facts["samples"]), _percent(facts["share"]), show_size(facts["bytes"]),
             _range(facts["smallest"], facts["largest"], show_size))
            for name, facts in found.fields.items()
        ]  # fmt: skip
    _table(console, columns, _folded(rows), title=title)
    if found.field_sets and len(found.field_sets) > 1:
        ranked = sorted(found.field_sets.items(), key=lambda item: (-item[1], item[0]))
        _table(
            console,
            ("fields of a sample", "samples", "share"),
            _folded([(_short(name, 48), show_count(n), _percent(n / found.samples)) for name, n in ranked]),
            title="Sets of fields",
        )


def _labels(console: Console, found: Inspected) -> None:
    if found.labels is None:
        return
    histogram = found.labels["histogram"]
    ranked = sorted(histogram.items(), key=lambda item: -item[1]) if len(histogram) > ROWS else histogram.items()
    labelled = max(1, sum(histogram.values()))
    _table(
        console,
        (f"label {found.labels['field']}", "samples", "share"),
        _folded([(_short(name), show_count(n), _percent(n / labelled)) for name, n in ranked]),
        title="Labels" + (f" ({found.labels['missing']:,} samples have none)" if found.labels["missing"] else ""),
    )
    if found.h_d is None:
        console.print("\nh_D: needs two shards and two classes")
        return
    console.print(
        f"\nh_D {_number(found.h_d)}  ({_number(found.h_d_mixed or 0)} = mixed on disk, "
        f"{_number(found.h_d_sorted or 0)} = one class a shard)"
    )
    # The null's spread shrinks with the table; twice its mean is far outside for any table worth a batch.
    advice = "a small shuffle buffer is enough" if found.h_d < 2 else "repack mixes them once and for all"
    console.print(f"  {advice}")


def _shards(console: Console, found: Inspected) -> None:
    labels = found.label_spread
    columns = ["shard", "bytes", "samples"] + (["classes", "largest class", "its share"] if labels else [])
    rows = []
    for k, name in enumerate(found.shard_names):
        row = [_short(name, 28), show_size(int(found.shard_bytes[k])), show_count(int(found.shard_samples[k]))]
        if labels:
            _, classes, largest, share = labels[k]
            row += [show_count(classes), _short(largest, 14), _percent(share)]
        rows.append(row)
    if len(rows) <= ROWS:
        _table(console, columns, rows, title="Shards")
    elif labels:
        worst = sorted(range(len(rows)), key=lambda k: (-labels[k][3], k))[:NAMED]
        _table(
            console,
            columns,
            [rows[k] for k in worst],
            title=f"Shards with the largest share of one class, of {len(rows):,}",
        )
    else:
        order = sorted(range(len(rows)), key=lambda k: (int(found.shard_samples[k]), k))
        worst = [*order[:2], *order[-2:]]
        _table(console, columns, [rows[k] for k in worst], title=f"The smallest and largest shards, of {len(rows):,}")


def _traps(console: Console, found: Inspected) -> None:
    if not found.traps:
        console.print("\nNo trap for a known reader.")
        return
    console.print("\nTraps")
    for trap in found.traps.values():
        least = "at least " if trap["at_least"] else ""
        names = f": {', '.join(_short(name, 40) for name in trap['examples'][:2])}" if trap["examples"] else ""
        console.print(_wrapped(f"{least}{trap['count']:,} {trap['what']}{names}", 2))
        for reader, effect in trap["readers"].items():
            console.print(_wrapped(f"{reader}: {effect}", 6))
        console.print(_wrapped(f"do: {trap['remedy']}", 6))


def _wrapped(text: str, indent: int) -> str:
    """Lines of at most 80 columns; the following ones are indented a little more."""
    first, other = " " * indent, " " * (indent + 2)
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)


def _folded(rows: Sequence[Sequence[str]]) -> Iterable[Sequence[str]]:
    """The first rows, and a last one that says how many more there are."""
    if len(rows) <= ROWS:
        return rows
    kept = list(rows[: ROWS - 1])
    return [*kept, (f"... {len(rows) - len(kept):,} more", *("" for _ in rows[0][1:]))]


def _short(name: str, most: int = NAME) -> str:
    """A name of at most `most` characters: the middle gives way."""
    if len(name) <= most:
        return name
    tail = most // 2
    return f"{name[: most - tail - 1]}…{name[-tail:]}"


def _percent(share: float) -> str:
    """'100 %', '99.9 %', '0.1 %': never rounded to all or to none."""
    if share in (0, 1):
        return f"{share * 100:.0f} %"
    return f"{min(99.9, max(0.1, share * 100)):.1f} %"


def _range(low: Any, high: Any, words: Any) -> str:
    return str(words(low)) if words(low) == words(high) else f"{words(low)} to {words(high)}"


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
