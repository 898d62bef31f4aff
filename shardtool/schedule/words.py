"""Numbers of ranks, shards and epochs in few words."""

from __future__ import annotations

from collections.abc import Sequence

# More pieces than this are cut short: nobody reads a list of hundreds.
MOST_SPANS = 6


def spans(numbers: Sequence[int], most: int = MOST_SPANS) -> str:
    """'0-6', '3', '0, 2, 4, 6', '1, 3, 5, ... (8,192 in all)'; numbers ascend."""
    found: list[str] = []
    at = 0
    while at < len(numbers) and len(found) <= most:
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - at == 1:  # two neighbours read better apart
            found.append(f"{numbers[at]}")
            end = at
        else:
            found.append(f"{numbers[at]}" if end == at else f"{numbers[at]}-{numbers[end]}")
        at = end + 1
    if len(found) > most or at < len(numbers):
        return ", ".join(found[: most - 1]) + f", ... ({len(numbers):,} in all)"
    return ", ".join(found)


def percent(part: int, whole: int) -> str:
    """'1.37 %', '<0.01 %', '0 %'"""
    if part == 0 or whole == 0:
        return "0 %"
    share = 100 * part / whole
    return "<0.01 %" if share < 0.005 else f"{share:.3g} %"
