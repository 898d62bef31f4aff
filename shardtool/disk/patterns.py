"""Brace patterns, globs and folder trees: from what a user writes to paths, all as bytes.

Names are compared as UTF-8 with its errors escaped, whatever the locale says: `?` stands for one character of
a name that is UTF-8, and for one byte of what is not.
"""

from __future__ import annotations

import errno
import fnmatch
import heapq
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..base.errors import HostError

_RANGE = re.compile(rb"(-?[0-9]+)\.\.(-?[0-9]+)(?:\.\.(-?[0-9]+))?")
_LETTERS = re.compile(rb"([a-zA-Z])\.\.([a-zA-Z])")
_MAGIC = re.compile(rb"[*?[]")


def has_braces(text: bytes) -> bool:
    """Whether `braces` gives anything but the text itself."""
    return _first_group(text) is not None


def has_magic(text: bytes) -> bool:
    """Whether the text is a glob."""
    return _MAGIC.search(text) is not None


def braces(text: bytes) -> Iterator[bytes]:
    """Every member of a brace pattern, in the order written: 'a{0..2}' -> a0 a1 a2; lazily.

    As in bash: lists `{a,b}`, ranges `{000..099}` (as wide as the wider end when one begins with 0),
    `{9..1..2}`, `{a..e}`, nested; braces that hold neither comma nor range, or do not close, stand for
    themselves.
    """
    group = _first_group(text)
    if group is None:
        yield text
        return
    start, stop, parts = group
    for part in parts:
        for rest in braces(text[stop:]):
            yield text[:start] + part + rest


def _first_group(text: bytes) -> tuple[int, int, Iterator[bytes]] | None:
    """(start, stop, members) of the first brace group that is a list or a range."""
    start = text.find(b"{")
    while start >= 0:
        commas, stop = _close(text, start)
        inner = text[start + 1 : stop - 1]
        if stop and commas:
            cuts = [start, *commas, stop - 1]
            parts = [text[a + 1 : b] for a, b in itertools.pairwise(cuts)]
            return start, stop, (member for part in parts for member in braces(part))
        if stop and (_RANGE.fullmatch(inner) or _LETTERS.fullmatch(inner)):
            return start, stop, _range(inner)
        start = text.find(b"{", start + 1)
    return None


def _close(text: bytes, start: int) -> tuple[list[int], int]:
    """Positions of the commas directly inside the group at `start`, and the end of the group (0: none)."""
    depth = 0
    commas: list[int] = []
    for at in range(start, len(text)):
        byte = text[at : at + 1]
        if byte == b"{":
            depth += 1
        elif byte == b"}":
            depth -= 1
            if not depth:
                return commas, at + 1
        elif byte == b"," and depth == 1:
            commas.append(at)
    return [], 0


def _range(inner: bytes) -> Iterator[bytes]:
    match = _LETTERS.fullmatch(inner)
    if match:
        a, b = match[1][0], match[2][0]
        return (bytes([code]) for code in range(a, b + (1 if b >= a else -1), 1 if b >= a else -1))
    match = _RANGE.fullmatch(inner)
    assert match
    low, high, step = int(match[1]), int(match[2]), abs(int(match[3] or 1)) or 1
    padded = any(re.match(rb"-?0[0-9]", end) for end in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    numbers = range(low, high + 1, step) if high >= low else range(low, high - 1, -step)
    return (b"%0*d" % (width, number) for number in numbers)


class Entry(NamedTuple):
    """What a folder holds besides folders. kind: 'file', 'special' (device, FIFO, socket) or 'dangling'.

    A tuple: there is one for every file of a folder, and a frozen dataclass takes three times as long to make.
    """

    path: bytes
    kind: str
    linked: bool


def join(folder: bytes, name: bytes) -> bytes:
    """folder/name"""
    return folder + name if folder.endswith(b"/") else folder + b"/" + name


def tree(
    root: bytes, skip: Callable[[bytes, bytes], bool], enter: Callable[[bytes, bool], None]
) -> Iterator[Entry]:
    """All files below `root`; symbolic links are followed and no folder is entered twice.

    skip(folder, name)    called for every folder inside one; True: leave it out
    enter(folder, linked)  called for every folder that is entered

    Links to folders wait until all that can be reached without them is done, and then go by name: so a folder
    inside the tree is always found under its own name, and the file system's order does not matter.
    Raises HostError for what cannot be read.
    """
    seen: set[tuple[int, int]] = set()
    stack = [(root, False)]
    links: list[bytes] = []
    while stack or links:
        folder, linked = stack.pop() if stack else (heapq.heappop(links), True)
        with host(folder):
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            enter(folder, linked)
            with os.scandir(folder) as entries:
                for entry in entries:
                    found = _classify(entry)
                    if found.kind != "folder":
                        yield found
                    elif not skip(folder, entry.name):
                        if found.linked:
                            heapq.heappush(links, entry.path)
                        else:
                            stack.append((entry.path, False))


def _classify(entry: os.DirEntry[bytes]) -> Entry:
    linked = entry.is_symlink()
    if not linked:
        kind = "folder" if entry.is_dir(follow_symlinks=False) else "file" if entry.is_file() else "special"
        return Entry(entry.path, kind, False)
    try:
        mode = os.stat(entry.path).st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            raise
        return Entry(entry.path, "dangling", True)
    kind = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "special"
    return Entry(entry.path, kind, True)


class host:
    """`with host(path):` turns an OSError into a HostError about that path."""

    def __init__(self, path: bytes) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            name = error.filename if isinstance(error.filename, (bytes, str)) else self.path
            raise HostError(
                f"cannot read: {error.strerror}", file=name, remedy="mend that and run the same command again"
            ) from error


def glob(pattern: bytes) -> list[bytes]:
    """Existing paths that match, sorted: `*` `?` `[a-z]` inside a name, `**` over any number of folders.

    As in a shell, wildcards match no leading dot. With `**` only files match: the folders among them would
    give the same files again.
    """
    start = re.match(rb"/*", pattern)
    assert start
    parts = [part for part in pattern[start.end() :].split(b"/") if part]
    deep = b"**" in parts
    if parts[-1] == b"**":
        parts.append(b"*")
    found = {b"/" if start.end() else b""}
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        found = {path for folder in found for path in _step(folder, part, last)}
    return sorted(path for path in found if not (deep and os.path.isdir(path)))


def _step(folder: bytes, part: bytes, last: bool) -> Iterator[bytes]:
    """Paths that one component of a glob makes of one folder."""
    if folder and not os.path.isdir(folder):
        return
    if part == b"**":
        yield from _folders(folder)
    elif not has_magic(part):
        path = join(folder, part) if folder else part
        if os.path.lexists(path):
            yield path
    else:
        wanted = _text(part)
        with host(folder or b"."), os.scandir(folder or b".") as entries:
            for entry in entries:
                if entry.name.startswith(b".") and not part.startswith(b"."):
                    continue
                if fnmatch.fnmatchcase(_text(entry.name), wanted) and (last or os.path.isdir(entry.path)):
                    yield join(folder, entry.name) if folder else entry.name


def _folders(root: bytes) -> list[bytes]:
    """`root` itself and every folder below it that is not hidden."""
    found: list[bytes] = []
    where = root or b"."
    for _ in tree(where, lambda _, name: name.startswith(b"."), lambda folder, _: found.append(folder)):
        pass
    return found if root else [folder[2:] for folder in found]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
