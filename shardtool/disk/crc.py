"""The masked CRC32C of TFRecord.

mask(c) = ((c >> 15 | c << 17) + 0xa282ead8) mod 2**32, c = CRC32C (Castagnoli) of the bytes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]

_DELTA = 0xA282EAD8


class _Function(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


def _function() -> _Function:
    """The CRC32C function of the crc32c package, from its extension module alone.

    The package asks importlib.metadata for its own version when it is imported. That takes ten times as long as all
    the rest of it, for every command of ours, and so much is not needed.
    """
    name = "crc32c._crc32c"
    package = None if "crc32c" in sys.modules else PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec(name, package.submodule_search_locations) if package is not None else None
    if spec is None or spec.loader is None:
        return cast(_Function, import_module("crc32c").crc32c)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(_Function, module.crc32c)


# crc32c(data, value=0): CRC32C of a buffer behind one whose CRC32C is `value`.
crc32c = _function()


def masked(data: bytes | memoryview) -> int:
    """Masked CRC32C of a buffer."""
    c = crc32c(data)
    return (((c >> 15) | (c << 17)) + _DELTA) & 0xFFFFFFFF


def mask(crc: int) -> int:
    """The mask of a plain CRC32C."""
    return (((crc >> 15) | (crc << 17)) + _DELTA) & 0xFFFFFFFF


def masks(crc: U32) -> U32:
    """The masks of plain CRC32Cs, uint32[k]."""
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_DELTA)


def _length_tables() -> U32:
    """uint32[8, 256]: contribution of byte k of an 8-byte message to its CRC32C, without the constant part.

    CRC is linear over GF(2): crc(a ^ b ^ c) = crc(a) ^ crc(b) ^ crc(c) for messages of one length, so the CRC of
    eight bytes is the XOR of eight table entries and the CRC of eight zero bytes.
    """
    zero = crc32c(bytes(8))
    table = np.zeros((8, 256), np.uint32)
    for place in range(8):
        for value in range(256):
            message = bytearray(8)
            message[place] = value
            table[place, value] = crc32c(bytes(message)) ^ zero
    return table


_TABLES: U32 | None = None


def masked_of_lengths(lengths: npt.NDArray[np.uint64]) -> U32:
    """Masked CRC32C of the eight little-endian bytes of every length, uint32[k]."""
    global _TABLES
    if _TABLES is None:
        _TABLES = _length_tables()
    digits = np.ascontiguousarray(lengths, "<u8").view(np.uint8).reshape(-1, 8)
    crc = np.full(len(lengths), crc32c(bytes(8)), np.uint32)
    # bytes that are 0 in all lengths contribute nothing
    used = (int(lengths.max(initial=0)).bit_length() + 7) // 8
    for place in range(used):
        crc ^= _TABLES[place].take(digits[:, place])
    return masks(crc)
