"""The index of DALI's WebDataset reader (fn.readers.webdataset, index_paths), version 1.2 or 1.1.

docs/exports/dali-wds.md has the traps.

    v1.2 <samples>
    <ext> <offset> <size> <name>[ <ext> <offset> <size> <name>]...     one line a sample

Version 1.1 is the same without the names. The manifest's options say which is written.

DALI reads the tokens with C++'s >>, so none may hold white space. It uses the names in messages only: white
space and control bytes in them are written as '_'.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError, printable
from ...base.ragged import Ragged
from ...layout.index import I64, windows
from ...layout.manifest import Manifest, Receipt, parse_public_name
from ..indexfile import ShardIndex
from .export import File, OpenIndex, Warn
from .lines import STEP, decimals, lines, padded
from .names import without_tar

_WHITE = b" \t\n\v\f\r"
# byte -> byte of the name token
_TOKEN = np.array([95 if byte <= 32 or byte == 127 else byte for byte in range(256)], np.uint8)
_WHITE_EXT = (
    "an extension with white space cannot stand in DALI's index", "DALI splits the lines of the index at white space"
)  # fmt: skip
VERSIONS = ("1.2", "1.1")
# of the manifest's options
OPTION = "dali_idx_version"
_NO_PLACE = -1  # part_offset of a sparse member


def names(manifest: Manifest) -> list[str]:
    """'x.idx' for 'x.tar'; DALI cannot open an index of no samples, so an empty shard has none."""
    return [f"{without_tar(receipt.name)}.idx" for receipt in manifest.shards if receipt.samples]


def check(manifest: Manifest) -> None:
    """See Export."""
    _version(manifest)
    for name in manifest.fields:
        if _white(ext := parse_public_name(name)):
            raise DataError(
                f"{_WHITE_EXT[0]}: {printable(ext)!r}", why=_WHITE_EXT[1],
                remedy="rename the field, or leave out the export",
            )  # fmt: skip


def _version(manifest: Manifest) -> str:
    version: str = manifest.options.get(OPTION, VERSIONS[0])
    if version not in VERSIONS:
        raise DataError(f"the manifest's options say {OPTION} {version!r}", why=f"known are {', '.join(VERSIONS)}")
    return version


def _white(ext: bytes) -> bool:
    return any(byte in _WHITE for byte in ext)


def files(manifest: Manifest, open_index: OpenIndex, warn: Warn, to_shards: str) -> Iterator[File]:
    """See Export. Raises DataError for an extension with white space and for a sparse member."""
    changed = [0]
    version = _version(manifest)
    odd: set[bytes] = set()
    filled = [receipt for receipt in manifest.shards if receipt.samples]
    for receipt, name in zip(filled, names(manifest), strict=True):
        yield name, _index(receipt, open_index, version, changed, odd)
    if changed[0]:
        warn(
            f"white space or control bytes in {changed[0]:,} member names are written as '_' in DALI's "
            "index, which shows these names in messages only"
        )
    if odd:
        shown = ", ".join(printable(ext) for ext in sorted(odd)[:3])
        warn(
            f"DALI tells upper from lower case in extensions ({shown}): name them exactly, or give its "
            "reader case_sensitive_extensions=False"
        )
    for receipt in manifest.shards:
        if not receipt.samples:
            name = printable(receipt.name)
            warn(f"{name} has no samples, so DALI has no index of it: leave it out of the paths for DALI")


def _index(
    receipt: Receipt, open_index: OpenIndex, version: str, changed: list[int], odd: set[bytes]
) -> Iterator[bytes]:
    """The pieces of one index; counts changed names and collects extensions with upper-case letters."""
    with open_index(receipt) as index:
        keys = index.keys()
        if keys is None:
            raise DataError("the index of a tar shard has no keys", file=receipt.index)
        end, code = index.column("part_end").astype(np.int64), index.column("part_ext").astype(np.int64)
        offset, size = index.column("part_offset"), index.column("part_size")
    _check(receipt, index, keys, end, code, offset)
    odd.update(index.exts[k] for k in np.unique(code).tolist() if index.exts[k] != index.exts[k].lower())
    yield f"v{version} {receipt.samples}\n".encode("ascii")
    named = version == "1.2"
    first = np.concatenate([np.zeros(1, np.int64), end])
    ext = padded(Ragged.of(ext + b" " for ext in index.exts))
    ends = padded(Ragged.of([b" ", b"\n"]))
    # behind a key: its part's extension and a blank, or the end of the line
    tail = padded(Ragged.of(b"." + _token(ext) + last for last in (b" ", b"\n") for ext in index.exts))
    dirty_ext = np.array([_token(ext) != ext for ext in index.exts], bool)
    for lo, hi in windows(receipt.samples, STEP):
        a, b = int(first[lo]), int(first[hi])
        last = np.zeros(b - a, np.int64)
        last[first[lo + 1 : hi + 1] - a - 1] = 1
        if not named:
            sizes = decimals(size[a:b])
            yield lines(ext[code[a:b]], decimals(offset[a:b], b" "), sizes, ends[last])
            continue
        rows = np.repeat(np.arange(hi - lo), np.diff(first[lo : hi + 1]))  # [parts] sample of the window
        window = Ragged(keys.data[keys.first[lo] : keys.first[hi]], keys.first[lo : hi + 1] - keys.first[lo])
        clean = Ragged(_TOKEN[window.data], window.first)
        changed[0] += int((_dirty(window, clean)[rows] | dirty_ext[code[a:b]]).sum())
        yield lines(
            ext[code[a:b]], decimals(offset[a:b], b" "), decimals(size[a:b], b" "),
            padded(clean)[rows], tail[code[a:b] + last * len(index.exts)],
        )  # fmt: skip


def _token(ext: bytes) -> bytes:
    return bytes(_TOKEN[np.frombuffer(ext, np.uint8)])


def _dirty(keys: Ragged, clean: Ragged) -> npt.NDArray[np.bool_]:
    """Which keys have a byte that was changed, bool[n]."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(keys.data != clean.data)])
    return np.diff(before[keys.first]) > 0


def _check(receipt: Receipt, index: ShardIndex, keys: Ragged, end: I64, code: I64, offset: I64) -> None:
    """DataError for what this index cannot say."""
    white = np.array([_white(ext) for ext in index.exts], bool)
    for bad, what, why, remedy in (
        (
            white[code], *_WHITE_EXT, "rename the field",
        ),
        (
            offset == _NO_PLACE, "a sparse member cannot stand in DALI's index",
            "its bytes are not stored in one piece", "`shardtool repack` writes it whole",
        ),
        (
            offset % 512 != 0, "a payload does not begin at a multiple of 512 bytes",
            "DALI refuses such an index", "`shardtool repack` writes aligned archives",
        ),
    ):  # fmt: skip
        where = np.flatnonzero(bad)
        if len(where):
            part = int(where[0])
            sample = int(np.searchsorted(end, part, side="right"))
            member = keys[sample] + b"." + index.exts[int(code[part])]
            raise DataError(what, file=receipt.name, member=member, why=why, remedy=remedy)
