"""ShardDataset and ShardLoader in the real DataLoader: what plan says, stopped and resumed, in every kind of worker."""

import importlib.util
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from shardtool import RepackOptions, repack
from shardtool.base.errors import DataError, StateError, UsageError
from shardtool.loaders.shardtool import ShardTool
from shardtool.schedule.world import World

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
stateful = pytest.mark.skipif(importlib.util.find_spec("torchdata") is None, reason="needs torchdata")

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import makers  # noqa: E402

N = 388


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    work = tmp_path_factory.mktemp("torch")
    makers.sorted_tfrecords(work / "raw", 4, 97, 200)
    repack([str(work / "raw")], str(work / "out"), RepackOptions(shards=5, jobs=1))
    return str(work / "out")


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def as_ids(batch):
    return [sample["__id__"] for sample in batch]


def dataset(out, **more):
    from shardtool.torch import ShardDataset

    given = {"batch_size": 8, "seed": 5, "buffer": 30, "fields": ["__id__"], **more}
    return ShardDataset(out, **given)


def shard_loader(out, workers=0, context=None, persistent=False, **more):
    from shardtool.torch import ShardLoader

    return ShardLoader(dataset(out, **more), workers, collate_fn=as_ids, multiprocessing_context=context,
                       persistent_workers=persistent)  # fmt: skip


def plain_loader(out, workers, **more):
    """The DataLoader alone."""
    from torch.utils.data import DataLoader

    return DataLoader(dataset(out, **more), batch_size=None, num_workers=workers, collate_fn=as_ids)


def said(out, ranks, workers, epoch=0, **flags):
    """[rank] -> batches, as plan says."""
    shards = json.loads((pathlib.Path(out) / "manifest.json").read_text())["shards"]
    sizes = np.array([s["samples"] for s in shards])
    world = World(ranks, workers_per_rank=workers, batch_size=flags.pop("batch_size", 8))
    schedule = ShardTool(window=30, **flags).split(sizes, world, epoch, 5)
    readings = [schedule.rank(rank) for rank in range(ranks)]
    return [[r.batch(j).tolist() for j in range(len(r.batches))] for r in readings]


@pytest.mark.parametrize("shuffle", ["shards", "global", "none"])
@pytest.mark.parametrize("policy", ["exact", "drop", "pad"])
@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (2, 1), (2, 2), (3, 3), (1, 4)])
def test_the_dataloader_reads_what_plan_says(out, shuffle, policy, ranks, workers):
    wanted = said(out, ranks, workers, policy=policy, shuffle_by=shuffle)
    for rank in range(ranks):
        place = {"rank": rank, "world_size": ranks}
        assert list(plain_loader(out, workers, shuffle=shuffle, policy=policy, **place)) == wanted[rank]


@pytest.mark.parametrize(("ranks", "workers"), [(2, 1), (2, 3), (4, 2)])
def test_fixed_splits(out, ranks, workers):
    flags = {"num_splits": 12, "turns": 3}
    wanted = said(out, ranks, workers, batch_size=24 // ranks, **flags)
    for rank in range(ranks):
        got = list(plain_loader(out, workers, rank=rank, world_size=ranks, batch_size=24 // ranks, **flags))
        assert got == wanted[rank]


@pytest.mark.parametrize(("ranks", "workers", "batch"), [(1, 0, 5), (2, 2, 7), (3, 1, None)])
def test_single_samples_that_the_dataloader_batches(out, ranks, workers, batch):
    from torch.utils.data import DataLoader

    seen = []
    for rank in range(ranks):
        data = dataset(out, batch_size=None, rank=rank, world_size=ranks)
        for item in DataLoader(data, batch_size=batch, num_workers=workers):
            seen += item["__id__"].tolist() if batch else [item["__id__"]]
    assert sorted(seen) == list(range(N))


@pytest.mark.parametrize(
    ("context", "workers"),
    [("fork", 1), ("fork", 2), ("fork", 4), ("spawn", 1), ("spawn", 2), ("spawn", 4), ("forkserver", 2)],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_kinds_of_workers_over_epochs(out, context, persistent, workers):
    loader = shard_loader(out, workers, context, persistent)
    for epoch in range(2 if persistent else 1):
        assert loader.epoch == epoch
        assert list(loader) == said(out, 1, workers, epoch)[0]
    loader.set_epoch(1, 4)
    assert list(loader) == said(out, 1, workers, 1)[0][4:]


@pytest.mark.parametrize("workers", [0, 2])
def test_shard_loader_resumes_at_any_step(out, workers):
    whole = said(out, 1, workers)[0]
    for stop in (1, 2, 7, len(whole) - 1, len(whole)):
        loader = shard_loader(out, workers)
        batches = iter(loader)
        first = [next(batches) for _ in range(stop)]
        state = json.loads(json.dumps(loader.state_dict()))
        del batches
        again = shard_loader(out, workers)
        again.load_state_dict(state)
        assert (again.epoch, again.step) == (0, stop)
        assert first + list(again) == whole
        assert list(again) == said(out, 1, workers, 1)[0]


def loaders_of(out, world, count):
    """The loaders of all ranks of a world (ranks, workers) over fixed splits."""
    ranks, workers = world
    return [
        shard_loader(out, workers, num_splits=count, global_batch_size=48, batch_size=None, rank=r, world_size=ranks)
        for r in range(ranks)
    ]


def steps_of(batches, many):
    """The next global batches of iterators of all ranks."""
    return [flat(next(b, []) for b in batches) for _ in range(many)]


@pytest.mark.parametrize("count", [24, 48])
def test_another_world_goes_on_over_every_pair(out, count):
    """Every world that the splits allow is stopped after some step, and every other goes on from its state."""
    sizes = [ranks for ranks in range(1, count + 1) if count % ranks == 0]
    worlds = {ranks: loaders_of(out, (ranks, 0), count) for ranks in sizes}
    whole = steps_of([iter(loader) for loader in worlds[1]], 9)
    assert sorted(flat(whole)) == list(range(N))
    pairs = 0
    for place, before in enumerate(sizes):
        stop = 1 + place % 8  # another step for every world: the first of all, ..., all but the last
        first = loaders_of(out, (before, 0), count)
        done = steps_of([iter(loader) for loader in first], stop)
        state = json.dumps(first[0].state_dict())
        assert all(json.dumps(loader.state_dict()) == state for loader in first)
        for after in sizes:
            for loader in worlds[after]:
                loader.load_state_dict(json.loads(state))
            batches = [iter(loader) for loader in worlds[after]]
            assert done + steps_of(batches, 9 - stop) == whole, (before, after)
            assert steps_of(batches, 1) == [[]]
            pairs += 1
    assert pairs == {24: 64, 48: 100}[count]


@pytest.mark.parametrize(
    ("before", "after"), [((1, 0), (2, 2)), ((2, 2), (1, 3)), ((4, 1), (2, 0)), ((2, 3), (4, 0)), ((12, 0), (3, 2))]
)
@pytest.mark.parametrize("count", [24, 48])
def test_another_world_with_workers_goes_on(out, before, after, count):
    whole = steps_of([iter(loader) for loader in loaders_of(out, (1, 0), count)], 9)
    first = loaders_of(out, before, count)
    done = steps_of([iter(loader) for loader in first], 4)
    state = first[0].state_dict()
    assert all(loader.state_dict() == state for loader in first)
    second = loaders_of(out, after, count)
    for loader in second:
        loader.load_state_dict(state)
    assert done + steps_of([iter(loader) for loader in second], 5) == whole


def test_splits_are_taken_over_from_a_state(out):
    loader = shard_loader(out, 2, rank=0, world_size=2)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    alone = shard_loader(out, 3, batch_size=16)
    alone.load_state_dict(state)
    parts = said(out, 2, 2)
    assert list(alone) == [a + b for a, b in zip(parts[0][3:], parts[1][3:], strict=True)]
    with pytest.raises(StateError, match="let batch_size x ranks be 16"):
        shard_loader(out, 3).load_state_dict(state)
    with pytest.raises(StateError, match="3 ranks cannot go on"):
        shard_loader(out, 0, rank=0, world_size=3).load_state_dict(state)
    with pytest.raises(StateError, match="another seed"):
        shard_loader(out, 2, rank=0, world_size=2, seed=6).load_state_dict(state)


@stateful
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_stateful_dataloader(out, workers):
    from torchdata.stateful_dataloader import StatefulDataLoader

    from shardtool.torch import elastic_state

    def made(workers):
        # as many splits in every case, so that other numbers of workers can go on
        data = dataset(out, num_splits=1, turns=1)
        return data, StatefulDataLoader(data, batch_size=None, num_workers=workers, collate_fn=as_ids)

    whole = list(made(workers)[1])
    assert sorted(flat(whole)) == list(range(N))
    for stop in (1, 5, len(whole) - 1):
        _, loader = made(workers)
        batches = iter(loader)
        first = [next(batches) for _ in range(stop)]
        state = loader.state_dict()
        del batches
        _, again = made(workers)
        again.load_state_dict(state)
        assert first + list(again) == whole
        for others in (0, 2):
            data, other = made(others)
            data.load_state_dict(elastic_state(state))
            assert first + list(other) == whole
    # at the end of an epoch
    _, loader = made(workers)
    list(loader)
    state = loader.state_dict()
    data, again = made(workers)
    again.load_state_dict(state)
    data.set_epoch(1)
    assert sum(len(b) for b in again) in (0, N)


@stateful
def test_stateful_dataloader_of_single_samples(out):
    from torchdata.stateful_dataloader import StatefulDataLoader

    from shardtool.torch import elastic_state

    def made():
        return StatefulDataLoader(dataset(out, batch_size=None), batch_size=8, num_workers=2, collate_fn=as_ids)

    whole = list(made())
    loader = made()
    batches = iter(loader)
    first = [next(batches) for _ in range(5)]
    state = loader.state_dict()
    again = made()
    again.load_state_dict(state)
    assert first + list(again) == whole
    with pytest.raises(StateError, match="not stand at one step"):
        elastic_state(state)
    worker = next(iter(_dicts(state)))
    with pytest.raises(StateError, match="elastic_state"):
        dataset(out, batch_size=None, turns=2).load_state_dict(worker)


def _dicts(value):
    if isinstance(value, dict):
        if "shardtool.torch" in value:
            yield value
        else:
            for inner in value.values():
                yield from _dicts(inner)


TRAIN = """
import json, os, sys, time
from shardtool.torch import ShardDataset, ShardLoader
def ids(batch): return [s["__id__"] for s in batch]
out, log, state, workers = sys.argv[1:]
data = ShardDataset(out, batch_size=8, seed=5, buffer=30, fields=["__id__"])
loader = ShardLoader(data, int(workers), collate_fn=ids)
if os.path.exists(state):
    loader.load_state_dict(json.load(open(state)))
with open(log, "a") as file:
    while loader.epoch < 2:
        for batch in loader:
            time.sleep(0.05)
            # the step and its checkpoint are one line: what is torn is not counted
            file.write(json.dumps([batch, loader.state_dict()]) + "\\n")
            file.flush()
"""


def test_killed_while_training(out, tmp_path):
    """SIGKILL as soon as so many steps are written; the checkpoint is the last whole line."""
    log, state = tmp_path / "log", tmp_path / "state.json"
    wanted = said(out, 1, 2, 0)[0] + said(out, 1, 2, 1)[0]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for kill in (5, 30, 47, None):
        command = [sys.executable, "-W", "ignore", "-c", TRAIN, out, log, state, "2"]
        run = subprocess.Popen(list(map(str, command)), env=env)
        if kill is not None:
            end = time.monotonic() + 60
            while not log.exists() or len(log.read_text().splitlines()) < kill:
                assert time.monotonic() < end and run.poll() is None
                time.sleep(0.005)
            run.send_signal(signal.SIGKILL)
        run.wait(60)
        lines = log.read_text().split("\n")
        log.write_text("".join(line + "\n" for line in lines[:-1]))
        rows = [json.loads(line) for line in lines[:-1]]
        state.write_text(json.dumps(rows[-1][1]))
    assert run.returncode == 0
    assert [row[0] for row in rows] == wanted


def test_rank_of_the_environment_and_of_torch_distributed(out, tmp_path, monkeypatch):
    import torch.distributed as dist

    assert (dataset(out).rank, dataset(out).ranks) == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (dataset(out).rank, dataset(out).ranks) == (2, 4)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert (dataset(out).rank, dataset(out).ranks) == (0, 1)
    finally:
        dist.destroy_process_group()
    assert dataset(out, rank=1, world_size=3).rank == 1
    for wrong in ({"rank": 3, "world_size": 3}, {"rank": 0}):
        with pytest.raises(UsageError, match="rank"):
            dataset(out, **wrong)


def draw(_):
    import torch

    return random.random(), float(np.random.random()), float(torch.rand(1))  # noqa: NPY002 - others do


def test_workers_have_different_streams(out):
    """Also where every rank seeds torch alike, as trainers do; and another in every epoch."""
    import torch
    from torch.utils.data import DataLoader

    seen = []
    for rank in range(2):
        for epoch in range(2):
            torch.manual_seed(0)
            data = dataset(out, fields=None, decoders={"record": draw}, rank=rank, world_size=2)
            data.set_epoch(epoch)
            seen += [sample["record"] for batch in DataLoader(data, batch_size=None, num_workers=2) for sample in batch]
    assert len(seen) == 2 * N
    for place in range(3):
        assert len({float(one[place]) for one in seen}) > 0.99 * 2 * N  # torch.rand has 2**24 values


def resident(_):
    return int(re.search(r"VmRSS:\s*(\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) << 10


def test_memory_of_a_worker_is_its_buffer(tmp_path):
    """Resident, with samples of 64 KiB: a buffer of 800 takes 50 MiB more than one of 16, and no more."""
    from torch.utils.data import DataLoader

    makers.sorted_tfrecords(tmp_path / "raw", 2, 1000, 1 << 16)
    repack([str(tmp_path / "raw")], str(tmp_path / "out"), RepackOptions(shards=4, jobs=1))
    found = {}
    for buffer in (16, 800):
        data = dataset(str(tmp_path / "out"), buffer=buffer, fields=None, decoders={"record": resident})
        loader = DataLoader(data, batch_size=None, num_workers=2, prefetch_factor=1)
        found[buffer] = max(sample["record"] for batch in loader for sample in batch)
    extra = found[800] - found[16]
    assert 0.6 * 784 * (1 << 16) < extra < 1.25 * 784 * (1 << 16)


@pytest.mark.parametrize("workers", [0, 2])
def test_damage_stops_the_training(out, tmp_path, workers):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    shard = sorted(folder.glob("*.tfrecord"))[2]
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    loader = shard_loader(str(folder), workers, fields=None, check="crc")
    with pytest.raises((DataError, RuntimeError), match="is damaged") as caught:
        list(loader)
    assert shard.name in str(caught.value)


def test_what_cannot_be(out):
    from shardtool.torch import ShardLoader

    for more, says in (
        ({"batch_size": None, "num_splits": 4}, "num_splits needs batch_size"),
        ({"num_splits": 3}, "num_splits"),
        ({"shuffle": "all"}, "none of shards, global, none"),
        ({"buffer": 0}, "buffer must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"global_batch_size": 8}, "say the same"),
        ({"batch_size": None, "global_batch_size": 9, "rank": 0, "world_size": 2}, "give global_batch_size=8 or 10"),
        ({"fields": ["png"]}, "no sample has a field 'png'"),
    ):
        with pytest.raises(UsageError, match=says):
            dataset(out, **more)
    with pytest.raises(UsageError, match="belongs to ShardDataset"):
        ShardLoader(dataset(out), 0, shuffle=True)
    with pytest.raises(UsageError, match="needs batch_size"):
        ShardLoader(dataset(out, batch_size=None))
