"""Megatron Energon takes a folder with our export for one that it prepared itself."""

import importlib.metadata
import shutil
import subprocess
import sys

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


def energon_tool(*words):
    """Its own command line, in a process of its own."""
    code = "import sys; from megatron.energon.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


@pytest.fixture(params=TARS)
def copied(request, tars, tmp_path):
    of = tars(request.param)
    shutil.copytree(of.folder, tmp_path / "set")
    return of, tmp_path / "set"


def test_its_own_index_over_our_files(energon, copied):
    """`energon prepare --tar-index-only` adds index.sqlite and index.uuid and makes the same .tar.idx as we do; then
    samples and single files can be had by key, which without them they cannot."""
    from megatron.energon.epathlib import EPath
    from megatron.energon.flavors.webdataset.itar_reader import SqliteITarEntryReader

    of, folder = copied
    ours = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    key, content = of.samples[7]

    def by_key():
        reader = SqliteITarEntryReader(EPath(str(folder)), key_is_full_entryname=True)
        return {name: reader[f"{key}.{name}"][0] for name in content}

    with pytest.raises(AssertionError, match=r"index\.sqlite"):
        by_key()
    done = energon_tool("prepare", "--tar-index-only", folder)
    assert done.returncode == 0, done.stderr
    now = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {str(name) for name in set(now) - set(ours)} == {".nv-meta/index.sqlite", ".nv-meta/index.uuid"}
    assert {name: now[name] for name in ours} == ours
    assert by_key() == content
