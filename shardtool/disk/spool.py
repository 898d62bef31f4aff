"""The spool: the content of compressed sources in files of our own, for engines that read by position.

One sequential pass a source, parallel over sources. A spool file gets its name when it is complete, and the name is
made of the source's path, size, modification time and inode: a run that is started again decodes only what is missing.
Nothing is synced, so the folder's name has the boot in it; the spool of another boot is not used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence

import xxhash

from ..base.errors import DataError, HostError
from ..base.units import show_size
from ..layout.rules import Rules
from .boot import boot
from .content import Content, own_checksums, tolerated
from .decode import Decoder, known_size
from .engines.job import SourceFile
from .files import create, naming, remove, remove_folder, write_all
from .runners import Advance, run_tasks
from .sources import Input

PREFIX = b"spool."
# Left free on the disk: this much, or a hundredth of a small one.
MARGIN = 64 << 20


class Spool:
    """A folder of spool files below `work`.

    margin  bytes that are left free on its disk
    """

    def __init__(self, work: bytes, margin: int | None = None) -> None:
        self._work = work
        self.folder = os.path.join(work, PREFIX + boot())
        self._margin = margin

    def fill(self, files: Sequence[Input], rules: Rules, jobs: int, advance: Advance) -> list[Content]:
        """The content of every file, in order; compressed ones are decoded unless they are in the spool already.

        advance  called with bytes of compressed files, as they are done

        Raises DataError (damage, unless the rules let it pass; too large), HostError (the disk has no room). Then no
        unfinished file is left.
        """
        self._open()
        names = [_name(file, rules) if file.compression else b"" for file in files]
        wanted = [number for number, name in enumerate(names) if name]
        self._clean({*names})
        missing = [number for number in wanted if not os.path.exists(self._path(names[number]))]
        advance(sum(files[n].size for n in wanted) - sum(files[n].size for n in missing))
        self._ask([files[number] for number in missing])

        def one(number: int, advance: Advance) -> None:
            self._decode(files[number], self._path(names[number]), rules, advance)

        missing.sort(key=lambda number: (-files[number].size, number))
        try:
            for _ in run_tasks(one, missing, jobs, advance):
                pass
        finally:
            # A worker that was ended for another one's error could not remove its own.
            self._clean({*names})
        return [
            Content(self._path(name), self._damage(name)) if name else Content(file.path)
            for name, file in zip(names, files, strict=True)
        ]

    def remove(self) -> None:
        """All of it."""
        remove_folder(self.folder)

    # -- files ------------------------------------------------------------------------------------------------

    def _path(self, name: bytes) -> bytes:
        return os.path.join(self.folder, name)

    def _open(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        for entry in os.listdir(self._work):
            if entry.startswith(PREFIX) and os.path.join(self._work, entry) != self.folder:
                remove_folder(os.path.join(self._work, entry))

    def _clean(self, names: set[bytes]) -> None:
        """Remove what is unfinished, and what belongs to no source of this run."""
        for entry in os.listdir(self.folder):
            if entry.removesuffix(b".damage") not in names:
                remove(self._path(entry))

    def _damage(self, name: bytes) -> DataError | None:
        try:
            with open(self._path(name + b".damage"), encoding="ascii") as file:
                facts = json.load(file)
        except FileNotFoundError:
            return None
        return DataError(facts["what"], offset=facts["offset"], why=facts["why"])

    # -- room on the disk ---------------------------------------------------------------------------------------

    def _free(self) -> int:
        found = os.statvfs(self.folder)
        size = found.f_blocks * found.f_frsize
        margin = min(MARGIN, size // 100) if self._margin is None else self._margin
        return found.f_bavail * found.f_frsize - margin

    def _ask(self, files: Iterable[Input]) -> None:
        """HostError when what the files say of their content is more than there is room for."""
        need = sum(known_size(file.path, file.compression or "", file.size) for file in files)
        if need and need > (free := self._free()):
            raise self._no_room(f"the compressed sources hold {show_size(need)} at least, {_left(free)}")

    def _no_room(self, why: str, file: bytes | None = None) -> HostError:
        return HostError(
            "the disk of the work folder has no room for the decompressed sources", file=file or self.folder, why=why,
            remedy="make room, or decompress the sources elsewhere and give the result",
        )  # fmt: skip

    # -- one source -----------------------------------------------------------------------------------------------

    def _decode(self, file: Input, final: bytes, rules: Rules, advance: Advance) -> None:
        temporary = final + b".tmp"
        remove(final + b".damage")
        fd = create(temporary)
        try:
            damage = self._write(fd, file, rules, advance)
            if damage is not None:
                _write_json(final + b".damage", {"what": damage.what, "offset": damage.offset, "why": damage.why})
            os.rename(temporary, final)
        except BaseException:
            remove(temporary)
            raise
        finally:
            os.close(fd)

    def _write(self, fd: int, file: Input, rules: Rules, advance: Advance) -> DataError | None:
        """The content, or what the rules keep of a damaged one; returns the damage."""
        assert file.compression is not None
        try:
            with Decoder(file.path, file.name, file.compression, limit=file.limit) as decoder:
                self._copy(decoder, fd, file, None, advance)
            return None
        except DataError as error:
            damage = tolerated(error, file, rules)
        with naming(fd):
            os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        keep = damage.keep(own_checksums(file, rules))
        with Decoder(file.path, file.name, file.compression, fast=False, fine_from=damage.near) as decoder:
            self._copy(decoder, fd, file, keep, lambda _: None)
        return damage.error

    def _copy(self, decoder: Decoder, fd: int, file: Input, keep: int | None, advance: Advance) -> None:
        """Write the content, or its first `keep` bytes."""
        source = SourceFile(file.path, file.name, file.size, file.mtime_ns, file.inode)
        source.check(decoder.stat)
        told = 0
        while keep is None or decoder.produced < keep:
            piece = decoder.read()
            if not piece:
                break
            if keep is not None and decoder.produced > keep:
                piece = piece[: keep - decoder.produced]
            if len(piece) > (free := self._free()):
                raise self._no_room(f"after {show_size(decoder.produced)} of this source {_left(free)}", file.name)
            write_all(fd, piece)
            told, done = decoder.offset, decoder.offset - told
            advance(max(0, done))
        source.check(decoder.stat)


def _left(free: int) -> str:
    return f"{show_size(max(0, free))} are free for them"


def _name(file: Input, rules: Rules) -> bytes:
    """Of the spool file of one source, as it is now, under these rules."""
    facts = [
        os.path.realpath(file.path).hex(), file.size, file.mtime_ns, file.inode, file.compression, file.limit,
        rules.on_corrupt != "error", own_checksums(file, rules),
    ]  # fmt: skip
    return xxhash.xxh3_128_hexdigest(json.dumps(facts).encode("ascii")).encode("ascii")


def _write_json(path: bytes, facts: dict[str, object]) -> None:
    fd = create(path + b".tmp")
    try:
        write_all(fd, json.dumps(facts).encode("ascii"))
    finally:
        os.close(fd)
    os.rename(path + b".tmp", path)
