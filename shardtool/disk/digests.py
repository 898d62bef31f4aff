"""Digests of whole files."""

from __future__ import annotations

import os
from collections.abc import Callable

from .engines.job import SourceFile, new_digests

PIECE = 4 << 20

Advance = Callable[[int], None]


def digest_file(file: SourceFile, algorithms: tuple[str, ...], advance: Advance) -> dict[str, str]:
    """Hex digests of a file's bytes: xxh3-128 and the named algorithms of hashlib.

    advance  called with the bytes done since the last call

    Raises DataError when the file is no longer what `file` says, before or after it was read.
    """
    digests = new_digests(algorithms)
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    with open(file.path, "rb", buffering=0) as opened:
        file.check(os.fstat(opened.fileno()))
        while count := opened.readinto(view):
            for digest in digests.values():
                digest.update(view[:count])
            advance(count)
        file.check(os.fstat(opened.fileno()))
    return {name: digest.hexdigest() for name, digest in digests.items()}
