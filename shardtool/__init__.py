"""Well-shuffled, equal, indexed, verifiable shards of training samples.

The names below are the Python API (docs/api.md). Each is imported when it is first used: `import shardtool`,
and so `shardtool --help`, loads no numpy.
"""

from typing import TYPE_CHECKING

from .version import VERSION as __version__

if TYPE_CHECKING:
    from .base.errors import DataError, FindingError, HostError, ShardtoolError, StateError, UsageError
    from .base.reporting import Reporter
    from .disk.indexfile import ShardIndex
    from .disk.sources import SourceOptions
    from .jobs.inspect import Inspected, InspectOptions, inspect
    from .jobs.lay_out import LaidOut, lay_out
    from .jobs.manifest import ManifestOptions, ManifestResult, add_exports, write_manifest
    from .jobs.options import RepackOptions
    from .jobs.repack import Result, repack
    from .jobs.scan import Scan, scan
    from .jobs.verify import Report, VerifyOptions, verify
    from .layout.index import Index
    from .layout.layout import Layout, Limits
    from .layout.manifest import Manifest, Receipt
    from .layout.order import Order
    from .layout.rules import Rules

# name -> module that has it
_EXPORTS = {
    "DataError": "base.errors",
    "FindingError": "base.errors",
    "HostError": "base.errors",
    "Index": "layout.index",
    "InspectOptions": "jobs.inspect",
    "Inspected": "jobs.inspect",
    "LaidOut": "jobs.lay_out",
    "Layout": "layout.layout",
    "Limits": "layout.layout",
    "Manifest": "layout.manifest",
    "ManifestOptions": "jobs.manifest",
    "ManifestResult": "jobs.manifest",
    "Order": "layout.order",
    "Receipt": "layout.manifest",
    "RepackOptions": "jobs.options",
    "Report": "jobs.verify",
    "Reporter": "base.reporting",
    "Result": "jobs.repack",
    "Rules": "layout.rules",
    "Scan": "jobs.scan",
    "ShardIndex": "disk.indexfile",
    "ShardtoolError": "base.errors",
    "SourceOptions": "disk.sources",
    "StateError": "base.errors",
    "UsageError": "base.errors",
    "VerifyOptions": "jobs.verify",
    "add_exports": "jobs.manifest",
    "inspect": "jobs.inspect",
    "lay_out": "jobs.lay_out",
    "repack": "jobs.repack",
    "scan": "jobs.scan",
    "verify": "jobs.verify",
    "write_manifest": "jobs.manifest",
}

__all__ = [
    "DataError",
    "FindingError",
    "HostError",
    "Index",
    "InspectOptions",
    "Inspected",
    "LaidOut",
    "Layout",
    "Limits",
    "Manifest",
    "ManifestOptions",
    "ManifestResult",
    "Order",
    "Receipt",
    "RepackOptions",
    "Report",
    "Reporter",
    "Result",
    "Rules",
    "Scan",
    "ShardIndex",
    "ShardtoolError",
    "SourceOptions",
    "StateError",
    "UsageError",
    "VerifyOptions",
    "__version__",
    "add_exports",
    "inspect",
    "lay_out",
    "repack",
    "scan",
    "verify",
    "write_manifest",
]

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'shardtool' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"shardtool.{_EXPORTS[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
