"""PyTorch's DataLoader over webdataset and over our own dataset: every sample once with any number of workers, as
`plan` says."""

import importlib.metadata

import numpy as np
import pytest

from shardtool.loaders import loader_class
from shardtool.schedule.world import World
from tests.real.sets import RECORDS, TARS, judge

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", exc_type=ImportError)


def plain(sample):
    return sample["__key__"], {name: data for name, data in sample.items() if not name.startswith("__")}


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("flavour", TARS)
def test_dataloader_over_webdataset(tars, torch, flavour, workers):
    import webdataset
    from torch.utils.data import DataLoader

    of = tars(flavour)
    data = webdataset.WebDataset(of.shards, shardshuffle=False).map(plain)
    got = [sample for batch in DataLoader(data, batch_size=4, num_workers=workers, collate_fn=list) for sample in batch]
    world = World(1, workers_per_rank=workers, batch_size=4)
    plan = loader_class("webdataset")().split(of.manifest.shard_samples, world, 0)
    order = np.concatenate([plan.rank(0).batch(j) for j in range(len(plan.rank(0).batches))])
    assert sorted(order.tolist()) == list(range(len(of.samples)))
    versions = f"{importlib.metadata.version('webdataset')}, {torch_release(torch)}"
    judge(
        f"DataLoader over webdataset, {workers} workers", versions, of, got, "", [of.samples[k] for k in order]
    )


def torch_release(torch):
    return f"torch {torch.__version__.partition('+')[0]}"


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("flavour", [*TARS, *RECORDS])
def test_dataloader_over_our_dataset(tars, records, torch, flavour, workers):
    """By the manifest alone, fully shuffled, over two ranks."""
    from shardtool.torch import ShardDataset, ShardLoader

    of = tars(flavour) if flavour in TARS else records(flavour)
    world = World(2, workers_per_rank=workers, batch_size=4)
    plan = loader_class("shardtool")(shuffle_by="global").split(of.manifest.shard_samples, world, 0, 7)
    got, order = [], []
    for rank in range(2):
        data = ShardDataset(of.folder, batch_size=4, shuffle="global", seed=7, rank=rank, world_size=2)
        for batch in ShardLoader(data, workers, collate_fn=list):
            got += [plain(sample) if flavour in TARS else sample["record"] for sample in batch]
        order += [k for j in range(len(plan.rank(rank).batches)) for k in plan.rank(rank).batch(j).tolist()]
    assert sorted(order) == list(range(len(of.samples))) != order
    wanted = of.samples if flavour in TARS else of.contents
    judge(f"shardtool.torch, {workers} workers", torch_release(torch), of, got, "", [wanted[k] for k in order])
