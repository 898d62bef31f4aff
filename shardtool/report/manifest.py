"""What `manifest` says at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..base.errors import printable
from ..base.units import plural, show_count, show_seconds, show_size

if TYPE_CHECKING:
    from ..jobs.manifest import ManifestResult
    from .console import Console


def result(console: Console, result: ManifestResult) -> None:
    """What was written, and where."""
    manifest = result.manifest
    console.result(
        {
            "manifest": result.path,
            "written": result.written,
            "shards": len(manifest.shards),
            "samples": manifest.samples,
            "bytes": manifest.bytes,
            "folder": result.folder,
            "exports": {kind: list(files) for kind, files in result.exports.items()},
            "seconds": round(result.seconds, 3),
            "ignored": dict(manifest.ignored),
            "dropped": dict(manifest.dropped),
            "warnings": list(result.warnings),
        }
    )
    rows = [
        ("samples", show_count(manifest.samples)),
        ("shards", show_count(len(manifest.shards))),
        ("bytes", show_size(manifest.bytes)),
        ("time", show_seconds(result.seconds)),
    ]
    labels = manifest.labels
    if labels is not None:
        rows.append((f"label {labels['field']}", plural(len(labels["histogram"]), "class", "classes")))
    for kind, files in sorted(result.exports.items()):
        first = printable(os.path.join(result.folder, files[0])) if files else "no file"
        rows.append((f"index {kind}", first if len(files) < 2 else f"{first} and {len(files) - 1:,} more"))
    rows.append(("manifest", result.path if result.written else f"{result.path} (unchanged)"))
    console.table(("", ""), rows, left=2)
