"""Reading shards for training: shardtool.torch against webdataset, wids and the tfrecord package, on the same shards.

    python scripts/bench_loader.py --work bench [--records 100000] [--samples 20000] [--rounds 3]

Needs torch, webdataset, wids and tfrecord. Every way reads all samples of the shards once through a torch DataLoader
in batches of 32, as bytes, with a shuffle buffer of 1,000 where it has one, and counts them; every run is a process of
its own. Prints a table: samples a second of the loop (start of interpreter and imports left out, start of workers
included), and the largest resident set of any one process.
"""

import argparse
import io
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tarfile
import time

BATCH, BUFFER = 32, 1000


def make(work, kind, count):
    """Shards of `count` samples with all indexes; unchanged when they are there."""
    import make_data

    out = work / f"{kind}-{count}"
    if out.exists():
        return out
    raw = work / f"{kind}-{count}.raw"
    raw.mkdir(parents=True, exist_ok=True)
    noise = os.urandom(1 << 20)
    for part in range(4):
        numbers = range(part * count // 4, (part + 1) * count // 4)
        if kind == "tfrecord":
            records = (make_data.example({"image": noise[i % 1000 : i % 1000 + 1000], "label": i}) for i in numbers)
            make_data.write_tfrecord(str(raw / f"{part}.tfrecord"), records)
        else:
            with tarfile.open(raw / f"{part}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
                for i in numbers:
                    for ext, data in (("jpg", noise[i % 1000 : i % 1000 + 10240]), ("cls", b"%d" % i)):
                        info = tarfile.TarInfo(f"{i:08}.{ext}")
                        info.size = len(data)
                        archive.addfile(info, io.BytesIO(data))
    exports = {"tfrecord": "tfrecord", "tar": "wids"}[kind]
    command = [sys.executable, "-m", "shardtool", "repack", str(raw), "-o", str(out), "--shards", "8", "-q"]
    subprocess.run([*command, "--export", exports], check=True)
    return out


def same(batch):
    """No collation: all ways deliver bytes."""
    return batch


def ours(out, workers, **more):
    """Batches of shardtool.torch."""
    from shardtool.torch import ShardDataset, ShardLoader

    data = ShardDataset(out, batch_size=BATCH, buffer=BUFFER, **more)
    return ShardLoader(data, workers, collate_fn=same)


def ours_global(out, workers):
    """The same with a full shuffle."""
    return ours(out, workers, shuffle="global")


def ours_checked(out, workers):
    """The same with every checksum."""
    return ours(out, workers, check="crc")


def webdataset(out, workers):
    """Its pipeline, no decoding."""
    import webdataset as wds
    from torch.utils.data import DataLoader

    urls = sorted(str(p) for p in out.glob("*.tar"))
    return DataLoader(wds.WebDataset(urls, shardshuffle=8).shuffle(BUFFER), BATCH, num_workers=workers, collate_fn=same)


def wids(out, workers):
    """Its map-style dataset with its own sampler: shards in random order, samples of a shard shuffled."""
    import wids as package
    from torch.utils.data import DataLoader

    index = next(p for p in out.glob("*.json") if p.name != "manifest.json")
    data = package.ShardListDataset(str(index), cache_dir=str(out / "cache"), keep=True, transformations=[])
    sampler = package.ShardedSampler(data, shufflefirst=True)
    return DataLoader(data, BATCH, sampler=sampler, num_workers=workers, collate_fn=same)


class Records:
    """Raw records by the tfrecord package; made into an IterableDataset where torch is imported."""

    def __new__(cls, files):
        import tfrecord
        from torch.utils.data import IterableDataset, get_worker_info

        class Reading(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                mine = files[info.id :: info.num_workers] if info else files
                records = (bytes(r) for f in mine for r in tfrecord.reader.tfrecord_iterator(f))
                return tfrecord.iterator_utils.shuffle_iterator(records, BUFFER)

        return Reading()


def tfrecord_package(out, workers):
    """Its iterator over raw records and its shuffle; whole files to workers."""
    from torch.utils.data import DataLoader

    files = sorted(str(p) for p in out.glob("*.tfrecord"))
    return DataLoader(Records(files), BATCH, num_workers=workers, collate_fn=same)


WAYS = {
    "tfrecord": {
        "shardtool.torch, windows of 1,000": ours,
        "shardtool.torch, windows of 1,000, check='crc'": ours_checked,
        "shardtool.torch, full shuffle": ours_global,
        "tfrecord package, buffer of 1,000": tfrecord_package,
    },
    "tar": {
        "shardtool.torch, windows of 1,000": ours,
        "shardtool.torch, full shuffle": ours_global,
        "webdataset, buffer of 1,000": webdataset,
        "wids, ShardedSampler": wids,
    },
}


def one(kind, way, out, workers):
    """A run in this process: prints samples, seconds and peak bytes as JSON."""
    import torch  # noqa: F401 - imported before the clock starts

    loader = WAYS[kind][way](pathlib.Path(out), workers)
    begin, seen = time.perf_counter(), 0
    for batch in loader:
        seen += len(batch)
    seconds = time.perf_counter() - begin
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps([seen, seconds, peak << 10]))


def main():
    """Runs all ways in turn, round after round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="bench")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, way, out, workers = given.one
        return one(kind, way, out, int(workers))
    work = pathlib.Path(given.work)
    print("| Data | Way | Workers | Samples a second | Largest process |\n|---|---|---|---|---|")
    for kind, count in (("tfrecord", given.records), ("tar", given.samples)):
        out = make(work, kind, count)
        found = {}
        for _ in range(given.rounds):
            for workers in (1, 2):
                for way in WAYS[kind]:
                    command = [sys.executable, "-W", "ignore", __file__, "--one", kind, way, str(out), str(workers)]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        sys.exit(f"{way}: {done.stderr}")
                    seen, seconds, peak = json.loads(done.stdout.splitlines()[-1])
                    if seen != count:
                        sys.exit(f"{way} with {workers} workers delivered {seen} of {count} samples")
                    found.setdefault((way, workers), []).append((seen / seconds, peak))
        size = "1 KiB" if kind == "tfrecord" else "10 KiB"
        for (way, workers), runs in found.items():
            speeds = [speed for speed, _ in runs]
            middle, low, high = statistics.median(speeds), min(speeds), max(speeds)
            peak = max(peak for _, peak in runs) >> 20
            speed = f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"
            print(f"| {count:,} {kind} samples of {size} | {way} | {workers} | {speed} | {peak:,} MiB |", flush=True)
    return None


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
