"""TensorFlow's TFRecordDataset, which checks both checksums of a record."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .reader import Sample


def samples(path: bytes, fields: tuple[bytes, ...]) -> Iterator[Sample]:
    """See Samples."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # it tells stderr of every GPU that it does not find
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # and of this, which is of no use here
    import tensorflow

    for record in tensorflow.data.TFRecordDataset([os.fsdecode(path)]).as_numpy_iterator():
        yield None, bytes(record)
