"""What `repack` says at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.units import plural, show_count, show_seconds, show_size

if TYPE_CHECKING:
    from ..jobs.repack import Result
    from ..layout.cost import Cost
    from .console import Console


def result(console: Console, result: Result) -> None:
    """After a run that wrote something, or found nothing to do."""
    manifest = result.manifest
    assert manifest is not None
    console.result(
        {
            "manifest": result.path,
            "shards": len(manifest.shards),
            "samples": manifest.samples,
            "bytes": manifest.bytes,
            "bytes_read": result.bytes_read,
            "seconds": round(result.seconds, 3),
            "engine": result.engine,
            "resumed_shards": result.resumed_shards,
            "ignored": dict(manifest.ignored),
            "dropped": dict(manifest.dropped),
            "renamed_keys": manifest.renamed["keys"],
            "warnings": list(manifest.warnings),
        }
    )
    if result.done == "nothing to do":
        console.print(f"{result.path}: {plural(manifest.samples, 'sample')} in {plural(len(manifest.shards), 'shard')}")
        return
    counts, sizes = manifest.shard_samples, manifest.shard_sizes
    rows = [
        ("samples", show_count(manifest.samples)),
        ("shards", f"{show_count(len(counts))} of {span(counts, show_count)} samples, {span(sizes, show_size)}"),
        ("bytes", show_size(manifest.bytes)),
        ("time", _time(result)),
        ("manifest", result.path),
    ]
    if result.resumed_shards:
        rows.insert(2, ("kept", plural(result.resumed_shards, "shard") + " of the interrupted run"))
    if manifest.renamed["keys"]:
        rows.insert(2, ("keys", f"renamed to be unique: --keys {manifest.keys['mode']}"))
    for kind, files in sorted(manifest.exports.items()):
        rows.append((f"index {kind}", files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1:,} more"))
    console.table(("", ""), rows, left=2)


def span(values: np.ndarray[Any, np.dtype[np.int64]], show: Any) -> str:
    """'1,249 to 1,250', or '1,250' where all agree."""
    low, high = int(values.min()), int(values.max())
    return str(show(low)) if show(low) == show(high) else f"{show(low)} to {show(high)}"


def _time(result: Result) -> str:
    assert result.manifest is not None
    rate = result.manifest.bytes / max(result.seconds, 1e-9)
    return f"{show_seconds(result.seconds)} ({show_size(int(rate))}/s)"


def _why_not(against: str, cost: Cost) -> str:
    return against or f"it reads {show_size(cost.read_bytes)} and writes {show_size(cost.temporary_bytes)} more"


def _temporary(cost: Cost) -> str:
    text = show_size(cost.temporary_bytes)
    return f"{text}, of which {show_size(cost.spool_bytes)} decoded sources" if cost.spool_bytes else text


def dry_run(console: Console, result: Result, disk_speed: int | None) -> None:
    """The layout, what it would cost, and how long at which speed."""
    laid_out, cost = result.laid_out, result.cost
    assert laid_out is not None and cost is not None
    layout = laid_out.layout
    counts = np.diff(layout.cuts)
    moved = cost.read_bytes + cost.written_bytes + 2 * cost.temporary_bytes
    scanned = int(cost.read_bytes / max(result.scan_seconds, 1e-3))
    speed = disk_speed or scanned
    minutes = moved / speed / 60
    source = "--disk-speed" if disk_speed else "the speed of the scan (headers only: the copy is slower)"
    console.result(
        {
            "dry_run": True,
            "samples": layout.samples,
            "shards": layout.shards,
            "shard_samples": {"min": int(counts.min()), "max": int(counts.max())},
            "shard_bytes": {"min": int(layout.shard_bytes.min()), "max": int(layout.shard_bytes.max())},
            "bytes": int(layout.shard_bytes.sum()),
            "cost": {**vars(cost), "minutes": round(minutes, 2), "minutes_by": source, "speed": speed},
            "engines": [{**vars(cost), "against": against} for cost, against in laid_out.costs],
            "keys": laid_out.keys.mode,
            "ignored": result.extra["ignored"],
            "dropped": result.extra["dropped"],
            "renamed_keys": result.extra["renamed_keys"],
            "warnings": list(result.warnings),
        }
    )
    rows = [
        ("samples", show_count(layout.samples)),
        ("shards", f"{show_count(layout.shards)} of {span(counts, show_count)} samples, "
                   f"{span(layout.shard_bytes, show_size)}"),
        ("engine", f"{cost.engine}, {plural(cost.passes, 'pass', 'passes')}"),
        *((f"  not {other.engine}", _why_not(against, other)) for other, against in laid_out.costs if other != cost),
        ("reads", show_size(cost.read_bytes)),
        ("writes", show_size(cost.written_bytes)),
        ("temporary", _temporary(cost)),
        ("memory", f"at most {show_size(cost.peak_ram_bytes)}"),
        ("open files", f"{cost.open_files} a process"),
        ("time", f"{show_seconds(60 * minutes)} at {show_size(speed)}/s: {source}"),
    ]  # fmt: skip
    console.table(("dry run", ""), rows, left=2)
    console.print("Nothing was written.")
