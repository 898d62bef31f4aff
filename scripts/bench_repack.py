"""How long a repack takes, against a plain copy and against what people use now.

    python scripts/bench_repack.py --work /some/disk/bench            full size: about 4 GB of free space
    python scripts/bench_repack.py --work /some/disk/bench --records 50000 --samples 5000 --rounds 2
    python scripts/bench_repack.py --work /some/disk/bench --only tar --ray other/bin/python    Ray Data as peer

Every run is a whole process, from an input that is in the page cache to an output that is on the disk: all of
them, the copy's too, end with `sync -f`. Copy and shardtool alternate, so a slow minute of the machine hits
both; a ratio is that of neighbours. Every output is read back by code of its own (struct and tarfile, nothing
of shardtool) and must hold the same multiset of samples as the input.

Prints a table in Markdown: docs/benchmarks.md says what it means.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import io
import os
import platform
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_data import frame

SHARDS = 16
FILES = 8
RECORD, IMAGE = 1024, 10 * 1024  # payload bytes
SEED = 7

Check = tuple[int, int]  # samples, sum of their digests modulo 2^256


# -- data ------------------------------------------------------------------------------------------


def make_tfrecord(folder: str, records: int) -> None:
    """FILES files of random records."""
    rng = random.Random(SEED)
    os.makedirs(folder)
    for k in range(FILES):
        with open(os.path.join(folder, f"part-{k:05d}-of-{FILES:05d}.tfrecord"), "wb") as file:
            for _ in range(k * records // FILES, (k + 1) * records // FILES):
                file.write(frame(rng.randbytes(RECORD)))


def make_tar(folder: str, samples: int) -> None:
    """FILES archives of random .jpg with a .cls each; 1,000 classes, sorted."""
    rng = random.Random(SEED)
    os.makedirs(folder)
    for k in range(FILES):
        with tarfile.open(os.path.join(folder, f"{k:06d}.tar"), "w", format=tarfile.USTAR_FORMAT) as archive:
            for i in range(k * samples // FILES, (k + 1) * samples // FILES):
                _add(archive, f"{i:08d}.jpg", rng.randbytes(IMAGE))
                _add(archive, f"{i:08d}.cls", b"%d" % (1000 * i // samples))


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


# -- checks that share no code with shardtool ------------------------------------------------------


def read_tfrecord(path: str) -> Iterator[bytes]:
    """Payloads of a TFRecord file; raises on a cut record."""
    with open(path, "rb") as file:
        while head := file.read(12):
            (length,) = struct.unpack("<Q", head[:8])
            data, tail = file.read(length), file.read(4)
            if len(head) != 12 or len(data) != length or len(tail) != 4:
                raise ValueError(f"{path}: cut record")
            yield data


def read_tar(path: str) -> Iterator[bytes]:
    """One string a sample: its fields by name, with their digests."""
    key, fields = "", {}
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            stem, ext = member.name.split(".", 1)
            if stem != key:
                if fields:
                    yield _joined(fields)
                key, fields = stem, {}
            content = archive.extractfile(member)
            assert content is not None and ext not in fields
            fields[ext] = hashlib.sha256(content.read()).digest()
            archive.members = []  # type: ignore[misc]  # or it would keep every header
    if fields:
        yield _joined(fields)


def _joined(fields: dict[str, bytes]) -> bytes:
    return b"".join(name.encode() + b"\0" + digest for name, digest in sorted(fields.items()))


def check(folder: str, kind: str) -> Check:
    """Samples in a folder's shards, and the sum of their digests."""
    read = {"tfrecord": read_tfrecord, "tar": read_tar}[kind]
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), f"*.{kind}")))
    count, total = 0, 0
    for path in paths:
        for sample in read(path):
            count += 1
            total += int.from_bytes(hashlib.sha256(sample).digest(), "big")
    return count, total % (1 << 256)


# -- the peers -------------------------------------------------------------------------------------

# The tfrecord package reads, Python shuffles in memory, the package's own frame arithmetic writes.
PEER_TFRECORD = """
import glob, random, struct, sys
from tfrecord.reader import tfrecord_iterator
from tfrecord.writer import TFRecordWriter
source, out, shards = sys.argv[1], sys.argv[2], int(sys.argv[3])
records = [bytes(r) for path in sorted(glob.glob(source + "/*.tfrecord")) for r in tfrecord_iterator(path)]
random.Random(0).shuffle(records)
n = len(records)
for k in range(shards):
    writer = TFRecordWriter(f"{out}/shard-{k:05d}-of-{shards:05d}.tfrecord")
    for record in records[k * n // shards:(k + 1) * n // shards]:
        length = struct.pack("<Q", len(record))
        writer.file.write(length)
        writer.file.write(TFRecordWriter.masked_crc(length))
        writer.file.write(record)
        writer.file.write(TFRecordWriter.masked_crc(record))
    writer.close()
"""

# webdataset reads, its shuffle holds everything (a smaller buffer would mix less), its ShardWriter writes.
PEER_TAR = """
import glob, random, sys
import webdataset
source, out, shards, samples = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
urls = sorted(glob.glob(source + "/*.tar"))
data = webdataset.WebDataset(urls, shardshuffle=False)
data = data.shuffle(samples, initial=samples, rng=random.Random(0))
most = -(-samples // shards)
with webdataset.ShardWriter(out + "/shard-%06d.tar", maxcount=most, maxsize=1e15, verbose=0) as sink:
    for sample in data:
        sink.write({k: v for k, v in sample.items() if not k.startswith("__") or k == "__key__"})
"""


# Ray Data reads, shuffles all rows, makes as many blocks as shards, and writes a file for each.
PEER_RAY = """
import glob, logging, os, sys
import ray
source, out, shards = sys.argv[1], sys.argv[2], int(sys.argv[3])
ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
ray.data.DataContext.get_current().enable_progress_bars = False
data = ray.data.read_webdataset(sorted(glob.glob(source + "/*.tar")), decoder=None)
data.random_shuffle(seed=0).repartition(shards).write_webdataset(os.path.abspath(out), encoder=None)
"""


# -- runs ------------------------------------------------------------------------------------------


@dataclass
class Way:
    """A way to do the job: its command for (source, out), and what its runs took."""

    name: str
    command: Callable[[str, str], list[str]]
    makes_out: bool = True
    seconds: list[float] = field(default_factory=list)
    peak: int = 0


LOADS: list[float] = []  # load average before every run: 0 to 1.5 on a quiet machine, from the benchmark's own work


def ways(kind: str, samples: int, ray: str | None = None) -> list[Way]:
    """Copy, shardtool and the peer, in this order. ray: a Python that has Ray, which is the peer of tars then."""
    python = sys.executable
    peer, name = {
        "tfrecord": (PEER_TFRECORD, "tfrecord package, shuffle in memory"),
        "tar": (PEER_TAR, "webdataset, shuffle of everything, ShardWriter"),
    }[kind]
    if ray is not None:
        peer, name = PEER_RAY, "Ray Data, random_shuffle"
    repack = [python, "-m", "shardtool", "repack", "--shards", str(SHARDS), "--quiet"]
    return [
        Way("cp -r", lambda source, out: ["cp", "-r", source, out]),
        Way("shardtool repack", lambda source, out: [*repack, source, "-o", out]),
        Way(
            name,
            lambda source, out: [ray or python, "-c", peer, source, out, str(SHARDS), str(samples)],
            makes_out=False,
        ),
    ]


def warm(folder: str) -> None:
    """Every input byte into the page cache."""
    for path in glob.glob(os.path.join(glob.escape(folder), "*")):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def run(way: Way, source: str, out: str) -> None:
    """One timed run, ended by `sync -f`; before it the input is warm and no write is pending."""
    shutil.rmtree(out, ignore_errors=True)
    if not way.makes_out:
        os.makedirs(out)
    warm(source)
    subprocess.run(["sync", "-f", os.path.dirname(out)], check=True)
    LOADS.append(os.getloadavg()[0])
    started = time.monotonic()
    peak = _peak_of(way.command(source, out))
    subprocess.run(["sync", "-f", out], check=True)
    way.seconds.append(time.monotonic() - started)
    way.peak = max(way.peak, peak)


def _peak_of(command: list[str]) -> int:
    """Run it; bytes of the largest resident set among it and its children. Raises when it fails."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss * 1024


def measure(
    kind: str, samples: int, work: str, rounds: int, peer_rounds: int, ray: str | None = None
) -> list[str]:
    """Make the data, run all ways, check all outputs; rows of the table."""
    source, out = os.path.join(work, kind), os.path.join(work, "out")
    if not os.path.isdir(source):
        {"tfrecord": make_tfrecord, "tar": make_tar}[kind](source, samples)
    expected = check(source, kind)
    if expected[0] != samples:
        raise SystemExit(f"{source} holds {expected[0]} samples, not {samples}: remove it")
    copy, ours, peer = ways(kind, samples, ray)
    for number in range(rounds):
        pair = [copy, ours] if number % 2 == 0 else [ours, copy]
        for way in [*pair, *([peer] if number < peer_rounds else [])]:
            run(way, source, out)
            if check(out, kind) != expected:
                raise SystemExit(f"{way.name}: the output does not hold the samples of the input")
            print(f"{kind:9}{way.name:50}{way.seconds[-1]:8.2f} s, load {LOADS[-1]:.1f}", file=sys.stderr)
    shutil.rmtree(out)
    return rows(kind, samples, copy, ours, peer)


def rows(kind: str, samples: int, copy: Way, ours: Way, peer: Way) -> list[str]:
    """Markdown rows: a way, its seconds, its time over the copy's of the same round, its peak memory."""
    label = {"tfrecord": f"{samples:,} TFRecords of 1 KiB", "tar": f"{samples:,} tar samples of 10 KiB"}[kind]
    lines = []
    for way in (copy, ours, peer):
        ratio = spread([mine / its for mine, its in zip(way.seconds, copy.seconds, strict=False)])
        peak = f"{way.peak / 2**20:,.0f} MiB"
        lines.append(f"| {label} | {way.name} | {spread(way.seconds)} | {ratio} | {peak} |")
    faster = [its / mine for mine, its in zip(ours.seconds, peer.seconds, strict=False)]
    lines.append(f"| {label} | *the peer's time over shardtool's* | | {spread(faster)} | |")
    return lines


def spread(values: Iterable[float]) -> str:
    """'median (min to max)'"""
    values = sorted(values)
    return f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def machine(work: str) -> str:
    """The machine in one line: processor, cores, memory, kernel, file system, Python."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        found = re.search(r"^model name\s*:\s*(.*)$", file.read(), re.M)
    command = ["df", "--output=fstype", work]
    system = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{found[1] if found else platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"{memory:.0f} GiB of memory, Linux {platform.release()}, {system}, "
        f"Python {platform.python_version()}"
    )


def main() -> None:
    words = argparse.ArgumentParser(description="Time shardtool repack against cp and against other tools.")
    add = words.add_argument
    add("--work", required=True, help="folder for data and outputs; the data are kept")
    add("--records", type=int, default=1_000_000, help="TFRecords of 1 KiB (default: %(default)s)")
    add("--samples", type=int, default=100_000, help="tar samples of 10 KiB (default: %(default)s)")
    add("--rounds", type=int, default=7, help="pairs of cp and shardtool (default: %(default)s)")
    add("--peer-rounds", type=int, default=3, help="rounds with the peer too (default: %(default)s)")
    add("--only", choices=["tfrecord", "tar"], help="one of the two formats")
    add("--ray", help="a Python that has ray[data] and webdataset: Ray Data is the peer of tars instead")
    options = words.parse_args()
    os.makedirs(options.work, exist_ok=True)
    lines = []
    for kind, samples in (("tfrecord", options.records), ("tar", options.samples)):
        if options.only in (None, kind):
            work = os.path.abspath(options.work)
            ray = options.ray if kind == "tar" else None
            lines += measure(kind, samples, work, options.rounds, options.peer_rounds, ray)
    print(machine(options.work) + f"; load {min(LOADS):.1f} to {max(LOADS):.1f}\n")
    print("| Data | Way | Seconds | Times the copy | Largest process |\n|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
