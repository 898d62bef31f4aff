"""Parsing many tf.train.Examples at once, because their shapes repeat.

A program writes records with the same features in the same order, so they differ only in lengths and payloads. One
record is parsed by the plain loop (example_parse.py); its list of names and types is the shape. All other records of
the window are then walked together, one numpy step a field of the message: each step checks the tag, reads the length,
and checks that what is nested ends where it must. A record that differs in any way leaves the row and goes back to the
plain loop, which alone decides what is no Example.

That takes 1.5 microseconds a record of three features instead of 17. Maps have no order, so several shapes are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...layout.index import I64

Raw = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

# A shape is a feature's name, and the tag of its list (0: it has none), for all features in stored order.
Shape = tuple[tuple[bytes, int], ...]

_LENGTH_DIGITS = 5  # a length of more has a record of 32 GiB


@dataclass(frozen=True)
class Walk:
    """k records of one shape with m features.

    right   bool[k], the record has the shape; all else is nonsense where it has not
    lo, hi  int64[m, k], where the feature's list begins and ends in the window
    """

    right: Mask
    lo: I64
    hi: I64


def walk(raw: Raw, begin: I64, end: I64, shape: Shape) -> Walk:
    """Walk the records raw[begin:end], int64[k] each."""
    steps = _Steps(raw, begin, end)
    steps.enter(0x0A, end)
    lo, hi = np.empty((2, len(shape), len(begin)), np.int64)
    for k, (name, tag) in enumerate(shape):
        entry = steps.enter(0x0A, None)
        steps.text(name)
        steps.enter(0x12, entry)
        if tag:
            steps.enter(tag, entry)
        else:
            steps.require(steps.at == entry)
        lo[k], hi[k] = steps.at, entry
        steps.at = entry
    steps.require(steps.at == end)
    return Walk(steps.right, lo, hi)


class _Steps:
    """Where all records are: `at`, int64[k]; `right`, bool[k]: those that were right so far."""

    def __init__(self, raw: Raw, begin: I64, end: I64) -> None:
        self._raw, self._end = raw, end
        self._last = len(raw) - 1
        self.at = begin
        self.right = end > begin

    def require(self, condition: Mask) -> None:
        self.right &= condition

    def byte(self, at: I64) -> I64:
        """The bytes at these places; those of records that went astray are any."""
        return self._raw[np.clip(at, 0, self._last)].astype(np.int64)

    def varint(self) -> I64:
        """Read a varint of at most five bytes."""
        digit = self.byte(self.at)
        self.at = self.at + 1
        value, more = digit & 127, digit > 127
        for shift in range(7, 7 * _LENGTH_DIGITS, 7):
            if not (more & self.right).any():
                break
            digit = np.where(more, self.byte(self.at), 0)
            self.at = self.at + more
            value |= (digit & 127) << shift
            more &= digit > 127
        self.require(~more)
        return value

    def enter(self, tag: int, until: I64 | None) -> I64:
        """The tag and length of a message that must end at `until`; returns its end."""
        self.require(self.byte(self.at) == tag)
        self.at = self.at + 1
        length = self.varint()
        stop = self.at + length
        self.require(stop <= self._end if until is None else stop == until)
        return stop

    def text(self, name: bytes) -> None:
        """A string field 1 with this content."""
        self.require(self.byte(self.at) == 0x0A)
        self.at = self.at + 1
        self.require(self.varint() == len(name))
        for place, value in enumerate(name):
            self.require(self.byte(self.at + place) == value)
        self.at = self.at + len(name)


def single_bytes(raw: Raw, lo: I64, hi: I64) -> tuple[Mask, I64]:
    """Lists raw[lo:hi] that hold one bytes value: which do, and where the value begins (it ends at hi)."""
    steps = _Steps(raw, lo, hi)
    steps.enter(0x0A, hi)
    return steps.right, steps.at


def packed_floats(raw: Raw, lo: I64, hi: I64) -> tuple[Mask, I64]:
    """Lists that hold one packed field of whole floats: which do, and how many they are."""
    steps = _Steps(raw, lo, hi)
    steps.enter(0x0A, hi)
    steps.require((hi - steps.at) % 4 == 0)
    return steps.right, (hi - steps.at) // 4


def single_int64(raw: Raw, lo: I64, hi: I64) -> tuple[Mask, I64]:
    """Lists that hold one packed int64: which do, and the number."""
    steps = _Steps(raw, lo, hi)
    steps.enter(0x0A, hi)
    size = hi - steps.at
    steps.require((size >= 1) & (size <= 10))
    value = np.zeros(len(lo), np.uint64)
    for place in range(int(size[steps.right].max(initial=0))):
        digit = steps.byte(steps.at + place)
        inside = place < size
        # all but the last byte have the high bit
        steps.require(~inside | ((digit > 127) == (place < size - 1)))
        value |= np.where(inside, digit & 127, 0).astype(np.uint64) << np.uint64(7 * place)
    return steps.right, value.view(np.int64)
