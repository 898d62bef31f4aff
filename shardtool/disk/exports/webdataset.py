"""The shards as `webdataset.WebDataset` takes them: a brace string and a list. docs/exports/webdataset.md.

    <set>.brace.txt    one line: 'train-{000000..000015}.tar', several patterns joined by '::'
    <set>.shards.txt   one shard a line
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base.errors import DataError, printable
from ...layout.manifest import Manifest
from .export import File, OpenIndex, Warn
from .names import set_name

# What the library's own expansion of such a string gives a meaning to.
_SPECIAL = re.compile(r"[{}\\]|::")
_DIGITS = re.compile(r"([0-9]+)")


def names(manifest: Manifest) -> list[str]:
    """The list, and the brace string unless a shard's name cannot stand in one."""
    stem = set_name(manifest)
    special = any(_SPECIAL.search(receipt.name) for receipt in manifest.shards)
    return [*([] if special else [f"{stem}.brace.txt"]), f"{stem}.shards.txt"]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export. Raises DataError for a name with a line break."""
    paths = [to_shards + receipt.name for receipt in manifest.shards]
    for path in paths:
        if "\n" in path or "\r" in path:
            raise DataError(
                "a shard's name has a line break, so it cannot stand in a list", file=path,
                remedy="rename the shard",
            )  # fmt: skip
    made = names(manifest)
    if len(made) == 1:
        name = printable(next(receipt.name for receipt in manifest.shards if _SPECIAL.search(receipt.name)))
        warn(f"{name}: braces, '\\' or '::' cannot stand in a brace string; the list is written")
    elif _SPECIAL.search(to_shards):
        raise DataError(
            "a folder's name has braces, '\\' or '::', which cannot stand in webdataset's brace string",
            file=to_shards, remedy="write the export into another folder",
        )  # fmt: skip
    for name in made:
        text = "\n".join(paths) if name.endswith(".shards.txt") else "::".join(brace_patterns(paths))
        yield name, [text.encode("utf-8", "surrogateescape") + b"\n"]


def brace_patterns(paths: list[str]) -> list[str]:
    """Patterns that expand to `paths` in their order; neighbours that count up by one share a pattern."""
    patterns = []
    at = 0
    while at < len(paths):
        tokens, place, count = _DIGITS.split(paths[at]), -1, 1
        while at + count < len(paths):
            step = _counts_up(_DIGITS.split(paths[at + count - 1]), _DIGITS.split(paths[at + count]))
            if step is None or place not in (-1, step):
                break
            place, count = step, count + 1
        if count > 1:
            last = _DIGITS.split(paths[at + count - 1])[place]
            tokens[place] = f"{{{tokens[place]}..{last}}}"
        patterns.append("".join(tokens))
        at += count
    return patterns


def _counts_up(one: list[str], other: list[str]) -> int | None:
    """The place of the one number in which the names differ, when it grows by one and keeps its width."""
    if len(one) != len(other):
        return None
    different = [k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if len(different) != 1 or not different[0] % 2:
        return None
    a, b = one[different[0]], other[different[0]]
    return different[0] if len(a) == len(b) and int(a) + 1 == int(b) else None
