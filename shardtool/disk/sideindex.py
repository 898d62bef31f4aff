"""Index files that lie beside a source: do they name what is there? A stale one makes a loader read wrong spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..layout.index import I64
from .files import read_small

MOST_BYTES = 1 << 30


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
    """An index of a TFRecord file, a line 'offset bytes' a record, against frames at `offset` of `size` bytes."""
    try:
        lines = [line.split() for line in read_small(path, MOST_BYTES).splitlines() if line.strip()]
        spans = [(int(a), int(b)) for a, b in lines]
    except ValueError:
        return SideIndex(path, None, len(offset), 0)
    there = set(zip(offset.tolist(), size.tolist(), strict=True))
    return SideIndex(path, len(spans), len(offset), sum(span not in there for span in spans))


def check_components(path: bytes, samples: int, parts: Sequence[tuple[bytes, int, int]]) -> SideIndex:
    """DALI's index of a tar, 'v1.N samples' and a line of components a sample, against (field, payload offset, bytes)
    of all parts. An entry is a sample; it is wrong when one of its components is."""
    try:
        head, *lines = [line.split() for line in read_small(path, MOST_BYTES).splitlines() if line.strip()]
        width = {b"v1.0": 3, b"v1.1": 3, b"v1.2": 4}[head[0]]
        if int(head[1]) != len(lines) or any(len(line) % width for line in lines):
            raise ValueError("not as long as it says")
        entries = [
            {(line[k].lower(), int(line[k + 1]), int(line[k + 2])) for k in range(0, len(line), width)}
            for line in lines
        ]
    except (ValueError, KeyError, IndexError):
        return SideIndex(path, None, samples, 0)
    there = {(field.lower(), offset, size) for field, offset, size in parts}
    wrong = sum(not entry <= there for entry in entries)
    return SideIndex(path, len(entries), samples, wrong)
