"""export: index files of other loaders, from a manifest and its index files; no payload is read."""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Iterator, Sequence

from ..base.errors import StateError, UsageError, printable
from ..base.reporting import Reporter
from ..disk.exports import EXPORTS
from ..disk.files import create, fsync_folder, publish, write_all
from ..disk.indexfile import ShardIndex
from ..layout.manifest import Manifest, Receipt

# What `dali` stands for, by format of the shards.
DALI = {"tar": "dali-wds", "tfrecord": "dali-tfrecord"}
_PIECE = 4 << 20


def resolve_exports(kinds: Sequence[str], format: str) -> tuple[str, ...]:
    """Names of EXPORTS for shards of `format`, sorted, each once.

    Raises UsageError for a kind that is not known or does not exist for the format.
    """
    found = set()
    for kind in kinds:
        name = DALI[format] if kind == "dali" else kind
        if name not in EXPORTS:
            known = ", ".join(["dali", *EXPORTS])
            raise UsageError(f"--export {kind!r} is not known", remedy=f"choose from {known}")
        if format not in EXPORTS[name].formats:
            fitting = ", ".join(other for other, export in EXPORTS.items() if format in export.formats)
            raise UsageError(
                f"--export {kind} is for {' or '.join(EXPORTS[name].formats)} shards, these are {format}",
                remedy=f"for {format} there are: {fitting}",
            )
        found.add(name)
    return tuple(sorted(found))


def digests_of(kinds: Sequence[str]) -> set[str]:
    """Digests of whole shards that these exports need."""
    return {digest for kind in kinds for digest in EXPORTS[kind].digests}


def check_names(manifest: Manifest, kinds: Sequence[str]) -> dict[str, list[str]]:
    """Kind -> names of its files. UsageError when two files would have one name."""
    names = {kind: EXPORTS[kind].names(manifest) for kind in kinds}
    taken = {"manifest.json": "the manifest"}
    for receipt in manifest.shards:
        taken[receipt.name], taken[receipt.index] = "a shard", "the index of a shard"
    for kind, files in names.items():
        for name in files:
            if name in taken:
                raise UsageError(
                    f"two files would be called {printable(name)}: of the export {kind}, and {taken[name]}",
                    remedy="rename the shard",
                )
            taken[name] = f"of the export {kind}"
    return names


def write_exports(
    out: bytes,
    work: bytes,
    manifest: Manifest,
    kinds: Sequence[str],
    reporter: Reporter,
    *,
    to: bytes | None = None,
    replace: bool = True,
) -> dict[str, tuple[str, ...]]:
    """Write and publish the files of these exports; returns kind -> names below the folder they are in.

    out      folder of the manifest (absolute)
    work     folder for temporary files
    to       folder of the files (absolute), made when missing; None: `out`
    replace  whether existing files of these names are replaced; else StateError for one that differs

    No file appears before all are complete.
    """
    target = out if to is None else to
    way = _way(target, out)
    names = check_names(manifest, kinds)
    staged: list[tuple[bytes, bytes]] = []
    reporter.stage("export", sum(map(len, names.values())), "files")
    try:
        for kind in kinds:
            made = []
            for name, temporary in _write(out, work, manifest, kind, way, reporter, len(staged)):
                staged.append((temporary, os.path.join(target, os.fsencode(name))))
                made.append(name)
                reporter.advance(1)
            if made != names[kind]:
                raise AssertionError(f"the export {kind} announced {names[kind]} and wrote {made}")
        if not replace:
            _refuse_others(staged)
        _place(staged)
    finally:
        reporter.finish()
        for temporary, _ in staged:
            if os.path.lexists(temporary):
                os.unlink(temporary)
    return {kind: tuple(files) for kind, files in names.items()}


def _way(target: bytes, out: bytes) -> str:
    """What leads from the folder of an export to that of the manifest: '' or ending in '/'."""
    way = os.fsdecode(os.path.relpath(os.path.realpath(out), os.path.realpath(target)))
    return "" if way == "." else f"{way}/"


def _write(
    out: bytes, work: bytes, manifest: Manifest, kind: str, to_shards: str, reporter: Reporter, first: int
) -> Iterator[tuple[str, bytes]]:
    """Write one export's files under temporary names: (name, temporary name), synced."""

    def open_index(receipt: Receipt) -> ShardIndex:
        return ShardIndex(os.path.join(out, os.fsencode(receipt.index)), receipt.name)

    files = EXPORTS[kind].files(manifest, open_index, reporter.warn, to_shards)
    for number, (name, pieces) in enumerate(files, first):
        temporary = os.path.join(work, b"export-%06d.tmp" % number)
        fd = create(temporary)
        try:
            for piece in pieces:
                write_all(fd, piece)
            os.fsync(fd)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        yield name, temporary


def _refuse_others(staged: list[tuple[bytes, bytes]]) -> None:
    """StateError for a file that exists and is not what would be written."""
    for temporary, final in staged:
        if not os.path.lexists(final):
            continue
        if not os.path.isfile(final) or not filecmp.cmp(temporary, final, shallow=False):
            raise StateError(
                "a file with the name of an index file exists, and its content is another", file=final,
                remedy="move it away, give -o DIR for the index files, or replace it with --overwrite",
            )  # fmt: skip


def _place(staged: list[tuple[bytes, bytes]]) -> None:
    """Give complete files their names."""
    folders = {os.path.dirname(final) for _, final in staged}
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    for temporary, final in staged:
        try:
            os.rename(temporary, final)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_beside(temporary, final)
    for folder in folders:
        fsync_folder(folder)


def _copy_beside(temporary: bytes, final: bytes) -> None:
    """The same where `final` is on another file system."""

    def pieces() -> Iterator[bytes]:
        with open(temporary, "rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    folder, name = os.path.split(final)
    publish(os.path.join(folder, b"." + name + b".tmp"), final, pieces())
