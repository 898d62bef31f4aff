"""The index of `wids.ShardListDataset`, wids-shard-index-v1: docs/exports/wids.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...base.errors import printable
from ...layout.manifest import Manifest, Receipt
from .export import File, OpenIndex, Warn
from .names import set_name

# wids takes these for the query, fragment or parameters of a URL, and what stands before ':' for its scheme.
_URL = re.compile(r"[?#;]|\A[A-Za-z][A-Za-z0-9+.-]*:")
# A longer name needs more than the name field of a tar header, which is all that wids reads.
_NAME_FIELD = 100


def names(manifest: Manifest) -> list[str]:
    """'train.wids.json' for train-000000.tar, train-000001.tar, ..."""
    return [f"{set_name(manifest)}.wids.json"]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export. URLs are relative to the JSON: wids merges them with its folder."""
    shards = []
    for receipt in manifest.shards:
        url = to_shards + receipt.name
        if _URL.search(url):
            warn(f"{printable(url)}: wids reads this name as a URL and will not find the file")
        shards.append(
            {
                "url": url, "md5sum": receipt.digests["md5"],
                "nsamples": receipt.samples, "filesize": receipt.bytes,
            }
        )  # fmt: skip
    facts: dict[str, Any] = {
        "__kind__": "wids-shard-index-v1", "wids_version": 1, "name": set_name(manifest), "shardlist": shards
    }  # fmt: skip
    long = sum(_long_names(receipt, open_index) for receipt in manifest.shards)
    if long:
        warn(
            f"{long:,} member names are longer than {_NAME_FIELD} bytes: wids reads only the name field of a "
            "tar header and loses their folders or the samples; use webdataset, or repack with --keys ordinal"
        )
    text = json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=2) + "\n"
    yield names(manifest)[0], [text.encode("ascii")]


def _long_names(receipt: Receipt, open_index: OpenIndex) -> int:
    """Members of a shard whose name does not fit the name field."""
    with open_index(receipt) as index:
        keys = index.keys()
        if keys is None:
            return 0
        end, code = index.column("part_end").astype(np.int64), index.column("part_ext").astype(np.int64)
    ext = np.array([len(ext) for ext in index.exts], np.int64)
    length = np.repeat(keys.lengths(), np.diff(end, prepend=0)) + 1 + ext[code]
    return int((length > _NAME_FIELD).sum())
