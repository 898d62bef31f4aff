"""From the bytes of an archive to its members, one event at a time."""

from __future__ import annotations

import re
from collections.abc import Generator
from zlib import adler32

from ....base.errors import DataError, printable
from ....layout.frames import BLOCK, pad512
from ....layout.rules import Rules
from ...blocks import Blocks
from ..sniff import HEAD, checksum_right, not_a
from . import headers, sparse
from .events import DAMAGE, FILE, FOUND, LINK, OTHER, SPARSE, Damage, Event
from .headers import Header, Malformed
from .names import split, strip_dot_slash
from .search import first_nonzero, next_header

STOP = -1
Steps = Generator[Event, None, int]  # returns where the next header is, or STOP

WINDOW = 1 << 18  # bytes read at a time
GLANCE = 1 << 12  # bytes read behind a member that is larger than the window
LONGEST_EXTENSION = 1 << 20  # bytes of one extension header: names and maps, never content

_NO_PREFIX = bytes(BLOCK - 345)
_PLAIN_FILE = b"0" + bytes(100)  # typeflag, and no link
_KEPT = (b"path", b"linkpath", b"size", b"GNU.sparse.")  # pax keywords, by their beginnings
_OCTAL = re.compile(rb"[0-7]{11}[\0 ]")
_REMEDY = (
    "get the file again; or --on-corrupt skip keeps the samples before the damage, "
    "--on-corrupt resync also those behind it"
)


class Walk:
    """Members of one archive.

    end   byte behind the last member that was read: where the end marker begins
    seen  headers that were read
    """

    def __init__(self, blocks: Blocks, rules: Rules) -> None:
        self.blocks = blocks
        self.rules = rules
        self.end = 0
        self.seen = 0
        self.warnings: list[str] = []
        self._glance = bytearray(GLANCE)
        self._view, self._lo = memoryview(b""), 0
        self._sums: dict[bytes, int] = {}  # checksum field -> adler32 of a block that it fits, lower half
        self._globals: dict[bytes, bytes] = {}
        self._after_marker = False
        self._forget()

    def _forget(self) -> None:
        """No extension header is waiting for its member."""
        self._start: int | None = None
        self._long_name: bytes | None = None
        self._long_link: bytes | None = None
        self._pax: list[tuple[bytes, bytes]] = []
        self._extended = 0  # bytes of all extension headers of one member

    # -- bytes --------------------------------------------------------------------------------------

    def _get(self, offset: int, count: int) -> bytes:
        """Bytes at `offset`, fewer at the end of the file; `count` is bounded by the caller."""
        at = offset - self._lo
        if at < 0 or at + count > len(self._view):
            if count > WINDOW:
                return bytes(self.blocks.peek(offset, count))
            self._move(offset, count)
            at = 0
        return bytes(self._view[at : at + count])

    def _move(self, offset: int, count: int) -> None:
        far = offset - self._lo - len(self._view) > WINDOW and count <= GLANCE
        self._lo = offset
        if far:  # behind a large member: its neighbour is likely as large, so read no more than a header
            self._view = memoryview(self._glance)[: max(0, min(GLANCE, self.blocks.size - offset))]
            self.blocks.read_into(self._view, offset)
        else:
            self._view = self.blocks.window(offset)

    def _drop_window(self) -> None:
        """Somebody else has moved the window of the file."""
        self._view, self._lo = memoryview(b""), 0

    # -- members ------------------------------------------------------------------------------------

    def members(self) -> Generator[Event, None, None]:
        """All events in file order.

        The loop takes the ordinary member: typeflag '0', no prefix, no link, no extension header. With at
        most 245 bytes that are not zero the sum of a block stays below 65,521, so that the lower half of its
        Adler-32 is that sum + 1, computed twenty times as fast as `sum`.
        """
        total, sums = self.blocks.size, self._sums
        view, lo, pos, simple = self._view, self._lo, 0, True
        octal = _OCTAL.fullmatch
        while pos >= 0:
            at = pos - lo
            block = view[at : at + BLOCK].tobytes()
            if len(block) < BLOCK:
                block = self._get(pos, BLOCK)
                view, lo = self._view, self._lo
            if (
                simple
                and block[345:] == _NO_PREFIX
                and sums.get(block[148:156]) == adler32(block) & 0xFFFF
                and block[156:257] == _PLAIN_FILE
                and octal(block[124:136]) is not None
            ):
                size = int(block[124:135], 8)
                after = pos + BLOCK + (size + 511 & -512)
                if after <= total:
                    self.end = after
                    yield FILE, block[:100].split(b"\0", 1)[0], pos, pos + BLOCK, size, None
                    pos = after
                    continue
            pos = yield from self._odd(pos, block)
            if pos < self._lo:
                self._drop_window()
            view, lo = self._view, self._lo
            simple = self._start is None and not self._globals

    def _odd(self, pos: int, block: bytes) -> Steps:
        """Whatever is no ordinary member."""
        if len(block) < BLOCK:
            return (yield from self._file_end(pos, block))
        if not any(block):
            return (yield from self._zeros(pos))
        try:
            header = headers.decode(block, self._checked(block))
        except Malformed as why:
            return (yield from self._bad_header(pos, block, why))
        self.seen += 1
        if header.kind in headers.EXTENSIONS:
            return (yield from self._extension(pos, header))
        return (yield from self._member(pos, header))

    def _checked(self, block: bytes) -> bool:
        """Whether the sum of the block is known to be right; learns from blocks whose sum is."""
        field, low = block[148:156], adler32(block) & 0xFFFF
        if block.count(0) < 256:
            return False
        if self._sums.get(field) == low:
            return True
        right = checksum_right(block) and low - 1 - sum(field) + 8 * 32 == int(field.strip(b" \0"), 8)
        if right and len(self._sums) < 1 << 16:
            self._sums[field] = low
        return right

    def _member(self, pos: int, header: Header) -> Steps:
        """A member with everything that extension headers say about it."""
        pax = {**self._globals, **dict(self._pax)}
        name = pax.get(b"path") or self._long_name or header.name
        link = pax.get(b"linkpath") or self._long_link or header.link
        size = header.size
        if pax.get(b"size"):
            size = headers.decimal(pax[b"size"], "size")
        start = pos if self._start is None else self._start
        payload, kind, records = pos + BLOCK, header.kind, self._pax
        self._forget()
        if kind in headers.WITHOUT_PAYLOAD:
            self.end = payload
            if kind == headers.HARD_LINK:
                yield LINK, name, start, payload, 0, link
            else:
                yield OTHER, name, start, payload, 0, _WHY.get(kind, "special")
            return payload
        runs, logical = None, size
        if kind == headers.SPARSE or any(key.startswith(b"GNU.sparse.") for key, _ in records):
            name = pax.get(b"GNU.sparse.name") or name
            try:
                pairs, logical, payload, size = self._sparse(pos, header, pax, size, records)
                if payload + size <= self.blocks.size:
                    runs = sparse.runs_of(pairs, logical, size, payload)
            except Malformed as why:
                error = self._error(f"damaged sparse member: {why}", pos, name)
                yield DAMAGE, name, pos, 0, 0, Damage(error, known=True)
                return (yield from self._search(pos, pos + BLOCK + pad512(size)))
        if payload + size > self.blocks.size:
            return (yield from self._cut(pos, payload, size, name))
        self.end = min(payload + pad512(size), self.blocks.size)
        if runs is not None:
            yield SPARSE, name, start, payload, logical, runs
        elif kind in headers.REGULAR:
            yield FILE, name, start, payload, size, None
        else:
            yield OTHER, name, start, payload, size, "directories" if kind == b"D" else "special"
        if payload + pad512(size) > self.blocks.size:
            error = self._error(
                "truncated archive: it ends inside the zeros that pad a member to 512 bytes",
                self.blocks.size, name,
            )  # fmt: skip
            yield DAMAGE, b"", self.blocks.size, 0, 0, Damage(error)
            return STOP
        return payload + pad512(size)

    def _sparse(
        self, pos: int, header: Header, pax: dict[bytes, bytes], size: int, records: list[tuple[bytes, bytes]]
    ) -> tuple[sparse.Pairs, int, int, int]:
        """(map, logical size, where the stored bytes begin, how many they are)."""
        payload = pos + BLOCK
        if header.kind == headers.SPARSE:
            pairs, logical, payload = sparse.old_gnu_map(header.block, pos, self._block)
            return pairs, logical, payload, size
        version = pax.get(b"GNU.sparse.major", b"0"), pax.get(b"GNU.sparse.minor", b"0")
        if version == (b"1", b"0"):
            pairs, used = sparse.pax_map_1_0(payload, size, self._block)
            logical = headers.decimal(pax.get(b"GNU.sparse.realsize", b""), "GNU.sparse.realsize")
            return pairs, logical, payload + used, size - used
        if version not in ((b"0", b"0"), (b"0", b"1")):
            raise Malformed("its sparse format is unknown")
        logical = headers.decimal(pax.get(b"GNU.sparse.size", b""), "GNU.sparse.size")
        return sparse.pax_map(records), logical, payload, size

    def _block(self, offset: int) -> bytes:
        block = self._get(offset, BLOCK)
        if len(block) < BLOCK:
            raise Malformed("the file ends inside the map of a sparse member (truncated)")
        return block

    def _extension(self, pos: int, header: Header) -> Steps:
        """A header that says something about the next member, or about all that follow."""
        payload = pos + BLOCK
        after = payload + pad512(header.size)
        self._extended += header.size
        if self._extended > LONGEST_EXTENSION:
            error = self._error(
                f"damaged archive: an extension header of {self._extended:,} bytes", pos, header.name,
                f"names and maps need far less; more than {LONGEST_EXTENSION:,} bytes are not read",
            )  # fmt: skip
            yield DAMAGE, b"", pos, 0, 0, Damage(error)
            return (yield from self._search(pos, after))
        if after > self.blocks.size:
            return (yield from self._cut(pos, payload, header.size, header.name, known=False))
        blob = self._get(payload, header.size)
        try:
            self._keep(header.kind, blob)
        except Malformed as why:
            error = self._error(f"damaged extension header: {why}", pos, header.name)
            yield DAMAGE, b"", pos, 0, 0, Damage(error)
            return (yield from self._search(pos, after))
        if self._start is None and header.kind != headers.PAX_GLOBAL:
            self._start = pos
        return after

    def _keep(self, kind: bytes, blob: bytes) -> None:
        if kind in (headers.LONG_NAME, headers.LONG_LINK):
            text = headers.until_nul(blob)
            if not text:
                raise Malformed("a long name of no bytes")
            if kind == headers.LONG_NAME:
                self._long_name = text
            else:
                self._long_link = text
            return
        # others, like times, say nothing about content, and kept for all members they could fill the memory
        records = [(key, value) for key, value in headers.pax_records(blob) if key.startswith(_KEPT)]
        for key, value in records:
            if key in (b"path", b"linkpath", b"GNU.sparse.name") and b"\0" in value:
                raise Malformed("a name with a NUL byte")
            if key == b"size" and value:
                headers.decimal(value, "size")
        if kind == headers.PAX_GLOBAL:
            self._globals.update(records)
            self._globals = {key: value for key, value in self._globals.items() if value}
        else:
            self._pax.extend(records)

    # -- ends ---------------------------------------------------------------------------------------

    def _file_end(self, pos: int, rest: bytes) -> Steps:
        """Less than a block is left, and there was no end marker."""
        if not any(rest):
            if self._start is not None:
                name = self._lent_name()
                error = self._error("truncated archive: it ends behind an extension header", pos)
                yield DAMAGE, name, pos, 0, 0, Damage(error, known=bool(name))
                return STOP
            self._no_marker(pos, "no end-of-archive marker")
            return STOP
        if pos and self._after_marker and self.rules.ignore_trailing:
            self._trailing(pos)
            return STOP
        if pos == 0:
            why = f"{len(rest)} bytes are less than one header"
            error = self._error(not_a("a tar archive", rest), pos, why=why)
            yield DAMAGE, b"", pos, 0, 0, Damage(error)
            return STOP
        whole = b"\0" in rest[:100] or len(rest) >= 100
        name = self._lent_name() or (headers.until_nul(rest[:100]) if whole else b"")
        error = self._error(
            "truncated archive: it ends inside a header", pos, name or None,
            f"{len(rest)} of 512 bytes are there",
        )  # fmt: skip
        yield DAMAGE, name, pos, 0, 0, Damage(error, known=self._believe(name, rest[156:157]))
        return STOP

    def _zeros(self, pos: int) -> Steps:
        """A zero block: half an end-of-archive marker."""
        self.end = pos
        if self._start is not None:
            name = self._lent_name()
            error = self._error("damaged archive: zeros where an extension header wants its member", pos)
            yield DAMAGE, name, pos, 0, 0, Damage(error, known=bool(name))
            return (yield from self._search(pos, pos))
        behind = first_nonzero(self.blocks, pos)
        self._drop_window()
        if behind < 0:
            if not self.seen:
                self._warn("an archive of zero blocks only: 0 samples", pos)
            elif self.blocks.size - pos < 2 * BLOCK:
                self._no_marker(pos, "one zero block where the end-of-archive marker has two")
            return STOP
        zeros = (behind - pos) // BLOCK
        behind = pos + zeros * BLOCK
        self._after_marker = True
        if self.rules.ignore_zeros:
            return behind
        if self.rules.ignore_trailing:
            self._trailing(behind)
            return STOP
        what = "a lone zero block" if zeros == 1 else f"the end-of-archive marker ({zeros:,} zero blocks)"
        error = self._error(
            f"non-zero bytes after {what}", behind,
            why="concatenated archives, trailing junk, or an archive that was overwritten; "
            "most readers stop there and say nothing",
            remedy="--ignore-zeros reads on as `tar -i` does, --ignore-trailing ignores what follows",
        )  # fmt: skip
        yield DAMAGE, b"", behind, 0, 0, Damage(error, after_marker=True)
        return (yield from self._search(behind, behind))

    def _no_marker(self, pos: int, what: str) -> None:
        self._warn(f"{what} (byte {pos:,}); the archive may have been cut there", pos)

    def _warn(self, what: str, pos: int, lenient: bool = False) -> None:
        """A fact that --strict makes an error, unless `lenient`: the user asked for it by another option."""
        if self.rules.strict and not lenient:
            raise self._error(what, pos, why="--strict", remedy="get the file again, or omit --strict")
        self.warnings.append(f"{printable(self.blocks.name)}: {what}")

    def _trailing(self, pos: int) -> None:
        count = self.blocks.size - pos
        self._warn(f"{count:,} bytes after the end-of-archive marker ignored", pos, lenient=True)

    # -- damage -------------------------------------------------------------------------------------

    def _error(
        self, what: str, pos: int, name: bytes | None = None, why: str | None = None, remedy: str = _REMEDY
    ) -> DataError:
        return DataError(what, file=self.blocks.name, offset=pos, member=name, why=why, remedy=remedy)

    def _cut(self, pos: int, payload: int, size: int, name: bytes, known: bool = True) -> Steps:
        there = max(0, self.blocks.size - payload)
        error = self._error(
            f"truncated archive: it ends after {there:,} of a member's {size:,} bytes", pos, name,
            f"the stored size exceeds the file of {self.blocks.size:,} bytes",
        )  # fmt: skip
        yield DAMAGE, name, pos, 0, 0, Damage(error, known=known)
        return STOP

    def _bad_header(self, pos: int, block: bytes, why: Malformed) -> Steps:
        """No header where one must be.

        Its size, when it leads to a header or an end, bounds its payload: a match inside would be a member of
        an archive in the archive.
        """
        if self._after_marker and self.rules.ignore_trailing:
            self._trailing(pos)
            return STOP
        name = self._lent_name() or headers.until_nul(block[:100])
        if pos == 0 and block[257:262] != b"ustar":
            error = self._error(not_a("a tar archive", self._get(0, HEAD)), pos, why=str(why))
            name = b""
        else:
            error = self._error(f"damaged header: {why}", pos, name)
        yield DAMAGE, name, pos, 0, 0, Damage(error, known=self._believe(name, block[156:157]))
        try:
            after = pos + BLOCK + pad512(headers.number(block[124:136], "size"))
        except Malformed:
            after = 0
        if not (pos + BLOCK <= after <= self.blocks.size and self._may_begin(after)):
            after = pos + BLOCK
        return (yield from self._search(pos, after))

    def _lent_name(self) -> bytes:
        """The name that extension headers give the member that must follow, or nothing."""
        return dict(self._pax).get(b"path") or self._long_name or b""

    def _believe(self, name: bytes, kind: bytes) -> bool:
        """Whether this names a damaged member: lent by an intact header, or a sample's by its looks."""
        if not name or name == self._lent_name():
            return bool(name)
        if kind not in (b"", b"0", b"\0") or b"PaxHeader" in name or self._start is not None:
            return False
        printing = all(byte >= 32 and byte != 127 for byte in name)
        return printing and split(strip_dot_slash(name)) is not None

    def _may_begin(self, pos: int) -> bool:
        block = self._get(pos, BLOCK)
        return not any(block) or (len(block) == BLOCK and checksum_right(block))

    def _search(self, damaged: int, start: int) -> Steps:
        """The next block from `start` on that is a header with a right checksum."""
        self._forget()
        found = next_header(self.blocks, start)
        self._drop_window()
        if found < 0:
            return STOP
        yield FOUND, b"", damaged, found, 0, None
        return found


_WHY = {headers.SYMLINK: "symlinks", headers.FOLDER: "directories"}
