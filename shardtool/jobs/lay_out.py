"""lay_out: from an Index to a Layout, with everything that has to be decided on the way. Reads no payload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, UsageError
from ..base.units import show_size
from ..disk.columns import Shifted, Store, put
from ..disk.formats.example_encode import features_of
from ..disk.formats.tfrecord import FRAME
from ..disk.keycheck import KeyCheck, Windows, check_keys, windows_of
from ..disk.writer import buffers_bytes
from ..layout.cost import Cost, against_gather, bucket_budget, bucket_cost, columns_bytes, gather_cost
from ..layout.example import LARGEST
from ..layout.frames import pad512, tar_file_bytes
from ..layout.index import I64, Column, Index, windows
from ..layout.keys import KEEP, NONE, ORDINAL, SOURCE, OutputKeys
from ..layout.layout import FileBytes, Layout, Limits, choose_shards, contents, shard_cuts
from ..layout.order import SHUFFLE, Order
from ..layout.order import SOURCE as SOURCE_ORDER
from ..layout.traps import Caught
from .host import total_memory

B1 = npt.NDArray[np.bool_]

STEP = 1 << 16
CHUNK = (4 << 20) - 4096  # with the block that a buffer has besides: whole huge pages


@dataclass(frozen=True)
class LaidOut:
    """A layout and what was decided with it.

    frames         bytes of every sample's frame, in source order
    cost           of the engine that was chosen; `costs` of all that were possible, with the reason against it
    largest_frame  bytes
    chunk          bytes of an engine's output buffer
    budget         bytes of frames that the bucket engine holds at a time, in each process
    colliding      keys of a tar that differ by letter case only
    renamed_keys   how many samples get another key than they had
    """

    layout: Layout
    keys: OutputKeys
    frames: Column
    cost: Cost
    costs: tuple[tuple[Cost, str], ...]
    warnings: tuple[str, ...]
    largest_frame: int
    chunk: int
    budget: int
    renamed_keys: int
    colliding: Caught


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
    engine: str = "auto",
    store: Store | None = None,
) -> LaidOut:
    """Every sample's shard and byte offset, and the engine that will move the bytes.

    store  where columns go; None: a new one of a third of `memory`

    Raises UsageError when the limits contradict each other or memory is too small, DataError when keys repeat
    that were to be kept.
    """
    format = format or ("tfrecord" if index.ext is None else "tar")
    store = store or Store(memory // 3)
    output_keys, renamed, colliding = choose_keys(index, keys, format, memory=memory // 4, folder=store.folder)
    frames = frame_bytes(index, format, output_keys, store)
    made = Order(index.samples, seed, SHUFFLE if order == "shuffle" else SOURCE_ORDER)
    file_bytes = tar_file_bytes if format == "tar" else _same
    placed = _place(made, frames, store, memory, lambda size: _too_large(size, limits, file_bytes))
    warnings = _oversize(index, placed, limits, strict)
    shards, more = choose_shards(placed.end, limits, file_bytes, oversize=placed.oversize, strict=strict)
    cuts = shard_cuts(placed.end, shards, limits.balance)
    layout = Layout(format, made, placed.ids, placed.end, cuts, file_bytes(contents(placed.end, cuts)))
    chunk = min(CHUNK, max(1 << 16, memory // (16 * jobs)) // 4096 * 4096)
    budget, costs = _costs(index, layout, store, jobs, memory, chunk)
    return LaidOut(
        layout, output_keys, frames, _choose(costs, engine, memory), costs, (*warnings, *more), placed.largest, chunk,
        budget, renamed, colliding,
    )  # fmt: skip


def _same(content: I64) -> I64:
    return content


def frame_bytes(index: Index, format: str, keys: OutputKeys, store: Store) -> Column:
    """Bytes of every sample's frame in the output, in source order."""
    if index.records:
        return _example_frames(index, keys, store)
    if format == "tfrecord":
        return Shifted(index.size, FRAME)
    frames = store.empty(index.samples)
    for lo, hi in windows(index.samples, STEP):
        ids = np.arange(lo, hi, dtype=np.int64)
        parts, begin = index.parts_of(ids)
        part = keys.part_head_bytes(ids, parts, begin) + pad512(index.size.take(parts))
        put(frames, lo, np.add.reduceat(part, begin[:-1]))
    return frames


def _example_frames(index: Index, keys: OutputKeys, store: Store) -> Column:
    """Bytes of a record around every sample's tf.train.Example. DataError for one that protobuf would not read."""
    frames = store.empty(index.samples)
    for lo, hi in windows(index.samples, STEP):
        size = features_of(index, keys, np.arange(lo, hi, dtype=np.int64)).example_bytes()
        large = np.flatnonzero(size > LARGEST)
        if len(large):
            sample = lo + int(large[0])
            raise DataError(
                f"{name_of(index, sample)} would be a tf.train.Example of {show_size(int(size[large[0]]))}",
                why="protobuf reads messages below 2 GiB",
                remedy="leave large fields out with --drop, or stay with tar",
            )  # fmt: skip
        put(frames, lo, size + FRAME)
    return frames


@dataclass(frozen=True)
class _Placed:
    """ids and end as in Layout; output positions, ids and sizes of frames that exceed the byte limit alone."""

    ids: Column
    end: Column
    oversize: I64
    oversize_ids: I64
    oversize_bytes: I64
    largest: int


# Bytes that a position costs while its piece of the order is made: the packed key, it again while keys that were kept
# are put together, and what a block of keys takes on the way.
_PIECE = 24


def _place(order: Order, frames: Column, store: Store, memory: int, too_large: Callable[[I64], B1]) -> _Placed:
    """The order and the ends of frames by output position, a piece at a time."""
    n = order.samples
    ids = store.empty(n, dtype="<u4" if n < 1 << 32 else "<i8")
    end = store.empty(n)
    at = total = largest = 0
    found: list[tuple[I64, I64, I64]] = []
    for piece in order.pieces(max(STEP, memory // 3 // _PIECE)):
        # What is looked up in a file is swept through for every call; in memory, small steps stay in the cache.
        for lo, hi in windows(len(piece), len(piece) if store.spilled else STEP):
            some = piece[lo:hi]
            size = frames.take(some)
            ends = np.cumsum(size)
            ends += total
            put(ids, at, some)
            put(end, at, ends)
            over = np.flatnonzero(too_large(size))
            if len(over):
                found.append((over + at, some[over], size[over]))
            at, total, largest = at + len(some), int(ends[-1]), max(largest, int(size.max()))
    none = np.zeros(0, np.int64)
    positions, samples, sizes = (np.concatenate([none, *(f[k] for f in found)]) for k in range(3))
    return _Placed(ids, end, positions, samples, sizes, largest)


def _too_large(size: I64, limits: Limits, file_bytes: FileBytes) -> B1:
    """Which frames are larger than a shard may be."""
    if limits.bytes is None:
        return np.zeros(len(size), bool)
    return file_bytes(size) > limits.bytes


def _oversize(index: Index, placed: _Placed, limits: Limits, strict: bool) -> list[str]:
    """The warning that counts samples above the limit and names the first in source order."""
    if limits.bytes is None or not len(placed.oversize):
        return []
    first = int(np.argmin(placed.oversize_ids))
    text = (
        f"{len(placed.oversize):,} of {index.samples:,} samples are larger than --shard-size "
        f"{show_size(limits.bytes)} alone, first {name_of(index, int(placed.oversize_ids[first]))} with "
        f"{show_size(int(placed.oversize_bytes[first]))}: their shards exceed it"
    )
    if strict:
        raise UsageError(text, remedy="ask for a larger --shard-size, or leave out --strict")
    return [text]


def _costs(
    index: Index, layout: Layout, store: Store, jobs: int, memory: int, chunk: int
) -> tuple[int, tuple[tuple[Cost, str], ...]]:
    """The bucket engine's budget, and what every engine would cost, each with the reason against it ('' for none)."""
    held = columns_bytes(index, layout, store.held)
    buffers = buffers_bytes(chunk)
    gather = gather_cost(index, layout, held=held, jobs=jobs, chunk=chunk, buffers=buffers)
    budget = bucket_budget(index, layout, (memory - held) // jobs - buffers)
    bucket = bucket_cost(index, layout, held=held, jobs=jobs, budget=budget, buffers=buffers)
    against = ""
    if store.spilled:
        against = "its columns do not fit into --memory"
    elif gather.peak_ram_bytes > memory:
        against = f"it needs {show_size(gather.peak_ram_bytes)}"
    else:
        against = against_gather(index, layout, (memory - gather.peak_ram_bytes) // jobs, total_memory())
    return budget, ((gather, against), (bucket, ""))


def _choose(costs: tuple[tuple[Cost, str], ...], engine: str, memory: int) -> Cost:
    """The first engine with nothing against it, or the named one. UsageError when it does not fit into memory."""
    if engine == "auto":
        chosen = next(cost for cost, against in costs if not against)
    else:
        chosen = next(cost for cost, _ in costs if cost.engine == engine)
    if chosen.peak_ram_bytes > memory:
        raise UsageError(
            f"the job needs {show_size(chosen.peak_ram_bytes)}, --memory allows {show_size(memory)}",
            remedy=f"--memory {-(-chosen.peak_ram_bytes >> 20)}MiB, or fewer --jobs",
        )
    return chosen


def name_of(index: Index, sample: int) -> str:
    """A sample for a message: its source and its key or number in it."""
    from ..base.errors import printable

    source = int(index.source_of(np.array([sample], np.int64))[0])
    record = sample - int(index.source_first[source])
    what = f"record {record}" if index.keys is None else printable(index.keys[sample])
    return f"{what} of {printable(index.sources[source].name)}"


def choose_keys(
    index: Index, wanted: str, format: str, *, memory: int, folder: bytes | None = None
) -> tuple[OutputKeys, int, Caught]:
    """The output keys that `--keys` asks for, how many differ from the input's, and which a file system that makes no
    difference between `A` and `a` would take for one.

    memory, folder  as of check_keys

    Raises DataError when keys that are to be kept are not unique, or the new ones would not be; UsageError when there
    are none to be kept.
    """
    mode = {"auto": ORDINAL if index.keys is None else KEEP}.get(wanted, wanted)
    if index.keys is None:
        if format != "tar":
            return OutputKeys(NONE, index), 0, Caught("case_colliding_keys", 0)
        if mode == KEEP:
            raise UsageError("--keys keep: the records have no keys", remedy="--keys ordinal or --keys source")
    keys, found = OutputKeys(mode, index), None
    if mode != ORDINAL:  # numbers are unique
        found = check_keys(_windows(keys), memory, folder, fold_case=format == "tar")
    if found is not None and found.repeated is not None and wanted == "auto":
        keys = OutputKeys(SOURCE, index)
        found = check_keys(_windows(keys), memory, folder, fold_case=format == "tar")
    if found is not None and found.repeated is not None:
        raise _not_unique(keys, found.repeated)
    return keys, 0 if keys.mode == KEEP else index.samples, _colliding(keys, found)


def _windows(keys: OutputKeys) -> Windows:
    if keys.mode == KEEP and keys.index.keys is not None:
        return windows_of(keys.index.keys)
    return lambda: (keys.take(np.arange(lo, hi, dtype=np.int64)) for lo, hi in windows(keys.index.samples, STEP))


def _colliding(keys: OutputKeys, found: KeyCheck | None) -> Caught:
    if found is None or found.case_example is None:
        return Caught("case_colliding_keys", 0)
    pair = keys.take(np.array(found.case_example, np.int64))
    return Caught("case_colliding_keys", found.case_collisions, tuple(pair))


def _not_unique(keys: OutputKeys, pair: tuple[int, int]) -> DataError:
    return DataError(
        "two samples would have the same key", member=keys.take(np.array(pair[:1], np.int64))[0],
        why=" and ".join(name_of(keys.index, sample) for sample in pair),
        remedy="--keys source or --keys ordinal makes them unique" if keys.mode == KEEP else "use --keys ordinal",
    )  # fmt: skip
