"""Samples by shard as open_clip asks for them: docs/exports/sizes.md.

    sizes.json   {"<base name of the shard>": samples, ...}
    __len__      the sum, a literal integer

open_clip looks in the folder of the first shard of its list, and there in sizes.json first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...layout.manifest import Manifest
from .export import File, OpenIndex, Warn
from .places import base, folders, only_beside


def names(manifest: Manifest) -> list[str]:
    """Both files in every folder with shards."""
    return [folder + name for folder in folders(manifest) for name in ("__len__", "sizes.json")]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export. Raises UsageError when they would not lie beside the shards."""
    only_beside("sizes", to_shards)
    places = folders(manifest)
    if len(places) > 1:
        warn(
            f"the shards lie in {len(places):,} folders, each of which gets its own sizes.json: open_clip reads that "
            "of its first shard alone, so give it the shards of one folder"
        )
    for folder, shards in places.items():
        sizes = {base(manifest.shards[k].name): manifest.shards[k].samples for k in shards}
        yield f"{folder}__len__", [b"%d\n" % sum(sizes.values())]
        text = json.dumps(sizes, ensure_ascii=True, sort_keys=True, indent=1) + "\n"
        yield f"{folder}sizes.json", [text.encode("ascii")]
