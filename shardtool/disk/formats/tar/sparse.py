"""Sparse members: which stored bytes belong where.

Stored runs follow each other without gaps behind the headers (and, in pax format 1.0, behind the map);
what no run covers is zeros. Descriptions: GNU tar manual, "Storing Sparse Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ....layout.index import Runs
from .headers import Malformed, decimal, number

# More runs than any file system makes of a training sample; a map may not take all memory.
MOST_RUNS = 1 << 20
# Bytes of a file; so that thousands of them stay below 2^63.
LARGEST = 1 << 52

Pairs = list[tuple[int, int]]  # (place in the file, bytes)


def old_gnu_map(block: bytes, at: int, read: Callable[[int], bytes]) -> tuple[Pairs, int, int]:
    """Map of an 'S' member: (pairs, logical size, where the stored bytes begin).

    Four entries of 12 + 12 bytes at 386, "more" at 482, the logical size at 483; extension blocks of 21
    entries follow the header. `read(offset)` gives 512 bytes, `at` is the header's offset.
    """
    pairs: Pairs = []
    size = number(block[483:495], "size of the sparse file")
    _entries(block, 386, 4, pairs)
    more, at = block[482], at + 512
    while more:
        if len(pairs) > MOST_RUNS:
            raise Malformed(f"the sparse map has more than {MOST_RUNS:,} runs")
        block = read(at)
        _entries(block, 0, 21, pairs)
        more, at = block[504], at + 512
    return pairs, size, at


def _entries(block: bytes, start: int, count: int, pairs: Pairs) -> None:
    for at in range(start, start + 24 * count, 24):
        if not block[at]:
            return
        place = number(block[at : at + 12], "place of a sparse run")
        pairs.append((place, number(block[at + 12 : at + 24], "length of a sparse run")))


def pax_map(records: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Map of pax formats 0.0 (repeated offset and numbytes records) and 0.1 (one map record)."""
    places: list[int] = []
    counts: list[int] = []
    for key, value in records:
        if key == b"GNU.sparse.offset":
            places.append(decimal(value, "GNU.sparse.offset"))
        elif key == b"GNU.sparse.numbytes":
            counts.append(decimal(value, "GNU.sparse.numbytes"))
        elif key == b"GNU.sparse.map" and value:
            numbers = [decimal(text, "GNU.sparse.map") for text in value.split(b",")]
            places, counts = numbers[::2], numbers[1::2]
    if len(places) != len(counts):
        raise Malformed("the sparse map has a run without a length")
    return list(zip(places, counts, strict=True))


def pax_map_1_0(at: int, stored: int, read: Callable[[int], bytes]) -> tuple[Pairs, int]:
    """Map of pax format 1.0, which precedes the stored bytes: (pairs, bytes of the map).

    Decimal numbers, one a line: how many runs, then place and bytes of each; zeros to a multiple of 512.
    """
    numbers: list[int] = []
    wanted, rest, used = 1, b"", 0
    while len(numbers) < wanted:
        if used + 512 > stored:
            raise Malformed("the sparse map does not end inside the member")
        *lines, rest = (rest + read(at + used)).split(b"\n")
        used += 512
        numbers.extend(decimal(line, "of the sparse map") for line in lines[: wanted - len(numbers)])
        if wanted == 1 and numbers:
            wanted = 1 + 2 * numbers[0]
            if numbers[0] > MOST_RUNS:
                raise Malformed(f"the sparse map has more than {MOST_RUNS:,} runs")
            numbers.extend(decimal(line, "of the sparse map") for line in lines[1:wanted])
        if len(rest) > 20 and len(numbers) < wanted:
            raise Malformed("the sparse map holds a line that is no number")
    return list(zip(numbers[1::2], numbers[2::2], strict=True)), used


def runs_of(pairs: Pairs, logical: int, stored: int, at: int) -> Runs:
    """Checked runs (place, offset in the archive, bytes); `stored` bytes begin at offset `at`."""
    if logical > LARGEST:
        raise Malformed(f"it would have {logical:,} bytes, more than a file can have")
    runs, end, used = [], 0, 0
    for place, count in pairs:
        if place < end or place + count > logical:
            raise Malformed("the sparse map is not in order or leaves its file")
        if count:
            runs.append((place, at + used, count))
        end, used = place + count, used + count
    if used != stored:
        raise Malformed(f"the sparse map covers {used:,} bytes, the member stores {stored:,}")
    return tuple(runs)
