"""wids, by its samples of one tar."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .reader import Sample


def samples(path: bytes, fields: tuple[bytes, ...]) -> Iterator[Sample]:
    """See Samples. Of the key wids keeps what the name field of the headers says."""
    from wids.wids import IndexedTarSamples

    tar = IndexedTarSamples(path=os.fsdecode(path))
    try:
        for number in range(len(tar)):
            sample = tar[number]
            content = {
                os.fsencode(name[1:]): value.read() for name, value in sample.items() if not name.startswith("__")
            }
            yield os.fsencode(sample["__key__"]), content
    finally:
        tar.close()
