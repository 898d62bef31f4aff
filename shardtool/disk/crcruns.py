"""Checksums of many TFRecord frames at once, from the checksums of runs of frames.

A call of crc32c and the Python around it cost more than the checksum of a short record. So whole runs of adjacent
frames, heads and stored checksums included, are checked with one call each, against the value that follows from
the checksums stored in them:

CRC32C is linear over GF(2). Write [M] for the register after the bytes M when it began at 0, and z(k, r) for the
register r after k zero bytes. Then [AB] = z(|B|, [A]) ^ [B], four bytes with the little-endian value w are
z(4, w), and the checksum of M is c(M) = ~(z(|M|, ~0) ^ [M]). A frame of n payload bytes with the right head h
(12 bytes) and the stored payload checksum w, c = unmask(w), should thus be

    [frame] = z(4, z(n, [h]) ^ z(n, ~0) ^ ~c ^ w)

in which all but c ^ w depends on n alone and comes from a table. A run is the XOR of its frames, each shifted by
the bytes behind it; shifts are table look-ups, one table for each of the two digits of a distance below 2^16.
See docs/engines.md.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from .crc import U32, crc32c, masked, masked_of_lengths
from .lanes import FOOT, FRAME, HEAD, words

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LARGE = 1 << 14  # payloads above this many bytes are checked one by one
RUN = (1 << 16) - LARGE - FRAME - FOOT  # a run ends with the frame that crosses a multiple of this
FEW = 128  # frames; fewer are checked one by one
WORTH = 1 << 14  # small frames a process checks one by one before it builds the tables (some 10 ms)
BLOCK = 1 << 14  # frames at a time, so that intermediate arrays stay in the cache

_ONES = np.uint32(0xFFFFFFFF)
_DELTA = np.uint32(0xA282EAD8)
_met = 0  # small frames that this process was asked about


def first_wrong(raw: Bytes, start: I64, size: I64) -> tuple[int, str] | None:
    """The first frame with a wrong checksum, and whether that is the one of its 'length' or of its 'payload'.

    raw    uint8[m], C-contiguous
    start  int64[k]: where frames begin in it; they lie one behind the other
    size   int64[k]: bytes of their payloads

    None if all are right. The same answer as checking frame by frame, but for damage to several frames (or to
    payload and checksum of one) that cancels out in the checksum of a run, which chance does once in 2^32.
    """
    view = raw.data
    among = suspects(raw, start, size)
    if not len(among):
        return None
    begin, payload = start[among], size[among]
    wrong = words(raw, "<u4")[begin + 8] != masked_of_lengths(words(raw, "<u8")[begin])
    for k, a, n, w in zip(among.tolist(), begin.tolist(), payload.tolist(), wrong.tolist(), strict=True):
        if w:
            return k, "length"
        if not _payload_right(view, a, n):
            return k, "payload"
    return None


def wrong_payloads(raw: Bytes, start: I64, size: I64) -> I64:
    """Numbers of all frames with a wrong payload checksum, ascending; arguments and odds as in `first_wrong`."""
    view = raw.data
    among = suspects(raw, start, size)
    right = [
        _payload_right(view, a, n) for a, n in zip(start[among].tolist(), size[among].tolist(), strict=True)
    ]
    wrong: I64 = among[~np.array(right, bool)]
    return wrong


def suspects(raw: Bytes, start: I64, size: I64) -> I64:
    """Numbers of the frames that have to be checked one by one, ascending.

    Those in runs whose checksum is wrong, those with large payloads, or all where runs do not pay.
    """
    global _met
    small = size <= LARGE
    frames = int(np.count_nonzero(small))
    _met += frames
    if frames < FEW or _met < WORTH:
        return np.arange(len(start))
    among = [
        lo + _in_wrong_runs(raw, start[lo : lo + BLOCK], size[lo : lo + BLOCK], small[lo : lo + BLOCK])
        for lo in range(0, len(start), BLOCK)
    ]
    result: I64 = np.concatenate(among)
    return result


def _payload_right(view: memoryview, start: int, size: int) -> bool:
    end = start + HEAD + size
    return masked(view[start + HEAD : end]) == int.from_bytes(view[end : end + FOOT], "little")


def _in_wrong_runs(raw: Bytes, start: I64, size: I64, small: npt.NDArray[np.bool_]) -> I64:
    """Numbers of the frames in runs with a wrong checksum; a large frame is a run of its own, and always there."""
    end = start + (size + FRAME)
    crossing = (end - start[0]) // RUN
    begins = np.diff(crossing, prepend=-1) != 0
    every = bool(small.all())
    if not every:
        begins |= ~small
        begins[1:] |= ~small[:-1]
        size = np.where(small, size, 0)
    first = np.flatnonzero(begins)  # int64[r]: the first frame of every run
    behind = np.append(first[1:], len(start))
    frames = behind - first
    lo, hi = start[first], end[behind - 1]
    # the registers of all frames but for the last shift by 4, uint32[k]
    stored = words(raw, "<u4")[end - FOOT].astype(np.uint32, copy=False)
    frame = stored - _DELTA
    frame = (frame << np.uint32(15)) | (frame >> np.uint32(17))
    frame ^= stored
    frame ^= _by_size().take(size)
    distance = np.repeat(hi, frames) - end
    run_bytes = hi - lo
    if not every:
        distance[~small], run_bytes = 0, np.where(small[first], run_bytes, 0)
    # a run: its frames, each behind the others; distances stay below 2^16 with the 4
    runs = np.bitwise_xor.reduceat(_shift(distance + FOOT, frame), first)
    runs ^= _shift(run_bytes, np.full(len(first), _ONES)) ^ _ONES
    view = raw.data
    found = np.fromiter((crc32c(view[a:b]) for a, b in zip(lo.tolist(), hi.tolist(), strict=True)), np.uint32, len(lo))
    wrong = found != runs
    if not every:
        wrong |= ~small[first]
    return np.flatnonzero(np.repeat(wrong, frames))


def _shift(distance: I64, register: U32) -> U32:
    """z(distance, register) element by element; distances below 2^16."""
    low, high = _tables()
    return _look_up(high, distance >> 8, _look_up(low, distance & 255, register))


def _look_up(table: U32, row: I64, register: U32) -> U32:
    """XOR over the four bytes b_j of every register of table[row, j, b_j]; `table` is flat."""
    base = row << 10
    digits = np.ascontiguousarray(register, "<u4").view(np.uint8).reshape(-1, 4)
    found = table.take(base + digits[:, 0])
    for j in range(1, 4):
        base += 256
        found ^= table.take(base + digits[:, j])
    return found


@cache
def _tables() -> tuple[U32, U32]:
    """Shifts by 0..255 bytes and by 0..255 times 256 bytes, each uint32[256 * 4 * 256] (1 MiB).

    [k, j, b] is z(k, b << 8 * j): a register is the XOR of its four bytes in their places.
    """
    byte = [[(b << 8 * j) ^ 0xFFFFFFFF for b in range(256)] for j in range(4)]
    one = np.array([[crc32c(b"\0", r) ^ 0xFFFFFFFF for r in row] for row in byte], np.uint32)
    low = _powers(one)
    return low.ravel(), _powers(_apply(one, low[255])).ravel()


def _powers(one: U32) -> U32:
    """uint32[256, 4, 256]: a shift applied 0 to 255 times, by doubling."""
    out = np.empty((256, 4, 256), np.uint32)
    out[0] = np.arange(256, dtype=np.uint32) << (np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None])
    out[1] = one
    have = 2
    while have < 256:
        more = _apply(one, out[have - 1])  # applied `have` times
        out[have : 2 * have] = _apply(more, out[:have])
        have *= 2
    return out


def _apply(shift: U32, register: U32) -> U32:
    """A shift, uint32[4, 256], of registers of any shape."""
    digits = np.ascontiguousarray(register, "<u4").view(np.uint8).reshape(*register.shape, 4)
    found: U32 = shift[0].take(digits[..., 0])
    for j in range(1, 4):
        found ^= shift[j].take(digits[..., j])
    return found


@cache
def _by_size() -> U32:
    """What depends on n alone in the register of a frame, for n = 0..LARGE: z(n, [head]) ^ z(n, ~0) ^ ~0."""
    n = np.arange(LARGE + 1, dtype=np.int64)
    eight, four = np.full(len(n), 8), np.full(len(n), 4)
    stored = masked_of_lengths(n.astype(np.uint64))
    crc = stored - _DELTA
    crc = (crc << np.uint32(15)) | (crc >> np.uint32(17))
    length = crc ^ _ONES ^ _shift(eight, np.full(len(n), _ONES))  # [the eight bytes]
    head = _shift(four, length ^ stored)
    table: U32 = _shift(n, head ^ _ONES) ^ _ONES
    return table
