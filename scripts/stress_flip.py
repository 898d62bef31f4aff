#!/usr/bin/env python3
"""Flip bits at random places of an output and let verify look: the long form of a test in tests/jobs/test_verify.py.

    python scripts/stress_flip.py [--flips N] [--seed S]

Makes two outputs (tar and TFRecord, with exports), flips one bit at a time in shards, index files, exports and the
manifest, and runs verify. Prints, by kind of file, flips, found, and the bytes of the manifest that no check covers.
Ends with status 1 when a flip outside the manifest is not found, or a message is a traceback.
"""

import argparse
import collections
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tests.makers import sorted_tars, sorted_tfrecords
from tests.runner import shardtool

EXPORTS = {"tar": "dali-wds,wids,webdataset", "tfrecord": "dali-tfrecord,tfrecord"}


def kind_of(path, out):
    name = path.relative_to(out).as_posix()
    if name == "manifest.json":
        return "manifest"
    if name.startswith("index/"):
        return "index"
    return "shard" if name.endswith((".tar", ".tfrecord")) else "export"


def line_of(data, at):
    return data[data.rfind(b"\n", 0, at) + 1 : data.find(b"\n", at)].strip().decode("utf-8", "replace")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--flips", type=int, default=1000, metavar="N", help="of each format  [1000]")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    choose = random.Random(options.seed)
    made, found = collections.Counter(), collections.Counter()
    missed = []
    uncovered = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for format, make in (("tar", sorted_tars), ("tfrecord", sorted_tfrecords)):
            source, out = make(pathlib.Path(folder) / format / "in"), pathlib.Path(folder) / format / "out"
            done = shardtool("repack", source, "-o", out, "--shards", "4", "--export", EXPORTS[format])
            assert done.status == 0, done.err
            groups = collections.defaultdict(list)
            for path in sorted(p for p in out.rglob("*") if p.is_file()):
                groups[kind_of(path, out)].append(path)
            for _ in range(options.flips):
                kind = choose.choice(sorted(groups))
                path = choose.choice(groups[kind])
                data = path.read_bytes()
                at, bit = choose.randrange(len(data)), 1 << choose.randrange(8)
                path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
                done = shardtool("verify", out / "manifest.json", "-q")
                path.write_bytes(data)
                made[kind] += 1
                if done.status in (3, 4, 6):
                    found[kind] += 1
                elif done.status != 0:
                    missed.append(f"{path.name} byte {at} bit {bit}: status {done.status} {done.err}")
                elif kind == "manifest":
                    uncovered[line_of(data, at)] += 1
                else:
                    missed.append(f"{path.name} byte {at} bit {bit}: not found")
    for kind in sorted(made):
        print(f"{kind:10} {made[kind]:6} bits flipped, {found[kind]:6} found")
    if uncovered:
        print("of the manifest not covered:")
        for line, times in uncovered.most_common():
            print(f"  {times:4}  {line}")
    print(*missed, sep="\n", end="")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
