"""Strict decoders of compressed files: gzip, zlib, bz2, xz and zstd, from the first byte to the last one.

A file is a row of *members* (gzip members, bz2 and xz streams, zstd frames; zlib has one), decoded piece by piece in
bounded memory. Every checksum is compared, the end must be there, and nothing but members and the padding that the
format allows may stand in the file. What counts as damage does not depend on which library decodes.

Formats: RFC 1950 (zlib), 1951 (deflate), 1952 (gzip), 8878 (zstd), the .xz file format 1.2.
"""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Protocol

from ..base.errors import DataError, HostError
from .files import named, read_at

# Bytes given to a decoder at a time; a member begins with few, so that a row of small members costs no copies.
INPUT, FIRST = 1 << 18, 1 << 12
# Most bytes that one call of `read` returns.
OUTPUT = 1 << 20
# A header field (name, comment) longer than this is none.
HEADER = 1 << 20
# What xz may take for its dictionary: `xz -9` needs 65 MiB. zstd: its own default, a window of 128 MiB.
XZ_MEMORY = 256 << 20

_MAGIC = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0", "zstd": b"\x28\xb5\x2f\xfd", "zlib": b""}
_SKIPPABLE = b"\x2a\x4d\x18"  # behind a first byte 50..5f
_HCRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
_REMEDY = "fetch the file again, or keep what is intact with --on-corrupt skip"


class TooLarge(DataError):
    """The content of a compressed file exceeds its limit: no damage, and nothing that could be skipped."""


class _Member(Protocol):
    """What the decompressors of bz2, lzma and zstd have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """A raw deflate stream, with the checksum and the number of the bytes that came out."""

    def __init__(self, library: ModuleType, check: str) -> None:
        self._raw = library.decompressobj(wbits=-15)
        self._update = getattr(library, check)
        self.check, self.size = int(self._update(b"")), 0
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return bool(self._raw.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._raw.unused_data)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        tail = self._raw.unconsumed_tail
        out: bytes = self._raw.decompress(tail + data if tail else data, max_length)
        # With all input taken, output may still wait inside.
        self.needs_input = not self._raw.unconsumed_tail and len(out) < max_length
        self.check = self._update(out, self.check)
        self.size += len(out)
        return out


class Decoder:
    """One pass over one compressed file.

    kind       'gzip', 'zlib', 'bz2', 'xz' or 'zstd'
    limit      TooLarge when more bytes than this come out
    fast       take a faster library for deflate where there is one; where it finds damage, zlib has the last word
    fine_from  byte of the file from which on input is given byte by byte, to learn exactly how far it decodes

    offset     bytes of the file that have been taken
    produced   bytes that `read` has returned
    trusted    of these, the ones in members whose end and checksum were right
    truncated  the damage is that the file ends too early: what came out before is right
    """

    def __init__(
        self, path: bytes, name: bytes, kind: str, *, limit: int | None = None, fast: bool = True,
        fine_from: int | None = None,
    ) -> None:  # fmt: skip
        self.path, self.name, self.kind, self.limit, self.fine_from = path, name, kind, limit, fine_from
        self.produced = self.trusted = 0
        self.truncated = False
        self._deflate = _fast_deflate() if fast and kind in ("gzip", "zlib") else zlib
        self._slow: Decoder | None = None
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._data, self._pos, self._base = b"", 0, 0  # what was read from the file, from byte _base on
        self._fed = 0  # where the input that a member was given last begins
        self._member: _Member | None = None
        self._members = 0
        self._feed = FIRST
        self._late: DataError | None = None  # damage behind bytes that are to be returned first

    @property
    def offset(self) -> int:
        return self._slow.offset if self._slow else self._base + self._pos

    @property
    def stat(self) -> os.stat_result:
        """Of the open file."""
        return os.fstat(self._fd)

    def read(self) -> bytes:
        """The next 1 to OUTPUT bytes, or b'' at the right end of the file. Raises DataError for damage."""
        out = self._read()
        self.produced += len(out)
        if self.limit is not None and self.produced > self.limit:
            raise TooLarge(
                f"a compressed source decodes to more than {self.limit:,} bytes", file=self.name,
                why=f"{self.stat.st_size:,} bytes of {self.kind} data: a decompression bomb, or data that shrinks well",
                remedy="if that is right, say how much one source may come to with --spool-limit SIZE",
            )  # fmt: skip
        return out

    def __iter__(self) -> Iterator[bytes]:
        while out := self.read():
            yield out

    def _read(self) -> bytes:
        if self._slow is None:
            try:
                return self._next()
            except DataError:
                if self._deflate is zlib:
                    raise
        return self._reference()

    def _reference(self) -> bytes:
        """Go on with zlib, from where the other library gave up."""
        if self._slow is None:
            self._slow = Decoder(self.path, self.name, self.kind, fast=False)
        slow, out = self._slow, b""
        while not out:
            try:
                out = slow.read()
            finally:
                self.trusted, self.truncated = slow.trusted, slow.truncated
            if not out:
                break
            out = out[max(0, self.produced - (slow.produced - len(out))) :]
        return out

    # -- members ----------------------------------------------------------------------------------------------

    def _next(self) -> bytes:
        while True:
            if self._late is not None:
                raise self._late
            if self._member is None:
                # Whole members came out: all that was returned so far can be relied on.
                self.trusted = self.produced
                if not self._open():
                    return b""
            member = self._member
            assert member is not None
            data = b""
            if member.needs_input:
                data = self._take()
                if not data:
                    raise self._cut("inside the compressed data")
            out = self._call(member, data)
            if member.eof:
                self._pos -= len(member.unused_data)
                self._member = None
                self._members += 1
                if isinstance(member, _Inflate):
                    self._trailer(member)
            if out:
                return out

    def _call(self, member: _Member, data: bytes) -> bytes:
        try:
            return member.decompress(data, OUTPUT)
        except MemoryError:
            raise
        except Exception as error:  # each library has its own class: zlib.error, OSError, LZMAError, ZstdError
            why = str(error) or type(error).__name__
            if (self.kind == "xz" and "emory" in why) or "too much memory" in why:
                raise HostError(
                    "a compressed source needs too much memory to be decoded", file=self.name, why=why,
                    remedy=f"decompress it with {self.kind} first and give the result",
                ) from None  # fmt: skip
            raise self._corrupt(why, self._fed) from None

    def _open(self) -> bool:
        """Begin the next member; False at the end of the file."""
        while self.kind == "zstd" and self._skip():
            self._members += 1
        first = not self._members
        zeros = 0 if first else self._padding()
        if not self._need(1):
            if first:
                raise self._cut("before it begins")
            return False
        if not first and (self.kind == "zlib" or (self.kind == "gzip" and zeros)):
            raise self._trailing()
        self._feed = FIRST
        magic = _MAGIC[self.kind]
        self._need(len(magic))
        head = self._data[self._pos : self._pos + len(magic)]
        if head != magic:
            if magic.startswith(head):
                raise self._cut("inside a header")
            raise self._corrupt("no header where one belongs", self.offset) if first else self._trailing()
        self._member = self._begin()
        return True

    def _begin(self) -> _Member:
        if self.kind == "gzip":
            self._gzip_header()
            return _Inflate(self._deflate, "crc32")
        if self.kind == "zlib":
            head = self._bytes(2)
            if head[0] & 15 != 8 or head[0] >> 4 > 7 or (head[0] << 8 | head[1]) % 31:
                raise self._corrupt("the header has a wrong check", self.offset - 2)
            if head[1] & 32:
                raise self._corrupt("it needs a preset dictionary, which nobody has", self.offset - 2)
            return _Inflate(self._deflate, "adler32")
        if self.kind == "bz2":
            import bz2

            return bz2.BZ2Decompressor()
        if self.kind == "xz":
            import lzma

            return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        made: _Member = zstd().ZstdDecompressor()
        return made

    def _gzip_header(self) -> None:
        start = self.offset
        head = self._bytes(10)
        flags = head[3]
        if head[2] != 8 or flags & _RESERVED:
            raise self._corrupt("the header of a gzip member has an unknown method or flag", start)
        if flags & _EXTRA:
            size = self._bytes(2)
            head += size + self._bytes(int.from_bytes(size, "little"))
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                head += self._text(start)
        if flags & _HCRC and int.from_bytes(self._bytes(2), "little") != zlib.crc32(head) & 0xFFFF:
            raise self._corrupt("the CRC of a gzip header is wrong", start)

    def _trailer(self, member: _Inflate) -> None:
        """Compare the checksum, and the size in gzip's trailer. What is wrong is raised by the next read: the last
        bytes of the member come first."""
        try:
            self._compare(member)
        except DataError as error:
            self._late = error

    def _compare(self, member: _Inflate) -> None:
        start = self.offset
        if self.kind == "zlib":
            stored = int.from_bytes(self._bytes(4), "big")
            words = "Adler-32 checksum"
        else:
            stored = int.from_bytes(self._bytes(4), "little")
            words = "checksum (CRC-32)"
        if stored != member.check:
            why = f"the trailer says {stored:08x}, the data has {member.check:08x}"
            raise self._corrupt(f"its {words} is wrong: {why}", start)
        if self.kind == "gzip" and int.from_bytes(self._bytes(4), "little") != member.size & 0xFFFFFFFF:
            raise self._corrupt("the size in the trailer is wrong, though the checksum (CRC-32) is right", start + 4)

    def _padding(self) -> int:
        """Zeros behind a member, where the format allows them."""
        if self.kind not in ("gzip", "xz"):
            return 0
        start = self.offset
        while self._need(1):
            rest = self._data[self._pos : self._pos + INPUT]
            zeros = len(rest) - len(rest.lstrip(b"\0"))
            self._pos += zeros
            if zeros < len(rest):
                break
        if self.kind == "xz" and (self.offset - start) % 4:
            raise self._corrupt("the padding behind a stream is no multiple of four bytes", start)
        return self.offset - start

    def _skip(self) -> bool:
        """Pass a skippable frame of zstd, if one stands here."""
        if not self._need(4):
            return False
        magic = self._data[self._pos : self._pos + 4]
        if magic[1:] != _SKIPPABLE or not 0x50 <= magic[0] <= 0x5F:
            return False
        self._pos += 4
        left = int.from_bytes(self._bytes(4), "little")
        while left:
            if not self._need(1):
                raise self._cut("inside a skippable frame")
            step = min(left, len(self._data) - self._pos)
            self._pos += step
            left -= step
        return True

    # -- bytes of the file --------------------------------------------------------------------------------------

    def _need(self, count: int) -> bool:
        """Whether `count` bytes are left; they are in the buffer then."""
        while len(self._data) - self._pos < count:
            try:
                more = os.read(self._fd, INPUT)
            except OSError as error:
                raise named(error, self._fd) from None
            if not more:
                return False
            self._base += self._pos
            self._data, self._pos = self._data[self._pos :] + more, 0
        return True

    def _bytes(self, count: int) -> bytes:
        if not self._need(count):
            raise self._cut("inside a header or trailer")
        self._pos += count
        return self._data[self._pos - count : self._pos]

    def _text(self, start: int) -> bytes:
        text = bytearray()
        while len(text) < HEADER:
            text += self._bytes(1)
            if not text[-1]:
                return bytes(text)
        raise self._corrupt("a name in a gzip header does not end", start)

    def _take(self) -> bytes:
        """Input for the decoder; b'' at the end of the file."""
        if not self._need(1):
            return b""
        count = self._feed
        self._feed = min(INPUT, 2 * count)
        self._fed = self.offset
        if self.fine_from is not None:
            count = 1 if self._fed >= self.fine_from else min(count, self.fine_from - self._fed)
        data = self._data[self._pos : self._pos + count]
        self._pos += len(data)
        return data

    # -- damage -------------------------------------------------------------------------------------------------

    def _cut(self, where: str) -> DataError:
        self.truncated = True
        size = self._base + len(self._data)
        return DataError(
            f"the {self.kind} data is truncated", file=self.name, offset=size,
            why=f"the file ends {where}", remedy=_REMEDY,
        )  # fmt: skip

    def _corrupt(self, why: str, offset: int) -> DataError:
        return DataError(f"the {self.kind} data is corrupt", file=self.name, offset=offset, why=why, remedy=_REMEDY)

    def _trailing(self) -> DataError:
        why = "bytes follow that are no " + ("zeros and no " if self.kind in ("gzip", "xz") else "")
        return self._corrupt(why + f"further {self.kind} data", self.offset)

    def close(self) -> None:
        """Give descriptors back."""
        if self._slow is not None:
            self._slow.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Decoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def zstd() -> ModuleType:
    """The module of the standard library (3.14), or its twin for older ones."""
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _fast_deflate() -> ModuleType:
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


def head(path: bytes, kind: str, count: int) -> tuple[bytes, DataError | HostError | None]:
    """Up to `count` first bytes of the content, and what kept more of them from being decoded."""
    out, error = _head(path, kind, count, None)
    if error is not None and len(out) < count:
        # Byte by byte it shows to the last byte what can be decoded.
        out, error = _head(path, kind, count, 0)
    return out, error


def _head(path: bytes, kind: str, count: int, fine_from: int | None) -> tuple[bytes, DataError | HostError | None]:
    out = bytearray()
    with Decoder(path, path, kind, fast=False, fine_from=fine_from) as decoder:
        try:
            while len(out) < count and (more := decoder.read()):
                out += more
        except (DataError, HostError) as error:
            return bytes(out[:count]), error
    return bytes(out[:count]), None


@dataclass(frozen=True)
class Damage:
    """How far a damaged file can be decoded.

    error    what is wrong, as `Decoder.read` raised it
    trusted  bytes of whole members
    decoded  bytes that come out before the damage shows; when the file was not cut short, the last of them may
             be wrong already
    near     `fine_from` of a decoder that is to give all of them
    """

    error: DataError
    trusted: int
    decoded: int
    truncated: bool
    near: int

    def keep(self, own_checksums: bool) -> int:
        """Bytes of content that are to be read. own_checksums: wrong content will be noticed by its reader."""
        return self.decoded if own_checksums or self.truncated else self.trusted


def salvage(path: bytes, name: bytes, kind: str, limit: int | None = None) -> Damage | None:
    """Find out exactly how far a file decodes; None: to its end. Decodes twice, by the same library everywhere."""
    with Decoder(path, name, kind, limit=limit, fast=False) as coarse:
        try:
            for _ in coarse:
                pass
            return None
        except TooLarge:
            raise
        except DataError:
            near = coarse._fed
    with Decoder(path, name, kind, limit=limit, fast=False, fine_from=near) as fine:
        try:
            for _ in fine:
                pass
        except DataError as error:
            return Damage(error, fine.trusted, fine.produced, fine.truncated, near)
    return None


def known_size(path: bytes, kind: str, size: int) -> int:
    """Bytes that the content has at least, as far as the file says so without being decoded; 0: it does not.

    gzip: the size modulo 2^32 in the last trailer. zstd: the size in the header of the first frame.
    """
    with open(path, "rb", buffering=0) as file:
        if kind == "gzip" and size >= 18:
            stored = int.from_bytes(read_at(file.fileno(), 4, size - 4), "little")
            return stored if stored <= 1032 * size else 0  # deflate cannot do better
        if kind == "zstd":
            head = read_at(file.fileno(), 18, 0)
            try:
                info = zstd().get_frame_info(head)
            except Exception:  # a skippable frame, or no header: the decoder will say
                return 0
            return int(info.decompressed_size or 0)
    return 0
