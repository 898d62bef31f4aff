"""open_clip's own count of samples, by our sizes.json and __len__."""

import importlib
import importlib.metadata
import importlib.util
import sys
import types

import pytest

from tests.real.sets import judge, make_set

pytestmark = pytest.mark.real


@pytest.fixture
def training(monkeypatch):
    """Its module of data sets. Of torchvision it needs a base class, for pictures in folders: not used here."""
    if importlib.util.find_spec("open_clip_train") is None:
        pytest.skip("open_clip_torch is not installed")
    if importlib.util.find_spec("torchvision") is None:
        for name in ("torchvision", "torchvision.datasets"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules["torchvision"].datasets = sys.modules["torchvision.datasets"]
    return importlib.import_module("open_clip_train.data")


@pytest.mark.parametrize("file", ["sizes.json", "__len__"])
def test_counts(training, tars, tmp_path, file):
    of = tars("plain") if file == "sizes.json" else make_set(tmp_path, "plain", ["sizes"])
    if file == "__len__":
        (of.folder / "sizes.json").unlink()
    assert training.get_dataset_size(f"{of.folder}/train-{{000000..000003}}.tar") == (45, 4)
    if file == "sizes.json":
        counts = [training.get_dataset_size(shard)[0] for shard in of.shards]
        judge(
            "open_clip (counts)", importlib.metadata.version("open_clip_torch"), of, counts, "sizes",
            of.manifest.shard_samples.tolist(),
        )  # fmt: skip
