"""Other people's readers, run on our shards by `verify --reader`.

READERS: name -> Reader. A new one is one file and one line. Packages are imported when a reader runs, in the
process that runs it.
"""

from __future__ import annotations

from . import dali, datasets, tensorflow, tfrecord, webdataset, wids
from .reader import Reader, Sample

__all__ = ["READERS", "Reader", "Sample"]

READERS: dict[str, Reader] = {
    "dali": Reader(
        ("nvidia.dali",), ("nvidia-dali-cuda120", "nvidia-dali-cuda130", "nvidia-dali-cuda110"), ("tar",), dali.samples,
        skip_empty=True,
    ),
    "datasets": Reader(("datasets",), ("datasets",), ("tar",), datasets.samples),
    "tensorflow": Reader(
        ("tensorflow",), ("tensorflow-cpu", "tensorflow"), ("tfrecord",), tensorflow.samples, not_with=("tfrecord",)
    ),
    "tfrecord": Reader(("tfrecord",), ("tfrecord",), ("tfrecord",), tfrecord.samples),
    "webdataset": Reader(("webdataset",), ("webdataset",), ("tar",), webdataset.samples, fold_case=True),
    "wids": Reader(("wids", "torch"), ("wids",), ("tar",), wids.samples),
}  # fmt: skip
