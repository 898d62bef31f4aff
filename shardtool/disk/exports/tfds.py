"""The two files that make a folder of TFRecords one of TensorFlow Datasets: docs/exports/tfds.md.

    dataset_info.json   splits, samples by shard, how the shards are called
    features.json       what an Example holds

TFDS finds a shard by a template, {SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT} for train-00000-of-00016.tfrecord.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...base.errors import DataError, printable
from ...layout.manifest import Manifest
from .export import File, OpenIndex, Warn
from .places import only_beside

# set, number, of: TFDS writes both numbers with at least five digits
_NAME = re.compile(r"(?P<set>.+)-(?P<number>[0-9]{5,})-of-(?P<of>[0-9]{5,})(?P<end>\.tfrecords?)?")
_SPLIT = re.compile(r"[A-Za-z0-9_]*[A-Za-z0-9][A-Za-z0-9_]*")
_DTYPES = {"int64": "int64", "float": "float32", "bytes": "string"}
_FEATURES = "tensorflow_datasets.core.features"


def names(manifest: Manifest) -> list[str]:
    """Both files."""
    return ["dataset_info.json", "features.json"]


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export.

    Raises UsageError when they would not lie beside the shards, DataError for shards that no template of TFDS names
    and for records that are no tf.train.Example of features of one type each.
    """
    only_beside("tfds", to_shards)
    check(manifest)
    split, template = naming([receipt.name for receipt in manifest.shards])
    features = {name: _feature(name, facts) for name, facts in sorted(manifest.fields.items())}
    sampled = max(int(facts.get("sampled", 0)) for facts in manifest.fields.values())
    if sampled < manifest.samples:
        warn(
            f"the features for TFDS are those of {sampled:,} of {manifest.samples:,} records: TensorFlow fails on a "
            "record that has others"
        )
    info = {
        "name": "shards", "version": "1.0.0", "fileFormat": "tfrecord", "moduleName": "shardtool",
        "splits": [
            {
                "name": split, "filepathTemplate": template, "numBytes": str(manifest.bytes),
                "shardLengths": [str(receipt.samples) for receipt in manifest.shards],
            }
        ],
    }  # fmt: skip
    yield "dataset_info.json", [_json(info)]
    about = {"pythonClassName": f"{_FEATURES}.features_dict.FeaturesDict", "featuresDict": {"features": features}}
    yield "features.json", [_json(about)]


def check(manifest: Manifest) -> None:
    """See Export."""
    naming([receipt.name for receipt in manifest.shards])
    if not manifest.fields:
        raise DataError(
            "the records are no tf.train.Example, which is all that TFDS reads", file=manifest.shards[0].name,
            remedy="read them with tf.data.TFRecordDataset, which needs no export",
        )  # fmt: skip
    for name, facts in manifest.fields.items():
        _feature(name, facts)


def _json(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=1) + "\n").encode("ascii")


def naming(shards: list[str]) -> tuple[str, str]:
    """(split, template) that gives these names and no others. DataError when there is none."""
    found = _NAME.fullmatch(shards[0])
    if found:
        stem, end = found["set"], found["end"] or ""
        split = stem if _SPLIT.fullmatch(stem) else "train"
        head = "{SPLIT}" if split == stem else stem
        tail = ".{FILEFORMAT}" if end == ".tfrecord" else end
        width = max(5, len(str(len(shards))))
        made = [f"{stem}-{k:0{width}}-of-{len(shards):0{width}}{end}" for k in range(len(shards))]
        if made == shards and not any(mark in stem for mark in "{}/"):
            return split, f"{head}-{{SHARD_X_OF_Y}}{tail}"
        shards = [name for name, own in zip(shards, made, strict=True) if name != own] or shards
    raise DataError(
        "TFDS cannot be told where this shard is", file=printable(shards[0]),
        why="it wants all shards of one folder, called NAME-00000-of-00016.tfrecord and so on, and no braces in NAME",
        remedy="rename the shards, or write new ones with `shardtool repack`",
    )  # fmt: skip


def _feature(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor: a scalar where every record that was seen has one value, else a list of any length."""
    if facts["type"] not in _DTYPES:
        raise DataError(
            f"the feature {printable(name)} has no one type, as TFDS wants it",
            why=f"in the records it is {facts['type']}",
            remedy="read the shards with tf.data.TFRecordDataset, which needs no export",
        )  # fmt: skip
    if name.startswith("base64:"):
        raise DataError("the name of a feature is no UTF-8, so TFDS cannot have it", member=name)
    one = facts["fewest"] == facts["most"] == 1 and facts["samples"] == facts["sampled"]
    shape: dict[str, Any] = {} if one else {"dimensions": ["-1"]}
    tensor = {"shape": shape, "dtype": _DTYPES[facts["type"]], "encoding": "none"}
    return {"pythonClassName": f"{_FEATURES}.tensor_feature.Tensor", "tensor": tensor}
