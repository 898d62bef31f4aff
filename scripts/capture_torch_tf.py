"""Writes the small golden files of tests/golden/plan: torch_wds_truth.json, tf_truth.json,
interleave.json.gz.

    pip install torch webdataset==1.0.2 tfrecord==1.14.6 tensorflow-cpu==2.21.0
    python scripts/capture_torch_tf.py OUT torch      # torch, webdataset and tfrecord
    python scripts/capture_torch_tf.py OUT tf         # tensorflow: a process of its own (protobuf names
    collide)

Only the entries that the loaders' tests read are made.
"""

import gzip
import json
import os
import random
import sys
import tempfile


def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"ERR {type(error).__name__}: {error}"


def torch_truth(folder):
    import tfrecord
    import torch
    import webdataset as wds
    from tfrecord.torch.dataset import TFRecordDataset

    path, index = f"{folder}/a.tfrecord", f"{folder}/a.idx"
    writer = tfrecord.TFRecordWriter(path)
    for i in range(25):
        writer.write({"i": (i, "int")})
    writer.close()
    tfrecord.tools.tfrecord2idx.create_index(path, index)
    with open(f"{folder}/one.idx", "w") as out, open(index) as lines:
        out.write(lines.readline())

    def records(k=None, of=None, idx=index):
        shard = None if k is None else (k, of)
        return [int(r["i"][0]) for r in tfrecord.tfrecord_loader(path, idx, {"i": "int"}, shard=shard)]

    two = torch.utils.data.DataLoader(TFRecordDataset(path, index, {"i": "int"}), batch_size=1, num_workers=2)
    urls = []
    for k in range(8):
        urls.append(f"{folder}/w{k}.tar")
        with wds.TarWriter(urls[-1]) as tar:
            tar.write({"__key__": f"{k:03}", "cls": str(k)})

    def shards(rank, ranks, worker=None, workers=None, **more):
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
        for name, value in (("WORKER", worker), ("NUM_WORKERS", workers)):
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, str(value))
        more = {"nodesplitter": wds.split_by_node, "empty_check": False, **more}
        return [int(s["cls"]) for s in wds.WebDataset(urls, shardshuffle=False, **more)]

    return {
        "versions": {"torch": torch.__version__, "webdataset": wds.__version__},
        "tfrecord shard=(k,4) with index: floor formula": [records(k, 4) for k in range(4)],
        "tfrecord shard ignored without index": [len(records(k, 4, None)) for k in range(4)],
        "tfrecord more shards than records (25 rec, 30 shards)": [len(records(k, 30)) for k in range(30)],
        "tfrecord index with a single line (np.loadtxt 1-D)": attempt(
            lambda: records(0, 1, f"{folder}/one.idx")
        ),
        "TFRecordDataset 2 workers with index: ids": [int(batch["i"][0]) for batch in two],
        "default nodesplitter with world_size 2": attempt(
            lambda: shards(0, 2, nodesplitter=wds.shardlists.single_node_only)
        ),
        "split_by_node ws=3: shards per rank": [shards(r, 3) for r in range(3)],
        "split_by_node ws=2 x 3 workers: shards per (rank,worker)": [
            shards(r, 2, w, 3) for r in range(2) for w in range(3)
        ],
        "more ranks than shards (8 shards, 9 ranks)": attempt(lambda: shards(8, 9, empty_check=True)),
        "more ranks than shards, empty_check=False": [shards(r, 9) for r in range(9)],
    }


def tf_truth():
    import tensorflow as tf

    def interleaved(sizes, cycle, block):
        first = [sum(sizes[:k]) for k in range(len(sizes))]
        data = tf.data.Dataset.from_tensor_slices(
            (tf.constant(first, tf.int64), tf.constant(sizes, tf.int64))
        )
        data = data.interleave(
            lambda lo, many: tf.data.Dataset.range(lo, lo + many), cycle_length=cycle, block_length=block
        )
        return [int(i) for i in data.as_numpy_iterator()]

    facts = {
        "version": tf.__version__,
        "shard(3,i) element i mod n": [
            [int(i) for i in tf.data.Dataset.range(10).shard(3, k).as_numpy_iterator()] for k in range(3)
        ],
        "interleave cycle_length=2 block_length=3": interleaved([25] * 4, 2, 3)[:20],
        "interleave cycle 4 block 1": interleaved([25] * 4, 4, 1)[:12],
    }
    draw, rows = random.Random(1), []
    for _ in range(60):
        sizes = [draw.choice([0, 1, 2, 3, 5, 8]) for _ in range(draw.randint(1, 7))]
        cycle, block = draw.randint(1, 5), draw.randint(1, 4)
        rows.append({"sizes": sizes, "cycle": cycle, "block": block, "ids": interleaved(sizes, cycle, block)})
    return facts, rows


def main():
    out, what = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    if what == "torch":
        with tempfile.TemporaryDirectory() as folder, open(f"{out}/torch_wds_truth.json", "w") as file:
            file.write(json.dumps(torch_truth(folder), indent=0) + "\n")
        return
    facts, rows = tf_truth()
    with open(f"{out}/tf_truth.json", "w") as file:
        file.write(json.dumps(facts, indent=0) + "\n")
    data = json.dumps(rows, separators=(",", ":")).encode()
    path = f"{out}/interleave.json.gz"
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
        packed.write(data)


if __name__ == "__main__":
    main()
