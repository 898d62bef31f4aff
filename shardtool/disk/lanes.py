"""The walk over the lengths of TFRecord frames, many places of a window at once.

Where a frame ends is known only from its length, so the walk is a chain, and Python needs some 250 ns a link.
Here several hundred *lanes* walk side by side: each begins at a place that looks like the head of a frame, and one
numpy call moves all of them by one frame. A guess is never believed: a lane counts only when the walk that comes
from byte 0 arrives exactly where the lane began; from a lane that misses, the walk goes on link by link until it
meets another lane. The answer is that of `plain` for any bytes. See docs/engines.md.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from .crc import masked_of_lengths

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

# u64 length | u32 masked CRC32C of it | payload | u32 masked CRC32C of the payload
HEAD, FOOT = 12, 4
FRAME = HEAD + FOOT

PROBE = 64  # frames walked one by one to learn what a frame is like
MANY = 1000  # fewer frames than this are walked one by one
PLAUSIBLE = 1 << 24  # no lane begins at a longer record
PATTERN = 3  # pairs of bytes that `_heads` needs around one
# What things cost, to choose the number of lanes: ns for a step of all lanes, to begin a lane, to look at a byte.
STEP, BEGIN, LOOK = 7000.0, 600.0, 0.25
LINK = 200.0  # ns for a frame in `plain`
CHECK_EVERY = 12  # steps between two looks at which lanes have arrived

_LENGTH = struct.Struct("<Q")


def plain(view: memoryview) -> tuple[I64, U64, int]:
    """The walk frame by frame: the reference, and the way where lanes do not pay.

    Returns the places of the frames that `view` holds whole, walking from byte 0 (int64[k]), the lengths of their
    payloads (uint64[k]), and where the walk stopped. Checksums are not looked at.
    """
    places, stop = _sequence(view, 0, frozenset(), len(view))
    return _result(np.array(places, np.int64), stop)


def walk(view: memoryview) -> tuple[I64, U64, int]:
    """What `plain` returns, sooner."""
    first, at = _sequence(view, 0, frozenset(), PROBE)
    left = len(view) - at
    mean = at / max(1, len(first))
    lanes = _count(left, mean) if len(first) == PROBE else 0
    if not lanes:
        more, at = _sequence(view, at, frozenset(), left)
        return _result(np.array(first + more, np.int64), at)
    raw = np.frombuffer(view, np.uint8)[at:]
    longest = max(b - a for a, b in zip(first, [*first[1:], at], strict=True))
    start = _starts(raw, lanes, longest)
    places, count, end = _march(raw, start)
    places, stop = _chain(raw, start, places, count, end)
    return _result(np.concatenate([np.array(first, np.int64), places + at]), stop + at)


def _result(places: I64, stop: int) -> tuple[I64, U64, int]:
    """Frames lie one behind the other, so their lengths are the gaps between their places."""
    return places, (np.diff(places, append=stop) - FRAME).astype(np.uint64), stop


def _sequence(view: memoryview, at: int, until: frozenset[int], most: int) -> tuple[list[int], int]:
    """At most `most` frames from `at` on, but none at a place of `until`; and where the next one begins."""
    unpack, last = _LENGTH.unpack_from, len(view) - FRAME
    places: list[int] = []
    keep = places.append
    for _ in range(most):
        if at > last or at in until:
            break
        after = at + FRAME + unpack(view, at)[0]
        if after > last + FRAME:
            break
        keep(at)
        at = after
    return places, at


def _count(left: int, mean: float) -> int:
    """How many lanes make the walk cheapest; 0 when it is cheaper without.

    With R frames in L lanes there are R / L steps and L beginnings, for which a frame has to be looked through.
    """
    frames = left / mean
    begin = BEGIN + LOOK * mean
    lanes = int((frames * STEP / begin) ** 0.5)
    if frames < MANY or lanes < 2 or 2 * lanes * begin > LINK * frames:
        return 0
    return lanes


def _starts(raw: Bytes, lanes: int, longest: int) -> I64:
    """Where lanes begin, int64[l] ascending, the first at 0: at most one in each of `lanes` equal strips."""
    odd = raw.__array_interface__["data"][0] & 1  # strips begin at even addresses
    width = (len(raw) - odd) // lanes & ~1
    pairs = raw[odd : odd + lanes * width].view("<u2").reshape(lanes, width // 2)
    start = np.full(lanes, -1, np.int64)
    start[0] = 0
    off, look = 0, longest // 2 + PATTERN
    for _ in range(4):  # rounds, for strips where a long record hid the first head
        waiting = np.flatnonzero(start < 0)
        if not len(waiting) or off + look > width // 2:
            break
        row, column = _heads(pairs[1:, off : off + look] if off == 0 else pairs[waiting, off : off + look])
        strip = waiting[row]
        place = odd + strip * width + 2 * (off + column)
        # the zeros that `_heads` saw are bytes 3.. or 4.. of the length
        place = np.stack([place - 4, place - 3], axis=1).ravel()
        right = _right_head(raw, place)
        strip, which = np.unique(np.repeat(strip, 2)[right], return_index=True)
        start[strip] = place[right][which]
        off += look - PATTERN
    start = np.sort(start[start >= 0])
    return start[np.diff(start, prepend=-1) > 0]  # a head on the edge between two strips may be found in both


def _heads(pairs: npt.NDArray[np.uint16]) -> tuple[I64, I64]:
    """Row and column of every pair of bytes with which the zeros of a length from 1 to 2^24 - 1 can begin.

    Bytes 3 to 7 of such a length are zeros, whole pairs of them beginning with byte 3 or 4; bytes 0 to 2 are not
    all zeros, so one of the two pairs before is not zero. (Empty records begin no lane: where payloads are zeros,
    every byte would be a candidate.)
    """
    zero = pairs == 0  # bool[rows, look]
    two = zero[:, :-1] & zero[:, 1:]  # [:, k]: pairs k and k + 1
    begins = two[:, 2:] > two[:, :-2]
    row, column = np.divmod(np.flatnonzero(begins), begins.shape[1])
    return row, column + 2


def _right_head(raw: Bytes, place: I64) -> npt.NDArray[np.bool_]:
    """Which places hold a length below 2^24 that fits into `raw`, with the right checksum behind it."""
    right = (place >= 0) & (place <= len(raw) - HEAD)
    length = words(raw, "<u8")[np.where(right, place, 0)]
    right &= (length > 0) & (length < min(PLAUSIBLE, len(raw)))
    near = np.flatnonzero(right)
    right[near] = words(raw, "<u4")[place[near] + 8] == masked_of_lengths(length[near])
    return right


def words(raw: Bytes, dtype: str) -> npt.NDArray[np.unsignedinteger]:
    """The little-endian word at every byte of `raw`, without a copy."""
    return np.ndarray(max(0, len(raw) - np.dtype(dtype).itemsize + 1), dtype, raw, strides=(1,))


def _march(raw: Bytes, start: I64) -> tuple[I64, I64, I64]:
    """All lanes, each to where the next one begins or past it.

    Returns the places of all frames lane by lane (int64[sum of count]), the frames of each lane and where its last
    one ends (int64[l] each; a lane stops before a frame that `raw` does not hold whole).
    """
    size = len(raw)
    count, end = np.zeros(len(start), np.int64), start.copy()
    # a frame that begins here belongs to a later lane, or has no room for a head
    stop = np.append(start[1:], size - FRAME + 1)
    lane, at = np.arange(len(start)), start
    blocks: list[tuple[I64, I64, npt.NDArray[np.bool_]]] = []
    while len(lane):
        rows = _steps(raw, at)  # int64[CHECK_EVERY + 1, lanes still on their way]
        # a prefix of every column: places ascend, and behind a frame that is cut they are beyond `size`
        right = (rows[:-1] < stop) & (rows[1:] <= size)
        blocks.append((lane, rows[:-1], right))
        whole = right.sum(0)
        count[lane] += whole
        end[lane] = rows[whole, np.arange(len(lane))]
        going = rows[-1] < stop
        lane, at, stop = lane[going], rows[-1][going], stop[going]
    return _gathered(blocks, count), count, end


def _steps(raw: Bytes, at: I64) -> I64:
    """The next places of all lanes, int64[CHECK_EVERY + 1, lanes]; beyond the end where there is no next frame."""
    word, size = words(raw, "<u8"), len(raw)
    most, last = np.uint64(size), size - 8
    rows = np.empty((CHECK_EVERY + 1, len(at)), np.int64)
    rows[0] = at
    for step in range(CHECK_EVERY):
        # A length never counts for more than `size`, so sums stay small. A lane beyond the last word reads that
        # word, and stays beyond the end whatever it says: size - 8 + FRAME > size.
        at = np.minimum(rows[step], last)
        length = word[at]
        np.minimum(length, most, out=length)
        at += FRAME
        np.add(at, length.view(np.int64), out=rows[step + 1])
    return rows


def _gathered(blocks: list[tuple[I64, I64, npt.NDArray[np.bool_]]], count: I64) -> I64:
    """Places lane by lane, from blocks of (lane, places, which of them count)."""
    to = np.cumsum(count) - count  # where the next place of each lane goes
    places = np.empty(int(count.sum()), np.int64)
    for lane, rows, right in blocks:
        target = to[lane] + np.arange(len(rows))[:, None]
        if right.all():
            places[target] = rows
        else:
            places[target[right]] = rows[right]
        to[lane] += len(rows)  # a lane with fewer has no later block
    return places


def _chain(raw: Bytes, start: I64, places: I64, count: I64, end: I64) -> tuple[I64, int]:
    """The walk from 0: lanes as long as each ends where the next begins, frame by frame from one that does not."""
    broken = np.append(np.flatnonzero(end[:-1] != start[1:]), len(start) - 1)
    if len(broken) == 1:
        return places, int(end[-1])
    first = np.append(0, np.cumsum(count))
    number = {place: k for k, place in enumerate(start.tolist())}
    known = frozenset(number)
    parts, lane = [], 0
    while True:
        last = int(broken[np.searchsorted(broken, lane)])
        parts.append(places[first[lane] : first[last + 1]])
        if not count[last]:  # the frame at its own beginning is not whole
            return np.concatenate(parts), int(end[last])
        more, at = _sequence(raw.data, int(end[last]), known, len(raw))
        parts.append(np.array(more, np.int64))
        if at not in number:
            return np.concatenate(parts), at
        lane = number[at]
