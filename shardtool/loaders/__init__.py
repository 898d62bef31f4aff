"""One file a real training loader: how it splits shards or samples over ranks and workers.

`LOADERS` maps the name on the command line to module and class; adding a loader is one file and one line
here. Values are words, so that the names are known without importing numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Loader

LOADERS = {
    "dali": "dali.Dali",
    "torch": "torch.Torch",
    "torch-stride": "torch.TorchStride",
    "torch-distributed": "torch.TorchDistributed",
    "lancedb": "lancedb.LanceDB",
    "tfdata": "tfdata.TFData",
    "webdataset": "webdataset.WebDataset",
    "hf": "hf.HuggingFace",
    "tfrecord": "tfrecord.TFRecord",
    "grain": "grain.Grain",
    "shard-floor": "shard_floor.ShardFloor",
    "shardtool": "shardtool.ShardTool",
}
# Other words for the same thing.
SYNONYMS = {"floor": "shard-floor", "torch-ceil": "torch"}


def loader_class(name: str) -> type[Loader]:
    """The class behind a name of LOADERS or SYNONYMS; KeyError for others."""
    module, _, cls = LOADERS[SYNONYMS.get(name, name)].partition(".")
    found: type[Loader] = getattr(import_module(f"{__name__}.{module}"), cls)
    return found
