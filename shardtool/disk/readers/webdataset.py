"""webdataset, by its iterator over a tar."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .reader import Sample


def samples(path: bytes, fields: tuple[bytes, ...]) -> Iterator[Sample]:
    """See Samples."""
    import webdataset

    # A list, not a string: a string would be expanded as a brace pattern.
    pipeline = webdataset.DataPipeline(webdataset.SimpleShardList([os.fsdecode(path)]), webdataset.tarfile_to_samples())
    for sample in pipeline:
        content = {os.fsencode(name): data for name, data in sample.items() if not name.startswith("__")}
        yield os.fsencode(sample["__key__"]), content
