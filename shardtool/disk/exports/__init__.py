"""Index files of other loaders, made from manifest and index alone.

EXPORTS: name -> Export. One file of functions and one line here for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...layout.manifest import Manifest, Receipt
from ..indexfile import ShardIndex

# Opens the index of a shard; the export closes it.
OpenIndex = Callable[[Receipt], ShardIndex]
# (name relative to the manifest, the file's bytes in pieces)
File = tuple[str, Iterable[bytes]]


@dataclass(frozen=True)
class Export:
    """One kind of index file.

    formats  shard formats it exists for
    digests  digests of whole shards that it needs (hashlib names)
    names    the files it will write, from the manifest alone: to see collisions before the first byte moves
    files    (manifest, open_index, warn) -> the files one after the other
    """

    formats: tuple[str, ...]
    digests: tuple[str, ...]
    names: Callable[[Manifest], list[str]]
    files: Callable[[Manifest, OpenIndex, Callable[[str], None]], Iterator[File]]


EXPORTS: dict[str, Export] = {}
