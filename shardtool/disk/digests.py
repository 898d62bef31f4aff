"""Digests of whole files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import xxhash

from .files import naming

if TYPE_CHECKING:
    from .engines.job import SourceFile

XXH3 = "xxh3-128"
PIECE = 4 << 20

Advance = Callable[[int], None]


class Digest(Protocol):
    """What hashlib and xxhash objects have in common."""

    def update(self, data: memoryview | bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def new_digests(algorithms: tuple[str, ...]) -> dict[str, Digest]:
    """xxh3-128 and the named algorithms of hashlib."""
    made: dict[str, Digest] = {XXH3: xxhash.xxh3_128()}
    for algorithm in algorithms:
        made[algorithm] = hashlib.new(algorithm, usedforsecurity=False)
    return made


def digest_file(file: SourceFile, algorithms: tuple[str, ...], advance: Advance) -> dict[str, str]:
    """Hex digests of a file's bytes: xxh3-128 and the named algorithms of hashlib.

    advance  called with the bytes done since the last call

    Raises DataError when the file is no longer what `file` says, before or after it was read.
    """
    digests = new_digests(algorithms)
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    with open(file.path, "rb", buffering=0) as opened, naming(file.path):
        file.check(os.fstat(opened.fileno()))
        while count := opened.readinto(view):
            for digest in digests.values():
                digest.update(view[:count])
            advance(count)
        file.check(os.fstat(opened.fileno()))
    return {name: digest.hexdigest() for name, digest in digests.items()}
