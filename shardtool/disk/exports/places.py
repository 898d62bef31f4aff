"""Exports whose readers look for their files in the folder of the shards."""

from __future__ import annotations

from ...base.errors import UsageError
from ...layout.manifest import Manifest


def only_beside(kind: str, to_shards: str) -> None:
    """UsageError when the export would not lie beside its shards."""
    if to_shards:
        raise UsageError(
            f"the export {kind} works only beside its shards", why="its reader looks for shards below its own folder",
            remedy="leave out -o; where the folder of the shards cannot be written, link the shards into another "
            "and write a manifest there",
        )  # fmt: skip


def folders(manifest: Manifest) -> dict[str, list[int]]:
    """Folder of shards ('' or ending in '/') -> numbers of the shards in it, both in the manifest's order."""
    found: dict[str, list[int]] = {}
    for number, receipt in enumerate(manifest.shards):
        folder, slash, _ = receipt.name.rpartition("/")
        found.setdefault(folder + slash, []).append(number)
    return found


def base(name: str) -> str:
    """The last part of a path."""
    return name.rpartition("/")[2]
