"""What Megatron Energon needs to take a folder of tars for a prepared data set: docs/exports/energon.md.

    .nv-meta/.info.json     samples by shard
    .nv-meta/split.yaml     which shards are train, val, test
    .nv-meta/dataset.yaml   which class reads a sample
    <shard>.tar.idx         uint64 little-endian: where every sample begins, then where the last one ends

Energon hands a sample to Python's tarfile from its first byte to the next sample's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np

from ...base.errors import DataError, printable
from ...layout.manifest import Manifest, Receipt
from .export import File, OpenIndex, Warn
from .names import without_tar
from .places import base, only_beside
from .webdataset import brace_patterns
from .yaml import listed

# The release whose layout this is; Energon reads it for messages only.
RELEASE = "7.4.1"
_PARTS = ("train", "val", "test")
_PART = re.compile(r"(?i:(?P<val>val|valid|validation|dev)|(?P<test>test))(?![A-Za-z0-9])")
# What Energon's expansion of braces gives a meaning to.
_SPECIAL = re.compile(r"[{}\\]")

_DATASET = """\
# CrudeWebdataset gives every sample as its fields; a cooker of your task encoder makes of it what the model takes.
__module__: megatron.energon
__class__: CrudeWebdataset
"""


def names(manifest: Manifest) -> list[str]:
    """'.nv-meta/...', and 'x.tar.idx' for every shard that has samples."""
    indexes = [f"{without_tar(receipt.name)}.tar.idx" for receipt in _filled(manifest)]
    return [".nv-meta/.info.json", ".nv-meta/split.yaml", ".nv-meta/dataset.yaml", *indexes]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export.

    Raises UsageError when the files would not lie beside the shards, DataError for a shard's name that Energon would
    expand and for samples that do not lie one behind the other.
    """
    only_beside("energon", to_shards)
    check(manifest)
    filled = _filled(manifest)
    for receipt in manifest.shards:
        if not receipt.samples:
            warn(f"{printable(receipt.name)} has no samples, which Energon does not allow: it is left out")
    made = iter(names(manifest))
    counts = {receipt.name: receipt.samples for receipt in filled}
    # not sorted: the order of the keys numbers the shards
    info = json.dumps({"energon_version": RELEASE, "shard_counts": counts}, ensure_ascii=True, indent=1) + "\n"
    yield next(made), [info.encode("ascii")]
    yield next(made), [_splits([receipt.name for receipt in filled]).encode("ascii")]
    yield next(made), [_DATASET.encode("ascii")]
    for receipt, name in zip(filled, made, strict=True):
        yield name, [_starts(receipt, open_index)]


def check(manifest: Manifest) -> None:
    """See Export."""
    for receipt in manifest.shards:
        if _SPECIAL.search(receipt.name):
            raise DataError(
                "braces or '\\' in a shard's name: Energon would expand them", file=receipt.name,
                remedy="rename the shards",
            )  # fmt: skip


def _filled(manifest: Manifest) -> list[Receipt]:
    return [receipt for receipt in manifest.shards if receipt.samples]


def part_of(name: str) -> str:
    """'val' for val-000000.tar or dev/x.tar, 'test' for test-000000.tar, else 'train'."""
    folder = name.partition("/")[0] if "/" in name else ""
    for word in (base(name), folder):
        found = _PART.match(word)
        if found:
            return str(found.lastgroup)
    return "train"


def _splits(shards: list[str]) -> str:
    """The text of split.yaml."""
    lines = ["split_parts:"]
    for part in _PARTS:
        lines.append(f"  {part}: {listed(brace_patterns([name for name in shards if part_of(name) == part]))}")
    return "\n".join([*lines, "exclude: []", ""])


def _starts(receipt: Receipt, open_index: OpenIndex) -> bytes:
    with open_index(receipt) as index:
        offset, length = index.column("offset").astype(np.int64), index.column("length").astype(np.int64)
    ends = offset + length
    wrong = np.flatnonzero(offset[1:] < ends[:-1])
    if len(wrong):
        raise DataError(
            "samples do not lie one behind the other, as Energon reads them", file=receipt.name,
            offset=int(offset[1:][wrong[0]]), why="the members of a sample are not adjacent",
            remedy="`shardtool repack` writes them so",
        )  # fmt: skip
    return np.append(offset, ends[-1]).astype("<u8").tobytes()
