"""Bytes, memory, bandwidth and shard sizes that a run asks for. Every number is a product that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base.units import GIB, MIB, show_size
from .counts import Counts
from .elastic import next_multiple
from .world import World

# One request of an object store or a seek of a disk costs about what reading this many bytes does.
LEAST_SHARD = 8 * MIB
# A file that takes minutes to copy or to read again after a failure is a burden.
MOST_SHARD = 2 * GIB
GOOD_SHARD = 256 * MIB
# Listing and opening more files than this slows every start.
MOST_FILES = 100_000
# Fewer shards than this a worker, and shuffling their order does little.
SHARDS_PER_WORKER = 4


@dataclass(frozen=True)
class Demand:
    """What the user knows beyond the counts.

    mean_bytes           mean stored bytes of a sample; None: unknown
    buffer               samples of the shuffle buffer of a worker
    fill                 samples of it that must be there before the first batch
    samples_per_second   wanted speed of a rank; None: unknown
    disk_speed           bytes a second that a node reads
    read_factor          how often the data set is read by all ranks together to deliver it once
    """

    mean_bytes: float | None
    buffer: int
    fill: int
    samples_per_second: float | None
    disk_speed: int
    read_factor: int = 1


def capacity(
    counts: Counts, n: int, shards: int, world: World, demand: Demand, *, unit: str, lanes_per_rank: int
) -> dict[str, Any]:
    """For --json and the tables; a number that needs sample bytes is None without them."""
    samples = counts.of_rank("samples")
    mean = demand.mean_bytes

    def size(count: float) -> int | None:
        return None if mean is None else round(count * mean)

    rank_most, rank_least = int(samples.max()), int(samples.min())
    lane_most = int(counts.samples.max())
    per_node = rank_most * world.ranks_on_node
    lanes_on_node = world.ranks_on_node * lanes_per_rank
    speed = demand.samples_per_second
    first = demand.fill + world.batch_size
    first_bytes = size(first * lanes_on_node)
    return {
        "mean_sample_bytes": mean,
        "samples_per_rank": [rank_least, rank_most],
        "bytes_per_rank": [size(rank_least), size(rank_most)],
        "bytes_per_worker": size(lane_most),
        "bytes_per_node": size(per_node),
        "nodes": world.nodes,
        "bytes_read_per_epoch": size(n * demand.read_factor),
        "read_factor": demand.read_factor,
        "disk": {
            "full_copy": size(n),
            "per_node_copy": size(min(n, per_node)),
            "all_nodes_full_copy": size(n * world.nodes),
            "shards_in_flight": size(min(n, -(-n // max(shards, 1)) * lanes_on_node)),
        },
        "buffer": {
            "samples": demand.buffer,
            "bytes_per_worker": size(demand.buffer),
            "bytes_per_node": size(demand.buffer * lanes_on_node),
            "formula": f"{demand.buffer} samples x {lanes_on_node} workers of a node x mean sample bytes",
        },
        "read": {
            "samples_per_second": speed,
            "bytes_per_second_rank": None if speed is None else size(speed * demand.read_factor),
            "bytes_per_second_node": None
            if speed is None
            else size(speed * world.ranks_on_node * demand.read_factor),
            "bytes_per_second": None if speed is None else size(speed * world.ranks * demand.read_factor),
            "batches_per_second": None if speed is None else speed / world.batch_size,
            "shards_opened_per_second": None if speed is None else speed * world.ranks * shards / max(n, 1),
            "epoch_seconds": None if not speed else rank_most / speed,
        },
        "first_batch": {
            "samples_per_worker": first,
            "bytes_per_node": first_bytes,
            "disk_speed": demand.disk_speed,
            "seconds": None if first_bytes is None else first_bytes / demand.disk_speed,
        },
        "shards": advice(n, shards, world, mean, unit=unit, lanes_per_rank=lanes_per_rank),
    }  # fmt: skip


def advice(
    n: int, shards: int, world: World, mean: float | None, *, unit: str, lanes_per_rank: int
) -> dict[str, Any]:
    """A number of shards that suits the loader, with the inequalities it satisfies or breaks."""
    lanes = world.ranks * lanes_per_rank
    whole = unit == "shards"
    step = lanes if whole else 1
    wanted = 1 if mean is None else -(-round(n * mean) // GOOD_SHARD)
    most_by_read = MOST_FILES if mean is None else max(1, int(n * mean) // LEAST_SHARD)
    least = lanes * SHARDS_PER_WORKER if whole else 1
    count = next_multiple(max(wanted, min(least, max(most_by_read, lanes if whole else 1))), step)
    if count > n:
        count = n // step * step or n
    rules = []
    if whole:
        rules.append(_rule(f"{count:,} % {lanes:,} ranks x workers = {count % lanes:,}", count % lanes == 0))
        rules.append(
            _rule(
                f"{count:,} / {lanes:,} = {count / lanes:.3g} shards a worker >= {SHARDS_PER_WORKER}",
                count >= least,
            )
        )
    if mean is not None:
        size = round(n * mean / count)
        rules.append(
            _rule(
                f"{show_size(size)} a shard >= {show_size(LEAST_SHARD)}, one read's worth",
                size >= LEAST_SHARD,
            )
        )
        rules.append(_rule(f"{show_size(size)} a shard <= {show_size(MOST_SHARD)}", size <= MOST_SHARD))
    rules.append(_rule(f"{count:,} files <= {MOST_FILES:,}", count <= MOST_FILES))
    rules.append(_rule(f"{count:,} shards <= {n:,} samples", count <= n))
    return {
        "now": shards,
        "per_worker": shards / lanes,
        "advised": count,
        "advised_samples": -(-n // count),
        "advised_bytes": None if mean is None else round(n * mean / count),
        "rules": rules,
    }


def _rule(text: str, holds: bool) -> dict[str, Any]:
    return {"rule": text, "holds": holds}
