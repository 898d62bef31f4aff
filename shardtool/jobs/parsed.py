"""Where the values of all records lie: the rows of example_parse, of all files, as columns of a Store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from ..base.errors import DataError
from ..base.ragged import Ragged
from ..base.reporting import Reporter
from ..disk.columns import Store, recoded
from ..disk.formats.example_parse import Parsed, Refused, parse_file
from ..disk.packed import Packed
from ..disk.runners import Advance, run_tasks
from ..layout.index import FRONT, I64, Column, Index, Strings, windows
from .scan import Scan

STEP = 1 << 16
# A task's records have so many bytes, of large ones but the first LARGE counted: memory goes with the values. While
# rows become columns there are some eight copies of them.
MOST, LEAST, LARGE = 4 << 20, 1 << 20, 2 << 10


@dataclass(frozen=True)
class Rows:
    """The values of all records, as Parsed has those of one file; n records, q rows.

    names  ascending by bytes
    types  of every name those that some row has
    most   of every name the most values that a record has
    keys   None: a record has no single bytes value of that name
    """

    names: tuple[bytes, ...]
    types: tuple[frozenset[int], ...]
    most: I64
    first: Column
    name: Column
    type: Column
    values: Column
    place: Column
    offset: Column
    stored: Column
    number: Column
    empty: Counter[bytes]
    keys: Strings | None


@dataclass(frozen=True)
class NotExamples:
    """The first record that is no Example: of which source, and as Refused."""

    source: int
    refused: Refused


@dataclass(frozen=True)
class _Task:
    source: int
    lo: int
    hi: int


def parse(
    scan: Scan, jobs: int, reporter: Reporter, store: Store, *, lists: bool = False
) -> Rows | NotExamples:
    """Parse the records of all sources. lists: a row is a whole list, as for parse_file."""
    index = scan.index
    tasks = _tasks(scan, _most(store))
    reporter.stage("parse records", sum(source.bytes for source in index.sources), "B")

    def one(number: int, advance: Advance) -> Parsed:
        task = tasks[number]
        place = (index.offset[task.lo : task.hi] + index.head[task.lo : task.hi]).astype(np.int64)
        size = index.size[task.lo : task.hi].astype(np.int64)
        made = parse_file(scan.content[task.source], index.sources[task.source].name, place, size, lists=lists)
        advance(int(size.sum()))
        return made

    rows, refused = _Growing(store), {}
    for number, parsed in run_tasks(one, range(len(tasks)), jobs, reporter.advance):
        if parsed.refused is not None:
            refused[number] = parsed.refused
        elif not refused:
            rows.add(number, parsed)
    reporter.finish()
    if not refused:
        return rows.finish(len(tasks))
    number = min(refused)
    task, first = tasks[number], refused[number]
    before = task.lo - int(index.source_first[task.source])
    return NotExamples(task.source, Refused(before + first.record, first.offset, first.why))


def _most(store: Store) -> int:
    return max(LEAST, min(MOST, store.budget // 16))


def task_bytes(store: Store) -> int:
    """About what a task takes in memory."""
    return 10 * _most(store)


def _tasks(scan: Scan, most: int) -> list[_Task]:
    """All records by consecutive ranges; those of a source that is decoded on the way in one go."""
    found, first = [], scan.index.source_first.tolist()
    for source, content in enumerate(scan.content):
        cuts = [first[source]]
        if not isinstance(content, Packed):
            cuts += _cuts(scan.index, first[source], first[source + 1], most)
        cuts.append(first[source + 1])
        found += [_Task(source, lo, hi) for lo, hi in pairwise(cuts) if lo < hi]
    return found


def _cuts(index: Index, first: int, last: int, most: int) -> Iterator[int]:
    """Records at which a new task begins."""
    before = 0
    for lo, hi in windows(last - first, STEP):
        weight = np.minimum(index.size[first + lo : first + hi], LARGE) + 64
        number = (np.cumsum(weight) + before) // most  # of the task that holds a record's end
        yield from (first + lo + np.flatnonzero(np.diff(number, prepend=before // most))).tolist()
        before += int(weight.sum())


class _Growing:
    """Rows under construction, a task at a time and in any order."""

    def __init__(self, store: Store) -> None:
        self._columns = {
            "name": store.growing(), "type": store.growing("|u1"), "first": store.growing(),
            **{name: store.growing() for name in ("values", "place", "offset", "stored", "number")},
        }  # fmt: skip
        self._keys = store.strings()
        self._all_keys = True
        self._rows: dict[int, int] = {}
        self._codes: dict[bytes, int] = {}  # by arrival
        self._types: list[set[int]] = []
        self._most: list[int] = []
        self._empty: Counter[bytes] = Counter()

    def add(self, number: int, parsed: Parsed) -> None:
        """Rows of one task."""
        codes = []
        for code, name in enumerate(parsed.names):
            codes.append(self._codes.setdefault(name, len(self._codes)))
            if codes[-1] == len(self._types):
                self._types.append(set())
                self._most.append(0)
            of = parsed.name == code
            self._types[codes[-1]].update(np.unique(parsed.type[of]).tolist())
            self._most[codes[-1]] = max(self._most[codes[-1]], int(parsed.values[of].max(initial=0)))
        self._columns["name"].add(number, np.array(codes or [0], np.int64)[parsed.name])
        self._columns["first"].add(number, parsed.first[1:])
        for column in ("type", "values", "place", "offset", "stored", "number"):
            self._columns[column].add(number, getattr(parsed, column))
        self._rows[number] = len(parsed.name)
        self._empty.update(parsed.empty)
        if parsed.keys is None:
            self._all_keys = False
        elif self._all_keys:
            self._keys.add(number, Ragged.of(parsed.keys))

    def finish(self, tasks: int) -> Rows:
        """All of them."""
        numbers = range(tasks)
        names = sorted(self._codes)
        arrived = np.array([self._codes[name] for name in names], np.int64)
        table = np.zeros(max(1, len(names)), np.int64)
        table[arrived] = np.arange(len(names), dtype=np.int64)
        before = [0, *accumulate(self._rows[number] for number in numbers)]
        first = self._columns.pop("first")
        first.add(FRONT, np.zeros(1, np.int64))
        columns = {name: column.finish(numbers) for name, column in self._columns.items()}
        columns["name"] = recoded(columns["name"], table)
        return Rows(
            tuple(names), tuple(frozenset(self._types[code]) for code in arrived.tolist()),
            np.array(self._most, np.int64)[arrived],
            first=first.finish([FRONT, *numbers], [0, *before[:-1]]), empty=self._empty,
            keys=self._keys.finish(numbers) if self._all_keys else None, **columns,
        )  # fmt: skip


def not_an_example(index: Index, found: NotExamples, remedy: str | None = None) -> DataError:
    """The error about a record."""
    return DataError(
        "a record is no tf.train.Example", file=index.sources[found.source].name, offset=found.refused.offset,
        member=f"number {found.refused.record}", why=found.refused.why, remedy=remedy,
    )  # fmt: skip


def first_other_type(rows: Rows, name: int) -> tuple[int, int, int]:
    """(record, its type, the type in the records before): where a feature with several types changes it first."""
    earlier = None
    for lo, hi in windows(len(rows.first) - 1, STEP):
        bounds = rows.first[lo : hi + 1]
        a, b = int(bounds[0]), int(bounds[-1])
        at = np.flatnonzero(rows.name[a:b] == name)
        types = rows.type[a:b][at]
        if len(at) and earlier is None:
            earlier = int(types[0])
        other = np.flatnonzero(types != earlier) if earlier is not None else at
        if len(other):
            record = lo + int(np.searchsorted(bounds, a + at[other[0]], side="right")) - 1
            assert earlier is not None
            return record, int(types[other[0]]), earlier
    raise AssertionError("the feature has one type")


def known_names(rows: Rows) -> Sequence[bytes]:
    """Of all features, those without a value too."""
    return sorted({*rows.names, *rows.empty})
