"""What `plan` and `inspect --world-size` show: folded tables, sentences, a grid of ids, CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.units import show_count, show_seconds, show_size
from ..jobs.plan import Plan, readings
from ..schedule.words import spans

if TYPE_CHECKING:
    from ..schedule.matrix import FloorMatrix
    from .console import Console

COLUMNS = ("shard", "first", "samples", "batches", "padding", "dropped")
# A terminal shows this many rows of a table; the rest is in --json and --csv.
MOST_ROWS = 24
MOST_GRID = 4000


def show_plan(console: Console, plan: Plan) -> None:
    """Everything but ids, on one screen where the world allows."""
    request = plan.request
    world, table = request.world, request.table
    nodes = f"{world.nodes} node{'s' if world.nodes > 1 else ''} of {world.ranks_on_node}"
    console.print(
        f"{request.loader.name} ({request.loader.release}): {show_count(table.n)} samples in "
        f"{show_count(len(table.samples))} shard{'s' if len(table.samples) != 1 else ''}; "
        f"{show_count(world.ranks)} rank{'s' if world.ranks > 1 else ''} ({nodes}), "
        f"{world.workers_per_rank} workers each, batch {show_count(world.batch_size)}"
    )
    console.print()
    _rank_table(console, plan)
    _worker_line(console, plan)
    _verdict(console, plan)
    _elastic(console, plan)
    _capacity(console, plan)


# -- who reads how much --------------------------------------------------------------------------------------


def folded(rows: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[list[int], list[int]]]:
    """Equal rows of int64[k, c] together: (their numbers, the row), in order of first appearance."""
    kinds, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(kinds) + 1))
    return [
        (order[bounds[k] : bounds[k + 1]].tolist(), kinds[k].tolist())
        for k in np.argsort(first, kind="stable")
    ]


def _rank_table(console: Console, plan: Plan) -> None:
    """Equal rows folded; epochs with the same table together."""
    counts = plan.counts
    columns = [counts.of_rank(name) for name in ("samples", "batches", "padding", "dropped")]
    columns += [counts.zero_batches, counts.copy_batches]
    # [epoch, rank, column]; without the shard and first id, which differ in every row
    cube = np.stack(columns, axis=-1)
    show = [0, 1] + [c for c in range(2, 6) if cube[:, :, c].any()]
    names = ["samples", "batches", "padding", "dropped", "empty batches", "copies only"]
    rows: list[list[str]] = []
    for epochs in _alike(cube):
        for ranks, row in folded(cube[epochs[0]]):
            numbers = (show_count(row[c]) for c in show)
            rows.append([_words("epoch", epochs), _words("rank", ranks), *numbers])
    left_out = len(rows) - MOST_ROWS
    if left_out > 0:
        rows = [*rows[:MOST_ROWS], [f"... {left_out:,} more rows (--json, --csv)", "", *("" for _ in show)]]
    console.table(["", "", *(names[c] for c in show)], rows, left=2)


def _alike(cube: np.ndarray[Any, np.dtype[np.int64]]) -> list[list[int]]:
    """Epochs whose tables are equal, together, in order of first appearance."""
    groups: list[list[int]] = []
    for epoch in range(len(cube)):
        for group in groups:
            if np.array_equal(cube[group[0]], cube[epoch]):
                group.append(epoch)
                break
        else:
            groups.append([epoch])
    return groups


def _words(word: str, numbers: Sequence[int]) -> str:
    return f"{word}{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _worker_line(console: Console, plan: Plan) -> None:
    counts = plan.counts
    if counts.samples.shape[2] > 1:
        low, high = int(counts.samples.min()), int(counts.samples.max())
        each = show_count(low) if low == high else f"{show_count(low)} to {show_count(high)}"
        console.print(f"A worker delivers {each} samples in an epoch.")


# -- what it means -------------------------------------------------------------------------------------------


def _verdict(console: Console, plan: Plan) -> None:
    verdict = plan.verdict
    found = verdict.found
    console.print()
    if verdict.hang:
        console.print("Verdict: not usable as it is: DDP would hang.")
    elif found or plan.counts.zero_batches.any() or plan.counts.copy_batches.any():
        console.print("Verdict: runs, but not as one would wish.")
    else:
        console.print(
            "Verdict: even: the same number of batches on every rank, and every sample is read once."
        )
    for reason in verdict.reasons:
        console.print(f"  - {reason}")
    if plan.ways_out:
        console.print("Ways out:")
        for way in plan.ways_out:
            console.print(f"  * {way}")
    for note in plan.notes:
        console.print(f"Note: {note}.")


# -- other worlds --------------------------------------------------------------------------------------------


def _elastic(console: Console, plan: Plan) -> None:
    if not plan.elastic:
        return
    console.print()
    rows = []
    for row in plan.elastic:
        batches = "" if row.batches is None else spans(sorted(set(row.batches)))
        resume = "" if row.resume_skipped is None else f"{row.resume_skipped:,} / {row.resume_repeated:,}"
        same = "" if not row.valid else "no" if not row.same_global_batches else "yes"
        if row.same_global_batches and row.in_steps_of > 1:
            same = f"every {row.in_steps_of}"
        rows.append([row.ranks, row.workers, "yes" if row.valid else "no", batches, same, resume, row.reason])
    fine = [r for r in plan.elastic if r.valid and r.same_global_batches]
    console.table(
        ["ranks", "workers", "accepted", "batches", "same steps", "resume skips / repeats", "why"],
        [[*r] for r in rows],
        title="Other worlds, with the same global batch",
        left=7,
    )  # fmt: skip
    if fine:
        ranks = sorted({r.ranks for r in fine})
        many = f"{len(fine):,} of {len(plan.elastic):,}"
        console.print(f"The same global batches on {many}: ranks {spans(ranks, 30)}.")
    advice = splits_advice(plan)
    if advice:
        console.print(advice)


def splits_advice(plan: Plan) -> str | None:
    """For loaders of fixed splits: a number of splits that suits the wished worlds."""
    from ..schedule.elastic import highly_composite, smallest_splits

    if plan.request.loader.unit != "splits":
        return None
    lanes = sorted({r.ranks * max(1, r.workers) for r in plan.elastic})
    n = plan.request.table.n
    common = smallest_splits(lanes)
    if common <= n:
        return f"--num-splits {common} is the smallest that suits all of them; it drops {n % common:,} rows."
    most = max(min(n, 5040), 1)
    best = highly_composite(min(plan.request.world.lanes, most), 1, most)
    suits = sum(1 for lane in lanes if best % lane == 0)
    return (
        f"No number of splits up to {n:,} suits all of these worlds (the smallest is {common:,}); "
        f"--num-splits {best} suits {suits:,} of {len(lanes):,}."
    )


# -- what it takes -------------------------------------------------------------------------------------------


def _capacity(console: Console, plan: Plan) -> None:
    facts = plan.capacity
    console.print()
    if facts["mean_sample_bytes"] is None:
        console.print(
            "Bytes are unknown: give --sample-bytes (mean of a sample) for memory, disk, bandwidth."
        )
    else:
        console.table(["", ""], _capacity_rows(facts), title="What it takes", left=1)
    shards, loader = facts["shards"], plan.request.loader
    if facts["mean_sample_bytes"] is None and loader.unit != "shards":
        console.print(f"{loader.name} divides {loader.unit}: the number of shards does not change the split.")
        return
    rules = "; ".join(f"{r['rule']}{'' if r['holds'] else ' (BROKEN)'}" for r in shards["rules"])
    size = "" if shards["advised_bytes"] is None else f", {show_size(shards['advised_bytes'])}"
    console.print(
        f"Advised: {shards['advised']:,} shards of about {shards['advised_samples']:,} samples{size} "
        f"(now {shards['now']:,}, {shards['per_worker']:.3g} a worker). {rules}."
    )


def _capacity_rows(facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    least, most = facts["bytes_per_rank"]
    disk, buffer, read, first = facts["disk"], facts["buffer"], facts["read"], facts["first_batch"]
    both = show_size(most) if least == most else f"{show_size(least)} to {show_size(most)}"
    yield "a rank reads in an epoch", both
    yield "a worker", show_size(facts["bytes_per_worker"])
    yield "a node", show_size(facts["bytes_per_node"])
    times = facts["read_factor"]
    yield (
        "read from storage in an epoch",
        f"{show_size(facts['bytes_read_per_epoch'])} ({times:,} x the data set)",
    )
    yield "disk: everything on every node", show_size(disk["all_nodes_full_copy"])
    yield "disk: a node's part only", show_size(disk["per_node_copy"])
    yield "disk: only the shards that are open", show_size(disk["shards_in_flight"])
    yield f"shuffle buffers of a node ({buffer['formula']})", show_size(buffer["bytes_per_node"])
    yield (
        f"first batch: {first['samples_per_worker']:,} samples a worker, "
        f"{show_size(first['disk_speed'])}/s a node",
        show_seconds(first["seconds"]),
    )
    if read["samples_per_second"]:
        yield "bandwidth of a node", f"{show_size(read['bytes_per_second_node'])}/s"
        yield "bandwidth of all ranks", f"{show_size(read['bytes_per_second'])}/s"
        yield "shards opened a second, all ranks", f"{read['shards_opened_per_second']:.3g}"
        yield "an epoch at that speed", show_seconds(read["epoch_seconds"])


# -- ids -----------------------------------------------------------------------------------------------------


def show_ids(console: Console, plan: Plan) -> None:
    """A line per epoch and rank; copies are starred, batches parted by |."""
    for epoch, schedule in enumerate(readings(plan)):
        if epoch == 0 and schedule.opaque:
            console.print("Ids are positions in the loader's own order, which cannot be known from outside.")
        for rank in range(plan.request.world.ranks):
            console.print(f"epoch {epoch} rank {rank}: {_batched(schedule.rank(rank))}")


def show_grid(console: Console, plan: Plan) -> None:
    """For small worlds: epochs below each other, a row per rank, a column per batch."""
    many = int(plan.counts.samples.sum())
    if many > MOST_GRID:
        console.print(f"No grid: {many:,} ids are more than {MOST_GRID:,}; --ids prints them, --json too.")
        return
    for epoch, schedule in enumerate(readings(plan)):
        rows = []
        for rank in range(plan.request.world.ranks):
            cells = _batched(schedule.rank(rank)).split(" | ")
            rows.append([f"rank {rank}", *cells])
        width = max(len(row) for row in rows)
        rows = [[*row, *([""] * (width - len(row)))] for row in rows]
        title = (
            f"epoch {epoch}{' (positions in an unknown order)' if schedule.opaque else ''}; * marks a copy"
        )
        console.print()
        console.table(["", *(f"batch {j}" for j in range(width - 1))], rows, title=title, left=width)


def _batched(reading: Any) -> str:
    ids, copies = reading.ids.tolist(), reading.padding.tolist()
    parts, at = [], 0
    for size in reading.batches.tolist():
        pairs = zip(ids[at : at + size], copies[at : at + size], strict=True)
        parts.append(" ".join(f"{i}{'*' if c else ''}" for i, c in pairs) or "-")
        at += size
    return " | ".join(parts) if parts else "-"


def write_csv(plan: Plan, *, per_worker: bool) -> None:
    """Rows on stdout: epoch, rank (and worker), shard, first, samples, batches, padding, dropped."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    counts = plan.counts
    sums = {name: counts.of_rank(name) for name in COLUMNS[2:]}
    writer.writerow(["epoch", "rank", *(["worker"] if per_worker else []), *COLUMNS])
    for epoch in range(plan.request.epochs):
        for rank in range(plan.request.world.ranks):
            head = [int(counts.shard[epoch, rank]), int(counts.first[epoch, rank])]
            start = ["" if value < 0 else value for value in head]
            if per_worker:
                for worker in range(counts.samples.shape[2]):
                    numbers = [int(getattr(counts, name)[epoch, rank, worker]) for name in COLUMNS[2:]]
                    writer.writerow([epoch, rank, worker, *start, *numbers])
            else:
                writer.writerow([epoch, rank, *start, *(int(sums[c][epoch, rank]) for c in COLUMNS[2:])])
    sys.stdout.write(out.getvalue())


# -- inspect --world-size ------------------------------------------------------------------------------------


def show_floor_matrix(console: Console, matrix: FloorMatrix) -> None:
    """Sizes of every rank's shard in every epoch, with rotation and without; bytes and label skew when
    known."""
    epochs, ranks = matrix.shard.shape
    low, high = int(matrix.size.min()), int(matrix.size.max())
    large = int((matrix.size == high).sum())
    console.print(
        f"{show_count(matrix.n)} samples over {show_count(ranks)} ranks by the floor formula: "
        + show_count(low)
        + (" each" if low == high else f" or {show_count(high)} ({large:,} ranks)")
    )
    console.table(
        ["rank", *(f"epoch {e}" for e in range(min(epochs, 8))), "without rotation", "bytes", "label skew"],
        list(_matrix_rows(matrix)),
        title="Samples of a rank; with rotation a rank moves one shard on in every epoch",
        left=1,
    )  # fmt: skip
    if epochs > 8:
        console.print(f"... {epochs - 8:,} more epochs (--json)")


def _matrix_rows(matrix: FloorMatrix) -> Iterable[list[str]]:
    epochs = min(len(matrix.shard), 8)
    rotated = matrix.rotated[:epochs].T
    table = np.concatenate([rotated, matrix.size[:, None]], axis=1)
    if matrix.bytes is not None:
        table = np.concatenate([table, matrix.bytes[:, None]], axis=1)
    for number, (ranks, row) in enumerate(folded(table)):
        if number == MOST_ROWS:
            yield ["... (--json)"] + [""] * (epochs + 3)
            return
        size = show_size(row[epochs + 1]) if matrix.bytes is not None else ""
        skew = "" if matrix.skew is None else f"{float(matrix.skew[ranks].max()):.3f}"
        yield [spans(ranks), *(show_count(v) for v in row[: epochs + 1]), size, skew]


def floor_matrix_facts(matrix: FloorMatrix) -> dict[str, Any]:
    """The same for --json."""
    return {
        "samples": matrix.n,
        "world_size": int(matrix.shard.shape[1]),
        "epochs": [
            {"epoch": e, "samples": sizes, "shard": shards}
            for e, (sizes, shards) in enumerate(
                zip(matrix.rotated.tolist(), matrix.shard.tolist(), strict=True)
            )
        ],
        "without_rotation": matrix.size.tolist(),
        "first": matrix.first.tolist(),
        "bytes": None if matrix.bytes is None else matrix.bytes.tolist(),
        "label_skew": None if matrix.skew is None else matrix.skew.tolist(),
    }
