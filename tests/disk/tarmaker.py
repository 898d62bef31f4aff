"""Odd archives from small functions, so that a test shows its whole input."""

from __future__ import annotations

END = bytes(1024)


def head(name=b"a.jpg", size=0, kind=b"0", magic=b"ustar\x0000", prefix=b"", link=b"", **fields):
    """One header block. `fields`: bytes put at an offset, e.g. at_386=b'...', or size_field=b'...'."""
    size_field = fields.pop("size_field", b"%011o\0" % size)
    block = bytearray(512)
    for at, text in (
        (0, name), (100, b"0000644\0"), (108, b"0000000\0"), (116, b"0000000\0"), (124, size_field),
        (136, b"00000000000\0"), (156, kind), (157, link), (257, magic), (345, prefix),
        *((int(key.removeprefix("at_")), text) for key, text in fields.items()),
    ):  # fmt: skip
        block[at : at + len(text)] = text
    return sealed(block)


def sealed(block):
    """The block with its checksum."""
    block = bytearray(block)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(payload):
    return payload + bytes(-len(payload) % 512)


def member(name, payload=b"", **options):
    return head(name, len(payload), **options) + padded(payload)


def long_name(name, kind=b"L"):
    return member(b"././@LongLink", name + b"\0", kind=kind, magic=b"ustar  \0")


def records(*pairs):
    """pax records from (key, value) pairs."""
    out = b""
    for key, value in pairs:
        body = b" " + key + b"=" + value + b"\n"
        length = len(body) + 1
        while len(b"%d" % length) + len(body) != length:
            length += 1
        out += b"%d" % length + body
    return out


def pax(*pairs, kind=b"x"):
    return member(b"PaxHeaders/x", records(*pairs), kind=kind)


def damaged(data, at, value=None):
    """One byte changed."""
    data = bytearray(data)
    data[at] = data[at] ^ 0x15 if value is None else value
    return bytes(data)
