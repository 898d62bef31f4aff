"""What a repack costs from other sources, and under other circumstances, against the least that could be done.

    python scripts/bench_sources.py --work /some/disk/bench --rounds 3
    python scripts/bench_sources.py --work /some/disk/bench --only gzip,folder --scale 0.1
    python scripts/bench_sources.py --work /some/disk/bench --only cgroup        as root; 17 GB of free space

    folder    60,000 files of 1 to 4 KB, against `tar cf`
    gzip      1,000,000 TFRecords of 1 KiB that gzip halves, against `zcat` of every file
    conversion  100,000 tf.train.Examples of 10 KiB into tars, and those tars into Examples, against `cp -r`
    onecore   1,000,000 TFRecords of 1 KiB on one core, `cp -r` too
    cold      the same on all cores, nothing of the source in the page cache (as root)
    growth    0.25, 1 and 4 million TFRecords of 1 KiB: seconds a million
    cgroup    800,000 TFRecords of 10 KB in a memory cgroup of 1 GiB that counts the page cache, as `cp -r` (as root)

As bench_repack.py: whole processes, warm input unless said, everything ends with `sync -f`, both alternate. Outputs are
compared with the source by `shardtool verify --against`, which reads every payload again; gzip and cgroup by their
number of samples only.
"""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import bench_repack as bench
from make_data import frame

SHARDTOOL = [sys.executable, "-m", "shardtool"]
REPACK = [*SHARDTOOL, "repack", "--shards", str(bench.SHARDS), "--quiet"]
CGROUP = "/sys/fs/cgroup/memory/shardtool-bench"
LIMIT = 1 << 30


# -- data ------------------------------------------------------------------------------------------


def records(folder: str, count: int, payload: Callable[[random.Random], bytes], suffix: str = "") -> None:
    """TFRecord files, under gzip if the suffix is .gz."""
    rng = random.Random(bench.SEED)
    os.makedirs(folder)
    for k in range(bench.FILES):
        path = os.path.join(folder, f"part-{k:05d}-of-{bench.FILES:05d}.tfrecord{suffix}")
        with gzip.open(path, "wb", compresslevel=6) if suffix else open(path, "wb") as file:
            for _ in range(k * count // bench.FILES, (k + 1) * count // bench.FILES):
                file.write(frame(payload(rng)))


def half_random(rng: random.Random) -> bytes:
    """1 KiB that gzip brings to about a half."""
    return rng.randbytes(512).hex().encode()


def example(rng: random.Random) -> bytes:
    """A tf.train.Example with 10 KiB of bytes and a label."""
    image, label = rng.randbytes(bench.IMAGE), rng.randrange(1000)
    return _field(_feature(b"image", _field(_field(image))) + _feature(b"label", _field3(label)))


def _field(data: bytes, tag: int = 0x0A) -> bytes:
    return bytes([tag]) + _varint(len(data)) + data


def _feature(name: bytes, value: bytes) -> bytes:
    return _field(_field(name) + _field(value, 0x12))


def _field3(number: int) -> bytes:
    return _field(_field(_varint(number)), 0x1A)


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def sample_files(folder: str, count: int) -> None:
    """Files of 1 to 4 KB in 60 folders."""
    rng = random.Random(bench.SEED)
    for k in range(count):
        inner = os.path.join(folder, f"{k % 60:02d}")
        os.makedirs(inner, exist_ok=True)
        with open(os.path.join(inner, f"{k:06d}.bin"), "wb") as file:
            file.write(rng.randbytes(rng.randrange(1000, 4000)))


def made(folder: str, make: Callable[[str], None]) -> str:
    """The folder, made anew unless it is there whole."""
    if not os.path.isdir(folder):
        shutil.rmtree(folder + ".part", ignore_errors=True)
        make(folder + ".part")
        os.rename(folder + ".part", folder)
    return folder


# -- runs ------------------------------------------------------------------------------------------


class Bench:
    """Pairs of runs, their ratios, and the rows of the table."""

    def __init__(self, work: str, rounds: int, scale: float) -> None:
        self.work, self.rounds, self.scale = work, rounds, scale
        self.out = os.path.join(work, "out")
        self.lines: list[str] = []

    def count(self, full: int) -> int:
        """Samples of a job at this scale."""
        return max(bench.FILES, int(full * self.scale))

    def time(self, command: list[str], source: str, before: Callable[[], None] | None, prefix: list[str]) -> float:
        """Seconds of one run."""
        if os.path.isdir(self.out):
            shutil.rmtree(self.out)
        elif os.path.exists(self.out):
            os.unlink(self.out)
        if before is None:
            subprocess.run(["cat", *_files(source)], stdout=subprocess.DEVNULL, check=True)
        subprocess.run(["sync", "-f", self.work], check=True)
        if before is not None:
            before()
        bench.LOADS.append(os.getloadavg()[0])
        started = time.monotonic()
        subprocess.run([*prefix, *command], check=True, stdin=subprocess.DEVNULL)
        subprocess.run(["sync", "-f", self.work], check=True)
        return time.monotonic() - started

    def pair(
        self, what: str, source: str, theirs: list[str], ours: list[str], samples: int, *, against: bool = True,
        before: Callable[[], None] | None = None, prefix: list[str] | None = None,
    ) -> None:  # fmt: skip
        """A row: the other tool, shardtool, and the ratio."""
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(self.rounds):
            for one in (0, 1) if number % 2 == 0 else (1, 0):
                seconds[one].append(self.time((theirs, ours)[one], source, before, prefix or []))
                if one and number == 0:
                    self.check(source, samples, against)
        ratios = [mine / its for its, mine in zip(*seconds, strict=True)]
        self.lines.append(
            f"| {what} | {bench.spread(seconds[0])} | {bench.spread(seconds[1])} | {bench.spread(ratios)} |"
        )
        print(self.lines[-1], file=sys.stderr)

    def check(self, source: str, samples: int, against: bool) -> None:
        """SystemExit unless the output has the samples of the source."""
        with open(os.path.join(self.out, "manifest.json"), encoding="utf-8") as file:
            found = json.load(file)["samples"]
        if found != samples:
            raise SystemExit(f"{source}: {found} samples came out, not {samples}")
        if against:
            command = [*SHARDTOOL, "verify", "--quiet", self.out, "--against", source]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _files(source: str) -> list[str]:
    return [path for path in glob.glob(os.path.join(source, "*")) if os.path.isfile(path)] or ["/dev/null"]


def copy(source: str, bed: Bench) -> list[str]:
    """The command of a plain copy."""
    return ["cp", "-r", source, bed.out]


def repack(source: str, bed: Bench, *more: str) -> list[str]:
    """The command of a repack."""
    return [*REPACK, *more, source, "-o", bed.out]


def folder(bed: Bench) -> None:
    n = bed.count(60_000)
    source = made(os.path.join(bed.work, "files"), lambda path: sample_files(path, n))
    subprocess.run(["tar", "cf", "/dev/null", source], check=True, stderr=subprocess.DEVNULL)  # warm
    theirs = ["tar", "-C", source, "-cf", bed.out, "."]
    bed.pair(f"folder of {n:,} files of 1 to 4 KB; `tar cf`", source, theirs, repack(source, bed), n)


def zipped(bed: Bench) -> None:
    n = bed.count(1_000_000)
    source = made(os.path.join(bed.work, "gz"), lambda path: records(path, n, half_random, ".gz"))
    one = 'mkdir "$2" && for f in "$1"/*; do zcat "$f" > "$2/${f##*/}.out"; done'
    theirs = ["sh", "-c", one, "sh", source, bed.out]
    bed.pair(f"{n:,} TFRecords of 1 KiB under gzip; `zcat`", source, theirs, repack(source, bed), n, against=False)
    halves = [
        f'for f in $(ls "$1" | awk NR%2=={k}); do zcat "$1/$f" > "$2/$f.out"; done &' for k in (0, 1)
    ]  # as many at a time as shardtool has workers
    theirs = ["sh", "-c", f'mkdir "$2"; {" ".join(halves)} wait', "sh", source, bed.out]
    bed.pair("the same; two `zcat` at a time", source, theirs, repack(source, bed), n, against=False)


def conversion(bed: Bench) -> None:
    n = bed.count(100_000)
    source = made(os.path.join(bed.work, "examples"), lambda path: records(path, n, example))
    ours = repack(source, bed, "--format", "tar")
    bed.pair(f"{n:,} Examples of 10 KiB into tar; `cp -r`", source, copy(source, bed), ours, n)
    tars = os.path.join(bed.work, "examples-tar")
    if not os.path.isdir(tars):
        subprocess.run([*REPACK, "--format", "tar", source, "-o", tars], check=True)
    ours = repack(tars, bed, "--format", "tfrecord")
    bed.pair(f"{n:,} tar samples of 10 KiB into Examples; `cp -r`", tars, copy(tars, bed), ours, n)


def _plain(bed: Bench, name: str, full: int, size: int) -> tuple[str, int]:
    n = bed.count(full)
    source = os.path.join(bed.work, f"{name}-{n}")
    return made(source, lambda path: records(path, n, lambda rng: rng.randbytes(size))), n


def one_core(bed: Bench) -> None:
    source, n = _plain(bed, "kib", 1_000_000, bench.RECORD)
    what = f"{n:,} TFRecords of 1 KiB on one core; `cp -r` on it"
    bed.pair(what, source, copy(source, bed), repack(source, bed), n, prefix=["taskset", "-c", "0"])


def drop_caches() -> None:
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")


def cold(bed: Bench) -> None:
    if os.geteuid():
        print("cold: skipped, only root may drop the page cache", file=sys.stderr)
        return
    source, n = _plain(bed, "kib", 1_000_000, bench.RECORD)
    what = f"{n:,} TFRecords of 1 KiB, cold; `cp -r`, cold"
    bed.pair(what, source, copy(source, bed), repack(source, bed), n, before=drop_caches)
    source, n = _plain(bed, "ten", 200_000, 10_000)
    what = f"{n:,} TFRecords of 10 KB, cold; `cp -r`, cold"
    bed.pair(what, source, copy(source, bed), repack(source, bed), n, before=drop_caches)


def growth(bed: Bench) -> None:
    for full in (250_000, 1_000_000, 4_000_000):
        source, n = _plain(bed, "kib", full, bench.RECORD)
        bed.pair(f"{n:,} TFRecords of 1 KiB; `cp -r`", source, copy(source, bed), repack(source, bed), n, against=False)


def cgroup(bed: Bench) -> None:
    if os.geteuid() or not os.path.isdir(os.path.dirname(CGROUP)):
        print("cgroup: skipped, needs root and a version 1 memory controller", file=sys.stderr)
        return
    os.makedirs(CGROUP, exist_ok=True)
    with open(CGROUP + "/memory.limit_in_bytes", "w", encoding="ascii") as file:
        file.write(str(LIMIT))
    source, n = _plain(bed, "ten", 800_000, 10_000)
    inside = ["sh", "-c", f'echo $$ > {CGROUP}/cgroup.procs && exec "$@"', "sh"]
    what = f"{n:,} TFRecords of 10 KB ({n * 10_016 / 1e9:.0f} GB) in 1 GiB; `cp -r` in it"
    bed.pair(
        what, source, copy(source, bed), repack(source, bed), n, against=False, before=drop_caches, prefix=inside
    )
    os.rmdir(CGROUP)


JOBS: dict[str, Callable[[Bench], None]] = {
    "folder": folder, "gzip": zipped, "conversion": conversion, "onecore": one_core, "cold": cold, "growth": growth,
    "cgroup": cgroup,
}  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description="Time repacks of other sources, and under other circumstances.")
    words.add_argument("--work", required=True, help="folder for data and outputs; the data are kept")
    words.add_argument("--only", default=",".join(JOBS), help="jobs (default: %(default)s)")
    words.add_argument("--rounds", type=int, default=3, help="pairs (default: %(default)s)")
    words.add_argument("--scale", type=float, default=1.0, help="times the samples (default: %(default)s)")
    options = words.parse_args()
    bed = Bench(os.path.abspath(options.work), options.rounds, options.scale)
    os.makedirs(bed.work, exist_ok=True)
    for job in options.only.split(","):
        JOBS[job](bed)
    print(bench.machine(bed.work) + f"; load {min(bench.LOADS):.1f} to {max(bench.LOADS):.1f}\n")
    print("| Job; the other | Seconds, the other | Seconds, shardtool | Ratio |\n|---|---|---|---|")
    print("\n".join(bed.lines))


if __name__ == "__main__":
    main()
