"""What one SRC argument stands for: URL, list, path, brace pattern or glob, in this order."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..base.errors import HostError, ShardtoolError, UsageError, printable
from .patterns import braces, glob, has_braces, has_magic, host

_URL = re.compile(rb"[a-zA-Z][a-zA-Z0-9+.-]*://|pipe:")


@dataclass(frozen=True)
class Path:
    """A path that an argument names. origin: where it was written; matched: a glob found it."""

    path: bytes
    origin: str
    matched: bool = False


def expand(source: bytes) -> Iterator[Path]:
    """Every path that one argument names."""
    listed = source[1:]
    if source.startswith(b"@") and (os.path.lexists(listed) or not os.path.lexists(source)):
        for number, line in _lines(listed):
            yield from _paths(line, f"line {number} of {printable(listed)}")
    else:
        yield from _paths(source, "")


def _lines(path: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines of a list with their numbers, without blank ones and comments."""
    try:
        with host(path), open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                text = line.rstrip(b"\r\n")
                if text.strip() and not text.startswith(b"#"):
                    yield number, text
    except HostError as error:
        raise unreachable(b"@" + path, error.__cause__, "") from None


def _paths(source: bytes, origin: str) -> Iterator[Path]:
    """A path that exists stands for itself, whatever characters it holds; else it is a pattern."""
    if _URL.match(source):
        _refuse_url(source)
    if os.path.lexists(source):
        yield Path(source, origin)
    elif has_braces(source):
        for member in braces(source):
            note = f"a member of {printable(source)}" + (f", {origin}" if origin else "")
            if has_magic(member) and not os.path.lexists(member):
                yield from _matches(member, note)
            else:
                yield Path(member, note)
    elif has_magic(source):
        yield from _matches(source, origin)
    else:
        yield Path(source, origin)


def _matches(pattern: bytes, origin: str) -> Iterator[Path]:
    found = glob(pattern)
    if not found:
        raise UsageError("no file matches", file=pattern, why=origin or None, remedy="check the pattern")
    for path in found:
        yield Path(path, origin, matched=True)


def unreachable(path: bytes, error: BaseException | None, origin: str) -> ShardtoolError:
    """UsageError for a path that is not there, HostError for one that may not be read."""
    code = error.errno if isinstance(error, OSError) else None
    if code not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EISDIR):
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return HostError(
            f"cannot read: {reason}", file=path, remedy="mend that and run the same command again"
        )
    what = "no such file or folder"
    if os.path.islink(path):
        what = "this link points to nothing"
    elif code == errno.EISDIR:
        what = "this is a folder, no list"
    elif code == errno.ENAMETOOLONG:
        what = "no such file or folder (the name is too long)"
    return UsageError(what, file=path, why=origin or None, remedy="check the name and the current folder")


def _refuse_url(source: bytes) -> None:
    # Object stores come with a later release; this is their one place.
    scheme = source.split(b":")[0].decode("ascii", "replace").lower()
    copy = {
        "s3": "`aws s3 cp --recursive URL DIR`, or mount the bucket with mount-s3",
        "gs": "`gcloud storage cp --recursive URL DIR`, or mount the bucket with gcsfuse",
        "hf": "`hf download REPO --repo-type dataset --local-dir DIR`",
        "http": "`curl -O URL`", "https": "`curl -O URL`", "file": "give the path without file://",
    }.get(scheme, "copy it with rclone, or mount it with `rclone mount`")  # fmt: skip
    raise UsageError(
        f"{printable(source)}: local files only for now", remedy=f"{copy}; then name the local files"
    )
