"""Which numbers of splits, ranks and workers go together."""

from __future__ import annotations

import math
from collections.abc import Iterable


def next_multiple(value: int, unit: int) -> int:
    """The smallest multiple of `unit` that is at least `value` (and at least `unit`)."""
    return max(1, -(-value // unit)) * unit


def divisors_of(value: int) -> int:
    """How many divisors a positive number has."""
    count, rest, factor = 1, value, 2
    while factor * factor <= rest:
        power = 0
        while rest % factor == 0:
            rest //= factor
            power += 1
        count *= power + 1
        factor += 1
    return count * (2 if rest > 1 else 1)


def smallest_splits(lanes: Iterable[int]) -> int:
    """The smallest number that every wished number of lanes (ranks x workers) divides."""
    return math.lcm(*lanes)


def highly_composite(least: int, unit: int, most: int) -> int:
    """Of the multiples of `unit` in [least, most], the smallest with the most divisors."""
    start = next_multiple(least, unit)
    best, found = start, divisors_of(start)
    for value in range(start + unit, most + 1, unit):
        many = divisors_of(value)
        if many > found:
            best, found = value, many
    return best


def parse_worlds(text: str, least: int = 1) -> list[int]:
    """'1-64', '1,2,8', '8-64/8' (step 8) as a sorted list; ValueError for anything else."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.strip().partition("/")
        lo, dash, hi = span.partition("-")
        first = int(lo)
        last = int(hi) if dash else first
        if not least <= first <= last or (step and int(step) < 1):
            raise ValueError(text)
        if last - first > 1 << 16:
            raise ValueError(text)
        found.update(range(first, last + 1, int(step) if step else 1))
    return sorted(found)
