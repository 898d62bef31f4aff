"""The tar that shardtool writes: every byte of a header is a pure function of the member's name and size.

POSIX.1-1988 ustar (IEEE Std 1003.1, "ustar Interchange Format"), with GNU's `././@LongLink` for a name that
fits neither 100 bytes nor prefix + name, and base-256 sizes from 8 GiB on. All lengths are multiples of 512.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError
from ..base.ragged import Ragged

BLOCK = 512
RECORD = 20 * BLOCK  # a tar file ends at a multiple of this
END_MARKER = 2 * BLOCK
OCTAL_LIMIT = 1 << 33  # 8 GiB: the first size that 11 octal digits cannot hold

NAME, PREFIX = 100, 155  # bytes
_SIZE, _CHECKSUM, _PREFIX_AT = 124, 148, 345  # offsets in the header
_LONG_LINK = b"././@LongLink"
_BATCH = 2048  # headers made at a time: 1 MiB stays in the second-level cache

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
I = TypeVar("I", int, npt.NDArray[np.int64])  # noqa: E741


def _template() -> U8:
    head = bytearray(BLOCK)
    head[100:124] = b"0000644\0" b"0000000\0" b"0000000\0"  # mode, uid, gid
    head[136:148] = b"00000000000\0"  # mtime
    head[148:156] = b" " * 8  # the checksum is that of the header with blanks in its place
    head[156:157] = b"0"
    head[257:265] = b"ustar\0" b"00"
    return np.frombuffer(bytes(head), np.uint8)


_TEMPLATE = _template()
_TEMPLATE_SUM = int(_TEMPLATE.sum())


def pad512(size: I) -> I:
    """The next multiple of 512."""
    return (size + 511) // BLOCK * BLOCK


def tar_file_bytes(content: I) -> I:
    """Bytes of a file with `content` bytes of members: two zero blocks, zeros to a multiple of 10,240."""
    return (content + END_MARKER + RECORD - 1) // RECORD * RECORD


def ustar_split(name: bytes) -> tuple[bytes, bytes] | None:
    """(prefix, name) as the header holds them, or None when only a long-name header can.

    A name over 100 bytes is cut at the last '/' that leaves at most 155 bytes before it, 1 to 100 after it.
    """
    if len(name) <= NAME:
        return b"", name
    cut = name.rfind(b"/", 1, min(PREFIX + 1, len(name) - 1))
    if cut < 0 or len(name) - cut - 1 > NAME:
        return None
    return name[:cut], name[cut + 1 :]


def tar_head_bytes(names: Ragged) -> I64:
    """Header bytes of every member, int64[m]: 512, or 1,024 + pad512(length + 1) with a long-name header."""
    lengths = names.lengths()
    size = np.full(len(names), BLOCK, np.int64)
    for i in np.flatnonzero(lengths > NAME).tolist():
        if ustar_split(names[i]) is None:
            size[i] = 2 * BLOCK + pad512(int(lengths[i]) + 1)
    return size


def tar_heads(names: Ragged, sizes: I64) -> Ragged:
    """All header bytes of m members with these names and payload sizes (bytes), m strings.

    Raises DataError for an empty name or one with a NUL byte, ValueError for a negative size.
    """
    _check(names, sizes)
    first = np.zeros(len(names) + 1, np.int64)  # [m+1]
    np.cumsum(tar_head_bytes(names), out=first[1:])
    block_first = first // BLOCK
    blocks = np.empty((int(block_first[-1]), BLOCK), np.uint8)  # [all blocks, 512]
    for lo in range(0, len(names), _BATCH):
        hi = min(lo + _BATCH, len(names))
        window = blocks[block_first[lo] : block_first[hi]]
        _fill(window, block_first[lo : hi + 1] - block_first[lo], _window(names, lo, hi), sizes[lo:hi])
    return Ragged(blocks.reshape(-1), first)


def put_tar_heads(blocks: U8, own: I64, names: Ragged, sizes: I64) -> None:
    """The headers of m members whose names have at most 100 bytes, into blocks[own[i]] of `blocks` [b, 512].

    Raises as tar_heads.
    """
    _check(names, sizes)
    blocks[own] = _TEMPLATE
    sums = np.full(len(names), _TEMPLATE_SUM, np.int64)
    _put_short_names(blocks, own, names, sums)
    _put_sizes(blocks, own, sizes, sums)
    _put_checksums(blocks, own, sums)


def _window(names: Ragged, lo: int, hi: int) -> Ragged:
    first = names.first[lo : hi + 1]
    return Ragged(names.data[first[0] : first[-1]], first - first[0])


def _fill(blocks: U8, first: I64, names: Ragged, sizes: I64) -> None:
    """Heads of k members into `blocks` [b, 512]; member i's are the blocks first[i]:first[i+1]."""
    own = first[1:] - 1  # [k]: a member's own header is the last block of its head
    if len(blocks) == len(names):
        blocks[:] = _TEMPLATE
    else:
        blocks[:] = 0
        blocks[own] = _TEMPLATE
    sums = np.full(len(names), _TEMPLATE_SUM, np.int64)  # [k], kept up to date
    lengths = names.lengths()
    for i in np.flatnonzero(lengths > NAME).tolist():
        sums[i] += _put_long_name(blocks, int(first[i]), int(own[i]), names[i])
    _put_names(blocks, own, names, lengths, sums)
    _put_sizes(blocks, own, sizes, sums)
    _put_checksums(blocks, own, sums)


def _check(names: Ragged, sizes: I64) -> None:
    if len(sizes) and int(sizes.min()) < 0:
        raise ValueError("negative size")
    data = names.data[names.first[0] : names.first[-1]]
    if (names.lengths() == 0).any() or not data.all():
        i = next(i for i, name in enumerate(names) if not name or b"\0" in name)
        raise DataError(
            "a tar member needs a name without NUL bytes", member=names[i],
            remedy="rename the sample or its field",
        )  # fmt: skip


def _put_names(blocks: U8, own: I64, names: Ragged, lengths: I64, sums: I64) -> None:
    """Names of at most 100 bytes, into bytes 0.. of their headers."""
    if int(lengths.max(initial=0)) <= NAME:
        _put_short_names(blocks, own, names, sums)
        return
    short = np.flatnonzero(lengths <= NAME)
    some = sums[short]
    _put_short_names(blocks, own[short], names.take(short), some)
    sums[short] = some


def _put_short_names(blocks: U8, own: I64, names: Ragged, sums: I64) -> None:
    lengths = names.lengths()
    width = int(lengths.max(initial=0))
    if not width:
        return
    # rows of `width` bytes from where each name begins; what is not the name becomes NUL
    data = np.zeros(int(names.first[-1]) + width, np.uint8)
    data[: -width] = names.data[: names.first[-1]]
    items = np.ndarray(len(data) - width + 1, np.dtype((np.void, width)), data, strides=(1,))
    rows = items[names.first[:-1]].view(np.uint8).reshape(-1, width)  # [m, width]
    if int(lengths.min()) < width:
        rows *= np.arange(width) < lengths[:, None]
    blocks[own, :width] = rows
    sums += rows.sum(axis=1, dtype=np.int64)


def _put_sizes(blocks: U8, own: I64, sizes: I64, sums: I64) -> None:
    octal = np.arange(30, -1, -3, dtype=np.int64)  # [11] shifts of the octal digits
    digits = ((sizes[:, None] >> octal) & 7).astype(np.uint8) + np.uint8(48)  # [m, 11]
    text = np.zeros((len(sizes), 12), np.uint8)
    text[:, :11] = digits
    for i in np.flatnonzero(sizes >= OCTAL_LIMIT):
        text[i] = np.frombuffer(_base256(int(sizes[i])), np.uint8)
    blocks[own, _SIZE : _SIZE + 12] = text
    sums += text.sum(axis=1, dtype=np.int64)


def _put_checksums(blocks: U8, own: I64, sums: I64) -> None:
    """Six octal digits, NUL, blank: 512 * 255 < 8^6."""
    octal = np.arange(15, -1, -3, dtype=np.int64)  # [6]
    blocks[own, _CHECKSUM : _CHECKSUM + 6] = ((sums[:, None] >> octal) & 7) + 48
    blocks[own, _CHECKSUM + 6] = 0


def _base256(size: int) -> bytes:
    return b"\x80" + size.to_bytes(11, "big")


def _put_long_name(blocks: U8, start: int, own: int, name: bytes) -> int:
    """A name over 100 bytes; returns what it adds to the checksum of the member's own header."""
    split = ustar_split(name)
    if split is None:
        blocks[start:own].reshape(-1)[: BLOCK + len(name)] = np.frombuffer(
            _long_link_head(len(name) + 1) + name, np.uint8
        )
        split = b"", name[:NAME]  # what readers without long names will show
    prefix, short = split
    blocks[own, : len(short)] = np.frombuffer(short, np.uint8)
    blocks[own, _PREFIX_AT : _PREFIX_AT + len(prefix)] = np.frombuffer(prefix, np.uint8)
    return sum(short) + sum(prefix)


def _long_link_head(size: int) -> bytes:
    head = bytearray(_TEMPLATE.tobytes())
    head[: len(_LONG_LINK)] = _LONG_LINK
    head[_SIZE : _SIZE + 12] = b"%011o\0" % size
    head[156:157] = b"L"
    head[_CHECKSUM : _CHECKSUM + 8] = b"%06o\0 " % sum(head)
    return bytes(head)
