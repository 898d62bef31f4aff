"""Numbers of members as features: what their other form comes to, and how many values they have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, printable
from ..base.reporting import Reporter
from ..disk.blocks import Blocks
from ..disk.columns import Derived, Store
from ..disk.engines.job import SourceFiles
from ..disk.formats.values import computed
from ..disk.packed import Packed
from ..disk.runners import Advance, run_tasks
from ..layout.index import I64, SPAN, TO_FLOAT, Index, windows
from .fieldnames import TYPE_NAMES
from .scan import Scan

STEP = 1 << 14

Values = dict[bytes, tuple[int, int, int]]


@dataclass(frozen=True)
class Range:
    """Samples lo..hi-1, all of one source: what a task looks into."""

    source: int
    lo: int
    hi: int


def ranges(scan: Scan) -> list[Range]:
    """All samples; of a source that is decoded on the way in one go."""
    found, first = [], scan.index.source_first.tolist()
    for source, content in enumerate(scan.content):
        lo, hi = first[source], first[source + 1]
        step = max(1, hi - lo) if isinstance(content, Packed) else STEP
        found += [Range(source, lo + a, lo + b) for a, b in windows(hi - lo, step)]
    return found


def typed(
    scan: Scan, kinds: Mapping[bytes, int], jobs: int, reporter: Reporter, store: Store
) -> tuple[Index, Values]:
    """The index with sizes of numbers as packed lists; field -> (fewest, most, all) values of it in a sample."""
    index = scan.index
    assert index.ext is not None
    by_code = np.array([kinds[ext] for ext in index.exts], np.uint8)
    index = replace(index, kind=Derived(lambda ext: by_code[ext.astype(np.int64)], index.ext), stored=index.size)
    tasks = ranges(scan)
    reporter.stage("read numbers", _numbers(index, by_code), "")

    def one(number: int, advance: Advance) -> tuple[I64, dict[int, tuple[int, int, int]]]:
        return _Window(scan, index, tasks[number]).values(by_code, advance)

    size = store.growing()
    found: dict[int, tuple[int, int, int]] = {}
    for number, (sizes, values) in run_tasks(one, range(len(tasks)), jobs, reporter.advance):
        size.add(number, sizes)
        for code, (fewest, most, count) in values.items():
            a, b, c = found.get(code, (fewest, most, 0))
            found[code] = min(a, fewest), max(b, most), c + count
    reporter.finish()
    named = {index.exts[code]: values for code, values in sorted(found.items())}
    return replace(index, size=size.finish(range(len(tasks)))), named


def _numbers(index: Index, by_code: npt.NDArray[np.uint8]) -> int:
    assert index.ext is not None
    count = 0
    for lo, hi in windows(len(index.ext), 1 << 16):
        count += int((by_code[index.ext[lo:hi].astype(np.int64)] != SPAN).sum())
    return count


class _Window:
    """Columns of the parts of a range."""

    def __init__(self, scan: Scan, index: Index, range: Range) -> None:
        assert index.first is not None and index.ext is not None and index.kind is not None
        self._scan, self._index, self._range = scan, index, range
        self._first = index.first[range.lo : range.hi + 1].astype(np.int64)
        self._a = int(self._first[0])
        window = slice(self._a, int(self._first[-1]))
        self._ext = index.ext[window].astype(np.int64)
        self._kind = index.kind[window]
        self._at = index.offset[window].astype(np.int64) + index.head[window]
        self._stored = index.size[window].astype(np.int64)

    def values(
        self, by_code: npt.NDArray[np.uint8], advance: Advance
    ) -> tuple[I64, dict[int, tuple[int, int, int]]]:
        """Sizes of all parts, and by field the (fewest, most, all) values."""
        size, count = self._stored.copy(), np.zeros(len(self._stored), np.int64)
        wanted = np.flatnonzero(self._kind != SPAN).tolist()
        with _peeking(self._scan, self._range.source) as peek:
            for k in wanted:
                made = self._number(k, peek)
                size[k] = len(made)
                count[k] = len(made) // 4 if self._kind[k] == TO_FLOAT else sum(byte < 128 for byte in made)
        advance(len(wanted))
        found = {}
        for code in np.unique(self._ext).tolist():
            if by_code[code] != SPAN:
                of = count[self._ext == code]
                found[code] = int(of.min()), int(of.max()), int(of.sum())
        return size, found

    def _number(self, k: int, peek: Peek) -> bytes:
        """The packed values of one part. Raises DataError."""
        index, part, at = self._index, self._a + k, int(self._at[k])
        runs = index.sparse.get(part)
        kind = int(self._kind[k])
        try:
            if runs is None:
                return computed(kind, bytes(peek(part, at, int(self._stored[k]))))
            data = bytearray(int(self._stored[k]))
            for place, offset, count in runs:
                data[place : place + count] = peek(part, offset, count)
            return computed(kind, bytes(data))
        except ValueError as error:
            name = index.exts[int(self._ext[k])]
            sample = self._range.lo + int(np.searchsorted(self._first, part, side="right")) - 1
            key = b"" if index.keys is None else index.keys[sample] + b"."
            option = f"--field {printable(name)}="
            raise DataError(
                f"field {printable(name)} cannot become {TYPE_NAMES[kind]}",
                file=index.sources[self._range.source].name, offset=at,
                member=key + name, why=str(error), remedy=f"leave out {option}{TYPE_NAMES[kind]}, or say {option}bytes",
            ) from None  # fmt: skip


Peek = Callable[[int, int, int], bytes | memoryview]


@contextlib.contextmanager
def _peeking(scan: Scan, source: int) -> Iterator[Peek]:
    """What reads (part, offset, bytes) of a source, or of the part's own file where the source is a folder."""
    if scan.index.file is None:
        with Blocks(scan.content[source], scan.index.sources[source].name) as file:
            yield lambda _, offset, count: file.peek(offset, count)
        return
    files, number = SourceFiles(scan.source_files), scan.index.file

    def peek(part: int, offset: int, count: int) -> bytes:
        data = bytearray(count)
        files.read_into(int(number[part : part + 1][0]), memoryview(data), offset)
        return bytes(data)

    try:
        yield peek
    finally:
        files.close()


