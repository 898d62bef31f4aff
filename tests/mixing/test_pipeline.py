"""Whole pipelines: who reads what, in which batches; several epochs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool import loaders
from shardtool.base.errors import UsageError
from shardtool.cli.simulate import LOADERS
from shardtool.mixing.pipeline import Pipeline, deliver, deliver_epochs
from shardtool.mixing.shuffles import KERNELS, SHUFFLES


def test_names():
    others = {name for name in loaders.LOADERS if loaders.loader_class(name)().shuffle is not None}
    assert LOADERS[: len(SHUFFLES)] == tuple(SHUFFLES)
    assert set(LOADERS[len(SHUFFLES) :]) == others - set(SHUFFLES)
    assert all(s.kernel in KERNELS for s in SHUFFLES.values())
    with pytest.raises(AttributeError):
        SHUFFLES["dali"].buffer = 1  # frozen


@given(
    loader=st.sampled_from(sorted(SHUFFLES)), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    ranks=st.integers(1, 3), workers=st.integers(0, 3), buffer=st.integers(1, 40), batch=st.integers(2, 7),
    shuffled=st.booleans(), cycle=st.integers(1, 4), epoch=st.integers(0, 3), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_every_sample_once(loader, sizes, ranks, workers, buffer, batch, shuffled, cycle, epoch, seed):
    pipe = Pipeline(SHUFFLES[loader], buffer, batch, 5, shuffled, cycle, ranks, workers, seed)
    try:
        run = deliver(pipe, np.array(sizes), epoch)
    except UsageError:
        assert len(sizes) < ranks * max(1, workers)
        return
    assert sorted(run.ids.tolist()) == list(range(sum(sizes)))
    assert run.first[-1] == len(run.ids)
    sizes_of = np.diff(run.first)
    assert ((sizes_of >= 1) & (sizes_of <= batch)).all()
    for rank in range(ranks):  # a rank's steps are 0, 1, 2, ... in order of delivery
        steps = run.step[run.rank == rank]
        assert steps.tolist() == list(range(len(steps)))
    table = run.global_batches()
    assert table.shape[1] == ranks * batch
    assert len(np.unique(table)) == table.size


def test_batches_come_from_workers_in_turn():
    pipe = Pipeline(SHUFFLES["webdataset"], 1, 2, 0, False, 1, 1, 2)
    run = deliver(pipe, np.array([4, 4, 4, 4]), 0)
    assert run.ids.tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]


def test_ranks_side_by_side():
    pipe = Pipeline(SHUFFLES["dali"], 1, 2, ranks=2)
    run = deliver(pipe, np.array([8]), 0)
    assert run.ids.tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert run.global_batches().tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    # the next epoch reads the other range
    assert deliver(pipe, np.array([8]), 1).ids.tolist() == [4, 5, 0, 1, 6, 7, 2, 3]


def test_hf_deals_shards_or_samples():
    even = Pipeline(SHUFFLES["hf-4"], 1, 2, ranks=2)
    assert deliver(even, np.array([2, 2, 2, 2]), 0).global_batches().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    # three shards for two ranks: both read all, each keeps every second sample
    assert deliver(even, np.array([2, 2, 2]), 0).ids.tolist() == [0, 2, 1, 3, 4, 5]


def test_tfdata_with_too_few_files_deals_samples():
    pipe = Pipeline(SHUFFLES["tfdata"], 1, 2, ranks=2)
    assert deliver(pipe, np.array([8]), 0).ids.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_shard_order_by_epoch():
    sizes = np.full(40, 5)

    def order(loader, epoch, **more):
        pipe = Pipeline(SHUFFLES[loader], 1, 5, 0, True, 1, **more)
        return deliver(pipe, sizes, epoch).ids.tolist()

    assert order("torch", 0) != order("torch", 1)
    assert order("webdataset", 0) == order("webdataset", 1)  # the defect of shardshuffle without detshuffle
    assert order("webdataset", 0, det=True) != order("webdataset", 1, det=True)


def test_same_seed_same_order_other_seed_other_order():
    def ids(seed, trial=0):
        return deliver(Pipeline(SHUFFLES["torch"], 20, 5, seed=seed), np.array([200]), 0, trial).ids.tolist()

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert ids(1) != ids(1, trial=1)


def test_dali_never_mixes_epochs_or_shards():
    pipe = Pipeline(SHUFFLES["dali"], 500, 5, ranks=2, exact=True, seed=9)
    for epoch, run in enumerate(deliver_epochs(pipe, np.array([101]), [0, 1, 2])):
        rank = np.repeat(run.rank, np.diff(run.first))
        mine = sorted(run.ids[rank == 0].tolist())
        assert mine == (list(range(50)) if epoch % 2 == 0 else list(range(50, 101)))


def test_too_few_shards_are_refused():
    with pytest.raises(UsageError, match="cannot feed"):
        deliver(Pipeline(SHUFFLES["webdataset"], 10, 5, 0, False, 1, 2, 4), np.full(7, 10), 0)
