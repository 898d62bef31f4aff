"""What stands in front of a member's own header: for `inspect`, which says whom it troubles."""

from __future__ import annotations

from ....layout.frames import BLOCK, pad512
from ...files import read_at
from .headers import LONG_NAME, PAX, PAX_SOLARIS, Malformed, decode, pax_records


def name_carriers(fd: int, offset: int, head: int) -> set[str]:
    """Where the member's name stands: 'gnu_long_name', 'pax_name', both or none.

    offset  of the frame; head  bytes from there to the payload, the own header included
    """
    data = read_at(fd, head - BLOCK, offset)
    found, at = set(), 0
    while at + BLOCK <= len(data):
        try:
            header = decode(data[at : at + BLOCK])
            blob = data[at + BLOCK : at + BLOCK + header.size]
            if header.kind in LONG_NAME:
                found.add("gnu_long_name")
            elif header.kind in PAX + PAX_SOLARIS and any(key == b"path" for key, _ in pax_records(blob)):
                found.add("pax_name")
        except Malformed:
            break  # the scan has read it; here it is not worth more
        at += BLOCK + pad512(header.size)
    return found


def first_name(fd: int, offset: int) -> bytes:
    """The name in the header block at `offset`, b'' when there is none."""
    try:
        return decode(read_at(fd, BLOCK, offset).ljust(BLOCK, b"\0")).name
    except Malformed:
        return b""
