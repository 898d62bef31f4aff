"""lay_out: from an Index to a Layout, with everything that has to be decided on the way. Reads no payload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xxhash

from ..base.errors import DataError, UsageError
from ..base.ragged import Ragged
from ..base.units import show_size
from ..disk.formats.tfrecord import FRAME
from ..disk.writer import buffers_bytes
from ..layout.cost import Cost, gather_cost
from ..layout.frames import pad512, tar_file_bytes, tar_head_bytes
from ..layout.index import I64, Index, windows
from ..layout.keys import KEEP, NONE, ORDINAL, SOURCE, OutputKeys, first_repeated
from ..layout.layout import Layout, Limits, choose_shards, contents, shard_cuts
from ..layout.order import SHUFFLE, Order
from ..layout.order import SOURCE as SOURCE_ORDER

STEP = 1 << 16
CHUNK = (4 << 20) - 4096  # with the block that a buffer has besides: whole huge pages


@dataclass(frozen=True)
class LaidOut:
    """A layout and what was decided with it.

    largest_frame  bytes
    chunk          bytes of an engine's output buffer
    renamed_keys   how many samples get another key than they had
    """

    layout: Layout
    keys: OutputKeys
    cost: Cost
    warnings: tuple[str, ...]
    largest_frame: int
    chunk: int
    renamed_keys: int


def lay_out(
    index: Index,
    limits: Limits,
    *,
    format: str | None = None,
    seed: int = 0,
    order: str = "shuffle",
    keys: str = "auto",
    strict: bool = False,
    jobs: int = 1,
    memory: int = 1 << 30,
) -> LaidOut:
    """Every sample's shard and byte offset.

    Raises UsageError when the limits contradict each other or memory is too small, DataError when keys repeat
    that were to be kept.
    """
    format = format or ("tfrecord" if index.ext is None else "tar")
    output_keys, renamed = choose_keys(index, keys)
    frames = frame_bytes(index, format, output_keys)
    made = Order(index.samples, seed, SHUFFLE if order == "shuffle" else SOURCE_ORDER)
    ids = made.whole()
    end = np.cumsum(frames.take(ids))
    file_bytes = tar_file_bytes if format == "tar" else _same
    oversize, warnings = _oversize(index, frames, ids, limits, format, strict)
    shards, more = choose_shards(end, limits, file_bytes, oversize=oversize, strict=strict)
    cuts = shard_cuts(index.samples, shards)
    layout = Layout(format, made, ids, end, cuts, file_bytes(contents(end, cuts)))
    chunk = min(CHUNK, max(1 << 16, memory // (8 * jobs)) // 4096 * 4096)
    cost = gather_cost(
        index, layout, jobs=jobs, chunk=chunk, buffers=buffers_bytes(chunk), sources=len(index.sources)
    )
    if cost.peak_ram_bytes > memory:
        raise UsageError(
            f"the job needs {show_size(cost.peak_ram_bytes)}, --memory allows {show_size(memory)}",
            remedy=f"--memory {-(-cost.peak_ram_bytes >> 20)}MiB is the least for this input",
        )
    return LaidOut(
        layout, output_keys, cost, (*warnings, *more), int(frames.max()), chunk, renamed
    )


def _same(content: I64) -> I64:
    return content


def frame_bytes(index: Index, format: str, keys: OutputKeys) -> I64:
    """Bytes of every sample's frame in the output, int64[n] in source order."""
    if format == "tfrecord":
        return index.size[0 : index.samples] + FRAME
    frames = np.empty(index.samples, np.int64)
    for lo, hi in windows(index.samples, STEP):
        ids = np.arange(lo, hi, dtype=np.int64)
        parts, begin = index.parts_of(ids)
        part = tar_head_bytes(keys.part_names(ids, parts, begin)) + pad512(index.size.take(parts))
        frames[lo:hi] = np.add.reduceat(part, begin[:-1])
    return frames


def _oversize(
    index: Index, frames: I64, ids: I64, limits: Limits, format: str, strict: bool
) -> tuple[I64, list[str]]:
    """Output positions of samples that are larger than a shard may be, and the warning that names one."""
    if limits.bytes is None:
        return np.zeros(0, np.int64), []
    alone = tar_file_bytes(frames) if format == "tar" else frames
    large = np.flatnonzero(alone > limits.bytes)
    if not len(large):
        return large, []
    first = int(large[0])
    text = (
        f"{len(large):,} of {index.samples:,} samples are larger than --shard-size {show_size(limits.bytes)} alone, "
        f"first {name_of(index, first)} with {show_size(int(alone[first]))}: their shards exceed it"
    )
    if strict:
        raise UsageError(text, remedy="ask for a larger --shard-size, or leave out --strict")
    return np.flatnonzero(np.isin(ids, large)), [text]


def name_of(index: Index, sample: int) -> str:
    """A sample for a message: its source and its key or number in it."""
    from ..base.errors import printable

    source = int(index.source_of(np.array([sample], np.int64))[0])
    record = sample - int(index.source_first[source])
    what = f"record {record}" if index.keys is None else printable(index.keys[sample])
    return f"{what} of {printable(index.sources[source].name)}"


def choose_keys(index: Index, wanted: str) -> tuple[OutputKeys, int]:
    """The output keys that `--keys` asks for, and how many differ from the input's.

    Raises DataError when keys that are to be kept are not unique, or the new ones would not be.
    """
    if index.keys is None:
        return OutputKeys(NONE, index), 0
    if wanted == "ordinal":
        return OutputKeys(ORDINAL, index), index.samples
    if wanted in ("auto", "keep"):
        repeated = _repeated(index.keys)
        if repeated is None:
            return OutputKeys(KEEP, index), 0
        if wanted == "keep":
            raise _not_unique(index, index.keys, repeated, "--keys source or --keys ordinal makes them unique")
    made = OutputKeys(SOURCE, index)
    keys = made.take(np.arange(index.samples, dtype=np.int64))
    repeated = _repeated(keys)
    if repeated is not None:
        raise _not_unique(index, keys, repeated, "use --keys ordinal")
    return made, index.samples


def _repeated(keys: Ragged) -> tuple[int, int] | None:
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, keys), np.uint64, len(keys))
    return first_repeated(keys, hashes)


def _not_unique(index: Index, keys: Ragged, pair: tuple[int, int], remedy: str) -> DataError:
    return DataError(
        "two samples would have the same key", member=keys[pair[0]],
        why=f"{name_of(index, pair[0])} and {name_of(index, pair[1])}", remedy=remedy,
    )  # fmt: skip
