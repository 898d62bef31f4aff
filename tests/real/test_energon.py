"""Megatron Energon takes a folder with our export for one that it prepared itself."""

import importlib.metadata

import pytest

from tests.real.sets import TARS, judge

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def energon():
    return pytest.importorskip("megatron.energon", exc_type=ImportError)


def release():
    return importlib.metadata.version("megatron-energon")


def fields(sample):
    return {name: value for name, value in sample.items() if not name.startswith("__")}


def reader_of(folder, part="train"):
    from megatron.energon.epathlib import EPath
    from megatron.energon.flavors.webdataset.itar_reader import ShardInfosITarReader
    from megatron.energon.flavors.webdataset.metadata import WebdatasetMeta

    path = EPath(str(folder))
    return ShardInfosITarReader(path, WebdatasetMeta.from_config(path, split_part=part).shards)


@pytest.mark.parametrize("flavour", TARS)
def test_random_access_by_the_export(energon, tars, flavour):
    of = tars(flavour)
    reader = reader_of(of.folder)
    got = [(sample["__key__"], fields(sample)) for sample in (reader[k] for k in range(len(reader)))]
    judge("Energon (by number)", release(), of, got, "energon", of.samples)


def loop_of(folder, ranks, rank, workers):
    """The loader that a training uses, over this rank's part of an epoch; raw bytes, no batches."""
    from megatron.energon import Cooker, DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, stateless

    class Encoder(DefaultTaskEncoder):
        decoder = None
        cookers = [Cooker(stateless(cook))]  # noqa: RUF012

        def batch(self, samples):
            return samples

        def encode_batch(self, batch):
            return batch

    return get_loader(get_train_dataset(
        str(folder), worker_config=WorkerConfig(rank=rank, world_size=ranks, num_workers=workers), batch_size=1,
        task_encoder=Encoder(), shuffle_buffer_size=None, max_samples_per_sequence=None, repeat=False,
    ))  # fmt: skip


def cook(sample):
    """Key and fields as they are."""
    return dict(sample)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_sample_once_over_ranks(energon, tars, ranks, workers):
    of = tars("plain")
    got = []
    for rank in range(ranks):
        for batch in loop_of(of.folder, ranks, rank, workers):
            got += [(sample["__key__"], fields(sample)) for sample in batch]
    assert sorted(got) == sorted(of.samples)
