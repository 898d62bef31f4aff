"""Index files that lie beside a source: do they name what is there? A stale one makes a loader read wrong spans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..layout.index import I64
from .files import naming

# Bytes of a line: of a thousand members, with names of 255 bytes each. As many are looked at together.
LONGEST = 1 << 18


@dataclass(frozen=True)
class SideIndex:
    """entries: how many it has, None when it is not understood; wrong: how many name a span that is not there."""

    path: bytes
    entries: int | None
    records: int
    wrong: int

    @property
    def fits(self) -> bool:
        """Whether it names exactly what is there."""
        return self.entries == self.records and not self.wrong

    @property
    def words(self) -> str:
        """'names 6 of 10 records', '3 of 10 spans are wrong', ..."""
        if self.entries is None:
            return "is no index of a known kind"
        said = []
        if self.entries != self.records:
            more = self.entries > self.records
            said.append(
                f"names {self.entries:,} records, there are {self.records:,}" if more
                else f"names {self.entries:,} of {self.records:,} records"
            )  # fmt: skip
        if self.wrong:
            said.append(f"{self.wrong:,} of {self.entries:,} spans are wrong")
        return "; ".join(said) or f"names all {self.records:,} records"


def check_spans(path: bytes, offset: I64, size: I64) -> SideIndex:
    """An index of a TFRecord file, a line 'offset bytes' a record, against frames at `offset` (ascending) of `size`
    bytes."""
    entries = wrong = 0
    try:
        for lines in _pieces(path):
            spans = np.array([(int(a), int(b)) for a, b in lines], np.int64).reshape(-1, 2)
            there = _matches(offset, spans[:, 0])
            wrong += int((there < 0).sum() + (size[there[there >= 0]] != spans[there >= 0, 1]).sum())
            entries += len(spans)
    except (ValueError, OverflowError):
        return SideIndex(path, None, len(offset), 0)
    return SideIndex(path, entries, len(offset), wrong)


def check_components(
    path: bytes, samples: int, fields: Sequence[bytes], code: npt.NDArray[np.uint32], place: I64, size: I64
) -> SideIndex:
    """DALI's index of a tar, 'v1.N samples' and a line of components a sample, against its parts: field
    fields[code[i]], payload of size[i] bytes at place[i]. An entry is a sample; it is wrong when one of its components
    is."""
    known = {name.lower(): k for k, name in reversed(list(enumerate(fields)))}
    folded = np.array([known[name.lower()] for name in fields], np.int64)  # one number for names that differ by case
    rows = np.stack([place, folded[code.astype(np.int64)], size])
    rows = rows[:, np.lexsort(rows[::-1])]
    # Hard links to one member are one row: few have one place, however many links there are.
    place, name_of, size = rows[:, np.r_[True, (rows[:, 1:] != rows[:, :-1]).any(axis=0)]] if len(place) else rows
    entries = wrong = 0
    width, said = 1, -1
    try:
        for lines in _pieces(path):
            if said < 0 and lines:
                width, said = {b"v1.0": 3, b"v1.1": 3, b"v1.2": 4}[lines[0][0]], int(lines[0][1])
                lines = lines[1:]
            if any(len(line) % width for line in lines):
                raise ValueError("not as long as it says")
            owner = np.repeat(np.arange(len(lines)), [len(line) // width for line in lines])
            tokens = [token for line in lines for token in line]
            name = np.array([known.get(token.lower(), -1) for token in tokens[::width]], np.int64)
            offset = np.array([int(token) for token in tokens[1::width]], np.int64)
            length = np.array([int(token) for token in tokens[2::width]], np.int64)
            there = _matches(place, offset, (name_of, name), (size, length))
            wrong += len(np.unique(owner[there < 0]))
            entries += len(lines)
        if said != entries:
            raise ValueError("not as long as it says")
    except (ValueError, KeyError, IndexError, OverflowError):
        return SideIndex(path, None, samples, 0)
    return SideIndex(path, entries, samples, wrong)


def _matches(ranked: I64, wanted: I64, *same: tuple[I64, I64]) -> I64:
    """For each wanted place the row of `ranked` (ascending) that is it, int64[k]; -1 where there is none, or where
    the columns of a pair differ between that row and the wanted one. Rows with one place follow each other: empty
    payloads, of which the one that fits is taken."""
    row = np.searchsorted(ranked, wanted, side="left")
    found = np.full(len(wanted), -1, np.int64)
    open_ = np.arange(len(wanted))
    while len(open_):
        at = row[open_]
        open_ = open_[(at < len(ranked)) & (ranked[np.minimum(at, len(ranked) - 1)] == wanted[open_])]
        at = row[open_]
        fits = np.ones(len(open_), bool)
        for theirs, ours in same:
            fits &= theirs[at] == ours[open_]
        found[open_[fits]] = at[fits]
        open_ = open_[~fits]
        row[open_] += 1
    return found


def _pieces(path: bytes) -> Iterator[list[list[bytes]]]:
    """The words of lines that are not blank, some hundred KiB at a time. ValueError for a line that is longer than any
    of an index."""
    with open(path, "rb") as file, naming(path):
        words: list[list[bytes]] = []
        taken = 0
        while line := file.readline(LONGEST):
            if len(line) == LONGEST:
                raise ValueError("a line without an end")
            if line.strip():
                words.append(line.split())
            taken += len(line)
            if taken > LONGEST:
                yield words
                words, taken = [], 0
        yield words
