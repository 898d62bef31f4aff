"""export: index files of other loaders, from a manifest and its index files; no payload is read."""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..base.errors import StateError, UsageError, printable
from ..base.reporting import Reporter
from ..disk.exports import EXPORTS
from ..disk.files import create, fsync_folder, publish, sync, write_all
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
    out: bytes, work: bytes, manifest: Manifest, kinds: Sequence[str], reporter: Reporter
) -> dict[str, tuple[str, ...]]:
    """Write and publish the files of these exports beside the manifest, replacing what has their names.

    out   folder of the manifest (absolute)
    work  folder for temporary files

    Returns kind -> names below `out`. No file appears before all are complete.
    """
    staged = stage_exports(manifest, kinds, reporter, work=work, target=out, folder=out)
    place(staged.files)
    return staged.names


@dataclass(frozen=True)
class Staged:
    """Files that are complete and synced and only lack their names.

    names  kind -> names below the folder they will be in
    files  (temporary path, final path)
    """

    names: dict[str, tuple[str, ...]]
    files: list[tuple[bytes, bytes]]


def stage_exports(
    manifest: Manifest,
    kinds: Sequence[str],
    reporter: Reporter,
    *,
    work: bytes,
    target: bytes,
    folder: bytes,
    index_path: Callable[[Receipt], bytes] | None = None,
) -> Staged:
    """Write the files of these exports under temporary names in `work`.

    target      folder that they are for
    folder      folder of the manifest
    index_path  where the index of a shard is; None: where the manifest says
    """
    names = check_names(manifest, kinds)
    way = _way(target, folder)
    files: list[tuple[bytes, bytes]] = []

    def open_index(receipt: Receipt) -> ShardIndex:
        path = index_path(receipt) if index_path else os.path.join(folder, os.fsencode(receipt.index))
        return ShardIndex(path, receipt.name)

    reporter.stage("export", sum(map(len, names.values())), "files")
    for kind in kinds:
        made = []
        for name, pieces in EXPORTS[kind].files(manifest, open_index, reporter.warn, way):
            temporary = os.path.join(work, b"export-%06d.tmp" % len(files))
            _write(temporary, pieces)
            files.append((temporary, os.path.join(target, os.fsencode(name))))
            made.append(name)
            reporter.advance(1)
        if made != names[kind]:
            raise AssertionError(f"the export {kind} announced {names[kind]} and wrote {made}")
    reporter.finish()
    return Staged({kind: tuple(found) for kind, found in names.items()}, files)


def _way(target: bytes, folder: bytes) -> str:
    """What leads from the folder of an export to that of the manifest: '' or ending in '/'."""
    way = os.fsdecode(os.path.relpath(os.path.realpath(folder), os.path.realpath(target)))
    return "" if way == "." else f"{way}/"


def _write(path: bytes, pieces: Iterable[bytes]) -> None:
    fd = create(path)
    try:
        for piece in pieces:
            write_all(fd, piece)
        sync(fd)
    finally:
        os.close(fd)


def refuse_others(files: Iterable[tuple[bytes, bytes]]) -> None:
    """StateError for a final path where something else stands than what would be written."""
    for temporary, final in files:
        if not os.path.lexists(final):
            continue
        if not os.path.isfile(final) or not filecmp.cmp(temporary, final, shallow=False):
            raise StateError(
                "a file with the name of an index file exists, and its content is another", file=final,
                remedy="move it away, or replace it with --overwrite; --export with -o DIR writes elsewhere",
            )  # fmt: skip


def place(files: Sequence[tuple[bytes, bytes]]) -> None:
    """Give complete files their names; makes folders that are missing."""
    folders = sorted({os.path.dirname(final) for _, final in files})
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    for temporary, final in files:
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
