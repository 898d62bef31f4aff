#!/usr/bin/env python3
"""Kill a repack at random moments and start it again: the long form of tests/crash/test_kill.py.

    python scripts/stress_kill.py [--kills N] [SRC...]

Each SRC is repacked by itself, with its part of the kills. Without SRC it makes some: folders of 4 tars, 4 TFRecords
and 4 TFRecords under gzip, some MB each. Each round kills a run (two processes) with SIGKILL at a random moment, now
and then several times in a row, checks that everything under a final name is whole and that the input is untouched,
runs the same command again, and compares all bytes with an undisturbed run's.
"""

import argparse
import gzip
import hashlib
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.makers import sorted_tars, sorted_tfrecords  # noqa: E402


def digests(folder):
    """name -> digest of every file."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def states(path):
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return [(f, f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def made(folder):
    """Example sources."""
    tars = sorted_tars(folder / "tars", 4, 600, 4000)
    records = sorted_tfrecords(folder / "records", 4, 8000, 300)
    packed = folder / "gzip"
    packed.mkdir()
    for path in sorted(records.iterdir()):
        (packed / path.name).write_bytes(gzip.compress(path.read_bytes(), 1, mtime=0))
    return [tars, records, packed]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("sources", nargs="*", type=pathlib.Path, metavar="SRC")
    arguments.add_argument("--kills", type=int, default=200, metavar="N", help="[200]")
    arguments.add_argument("--shards", default="100", metavar="N")
    arguments.add_argument("--option", action="append", default=[], help="further options of repack")
    options = arguments.parse_args()
    moments = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        groups = options.sources or made(work)
        total = resumed = early = 0
        for source in groups:
            out = work / "out"

            def start(to, source=source):
                words = ["repack", str(source.resolve()), "-o", str(to), "--shards", options.shards, "--seed", "7"]
                return subprocess.Popen(
                    [sys.executable, "-m", "shardtool", *words, "--jobs", "2", "--json", *options.option],
                    cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip

            before = states(source)
            begun = time.monotonic()
            whole = start(work / "reference")
            while not (work / "reference" / ".shardtool").exists() and whole.poll() is None:
                time.sleep(0.002)
            working = time.monotonic()
            message = whole.communicate()[1]
            assert whole.returncode == 0, message
            lasts, busy = time.monotonic() - begun, time.monotonic() - working
            reference = digests(work / "reference")
            kills = 0
            while kills < -(-options.kills // len(groups)):
                shutil.rmtree(out, ignore_errors=True)
                for _ in range(moments.choice((1, 1, 1, 2, 4))):
                    run = start(out)
                    # The start of the interpreter is half of it: most kills come after it.
                    while moments.random() > 0.001 and not (out / ".shardtool").exists() and run.poll() is None:
                        time.sleep(0.002)
                    time.sleep(moments.random() * busy)
                    run.send_signal(signal.SIGKILL)
                    run.communicate()
                    if run.returncode != -signal.SIGKILL:
                        early += 1
                        continue
                    kills += 1
                    there = {n: d for n, d in digests(out).items() if not n.startswith(".shardtool/")}
                    assert there.items() <= reference.items(), "a file is half-written under its final name"
                    assert "manifest.json" not in there or there == reference, "a manifest without its shards"
                last = start(out)
                said, message = last.communicate()
                assert last.returncode == 0, message
                resumed += b'"resumed_shards": 0' not in said
                assert digests(out) == reference, "the rerun gave other bytes"
                assert states(source) == before, "the input changed"
            total += kills
            print(f"{source.name}: {kills} kills survived, a run takes {lasts:.1f} s", flush=True)
            shutil.rmtree(work / "reference")
        print(f"{total} kills survived; {resumed} reruns kept finished shards; {early} runs ended before the kill")


if __name__ == "__main__":
    main()
