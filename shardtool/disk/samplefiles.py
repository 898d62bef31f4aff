"""Folders of sample files: the table of their files, and the walk that makes it.

A folder may hold millions of files, so there is no object for each: names lie in one array, what is known of the
files in others. While the table is made a file costs about 250 bytes, afterwards its path and 41.
"""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt
import xxhash

from ..base.errors import DataError
from ..base.ragged import Ragged
from ..layout.index import I64
from .claims import is_junk_folder, is_litter
from .formats.tar.names import ignored_as
from .patterns import host, join, tree
from .sourcefile import READ, SourceFile, fill, gone

# Files that are asked for their status at a time, and by how many threads where one answer takes longer than SLOW
# seconds (a network, a cold disk); else a thread is slower than none.
_BATCH, _THREADS, SLOW = 2048, 32, 50e-6

# What git-lfs and git-annex leave in place of a file that has not been fetched, and how long that is.
_POINTERS = (b"version https://git-lfs.github.com/spec/v1\n", b"/annex/objects/")
_POINTER_BYTES = (60, 200)

Ignore = Callable[[str, bytes], None]
Enter = Callable[[bytes, bool], None]


@dataclass(frozen=True, eq=False)
class SampleFiles:
    """F sample files below one folder, ascending by key and then by extension, both as bytes.

    root      absolute path of the folder
    prefix    what stands before a name in messages: the name of the source and '/', or nothing
    names     F paths relative to the root, '/' between folders
    dot       int64[F], length of the key: where the first dot of the file's own name stands in its path
    size, mtime_ns, inode  int64[F]
    linked    bool[F], reached by a symbolic link to the file
    folders   absolute paths of all folders that were entered, ascending
    lost      files without their content that were left out: links to nothing, pointers of git-lfs; relative to the
              root, and how many samples went with them
    classes   names of the folders directly in the root, by bytes, when they are the labels; else None

    To the engines the files have the numbers 0..F-1; number F is no file: the payloads of all class numbers in decimal
    digits, one behind the other.
    """

    root: bytes
    prefix: bytes
    names: Ragged
    dot: I64
    size: I64
    mtime_ns: I64
    inode: I64
    linked: npt.NDArray[np.bool_]
    folders: tuple[bytes, ...]
    lost: tuple[bytes, ...] = ()
    lost_samples: int = 0
    classes: tuple[bytes, ...] | None = None

    def __len__(self) -> int:
        return len(self.size)

    def path(self, number: int) -> bytes:
        """Absolute path of a file."""
        return join(self.root, self.names[number])

    def file(self, number: int) -> SourceFile:
        """One file as engines know it; F: the generated payloads."""
        if number == len(self):
            return SourceFile(b"", self.prefix + b"(class numbers)", len(self.generated), 0, 0, self.generated)
        data, first, size, mtime_ns, inode = self._views
        name = bytes(data[first[number] : first[number + 1]])
        return SourceFile(
            join(self.root, name), self.prefix + name, size[number], mtime_ns[number], inode[number]
        )

    def read_whole(self, number: int, target: memoryview) -> bool:
        """Fill `target` with a file when that is all of it: opened, checked, read, closed; else False.

        DataError when the file is no longer the one that was found.
        """
        data, first, size, mtime_ns, inode = self._views
        if len(target) != size[number]:
            return False
        try:
            fd = os.open(self._start + bytes(data[first[number] : first[number + 1]]), READ)
        except (FileNotFoundError, NotADirectoryError):
            raise gone(self.file(number).name) from None
        try:
            found = os.fstat(fd)
            if (found.st_size, found.st_mtime_ns, found.st_ino) != (size[number], mtime_ns[number], inode[number]):
                self.file(number).check(found)
            got = os.preadv(fd, [target], 0)
            if got < len(target):
                fill(fd, self.file(number).name, target, 0, got)
        finally:
            os.close(fd)
        return True

    @cached_property
    def _start(self) -> bytes:
        return join(self.root, b"")

    @cached_property
    def _views(self) -> tuple[memoryview, ...]:
        """The columns as views, whose items are fetched four times as fast as those of arrays."""
        columns = (self.names.data, self.names.first, self.size, self.mtime_ns, self.inode)
        return tuple(column.data for column in columns)

    @cached_property
    def generated(self) -> bytes:
        """The number of every class in decimal digits, without anything between them."""
        return b"".join(b"%d" % number for number in range(len(self.classes or ())))

    @cached_property
    def listing(self) -> str:
        """Digest of names, sizes and classes: another one when a file is renamed, added, removed or resized."""
        state = xxhash.xxh3_128()
        pairs = zip(self.names, self.size.tolist(), strict=True)
        while some := list(islice(pairs, _BATCH)):
            state.update(b"".join(b"%b\0%d\0" % pair for pair in some))
        for name in self.classes or ():
            state.update(b"\0%b\0" % name)
        return f"xxh3-128:{state.hexdigest()}"

    @property
    def private(self) -> str:
        """Digest of what tells that a file was changed or replaced; only of use on this machine."""
        state = xxhash.xxh3_128(self.listing.encode())
        for column in (self.mtime_ns, self.inode):
            state.update(column.astype("<i8").tobytes())
        return state.hexdigest()

    def check(self) -> None:
        """DataError when a file is no longer the one that was found."""
        facts = zip(self.size.tolist(), self.mtime_ns.tolist(), self.inode.tolist(), strict=True)
        number = 0
        for paths in _batches(self._start + name for name in self.names):
            for found, then in zip(_status(paths, self._gone), facts, strict=False):
                if (found.st_size, found.st_mtime_ns, found.st_ino) != then:
                    self.file(number).check(found)
                number += 1

    def _gone(self, path: bytes) -> DataError:
        return gone(self.prefix + path[len(self.root) :].lstrip(b"/"))


def find(root: bytes, prefix: bytes, ignore: Ignore, enter: Enter, *, keep_going: bool) -> SampleFiles:
    """The sample files below `root`; ignore(reason, path) is called for whatever is none.

    keep_going  leave samples out of which a file lacks its content

    Links to files are followed, linked folders are entered once. Raises DataError for a sample file whose content has
    not been fetched (a link to nothing, a pointer of git-lfs), HostError for what cannot be read.
    """
    folders: list[bytes] = []
    lost: list[bytes] = []
    start = len(join(root, b""))

    def skip(folder: bytes, name: bytes) -> bool:
        if is_junk_folder(name):
            ignore("directories", join(folder, name))
            return True
        return False

    def entered(folder: bytes, linked: bool) -> None:
        folders.append(folder)
        enter(folder, linked)

    def wanted() -> Iterator[tuple[bytes, bool]]:
        for entry in tree(root, skip, entered):
            reason = _no_sample(entry.path[start:])
            if entry.kind == "special":
                ignore("special", entry.path)
            elif reason:
                ignore("symlinks" if entry.kind == "dangling" else reason, entry.path)
            elif entry.kind == "dangling":
                lost.append(entry.path[start:])
            else:
                yield entry.path, entry.linked

    table = _Table(start)
    entries = wanted()
    while batch := list(islice(entries, _BATCH)):
        for (path, linked), found in zip(batch, _status([path for path, _ in batch], gone), strict=True):
            if stat.S_ISREG(found.st_mode):
                table.add(path, found, linked)
            else:
                ignore("special", path)
    if lost and not keep_going:
        raise _not_fetched("this link points to nothing", root, lost)
    files = table.finish(root, prefix, tuple(sorted(folders)))
    pointers = _pointers(files)
    if pointers and not keep_going:
        raise _not_fetched("this file is a pointer of git-lfs or git-annex, not its content", root, pointers)
    return _without(files, sorted({*lost, *pointers})) if lost or pointers else files


def _not_fetched(what: str, root: bytes, names: list[bytes]) -> DataError:
    return DataError(
        what, file=join(root, min(names)), why=f"its name is that of a sample file; {len(names):,} such are here",
        remedy="fetch the content (git lfs pull, git annex get, dvc pull, hf download), remove them, "
        "or leave their samples out: --on-corrupt skip",
    )  # fmt: skip


def _pointers(files: SampleFiles) -> list[bytes]:
    """Names of files that hold but a reference to their content."""
    low, high = _POINTER_BYTES
    found = []
    for number in np.flatnonzero((files.size >= low) & (files.size <= high)).tolist():
        path = files.path(number)
        with host(path), open(path, "rb", buffering=0) as file:
            if file.read(max(map(len, _POINTERS))).startswith(_POINTERS):
                found.append(files.names[number])
    return found


def _without(files: SampleFiles, lost: list[bytes]) -> SampleFiles:
    """Without the samples that lost a file."""
    keys = {_mark(name).partition(b"\0")[0] for name in lost}
    rows = np.array(
        [k for k, name in enumerate(files.names) if name[: int(files.dot[k])] not in keys], np.int64
    )  # fmt: skip
    return replace(
        files, names=files.names.take(rows), dot=files.dot[rows], size=files.size[rows], mtime_ns=files.mtime_ns[rows],
        inode=files.inode[rows], linked=files.linked[rows], lost=tuple(lost), lost_samples=len(keys),
    )  # fmt: skip


def is_sample(root: bytes, path: bytes) -> bool:
    """Whether a file below `root` is a sample file by its name."""
    return _no_sample(path[len(join(root, b"")) :]) is None


def _no_sample(name: bytes) -> str | None:
    """Why a file is no part of a sample, or None."""
    return ignored_as(name) or ("files" if is_litter(name[name.rfind(b"/") + 1 :]) else None)


def _mark(name: bytes) -> bytes:
    """The path with a NUL for the dot behind the key: as bytes these ascend by key, then by extension."""
    dot = name.index(b".", name.rfind(b"/") + 1)
    return name[:dot] + b"\0" + name[dot + 1 :]


class _Table:
    """A SampleFiles under construction, in whatever order the file system has."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._marks: list[bytes] = []
        self._size, self._mtime, self._inode = array("q"), array("q"), array("Q")
        self._linked = bytearray()

    def add(self, path: bytes, found: os.stat_result, linked: bool) -> None:
        self._marks.append(_mark(path[self._start :]))
        self._size.append(found.st_size)
        self._mtime.append(found.st_mtime_ns)
        self._inode.append(found.st_ino)
        self._linked.append(linked)

    def finish(self, root: bytes, prefix: bytes, folders: tuple[bytes, ...]) -> SampleFiles:
        marks = self._marks
        order = sorted(range(len(marks)), key=marks.__getitem__)
        names = Ragged.of(marks[number] for number in order)
        data = names.data.copy()
        dot = np.flatnonzero(data == 0) - names.first[:-1]  # one NUL a name
        data[data == 0] = ord(".")
        rows = np.array(order, np.int64)

        def column(values: array[int], dtype: str) -> I64:
            return np.array(values, dtype).astype(np.int64)[rows]

        return SampleFiles(
            root, prefix, Ragged(data, names.first), dot.astype(np.int64),
            column(self._size, "i8"), column(self._mtime, "i8"), column(self._inode, "u8"),
            np.frombuffer(self._linked, np.uint8).astype(bool)[rows], folders,
        )  # fmt: skip


def _batches(paths: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(islice(paths, _BATCH)):
        yield batch


def _status(paths: list[bytes], missing: Callable[[bytes], DataError]) -> Iterator[os.stat_result]:
    """Status of every file, links followed; by threads when the first few take long."""

    def one(path: bytes) -> os.stat_result:
        try:
            return os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise missing(path) from None
        except OSError as error:
            with host(path):
                raise error

    began = time.perf_counter()
    head = [one(path) for path in paths[:16]]
    slow = time.perf_counter() - began > SLOW * len(head)
    yield from head
    if not slow:
        yield from map(one, paths[16:])
    elif len(paths) > 16:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_THREADS) as pool:
            yield from pool.map(one, paths[16:])
