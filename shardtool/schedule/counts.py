"""How many samples and batches every lane of every rank delivers in every epoch: numbers only, no ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .world import World

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Arrays of [epoch, rank, lane] may be broadcast views (every epoch alike); never write to them.

    samples   int64[epoch, rank, lane]   delivered, padding included
    batches   int64[epoch, rank, lane]   delivered, zero-size ones included
    padding   int64[epoch, rank, lane]   copies of a sample that fill a batch or a shard, part of `samples`
    dropped   int64[epoch, rank, lane]   samples of the lane's own piece that it does not deliver
    shard     int64[epoch, rank]         number of the (first) piece or shard that the rank reads, -1: none
    first     int64[epoch, rank]         first id delivered, -1: none
    zero_batches int64[epoch, rank]      batches of no sample at all
    copy_batches int64[epoch, rank]      batches of nothing but padding
    distinct  int64[epoch]               different samples delivered by all ranks together
    distinct_ever  different samples over all epochs; None where it depends on a random order
    expected  the numbers of different samples are expectations, not facts
    """

    samples: I64
    batches: I64
    padding: I64
    dropped: I64
    shard: I64
    first: I64
    zero_batches: I64
    copy_batches: I64
    distinct: I64
    distinct_ever: int | None
    expected: bool = False

    @property
    def epochs(self) -> int:
        return int(self.samples.shape[0])

    def of_rank(self, name: str) -> I64:
        """samples, batches, padding or dropped summed over a rank's lanes: int64[epoch, rank]."""
        array: I64 = getattr(self, name)
        return array.sum(axis=2) if array.shape[2] > 1 else array[:, :, 0]


def every_epoch(array: I64, epochs: int) -> I64:
    """[rank, ...] -> [epoch, rank, ...] without a copy."""
    return np.broadcast_to(array, (epochs, *array.shape))


def count_iterable(
    pieces: I64, world: World, epochs: int, *, drop_last: bool, first: I64, shard: I64,
    distinct: int | None = None, distinct_ever: int | None = -1, epoch_opaque: bool = False,
) -> Counts:  # fmt: skip
    """Counts of a torch DataLoader over an IterableDataset: every worker makes its own batches of its own
    piece.

    pieces, first and shard int64[rank, lane]: size, first id, and shard of that id. `distinct`: different
    samples in an epoch; None: the pieces are disjoint, so their sum. `epoch_opaque`: each epoch drops other
    samples, so that the union over epochs is unknown unless nothing is dropped.
    """
    size = world.batch_size
    batches = pieces // size if drop_last else -(-pieces // size)
    samples = np.minimum(batches * size, pieces)
    none = np.zeros_like(pieces)
    each = int(samples.sum()) if distinct is None else distinct
    if distinct_ever == -1:
        distinct_ever = None if epoch_opaque and epochs > 1 else each
    rows = np.arange(len(pieces))
    at = np.argmax(samples > 0, axis=1)  # the first lane of a rank that delivers anything
    some = samples[rows, at] > 0
    first, shard = np.where(some, first[rows, at], -1), np.where(some, shard[rows, at], -1)
    return Counts(
        samples=every_epoch(samples, epochs),
        batches=every_epoch(batches, epochs),
        padding=every_epoch(none, epochs),
        dropped=every_epoch(pieces - samples, epochs),
        shard=every_epoch(shard, epochs),
        first=every_epoch(first, epochs),
        zero_batches=every_epoch(none[:, 0], epochs),
        copy_batches=every_epoch(none[:, 0], epochs),
        distinct=np.full(epochs, each, np.int64),
        distinct_ever=distinct_ever,
    )


def deal_batches(samples: I64, batch_size: int, lanes: int) -> tuple[I64, I64]:
    """A map-style DataLoader hands batch j of a rank to worker j % lanes: (samples, batches) int64[rank,
    lane].

    samples int64[rank]; only the last batch may be short.
    """
    batches = -(-samples // batch_size)
    lane = np.arange(lanes, dtype=np.int64)
    # [rank, lane]: batches j of 0..batches-1 with j % lanes == lane
    dealt = np.maximum((batches[:, None] - lane + lanes - 1) // lanes, 0)
    whole = dealt * batch_size
    short = batches * batch_size - samples  # what the last batch lacks, int64[rank]
    last = np.where(batches > 0, (batches - 1) % lanes, -1)
    whole -= np.where(lane == last[:, None], short[:, None], 0)
    return whole, dealt
