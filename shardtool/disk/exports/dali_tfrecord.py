"""The index of DALI's TFRecord reader (fn.readers.tfrecord, index_path): docs/exports/dali-tfrecord.md.

One line a record, in order: "<offset of the length field> <bytes of the whole frame>".
"""

from __future__ import annotations

from collections.abc import Iterator

from ...layout.index import windows
from ...layout.manifest import Manifest, Receipt
from .export import File, OpenIndex, Warn
from .lines import STEP, decimals, lines


def names(manifest: Manifest) -> list[str]:
    """'<shard>.idx' beside every shard."""
    return [f"{receipt.name}.idx" for receipt in manifest.shards]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export."""
    for receipt, name in zip(manifest.shards, names(manifest), strict=True):
        yield name, offsets_and_sizes(receipt, open_index)


def offsets_and_sizes(receipt: Receipt, open_index: OpenIndex) -> Iterator[bytes]:
    """The lines of one shard, many at a time."""
    with open_index(receipt) as index:
        offset, length = index.column("offset"), index.column("length")
    for lo, hi in windows(len(offset), STEP):
        yield lines(decimals(offset[lo:hi], b" "), decimals(length[lo:hi], b"\n"))
