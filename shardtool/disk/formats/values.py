"""Numbers of a sample between their two homes: a list in a tf.train.Example, text or .npy in a member of a tar."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...layout.index import FLOAT_NPY, I64, INT64_NPY, TO_FLOAT, TO_INT64
from .example import varint

# .npy, version 1.0 (numpy.lib.format): magic, version, length of the header, header padded with blanks so that all
# this is a multiple of 64 bytes. For one axis of any length that is 128 bytes.
NPY_HEAD = 128
_MAGIC = b"\x93NUMPY\x01\x00"
_DICT = b"{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }"
_NPY = re.compile(rb"\{'descr': '(<i8|<f4)', 'fortran_order': False, 'shape': \((\d+),\), \} *\n")

_INTEGER = re.compile(rb"-?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf)")


def computed(kind: int, data: bytes) -> bytes:
    """The payload of a part of this kind (but INT64_TEXT, which needs none) from the bytes that are stored.

    Raises ValueError saying what is wrong.
    """
    if kind == INT64_NPY:
        return npy("<i8", int64_list(data))
    if kind == FLOAT_NPY:
        return npy("<f4", float_list(data))
    if kind == TO_INT64:
        return packed(integers(data))
    if kind == TO_FLOAT:
        return floats(data).astype("<f4").tobytes()
    raise AssertionError(f"kind {kind} is copied")


def decimal_bytes(values: I64) -> I64:
    """Length of every int64 in decimal digits, with its sign."""
    size = values.view(np.uint64).copy()
    negative = values < 0
    size[negative] = ~size[negative] + np.uint64(1)
    return np.searchsorted(_POWERS, size, side="right") + 1 + negative


_POWERS = np.array([10**power for power in range(1, 20)], np.uint64)


# -- lists of an Example ---------------------------------------------------------------------------------------


def int64_list(data: bytes) -> npt.NDArray[np.int64]:
    """Values of a serialized Int64List, packed or not, that was parsed strictly before."""
    values: list[int] = []
    at = 0
    while at < len(data):
        if data[at] == 0x08:
            value, at = varint(data, at + 1)
            values.append(value)
            continue
        length, at = varint(data, at + 1)
        end = at + length
        while at < end:
            value, at = varint(data, at)
            values.append(value)
    return np.array(values, np.uint64).view(np.int64)


def float_list(data: bytes) -> npt.NDArray[np.float32]:
    """Values of a serialized FloatList, packed or not, bit by bit."""
    pieces = []
    at = 0
    while at < len(data):
        if data[at] == 0x0D:
            length, at = 4, at + 1
        else:
            length, at = varint(data, at + 1)
        pieces.append(data[at : at + length])
        at += length
    return np.frombuffer(b"".join(pieces), "<f4").astype(np.float32, copy=False)


def packed(values: Iterable[int]) -> bytes:
    """The varints of int64 values in a row."""
    text = bytearray()
    for value in values:
        value &= (1 << 64) - 1
        while value > 127:
            text.append(value & 127 | 128)
            value >>= 7
        text.append(value)
    return bytes(text)


# -- members of a tar ------------------------------------------------------------------------------------------


def npy(dtype: str, values: npt.NDArray[np.generic]) -> bytes:
    """The .npy of one axis; dtype '<i8' or '<f4'."""
    text = _DICT % (dtype.encode(), len(values))
    room = NPY_HEAD - len(_MAGIC) - 2
    return _MAGIC + room.to_bytes(2, "little") + text.ljust(room - 1) + b"\n" + values.astype(dtype).tobytes()


def integers(data: bytes) -> list[int]:
    """The int64 values of a payload: decimal digits, or a .npy of '<i8' with one axis. Raises ValueError."""
    if data.startswith(_MAGIC):
        return list(map(int, _from_npy(data, b"<i8")))
    if not _INTEGER.fullmatch(data):
        raise ValueError(f"{_show(data)} is no whole number: -?[0-9]+, nothing before or behind it")
    # Python refuses texts of more than 4,300 digits by itself
    value = int(data) if len(data) < 64 else 1 << 64
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{_show(data)} does not fit an int64")
    return [value]


def floats(data: bytes) -> npt.NDArray[np.float32]:
    """The float32 values of a payload: one decimal number, or a .npy of '<f4' with one axis. Raises ValueError."""
    if data.startswith(_MAGIC):
        return _from_npy(data, b"<f4").astype(np.float32, copy=False)
    if not _DECIMAL.fullmatch(data):
        raise ValueError(f"{_show(data)} is no decimal number")
    value = float(data)
    with np.errstate(over="ignore"):
        made = np.array([value], np.float64).astype(np.float32)
    if np.isinf(made[0]) and b"inf" not in data:
        raise ValueError(f"{_show(data)} does not fit a float32")
    return made


def _from_npy(data: bytes, dtype: bytes) -> npt.NDArray[np.generic]:
    size = int.from_bytes(data[8:10], "little")
    match = _NPY.fullmatch(data[10 : 10 + size])
    if not match or match[1] != dtype or len(data) != 10 + size + int(match[2]) * np.dtype(dtype.decode()).itemsize:
        raise ValueError(f"the .npy is not one axis of {dtype.decode()!r}, or has another size than its header says")
    return np.frombuffer(data, dtype.decode(), offset=10 + size)


def _show(data: bytes) -> str:
    text = data[:20].decode("ascii", "backslashreplace")
    return repr(text) + ("..." if len(data) > 20 else "")
