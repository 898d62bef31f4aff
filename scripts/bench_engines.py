"""How long the five kinds of repack take over a plain copy, by every write path and under little memory.

    python scripts/bench_engines.py --work /some/disk/bench               about 14 GB of free space
    python scripts/bench_engines.py --work /some/disk/bench --only a,d --rounds 3

As bench_repack.py: whole processes, warm input, everything ends with `sync -f`, copy and shardtool alternate, every
output is read back by code that shares nothing with shardtool. Prints medians of the ratios and their spread.

    direct    past the page cache (O_DIRECT)
    refused   as where the file system refuses that: through the page cache, early writeback
    256 MiB   --memory 256MiB, whatever engine it chooses
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tarfile

import bench_repack as bench
from make_data import frame

# name -> kind, samples, payload bytes
JOBS = {
    "a": ("tfrecord", 1_000_000, 1024),
    "b": ("tfrecord", 2_000_000, 184),
    "c": ("tfrecord", 200_000, 10_000),
    "d": ("tar", 100_000, 10 * 1024),
    "e": ("tar", 3_000, 1 << 20),
}
MODES = {
    "direct": ("auto", []),
    "refused": ("buffered", []),
    "256 MiB": ("auto", ["--memory", "256MiB"]),
}


def make(folder: str, kind: str, samples: int, size: int) -> None:
    """FILES files of random payloads; tar samples have a .cls too."""
    rng = random.Random(bench.SEED)
    os.makedirs(folder)
    for k in range(bench.FILES):
        numbers = range(k * samples // bench.FILES, (k + 1) * samples // bench.FILES)
        if kind == "tfrecord":
            with open(os.path.join(folder, f"part-{k:05d}-of-{bench.FILES:05d}.tfrecord"), "wb") as file:
                for _ in numbers:
                    file.write(frame(rng.randbytes(size)))
            continue
        with tarfile.open(os.path.join(folder, f"{k:06d}.tar"), "w", format=tarfile.USTAR_FORMAT) as archive:
            for i in numbers:
                bench._add(archive, f"{i:08d}.jpg", rng.randbytes(size))
                bench._add(archive, f"{i:08d}.cls", b"%d" % (1000 * i // samples))


def ways() -> list[bench.Way]:
    """Copy, and shardtool by every mode."""
    repack = [sys.executable, "-m", "shardtool", "repack", "--shards", str(bench.SHARDS), "--quiet"]
    made = [bench.Way("cp -r", lambda source, out: ["cp", "-r", source, out])]
    for name, (io, more) in MODES.items():
        command = ["env", f"SHARDTOOL_IO={io}", *repack, *more]
        made.append(bench.Way(name, lambda source, out, command=command: [*command, source, "-o", out]))
    return made


def measure(job: str, work: str, rounds: int) -> str:
    """One row of the table."""
    kind, samples, size = JOBS[job]
    source, out = os.path.join(work, job), os.path.join(work, "out")
    if not os.path.isdir(source):
        make(source, kind, samples, size)
    expected = bench.check(source, kind)
    copy, *ours = ways()
    ratios: dict[str, list[float]] = {way.name: [] for way in ours}
    for number in range(rounds):
        for way in ours:
            for one in [copy, way] if number % 2 == 0 else [way, copy]:
                bench.run(one, source, out)
                if number == 0 and bench.check(out, kind) != expected:
                    raise SystemExit(f"{way.name}: the output does not hold the samples of the input")
            ratios[way.name].append(way.seconds[-1] / copy.seconds[-1])
            print(f"{job} {way.name:10}{way.seconds[-1]:7.2f} s, cp {copy.seconds[-1]:6.2f} s", file=sys.stderr)
    shutil.rmtree(out)
    cells = [bench.spread(ratios[way.name]) for way in ours]
    seconds = " / ".join(f"{min(way.seconds):.2f}" for way in (copy, *ours))
    unit = "TFRecords" if kind == "tfrecord" else "tar samples"
    return f"| {samples:,} {unit} of {size:,} B | {' | '.join(cells)} | {seconds} |"


def main() -> None:
    words = argparse.ArgumentParser(description="Time every engine and write path against cp.")
    words.add_argument("--work", required=True, help="folder for data and outputs; the data are kept")
    words.add_argument("--only", default="a,b,c,d,e", help="jobs (default: %(default)s)")
    words.add_argument("--rounds", type=int, default=5, help="pairs for each mode (default: %(default)s)")
    options = words.parse_args()
    work = os.path.abspath(options.work)
    os.makedirs(work, exist_ok=True)
    lines = [measure(job, work, options.rounds) for job in options.only.split(",")]
    loads = f"load {min(bench.LOADS):.1f} to {max(bench.LOADS):.1f}"
    print(f"{bench.machine(work)}; {loads}\n")
    print(f"| Job | {' | '.join(MODES)} | Least seconds: cp / {' / '.join(MODES)} |\n|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
