#!/usr/bin/env python3
"""Processor time and memory of the search for equal keys.

    python scripts/bench_keys.py [--keys N] [--memory BYTES]

Keys like `train/000/000123456` are made window by window, so what is measured is the search alone. The peak is that of
the process above what it has before the search.
"""

import argparse
import pathlib
import resource
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from shardtool.base.ragged import Ragged
from shardtool.base.units import parse_size, show_size
from shardtool.disk.keycheck import check_keys
from shardtool.layout.keys import ordinals

WINDOW = 1 << 16


def keys_of(count, twice=None):
    """Windows of keys; number `twice` has the key of number 0."""
    for lo in range(0, count, WINDOW):
        ids = np.arange(lo, min(lo + WINDOW, count), dtype=np.int64)
        if twice is not None and lo <= twice < lo + WINDOW:
            ids[twice - lo] = 0
        yield Ragged.glue(Ragged.repeat(b"Train/000/", len(ids)), ordinals(ids, count))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--keys", type=int, default=10**8, metavar="N", help="[100000000]")
    arguments.add_argument("--memory", type=parse_size, default=256 << 20, metavar="SIZE", help="[256MiB]")
    arguments.add_argument("--folder", default=tempfile.gettempdir(), help="of the unlinked file")
    options = arguments.parse_args()
    check_keys(lambda: keys_of(2 * WINDOW), 1 << 20)  # imports and allocator warm
    base = peak()
    begun = time.process_time()
    for _ in keys_of(options.keys):
        pass
    making = time.process_time() - begun
    print(f"(a pass of the benchmark to make keys: {making:.1f} s)")
    for what, twice in (("all different", None), ("the last one a repeat", options.keys - 1)):
        begun = time.process_time()
        found = check_keys(lambda twice=twice: keys_of(options.keys, twice), options.memory, options.folder.encode())
        taken = time.process_time() - begun
        assert (found.repeated is None) == (twice is None) and not found.case_collisions
        assert twice is None or found.repeated == (0, twice)
        above = f"{show_size(peak() - base)} of {show_size(options.memory)}"
        print(f"{options.keys:,} keys, {what}: {taken:.1f} s of processor time, peak {above}", flush=True)


if __name__ == "__main__":
    main()
