"""Index files of other loaders, made from manifest and index alone.

EXPORTS: name -> Export. One file of functions and one line here for each.
"""

from __future__ import annotations

from . import dali_tfrecord, dali_wds, energon, hf, open_lm, sizes, tfds, tfrecord, webdataset, wids
from .export import Export, File, OpenIndex, Warn

__all__ = ["EXPORTS", "Export", "File", "OpenIndex", "Warn"]

EXPORTS: dict[str, Export] = {
    "dali-tfrecord": Export(("tfrecord",), (), dali_tfrecord.names, dali_tfrecord.files),
    "dali-wds": Export(("tar",), (), dali_wds.names, dali_wds.files, dali_wds.check),
    "energon": Export(("tar",), (), energon.names, energon.files, energon.check),
    "hf": Export(("tar",), (), hf.names, hf.files, hf.check),
    "open_lm": Export(("tar",), (), open_lm.names, open_lm.files),
    "sizes": Export(("tar",), (), sizes.names, sizes.files),
    "tfds": Export(("tfrecord",), (), tfds.names, tfds.files, tfds.check),
    "tfrecord": Export(("tfrecord",), (), tfrecord.names, tfrecord.files),
    "webdataset": Export(("tar",), (), webdataset.names, webdataset.files),
    "wids": Export(("tar",), ("md5",), wids.names, wids.files),
}
