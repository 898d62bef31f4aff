"""What a file is, judged by its first bytes; its name says only what it claims to be.

Order for a caller: `looks_like_tfrecord` first (32 bits of checksum over the length leave no room for chance,
and a plain TFRecord may begin with 1f 8b), then `looks_like_tar`, then `compression_of`.
"""

from __future__ import annotations

import re

from ..crc import crc32c

# How many first bytes all functions here want; fewer are fine for a shorter file.
HEAD = 1024

_COMPRESSIONS = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"),
)

# (magic at the beginning, what it is)
_MAGICS = (
    # the hash at the head of every Riegeli/records file; ArrayRecord is made of Riegeli chunks
    (b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "a Riegeli or ArrayRecord file"),
    (b"version https://git-lfs", "a git-lfs pointer, not the file itself (run `git lfs pull`)"),
    (b"\x93NUMPY", "a NumPy .npy array"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x0a\x23\xd7\xce", "an MXNet RecordIO file (.rec)"),
    (b"LZ4\x02", "lz4 data"),
    (b"\x04\x22\x4d\x18", "lz4 data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"!<arch>\n", "a Unix ar archive"),
    (b"070701", "a cpio archive"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
)

_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]+")


def looks_like_tar(head: bytes) -> bool:
    """The first block has a right header checksum, or all that is there (at least one block) is zeros."""
    if len(head) < 512:
        return False
    block = head[:512]
    return checksum_right(block) or not any(head[:1024])


def checksum_right(block: bytes) -> bool:
    """Whether 512 bytes carry a right tar checksum: the sum of all bytes, the checksum's own taken as blanks.

    Historic tars summed signed characters; both sums pass. A block of zeros has no checksum.
    """
    field = block[148:156].strip(b" \0")
    if not field or len(field) > 7 or field.strip(b"01234567"):
        return False
    stored = int(field, 8)
    plain = sum(block) - sum(block[148:156]) + 8 * 32
    if stored == plain:
        return True
    high = sum(byte >= 128 for byte in block) - sum(byte >= 128 for byte in block[148:156])
    return stored == plain - 256 * high


def looks_like_tfrecord(head: bytes) -> bool:
    """The first 12 bytes are a length and its right checksum."""
    if len(head) < 12:
        return False
    crc = crc32c(head[:8])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked == int.from_bytes(head[8:12], "little")


def compression_of(head: bytes) -> str | None:
    """'gzip', 'zlib', 'zstd', 'bz2', 'xz', or None.

    zlib has no magic: method 8, a window of at most 32 KiB, no dictionary, and a header that 31 divides.
    """
    for magic, name in _COMPRESSIONS:
        if head.startswith(magic):
            return name
    # zstd: a skippable frame may stand in front
    if len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
        return "zstd"
    if len(head) >= 2 and head[0] & 15 == 8 and head[0] >> 4 <= 7:
        number = head[0] << 8 | head[1]
        if number % 31 == 0 and not head[1] & 32:
            return "zlib"
    return None


def what_is(head: bytes) -> str | None:
    """The kind of a file in words for a message ('a Parquet file'), or None."""
    if looks_like_tfrecord(head):
        return "a TFRecord file"
    if looks_like_tar(head):
        return "a tar archive"
    for magic, words in _MAGICS:
        if head.startswith(magic):
            return words
    packed = compression_of(head)
    if packed and packed != "zlib":
        return f"{packed}-compressed data"
    text = head[:HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page"
    if text.startswith((b"<?xml", b"<error")):
        return "an XML text (an error message of a store?)"
    if text.startswith((b"{", b"[")) and _TEXT.fullmatch(head):
        return "a JSON text"
    return "zlib-compressed data" if packed else None


def first_words(head: bytes) -> str | None:
    """Up to 60 printable ASCII bytes from the beginning, for a message; None when it does not begin so."""
    match = re.match(rb"[\x20-\x7e]{4,60}", head)
    return match[0].decode("ascii") if match else None


def not_a(kind: str, head: bytes) -> str:
    """'not a tar archive, but a Parquet file' or, unrecognised, with the first printable bytes quoted."""
    words, quote = what_is(head), first_words(head)
    if words and words != kind:
        return f"not {kind}, but {words}"
    if quote:
        return f"not {kind}; the file begins with {quote!r}"
    return f"not {kind}; the file begins with bytes {head[:8].hex(' ')}"
