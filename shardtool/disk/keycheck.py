"""Are all keys different, and do any differ by letter case only? In memory that does not grow with their number.

A key is its 128-bit hash (base/keyhash.py): among 10^9 different keys two have one hash with a probability of 10^-21,
so equal hashes are taken for equal keys. As many hashes as fit in memory are sorted there, and that is all for most
inputs; more go to an unlinked file in sorted runs, 16 bytes each; then one range of hash values after the other is read
from all runs, sorted and searched for neighbours that are equal. Each hash is written once and read once, whatever the
memory.

    file:  run 0, run 1, ...; a run is its upper halves (uint64[k], ascending), then its lower halves (uint64[k])
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO

import numpy as np
import numpy.typing as npt

from ..base.keyhash import hash128
from ..base.ragged import Ragged
from ..layout.index import Strings, windows
from .files import naming, read_at, write_all

U64 = npt.NDArray[np.uint64]
# Gives the keys from the first to the last, by windows; called again to hash them in small letters, and to find the
# numbers of a pair.
Windows = Callable[[], Iterable[Ragged]]

# Bytes a key while a run or a range is sorted: two halves, their order, both permuted, copies on the way to and from
# the file, and what the allocator keeps of them.
SORTING = 96
LEAST = 1 << 20
FIRST = 1 << 15  # hashes that the buffer begins with
WINDOW = 1 << 16


@dataclass(frozen=True)
class KeyCheck:
    """What was found among keys number 0 to n - 1.

    repeated         numbers of two equal keys, or None
    case_collisions  when no key is repeated: keys minus their number when ASCII letters are made small
    case_example     numbers of two keys that differ by letter case only, or None
    """

    keys: int
    repeated: tuple[int, int] | None
    case_collisions: int = 0
    case_example: tuple[int, int] | None = None


def check_keys(windows: Windows, memory: int, folder: bytes | None = None, *, fold_case: bool = True) -> KeyCheck:
    """Look for equal keys, and for keys that differ by letter case only.

    memory     bytes that may be allocated beside the caller's windows (at least 1 MiB is taken)
    folder     where the unlinked file lies; None: the system's folder for temporary files
    fold_case  False: equal keys alone

    Keys without a capital letter are hashed once.

    Raises OSError (no room on the disk).
    """
    count, capitals = 0, False
    with KeyHashes(memory, folder) as hashes:
        for keys in windows():
            count += len(keys)
            capitals = capitals or (fold_case and bool(_capitals(keys).any()))
            if not hashes.add(hash128(keys)):
                break
        if hashes.repeats(stop=True):
            return KeyCheck(count, _numbers(windows, hashes.twice[0], _same))
    if not capitals:
        return KeyCheck(count, None)
    with KeyHashes(memory, folder) as hashes:
        for keys in windows():
            hashes.add(hash128(fold(keys)))
        if not (collisions := hashes.repeats()):
            return KeyCheck(count, None)
        return KeyCheck(count, None, collisions, _numbers(windows, hashes.twice[0], fold))


def windows_of(keys: Strings) -> Windows:
    """Of keys that are listed somewhere."""
    return lambda: (keys.window(lo, hi) for lo, hi in windows(len(keys), WINDOW))


def fold(keys: Ragged) -> Ragged:
    """The keys with small ASCII letters; the same object when there are no others."""
    capitals = _capitals(keys)
    if not capitals.any():
        return keys
    data = keys.data[keys.first[0] : keys.first[-1]]
    return Ragged(data + (capitals.view(np.uint8) << 5), keys.first - keys.first[0])


def _same(keys: Ragged) -> Ragged:
    return keys


def _capitals(keys: Ragged) -> npt.NDArray[np.bool_]:
    """Which bytes are capital ASCII letters, bool[bytes]."""
    place: npt.NDArray[np.bool_] = keys.data[keys.first[0] : keys.first[-1]] - np.uint8(65) < 26
    return place


def _numbers(windows: Windows, wanted: tuple[int, int], form: Callable[[Ragged], Ragged]) -> tuple[int, int]:
    """Numbers of the first two keys with this hash."""
    found: list[int] = []
    count = 0
    for keys in windows():
        found += (rows_of(hash128(form(keys)), wanted)[:2] + count).tolist()
        if len(found) >= 2:
            return found[0], found[1]
        count += len(keys)
    raise AssertionError("the keys are other ones than before")


def rows_of(hashes: U64, wanted: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Rows of uint64[n, 2] that are this hash."""
    upper, lower = np.uint64(wanted[0]), np.uint64(wanted[1])
    return np.flatnonzero((hashes[:, 0] == upper) & (hashes[:, 1] == lower)).astype(np.int64)


class KeyHashes:
    """128-bit hashes, to be searched for equal ones; in memory, or in sorted runs in an unlinked file.

    memory, folder  as of check_keys
    total           how many were added
    twice           the first hashes that were found more than once, at most `most`
    """

    def __init__(self, memory: int, folder: bytes | None = None, most: int = 1) -> None:
        self._room = max(8, max(memory, LEAST) // SORTING)  # hashes that are sorted at a time
        self._most = most
        self._folder = folder
        self._run = np.empty((0, 2), np.uint64)
        self._fill = 0
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []  # offset in the file, hashes
        self._end = 0
        self.total = 0
        self._within = 0  # repeats inside one run; they are not stored
        self.twice: list[tuple[int, int]] = []

    def add(self, hashes: U64) -> bool:
        """Take hashes, uint64[n, 2]; whether no repeat was seen among those that were sorted together."""
        done, clean = 0, True
        self.total += len(hashes)
        while done < len(hashes):
            if self._fill == len(self._run):
                self._grow()
            if self._fill == self._room:
                clean = self._store() and clean
            count = min(len(self._run) - self._fill, len(hashes) - done)
            self._run[self._fill : self._fill + count] = hashes[done : done + count]
            self._fill += count
            done += count
        return clean

    def _grow(self) -> None:
        """A larger buffer, as long as it is below `room`: few keys cost little."""
        if len(self._run) < self._room:
            larger = np.empty((min(self._room, max(FIRST, 2 * len(self._run))), 2), np.uint64)
            larger[: self._fill] = self._run[: self._fill]
            self._run = larger

    def _distinct(self, upper: U64, lower: U64) -> tuple[U64, U64]:
        """Sorted by upper half, each hash once. Notes those that were there more than once."""
        order = np.argsort(upper)
        upper, lower = upper[order], lower[order]
        tie = upper[1:] == upper[:-1]
        if not tie.any():
            return upper, lower
        order = np.lexsort((lower, upper))
        upper, lower = upper[order], lower[order]
        again = (upper[1:] == upper[:-1]) & (lower[1:] == lower[:-1])
        for at in np.flatnonzero(again).tolist():
            if len(self.twice) == self._most:
                break
            if (one := (int(upper[at]), int(lower[at]))) not in self.twice:
                self.twice.append(one)
        keep = np.concatenate([np.ones(1, bool), ~again])
        return upper[keep], lower[keep]

    def _store(self) -> bool:
        """Sort the run and append it to the file; whether it had no repeat."""
        run = self._run[: self._fill]
        upper, lower = self._distinct(run[:, 0], run[:, 1])
        repeats = self._fill - len(upper)
        self._within += repeats
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)
        for half in (upper, lower):
            write_all(self._file.fileno(), np.ascontiguousarray(half).view(np.uint8).data, self._end)
            self._end += half.nbytes
        self._runs.append((self._end - 2 * upper.nbytes, len(upper)))
        self._fill = 0
        return not repeats

    def repeats(self, *, stop: bool = False) -> int:
        """How many hashes are there beside the first of each value. stop: one is enough.

        Nothing can be added any more.
        """
        if not self._runs:
            run = self._run[: self._fill]
            upper = np.sort(run[:, 0])
            if not (upper[1:] == upper[:-1]).any():
                return 0
            return self._fill - len(self._distinct(run[:, 0], run[:, 1])[0])
        if self._fill:
            self._store()
        self._run = np.empty((0, 2), np.uint64)
        found = self._within
        for upper, lower in self._ranges():
            if stop and found:
                break
            found += len(upper) - len(self._distinct(upper, lower)[0])
        return found

    def _ranges(self) -> Iterator[tuple[U64, U64]]:
        """All hashes, by ranges of the upper half that hold about `room` of them, unsorted."""
        assert self._file is not None
        total = sum(count for _, count in self._runs)
        # A hash spreads evenly: an eighth is more than what a range exceeds its share by.
        ranges = -(-total * 9 // (8 * self._room))
        edges = [(number << 64) // ranges for number in range(1, ranges)]
        fd = self._file.fileno()
        with naming(fd):
            cuts = [self._cuts(fd, *run, edges) for run in self._runs]  # [run][range]
            for number in range(ranges):
                halves: tuple[list[U64], list[U64]] = ([], [])
                for (offset, count), cut in zip(self._runs, cuts, strict=True):
                    lo, hi = cut[number], cut[number + 1]
                    for k, half in enumerate(halves):
                        half.append(_read(fd, offset + 8 * (k * count + lo), hi - lo))
                yield np.concatenate(halves[0]), np.concatenate(halves[1])

    @staticmethod
    def _cuts(fd: int, offset: int, count: int, edges: list[int]) -> list[int]:
        """Where the ranges begin in a run; one more at its end."""
        upper = _read(fd, offset, count)
        inner = np.searchsorted(upper, np.array(edges, np.uint64), side="left").tolist()
        return [0, *inner, count]

    def close(self) -> None:
        """The file is gone with this."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> KeyHashes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read(fd: int, offset: int, count: int) -> U64:
    data = bytearray()
    while len(data) < 8 * count:
        got = read_at(fd, 8 * count - len(data), offset + len(data))
        if not got:
            raise EOFError("the temporary file of the keys is cut short")
        data += got
    return np.frombuffer(data, np.uint64)
