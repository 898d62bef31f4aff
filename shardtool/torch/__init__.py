"""Reading shards in PyTorch, from a manifest: who reads what is `shardtool plan --loader shardtool`.

`ShardDataset` and `ShardLoader` need torch (`pip install shardtool[torch]`); decoders, states and the reading of a
lane do not. docs/torch.md shows how to use them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dataset import ShardDataset
    from .decode import DECODERS
    from .loader import ShardLoader
    from .state import elastic_state

_EXPORTS = {
    "DECODERS": "decode",
    "ShardDataset": "dataset",
    "ShardLoader": "loader",
    "elastic_state": "state",
}

__all__ = ["DECODERS", "ShardDataset", "ShardLoader", "elastic_state"]

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'shardtool.torch' has no attribute {name!r}")
        from importlib import import_module

        try:
            value = getattr(import_module(f"shardtool.torch.{_EXPORTS[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError("shardtool.torch needs PyTorch: pip install 'shardtool[torch]'") from None
        globals()[name] = value
        return value
