"""The whole of shardtool on real data in a minute: fetch, repack, verify, compare.

    python scripts/quickstart.py [FOLDER]      default folder: demo

Writes FOLDER/raw (digits sorted by class, as TFRecord and as tar) and FOLDER/mixed; run again it fetches nothing
and repacks again.
The tables at the end are counted by the tfrecord package and by Python's tarfile, not by shardtool.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator

import make_data

SHARDS, SEED = 16, 7
FIELD = {"tfrecord": "label", "tar": "cls"}
READER = {"tfrecord": "tfrecord", "tar": "webdataset"}
EXPORTS = {"tfrecord": "dali,tfrecord", "tar": "dali,wids,webdataset"}


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "demo"
    raw = os.path.join(folder, "raw")
    if not os.path.isdir(raw):
        say(f"Fetching 5,000 handwritten digits, writing them to {raw} sorted by class")
        part = f"{raw}.part"
        shutil.rmtree(part, ignore_errors=True)
        make_data.write_sorted(make_data.fetch(os.path.join(folder, "cache")), part)
        os.rename(part, raw)
    for kind in ("tfrecord", "tar"):
        source, out = os.path.join(raw, kind), os.path.join(folder, "mixed", kind)
        run("repack", source, "-o", out, "--shards", str(SHARDS), "--seed", str(SEED),
            "--label", FIELD[kind], "--export", EXPORTS[kind], "--overwrite")  # fmt: skip
        run("verify", out, "--against", source, "--reader", READER[kind])
    for kind in ("tfrecord", "tar"):
        say(f"Digits in every {kind} shard, before")
        show(os.path.join(raw, kind), kind)
        say(f"Digits in every {kind} shard, after")
        show(os.path.join(folder, "mixed", kind), kind)
    say(f"Done. The shards are in {os.path.join(folder, 'mixed')}.")


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def run(*words: str) -> None:
    """Say a command of shardtool and run it; ends this program when it fails."""
    say("$ shardtool " + " ".join(words))
    done = subprocess.run([sys.executable, "-m", "shardtool", *words], stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def labels(path: str, kind: str) -> Iterator[int]:
    """Labels of the samples of one shard."""
    if kind == "tar":
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".cls"):
                    content = archive.extractfile(member)
                    assert content is not None
                    yield int(content.read())
    else:
        from tfrecord.example_pb2 import Example
        from tfrecord.reader import tfrecord_iterator

        for record in tfrecord_iterator(path):
            yield Example.FromString(bytes(record)).features.feature["label"].int64_list.value[0]


def show(folder: str, kind: str) -> None:
    """A table: how many of each digit a shard holds."""
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), f"*.{kind}")))
    width = max(len(os.path.basename(path)) for path in paths)
    print(" " * width + "".join(f"{digit:5}" for digit in range(10)))
    for path in paths:
        count = Counter(labels(path, kind))
        print(os.path.basename(path).ljust(width) + "".join(f"{count[d] or '.':>5}" for d in range(10)))


if __name__ == "__main__":
    main()
