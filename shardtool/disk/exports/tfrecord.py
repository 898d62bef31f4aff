"""The index of the `tfrecord` package (TFRecordDataset, index_path): docs/exports/tfrecord.md.

The same lines as for DALI, under the name that its own tool gives: 'x.tfrecord' -> 'x.tfindex'.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ...base.errors import printable
from ...layout.manifest import Manifest
from .dali_tfrecord import offsets_and_sizes
from .export import File, OpenIndex, Warn

# How many names a warning gives.
_NAMED = 3


def names(manifest: Manifest) -> list[str]:
    """The shard's name with its last extension replaced, as `tfrecord2idx DIR` does."""
    return [os.path.splitext(receipt.name)[0] + ".tfindex" for receipt in manifest.shards]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export."""
    for receipt, name in zip(manifest.shards, names(manifest), strict=True):
        yield name, offsets_and_sizes(receipt, open_index)
    short = [printable(receipt.name) for receipt in manifest.shards if receipt.samples < 2]
    if short:
        more = f" and {len(short) - _NAMED:,} more" if len(short) > _NAMED else ""
        warn(
            f"{', '.join(short[:_NAMED])}{more}: fewer than two records; the tfrecord package fails on the "
            "index of such a file (IndexError): read it without an index, or ask for fewer shards"
        )
