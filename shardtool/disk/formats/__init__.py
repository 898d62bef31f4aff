"""The shard formats. A format is a scanner here, a frame geometry in layout, a framer in the engines."""

from __future__ import annotations

from ...layout.rules import Rules
from ..scanned import Scanned


def scan_file(format: str, path: bytes, name: bytes, rules: Rules, *, check_payload: bool) -> Scanned:
    """Walk one file of a known format."""
    if format == "tfrecord":
        from . import tfrecord

        return tfrecord.scan(path, name, rules, check_payload=check_payload)
    from . import tar

    return tar.scan(path, name, rules)
