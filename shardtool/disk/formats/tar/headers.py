"""One tar header: its numbers, its checksum, its name, and the records of a pax extended header.

Formats: Unix V7; POSIX.1-1988 ustar and POSIX.1-2001 pax (IEEE Std 1003.1, utility `pax`); GNU tar's old
format (manual, "Basic Tar Format"). Everything raises `Malformed` with a reason; the caller knows the place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..sniff import checksum_right

REGULAR = b"\0" b"07"  # NUL (V7), '0', and '7' (contiguous)
HARD_LINK, SYMLINK, FOLDER, SPARSE = b"1", b"2", b"5", b"S"
DEVICES = b"346"  # character device, block device, FIFO
LONG_NAME, LONG_LINK = b"L", b"K"
PAX, PAX_SOLARIS, PAX_GLOBAL = b"x", b"X", b"g"
EXTENSIONS = LONG_NAME + LONG_LINK + PAX + PAX_SOLARIS + PAX_GLOBAL

# Typeflags whose size is a hint or that of a link's target: no payload follows.
WITHOUT_PAYLOAD = HARD_LINK + SYMLINK + FOLDER + DEVICES

_OCTAL = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_RECORD = re.compile(rb"([1-9][0-9]{0,19}) ")


class Malformed(Exception):
    """What is wrong with a header, in words."""


@dataclass(frozen=True)
class Header:
    """Fields of one header block that a reader of payloads needs.

    name  prefix included, as stored
    size  stored bytes behind the header, before pax overrides it
    kind  the typeflag, one byte
    link  target of a link, as stored
    """

    name: bytes
    size: int
    kind: bytes
    link: bytes
    block: bytes


def decode(block: bytes, checked: bool = False) -> Header:
    """The header in 512 bytes. Raises Malformed for a wrong checksum (unless `checked`) or number."""
    if not checked and not checksum_right(block):
        raise Malformed("the header checksum is wrong")
    kind = block[156:157]
    name = until_nul(block[:100])
    if block[257:263] == b"ustar\0" and block[345] and kind not in EXTENSIONS:
        # GNU's old magic is "ustar  \0": there the bytes from 345 on hold times and a sparse map, no prefix;
        # star ends its header with "tar\0" and has two times behind a shorter prefix
        prefix = block[345:476] if block[508:] == b"tar\0" else block[345:500]
        name = until_nul(prefix) + b"/" + name
    if kind == b"\0" and name.endswith(b"/"):
        kind = FOLDER  # V7 had no typeflag for folders
    return Header(name, number(block[124:136], "size"), kind, until_nul(block[157:257]), block)


def number(field: bytes, what: str) -> int:
    """A count of bytes: octal digits with blanks and NULs around them, or base-256 (first bit set)."""
    if field[0] & 0x80:
        if field[0] & 0x40:
            raise Malformed(f"the {what} is negative")
        return int.from_bytes(field, "big") - (0x80 << 8 * (len(field) - 1))
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise Malformed(f"the {what} {field!r} is no octal number")
    return int(match[1], 8) if match[1] else 0


def until_nul(field: bytes) -> bytes:
    """A text field: up to the first NUL, or all of it."""
    return field.split(b"\0", 1)[0]


def pax_records(blob: bytes) -> list[tuple[bytes, bytes]]:
    """(keyword, value) of every record `LENGTH KEYWORD=VALUE\\n`, in order: sparse maps repeat keywords."""
    records, at = [], 0
    while at < len(blob) and blob[at : at + 1] != b"\0":
        match = _RECORD.match(blob, at)
        if match is None:
            raise Malformed("a pax record does not begin with its length")
        end = at + int(match[1])
        body = blob[match.end() : end]
        key, equals, value = body[:-1].partition(b"=")
        if end > len(blob) or body[-1:] != b"\n" or not equals or not key:
            raise Malformed("a pax record does not end where its length says, or is no KEYWORD=VALUE")
        records.append((key, value))
        at = end
    return records


def decimal(value: bytes, what: str) -> int:
    """A decimal number of a pax record."""
    if not value.isdigit() or len(value) > 19:
        raise Malformed(f"the pax record {what} is no number")
    return int(value)
