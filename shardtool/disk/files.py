"""Publishing a file: complete under its final name, or not there at all.

Order of a publish: write to a temporary name in the work folder (same file system), fsync the file, rename,
fsync the folder. This module is the seam for stores other than a local disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator

from ..base.errors import HostError

_PIECE = 1 << 20


def path_of(fd: int) -> bytes | None:
    """The file behind a descriptor, where the system tells."""
    try:
        if hasattr(fcntl, "F_GETPATH"):  # macOS
            return fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")
        return os.readlink(b"/proc/self/fd/%d" % fd)
    except OSError:
        return None


def named(error: OSError, file: bytes | int) -> OSError:
    """The same error, with a file's name if it had none: calls on descriptors do not know their file.

    file  its path, or a descriptor that is open
    """
    if error.filename is None:
        error.filename = path_of(file) if isinstance(file, int) else file
    return error


@contextlib.contextmanager
def naming(file: bytes | int) -> Iterator[None]:
    """An OSError raised inside that names no file gets this one: a path, or a descriptor that is open."""
    try:
        yield
    except OSError as error:
        named(error, file)
        raise


def sync(fd: int) -> None:
    """fsync; an error names the file."""
    with naming(fd):
        os.fsync(fd)


def fsync_folder(path: bytes) -> None:
    """Make a rename in this folder survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def rename(*pairs: tuple[bytes, bytes]) -> None:
    """The moment at which files appear: temporary name, final name. Their folders are synced after it."""
    for temporary, final in pairs:
        os.rename(temporary, final)
    for folder in dict.fromkeys(os.path.dirname(final) or b"." for _, final in pairs):
        fsync_folder(folder)


def create(path: bytes, mode: int = 0o666, flags: int = 0) -> int:
    """A descriptor for a new file, replacing whatever a crashed run left under that (temporary) name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | flags, mode)


def write_all(fd: int, data: memoryview | bytes, offset: int | None = None) -> None:
    """All of `data`, at `offset` or at the descriptor's position. An OSError names the file."""
    view = memoryview(data)
    done = 0
    with naming(fd):
        while done < len(view):
            if offset is None:
                done += os.write(fd, view[done:])
            else:
                done += os.pwrite(fd, view[done:], offset + done)


def read_at(fd: int, count: int, offset: int) -> bytes:
    """At most `count` bytes from `offset`. An OSError names the file."""
    with naming(fd):
        return os.pread(fd, count, offset)


def publish(temporary: bytes, final: bytes, chunks: Iterable[bytes]) -> int:
    """Write `chunks` as the file `final`; returns its size."""
    fd = create(temporary)
    size = 0
    try:
        for chunk in chunks:
            write_all(fd, chunk)
            size += len(chunk)
        sync(fd)
    finally:
        os.close(fd)
    rename((temporary, final))
    return size


def read_small(path: bytes, most: int = 1 << 30) -> bytes:
    """A whole file of at most `most` bytes."""
    pieces, size = [], 0
    # Unbuffered and in pieces: one large `read` would allocate all that is asked for, however small the file is.
    with open(path, "rb", buffering=0) as file, naming(path):
        while piece := file.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise HostError(f"the file is larger than {most:,} bytes", file=path)
    return b"".join(pieces)


def is_file(path: bytes | str) -> bool:
    """Whether a file is there. Unlike os.path.isfile it says "no" only when the system says so: a disk that cannot
    be read raises OSError."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        if absent(error):
            return False
        raise


def absent(error: OSError) -> bool:
    """Whether an error says that no file can have this name: then the name is wrong, and not the disk."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


def remove(path: bytes) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path: bytes) -> None:
    """Remove one of our own work folders."""
    shutil.rmtree(path, ignore_errors=True)
