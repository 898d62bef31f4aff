"""TFRecord: a file is a row of frames, nothing before, between or behind them.

    u64 length | u32 masked CRC32C of the length's 8 bytes | payload | u32 masked CRC32C of the payload
"""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError
from ...layout.index import I64
from ...layout.rules import Rules
from .. import lanes
from ..blocks import Blocks
from ..crc import crc32c, mask, masked, masked_of_lengths
from ..crcruns import wrong_payloads
from ..scanned import Findings, Scanned
from .example import feature_text
from .sniff import what_is

HEAD, FOOT, FRAME = lanes.HEAD, lanes.FOOT, lanes.FRAME

WINDOW = 8 << 20
FIRST = 64  # records whose lengths are always checked: they tell what is no TFRecord file, or one without masks
# A longer record is nonsense with a right checksum, not one that a cut file ends in.
IMPLAUSIBLE = 1 << 40

_LENGTH = struct.Struct("<Q")


def scan(
    path: bytes, name: bytes, rules: Rules, *, check_payload: bool = True, check_length: bool = True,
    window: int | None = None, mapped: bool = False,
) -> Scanned:  # fmt: skip
    """All records of a file, by a walk over the lengths.

    Checksums of lengths and payloads are checked unless rules.verify is off (then a length is only held against the
    file's size). A copy that checks them itself turns that off: `check_payload`, and `check_length` but for the first
    records. Lengths that are not checked must lead exactly to the end of the file; else all are, to say what is wrong.
    The file is read by `window` bytes at a time (WINDOW), through a mapping if `mapped` (see Blocks).

    Raises DataError naming file, byte offset and reason; what rules.on_corrupt makes of damage is in
    docs/formats/tfrecord.md.
    """
    window = window or WINDOW
    with Blocks(path, name, window, mapped=mapped) as file:
        if not check_length and rules.verify and not check_payload:
            with contextlib.suppress(DataError):
                found = _Walk(file, rules, False, window, check_length=False).run()
                if not found.findings.dropped and not found.findings.warnings:
                    return found
        return _Walk(file, rules, check_payload, window).run()


class _Walk:
    """One pass over one file."""

    def __init__(
        self, file: Blocks, rules: Rules, check_payload: bool, window: int, *, check_length: bool = True
    ) -> None:
        self.check_length = check_length
        self.file = file
        self.window = window
        self.rules = rules
        self.check_payload = check_payload and rules.verify
        self.offsets: list[I64] = []
        self.sizes: list[I64] = []
        self.labels: list[bytes | None] | None = None if rules.label is None else []
        self.findings = Findings()

    def run(self) -> Scanned:
        at, size = 0, self.file.size
        if not size:
            self.findings.warnings.append(f"{_show(self.file)} has no records (0 bytes)")
        while at < size:
            at = self._window(at)
        offset = np.concatenate([np.zeros(0, np.int64), *self.offsets])
        payload = np.concatenate([np.zeros(0, np.int64), *self.sizes])
        return Scanned(
            samples=len(offset), first=None, offset=offset, head=np.full(len(offset), HEAD, np.int64),
            size=payload, labels=self.labels, end=size, findings=self.findings,
        )  # fmt: skip

    def _window(self, at: int) -> int:
        """Walk the frames that lie whole in one window from `at` on; returns where to go on."""
        view = self.file.window(at)
        places, lengths, stop = lanes.walk(view)
        most = len(places) if self.check_length else 0 if at else FIRST
        bad = self._first_bad_length(view, places[:most], lengths[:most])
        if bad is not None:
            places, lengths = places[:bad], lengths[:bad]
        self._take(view, at, places, lengths)
        if bad is not None:
            return self._damaged_length(at + int(_place_of(places, lengths)))
        if len(places):
            return at + stop
        return self._large_or_cut(at)

    def _first_bad_length(
        self, view: memoryview, places: I64, lengths: npt.NDArray[np.uint64]
    ) -> int | None:
        if not self.rules.verify or not len(places):
            return None
        raw = np.frombuffer(view, np.uint8)
        # the four bytes behind every length, uint32[k]
        stored = lanes.words(raw, "<u4")[places + 8]
        wrong = np.flatnonzero(stored != masked_of_lengths(lengths))
        return int(wrong[0]) if len(wrong) else None

    def _take(self, view: memoryview, at: int, places: I64, lengths: npt.NDArray[np.uint64]) -> None:
        """Keep whole frames of the window, after their payload's checksum where asked for."""
        sizes = lengths.astype(np.int64)
        keep = np.ones(len(places), bool)
        if self.check_payload:
            for k in wrong_payloads(np.frombuffer(view, np.uint8), places, sizes).tolist():
                self._damaged_payload(at + int(places[k]), k)
                keep[k] = False
        self.offsets.append(places[keep] + at)
        self.sizes.append(sizes[keep])
        if self.labels is not None and self.rules.label is not None:
            for place, size in zip(places[keep].tolist(), sizes[keep].tolist(), strict=True):
                self._label(view[place + HEAD : place + HEAD + size], at + place)

    def _large_or_cut(self, at: int) -> int:
        """A frame that the window does not hold whole: larger than it, or cut by the end of the file."""
        left = self.file.size - at
        head = bytes(self.file.peek(at, HEAD))
        if len(head) < HEAD:
            return self._cut(at, f"{left} bytes are left, a frame has at least {FRAME}")
        length = _LENGTH.unpack_from(head)[0]
        if self.rules.verify and masked(head[:8]) != int.from_bytes(head[8:], "little"):
            return self._damaged_length(at)
        if length > left - FRAME:
            if length > IMPLAUSIBLE:
                why = f"the length {length:,} exceeds the file ({self.file.size:,} bytes)"
                return self._lost_from(at, "the length of a record exceeds the file", why)
            return self._cut(at, f"the record needs {length + FRAME:,} bytes, the file ends after {left:,}")
        keep = not self.check_payload or self._large_payload_right(at, length)
        if keep:
            self.offsets.append(np.array([at], np.int64))
            self.sizes.append(np.array([length], np.int64))
            if self.labels is not None:
                self._label(self.file.peek(at + HEAD, length), at)
        else:
            self._damaged_payload(at)
        return int(at + FRAME + length)

    def _large_payload_right(self, at: int, length: int) -> bool:
        crc, place = 0, at + HEAD
        while place < at + HEAD + length:
            piece = self.file.window(place)[: at + HEAD + length - place]
            crc = crc32c(piece, crc)
            place += len(piece)
        return mask(crc) == int.from_bytes(self.file.peek(place, FOOT), "little")

    # -- damage -----------------------------------------------------------------------------------------------

    def _damaged_payload(self, at: int, before: int = 0) -> None:
        """The frame is where it should be and its payload is wrong: only this record is lost.

        before  frames of the same window in front of it
        """
        if self.rules.on_corrupt == "error":
            what = "the payload checksum (CRC32C) of a record is wrong"
            raise self._error(what, at, "the payload is damaged", before)
        self._drop(1)

    def _damaged_length(self, at: int) -> int:
        named = what_is(bytes(self.file.peek(0, 512))) if at == 0 else None
        why = named and f"the file is {named}"
        if why is None and self._unmasked(at):
            why = "the checksum is stored without the mask; --no-verify reads such files and writes right checksums"
        what = "the length checksum (CRC32C) of a record is wrong"
        return self._lost_from(at, what if at else f"not a TFRecord file, or damaged at its start: {what}", why)

    def _unmasked(self, at: int) -> bool:
        head = bytes(self.file.peek(at, HEAD))
        return crc32c(head[:8]) == int.from_bytes(head[8:], "little")

    def _cut(self, at: int, why: str) -> int:
        if self.rules.on_corrupt == "error":
            raise self._error("the file is truncated inside a record", at, why)
        self._drop(1)
        return self.file.size

    def _lost_from(self, at: int, what: str, why: str | None) -> int:
        """The length cannot be trusted, so nobody knows where the next record begins."""
        if self.rules.on_corrupt == "error":
            raise self._error(what, at, why)
        found = self._search(at + 1) if self.rules.on_corrupt == "resync" else self.file.size
        self.findings.dropped["files_damaged"] = 1
        self.findings.dropped["bytes"] += found - at
        if found < self.file.size:
            self.findings.warnings.append(
                f"{_show(self.file)}: {found - at:,} bytes from offset {at} on cannot be read; "
                f"the record at {found} was found by search"
            )
        return found

    def _search(self, at: int) -> int:
        """The next place where a whole frame with both checksums right begins, or the end of the file."""
        step = max(1, self.window // 4)
        while at + FRAME <= self.file.size:
            view = self.file.peek(at, min(step + HEAD - 1, self.file.size - at))
            raw = np.frombuffer(view, np.uint8)
            count = len(raw) - HEAD + 1
            if count <= 0:
                break
            lengths = np.lib.stride_tricks.sliding_window_view(raw, 8)[:count].copy().view("<u8")[:, 0]
            near = np.flatnonzero(lengths <= self.file.size)
            sums = np.lib.stride_tricks.sliding_window_view(raw[8:], 4)[:count].copy().view("<u4")[:, 0]
            for hit in near[masked_of_lengths(lengths[near]) == sums[near]].tolist():
                length = int(lengths[hit])
                if at + hit + FRAME + length <= self.file.size and self._large_payload_right(at + hit, length):
                    return int(at + hit)
                self.file.peek(at, 1)
            at += count
        return self.file.size

    def _drop(self, records: int) -> None:
        self.findings.dropped["records"] += records

    def _error(self, what: str, at: int, why: str | None, before: int = 0) -> DataError:
        record = sum(len(part) for part in self.offsets) + before
        return DataError(
            what, file=self.file.name, offset=at, member=f"number {record}", why=why,
            remedy="fetch or write the file again, or keep what is intact with --on-corrupt skip",
        )  # fmt: skip

    def _label(self, payload: memoryview, at: int) -> None:
        assert self.labels is not None and self.rules.label is not None
        self.labels.append(feature_text(bytes(payload), self.rules.label.encode(), file=self.file.name, offset=at))


def _place_of(places: I64, lengths: npt.NDArray[np.uint64]) -> int:
    """Where the frame behind the last of these begins."""
    return int(places[-1]) + FRAME + int(lengths[-1]) if len(places) else 0


def _show(file: Blocks) -> str:
    from ...base.errors import printable

    return printable(file.name)
