"""From the scans of single files to one Index, a file at a time and in any order: long columns go into a Store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ..base.ragged import Ragged
from ..disk.columns import Store, recoded
from ..disk.scanned import Findings, Scanned
from ..disk.slim import Slim
from ..disk.sources import Input
from ..layout.index import FRONT, Column, Index, Runs, Source, Strings
from ..layout.rules import Rules


def assemble(files: Sequence[Input], slims: Sequence[Slim], rules: Rules, store: Store | None = None) -> Index:
    """One Index of the scans of all files, in the files' order."""
    assembly = Assembly(files, store)
    for number, one in enumerate(slims):
        assembly.add(number, one)
    return assembly.finish(rules)


class Assembly:
    """An Index under construction. Of a file that was added only what is short stays as it came.

    store  None: everything stays in memory
    """

    def __init__(self, files: Sequence[Input], store: Store | None = None) -> None:
        store = store or Store(1 << 62)
        self._files = files
        self._rest: dict[int, Scanned] = {}
        self._parts: dict[int, int] = {}
        self._offset, self._head, self._size, self._first, self._file = (store.growing() for _ in range(5))
        self._ext, self._label = store.growing("<u4"), store.growing("<i4")
        self._keys = store.strings()
        # numbers in order of arrival, of which the columns hold until all are known
        self._exts: dict[bytes, int] = {}
        self._labels: dict[bytes, int] = {}

    @property
    def samples(self) -> int:
        """Of the files so far."""
        return sum(rest.samples for rest in self._rest.values())

    def findings(self) -> Iterator[Findings]:
        """Of all files, in their order."""
        for number in range(len(self._files)):
            yield self._rest[number].findings

    def add(self, number: int, slim: Slim) -> None:
        """What the scan of file `number` found."""
        rest = slim.rest
        self._parts[number] = slim.parts
        self._offset.add(number, slim.offsets())
        self._head.add(number, slim.heads())
        self._size.add(number, slim.size)
        if rest.first is None:
            self._first.add(number, np.arange(1, rest.samples + 1, dtype=np.int64))
        else:
            self._first.add(number, rest.first[1:])
        if rest.ext is not None:
            code = [self._exts.setdefault(ext, len(self._exts)) for ext in rest.exts]
            self._ext.add(number, np.array(code or [0], np.uint32).take(rest.ext))
        if rest.keys is not None:
            self._keys.add(number, rest.keys)
        if rest.codes is not None:
            self._label.add(number, rest.codes)
        elif rest.labels is not None:
            self._label.add(number, self._codes(rest.labels))
        if rest.file is not None:
            self._file.add(number, rest.file)
        self._rest[number] = _without_columns(rest)

    def _codes(self, labels: list[bytes | None]) -> npt.NDArray[np.int32]:
        number = self._labels
        values = (-1 if value is None else number.setdefault(value, len(number)) for value in labels)
        return np.fromiter(values, np.int32, len(labels))

    def finish(self, rules: Rules) -> Index:
        """The Index; all files must have been added."""
        numbers = range(len(self._files))
        rests = [self._rest[number] for number in numbers]
        sources = tuple(
            Source(
                file.name, file.size, rest.samples, file.format,
                None if file.files is None else file.files.listing,
            )
            for file, rest in zip(self._files, rests, strict=True)
        )  # fmt: skip
        tar = any(rest.first is not None for rest in rests)
        exts = tuple(sorted(self._exts))
        classes, label = self._classes(rules)
        before = [0, *accumulate(self._parts[number] for number in numbers)]
        return Index(
            sources=sources,
            first=self._firsts(before) if tar else None,
            size=self._size.finish(numbers),
            head=self._head.finish(numbers),
            offset=self._offset.finish(numbers),
            ext=recoded(self._ext.finish(self._having("ext")), _places(exts, self._exts)) if tar else None,
            exts=exts,
            keys=self._strings() if tar else None,
            label=label,
            classes=classes,
            sparse=_sparse(rests, before),
            file=self._file_numbers(),
        )

    def _having(self, column: str) -> list[int]:
        """The files that have this column."""
        return [number for number in range(len(self._files)) if getattr(self._rest[number], column) is not None]

    def _strings(self) -> Strings:
        return self._keys.finish(self._having("keys"))

    def _firsts(self, before: list[int]) -> Column:
        self._first.add(FRONT, np.zeros(1, np.int64))
        return self._first.finish([FRONT, *range(len(self._files))], [0, *before[:-1]])

    def _classes(self, rules: Rules) -> tuple[tuple[bytes, ...], Column | None]:
        """Classes (those of all folders, or labels in numeric order, else by bytes) and every sample's number among
        them, -1 for none."""
        if (first := self._files[0].files) is not None and first.classes is not None:
            return first.classes, self._label.finish(self._having("codes"))
        if rules.label is None:
            return (), None
        values = sort_classes(set(self._labels))
        table = np.append(_places(values, self._labels), np.int32(-1)).astype(np.int32)  # the last: of -1
        return tuple(values), recoded(self._label.finish(self._having("labels")), table)

    def _file_numbers(self) -> Column | None:
        """Number of every part's file, counted as SourceTable counts; None when no source is a folder."""
        if all(file.files is None for file in self._files):
            return None
        shifts, start = [], 0
        for number, file in enumerate(self._files):
            if self._rest[number].file is None:
                self._file.add(number, np.zeros(self._parts[number], np.int64))
            shifts.append(start)
            start += 1 if file.files is None else len(file.files) + 1
        return self._file.finish(range(len(self._files)), shifts)


_NONE = np.zeros(0, np.int64)


def _without_columns(rest: Scanned) -> Scanned:
    """What is short of a file; of columns only whether there are any."""
    return Scanned(
        rest.samples, None if rest.first is None else _NONE, _NONE, _NONE, _NONE,
        None if rest.ext is None else np.zeros(0, np.uint32), (), None if rest.keys is None else Ragged.of(()),
        rest.sparse, None if rest.labels is None else [], rest.end, rest.findings,
        file=None if rest.file is None else _NONE,
        codes=None if rest.codes is None else np.zeros(0, np.int32),
    )  # fmt: skip


def _places(values: Sequence[bytes], arrived: dict[bytes, int]) -> npt.NDArray[np.uint32]:
    """Number in order of arrival -> place among `values`."""
    table = np.zeros(max(1, len(arrived)), np.uint32)
    for place, value in enumerate(values):
        table[arrived[value]] = place
    return table


def _sparse(rests: Sequence[Scanned], before: Sequence[int]) -> dict[int, Runs]:
    return {
        at + number: runs
        for rest, at in zip(rests, before, strict=False) for number, runs in rest.sparse.items()
    }  # fmt: skip


def sort_classes(values: set[bytes]) -> list[bytes]:
    """Label values in order: whole numbers by value, anything else by bytes."""
    try:
        return sorted(values, key=lambda value: (int(value), value))
    except ValueError:
        return sorted(values)
