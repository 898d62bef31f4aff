"""Writes tests/golden/plan/grain_truth.json.gz: batches of every rank of Grain's DataLoader.

    pip install grain==0.2.18
    python scripts/capture_grain.py OUT

A row: the flags, and for every rank its batches of ids in the order of delivery, or the error. One process stands for
every rank in turn, with ShardOptions(rank, ranks), which is what ShardByJaxProcess makes of the process.
"""

import gzip
import importlib.metadata
import itertools
import json
import os
import sys

import grain.python as grain


class Numbers:
    """A source whose record i is i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def batches(n, rank, ranks, workers, batch, sampler, drop_remainder, drop_last, seed):
    """Of one rank; seed None: no shuffle."""
    options = grain.ShardOptions(rank, ranks, drop_remainder)
    if sampler == "index":
        made = grain.IndexSampler(n, options, shuffle=seed is not None, num_epochs=1, seed=seed)
    else:
        made = grain.SequentialSampler(n, options)
    loader = grain.DataLoader(
        data_source=Numbers(n), sampler=made, operations=[grain.Batch(batch, drop_remainder=drop_last)],
        worker_count=workers, shard_options=options,
    )
    return [part.tolist() for part in loader]


def row_of(n, ranks, *given):
    names = ("workers", "batch", "sampler", "drop_remainder", "drop_last", "seed")
    row = {"n": n, "ranks": ranks, **dict(zip(names, given, strict=True))}
    try:
        return {**row, "batches": [batches(n, rank, ranks, *given) for rank in range(ranks)]}
    except Exception as error:
        return {**row, "error": f"{type(error).__name__}: {error}"}


def rows():
    flags = [("index", False, None), ("index", True, None), ("sequential", False, None), ("sequential", True, None)]
    for n, ranks, batch, drop_last in itertools.product((1, 5, 24, 50), (1, 2, 3, 7), (1, 4), (False, True)):
        for sampler, drop_remainder, seed in [*flags, ("index", False, 1), ("index", True, 2)]:
            yield row_of(n, ranks, 0, batch, sampler, drop_remainder, drop_last, seed)
    # workers are processes: fewer of them
    for n, ranks, workers in ((50, 1, 3), (50, 3, 2), (5, 2, 4), (24, 2, 1)):
        for sampler, drop_last in itertools.product(("index", "sequential"), (False, True)):
            yield row_of(n, ranks, workers, 4, sampler, False, drop_last, None)


def main():
    made = {"grain": importlib.metadata.version("grain"), "rows": list(rows())}
    os.makedirs(sys.argv[1], exist_ok=True)
    data = json.dumps(made, separators=(",", ":")).encode()
    path = f"{sys.argv[1]}/grain_truth.json.gz"
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
        out.write(data)


if __name__ == "__main__":
    main()
