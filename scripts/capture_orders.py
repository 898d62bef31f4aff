"""Records the orders that real loaders deliver, for the tests of `simulate --exact`.

    python scripts/capture_orders.py tests/golden                 # every library that is installed
    python scripts/capture_orders.py recorded --only hf,torch      # some

Each file real_NAME.json maps a key to the ids 0..1999 in order of delivery. The keys say what was run (see the
functions below); tests/mixing/test_exact.py reads them. The releases that were recorded: NVIDIA DALI 2.4.0,
TensorFlow 2.21.0, torch 2.13.0, webdataset 1.0.2, datasets 5.2.0, Grain 0.2.18.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tarfile
import tempfile

N = 2000


def capture_dali(seeds: list[int]) -> dict[str, list[int]]:
    """f300_sK: webdataset reader, random_shuffle, initial_fill 300, seed K, two epochs; f5000, f1: other fills with
    seed 1; shard2: seed 3, num_shards 2, shard_id 0, 3,000 samples."""
    import io

    import nvidia.dali.fn as fn
    import nvidia.dali.types as types
    from nvidia.dali import pipeline_def

    with tempfile.TemporaryDirectory() as folder:
        tar, index = os.path.join(folder, "x.tar"), os.path.join(folder, "x.idx")
        lines = []
        with tarfile.open(tar, "w", format=tarfile.USTAR_FORMAT) as out:
            for i in range(N):
                info = tarfile.TarInfo(f"{i:06}.id")
                body = i.to_bytes(4, "little")
                info.size = len(body)
                lines.append(f"id {out.offset + 512} {len(body)} {info.name}")
                out.addfile(info, io.BytesIO(body))
        with open(index, "w", encoding="ascii") as out:
            out.write(f"v1.2 {N}\n" + "".join(line + "\n" for line in lines))

        def ids(count: int, fill: int, seed: int, shards: int = 1) -> list[int]:
            @pipeline_def(batch_size=100, num_threads=1, device_id=None)
            def made():
                return fn.readers.webdataset(
                    paths=[tar], index_paths=[index], ext=["id"], random_shuffle=True, initial_fill=fill, seed=seed,
                    num_shards=shards, shard_id=0, dtypes=[types.INT32],
                )[0]  # fmt: skip

            pipe = made()
            pipe.build()
            found: list[int] = []
            while len(found) < count:
                (batch,) = pipe.run()
                found += [int(batch.at(k)) for k in range(len(batch))]
            return found[:count]

        rows = {f"f300_s{seed}": ids(2 * N, 300, seed) for seed in seeds}
        rows |= {"f5000": ids(2 * N, 5000, 1), "f1": ids(2 * N, 1, 1), "shard2": ids(3000, 300, 3, shards=2)}
        return rows


def capture_dali_file(seeds: list[int]) -> dict[str, list[int]]:
    """FILL_SEED_SHARDS: file reader on 500 files, random_shuffle, shard_id 0, 1,000 samples."""
    import nvidia.dali.fn as fn
    from nvidia.dali import pipeline_def

    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, f"{i:05}.bin") for i in range(500)]
        for path in files:
            with open(path, "wb") as file:
                file.write(b"x")

        def ids(fill: int, seed: int, shards: int) -> list[int]:
            @pipeline_def(batch_size=25, num_threads=1, device_id=None)
            def made():
                return fn.readers.file(
                    files=files, labels=list(range(500)), random_shuffle=True, initial_fill=fill, seed=seed,
                    num_shards=shards, shard_id=0,
                )[1]  # fmt: skip

            pipe = made()
            pipe.build()
            return [int(i) for _ in range(40) for i in pipe.run()[0].as_array().ravel()]

        return {f"{f}_{s}_{k}": ids(f, s, k) for f, s, k in ((1, 5, 1), (64, 7, 1), (64, 8, 2), (1024, 3, 1))}


def capture_tf(seeds: list[int]) -> dict[str, list[int]]:
    """sK: Dataset.range(2000).shuffle(300, seed=K); rep: shuffle(300, seed=5).repeat(2); repfirst: repeat first."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    source = tf.data.Dataset.range(N)
    rows = {f"s{seed}": source.shuffle(300, seed=seed) for seed in seeds}
    rows |= {"rep": source.shuffle(300, seed=5).repeat(2), "repfirst": source.repeat(2).shuffle(300, seed=5)}
    return {key: [int(i) for i in made.as_numpy_iterator()] for key, made in rows.items()}


def capture_torch(seeds: list[int]) -> dict[str, list[int]]:
    """wds_B_I: webdataset's shuffle filter, bufsize B, initial I, random.Random(42); torch_300: IterDataPipe.shuffle
    with a buffer of 300 and set_seed(42). (Seeds other than 42: with _sK at the end.)"""
    rows: dict[str, list[int]] = {}
    from webdataset import filters

    for seed in [42, *(s for s in seeds if s not in (0, 42))]:
        end = "" if seed == 42 else f"_s{seed}"
        for size, initial in ((300, 30), (301, 31), (300, 300), (5000, 100)):
            made = filters._shuffle(iter(range(N)), size, initial, random.Random(seed))
            rows[f"wds_{size}_{initial}{end}"] = list(made)
    try:
        from torch.utils.data.datapipes.iter import IterableWrapper
    except ImportError:
        print("torch is not installed: torch_300 is left out", file=sys.stderr)
        return rows
    for seed in [42, *(s for s in seeds if s not in (0, 42))]:
        pipe = IterableWrapper(range(N)).shuffle(buffer_size=300).set_seed(seed)
        rows["torch_300" + ("" if seed == 42 else f"_s{seed}")] = [int(i) for i in pipe]
    return rows


def capture_hf(seeds: list[int]) -> dict[str, object]:
    """IterableDataset.shuffle(seed=42) over sources of one sample at a time: B300_default_interleave, B1_default with
    20 shards of 100; single_shard_B300; uneven_eE (kept in real_hf_uneven.json): 13 shards of 90 to 210 samples,
    buffer 300, epoch E."""
    import datasets

    def rows_of(starts, sizes):
        for start, size in zip(starts, sizes, strict=True):
            for i in range(start, start + size):
                yield {"i": i}

    def ids(sizes: list[int], buffer: int, epoch: int = 0, seed: int = 42) -> list[int]:
        starts = [0, *itertools.accumulate(sizes)][:-1]
        source = datasets.IterableDataset.from_generator(rows_of, gen_kwargs={"starts": starts, "sizes": sizes})
        made = source.shuffle(seed=seed, buffer_size=buffer)
        made.set_epoch(epoch)
        return [row["i"] for row in made]

    even, uneven = [100] * 20, [90 + 10 * k for k in range(13)]
    rows: dict[str, object] = {
        "B300_default_interleave": ids(even, 300),
        "B1_default": ids(even, 1),
        "single_shard_B300": ids([N], 300),
        "version": datasets.__version__,
    }
    for epoch in range(3):
        rows[f"uneven_e{epoch}"] = ids(uneven, 300, epoch)
    rows |= {f"B300_s{seed}": ids(even, 300, 0, seed) for seed in seeds}
    return rows


def capture_grain(seeds: list[int]) -> dict[str, list[int]]:
    """map: MapDataset.range(2000).shuffle(42); win: WindowShuffleIterDataset of 300, seed 42. (Seeds other than 42:
    with _sK at the end; two epochs of map.)"""
    import grain

    rows = {}
    for seed in [42, *(s for s in seeds if s != 42)]:
        end = "" if seed == 42 else f"_s{seed}"
        made = grain.MapDataset.range(N).shuffle(seed=seed)
        source = grain.MapDataset.range(N).to_iter_dataset()
        windows = grain.experimental.WindowShuffleIterDataset(source, window_size=300, seed=seed)
        rows[f"map{end}"] = [int(made[i]) % N for i in range(N if seed == 42 else 2 * N)]
        rows[f"win{end}"] = [int(i) for i in windows]
    return rows


CAPTURES = {
    "dali": capture_dali,
    "dali_file": capture_dali_file,
    "tf": capture_tf,
    "torch": capture_torch,
    "hf": capture_hf,
    "grain": capture_grain,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", help="folder for real_*.json")
    parser.add_argument("--only", help="names, separated by commas: " + ", ".join(CAPTURES))
    parser.add_argument("--seeds", default="0,2,4,6,8,10", help="seeds of the series (default: %(default)s)")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CAPTURES)
    if unknown := [name for name in names if name not in CAPTURES]:
        parser.error(f"no capture {', '.join(unknown)}")
    seeds = [int(seed) for seed in options.seeds.split(",")]
    os.makedirs(options.out, exist_ok=True)
    failed = 0
    for name in names:
        try:
            rows = CAPTURES[name](seeds)
        except ImportError as error:
            print(f"{name}: left out, {error.name or error} is not installed", file=sys.stderr)
            failed += bool(options.only)
            continue
        path = os.path.join(options.out, f"real_{name}.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(rows, file, separators=(",", ":"))
            file.write("\n")
        print(f"{path}: {', '.join(rows)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
