"""Other people's readers, run on our shards by `verify --reader`.

READERS: name -> Reader. A new one is one function and one line. Packages are imported when a reader runs, in the
process that runs it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

# A sample as the library gives it: (key, or None where it has none; {field: payload}, or the record's payload)
Sample = tuple[bytes | None, Mapping[bytes, bytes] | bytes]


@dataclass(frozen=True)
class Reader:
    """One library.

    package    what `pip install` and `import` call it
    formats    shard formats that it reads
    samples    path -> its samples in file order; whatever it raises is a finding
    fold_case  it lower-cases field names
    """

    package: str
    formats: tuple[str, ...]
    samples: Callable[[bytes], Iterator[Sample]]
    fold_case: bool = False

    @property
    def installed(self) -> bool:
        """Whether the package can be imported."""
        return importlib.util.find_spec(self.package) is not None

    @property
    def release(self) -> str:
        """The installed release."""
        return importlib.metadata.version(self.package)


def _webdataset(path: bytes) -> Iterator[Sample]:
    import webdataset

    # A list, not a string: a string would be expanded as a brace pattern.
    pipeline = webdataset.DataPipeline(webdataset.SimpleShardList([os.fsdecode(path)]), webdataset.tarfile_to_samples())
    for sample in pipeline:
        fields = {os.fsencode(name): data for name, data in sample.items() if not name.startswith("__")}
        yield os.fsencode(sample["__key__"]), fields


def _tfrecord(path: bytes) -> Iterator[Sample]:
    from tfrecord.reader import tfrecord_iterator

    for record in tfrecord_iterator(os.fsdecode(path)):
        yield None, bytes(record)


READERS: dict[str, Reader] = {
    "webdataset": Reader("webdataset", ("tar",), _webdataset, fold_case=True),
    "tfrecord": Reader("tfrecord", ("tfrecord",), _tfrecord),
}
