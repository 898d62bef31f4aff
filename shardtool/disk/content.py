"""The content of a source: the file itself, or what a compressed one decodes to; and what to do about damage."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace

from ..base.errors import DataError, printable
from ..layout.rules import Rules
from .decode import Damage, Decoder, TooLarge, salvage
from .formats import scan_file
from .formats.folder import scan_folder
from .packed import SMALL, Packed
from .scanned import Scanned
from .sources import DAMAGED, Input


@dataclass(frozen=True)
class Content:
    """Where the content of a source is read.

    path    of a plain file, or a Packed path
    damage  what ended the decoding early, when the rules let damage pass
    """

    path: bytes
    damage: DataError | None = None


def content_of(file: Input, rules: Rules) -> Content:
    """The content without storing it. A compressed file is decoded once to its end, which checks it.

    Raises DataError for damage, unless rules.on_corrupt lets it pass, and for content above the file's limit.
    """
    if file.compression is None:
        return Content(file.path)
    kept: list[bytes] | None = []
    size = 0
    try:
        with Decoder(file.path, file.name, file.compression, limit=file.limit) as decoder:
            for piece in decoder:
                size += len(piece)
                if kept is not None:
                    kept.append(piece)
                if size > SMALL:
                    kept = None
    except DataError as error:
        damage = tolerated(error, file, rules)
        size = damage.keep(own_checksums(file, rules))
        return Content(Packed(file.path, file.compression, size, damage.near), damage.error)
    data = None if kept is None else b"".join(kept)
    return Content(Packed(file.path, file.compression, size, None, data))


def tolerated(error: DataError, file: Input, rules: Rules) -> Damage:
    """How far a damaged file can be read, when the rules let damage pass; else raises `error`."""
    if rules.on_corrupt == "error" or isinstance(error, TooLarge) or file.compression is None:
        raise error
    damage = salvage(file.path, file.name, file.compression, file.limit)
    if damage is None:
        raise error  # found and not found again: the file changes, or the memory of this machine is bad
    return damage


def own_checksums(file: Input, rules: Rules) -> bool:
    """Whether the format itself tells intact samples from damaged ones."""
    return file.format == "tfrecord" and rules.verify


def scan_content(
    file: Input, content: Content, rules: Rules, *, check_payload: bool, check_length: bool = True,
    window: int | None = None,
) -> Scanned:
    """Walk the content of one source, and count its damage. The rest as for scan_file."""
    if file.files is not None:
        return scan_folder(file.files, rules)
    name = file.name if file.compression is None else file.name + b" (decompressed)"
    if content.damage is None:
        return scan_file(
            file.format, content.path, name, rules, check_payload=check_payload, check_length=check_length,
            window=window,
        )  # fmt: skip
    # What came out last before the damage showed may be wrong.
    scanned = scan_file(file.format, content.path, name, rules, check_payload=True)
    findings, error = scanned.findings, content.damage
    findings.dropped[DAMAGED[file.format]] = max(1, findings.dropped[DAMAGED[file.format]])
    where = f" at byte {error.offset:,}" if error.offset is not None else ""
    findings.warnings.insert(
        0, f"{printable(file.name)}: {error.what}{where} ({error.why}); what follows is lost"
    )
    return replace(scanned, findings=findings)


def first_bytes(path: bytes, most: int) -> int:
    """A descriptor for the content at `path`; for a Packed one a file without a name that has at least its first
    `most` bytes."""
    if not isinstance(path, Packed):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with tempfile.TemporaryFile() as file, path.decoder(bytes(path)) as decoder:
        while file.tell() < min(most, path.size) and (piece := decoder.read()):
            file.write(piece)
        file.flush()
        return os.dup(file.fileno())
