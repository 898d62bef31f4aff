"""The tfrecord package, without an index."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .reader import Sample


def samples(path: bytes, fields: tuple[bytes, ...]) -> Iterator[Sample]:
    """See Samples."""
    from tfrecord.reader import tfrecord_iterator

    for record in tfrecord_iterator(os.fsdecode(path)):
        yield None, bytes(record)
