"""How fast `simulate` is, against a plain Python loop and against MosaicML Streaming's simulator on the same work.

    python scripts/bench_simulate.py [--samples 10000000] [--loop-samples 1000000]

Prints samples per second, the median of three runs. MosaicML's simulator (`pip install mosaicml-streaming`) is run
where it is installed: its py1e order and entropy of one epoch against ours with score, classes and tests.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from shardtool.base.seeds import generator  # noqa: E402
from shardtool.jobs.simulate import Options, described, simulate  # noqa: E402
from shardtool.mixing import buffers, metrics  # noqa: E402


def median_of(work: Callable[[], object], times: int = 3) -> float:
    """Median seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def loop(n: int, capacity: int) -> list[int]:
    """The shuffle buffer as people write it."""
    held, out = list(range(capacity)), []
    for i in range(capacity, n):
        k = random.randrange(capacity)
        out.append(held[k])
        held[k] = i
    random.shuffle(held)
    return out + held


def show(name: str, n: int, seconds: float, against: float | None = None) -> None:
    """One line; `against`: samples/s of the other side."""
    rate = n / seconds
    ratio = "" if against is None else f"   {rate / against:6.1f} x"
    print(f"{name:<58} {seconds:8.2f} s  {rate / 1e6:8.2f} M samples/s{ratio}", flush=True)


def kernels(n: int, loop_n: int) -> None:
    """The rolling buffer alone, one core."""
    print("rolling buffer, one core")
    for capacity in (10_000, 100_000, 1_000_000):
        size = max(loop_n, 2 * capacity)
        slow = median_of(lambda c=capacity, s=size: loop(s, c), 1)
        show(f"  Python loop, n = {size:,}, buffer {capacity:,}", size, slow)
        fast = median_of(lambda c=capacity: buffers.rolling(n, c, generator(0)))
        show(f"  shardtool, n = {n:,}, buffer {capacity:,}", n, fast, size / slow)


def whole(n: int) -> None:
    """The command, interpreter start, second epoch, all numbers and curve included."""
    print("whole process, all numbers")
    words = [sys.executable, "-m", "shardtool", "simulate", "-n", str(n), "--loader", "torch", "--buffer", "100000"]
    words.append("--json")
    env = {**os.environ, "PYTHONPATH": ROOT}
    seconds = median_of(lambda: json.loads(subprocess.run(words, env=env, check=True, capture_output=True).stdout))
    show(f"  shardtool simulate, n = {n:,}, buffer 100,000", n, seconds)


def mosaic(n: int) -> None:
    """py1e over shards of 1,024, block 10,240, batches of 256."""
    print("MosaicML's py1e order and its quality, one epoch")
    try:
        from simulation.core.shuffle_quality import analyze_shuffle_quality_entropy
    except ImportError as error:
        print(f"  mosaicml-streaming is not installed ({error.name or error})")
        return
    logging.disable(logging.INFO)
    theirs = median_of(lambda: analyze_shuffle_quality_entropy("py1e", 1, 1, 1, 1, 256, 10_240, 1024, n, 0))
    show(f"  MosaicML's simulator, n = {n:,}", n, theirs)
    bounds = np.append(np.arange(0, n, 1024), n)

    def same() -> object:
        order = buffers.spread(n, bounds, 10_240, generator(0))
        return metrics.mosaic_entropy(order, order // 1024, -(-n // 1024))

    work = median_of(same)
    show(f"  shardtool, the same work, n = {n:,}", n, work, n / theirs)
    stored = described(n, 1024, None)
    ours = median_of(lambda: simulate(Options("mosaic-py1e", 10_240), stored))
    show(f"  shardtool, two epochs, all numbers, n = {n:,}", n, ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--loop-samples", type=int, default=1_000_000)
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}")
    kernels(options.samples, options.loop_samples)
    whole(options.samples)
    mosaic(min(options.samples, 10_240_000))


if __name__ == "__main__":
    main()
