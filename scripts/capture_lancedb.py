"""Writes tests/golden/plan/lance_truth.json.gz: ids of every rank of LanceDB's StreamingDataset.

    pip install lancedb==0.40.0 torch
    python scripts/capture_lancedb.py OUT

`rows`: for every n, splits, world size, shuffle, seed, epoch and clump the ids of all ranks, or the error.
The row with one split and one rank is the permutation itself. `claims`: the documented constraints, as they
were met.
"""

import gzip
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile

import lancedb
from lancedb.streaming import StreamingDataset


def ids(table, rank, world, **more):
    return [row["i"] for row in StreamingDataset(table, rank=rank, world_size=world, **more)]


def row_of(table, n, splits, world, shuffle, seed, epoch, clump):
    row = {
        "n": n,
        "fragments": 1,
        "num_splits": splits,
        "shuffle": shuffle,
        "shuffle_seed": seed,
        "epoch": epoch,
        "shuffle_clump_size": clump,
        "world_size": world,
    }
    more = {"num_splits": splits, "shuffle": shuffle, "shuffle_seed": seed, "epoch": epoch}
    try:
        return {
            **row,
            "ranks": [ids(table, r, world, shuffle_clump_size=clump, **more) for r in range(world)],
        }
    except ValueError as error:
        return {**row, "error": f"ValueError: {error}"}


def rows(base):
    found = []
    for n in (10, 1000):
        table = base.create_table(f"t{n}", [{"i": i} for i in range(n)])
        kinds = [
            (True, seed, epoch, clump) for seed in (0, 42) for epoch in (0, 1) for clump in (None, 1, 4, 16)
        ]
        for kind in [*kinds, (False, 0, 0, None)]:
            for splits, world in itertools.product((1, 2, 3, 4, 8, 24, 48), (1, 2, 3, 4, 8, 12, 24)):
                if splits % world == 0 and (kind[3] in (None, 4) or world == splits == 1):
                    found.append(row_of(table, n, splits, world, *kind))
    return found


def refusal(call):
    try:
        call()
    except ValueError as error:
        return f"ValueError: {error}"
    return "no error"


class Worker:
    """What get_worker_info() would say."""

    def __init__(self, number, of):
        self.id, self.num_workers = number, of


def claims(base):
    table = base.open_table("t1000")
    small = base.open_table("t10")
    dropped = {}
    for splits in (3, 24, 48):
        dropped[str(splits)] = sorted(
            set(range(1000)) - set(ids(table, 0, 1, num_splits=splits, shuffle=False))
        )
    odd = StreamingDataset(table, num_splits=4, worker_info_override=Worker(0, 3))
    return {
        "num_splits_not_divisible": refusal(lambda: ids(table, 0, 2, num_splits=7)),
        "num_splits_gt_rows": refusal(lambda: ids(small, 0, 1, num_splits=24)),
        "workers_not_divisible": refusal(lambda: list(odd)),
        "default_num_splits": StreamingDataset(table, world_size=4)._num_splits,
        "dropped_rows_no_shuffle": dropped,
        **workers(table),
    }


def workers(table):
    """First two batches of eight of one process, and of two workers."""
    parts = [
        [
            row["i"]
            for row in StreamingDataset(
                table, num_splits=8, shuffle_seed=1, worker_info_override=Worker(w, 2)
            )
        ]
        for w in range(2)
    ]
    whole = ids(table, 0, 1, num_splits=8, shuffle_seed=1)
    return {"loader_w0_first": [whole[:8], whole[8:16]], "loader_w2_first": [part[:8] for part in parts]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        base = lancedb.connect(folder)
        made = {
            "lancedb": importlib.metadata.version("lancedb"),
            "torch": importlib.metadata.version("torch"),
            "rows": rows(base),
            "claims": claims(base),
        }
    os.makedirs(sys.argv[1], exist_ok=True)
    data = json.dumps(made, separators=(",", ":")).encode()
    path = f"{sys.argv[1]}/lance_truth.json.gz"
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
        out.write(data)


if __name__ == "__main__":
    main()
