"""The Layout: every sample's shard and byte offset, before one payload byte moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.cuts import floor_cut
from ..base.errors import UsageError
from ..base.units import show_size
from .index import Column
from .order import Order

I64 = npt.NDArray[np.int64]
FileBytes = Callable[[I64], I64]

# How many shard counts are tried one after the other before the search takes larger steps.
EXACT_TRIES = 4096


@dataclass(frozen=True)
class Limits:
    """What the user asked of the shards; all that are given hold together.

    shards   exactly so many
    bytes    no shard file larger than this
    samples  no shard with more samples than this
    balance  'samples': as many samples in every shard; 'bytes': as many bytes
    """

    shards: int | None = None
    bytes: int | None = None
    samples: int | None = None
    balance: str = "samples"


@dataclass(frozen=True)
class Layout:
    """n samples in N shards.

    order        which sample stands where
    ids          column of n: order.whole(), kept because asking again costs a sort
    end          int64 column of n: bytes of all frames up to and including output position j
    cuts         int64[N+1]: shard k holds output positions cuts[k]..cuts[k+1]-1
    shard_bytes  int64[N]: size of every shard file
    """

    format: str
    order: Order
    ids: Column
    end: Column
    cuts: I64
    shard_bytes: I64

    @property
    def samples(self) -> int:
        """n"""
        return self.order.samples

    @property
    def shards(self) -> int:
        """N"""
        return len(self.shard_bytes)

    def window(self, lo: int, hi: int) -> tuple[I64, I64]:
        """Output positions lo..hi-1 of one shard: sample ids int64[k], and int64[k+1] the frames' places in that
        shard, the end of the last one behind them. O(hi - lo)."""
        ids = self.ids[lo:hi].astype(np.int64)
        shard = int(np.searchsorted(self.cuts, lo, side="right")) - 1
        if hi > self.cuts[shard + 1]:
            raise ValueError(f"positions {lo}..{hi} lie in more than one shard")
        base = self._before(int(self.cuts[shard]))
        place = np.empty(hi - lo + 1, np.int64)
        place[0] = self._before(lo) - base
        np.subtract(self.end[lo:hi], base, out=place[1:])
        return ids, place

    def cut_by_bytes(self, lo: int, most: int) -> int:
        """The last output position hi of lo's shard such that frames lo..hi-1 together have at most `most`
        bytes, but at least lo + 1."""
        shard = int(np.searchsorted(self.cuts, lo, side="right")) - 1
        stop = int(self.cuts[shard + 1])
        start = self._before(lo)
        # The mean frame of the shard says how far to look; where that falls short, look further.
        mean = max(1, (self._before(stop) - self._before(int(self.cuts[shard]))) // (stop - int(self.cuts[shard])))
        reach = min(stop, lo + 2 * (most // mean) + 16)
        ends = self.end[lo:reach]
        return max(lo + 1, lo + int(np.searchsorted(ends, start + most, side="right")))

    def _before(self, position: int) -> int:
        return int(self.end[position - 1 : position][0]) if position else 0


def shard_names(name: str, format: str, shards: int) -> tuple[str, ...]:
    """'train-00000-of-00016.tfrecord' (the field's convention for TFRecord), 'train-000000.tar' (for WebDataset)."""
    if format == "tfrecord":
        width = max(5, len(str(shards)))
        return tuple(f"{name}-{k:0{width}}-of-{shards:0{width}}.tfrecord" for k in range(shards))
    width = max(6, len(str(shards - 1)))
    return tuple(f"{name}-{k:0{width}}.{format}" for k in range(shards))


def contents(end: Column, cuts: I64) -> I64:
    """Bytes of frames in every shard, int64[N]."""
    inner = np.concatenate([np.zeros(1, np.int64), end.take(cuts[1:] - 1)])
    return np.diff(inner)


def _frames_at(end: Column, positions: I64) -> I64:
    """Bytes of the frames at these output positions."""
    before = np.where(positions > 0, end.take(np.maximum(positions - 1, 0)), 0)
    return end.take(positions) - before


def shard_cuts(end: Column, shards: int, balance: str = "samples") -> I64:
    """int64[N+1]: where the order of n samples is cut into N shards, none empty.

    balance  'samples': floor(k*n/N); 'bytes': the cut nearest to k/N of all bytes, so that shards differ by about one
             sample's size and not by how sizes happened to fall
    """
    n, numbers = len(end), np.arange(shards + 1, dtype=np.int64)
    if balance == "samples":
        return floor_cut(n, shards, numbers)
    wanted = floor_cut(int(end[n - 1 : n][0]), shards, numbers)
    cuts = _first_reaching(end, wanted)
    before = np.where(cuts > 0, end.take(np.maximum(cuts - 1, 0)), 0)
    earlier = np.where(cuts > 1, end.take(np.maximum(cuts - 2, 0)), 0)
    cuts -= (cuts > 0) & (wanted - earlier < before - wanted)
    cuts[0], cuts[-1] = 0, n
    # at least one sample each: from the left, then from the right
    cuts = np.maximum.accumulate(cuts - numbers) + numbers
    return np.minimum(cuts, n - shards + numbers)


def _first_reaching(end: Column, wanted: I64) -> I64:
    """The smallest c such that the first c frames have at least `wanted` bytes, by bisection of all at once."""
    low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), len(end), np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        held = np.where(middle > 0, end.take(np.maximum(middle - 1, 0)), 0)
        enough = held >= wanted
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle + 1)
    return low


def choose_shards(
    end: Column, limits: Limits, file_bytes: FileBytes, *, oversize: I64, strict: bool
) -> tuple[int, list[str]]:
    """The number of shards that the limits ask for, and warnings.

    end         int64 column: cumulative frame bytes by output position
    file_bytes  size of a shard file with so many bytes of frames
    oversize    output positions of the samples that exceed the byte limit alone; it gives way for them: the
                other samples of their shards must keep it without them

    Raises UsageError when the limits contradict each other; the message names the smallest N that satisfies all.
    """
    if limits.shards is not None:
        return _exactly(end, limits, file_bytes, oversize, strict)
    return _fewest(end, limits, file_bytes, oversize), []


def _exactly(
    end: Column, limits: Limits, file_bytes: FileBytes, oversize: I64, strict: bool
) -> tuple[int, list[str]]:
    n, wanted = len(end), limits.shards or 0
    warnings = []
    if wanted > n:
        text = f"{n:,} samples cannot fill {wanted:,} shards: one shard a sample, {n:,} shards"
        if strict:
            raise UsageError(text, remedy=f"ask for --shards {n} or fewer, or leave out --strict")
        warnings.append(text)
        wanted = n
    broken = _broken(end, wanted, limits, file_bytes, oversize)
    if broken:
        fewest = _fewest(end, limits, file_bytes, oversize)
        raise UsageError(
            f"{limits.shards:,} shards cannot keep the other limits",
            why=broken,
            remedy=f"the smallest number of shards that keeps them all is {fewest:,}: --shards {fewest}",
        )
    return wanted, warnings


def _broken(end: Column, shards: int, limits: Limits, file_bytes: FileBytes, oversize: I64) -> str | None:
    """Which limit N shards break, in words, or None."""
    cuts = shard_cuts(end, shards, limits.balance)
    most = int(np.diff(cuts).max())
    if limits.samples is not None and most > limits.samples:
        return f"a shard would hold {most:,} samples, more than --shard-samples {limits.samples:,}"
    if limits.bytes is None:
        return None
    held = contents(end, cuts)
    np.subtract.at(held, np.searchsorted(cuts, oversize, side="right") - 1, _frames_at(end, oversize))
    sizes = file_bytes(held)
    largest = int(sizes.max())
    if largest > limits.bytes:
        return f"a shard would have {show_size(largest)}, more than --shard-size {show_size(limits.bytes)}"
    return None


def _fewest(end: Column, limits: Limits, file_bytes: FileBytes, oversize: I64) -> int:
    """The smallest N whose floor cut keeps the limits.

    The largest shard does not shrink steadily with N (a cut may move between two large samples), so N is tried
    upwards from the bound that the total gives.
    """
    n = len(end)
    shards = 1
    if limits.samples is not None:
        shards = max(shards, -(-n // limits.samples))
    if limits.bytes is not None:
        total = int(end[n - 1 : n][0]) - int(_frames_at(end, oversize).sum())
        shards = max(shards, min(n, -(-total // limits.bytes)))
    tries = 0
    while shards < n and _broken(end, shards, limits, file_bytes, oversize):
        tries += 1
        shards += 1 if tries < EXACT_TRIES else max(1, shards // 100)
    return min(shards, n)
