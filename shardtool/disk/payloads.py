"""Digests of the samples of one file, from what its scan found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..layout.index import INT64_TEXT, NO_LIST, SPAN, Runs
from ..layout.multiset import BYTES, sample_digest
from .blocks import Blocks
from .engines.job import SourceFiles, SourceTable
from .formats.values import computed
from .samplefiles import SampleFiles
from .scanned import Scanned

WINDOW = 4 << 20
ZEROS = bytes(1 << 16)
EMPTY = hashlib.sha256().digest()


def sample_digests(
    path: bytes, name: bytes, scanned: Scanned, *, fold_case: bool = False, skip_empty: bool = False
) -> npt.NDArray[np.uint8]:
    """Digest of every sample in file order, uint8[n, 32]; layout/multiset.py says of what.

    fold_case   field names in lower case, as a library sees them that lower-cases them
    skip_empty  fields without bytes are left out, as by a library that cannot tell them from absent ones

    Holes of sparse members are zeros, a hard link has its target's payload.
    """
    with Blocks(path, name, WINDOW) as file:
        return _of_samples(_part_digests(file, scanned), scanned, fold_case, skip_empty)


def folder_digests(files: SampleFiles, scanned: Scanned, *, fold_case: bool = False) -> npt.NDArray[np.uint8]:
    """The same for a folder of sample files. DataError for a file that changed since it was found."""
    sources = SourceFiles(SourceTable([files]))
    try:
        return _of_samples(_file_digests(sources, scanned), scanned, fold_case, False)
    finally:
        sources.close()


def _of_samples(
    parts: Iterator[bytes], scanned: Scanned, fold_case: bool, skip_empty: bool
) -> npt.NDArray[np.uint8]:
    digests = bytearray()
    if scanned.first is None:
        for digest in parts:
            digests += digest
    else:
        assert scanned.ext is not None
        names = [_lower(ext) if fold_case else ext for ext in scanned.exts]
        fields = (names[code] for code in scanned.ext.tolist())
        for count in np.diff(scanned.first).tolist():
            sample = [(next(fields), next(parts)) for _ in range(count)]
            digests += sample_digest([part for part in sample if not skip_empty or part[1] != EMPTY])
    return np.frombuffer(bytes(digests), np.uint8).reshape(-1, BYTES)


def _lower(field: bytes) -> bytes:
    return field.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")


def _part_digests(file: Blocks, scanned: Scanned) -> Iterator[bytes]:
    """SHA-256 of every part's payload."""
    sha256, sparse = hashlib.sha256, scanned.sparse
    payload = (scanned.offset + scanned.head).tolist()
    kind = scanned.kind
    for part, (at, size) in enumerate(zip(payload, scanned.size.tolist(), strict=True)):
        if kind is not None and kind[part] == INT64_TEXT:
            assert scanned.stored is not None
            yield sha256(b"%d" % scanned.stored[part]).digest()
        elif kind is not None and SPAN < kind[part] < NO_LIST:
            yield sha256(computed(int(kind[part]), _stored(file, at, scanned, part))).digest()
        elif part in sparse:
            yield _sparse(file, size, sparse[part])
        elif size <= WINDOW:
            yield sha256(file.peek(at, size)).digest()
        else:
            state = sha256()
            for piece in _pieces(file, at, size):
                state.update(piece)
            yield state.digest()


def _stored(file: Blocks, at: int, scanned: Scanned, part: int) -> bytes:
    """What the file has of a part whose payload is computed."""
    assert scanned.stored is not None
    data = bytearray(int(scanned.stored[part]))
    for place, source, count in scanned.sparse.get(part, ((0, at, len(data)),)):
        data[place : place + count] = file.peek(source, count)
    return bytes(data)


def _file_digests(sources: SourceFiles, scanned: Scanned) -> Iterator[bytes]:
    """SHA-256 of every part's payload, of parts in files of their own."""
    assert scanned.file is not None
    buffer = memoryview(bytearray(WINDOW))
    places = zip(scanned.file.tolist(), scanned.offset.tolist(), scanned.size.tolist(), strict=True)
    for part, (number, offset, size) in enumerate(places):
        if scanned.kind is not None and scanned.kind[part] != SPAN:
            assert scanned.stored is not None
            data = bytearray(int(scanned.stored[part]))
            sources.read_into(number, memoryview(data), offset)
            yield hashlib.sha256(computed(int(scanned.kind[part]), bytes(data))).digest()
            continue
        state = hashlib.sha256()
        for lo in range(0, size, WINDOW):
            piece = buffer[: min(WINDOW, size - lo)]
            sources.read_into(number, piece, offset + lo)
            state.update(piece)
        yield state.digest()


def _pieces(file: Blocks, at: int, size: int) -> Iterator[memoryview]:
    for lo in range(0, size, WINDOW):
        yield file.peek(at + lo, min(WINDOW, size - lo))


def _sparse(file: Blocks, size: int, runs: Runs) -> bytes:
    state, done = hashlib.sha256(), 0
    for place, source, count in (*runs, (size, 0, 0)):
        for lo in range(done, place, len(ZEROS)):
            state.update(ZEROS[: min(len(ZEROS), place - lo)])
        for piece in _pieces(file, source, count):
            state.update(piece)
        done = place + count
    return state.digest()
