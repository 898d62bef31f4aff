"""Well-shuffled, equal, indexed, verifiable shards of training samples."""

from .version import VERSION as __version__

__all__ = ["__version__"]
