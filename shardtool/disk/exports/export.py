"""What an export is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...layout.manifest import Manifest, Receipt
from ..indexfile import ShardIndex

# Opens the index of a shard; the export closes it.
OpenIndex = Callable[[Receipt], ShardIndex]
# Takes a sentence for the user.
Warn = Callable[[str], None]
# (name below the folder of the export, the file's bytes in pieces)
File = tuple[str, Iterable[bytes]]


def anything(manifest: Manifest) -> None:
    """The check of an export that exists for every manifest of its formats."""


@dataclass(frozen=True)
class Export:
    """One kind of index file.

    formats  shard formats it exists for
    digests  digests of whole shards that it needs (hashlib names)
    names    the files it will write, from the manifest alone: to see collisions before the first byte moves
    files    (manifest, open_index, warn, to_shards) -> the files one after the other; the pieces of one are
             taken before the next is asked for. `to_shards` leads from the folder of the export to that of
             the manifest: '' or ending in '/'
    check    raises the DataError that `files` would raise and that the manifest alone shows: called before the first
             byte moves, with receipts that have no digests yet
    """

    formats: tuple[str, ...]
    digests: tuple[str, ...]
    names: Callable[[Manifest], list[str]]
    files: Callable[[Manifest, OpenIndex, Warn, str], Iterator[File]]
    check: Callable[[Manifest], None] = anything
