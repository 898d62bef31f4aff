"""Reading lanes of a world from real shards, states and decoders: everything of shardtool.torch that needs no torch."""

import importlib.util
import io
import itertools
import json
import pathlib
import sys

import numpy as np
import pytest

from shardtool import RepackOptions, repack
from shardtool.base.errors import DataError, StateError, UsageError
from shardtool.disk.samples import SampleReader, Stored
from shardtool.loaders.shardtool import ShardTool, splits_of
from shardtool.schedule.epoch_order import EpochOrder
from shardtool.schedule.world import World
from shardtool.torch import decode
from shardtool.torch.lanes import Lane, LaneReader
from shardtool.torch.state import adopted, elastic_state, identity_of

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "scripts"))
import make_data
import makers

EXTRAS = frozenset(("__id__", "__seed__"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    work = tmp_path_factory.mktemp("lanes")
    makers.sorted_tfrecords(work / "raw", 4, 97, 200)
    repack([str(work / "raw")], str(work / "out"), RepackOptions(shards=5, jobs=1))
    return Stored.open(work / "out")


def lane_of(stored, loader, world, rank, worker, epoch=0, seed=0, extras=EXTRAS):
    order = loader.order(stored.manifest.shard_samples, world, epoch, seed)
    lane = Lane(rank, world.ranks, worker, world.lanes_per_rank)
    return LaneReader(SampleReader(stored), order, lane, {}, extras)


def ids_of(batches):
    return [[sample["__id__"] for sample in batch] for _, batch in batches]


@pytest.mark.parametrize("shuffle", ["shards", "global", "none"])
@pytest.mark.parametrize("policy", ["exact", "drop", "pad"])
@pytest.mark.parametrize(
    ("ranks", "workers", "more"),
    [(1, 0, {}), (1, 3, {}), (3, 2, {}), (2, 3, {"num_splits": 8}), (2, 2, {"num_splits": 8, "turns": 2}),
     (4, 0, {"num_splits": 8, "turns": 2}), (2, 3, {"num_splits": 8, "turns": 4})],
)  # fmt: skip
def test_what_plan_says_is_what_is_read(stored, shuffle, policy, ranks, workers, more):
    loader = ShardTool(policy=policy, shuffle_by=shuffle, window=30, **more)
    world = World(ranks, workers_per_rank=workers, batch_size=8)
    schedule = loader.split(stored.manifest.shard_samples, world, 2, 5)
    for rank, worker in itertools.product(range(ranks), range(world.lanes_per_rank)):
        said = schedule.lane(rank, worker)
        read = ids_of(lane_of(stored, loader, world, rank, worker, 2, 5).batches(worker))
        assert read == [said.batch(j).tolist() for j in range(len(said.batches))]


def test_samples_are_those_of_their_number(stored):
    known = [
        payload
        for receipt in stored.manifest.shards
        for payload in makers.read_tfrecord(pathlib.Path(stored.file_of(receipt.name).decode()))
    ]
    lane = lane_of(stored, ShardTool(shuffle_by="global"), World(batch_size=10), 0, 0)
    got = [sample for _, batch in lane.batches(0) for sample in batch]
    assert len(got) == len(known) == 388
    assert all(sample["record"] == known[sample["__id__"]] for sample in got)


@pytest.mark.parametrize("shuffle", ["shards", "global"])
def test_memory_is_what_plan_says(stored, shuffle, monkeypatch):
    """A lane with one split holds `buffer` samples; with m splits, m windows."""
    monkeypatch.setattr("shardtool.disk.samples.GAP", 0)
    largest = 200 + 6 + 5 + 16
    for window, ranks, more, splits in ((16, 1, {}, 1), (32, 2, {}, 1), (16, 2, {"num_splits": 8}, 4)):
        loader = ShardTool(shuffle_by=shuffle, window=window, **more)
        lane = lane_of(stored, loader, World(ranks, batch_size=8), 0, 0)
        assert lane.order.window == window
        assert len(list(lane.batches(0))) == -(-388 // (8 * ranks))
        most = loader.buffered()[0] * splits * largest
        assert 0.8 * most < lane.most_held <= most


def test_a_window_is_read_at_once(stored):
    lane = lane_of(stored, ShardTool(window=64), World(batch_size=8), 0, 0)
    list(lane.batches(0))
    assert lane.reader.reads <= -(-388 // 64) + 4  # one a window, one more where it passes the end of a shard


@pytest.mark.parametrize("shuffle", ["shards", "global", "none"])
@pytest.mark.parametrize(
    ("ranks", "workers", "more"), [(1, 0, {}), (2, 3, {}), (2, 2, {"num_splits": 8}), (4, 3, {"num_splits": 8})]
)
def test_stopped_anywhere_it_goes_on(stored, shuffle, ranks, workers, more):
    loader = ShardTool(shuffle_by=shuffle, window=24, **more)
    world = World(ranks, workers_per_rank=workers, batch_size=8)
    for rank, worker in itertools.product(range(ranks), range(world.lanes_per_rank)):
        whole = list(lane_of(stored, loader, world, rank, worker).batches(worker))
        for stop in (1, 2, 5, len(whole) - 1, len(whole)):
            step = worker + stop * world.lanes_per_rank
            assert list(lane_of(stored, loader, world, rank, worker).batches(step)) == whole[stop:]


@pytest.mark.parametrize("turns", [1, 2])
def test_other_worlds_read_the_same_global_batches(stored, turns):
    """From the shards, with workers that share splits and workers that own them; resumed in another world."""

    def global_batches(ranks, workers, first=0):
        loader = ShardTool(num_splits=12, turns=turns, global_batch_size=24, window=20)
        world = World(ranks, workers_per_rank=workers, batch_size=24 // ranks)
        found = {}
        for rank in range(ranks):
            for worker in range(world.lanes_per_rank):
                for step, batch in lane_of(stored, loader, world, rank, worker).batches(first + worker):
                    found.setdefault(step, {})[rank] = batch
        return [[s for rank in sorted(found[step]) for s in found[step][rank]] for step in sorted(found)]

    whole = global_batches(1, 0)
    assert sorted(sample["__id__"] for batch in whole for sample in batch) == list(range(388))
    for ranks, workers in [(1, 2), (2, 0), (2, 3), (3, 2), (6, 1)]:
        assert global_batches(ranks, workers) == whole
        assert global_batches(ranks, workers, 5) == whole[5:]


@pytest.mark.parametrize(("count", "turns"), [(24, 1), (48, 1), (48, 2)])
def test_every_pair_of_worlds_goes_on(stored, count, turns):
    """Every world that the splits allow is stopped, and every other goes on from what its state says; samples are
    read from the shards."""
    batch, slots = 48, count // turns
    ranks = [r for r in range(1, slots + 1) if slots % r == 0]

    def global_batches(world, workers, first=0):
        loader = ShardTool(num_splits=count, turns=turns, global_batch_size=batch, window=20)
        world = World(world, workers_per_rank=workers, batch_size=batch // world)
        found = {}
        for rank, worker in itertools.product(range(world.ranks), range(world.lanes_per_rank)):
            for step, samples in lane_of(stored, loader, world, rank, worker).batches(first + worker):
                found.setdefault(step, {})[rank] = samples
        return [[s for rank in sorted(found[step]) for s in found[step][rank]] for step in sorted(found)]

    def state_of(world, workers):
        splits = splits_of(388, world, max(1, workers), global_batch=batch, num_splits=count, turns=turns,
                           policy="exact")  # fmt: skip
        return identity_of(splits, stored.fingerprint, 0, "shards", 20, "batch")

    whole = global_batches(1, 0)
    assert sorted(sample["__id__"] for step in whole for sample in step) == list(range(388))
    for place, before in enumerate(ranks):
        stop = 1 + place % (len(whole) - 1)
        workers = place % 3
        done = global_batches(before, workers)[:stop]
        state = json.loads(json.dumps(state_of(before, workers).state(0, stop)))
        for after in ranks:
            workers = (place + after) % 4
            epoch, step = state_of(after, workers).accept(state)
            assert (epoch, step) == (0, stop)
            assert done + global_batches(after, workers, step) == whole, (before, after)


def test_seeds_of_samples_are_of_seed_epoch_and_number_alone(stored):
    def seeds(ranks, epoch, seed):
        lanes = [lane_of(stored, ShardTool(), World(ranks, batch_size=8), r, 0, epoch, seed) for r in range(ranks)]
        return {s["__id__"]: s["__seed__"] for lane in lanes for _, batch in lane.batches(0) for s in batch}

    one = seeds(1, 0, 0)
    assert len(set(one.values())) == 388
    assert seeds(3, 0, 0) == one
    assert not set(one.values()) & set(seeds(1, 1, 0).values()) and not set(one.values()) & set(seeds(1, 0, 1).values())


# -- states -----------------------------------------------------------------------------------------------------------


def identity(**more):
    facts = {"ranks": 2, "lanes": 2, "batch": 16, "splits": None, "turns": None, "seed": 3, "shuffle": "shards",
             "window": 100, "policy": "exact", "print": "f" * 32, "unit": "batch", **more}  # fmt: skip
    splits = splits_of(388, facts["ranks"], facts["lanes"], global_batch=facts["batch"], num_splits=facts["splits"],
                       turns=facts["turns"], policy=facts["policy"])  # fmt: skip
    return identity_of(splits, facts["print"], facts["seed"], facts["shuffle"], facts["window"], facts["unit"])


def test_a_state_comes_back_through_json():
    state = json.loads(json.dumps(identity().state(4, 17)))
    assert identity().accept(state) == (4, 17)
    assert state["order"] == "feistel-splitmix64/1"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"print": "0" * 32}, "another manifest"),
        ({"seed": 4}, "another seed"),
        ({"shuffle": "global"}, "another shuffle"),
        ({"window": 200}, "another buffer"),
        ({"policy": "pad"}, "another policy"),
        ({"batch": 32}, "let batch_size x ranks be 32"),
        ({"unit": "sample"}, "another kind of step"),
        ({"lanes": 4}, "give num_splits=8"),
        ({"splits": 4, "turns": 1}, "give turns=1"),
    ],
)
def test_states_of_others_are_refused_by_name(change, says):
    with pytest.raises(StateError) as caught:
        identity().accept(identity(**change).state(0, 3))
    assert says in str(caught.value)


def test_damaged_states_are_refused():
    good = identity().state(0, 3)
    for name in good:
        with pytest.raises(StateError, match=r"no state of|no field"):
            identity().accept({k: v for k, v in good.items() if k != name})
    for name, value in (("step", -1), ("step", "3"), ("epoch", 1.5), ("num_splits", 0), ("turns", True)):
        with pytest.raises(StateError, match=name):
            identity().accept({**good, name: value})
    for odd in ({"shardtool.torch": 2}, {**good, "order": "feistel-splitmix64/2"}, {}, None, 7):
        with pytest.raises(StateError):
            identity().accept(odd)


def test_states_of_workers_become_one():
    """Steps 0..6 have been delivered by workers 0, 1, 2 in turn: 0, 3, 6 and 1, 4 and 2, 5."""
    made = identity(lanes=3)
    workers = [made.state(1, step, w, 3) for w, step in ((0, 9), (1, 7), (2, 8))]
    nested = {"_snapshot": {"_workers": {"worker_0": {"state": workers[0]}, "rest": workers[1:]}}, "n": 7}
    state = elastic_state(nested)
    assert (state["epoch"], state["step"], state["worker"], state["workers"]) == (1, 7, 0, 1)
    with pytest.raises(StateError, match="not stand at one step"):
        elastic_state([workers[0], made.state(1, 4, 1, 3), workers[2]])
    with pytest.raises(StateError, match="differ in 'seed'"):
        elastic_state([workers[0], {**workers[1], "seed": 9}])
    with pytest.raises(StateError, match="no state of"):
        elastic_state({"a": [1, 2]})


def test_splits_are_taken_over_where_they_suit():
    state = identity(ranks=4, lanes=3, batch=24).state(0, 2)
    assert adopted(state, 4) == adopted(state, 2) == adopted(state, 1) == (12, 3)
    with pytest.raises(StateError, match="3 ranks cannot") as caught:
        adopted(state, 3)
    assert "1, 2, 4 ranks" in str(caught.value)


# -- decoders ---------------------------------------------------------------------------------------------------------


def npy_of(array, **more):
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def test_decoders():
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    sample = {"txt": "süß".encode(), "cls": b" 7\n", "json": b'{"a": [1]}', "npy": npy_of(array), "raw": b"x"}
    chosen = decode.resolve({"txt": "text", "cls": "int", "json": "json", "npy": "npy", "raw": len, "none": "int"})
    decode.apply(sample, chosen, 3)
    assert (sample.pop("npy") == array).all()
    assert sample == {"txt": "süß", "cls": 7, "json": {"a": [1]}, "raw": 1}


def test_tf_train_example():
    record = make_data.example({"label": 5, "image": b"png"})
    assert decode.example(record) == {"label": [5], "image": [b"png"]}


def test_no_pickle_is_ever_loaded():
    data = npy_of(np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="field 'npy' of a sample cannot be decoded") as caught:
        decode.apply({"__key__": "k7", "npy": data}, decode.resolve({"npy": "npy"}), 0)
    assert "k7" in str(caught.value)
    for field, name in (("a", "text"), ("b", "int"), ("c", "json")):
        with pytest.raises(DataError, match=field):
            decode.apply({field: b"\xff\xfe!"}, decode.resolve({field: name}), 0)


def test_an_unknown_decoder():
    with pytest.raises(UsageError, match="none of text, int, json, npy"):
        decode.resolve({"a": "pickle"})


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_it_says_how_to_get_it():
    import shardtool.torch

    with pytest.raises(ImportError, match=r"shardtool\[torch\]"):
        _ = shardtool.torch.ShardDataset


def test_order_needs_no_list_of_samples():
    """10^15 samples: a batch of the last step costs nothing."""
    loader = ShardTool(shuffle_by="global", num_splits=8)
    splits = loader.splits(np.array([10**15 + 3]), World(2, batch_size=32))
    order = EpochOrder(np.array([10**15 + 3]), splits, "global", 100, 0, 0)
    split, row, sizes = splits.take(np.array([splits.steps(1, 2) - 1]), 1, 2)
    assert len(order.ids(split, row)[0]) == sizes.sum() > 0
