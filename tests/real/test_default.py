"""The readers that come with shardtool and its tests: webdataset, the tfrecord package, wids."""

import importlib.metadata

import pytest
import tfrecord
import webdataset
from tfrecord.reader import tfrecord_iterator

from tests.real.known import readable
from tests.real.sets import RECORDS, SAMPLES, TARS, by_reader, in_folder, judge, values


def release(package):
    return importlib.metadata.version(package)


@pytest.mark.parametrize("flavour", TARS)
def test_webdataset_shard_by_shard(tars, flavour):
    of = tars(flavour)
    judge("webdataset", release("webdataset"), of, by_reader("webdataset", of), wanted=of.samples)


@pytest.mark.parametrize("suffix", ["brace.txt", "shards.txt"])
@pytest.mark.parametrize("flavour", TARS)
def test_webdataset_by_the_export(tars, flavour, suffix):
    of = tars(flavour)
    text = (of.folder / f"train.{suffix}").read_text(encoding="utf-8")
    urls = text.strip() if suffix == "brace.txt" else text.splitlines()
    with in_folder(of.folder):
        loop = webdataset.WebDataset(urls, shardshuffle=False)
        got = [(s["__key__"], {k: v for k, v in s.items() if not k.startswith("__")}) for s in loop]
    judge("webdataset", release("webdataset"), of, got, f"webdataset ({suffix})", of.samples)


@pytest.mark.parametrize("flavour", TARS)
def test_wids_by_the_export(tars, flavour, wids, tmp_path):
    of = tars(flavour)
    dataset = wids.ShardListDataset(
        str(of.folder / "train.wids.json"), transformations=[], cache_dir=str(tmp_path)
    )

    def got():
        for k in range(len(dataset)):
            sample = dataset[k]
            yield sample["__key__"], {n[1:]: v.read() for n, v in sample.items() if not n.startswith("__")}

    judge("wids", release("wids"), of, got(), "wids", of.samples, readable=readable("wids", flavour))


@pytest.mark.parametrize("flavour", TARS)
def test_wids_shard_by_shard(tars, flavour, wids):
    of = tars(flavour)
    got = by_reader("wids", of)
    judge("wids", release("wids"), of, got, wanted=of.samples, readable=readable("wids", flavour))


@pytest.mark.parametrize("flavour", RECORDS)
def test_tfrecord_shard_by_shard(records, flavour):
    of = records(flavour)
    judge("tfrecord", release("tfrecord"), of, by_reader("tfrecord", of), wanted=of.samples)


@pytest.mark.parametrize("flavour", RECORDS)
def test_tfrecord_by_the_export(records, flavour):
    of = records(flavour)
    got = []
    for shard in of.shards:
        for piece in range(3):
            index = shard.removesuffix(".tfrecord") + ".tfindex"
            got += map(bytes, tfrecord_iterator(shard, index, shard=(piece, 3)))
    judge("tfrecord", release("tfrecord"), of, got, "tfrecord")


def test_tfrecord_decodes_our_examples(records):
    of = records("Example")
    found = {}
    for shard in of.shards:
        index = shard.removesuffix(".tfrecord") + ".tfindex"
        kinds = {"image": "byte", "label": "int", "scores": "float", "tags": "int"}
        for row in tfrecord.tfrecord_loader(shard, index, kinds, shard=(0, 1)):
            found[int(row["label"][0])] = {
                "image": [bytes(row["image"])], "label": row["label"].tolist(),
                "scores": row["scores"].tolist(), "tags": row["tags"].tolist(),
            }  # fmt: skip
    assert found == {k - 7: values(k) for k in range(SAMPLES)}
