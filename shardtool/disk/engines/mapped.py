"""Sources as one stretch of memory: what over-copy needs to take a thousand small frames in one call.

Every source is mapped read-only, and one array of bytes spans all mappings, from the lowest address to the highest.
Nothing is ever read between them: a frame lies in one source, and the copy kernel is told where each source ends.

A source that another process cuts short while it is mapped kills the reader with SIGBUS, which no program can turn
into an error by itself. So mappings are used in worker processes only, and the parent says what a worker's SIGBUS
means. A mapping is not memory of ours, but counts as such where people look; the engine takes it only while the
sources fit into --memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...layout.index import I64
from .frames import Reads
from .job import SourceFile
from .move import move

Raw = npt.NDArray[np.uint8]

# Linux 5.14 and later: map the pages of the page cache now, many at a time, instead of at the first touch of each.
_POPULATE_READ = 22
# Kernels allow 65,530 mappings a process; folders of many small files gain nothing from them.
MOST_SOURCES = 4096


class _Span:
    """An address and a length, as numpy's array interface."""

    def __init__(self, address: int, length: int) -> None:
        self.__array_interface__: dict[str, Any] = {
            "data": (address, True), "shape": (length,), "typestr": "|u1", "version": 3,
        }  # fmt: skip


class MappedSources:
    """All sources mapped; closes with the process."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._maps: list[mmap.mmap | None] = []
        start = np.zeros(len(files), np.int64)
        size = np.array([file.size for file in files], np.int64)
        for number, file in enumerate(files):
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                file.check(os.fstat(fd))
                made = mmap.mmap(fd, file.size, mmap.MAP_SHARED, mmap.PROT_READ) if file.size else None
            finally:
                os.close(fd)
            self._maps.append(made)
            if made is not None:
                start[number] = np.frombuffer(made, np.uint8).__array_interface__["data"][0]
                _populate(made)
        mapped = start[size > 0]
        self._low = int(mapped.min())
        self._start = start - self._low
        self._stop = self._start + size
        self._raw: Raw = np.asarray(_Span(self._low, int((mapped + size[size > 0]).max()) - self._low))

    def read(self, reads: Reads, target: Raw) -> None:
        """Carry out the reads of a window."""
        source, start, length, to = reads
        move(target, to, self._raw, self._start[source] + start, length, self._stop[source])


def _populate(made: mmap.mmap) -> None:
    with contextlib.suppress(OSError, ValueError):  # an older kernel: pages come at the first touch
        made.madvise(_POPULATE_READ)


def worth_mapping(sizes: I64, reads: int, memory: int) -> bool:
    """Whether small reads dominate (a preadv costs a microsecond or two beside its bytes), and the sources fit."""
    total = int(sizes.sum())
    mean = total // max(reads, 1)
    return 32 << 20 <= total <= memory and mean < 8 << 10 and len(sizes) <= MOST_SOURCES
