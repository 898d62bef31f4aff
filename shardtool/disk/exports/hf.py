"""The head of a README.md that tells Hugging Face datasets which tars are the data set: docs/exports/hf.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base.errors import DataError, printable
from ...layout.manifest import Manifest
from .energon import part_of
from .export import File, OpenIndex, Warn
from .names import set_name
from .places import only_beside
from .yaml import quoted

_IMAGES = {"jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm"}
_AUDIO = {"wav", "flac", "mp3", "ogg", "opus"}
# Its reader decodes these itself, by the last part of the field's name ...
_TYPES = {
    **dict.fromkeys(("txt", "text", "transcript"), "string"),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), "int64"),
}  # fmt: skip
# ... and these into something whose type is known only from the content.
_OPEN = {"json", "jsn", "ten", "tb", "mp", "msg", "npy", "npz", "cbor", "pth"}
# It takes these off first.
_PACKED = {"gz", "bz2", "xz", "zst", "lz4", "zip", "rar", "7z"}
_SPLITS = {"val": "validation"}
# How many records the reader looks at when it has to find the types itself.
_SEEN = 5


def names(manifest: Manifest) -> list[str]:
    """'README.md'"""
    return ["README.md"]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export.

    Raises UsageError when it would not lie beside the shards, DataError for a name with '*', '?' or brackets, which are
    patterns to the reader.
    """
    only_beside("hf", to_shards)
    check(manifest)
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    splits = ["  splits:"]
    for part in ("train", "val", "test"):
        shards = [receipt for receipt in manifest.shards if part_of(receipt.name) == part]
        if shards:
            name = _SPLITS.get(part, part)
            lines += [f"  - split: {name}", "    path:"]
            lines += [f"    - {quoted(path)}" for path in _paths(manifest, [r.name for r in shards])]
            splits += [f"  - name: {name}", f"    num_bytes: {sum(r.bytes for r in shards)}"]
            splits += [f"    num_examples: {sum(r.samples for r in shards)}"]
    lines += ["dataset_info:", *_features(manifest, warn), *splits]
    lines += [f"  download_size: {manifest.bytes}", f"  dataset_size: {manifest.bytes}", "---", ""]
    yield "README.md", ["\n".join(lines).encode("ascii")]


def check(manifest: Manifest) -> None:
    """See Export."""
    for receipt in manifest.shards:
        if re.search(r"[*?\[\]]", receipt.name):
            raise DataError(
                "'*', '?' or a bracket in a shard's name is a pattern to Hugging Face datasets", file=receipt.name,
                remedy="rename the shards",
            )  # fmt: skip


def _paths(manifest: Manifest, shards: list[str]) -> list[str]:
    """One pattern where the shards are numbered and nothing else, else every name."""
    stem = set_name(manifest)
    if len(shards) == len(manifest.shards) and all(re.fullmatch(re.escape(stem) + r"-[0-9]+\.tar", n) for n in shards):
        return [f"{stem}-*.tar"]
    return shards


def _features(manifest: Manifest, warn: Warn) -> list[str]:
    """The lines of 'features:', or none where a type must be found by the reader."""
    types = {name: dtype_of(name) for name in sorted(manifest.fields)}
    unknown = [name for name, dtype in types.items() if dtype is None]
    if unknown:
        if len(manifest.field_sets or {}) > 1:
            warn(
                f"Hugging Face datasets finds the type of the field {printable(unknown[0])} in the first {_SEEN} "
                "samples, and fails when these do not have the same fields"
            )
        return []
    classes = [value for value in manifest.classes or () if not re.fullmatch(rb"\s*[-+]?[0-9]+\s*", value)]
    label = (manifest.labels or {}).get("field")
    if classes and types.get(str(label)) == "int64":
        warn(
            f"Hugging Face datasets reads the field {label} as a whole number and fails on {printable(classes[0])}: "
            "name the field otherwise"
        )
    rows = [("__key__", "string"), ("__url__", "string"), *types.items()]
    lines = ["  features:"]
    for name, dtype in rows:
        lines += [f"  - name: {quoted(name)}", f"    dtype: {dtype}"]
    return lines


def dtype_of(field: str) -> str | None:
    """The type that the reader makes of a field; None where only the content says it."""
    words = field.split(".")
    if len(words) > 1 and words[-1].lower() in _PACKED:
        words.pop()
    last = words[-1].lower()
    if last in _OPEN:
        return None
    if last in _IMAGES:
        return "image"
    if last in _AUDIO:
        return "audio"
    return _TYPES.get(last, "binary")
