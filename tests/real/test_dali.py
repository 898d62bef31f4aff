"""DALI's CPU readers and its iterators over ranks and epochs, by our indexes."""

import numpy as np
import pytest

from shardtool.disk.readers import READERS
from shardtool.jobs.manifest import ManifestOptions, add_exports
from shardtool.loaders import loader_class
from shardtool.schedule.world import World
from tests.real.sets import SAMPLES, TARS, by_reader, example, judge, values

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def dali():
    return pytest.importorskip("nvidia.dali", exc_type=ImportError)


def release():
    return READERS["dali"].release


def read(dali, nodes, count):
    """Bytes of every output of `count` samples in order."""
    pipe = dali.pipeline_def(batch_size=1, num_threads=1, device_id=None)(nodes)()
    pipe.build()
    return [[np.array(out.at(0)) for out in pipe.run()] for _ in range(count)]


def without_empty(samples):
    """DALI has no word for a field that is there and has no bytes."""
    return [(key, {name: data for name, data in fields.items() if data}) for key, fields in samples]


@pytest.mark.parametrize("version", ["1.2", "1.1"])
@pytest.mark.parametrize("flavour", TARS)
def test_webdataset_by_the_export(tars, dali, flavour, version, tmp_path):
    of = tars(flavour)
    indexes = [shard.removesuffix(".tar") + ".idx" for shard in of.shards]
    if version == "1.1":
        add_exports(
            str(of.folder / "manifest.json"), ManifestOptions(exports=("dali",), dali_idx_version=version, jobs=1),
            folder=str(tmp_path),
        )  # fmt: skip
        indexes = [str(tmp_path / f"{r.name.removesuffix('.tar')}.idx") for r in of.manifest.shards]
    assert all(open(index).read(4) == f"v{version}" for index in indexes)
    exts = sorted(of.contents[0])

    def nodes():
        return tuple(dali.fn.readers.webdataset(
            paths=of.shards, index_paths=indexes, ext=exts, missing_component_behavior="error"
        ))  # fmt: skip

    got = [dict(zip(exts, map(bytes, row), strict=True)) for row in read(dali, nodes, len(of.samples))]
    judge("DALI webdataset", release(), of, got, f"dali-wds v{version}")


@pytest.mark.parametrize("flavour", TARS)
def test_webdataset_without_an_index(tars, dali, flavour):
    of = tars(flavour)
    exts = sorted(of.contents[0])

    def nodes():
        return tuple(dali.fn.readers.webdataset(paths=of.shards, ext=exts, missing_component_behavior="error"))

    got = [dict(zip(exts, map(bytes, row), strict=True)) for row in read(dali, nodes, len(of.samples))]
    judge("DALI webdataset", release(), of, got)


@pytest.mark.parametrize("flavour", TARS)
def test_the_reader_of_verify(tars, dali, flavour):
    of = tars(flavour)
    got = [content for _, content in by_reader("dali", of)]
    assert got == [content for _, content in without_empty(of.samples)]


def test_tfrecord_by_the_export(records, dali):
    of = records("Example")
    import nvidia.dali.tfrecord as tf

    def nodes():
        read = dali.fn.readers.tfrecord(
            path=of.shards, index_path=[f"{shard}.idx" for shard in of.shards],
            features={
                "image": tf.FixedLenFeature((), tf.string, ""), "label": tf.FixedLenFeature((), tf.int64, 0),
                "scores": tf.FixedLenFeature([3], tf.float32, 0.0), "tags": tf.VarLenFeature(tf.int64, 0),
            },
        )  # fmt: skip
        return tuple(read[name] for name in ("image", "label", "scores", "tags"))

    def got():
        for image, label, scores, tags in read(dali, nodes, SAMPLES):
            yield {
                "image": [bytes(image)], "label": label.reshape(-1).tolist(), "scores": scores.tolist(),
                "tags": tags.tolist(),
            }  # fmt: skip

    wanted = [values(number) for number in numbers(of)]
    judge("DALI tfrecord", release(), of, got(), "dali-tfrecord", wanted)


def numbers(of):
    """Which example every record is, in the order of the manifest."""
    number = {example(k): k for k in range(SAMPLES)}
    return [number[payload] for payload in of.contents]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("policy", ["fill", "drop", "partial"])
@pytest.mark.parametrize("format", ["tar", "tfrecord"])
def test_iterators_give_what_plan_says(tars, records, dali, format, policy, ranks):
    """Ids of every batch of every rank over three epochs."""
    pytest.importorskip("torch")
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    of = tars("long (GNU)") if format == "tar" else records("Example")
    world = World(ranks, batch_size=4)
    kind = {"tar": "webdataset", "tfrecord": "tfrecord"}[format]
    loader = loader_class("dali")(dali_reader=kind, last_batch_policy=policy)
    plans = [loader.split(np.array([SAMPLES]), world, epoch) for epoch in range(3)]
    keys = [c["num"] for c in of.contents] if format == "tar" else [k - 7 for k in numbers(of)]
    for rank in range(ranks):

        def nodes(rank=rank):
            more = {"name": "r", "num_shards": ranks, "shard_id": rank}
            if format == "tar":
                indexes = [shard.removesuffix(".tar") + ".idx" for shard in of.shards]
                return dali.fn.readers.webdataset(paths=of.shards, index_paths=indexes, ext=["num"], **more)
            import nvidia.dali.tfrecord as tf

            return dali.fn.readers.tfrecord(
                path=of.shards, index_path=[f"{shard}.idx" for shard in of.shards],
                features={"label": tf.FixedLenFeature((), tf.int64, 0)}, **more,
            )["label"]  # fmt: skip

        loop = DALIGenericIterator(
            [dali.pipeline_def(batch_size=4, num_threads=1, device_id=None)(nodes)()], ["x"], reader_name="r",
            auto_reset=True, last_batch_policy=LastBatchPolicy[policy.upper()],
        )  # fmt: skip
        for plan in plans:
            found = [[clean(row, format) for row in batch[0]["x"]] for batch in loop]
            wanted = plan.rank(rank)
            assert found == [[keys[i] for i in wanted.batch(j)] for j in range(len(wanted.batches))]


def clean(row, format):
    return bytes(row.numpy()) if format == "tar" else int(row.reshape(-1)[0])
