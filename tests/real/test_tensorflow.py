"""TensorFlow reads our TFRecords and checks their checksums; TensorFlow Datasets reads them by our two files.

Not in one process with the tfrecord package, which registers the same messages."""

import importlib.metadata
import json

import pytest

from shardtool.disk.readers import READERS
from tests.real.sets import RECORDS, SAMPLES, example, judge, make_set, values

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow", exc_type=ImportError)


def release():
    return READERS["tensorflow"].release


@pytest.mark.parametrize("flavour", RECORDS)
def test_tfrecord_dataset(records, tf, flavour):
    of = records(flavour)
    got = [content for shard in of.shards for _, content in READERS["tensorflow"].samples(shard.encode(), ())]
    judge("tf.data", release(), of, got)
    whole = list(tf.data.TFRecordDataset(of.shards).as_numpy_iterator())
    assert whole == of.contents


def test_parse_example(records, tf):
    of = records("Example")
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64),
        "scores": tf.io.FixedLenFeature([3], tf.float32), "tags": tf.io.VarLenFeature(tf.int64),
    }  # fmt: skip
    rows = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(of.shards)]
    got = [
        {
            "image": [row["image"].numpy()], "label": [int(row["label"])], "scores": row["scores"].numpy().tolist(),
            "tags": tf.sparse.to_dense(row["tags"]).numpy().tolist(),
        }
        for row in rows
    ]  # fmt: skip
    judge("tf.io.parse_example", release(), of, got, "", wanted_values(of))


def wanted_values(of):
    number = {example(k): k for k in range(SAMPLES)}
    return [values(number[payload]) for payload in of.contents]


@pytest.fixture(scope="module")
def tfds():
    return pytest.importorskip("tensorflow_datasets", exc_type=ImportError)


def rows_of(tfds, folder, split="train"):
    builder = tfds.builder_from_directory(str(folder))
    data = builder.as_dataset(split=split, shuffle_files=False)
    return builder, [
        {
            "image": [row["image"]], "label": [int(row["label"])], "scores": row["scores"].tolist(),
            "tags": row["tags"].tolist(),
        }
        for row in tfds.as_numpy(data)
    ]  # fmt: skip


def test_tfds_by_the_export(records, tf, tfds):
    of = records("Example")
    builder, got = rows_of(tfds, of.folder)
    judge("TFDS", importlib.metadata.version("tensorflow-datasets"), of, got, "tfds", wanted_values(of))
    split = builder.info.splits["train"]
    assert split.num_examples == SAMPLES and split.num_shards == len(of.shards)
    assert split.shard_lengths == of.manifest.shard_samples.tolist()
    assert sorted(map(str, split.filepaths)) == of.shards


def test_tfds_reads_slices_by_the_counts(records, tf, tfds):
    of = records("Example")
    wanted = wanted_values(of)
    assert rows_of(tfds, of.folder, "train[7:31]")[1] == wanted[7:31]


@pytest.mark.parametrize(
    ("name", "split"), [("validation", "validation"), ("my set", "train"), ("a.b-c", "train"), ("x_1", "x_1")]
)
def test_tfds_with_other_names(tf, tfds, tmp_path, name, split):
    of = make_set(tmp_path, "Example", ["tfds"], name=name)
    assert json.loads((of.folder / "dataset_info.json").read_text())["splits"][0]["name"] == split
    assert rows_of(tfds, of.folder, split)[1] == wanted_values(of)
