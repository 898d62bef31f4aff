"""What holds for every loader of LOADERS: counts equal the ids, closed forms equal brute force."""

import dataclasses
import time
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import UsageError
from shardtool.loaders import LOADERS, SYNONYMS, loader_class
from shardtool.schedule.world import World


def values(kind):
    """Values worth trying of a field's type."""
    arguments = typing.get_args(kind)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(1, 5)
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(arguments)
    if int in arguments:
        return st.sampled_from([None, 1, 2, 3, 4, 6, 12, 24])
    literal = next(a for a in arguments if typing.get_origin(a) is typing.Literal)
    return st.sampled_from([None, *typing.get_args(literal)])


def settings_of(name):
    cls = loader_class(name)
    hints = typing.get_type_hints(cls)
    flags = {f.name: values(hints[f.name]) for f in dataclasses.fields(cls)}
    return st.fixed_dictionaries({}, optional=flags).map(lambda given: cls(**given))


worlds = st.builds(
    World, ranks=st.integers(1, 6), workers_per_rank=st.integers(0, 4), batch_size=st.integers(1, 6)
)
shard_lists = st.lists(st.integers(0, 12), min_size=1, max_size=9).filter(any).map(np.array)


def materialised(schedule, rank, loader, world, counts, epoch):
    """Checks a rank's ids against the counts; returns them."""
    for worker in range(loader.lanes_per_rank(world)):
        lane = schedule.lane(rank, worker)
        assert len(lane.ids) == len(lane.padding) == lane.batches.sum()
        assert len(lane.ids) == counts.samples[epoch, rank, worker]
        assert len(lane.batches) == counts.batches[epoch, rank, worker]
        assert lane.padding.sum() == counts.padding[epoch, rank, worker]
    reading = schedule.rank(rank)
    assert len(reading.ids) == counts.samples[epoch, rank].sum()
    assert (reading.batches == 0).sum() == counts.zero_batches[epoch, rank]
    ends = np.cumsum(reading.batches)
    copies = (
        [
            bool(m) and p.all()
            for m, p in zip(reading.batches, np.split(reading.padding, ends[:-1]), strict=True)
        ]
        if len(ends)
        else []
    )
    assert sum(copies) == counts.copy_batches[epoch, rank]
    assert counts.first[epoch, rank] == (reading.ids[0] if len(reading.ids) else -1)
    return reading


@pytest.mark.parametrize("name", LOADERS)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_counts_are_the_ids(name, data):
    loader, world = data.draw(settings_of(name)), data.draw(worlds)
    shard_samples, epochs = data.draw(shard_lists), data.draw(st.integers(1, 4))
    n = int(shard_samples.sum())
    try:
        counts = loader.counts(shard_samples, world, epochs)
        schedules = [loader.split(shard_samples, world, e) for e in range(epochs)]
    except UsageError:
        return
    ever = set()
    for epoch, schedule in enumerate(schedules):
        seen = []
        for rank in range(world.ranks):
            seen.append(materialised(schedule, rank, loader, world, counts, epoch).ids)
        ids = np.concatenate(seen)
        assert not len(ids) or (ids.min() >= 0 and ids.max() < n)
        if not counts.expected:
            assert counts.distinct[epoch] == len(np.unique(ids))
        assert counts.distinct[epoch] <= n
        ever |= set(ids.tolist())
    if counts.distinct_ever is not None and not counts.expected and not schedules[0].opaque:
        assert counts.distinct_ever == len(ever)


# Nobody reads a sample twice and none is lost when nothing is padded, dropped, repeated or drawn.
EXACT = {
    "dali": {"pad_last_batch": True, "last_batch_policy": "partial"},
    "torch": {},
    "torch-stride": {},
    "torch-distributed": None,
    "lancedb": None,
    "tfdata": {},
    "webdataset": {},
    "hf": {},
    "tfrecord": {},
    "grain": None,
    "shard-floor": None,
    "shardtool": {},
}


@pytest.mark.parametrize("name", LOADERS)
@settings(max_examples=60, deadline=None)
@given(world=worlds, shard_samples=shard_lists, epoch=st.integers(0, 3))
def test_every_sample_once(name, world, shard_samples, epoch):
    if EXACT[name] is None:
        return
    loader = loader_class(name)(**EXACT[name])
    try:
        schedule = loader.split(shard_samples, world, epoch)
    except UsageError:
        return
    ids = np.concatenate([schedule.rank(r).ids for r in range(world.ranks)])
    assert sorted(ids.tolist()) == list(range(int(shard_samples.sum())))


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 60),
    ranks=st.integers(1, 7),
    batch=st.integers(1, 6),
    epochs=st.integers(1, 5),
    policy=st.sampled_from(["fill", "drop", "partial"]),
    pad=st.booleans(),
    stick=st.booleans(),
)
def test_dali_is_its_definition(n, ranks, batch, epochs, policy, pad, stick):
    """The reader as a generator, the iterator as the arithmetic of its counters, one rank at a time."""
    loader = loader_class("dali")(last_batch_policy=policy, pad_last_batch=pad, stick_to_shard=stick)
    world = World(ranks, batch_size=batch)
    try:
        loader.check(np.array([n]), world)
    except UsageError:
        return
    for rank in range(ranks):
        stream = reader(n, ranks, rank, batch, stick, pad)
        for epoch, real in zip(
            range(epochs), iterator(stream, n, ranks, rank, batch, policy, pad, stick), strict=False
        ):
            reading = loader.split(np.array([n]), world, epoch).rank(rank)
            assert [reading.batch(j).tolist() for j in range(len(reading.batches))] == real


def reader(n, ranks, shard, batch, stick, pad):
    """DALI's reader, sample by sample."""
    length = -(-(-(-n // ranks) // 1) // batch) * batch
    while True:
        ids = list(range(shard * n // ranks, (shard + 1) * n // ranks))
        yield from ids
        if pad:
            yield from [ids[-1]] * (length - len(ids))
        if not stick:
            shard = (shard + 1) % ranks


def iterator(stream, n, ranks, shard, batch, policy, pad, stick):
    """The framework iterator's counters, written as a loop over batches; one list of batches an epoch."""
    held = [(k + 1) * n // ranks - k * n // ranks for k in range(ranks)]
    now, ahead, counter = list(held), [0] * ranks, 0
    largest = -(-n // ranks)
    if policy == "drop":
        size = n // ranks
    else:
        size = largest if pad else -(-largest // batch) * batch
    while True:
        epoch = []
        while counter < size:
            ids = [next(stream) for _ in range(batch)]
            counter += batch
            if policy == "drop" and any(counter > s for s in held):
                break
            if policy == "partial":
                ids = ids[: max(0, batch - max(0, counter - held[shard]))]
            epoch.append(ids)
        yield epoch
        if policy == "fill" and not pad:
            counter -= min(ahead)
            ahead = [a + counter - s for a, s in zip(ahead, now, strict=True)]
            counter = min(ahead)
            if not stick:
                now = now[-1:] + now[:-1]
            size = -(-max(s - a for s, a in zip(now, ahead, strict=True)) // batch) * batch
            if size == 0:
                ahead, counter, now = [0] * ranks, 0, now[-1:] + now[:-1]
                size = -(-max(now) // batch) * batch
        else:
            counter = 0
        if not stick:
            shard = (shard + 1) % ranks


def test_synonyms_and_names():
    for name in LOADERS:
        assert loader_class(name).name == name
    for name, target in SYNONYMS.items():
        assert loader_class(name) is loader_class(target)


@pytest.mark.parametrize("name", LOADERS)
def test_a_large_world_takes_a_moment(name):
    """10^12 samples, 16,384 ranks of 8 workers, three epochs: numbers, no ids."""
    flags = {"lancedb": {"num_splits": 16384 * 8}}.get(name, {})
    loader, world = loader_class(name)(**flags), World(16384, workers_per_rank=8)
    start = time.process_time()
    for shard_samples in (np.array([10**12]), np.full(1000, 10**9)):
        counts = loader.counts(shard_samples, world, 3)
        assert counts.samples.shape[:2] == (3, 16384)
        assert counts.samples.min() >= 0 and counts.distinct.max() <= 10**12
    assert time.process_time() - start < 5
