"""The shard formats. A format is a scanner here, a frame geometry in layout, a framer in the engines."""

from __future__ import annotations

from ...layout.rules import Rules
from ..scanned import Scanned


def scan_file(
    format: str, path: bytes, name: bytes, rules: Rules, *, check_payload: bool, check_length: bool = True,
    window: int | None = None,
) -> Scanned:
    """Walk one file of a known format.

    window  None: the file is read. Bytes: it is mapped, so many at a time; for worker processes only (see Blocks)
    """
    if format == "tfrecord":
        from . import tfrecord

        return tfrecord.scan(
            path, name, rules, check_payload=check_payload, check_length=check_length, window=window,
            mapped=window is not None,
        )
    from . import tar

    return tar.scan(path, name, rules, mapped=window is not None)
