"""Writes tests/golden/plan/dali_truth.json.gz and dali_iter_truth.json.gz: what NVIDIA DALI really reads.

    pip install nvidia-dali-cuda120 torch      # runs on a CPU
    python scripts/capture_dali.py OUT [--small]

The first file: raw ids of consecutive batches of one pipeline, for every reader and sharding flag. The
second: the batches of DALIClassificationIterator over three epochs.
"""

import argparse
import gzip
import itertools
import json
import os
import struct
import tarfile
import tempfile

import nvidia.dali as dali
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import fn, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIClassificationIterator

SHARDS, SIZES, BATCHES = (1, 2, 3, 4, 8), (1, 7, 10, 100), (1, 4)


def number(i):
    return struct.pack("<i", i)


def cuts(n):
    """Samples of every file: min(3, n) files."""
    files = min(3, n)
    return [range(k * n // files, (k + 1) * n // files) for k in range(files)]


def make_tfrecord(folder, n):
    def field(tag, payload):
        return bytes([tag, len(payload)]) + payload

    paths, indexes = [], []
    for k, ids in enumerate(cuts(n)):
        path, index, at = f"{folder}/{k}.tfrecord", f"{folder}/{k}.idx", 0
        with open(path, "wb") as out, open(index, "w") as lines:
            for i in ids:
                value = field(10, field(10, number(i)))  # bytes_list of one value
                entry = field(10, b"i") + field(18, value)
                record = field(10, field(10, entry))
                data = struct.pack("<Q", len(record)) + b"\0" * 4 + record + b"\0" * 4  # DALI checks no CRC
                out.write(data)
                lines.write(f"{at} {len(data)}\n")
                at += len(data)
        paths.append(path)
        indexes.append(index)
    feature = {"i": tfrec.FixedLenFeature((), tfrec.string, "")}
    return lambda **more: fn.readers.tfrecord(path=paths, index_path=indexes, features=feature, **more)["i"]


def make_webdataset(folder, n):
    paths = []
    for k, ids in enumerate(cuts(n)):
        paths.append(f"{folder}/{k}.tar")
        with tarfile.open(paths[-1], "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in ids:
                with open(f"{folder}/x", "wb") as out:
                    out.write(number(i))
                tar.add(f"{folder}/x", arcname=f"{i:05}.bin")
    return lambda **more: fn.readers.webdataset(paths=paths, ext=["bin"], **more)


def make_file(folder, n):
    files = []
    for i in range(n):
        files.append(f"{folder}/{i:05}.bin")
        with open(files[-1], "wb") as out:
            out.write(number(i))
    return lambda **more: fn.readers.file(files=files, **more)[0]


def make_mxnet(folder, n):
    """RecordIO: magic, length, then the image header (flag, label, two ids) and the payload, padded to 4."""
    with open(f"{folder}/a.rec", "wb") as out, open(f"{folder}/a.idx", "w") as lines:
        for i in range(n):
            lines.write(f"{i}\t{out.tell()}\n")
            record = struct.pack("<IfQQ", 0, float(i), i, 0) + number(i)
            out.write(struct.pack("<II", 0xCED7230A, len(record)) + record)
    return lambda **more: fn.readers.mxnet(path=[f"{folder}/a.rec"], index_path=[f"{folder}/a.idx"], **more)[
        0
    ]


MAKERS = {"tfrecord": make_tfrecord, "webdataset": make_webdataset, "file": make_file, "mxnet": make_mxnet}


def pipeline(source, batch, **more):
    @dali.pipeline_def(batch_size=batch, num_threads=1, device_id=None)
    def made():
        data = fn.reinterpret(source(name="r", **more), dtype=types.INT32)
        return data, data

    return made()


def streams(small):
    rows = []
    for reader, n in itertools.product(MAKERS, SIZES[:3] if small else SIZES):
        with tempfile.TemporaryDirectory() as folder:
            source = MAKERS[reader](folder, n)
            for shards, batch in itertools.product(SHARDS, BATCHES):
                for rank, stick, pad, after in itertools.product(range(shards), (0, 1), (0, 1), (0, 1)):
                    row = {
                        "reader": reader,
                        "n": n,
                        "num_shards": shards,
                        "batch_size": batch,
                        "shard_id": rank,
                        "stick_to_shard": stick,
                        "pad_last_batch": pad,
                        "shuffle_after_epoch": after,
                    }
                    rows.append({**row, **stream(source, row)})
    return rows


def stream(source, row):
    try:
        made = pipeline(
            source,
            row["batch_size"],
            num_shards=row["num_shards"],
            shard_id=row["shard_id"],
            stick_to_shard=bool(row["stick_to_shard"]),
            pad_last_batch=bool(row["pad_last_batch"]),
            shuffle_after_epoch=bool(row["shuffle_after_epoch"]),
        )
        made.build()
        meta, ids = {k: int(v) for k, v in made.reader_meta("r").items()}, []
        largest = -(-row["n"] // row["num_shards"])
        longest = -(-largest // row["batch_size"])
        for _ in range(3 * longest + 2):
            ids += [int(made_id[0]) for made_id in made.run()[0].as_array().reshape(-1, 1)]
        return {"meta": meta, "stream": ids}
    except RuntimeError as error:
        return {"error": " | ".join(str(error).split("\n"))}


def iterators():
    rows = []
    with tempfile.TemporaryDirectory() as top:
        for n in (10, 100, 7):
            os.mkdir(f"{top}/{n}")
            source = make_file(f"{top}/{n}", n)
            for shards, batch in itertools.product((1, 3, 4), BATCHES):
                for policy, pad, mode, rank in itertools.product(
                    LastBatchPolicy,
                    (False, True),
                    ((False, False), (False, True), (True, False)),
                    range(shards),
                ):
                    row = {
                        "n": n,
                        "num_shards": shards,
                        "batch_size": batch,
                        "policy": policy.name,
                        "pad_last_batch": pad,
                        "stick_to_shard": mode[0],
                        "shuffle_after_epoch": mode[1],
                        "shard_id": rank,
                    }
                    rows.append({**row, **epochs(source, row, policy)})
    return rows


def epochs(source, row, policy):
    try:
        made = pipeline(
            source,
            row["batch_size"],
            num_shards=row["num_shards"],
            shard_id=row["shard_id"],
            stick_to_shard=row["stick_to_shard"],
            pad_last_batch=row["pad_last_batch"],
            shuffle_after_epoch=row["shuffle_after_epoch"],
        )
        loop = DALIClassificationIterator([made], reader_name="r", auto_reset=True, last_batch_policy=policy)
        length = len(loop)
        real = [[batch[0]["data"].reshape(-1).tolist() for batch in loop] for _ in range(3)]
        return {"len0": length, "epochs": real}
    except RuntimeError as error:
        return {"error": str(error)}


def write(path, rows, note):
    data = json.dumps({"dali": dali.__version__, "note": note, "rows": rows}, separators=(",", ":"))
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
        out.write(data.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--small", action="store_true", help="leave out the data sets of 100 samples")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    write(f"{options.out}/dali_truth.json.gz", streams(options.small), "raw ids of consecutive batches")
    write(f"{options.out}/dali_iter_truth.json.gz", iterators(), "batches of three epochs")


if __name__ == "__main__":
    main()
