"""Publishing a file: complete under its final name, or not there at all.

Order of a publish: write to a temporary name in the work folder (same file system), fsync the file, rename,
fsync the folder. This module is the seam for stores other than a local disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable

from ..base.errors import HostError


def fsync_folder(path: bytes) -> None:
    """Make a rename in this folder survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def rename(temporary: bytes, final: bytes) -> None:
    """The moment at which a file appears; the folder is synced after it."""
    os.rename(temporary, final)
    fsync_folder(os.path.dirname(final) or b".")


def create(path: bytes, mode: int = 0o666, flags: int = 0) -> int:
    """A descriptor for a new file, replacing whatever a crashed run left under that (temporary) name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | flags, mode)


def write_all(fd: int, data: memoryview | bytes, offset: int | None = None) -> None:
    """All of `data`, at `offset` or at the descriptor's position."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        if offset is None:
            done += os.write(fd, view[done:])
        else:
            done += os.pwrite(fd, view[done:], offset + done)


def publish(temporary: bytes, final: bytes, chunks: Iterable[bytes]) -> int:
    """Write `chunks` as the file `final`; returns its size."""
    fd = create(temporary)
    size = 0
    try:
        for chunk in chunks:
            write_all(fd, chunk)
            size += len(chunk)
        os.fsync(fd)
    finally:
        os.close(fd)
    rename(temporary, final)
    return size


def read_small(path: bytes, most: int = 1 << 30) -> bytes:
    """A whole file of at most `most` bytes."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise HostError(f"the file is larger than {most:,} bytes", file=path)
    return data


def remove(path: bytes) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path: bytes) -> None:
    """Remove one of our own work folders."""
    shutil.rmtree(path, ignore_errors=True)
