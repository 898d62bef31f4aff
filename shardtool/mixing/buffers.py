"""What a shuffle buffer does to the order of a stream: one function a buffer, all on positions 0..n-1.

Every kernel returns `out`, int64[n], a permutation: out[t] is the stream position of the sample that is delivered
t-th. They have the *law* of the loader's buffer, in array operations; the loader's own draws are in `exact`.

The rolling buffer without a loop. Call w[i] the slot that sample i is written to: w[i] = i while the buffer fills
(i < B), w[B+t] = the slot r[t] that is picked in step t, because the sample read next takes the place of the one
that leaves. A slot changes only when it is written to, so step t delivers the sample of the previous write to the
same slot: out[t] = max{ i < B+t : w[i] = r[t] }. All steps at once are one grouping of (slot, time) pairs.

In-place, ring and swap-with-last buffers (tf.data, DALI, torch, hand-written loaders) share that law: the state is
the set of samples held, every step delivers a uniform member of it and adds the next sample; where they lie is a
relabelling that the past decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..base.seeds import Generator

I64 = npt.NDArray[np.int64]

# Scratch of the grouping: slot bits + 17 fit in 32 for buffers up to 32,768, and sorting 2**17 keys stays in cache.
CHUNK = 1 << 17


def rolling(n: int, capacity: int, rng: Generator, drain: str = "shuffle") -> I64:
    """Fill `capacity`, then deliver a uniform slot and put the next sample there; at the end deliver the rest.

    drain   'shuffle': the rest in random order (popping at random has the same law); 'inorder': slot by slot, as
            some hand-written loaders do
    """
    capacity = max(1, min(capacity, n))
    if n == 0:
        return np.zeros(0, np.int64)
    if capacity == n and drain == "shuffle":
        return rng.permutation(n)
    slots = np.arange(capacity, dtype=np.int64)
    picks = rng.integers(0, capacity, size=n - capacity, dtype=np.uint32 if capacity < 1 << 32 else np.uint64)
    out = np.empty(n, np.int64)
    replace(slots, picks, capacity, out)
    out[n - capacity :] = rng.permutation(slots) if drain == "shuffle" else slots
    return out


def replace(slots: I64, picks: npt.NDArray[np.integer], first_id: int, out: I64) -> None:
    """Step t delivers slots[picks[t]] into out[t] and writes `first_id + t` there; `slots` holds the end state.

    Keys (slot << bits | time) are unique, so numpy's fast unstable sort orders the writes to every slot in time.
    """
    steps = len(picks)
    bits = CHUNK.bit_length() - 1
    small = (len(slots) - 1).bit_length() + bits <= 32
    dtype: type[np.unsignedinteger[Any]] = np.uint32 if small else np.uint64
    time = np.arange(min(CHUNK, steps), dtype=dtype)
    shift, mask = dtype(bits), dtype(CHUNK - 1)
    for start in range(0, steps, CHUNK):
        stop = min(steps, start + CHUNK)
        size = stop - start
        keys: npt.NDArray[np.unsignedinteger[Any]] = picks[start:stop].astype(dtype)  # [size]
        keys <<= shift
        keys |= time[:size]
        keys.sort()
        when = (keys & mask).astype(np.int64)  # [size] time of the write within the chunk, slot by slot
        keys >>= shift
        heads = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        heads = np.concatenate([np.zeros(1, np.int64), heads])  # first write to each slot that is hit
        hit = keys[heads].astype(np.int64)
        delivered = np.empty(size, np.int64)
        delivered[1:] = when[:-1]
        delivered[1:] += first_id + start  # what the previous write to the slot put there ...
        delivered[heads] = slots[hit]  # ... or what it held when the chunk began
        out[start:stop][when] = delivered
        tails = np.append(heads[1:], size) - 1
        slots[hit] = when[tails] + (first_id + start)


class Picks(Protocol):
    """Where a growing buffer takes its picks from: a law, or a loader's own generator."""

    def one(self, bound: int) -> int:
        """A number below `bound`."""

    def many(self, bound: int, count: int) -> I64:
        """The next `count` numbers below `bound`, int64[count]."""

    def drain(self, held: I64) -> I64:
        """The order in which the rest is delivered, picked and replaced by the last."""


@dataclass(frozen=True)
class UniformPicks:
    """The law."""

    rng: Generator

    def one(self, bound: int) -> int:
        return int(self.rng.integers(bound))

    def many(self, bound: int, count: int) -> I64:
        return self.rng.integers(0, bound, size=count)

    def drain(self, held: I64) -> I64:
        return self.rng.permutation(held)


def growing(n: int, capacity: int, initial: int, picks: Picks) -> I64:
    """webdataset's `shuffle(capacity, initial)`: delivers as soon as `initial` samples are there, and reads two
    samples for each delivered one until `capacity` are held.

    While it grows this is a plain loop (at most `capacity` steps). Then the sample read last always lies at the end
    of the list, and what is picked is replaced by it: list position capacity-1 passes it straight through, the
    positions before it are a rolling buffer of capacity-1.
    """
    initial = min(initial, capacity)
    held: list[int] = []
    out = np.empty(n, np.int64)
    read = done = 0
    while read < n and not (len(held) == capacity - 1 and capacity > 1 and capacity >= initial):
        held.append(read)
        read += 1
        if len(held) < capacity and read < n:
            held.append(read)
            read += 1
        if len(held) >= initial:
            k = picks.one(len(held))
            out[done] = held[k]
            held[k] = held[-1]
            held.pop()
            done += 1
    rest = np.array(held, np.int64)
    if read < n:
        chosen = picks.many(capacity, n - read)  # [steps]
        through = np.arange(read, n, dtype=np.int64)  # what is read, and by default delivered, in each step
        hit = np.flatnonzero(chosen < capacity - 1)
        names = np.concatenate([rest, through[hit]])  # what was held, then what takes its place
        slots = np.arange(capacity - 1, dtype=np.int64)
        order = np.empty(len(hit), np.int64)
        replace(slots, chosen[hit], capacity - 1, order)
        through[hit] = names[order]
        out[done : done + len(through)] = through
        done += len(through)
        rest = names[slots]
    out[done:] = picks.drain(rest)
    return out


def windows(n: int, size: int, rng: Generator) -> I64:
    """Tumbling windows: every `size` samples are permuted among themselves (Grain, CorgiPile, py1s per shard)."""
    size = max(1, min(size, n or 1))
    whole = n // size * size
    out = np.arange(n, dtype=np.int64)
    if size > 1:
        out[:whole] = rng.permuted(out[:whole].reshape(-1, size), axis=1).ravel()
        out[whole:] = rng.permutation(out[whole:])
    return out


def pieces(bounds: I64, rng: Generator) -> I64:
    """Every piece bounds[i]..bounds[i+1] permuted within itself; int64[bounds[-1]]."""
    n = int(bounds[-1])
    sizes = np.diff(bounds)
    if len(sizes) and (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0] and sizes[0]:
        return windows(n, int(sizes[0]), rng)
    # One sort of (piece, random) pairs: the piece in the high bits keeps the pieces apart.
    keys = rng.random(n)
    keys += np.repeat(np.arange(len(sizes), dtype=np.float64), sizes)
    return np.argsort(keys)


def half_flush(n: int, capacity: int, rng: Generator) -> I64:
    """Hugging Face datasets 5.1 and later: fill to `capacity`, permute, deliver half (rounded up), keep half.

    All permutations are drawn at once, [steps, capacity]; a delivered place that was kept from the step before is
    followed back until the step in which it was read (half of them each time).
    """
    capacity = max(1, min(capacity, n or 1))
    keep = capacity // 2
    give = capacity - keep
    steps = (n - keep) // give if n >= capacity else 0
    out = np.empty(n, np.int64)
    if steps:
        places = np.broadcast_to(np.arange(capacity, dtype=np.int32), (steps, capacity))
        perm = rng.permuted(places, axis=1)  # [steps, capacity]
        out[: steps * give] = _trace(
            perm, keep, np.repeat(np.arange(steps), give), perm[:, :give].ravel().astype(np.int64)
        )
        kept = _trace(perm, keep, np.full(keep, steps - 1), perm[-1, give:].astype(np.int64))
        rest = np.concatenate([kept, np.arange(keep + steps * give, n)])
    else:
        rest = np.arange(n)
    out[steps * give :] = rng.permutation(rest)
    return out


def _trace(perm: npt.NDArray[np.int32], keep: int, step: I64, place: I64) -> I64:
    """Stream positions of what lies at `place` of the buffer in `step`. Places below `keep` were kept."""
    give = perm.shape[1] - keep
    found = np.empty(len(place), np.int64)
    ask = np.arange(len(place))
    while len(ask):
        new = (place >= keep) | (step == 0)
        found[ask[new]] = place[new] + step[new] * give  # step s reads places keep.. = positions keep + s*give ..
        old = ~new
        ask, step, place = ask[old], step[old] - 1, place[old]
        place = perm[step, give + place].astype(np.int64)
    return found


def spread(n: int, bounds: I64, reach: int, rng: Generator) -> I64:
    """MosaicML py1e: every sample of piece i moves by U(-c, c), c = (R - size of the piece) / 2, R uniform in
    0.75..1.25 `reach`, kept inside 0..n; the order of the moved positions. No move where the piece is larger."""
    sizes = np.diff(bounds)  # [pieces]
    cut = (rng.integers(max(1, int(0.75 * reach)), max(2, int(1.25 * reach)), size=len(sizes)) - sizes) / 2
    cut = np.maximum(cut, 0)
    low = np.maximum(-cut, -bounds[:-1])
    high = np.minimum(cut, n - bounds[1:])
    inside = pieces(bounds, rng)  # samples are permuted within their piece first
    at = np.arange(n, dtype=np.float64)
    at += np.repeat(low, sizes) + rng.random(n) * np.repeat(high - low, sizes)
    return inside[_order_of(at)]


def _order_of(at: npt.NDArray[np.float64]) -> I64:
    """argsort of positions in 0..n: as one sort of integers (position in fixed point, number), which is several times
    as fast; ties closer than 2**-8 of a sample go by number."""
    bits = max(1, len(at)).bit_length()
    point = min(20, 63 - 2 * bits)
    if point < 8:
        return np.argsort(at)
    keys = (np.maximum(at, 0) * (1 << point)).astype(np.uint64)
    keys <<= np.uint64(bits)
    keys |= np.arange(len(at), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << bits) - 1)
    return keys.astype(np.int64)


def clumps(n: int, size: int, rng: Generator) -> I64:
    """LanceDB's `shuffle_clump_size`: runs of `size` samples stay together, the runs are in random order."""
    size = max(1, size)
    if size == 1:
        return rng.permutation(n)
    order = rng.permutation(-(-n // size))
    out = (order[:, None] * size + np.arange(size)).ravel()  # [runs, size]; the last run may be short
    return out[out < n]


def random_blocks(n: int, reach: int, rng: Generator) -> I64:
    """MosaicML py1br: tumbling blocks of random size, 0.75..1.25 `reach`, the first one cut at random."""
    low, high = max(1, int(0.75 * reach)), max(2, int(1.25 * reach))
    sizes = rng.integers(low, high, size=n // low + 2)
    ends = np.cumsum(sizes) - rng.integers(0, low)
    ends = ends[(ends > 0) & (ends < n)]
    return pieces(np.concatenate([[0], ends, [n]]).astype(np.int64), rng)


def interleave(sizes: I64, cycle: int) -> I64:
    """Round robin over `cycle` open shards, one sample each; int64[sum(sizes)].

    tf.data's `interleave(cycle_length=cycle, block_length=1)` on shards of the given sizes that are stored one
    after the other: that a shard has ended is noticed at its next turn, which yields nothing; at the turn after
    that the next shard is opened in its place (interleave_dataset_op.cc).
    """
    ends = np.cumsum(sizes)  # [shards]
    if cycle <= 1 or len(sizes) <= 1:
        return np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    at = ends - sizes
    out: list[I64] = []
    places = list(range(min(cycle, len(sizes))))  # the shard that is open at each place of the cycle
    following = len(places)
    while places:
        now = np.array(places)
        turns = int((ends[now] - at[now]).min())
        if turns:
            out.append((at[now] + np.arange(turns)[:, None]).ravel())  # [turns, open shards]
            at[now] += turns
        over = at[now] == ends[now]
        live = now[~over]  # the turn in which the others are found empty
        out.append(at[live].copy())
        at[live] += 1
        still: list[int] = []
        for shard, ended in zip(places, over.tolist(), strict=True):
            if not ended:
                still.append(shard)
            elif following < len(sizes):
                still.append(following)
                following += 1
        places = still
    return np.concatenate(out)


def alternate(groups: list[I64]) -> I64:
    """One of each array in turn, those that have ended left out (Hugging Face datasets, over groups of shards)."""
    if len(groups) == 1:
        return groups[0]
    turn = np.concatenate([np.arange(len(g)) for g in groups])
    who = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    return np.concatenate(groups)[np.lexsort((who, turn))]
