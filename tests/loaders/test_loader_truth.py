"""Every row that the real loaders were seen to do. The files are made by scripts/capture_*.py."""

import collections
import gzip
import json
import pathlib

import numpy as np
import pytest

from shardtool.base.errors import UsageError
from shardtool.loaders.dali import Dali
from shardtool.loaders.grain import Grain
from shardtool.loaders.lancedb import LanceDB
from shardtool.loaders.tfdata import TFData, interleaved
from shardtool.loaders.tfrecord import TFRecord
from shardtool.loaders.webdataset import WebDataset
from shardtool.schedule.world import World

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "plan"


def golden(name):
    path = GOLDEN / name
    data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    return json.loads(data)


def batches(reading):
    return [reading.batch(j).tolist() for j in range(len(reading.batches))]


def refuses(loader, n, world):
    try:
        loader.check(np.array([n]), world)
    except UsageError as error:
        return str(error)
    return None


def test_grain_batches():
    """Every batch of every rank; with a shuffle, how many, and that a rank's ids are of its own piece."""
    seen = collections.Counter()
    for row in golden("grain_truth.json.gz")["rows"]:
        shuffled = row["seed"] is not None
        loader = Grain(
            sampler=row["sampler"], drop_remainder=row["drop_remainder"], shuffled=shuffled, drop_last=row["drop_last"]
        )
        world = World(row["ranks"], workers_per_rank=row["workers"], batch_size=row["batch"])
        schedule = loader.split(np.array([row["n"]]), world)
        ours = [batches(schedule.rank(rank)) for rank in range(row["ranks"])]
        if not shuffled:
            assert ours == row["batches"], row
        else:
            assert [list(map(len, b)) for b in ours] == [list(map(len, b)) for b in row["batches"]]
            for rank, real in enumerate(row["batches"]):
                ids = [i for batch in real for i in batch]
                first = loader._start(row["n"], row["ranks"], np.array(rank))
                end = loader._start(row["n"], row["ranks"], np.array(rank + 1))
                assert len(set(ids)) == len(ids) and all(first <= i < end for i in ids)
        seen[row["sampler"], shuffled, row["workers"] > 0] += 1
    assert len(seen) == 5 and sum(seen.values()) == 400


def test_dali_streams():
    """The raw ids of consecutive batches of one pipeline, over a little more than three epochs."""
    seen = collections.Counter()
    for row in golden("dali_truth.json.gz")["rows"]:
        loader = Dali(
            pad_last_batch=bool(row["pad_last_batch"]),
            stick_to_shard=bool(row["stick_to_shard"]),
            shuffle_after_epoch=bool(row["shuffle_after_epoch"]),
            dali_reader=row["reader"],
        )
        world = World(row["num_shards"], batch_size=row["batch_size"])
        error = refuses(loader, row["n"], world)
        assert (error is None) == ("error" not in row), row
        if error is not None:
            words = (
                "cannot be both true"
                if row["stick_to_shard"] and row["shuffle_after_epoch"]
                else "at least equal"
            )
            assert words in error or words in row["error"]
            seen["refused"] += 1
            continue
        real = np.array(row["stream"])
        place = np.arange(len(real))
        ids, _ = loader._at(row["n"], world, np.full(len(real), row["shard_id"]), place)
        if not row["shuffle_after_epoch"]:
            assert ids.tolist() == row["stream"], row
            seen["exact"] += 1
            continue
        assert loader.opaque and row["meta"]["stick_to_shard"] == 1
        # The order is DALI's own; a pass over the shard still is as many samples, none of them twice.
        size = int(
            np.diff(np.array([row["shard_id"], row["shard_id"] + 1]) * row["n"] // row["num_shards"])[0]
        )
        length = loader.padded(row["n"], world) if row["pad_last_batch"] else size
        for start in range(0, len(real) - length + 1, length):
            piece = real[start : start + length]
            assert len(set(piece[:size].tolist())) == size
            assert (piece[size:] == piece[size - 1]).all()
        seen["opaque"] += 1
    assert seen == {"refused": 2352, "exact": 1504, "opaque": 752}


def test_dali_epoch_of_all_ranks_is_a_partition_after_shuffle():
    """With shuffle_after_epoch the first passes of all ranks together are every sample once."""
    groups = collections.defaultdict(list)
    for row in golden("dali_truth.json.gz")["rows"]:
        if row.get("stream") and row["shuffle_after_epoch"] and not row["pad_last_batch"]:
            groups[row["reader"], row["n"], row["num_shards"], row["batch_size"]].append(row)
    assert len(groups) > 50
    for (_, n, ranks, _), rows in groups.items():
        first = []
        for row in rows:
            size = (row["shard_id"] + 1) * n // ranks - row["shard_id"] * n // ranks
            first += row["stream"][:size]
        assert len(rows) == ranks and sorted(first) == list(range(n))


def test_dali_iterators():
    """Batches of the framework iterator over three epochs, and the constructions that raise."""
    seen = collections.Counter()
    for row in golden("dali_iter_truth.json.gz")["rows"]:
        loader = Dali(
            last_batch_policy=row["policy"].lower(),
            pad_last_batch=row["pad_last_batch"],
            stick_to_shard=row["stick_to_shard"],
            shuffle_after_epoch=row["shuffle_after_epoch"],
        )
        world, rank = World(row["num_shards"], batch_size=row["batch_size"]), row["shard_id"]
        error = refuses(loader, row["n"], world)
        assert (error is None) == ("epochs" in row), row
        if error is not None:
            assert "there is no data in the pipeline" in error
            seen["refused"] += 1
            continue
        counts = loader.counts(np.array([row["n"]]), world, 3)
        ours = [batches(loader.split(np.array([row["n"]]), world, e).rank(rank)) for e in range(3)]
        sizes = [[len(b) for b in epoch] for epoch in row["epochs"]]
        assert [[len(b) for b in epoch] for epoch in ours] == sizes, row
        assert counts.of_rank("samples")[:, rank].tolist() == [sum(s) for s in sizes]
        assert counts.of_rank("batches")[:, rank].tolist() == [len(s) for s in sizes]
        assert counts.zero_batches[:, rank].tolist() == [s.count(0) for s in sizes]
        if not loader.opaque:
            assert ours == row["epochs"], row
        seen["opaque" if loader.opaque else "exact"] += 1
    assert seen == {"refused": 84, "exact": 520, "opaque": 260}


def test_lancedb_layouts():
    """Every rank's ids, the permutation taken from the row with one split and one rank."""
    rows = golden("lance_truth.json.gz")["rows"]

    def kind(row):
        return tuple(
            row[k] for k in ("n", "fragments", "shuffle", "shuffle_seed", "epoch", "shuffle_clump_size")
        )

    order = {kind(r): np.array(r["ranks"][0]) for r in rows if r["num_splits"] == r["world_size"] == 1}
    seen = collections.Counter()
    for row in rows:
        loader = LanceDB(
            num_splits=row["num_splits"],
            shuffled=row["shuffle"],
            shuffle_clump_size=row["shuffle_clump_size"],
        )
        world, n = World(row["world_size"]), row["n"]
        error = refuses(loader, n, world)
        assert (error is None) == ("ranks" in row), row
        if error is not None:
            assert f"{row['num_splits']} splits but only {n} rows" in error
            seen["refused"] += 1
            continue
        schedule = loader.split(np.array([n]), world)
        ours = [order[kind(row)][schedule.rank(r).ids].tolist() for r in range(world.ranks)]
        assert ours == row["ranks"], row
        assert schedule.opaque == row["shuffle"]
        seen["exact"] += 1
    assert seen["exact"] == sum("ranks" in r for r in rows) and seen["refused"] > 0


def test_lancedb_claims():
    claims = golden("lance_truth.json.gz")["claims"]
    for loader, world, n, words in (
        (LanceDB(num_splits=7), World(2), 1000, claims["num_splits_not_divisible"]),
        (LanceDB(num_splits=24), World(1), 10, claims["num_splits_gt_rows"]),
        (LanceDB(num_splits=4), World(1, workers_per_rank=3), 1000, claims["workers_not_divisible"]),
    ):
        error = refuses(loader, n, world)
        assert error is not None
        for number in set(filter(str.isdigit, words.replace("(", " ").replace(")", " ").split())):
            assert number in error
    assert LanceDB().splits(World(4)) == claims["default_num_splits"] == 4
    for splits, dropped in claims["dropped_rows_no_shuffle"].items():
        loader = LanceDB(num_splits=int(splits), shuffled=False)
        read = set(loader.split(np.array([1000]), World(1)).rank(0).ids.tolist())
        assert sorted(set(range(1000)) - read) == dropped
    # two workers: their first batches hold the rows of two batches of a single process
    single = [set(b) for b in claims["loader_w0_first"]]
    double = [set(b) for b in claims["loader_w2_first"]]
    assert set.union(*single) == set.union(*double) and single[0] != double[0]


def test_tfrecord_package():
    truth = golden("torch_wds_truth.json")
    world = World(4)
    schedule = TFRecord().split(np.array([25]), world)
    assert [schedule.rank(r).ids.tolist() for r in range(4)] == truth[
        "tfrecord shard=(k,4) with index: floor formula"
    ]
    counts = TFRecord().counts(np.array([25]), World(30))
    assert counts.samples[0, :, 0].tolist() == truth["tfrecord more shards than records (25 rec, 30 shards)"]
    counts = TFRecord(index=False).counts(np.array([25]), world)
    assert counts.samples[0, :, 0].tolist() == truth["tfrecord shard ignored without index"]
    two = TFRecord(split_over="workers").split(np.array([25]), World(1, workers_per_rank=2)).rank(0)
    assert two.ids.tolist() == truth["TFRecordDataset 2 workers with index: ids"]
    assert "IndexError" in truth["tfrecord index with a single line (np.loadtxt 1-D)"]
    with pytest.raises(UsageError, match="IndexError"):
        TFRecord().check(np.array([5, 1]), world)


def test_webdataset():
    truth = golden("torch_wds_truth.json")

    def shards(world, number=8, **flags):
        loader = WebDataset(**flags)
        schedule = loader.split(np.ones(number, np.int64), world)
        return [
            schedule.lane(r, w).ids.tolist() for r in range(world.ranks) for w in range(world.lanes_per_rank)
        ]

    assert shards(World(3)) == truth["split_by_node ws=3: shards per rank"]
    assert (
        shards(World(2, workers_per_rank=3))
        == truth["split_by_node ws=2 x 3 workers: shards per (rank,worker)"]
    )
    assert shards(World(9)) == truth["more ranks than shards, empty_check=False"]
    for name, words in (
        ("default nodesplitter with world_size 2", "you need to add an explicit nodesplitter"),
        ("more ranks than shards (8 shards, 9 ranks)", "perhaps you have fewer shards than workers"),
    ):
        assert words in truth[name]
    with pytest.raises(UsageError, match="you need to add an explicit nodesplitter"):
        WebDataset(nodesplitter="single_node_only").check(np.ones(8, np.int64), World(2))
    notes = WebDataset().notes(np.ones(8, np.int64), World(9))
    assert any("perhaps you have fewer shards than workers" in note for note in notes)


def test_tfdata():
    truth = golden("tf_truth.json")
    schedule = TFData().split(np.array([10]), World(3))
    assert [schedule.rank(r).ids.tolist() for r in range(3)] == truth["shard(3,i) element i mod n"]
    files = np.full(4, 25)
    real = truth["interleave cycle_length=2 block_length=3"]
    assert interleaved(files, files, 2, 3)[: len(real)].tolist() == real
    real = truth["interleave cycle 4 block 1"]
    assert interleaved(files, files, 4, 1)[: len(real)].tolist() == real


def test_interleave_of_uneven_files():
    rows = golden("interleave.json.gz")
    assert len(rows) == 60
    for row in rows:
        sizes = np.array(row["sizes"])
        assert interleaved(sizes, sizes, row["cycle"], row["block"]).tolist() == row["ids"], row
