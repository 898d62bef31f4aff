"""Index files of other loaders, made from manifest and index alone.

EXPORTS: name -> Export. One file of functions and one line here for each; the file is imported when its export is
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from .export import Export, File, OpenIndex, Warn, anything

__all__ = ["EXPORTS", "Export", "File", "OpenIndex", "Warn"]

# name -> shard formats, digests; the module is called as the export, with _ for -
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dali-tfrecord": (("tfrecord",), ()),
    "dali-wds": (("tar",), ()),
    "energon": (("tar",), ()),
    "hf": (("tar",), ()),
    "open_lm": (("tar",), ()),
    "sizes": (("tar",), ()),
    "tfds": (("tfrecord",), ()),
    "tfrecord": (("tfrecord",), ()),
    "webdataset": (("tar",), ()),
    "wids": (("tar",), ("md5",)),
}


class _Exports(Mapping[str, Export]):
    def __getitem__(self, name: str) -> Export:
        formats, digests = _KINDS[name]
        module = import_module(f"{__name__}.{name.replace('-', '_')}")
        return Export(formats, digests, module.names, module.files, getattr(module, "check", anything))

    def __iter__(self) -> Iterator[str]:
        return iter(_KINDS)

    def __len__(self) -> int:
        return len(_KINDS)


EXPORTS = _Exports()
