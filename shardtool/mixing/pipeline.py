"""A whole epoch as the training loop sees it: shard order, split over ranks and workers, interleave, buffer, batches.

Everything is plain arrays. A *lane* is what one buffer reads: ids int64[k] in reading order, with the bounds of its
shards; a rank with W workers has W lanes, and its batches come from them in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.cuts import floor_cut
from ..base.errors import UsageError
from ..base.seeds import generator
from . import buffers, exact
from .shuffles import Shuffle, reorder

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pipeline:
    """A shuffle with its settings.

    buffer      samples a buffer holds; each lane has one
    batch_size  samples a rank's batch
    exact       the loader's own draws from `seed` instead of the law
    det         webdataset: detshuffle (seed + epoch) instead of the same seed every epoch
    """

    shuffle: Shuffle
    buffer: int
    batch_size: int
    initial: int = 0
    shuffle_shards: bool = False
    cycle: int = 1
    ranks: int = 1
    workers: int = 0
    seed: int = 0
    exact: bool = False
    det: bool = False

    @property
    def lanes_per_rank(self) -> int:
        """Buffers a rank has."""
        return max(1, self.workers) if self.shuffle.workers == "processes" else 1


@dataclass(frozen=True)
class Lane:
    """ids int64[k] in reading order; bounds int64[shards+1] of its shards within them; `plain`: ids are 0..k-1."""

    ids: I64
    bounds: I64
    plain: bool = False

    def take(self, order: I64) -> I64:
        """ids in this order of positions."""
        return order if self.plain else self.ids[order]


@dataclass(frozen=True)
class Delivered:
    """One epoch: ids int64[k] in order of delivery (step by step, rank by rank within a step), cut into batches.

    first   int64[batches+1]: batch i is ids[first[i]:first[i+1]]
    rank    int64[batches]
    step    int64[batches]
    """

    ids: I64
    first: I64
    rank: I64
    step: I64
    ranks: int
    batch_size: int

    def global_batches(self) -> I64:
        """Steps in which every rank has a full batch: int64[steps, ranks * batch_size]."""
        sizes = np.diff(self.first)
        if self.ranks == 1 and len(sizes) and (sizes[:-1] == self.batch_size).all():
            whole = len(self.ids) // self.batch_size * self.batch_size
            return self.ids[:whole].reshape(-1, self.batch_size)
        full = sizes == self.batch_size
        each = [np.flatnonzero(full & (self.rank == r)) for r in range(self.ranks)]
        steps = min(len(e) for e in each)
        chosen = np.stack([e[:steps] for e in each], axis=1)  # [steps, ranks] numbers of batches
        at: I64 = self.first[chosen][:, :, None] + np.arange(self.batch_size)  # [steps, ranks, batch]
        return self.ids[at].reshape(steps, self.ranks * self.batch_size)


def deliver(pipe: Pipeline, shard_samples: I64, epoch: int, trial: int = 0) -> Delivered:
    """The law of one epoch; with `pipe.exact`, the real order (use `deliver_epochs`: DALI's goes on across them)."""
    return deliver_epochs(pipe, shard_samples, [epoch], trial)[0]


def deliver_epochs(pipe: Pipeline, shard_samples: I64, epochs: list[int], trial: int = 0) -> list[Delivered]:
    """Several epochs; with `pipe.exact` they must be 0, 1, 2, ... Raises UsageError for what cannot be."""
    check(pipe, shard_samples)
    if pipe.exact:
        streams = exact_streams(pipe, shard_samples, len(epochs))
    else:
        streams = [law_streams(pipe, shard_samples, epoch, trial) for epoch in epochs]
    return [batches(pipe, lanes) for lanes in streams]


def check(pipe: Pipeline, shard_samples: I64) -> None:
    """What the real loader would refuse, or leave a lane without a sample."""
    lanes, shards = pipe.ranks * pipe.lanes_per_rank, int((shard_samples > 0).sum())
    split = pipe.shuffle.split
    if split in ("shards", "order") and lanes > 1 and shards < lanes and pipe.shuffle.uneven != "samples":
        raise UsageError(
            f"{shards} shard(s) cannot feed {pipe.ranks} rank(s) x {pipe.lanes_per_rank} worker(s)",
            why=f"{pipe.shuffle.library} deals whole shards to workers; {lanes - shards} would get nothing",
            remedy="make more shards, or ask with fewer workers; with -n give --samples-per-shard",
        )


# -- streams: what every lane delivers ----------------------------------------------------------------------------


def shard_order(pipe: Pipeline, shards: I64, names: list[str | int], epoch: int) -> I64:
    """Order in which a list of shards is read, by the law of the library's shard shuffle."""
    if not pipe.shuffle_shards:
        return shards
    fresh = pipe.shuffle.new_shard_order or pipe.det
    rng = generator(pipe.seed, "shards", *names, epoch if fresh else 0)
    if pipe.shuffle.shard_buffer is None:
        return shards[rng.permutation(len(shards))]
    return shards[buffers.growing(len(shards), pipe.shuffle.shard_buffer, 100, buffers.UniformPicks(rng))]


def shard_gaps(pipe: Pipeline, shards: int, trials: int = 32) -> npt.NDArray[np.float64]:
    """Where the shard order is a buffer over the list: how many shards apart (in stored order) two shards lie that
    are read at the same time, float[shards] summing to 1; from the shard orders of some epochs, without samples.
    Empty where the order is a full shuffle."""
    lanes = pipe.ranks * pipe.lanes_per_rank
    window = pipe.shuffle.shard_buffer
    if not pipe.shuffle_shards or window is None or -(-shards // lanes) <= min(window, 100):
        return np.zeros(0)
    apart: npt.NDArray[np.float64] = np.zeros(shards)
    every = np.arange(shards, dtype=np.int64)
    same = (pipe.batch_size - 1) / max(1, pipe.batch_size * pipe.ranks - 1)  # pairs of one rank
    for trial in range(trials):
        for w in range(pipe.lanes_per_rank):
            orders = [
                shard_order(pipe, every[r :: pipe.ranks][w :: pipe.lanes_per_rank], ["gaps", trial, r, w], 0)
                for r in range(pipe.ranks)
            ]
            for order in orders:
                if len(order) > 1:
                    one = np.bincount(np.abs(np.diff(order)), minlength=shards)
                    apart += one * same / max(1, len(orders) * (len(order) - 1))
            for r in range(1, len(orders)):
                k = min(len(orders[0]), len(orders[r]))
                two = np.bincount(np.abs(orders[0][:k] - orders[r][:k]), minlength=shards)
                apart += two * (1 - same) / max(1, (len(orders) - 1) * k)
    apart /= apart.sum()
    return apart


def lane_of(pipe: Pipeline, shards: I64, starts: I64, sizes: I64) -> Lane:
    """Whole shards in this order, interleaved as the library does."""
    sizes_here = sizes[shards]
    bounds = np.concatenate([[0], np.cumsum(sizes_here)]).astype(np.int64)
    plain = len(shards) == len(sizes) and bool((shards[1:] == shards[:-1] + 1).all())
    if plain:
        ids = np.arange(bounds[-1], dtype=np.int64)
    else:
        ids = np.repeat(starts[shards] - bounds[:-1], sizes_here) + np.arange(bounds[-1])
    if pipe.cycle > 1 and len(shards) > 1:
        if pipe.shuffle.grouped:
            groups = np.array_split(np.arange(len(shards)), min(pipe.cycle, len(shards)))
            ids = ids[buffers.alternate([np.arange(bounds[g[0]], bounds[g[-1] + 1]) for g in groups])]
        else:
            ids = ids[buffers.interleave(sizes_here, pipe.cycle)]
        plain = False
    return Lane(ids, bounds, plain)


def read_lanes(pipe: Pipeline, shard_samples: I64, epoch: int, trial: int) -> list[list[Lane]]:
    """Lanes by rank and worker, before the buffer, by the law of the shard order."""
    n, shards = int(shard_samples.sum()), np.arange(len(shard_samples), dtype=np.int64)
    starts = np.cumsum(shard_samples) - shard_samples
    ranks, workers = pipe.ranks, pipe.lanes_per_rank
    split = pipe.shuffle.split
    if split == "ranges":
        order = shard_order(pipe, shards, [trial], epoch)
        ids = lane_of(pipe, order, starts, shard_samples).ids
        if pipe.shuffle.fixed_list:
            ids = exact.dali_file_list(n) if n <= 200_000 or pipe.exact else generator(0, "list").permutation(n)
        return [
            [_range_lane(ids, (rank + epoch) % ranks * workers + w, ranks * workers) for w in range(workers)]
            for rank in range(ranks)
        ]
    if split == "after":
        order = shard_order(pipe, shards, [trial], epoch)
        return [[lane_of(pipe, order, starts, shard_samples)]]
    order = shard_order(pipe, shards, [trial], epoch) if split == "order" else shards
    if pipe.shuffle.uneven == "after" and len(shards) % ranks:
        return [[lane_of(pipe, order[w::workers], starts, shard_samples) for w in range(workers)]]
    if pipe.shuffle.uneven == "samples" and len(shards) < ranks:
        whole = lane_of(pipe, order, starts, shard_samples).ids
        return [[Lane(whole[r::ranks], np.array([0, len(whole[r::ranks])]))] for r in range(ranks)]
    lanes: list[list[Lane]] = []
    for r in range(ranks):
        lanes.append([])
        for w in range(workers):
            mine = order[r::ranks][w::workers]
            if split == "shards":
                mine = shard_order(pipe, mine, [trial, r, w], epoch)
            lanes[-1].append(lane_of(pipe, mine, starts, shard_samples))
    return lanes


def _range_lane(ids: I64, part: int, parts: int) -> Lane:
    lo, hi = floor_cut(len(ids), parts, part), floor_cut(len(ids), parts, part + 1)
    return Lane(ids[lo:hi], np.array([0, hi - lo]), parts == 1 and lo == 0 and len(ids) > 0 and _counts_up(ids))


def _counts_up(ids: I64) -> bool:
    """Whether ids are 0, 1, 2, ..."""
    return int(ids[0]) == 0 and bool((ids[1:] - ids[:-1] == 1).all())


def law_streams(pipe: Pipeline, shard_samples: I64, epoch: int, trial: int) -> list[list[I64]]:
    """What every lane delivers in `epoch`: [rank][worker] -> ids."""
    streams = [
        [
            lane.take(
                reorder(pipe.shuffle.kernel, lane.bounds, pipe.buffer, pipe.initial,
                        generator(pipe.seed, "buffer", trial, epoch, r, w))
            )
            for w, lane in enumerate(lanes)
        ]
        for r, lanes in enumerate(read_lanes(pipe, shard_samples, epoch, trial))
    ]  # fmt: skip
    return _deal(pipe, streams)


def _deal(pipe: Pipeline, streams: list[list[I64]]) -> list[list[I64]]:
    """Every ranks-th sample to each rank, where the library splits behind the buffer."""
    if len(streams) == pipe.ranks:
        return streams
    return [[stream[r :: pipe.ranks] for stream in streams[0]] for r in range(pipe.ranks)]


# -- streams: the real order -----------------------------------------------------------------------------------------


def exact_streams(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    """What every lane delivers, bit for bit: [epoch][rank][worker] -> ids. Raises UsageError where it is unknown."""
    make = EXACT.get(pipe.shuffle.name)
    if make is None:
        raise UsageError(
            f"the exact order of {pipe.shuffle.library} is not reproduced",
            remedy="leave out --exact: the simulation then has the law of its shuffle",
        )
    return make(pipe, shard_samples, epochs)


def _refuse(pipe: Pipeline, wrong: bool, what: str) -> None:
    if wrong:
        raise UsageError(
            f"--exact does not cover {what} with {pipe.shuffle.name}", remedy="leave out --exact, or that"
        )


def _exact_none(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    _refuse(pipe, pipe.shuffle_shards, "a shuffled shard order")
    return [law_streams(pipe, shard_samples, epoch, 0) for epoch in range(epochs)]


def _exact_dali(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    _refuse(pipe, pipe.shuffle_shards, "shuffle_after_epoch")
    reading = [read_lanes(pipe, shard_samples, epoch, 0) for epoch in range(epochs)]
    out: list[list[list[I64]]] = [[] for _ in range(epochs)]
    for rank in range(pipe.ranks):
        parts = [lanes[rank][0].ids for lanes in reading]
        order = np.concatenate(parts)[exact.dali([len(p) for p in parts], pipe.buffer, pipe.seed)]
        for epoch, stream in enumerate(np.split(order, np.cumsum([len(p) for p in parts])[:-1])):
            out[epoch].append([stream])
    return out


def _exact_tfdata(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    _refuse(pipe, pipe.shuffle_shards, "a shuffled file order")
    lanes = [of_rank[0].ids for of_rank in read_lanes(pipe, shard_samples, 0, 0)]
    return [
        [[ids[exact.tfdata(len(ids), pipe.buffer, pipe.seed, epoch)]] for ids in lanes] for epoch in range(epochs)
    ]


def _exact_torch(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    _refuse(pipe, pipe.shuffle_shards, "a shuffled shard order")
    _refuse(pipe, epochs > 1, "more than one epoch (torch draws the next seed from its global generator)")
    _refuse(pipe, pipe.lanes_per_rank > 1, "several workers (the DataLoader gives each its own seed)")
    lanes = [of_rank[0].ids for of_rank in read_lanes(pipe, shard_samples, 0, 0)]
    return [[[ids[exact.torch(len(ids), pipe.buffer, pipe.seed)]] for ids in lanes]]


def _exact_webdataset(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    starts = np.cumsum(shard_samples) - shard_samples
    shards = np.arange(len(shard_samples), dtype=np.int64)
    ranks, workers = pipe.ranks, pipe.lanes_per_rank

    def stream(mine: I64, seed: int) -> I64:
        if pipe.shuffle_shards:
            mine = mine[exact.webdataset(len(mine), pipe.shuffle.shard_buffer or 100, 100, seed)]
        ids = lane_of(pipe, mine, starts, shard_samples).ids
        return ids[exact.webdataset(len(ids), pipe.buffer, pipe.initial, seed)]

    return [
        [
            [stream(shards[r::ranks][w::workers], pipe.seed + epoch * pipe.det) for w in range(workers)]
            for r in range(ranks)
        ]
        for epoch in range(epochs)
    ]


def _exact_grain(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    n, seed = int(shard_samples.sum()), pipe.seed
    _refuse(pipe, pipe.shuffle_shards, "a shuffled shard order")
    _refuse(pipe, not 0 <= seed < 1 << 32, "a seed outside 0..2^32-1")
    if pipe.shuffle.name == "grain-map":
        return [_deal(pipe, [[exact.grain_map(n, seed, epoch)]]) for epoch in range(epochs)]
    _refuse(pipe, epochs > 1, "more than one epoch (it depends on where the data set is repeated)")
    _refuse(pipe, pipe.ranks > 1, "several ranks (it depends on where the data set is sliced)")
    return [[[exact.grain_windows(n, pipe.buffer, seed)]]]


def _exact_hf(pipe: Pipeline, shard_samples: I64, epochs: int) -> list[list[list[I64]]]:
    starts = np.cumsum(shard_samples) - shard_samples
    shards = np.arange(len(shard_samples), dtype=np.int64)
    dealt = len(shards) % pipe.ranks == 0
    out = []
    for epoch in range(epochs):
        order = exact.hf_shard_order(len(shards), pipe.seed, epoch) if pipe.shuffle_shards else shards
        streams: list[list[I64]] = []
        for r in range(pipe.ranks if dealt else 1):
            mine = order[r :: pipe.ranks] if dealt else order
            streams.append([])
            for w in range(pipe.lanes_per_rank):
                ids = lane_of(pipe, mine[w :: pipe.lanes_per_rank], starts, shard_samples).ids
                # A DataLoader worker shifts the generator by its number, worker 0 included.
                shifts = ([epoch] if epoch else []) + ([w] if pipe.workers else [])
                rng = exact.hf_generator(pipe.seed, shifts)
                streams[-1].append(ids[exact.hf_half_flush(len(ids), pipe.buffer, rng)])
        out.append(_deal(pipe, streams))
    return out


EXACT = {
    "dali": _exact_dali,
    "tfdata": _exact_tfdata,
    "torch": _exact_torch,
    "webdataset": _exact_webdataset,
    "hf-5.1": _exact_hf,
    "grain-window": _exact_grain,
    "grain-map": _exact_grain,
    "none": _exact_none,
}


# -- batches --------------------------------------------------------------------------------------------------------


def batches(pipe: Pipeline, streams: list[list[I64]]) -> Delivered:
    """Cuts every lane into batches (the last one may be short), takes a rank's lanes in turn, and puts the ranks'
    batches side by side, step by step."""
    b = pipe.batch_size
    flat = [stream for lanes in streams for stream in lanes]
    if len(flat) == 1:
        ids = flat[0]
        first = np.append(np.arange(0, len(ids), b), len(ids)).astype(np.int64)
        count = len(first) - 1
        return Delivered(ids, first, np.zeros(count, np.int64), np.arange(count), 1, b)
    counts = np.array([-(-len(s) // b) for s in flat])  # [lanes] batches of each
    lane = np.repeat(np.arange(len(flat)), counts)  # [batches]
    turn = np.concatenate([np.arange(c) for c in counts])  # the lane's own number of the batch
    rank_of_lane = np.repeat(np.arange(len(streams)), [len(lanes) for lanes in streams])
    rank = rank_of_lane[lane]
    start = np.repeat(np.cumsum([0] + [len(s) for s in flat[:-1]]), counts) + turn * b
    size = np.minimum(b, np.array([len(s) for s in flat])[lane] - turn * b)
    by_rank = np.lexsort((lane, turn, rank))
    # A rank's batches: first batch of every worker, second of every worker, ...; its step is its number there.
    step = np.empty(len(lane), np.int64)
    per_rank = np.bincount(rank, minlength=len(streams))
    step[by_rank] = np.concatenate([np.arange(c) for c in per_rank])
    order = np.lexsort((rank, step))
    start, size = start[order], size[order]
    first = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    at = np.repeat(start - first[:-1], size) + np.arange(first[-1])
    return Delivered(np.concatenate(flat)[at], first, rank[order], step[order], len(streams), b)
