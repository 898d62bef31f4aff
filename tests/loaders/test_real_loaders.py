"""The real libraries, on random parameters that are in no golden file. Run with `-m real` where they are
installed (`pip install nvidia-dali-cuda120 lancedb torch webdataset datasets tfrecord tensorflow-cpu`; no GPU
is needed)."""

import contextlib
import importlib.util
import json
import random
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from shardtool.base.errors import UsageError
from shardtool.loaders import loader_class
from shardtool.schedule.world import World

pytestmark = pytest.mark.real
ROWS = 40


def rng(name):
    return random.Random(f"shardtool {name}")


def ours(loader, sizes, world, epochs=1):
    """[epoch][rank] -> list of batches of ids, or None where the loader refuses."""
    sizes = np.array(sizes)
    try:
        schedules = [loader.split(sizes, world, e) for e in range(epochs)]
    except UsageError:
        return None
    readings = [[s.rank(r) for r in range(world.ranks)] for s in schedules]
    return [[[r.batch(j).tolist() for j in range(len(r.batches))] for r in epoch] for epoch in readings]


# -- DALI ----------------------------------------------------------


def dali_source(kind, n, folder):
    """A reader node of n samples whose payload is the sample's number."""
    fn = pytest.importorskip("nvidia.dali").fn
    folder.mkdir()
    if kind == "file":
        names = []
        for i in range(n):
            (folder / f"{i:05}.bin").write_bytes(struct.pack("<i", i))
            names.append(str(folder / f"{i:05}.bin"))
        return lambda **more: fn.readers.file(files=names, **more)[0]
    with tarfile.open(folder / "a.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(n):
            (folder / "x").write_bytes(struct.pack("<i", i))
            tar.add(folder / "x", arcname=f"{i:05}.bin")
    path = str(folder / "a.tar")
    return lambda **more: fn.readers.webdataset(
        paths=[path], ext=["bin"], missing_component_behavior="error", **more
    )


def dali_epochs(source, flags, world, rank, epochs):
    """Batches of the framework iterator, as lists of ids."""
    dali = pytest.importorskip("nvidia.dali")
    pytest.importorskip("torch")
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @dali.pipeline_def(batch_size=world.batch_size, num_threads=1, device_id=None)
    def pipeline():
        data = source(
            name="r",
            num_shards=world.ranks,
            shard_id=rank,
            pad_last_batch=flags["pad_last_batch"],
            stick_to_shard=flags["stick_to_shard"],
            shuffle_after_epoch=flags["shuffle_after_epoch"],
        )
        return dali.fn.reinterpret(data, dtype=dali.types.INT32)

    loop = DALIGenericIterator(
        [pipeline()],
        ["id"],
        reader_name="r",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy[flags["last_batch_policy"].upper()],
    )
    return [[batch[0]["id"].reshape(-1).tolist() for batch in loop] for _ in range(epochs)]


@pytest.mark.parametrize("kind", ["webdataset", "file"])
def test_dali(kind, tmp_path):
    pytest.importorskip("nvidia.dali")
    draw = rng(f"dali {kind}")
    same = refused = 0
    for number in range(ROWS):
        flags = {
            "last_batch_policy": draw.choice(["fill", "drop", "partial"]),
            "pad_last_batch": draw.random() < 0.4,
            "stick_to_shard": draw.random() < 0.3,
            "shuffle_after_epoch": draw.random() < 0.15,
        }
        world = World(draw.randint(1, 9), batch_size=draw.randint(1, 11))
        n, rank = draw.randint(1, 90), draw.randrange(world.ranks)
        source = dali_source(kind, n, tmp_path / str(number))
        loader = loader_class("dali")(dali_reader=kind, **flags)
        expected = ours(loader, [n], world, 5)
        if expected is None:
            with pytest.raises((RuntimeError, ValueError)):
                dali_epochs(source, flags, world, rank, 5)
            refused += 1
            continue
        real = dali_epochs(source, flags, world, rank, 5)
        mine = [epoch[rank] for epoch in expected]
        if loader.opaque:
            real, mine = ([[len(b) for b in e] for e in side] for side in (real, mine))
        assert real == mine, (n, world, rank, flags)
        same += 1
    assert same > ROWS // 2 and refused


# -- torch ----------------------------------------------------------


def iterable(ids_of):
    """An IterableDataset whose worker w of k yields ids_of(w, k)."""
    data = pytest.importorskip("torch.utils.data")

    class Numbers(data.IterableDataset):
        def __iter__(self):
            info = data.get_worker_info()
            return iter(ids_of(0, 1) if info is None else ids_of(info.id, info.num_workers))

    return Numbers()


def loaded(dataset, world, **more):
    """Batches of a DataLoader as lists of ids."""
    data = pytest.importorskip("torch.utils.data")
    loop = data.DataLoader(
        dataset, batch_size=world.batch_size, num_workers=world.workers_per_rank, collate_fn=list, **more
    )
    return [[int(i) for i in batch] for batch in loop]


def random_world(draw, workers=3):
    return World(
        draw.randint(1, 5),
        workers_per_rank=draw.choice([0, 0, *range(1, workers + 1)]),
        batch_size=draw.randint(1, 5),
    )


@pytest.mark.parametrize("name", ["torch", "torch-stride"])
def test_torch_iterables(name):
    draw = rng(name)
    for _ in range(12):
        world, n, drop = random_world(draw), draw.randint(1, 50), draw.random() < 0.3
        loader = loader_class(name)(drop_last=drop)
        rank, lanes = draw.randrange(world.ranks), world.lanes_per_rank

        def part(worker, _workers, rank=rank, n=n, total=world.ranks * lanes, lanes=lanes):
            i = rank * lanes + worker
            if name == "torch-stride":
                return range(i, n, total)
            per = -(-n // total)
            return range(min(i * per, n), min((i + 1) * per, n))

        assert loaded(iterable(part), world, drop_last=drop) == ours(loader, [n], world)[0][rank]


def test_torch_distributed():
    data = pytest.importorskip("torch.utils.data")
    draw = rng("distributed")
    for _ in range(25):
        world, n = random_world(draw, 2), draw.randint(1, 60)
        drop, short, shuffled = draw.random() < 0.4, draw.random() < 0.4, draw.random() < 0.5
        loader = loader_class("torch-distributed")(drop_last=drop, shuffled=shuffled, drop_last_batch=short)
        expected = ours(loader, [n], world)
        if expected is None:
            continue
        for rank in range(world.ranks):
            sampler = data.DistributedSampler(
                range(n), world.ranks, rank, shuffle=shuffled, drop_last=drop, seed=3
            )
            real = loaded(range(n), world, sampler=sampler, drop_last=short)
            mine = expected[0][rank]
            if shuffled:
                torch = pytest.importorskip("torch")
                order = torch.randperm(n, generator=torch.Generator().manual_seed(3)).tolist()
                mine = [[order[i] for i in b] for b in mine]
            assert real == mine


# -- webdataset, tfrecord, datasets, lancedb, tf.data --------------------------------------------------------


@contextlib.contextmanager
def rank_in_environment(monkeypatch, rank, ranks):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    yield


def test_webdataset(tmp_path, monkeypatch):
    wds = pytest.importorskip("webdataset")
    draw = rng("webdataset")
    for number in range(10):
        world = random_world(draw)
        sizes = [draw.randint(1, 6) for _ in range(draw.randint(1, 12))]
        limit = draw.choice([None, None, 4])
        urls, key = [], 0
        for index, size in enumerate(sizes):
            urls.append(str(tmp_path / f"{number}-{index}.tar"))
            with wds.TarWriter(urls[-1]) as writer:
                for _ in range(size):
                    writer.write({"__key__": f"{key:05}", "cls": str(key)})
                    key += 1
        loader = loader_class("webdataset")(with_epoch=limit)
        rank = draw.randrange(world.ranks)
        with rank_in_environment(monkeypatch, rank, world.ranks):
            data = wds.WebDataset(
                urls, nodesplitter=wds.split_by_node, shardshuffle=False, empty_check=False
            ).map(number_of)
            data = data if limit is None else data.with_epoch(limit)
            assert loaded(data, world) == ours(loader, sizes, world)[0][rank], (sizes, world, limit)


def number_of(sample):
    return int(sample["__key__"])


def test_tfrecord(tmp_path):
    tfrecord = pytest.importorskip("tfrecord")
    draw = rng("tfrecord")
    for number in range(20):
        n, pieces = draw.randint(2, 40), draw.randint(1, 12)
        path, index = str(tmp_path / f"{number}.tfrecord"), str(tmp_path / f"{number}.idx")
        writer = tfrecord.TFRecordWriter(path)
        for i in range(n):
            writer.write({"i": (i, "int")})
        writer.close()
        tfrecord.tools.tfrecord2idx.create_index(path, index)
        mine = ours(loader_class("tfrecord")(), [n], World(pieces))[0]
        for rank in range(pieces):
            real = [
                int(r["i"][0])
                for r in tfrecord.tfrecord_loader(path, index, {"i": "int"}, shard=(rank, pieces))
            ]
            assert [[i] for i in real] == mine[rank]


class Numbers:
    """A source of Grain whose record i is i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def test_grain():
    grain = pytest.importorskip("grain.python")
    pick = rng("grain")
    for row in range(60):
        n, ranks = pick.randint(1, 80), pick.randint(1, 6)
        world = World(ranks, workers_per_rank=2 * (row % 20 == 0), batch_size=pick.randint(1, 7))
        flags = {name: pick.random() < 0.5 for name in ("drop_remainder", "drop_last")}
        flags["sampler"] = pick.choice(["index", "sequential"])
        got = []
        for rank in range(ranks):
            options = grain.ShardOptions(rank, ranks, flags["drop_remainder"])
            one = {"num_epochs": 1} if flags["sampler"] == "index" else {}
            kind = grain.IndexSampler if one else grain.SequentialSampler
            loader = grain.DataLoader(
                data_source=Numbers(n), sampler=kind(n, options, **one), worker_count=world.workers_per_rank,
                operations=[grain.Batch(world.batch_size, drop_remainder=flags["drop_last"])], shard_options=options,
            )  # fmt: skip
            got.append([batch.tolist() for batch in loader])
        assert ours(loader_class("grain")(**flags), [n], world) == [got], (n, world, flags)



def test_datasets():
    datasets = pytest.importorskip("datasets")
    from datasets.distributed import split_dataset_by_node

    def rows(starts, ends):
        for lo, hi in zip(starts, ends, strict=True):
            for i in range(lo, hi):
                yield {"i": i}

    draw = rng("datasets")
    for _ in range(14):
        world = random_world(draw, 2)
        sizes = [draw.randint(1, 6) for _ in range(draw.randint(2, 8))]
        ends = np.cumsum(sizes).tolist()
        starts = [0, *ends[:-1]]
        strategy = draw.choice(["auto", "auto", "shards", "examples"])
        loader = loader_class("hf")(strategy=strategy)
        expected = ours(loader, sizes, world)
        data = datasets.IterableDataset.from_generator(rows, gen_kwargs={"starts": starts, "ends": ends})
        if expected is None:
            with pytest.raises(ValueError):
                split_dataset_by_node(data, 0, world.ranks, strategy=strategy)
            continue
        rank = draw.randrange(world.ranks)
        part = split_dataset_by_node(data, rank, world.ranks, strategy=strategy)
        real = [[row["i"] for row in batch] for batch in batches_of_rows(part, world)]
        assert real == expected[0][rank], (sizes, world, strategy)
    for _ in range(10):
        n, ranks = draw.randint(1, 40), draw.randint(1, 7)
        mine = ours(loader_class("hf")(style="map"), [n], World(ranks))[0]
        whole = datasets.Dataset.from_dict({"i": list(range(n))})
        for rank in range(ranks):
            assert [[i] for i in split_dataset_by_node(whole, rank, ranks)["i"]] == mine[rank]


def batches_of_rows(dataset, world):
    data = pytest.importorskip("torch.utils.data")
    return data.DataLoader(
        dataset, batch_size=world.batch_size, num_workers=world.workers_per_rank, collate_fn=list
    )


def test_lancedb(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    streaming = pytest.importorskip("lancedb.streaming")
    table = None
    draw = rng("lancedb")
    base = lancedb.connect(str(tmp_path))
    refused = 0
    for number in range(30):
        n, ranks = draw.randint(1, 120), draw.randint(1, 6)
        splits = draw.choice([None, ranks, ranks * draw.randint(1, 5), draw.randint(1, 24)])
        flags = {
            "shuffled": draw.random() < 0.6,
            "num_splits": splits,
            "shuffle_clump_size": draw.choice([None, None, 3]),
        }
        if not flags["shuffled"]:
            flags["shuffle_clump_size"] = None
        table = base.create_table(f"t{number}", [{"i": i} for i in range(n)])
        more = {
            "shuffle": flags["shuffled"],
            "shuffle_seed": 5,
            "epoch": number % 3,
            "shuffle_clump_size": flags["shuffle_clump_size"],
        }

        def rows(rank, world, splits, table=table, more=more):
            made = streaming.StreamingDataset(table, rank=rank, world_size=world, num_splits=splits, **more)
            return [row["i"] for row in made]

        expected = ours(loader_class("lancedb")(**flags), [n], World(ranks))
        if expected is None:
            with pytest.raises(ValueError):
                rows(0, ranks, splits)
            refused += 1
            continue
        order = rows(0, 1, 1)
        for rank in range(ranks):
            assert rows(rank, ranks, splits) == [order[i] for b in expected[0][rank] for i in b]
    assert refused


# tensorflow and the tfrecord package register the same protobuf names, so it gets a process of its own.
TENSORFLOW = """
import json, sys
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute
rows = []
for row in json.load(sys.stdin):
    names, key = [], 0
    for index, size in enumerate(row["sizes"]):
        names.append(f"{row['folder']}-{index}.tfrecord")
        with tf.io.TFRecordWriter(names[-1]) as writer:
            for _ in range(size):
                writer.write(str(key).encode())
                key += 1
    ranks = []
    for rank in range(row["ranks"]):
        data = tf.data.Dataset.from_tensor_slices(names).interleave(
            tf.data.TFRecordDataset, cycle_length=row["cycle"], block_length=row["block"])
        options = tf.data.Options()
        policy = tf.data.experimental.AutoShardPolicy[row["policy"].upper()]
        options.experimental_distribute.auto_shard_policy = policy
        data = distribute._AutoShardDataset(data.with_options(options), row["ranks"], rank)
        data = data.batch(row["batch"])
        try:
            ranks.append([[int(i) for i in batch.numpy()] for batch in data])
        except tf.errors.InvalidArgumentError as error:
            ranks = str(error)
            break
    rows.append(ranks)
print(json.dumps(rows))
"""


def test_tfdata(tmp_path):
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed")
    draw = rng("tfdata")
    rows = [
        {
            "sizes": [draw.randint(1, 6) for _ in range(draw.randint(1, 8))],
            "folder": str(tmp_path / str(number)),
            "ranks": draw.randint(1, 4),
            "batch": draw.randint(1, 3),
            "cycle": draw.randint(1, 4),
            "block": draw.randint(1, 3),
            "policy": draw.choice(["auto", "file", "data", "off"]),
        }
        for number in range(25)
    ]
    done = subprocess.run(
        [sys.executable, "-c", TENSORFLOW], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    refused = 0
    for row, real in zip(rows, json.loads(done.stdout), strict=True):
        loader = loader_class("tfdata")(
            auto_shard_policy=row["policy"], cycle_length=row["cycle"], block_length=row["block"]
        )
        expected = ours(loader, row["sizes"], World(row["ranks"], batch_size=row["batch"]))
        if expected is None:
            assert "FILE based sharding" in real
            refused += 1
        else:
            assert real == expected[0], row
    assert 0 < refused < 20
