"""The manifest of open_lm, one line of JSON a shard: docs/exports/open-lm.md.

Its reader cuts the text at line feeds and leaves out what is behind the last one: without a final line feed it would
lose a shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...layout.manifest import Manifest
from .export import File, OpenIndex, Warn
from .names import without_tar
from .places import base, folders, only_beside


def names(manifest: Manifest) -> list[str]:
    """'manifest.jsonl' in every folder with shards: the reader looks for shards beside it."""
    return [f"{folder}manifest.jsonl" for folder in folders(manifest)]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export. Raises UsageError when it would not lie beside the shards."""
    only_beside("open_lm", to_shards)
    for folder, shards in folders(manifest).items():
        rows = [
            {"shard": without_tar(base(manifest.shards[k].name)), "num_sequences": manifest.shards[k].samples}
            for k in shards
        ]
        yield f"{folder}manifest.jsonl", [json.dumps(row).encode("ascii") + b"\n" for row in rows]
