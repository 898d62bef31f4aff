"""Hugging Face datasets reads our tars, with the README of the export and without."""

import importlib.metadata
import os

import pytest

from tests.real.sets import TARS, by_reader, judge

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
        yield pytest.importorskip("datasets", exc_type=ImportError)


def release():
    return importlib.metadata.version("datasets")


def bare(row):
    """A row of `datasets` as the fields that were packed."""
    return {
        "png": row["png"]["bytes"], "cls": b"%d" % row["cls"], "bin": row["bin"], "num": row["num"],
        "txt": row["txt"].encode(),
    }  # fmt: skip


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("flavour", TARS)
def test_by_the_export(tars, datasets, flavour, streaming, tmp_path):
    of = tars(flavour)
    data = datasets.load_dataset(str(of.folder), split="train", streaming=streaming, cache_dir=str(tmp_path))
    assert data.features["png"] == datasets.Image() and data.features["cls"] == datasets.Value("int64")
    data = data.cast_column("png", datasets.Image(decode=False))
    got = [(row["__key__"], bare(row)) for row in data]
    how = "streaming" if streaming else "cached"
    judge(f"datasets ({how})", release(), of, got, "hf", of.samples)


@pytest.mark.parametrize("flavour", TARS)
def test_shard_by_shard(tars, datasets, flavour):
    of = tars(flavour)
    judge("datasets", release(), of, by_reader("datasets", of), wanted=of.samples)


def test_the_numbers_in_the_readme(tars, datasets):
    of = tars("plain")
    builder = datasets.load_dataset_builder(str(of.folder))
    split = builder.info.splits["train"]
    assert (split.num_examples, split.num_bytes) == (len(of.samples), of.manifest.bytes)


def test_no_network_is_asked():
    assert os.environ["HF_HUB_OFFLINE"] == "1"
