"""Sizes in words and numbers. The only module that knows 1024 from 1000."""

from __future__ import annotations

import re

from .errors import UsageError

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtpe", 1):
    _UNITS[_letter] = _UNITS[_letter + "b"] = 1000**_power
    _UNITS[_letter + "ib"] = 1024**_power

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def parse_size(text: str) -> int:
    """Bytes in '64M' (= '64MB' = 64,000,000), '64MiB' (= 67,108,864), '1.5GiB', '4096'.

    Raises UsageError for anything else, negative numbers included.
    """
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(
            f"{text!r} is not a size", remedy="write a number and a unit, like 64M, 256MiB or 1.5GB"
        )
    digits, unit = match[1], _UNITS[match[2].lower()]
    whole, _, fraction = digits.partition(".")
    # Integer arithmetic: 0.1 has no exact float, and a size above 2**53 must not lose its last bytes.
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * unit // scale


def show_size(count: int) -> str:
    """'1.5 GiB': three significant digits, binary units; plain bytes below 1 KiB."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if abs(value) < 1024 or unit == "EiB":
            break
        value /= 1024
    if unit == "B":
        return f"{count} B"
    return f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"


def show_count(count: int) -> str:
    """'1,234,567'"""
    return f"{count:,}"


def show_seconds(seconds: float) -> str:
    """'0.42 s', '12.3 s', '3 min 20 s', '2 h 05 min'"""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02} min"


def plural(count: int, word: str, many: str | None = None) -> str:
    """'1 sample', '2,000 samples'"""
    return f"{count:,} {word if count == 1 else many or word + 's'}"
