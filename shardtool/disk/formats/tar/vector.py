"""The scan of an archive of many small ordinary members, thousands of headers at a time.

Python needs some 3 us a member to read a header, split its name and append to columns; numpy does each of these steps
for all headers of a batch at once. Only the ordinary is understood here. Whatever is not - an extension header, a
link, an odd name, a case for a policy, damage - ends this scan without a word, and the plain one begins from byte 0:
so messages and policies have one place, and the answer is that of the plain scan for any bytes. See docs/engines.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ....base.ragged import Ragged
from ....layout.frames import BLOCK, END_MARKER, pad512
from ....layout.rules import Rules
from ...blocks import Blocks
from .group import Columns
from .search import first_nonzero

LEAST = 1 << 18  # a smaller archive is read plainly before numpy is under way
LARGE = 1 << 16  # bytes of a mean member from which on the plain scan is as fast: it skips payloads
JUDGE = 1 << 23  # the mean is judged when so many bytes have been passed
PIECE = 1 << 19  # bytes read at a time: still in the second-level cache when they are looked at
MAPPED_PIECE = 1 << 21  # the same of a mapping, where only headers are touched
BATCH = 4096  # headers understood at a time
MANY = 256  # more extensions than this are not ordinary

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Labels = list[bytes | None]
# columns of all samples, their labels if they could be read on the way, byte behind the last member
Found = tuple[Columns, Labels | None, int]

_WORDS = BLOCK // 8
_WORD = np.dtype("<u8")
_NAME, _WIDEST = 100, 104  # the name field: bytes, and bytes in whole words
_DOT, _SLASH, _UNDERSCORE = b"./_"
# Bytes 256 to 263: the last of the link, the magic "ustar", and two that differ between POSIX and GNU.
_MAGIC_WORD = 32
_MAGIC_MASK, _MAGIC = (np.uint64(int.from_bytes(text, "little")) for text in (b"\xff" * 6, b"\0ustar"))
_OCTAL: F64 = np.ldexp(1.0, np.arange(30, -1, -3))  # of 11 digits: below 2^33, exact in a double
_BYTES, _PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
# Odd numbers, one for each word of a key: powers of 2^64 / golden ratio.
_FACTORS = np.array([pow(0x9E3779B97F4A7C15, k, 1 << 64) for k in range(1, _WIDEST // 8 + 1)], np.uint64)


class _Unusual(Exception):
    """Something that the plain scan has to look at."""


def columns(blocks: Blocks, rules: Rules) -> Found | None:
    """All samples of an archive; None where anything in it is not ordinary, or where the plain scan is as fast.

    Raises DataError when the file becomes shorter meanwhile.
    """
    if blocks.size < LEAST:
        return None
    members = _Members(None if rules.label is None else rules.label.encode("utf-8", "surrogateescape"))
    try:
        end = _read(blocks, members)
        made = members.columns(rules)
        return made, members.labels(made), end
    except _Unusual:
        return None


def _read(blocks: Blocks, members: _Members) -> int:
    """All members; returns where the last one ends, behind which there are only zeros."""
    piece = MAPPED_PIECE if blocks.mapped else PIECE
    heads = np.empty((BATCH + piece // BLOCK, _WORDS), _WORD)  # [k, 64]: one row a header
    bodies = np.empty_like(heads) if members.labels_wanted else heads[:0]  # the block behind each header
    places: list[I64] = []  # where the headers in `heads` are in the file
    count = end = 0
    for offset, words, here in _pieces(blocks, piece):
        np.take(words, here, axis=0, out=heads[count : count + len(here)], mode="clip")
        if members.labels_wanted:
            np.take(words, here + 1, axis=0, out=bodies[count : count + len(here)], mode="clip")
        places.append(offset + here * BLOCK)
        count += len(here)
        if count >= BATCH:
            end = members.add(heads[:count], bodies[:count], np.concatenate(places), end)
            places, count = [], 0
    if count:
        end = members.add(heads[:count], bodies[:count], np.concatenate(places), end)
    # with less than two blocks of zeros behind the last member there is something to say
    if not end or blocks.size - end < END_MARKER or first_nonzero(blocks, end) >= 0:
        raise _Unusual
    return end


def _pieces(blocks: Blocks, piece: int) -> Iterator[tuple[int, U64, I64]]:
    """(offset, its blocks as words [b, 64], which of them look like headers) of pieces that begin with a header.

    The next piece begins where the last member ends by its header's word; what looks like a header may be content.
    """
    buffer = np.empty(0 if blocks.mapped else piece, np.uint8)
    at = seen = 0
    judged = False
    while blocks.size - at >= BLOCK:
        size = min(piece, blocks.size - at) // BLOCK * BLOCK
        if blocks.mapped:
            view = blocks.window(at, size)
        else:
            view = memoryview(buffer)[:size]  # type: ignore[arg-type]
            blocks.read_into(view, at)
        words = np.frombuffer(view, _WORD).reshape(-1, _WORDS)
        # the last block is none of them: what follows its header has to be there too
        here = np.flatnonzero((words[:-1, _MAGIC_WORD] & _MAGIC_MASK) == _MAGIC)
        if not len(here) or here[0]:
            return
        yield at, words, here
        last = int(here[-1]) * BLOCK
        at += last + BLOCK + pad512(_octal(bytes(view[last + 124 : last + 135])))
        seen += len(here)
        if at >= JUDGE and not judged:
            judged = True
            if at > LARGE * seen:
                raise _Unusual


def _octal(digits: bytes) -> int:
    if digits.strip(b"01234567"):
        raise _Unusual
    return int(digits, 8)


class _Members:
    """Columns of the members of one archive under construction, batch by batch."""

    def __init__(self, label: bytes | None) -> None:
        self.labels_wanted = label is not None
        self._label = label
        self._values: list[bytes] = []  # labels
        self._labelled: list[I64] = []  # members that hold them
        self._count = 0
        self._offset: list[I64] = []
        self._size: list[I64] = []
        self._code: list[npt.NDArray[np.uint32]] = []
        self._first: list[I64] = []  # members with which samples begin
        self._keys: list[Ragged] = []
        self._hashes: list[U64] = []
        self._exts: list[bytes] = []  # by code
        self._last = np.zeros(_WIDEST // 8, _WORD)  # key of the member before, filled with NULs

    def add(self, heads: U64, bodies: U64, offset: I64, begin: int) -> int:
        """The next k members by their headers, u64[k, 64]; returns where the last one ends.

        `bodies`: the block behind each header, u64[k, 64], when labels are wanted.

        Every member must end where the next one begins, the first at `begin`: else what looked like a header was
        none, or what is one did not look like it.
        """
        raw = heads.view(np.uint8)
        _require_ordinary(heads, raw)
        size = _numbers(raw[:, 124:135], _OCTAL)
        end = offset + BLOCK + pad512(size)
        _require(offset[0] == begin and bool((end[:-1] == offset[1:]).all()))
        names, length = _names(raw)
        dot = _first_dots(names)
        code = self._codes(names, dot, length)
        if self._label in self._exts:
            self._add_labels(bodies.view(np.uint8), np.flatnonzero(code == self._exts.index(self._label)), size)
        self._code.append(code)
        names *= np.arange(names.shape[1]) < dot[:, None]  # leaves the keys
        begins = self._begins(names.view(_WORD))
        chosen = np.flatnonzero(begins)
        self._first.append(chosen + self._count)
        self._add_keys(names[chosen], dot[chosen])
        self._offset.append(offset)
        self._size.append(size)
        self._count += len(heads)
        return int(end[-1])

    def _codes(self, names: U8, dot: I64, length: I64) -> npt.NDArray[np.uint32]:
        """Number of every member's extension; new ones are added to the list."""
        longest = int((length - dot).max()) - 1
        width = max(8, -(-longest // 8) * 8)
        text = np.zeros((len(names), width), np.uint8)
        # the last byte of every row is NUL, so it stands for all behind a name
        column = np.minimum(dot[:, None] + np.arange(1, longest + 1), names.shape[1] - 1)
        text[:, :longest] = np.take_along_axis(names, column, axis=1)
        words = text.view(_WORD)
        code = np.full(len(names), len(self._exts), np.uint32)
        unknown = np.ones(len(names), bool)
        known = 0
        while unknown.any():
            if known == len(self._exts):
                self._exts.append(text[int(np.argmax(unknown))].tobytes().rstrip(b"\0"))
            ext = self._exts[known]
            if len(ext) <= width:
                same = _rows_equal(words, np.frombuffer(ext.ljust(width, b"\0"), _WORD))
                code[same] = known
                unknown &= ~same
            known += 1
            _require(known <= MANY)
        return code

    def _begins(self, words: U64) -> Flags:
        """Which members have another key than the one before; `words`: keys, [k, w]."""
        count, width = words.shape
        begins = np.zeros(count, bool)
        for column in words.T:
            begins[1:] |= column[1:] != column[:-1]
        begins[0] = bool((words[0] != self._last[:width]).any() or self._last[width:].any())
        self._last[:width], self._last[width:] = words[-1], 0
        return begins

    def _add_keys(self, keys: U8, length: I64) -> None:
        first = np.zeros(len(keys) + 1, np.int64)
        np.cumsum(length, out=first[1:])
        self._keys.append(Ragged(keys[keys != 0], first))
        words = keys.view(_WORD)
        self._hashes.append((words * _FACTORS[: words.shape[1]]).sum(axis=1, dtype=np.uint64))

    def _add_labels(self, bodies: U8, members: I64, sizes: I64) -> None:
        """Payloads of these members of the batch."""
        sizes = sizes[members]
        width = int(sizes.max(initial=0))
        if width > BLOCK:
            self.labels_wanted, self._label = False, None
            return
        text = bodies[members, :width].tobytes()
        starts = range(0, len(text), width) if width else [0] * len(members)
        self._values += [text[a : a + n].strip() for a, n in zip(starts, sizes.tolist(), strict=True)]
        self._labelled.append(members + self._count)

    def labels(self, c: Columns) -> Labels | None:
        """The label of every sample (None: it has none), once all members were added; None when they were not
        asked for, or one is longer than a block."""
        if not self.labels_wanted:
            return None
        labels: Labels = [None] * (len(c.first) - 1)
        members = np.concatenate([np.zeros(0, np.int64), *self._labelled])
        owners = np.searchsorted(c.first, members, side="right") - 1
        for owner, value in zip(owners.tolist(), self._values, strict=True):
            labels[owner] = value
        return labels

    def columns(self, rules: Rules) -> Columns:
        """Columns of everything that was added. Raises _Unusual where a policy has to decide."""
        # equal keys have equal hashes; should others meet, the plain scan knows that they differ
        _require(_all_differ(np.concatenate(self._hashes)))
        first = np.append(np.concatenate(self._first), self._count)
        code = np.concatenate(self._code)
        samples = len(first) - 1
        folded = {ext: ext if rules.allow_case_collision else ext.lower() for ext in self._exts}
        number = {ext: k for k, ext in enumerate(dict.fromkeys(folded.values()))}
        field = np.array([number[folded[ext]] for ext in self._exts], np.int64).take(code)
        owner = np.repeat(np.arange(samples), np.diff(first))
        _require(_all_differ(owner * len(number) + field))  # no field twice in a sample
        counts = dict(zip(self._exts, np.bincount(code).tolist(), strict=True))
        _require(all(counts.get(ext) == samples for ext in rules.require))
        exts = tuple(sorted(self._exts))
        place = np.array([exts.index(ext) for ext in self._exts], np.uint32)
        return Columns(
            first, np.concatenate(self._offset), np.full(self._count, BLOCK, np.int64),
            np.concatenate(self._size), place.take(code), exts, Ragged.join(self._keys), {},
        )  # fmt: skip


def _require(ordinary: bool) -> None:
    if not ordinary:
        raise _Unusual


def _require_ordinary(heads: U64, raw: U8) -> None:
    """All are headers of plain files with nothing but a name: typeflag '0' or NUL, no link, no prefix, and a right
    checksum in the usual form. Other forms may be right too."""
    kind = raw[:, 156]
    _require(bool(((kind == 48) | (kind == 0)).all()))
    # bytes 157 to 256, and 345 to the end
    _require(not ((heads[:, 19] >> np.uint64(40)).any() or heads[:, 20:32].any()))
    _require(not ((heads[:, 43] >> np.uint64(8)).any() or heads[:, 44:].any()))
    ends = raw[:, [135, 154, 155]]
    _require(bool(((ends == 32) | (ends == 0)).all()))
    stored = _numbers(raw[:, 148:154], _OCTAL[-6:])
    field = raw[:, 148:156].sum(axis=1, dtype=np.int64)
    _require(bool((_sums(heads) - field + 8 * 32 == stored).all()))


def _sums(heads: U64) -> I64:
    """Sum of the bytes of every row, where words 20 to 31 and 44 to 63 are zero: four sums of 16 bits a word."""
    total = np.zeros(len(heads), np.uint64)
    for words in (heads[:, :20], heads[:, 32:44]):
        total += ((words & _BYTES) + ((words >> np.uint64(8)) & _BYTES)).sum(axis=1, dtype=np.uint64)
    total = (total & _PAIRS) + ((total >> np.uint64(16)) & _PAIRS)
    return ((total & np.uint64(0xFFFFFFFF)) + (total >> np.uint64(32))).astype(np.int64)


def _numbers(digits: U8, powers: F64) -> I64:
    """Octal numbers, one a row."""
    value = digits - np.uint8(48)  # below '0' it wraps around
    _require(int(value.max()) < 8)
    return (value.astype(np.float64) @ powers).astype(np.int64)


def _names(raw: U8) -> tuple[U8, I64]:
    """Names as rows filled with NULs, in the least of a few widths that leaves a NUL in each; and their lengths.

    A leading './' is gone. Names that begin with a second one are refused later, as is everything odd.
    """
    width = 16
    while width < _NAME and raw[:, width - 1].any():
        width *= 2
    width = min(width, _WIDEST)
    names = raw[:, :width].copy()
    names[:, _NAME:] = 0
    inside = (names[:, 0] == _DOT) & (names[:, 1] == _SLASH)
    if inside.any():
        moved = names[inside, 2:]
        names[inside, :-2] = moved
        names[inside, -2:] = 0
    length = (names == 0).argmax(axis=1)
    _require(int(np.count_nonzero(names)) == int(length.sum()))  # nothing behind the first NUL
    return names, length


def _first_dots(names: U8) -> I64:
    """Place of the first '.' of the last component. Raises _Unusual where there is none, or where a component is
    empty or begins with '.' or '_': only those can be unsafe, hidden, metadata or folders."""
    dots, slashes = names == _DOT, names == _SLASH
    odd = dots | slashes | (names == _UNDERSCORE)
    _require(not odd[:, 0].any())
    if slashes.any():
        _require(not (slashes[:, :-1] & odd[:, 1:]).any())
        width = names.shape[1]
        last = np.where(slashes.any(axis=1), width - 1 - slashes[:, ::-1].argmax(axis=1), -1)
        dots &= np.arange(width) > last[:, None]
    dot: I64 = dots.argmax(axis=1)
    _require(bool(dots[np.arange(len(dots)), dot].all()))
    return dot


def _rows_equal(words: U64, row: U64) -> Flags:
    same: Flags = words[:, 0] == row[0]
    for k in range(1, len(row)):
        same &= words[:, k] == row[k]
    return same


def _all_differ(numbers: npt.NDArray[np.generic]) -> bool:
    ranked = np.sort(numbers)
    return not (ranked[1:] == ranked[:-1]).any()
