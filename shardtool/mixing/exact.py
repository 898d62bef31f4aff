"""The order that a real loader delivers, bit for bit: its own generator, draw by draw.

These are facts about the named releases, not promises of those projects; the recorded orders in tests/golden hold
them. All functions work on positions of the stream that the buffer reads, like those of `buffers`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..base.foreign_rng import MinStd, index_shuffle, philox_words, std_shuffle
from ..base.seeds import Generator, PythonRandom, numpy_default_rng, python_below, python_random
from .buffers import growing, replace

I64 = npt.NDArray[np.int64]

DALI_LIST_SEED = 524287  # kDaliDataloaderSeed in DALI's loader.h: the file list does not follow `seed`
TF_GRAPH_SEED = 87654321  # DEFAULT_GRAPH_SEED: tf.random.set_seed was not called


# -- rings: DALI and tf.data ---------------------------------------------------------------------------------------


def ring(sizes: list[int], capacity: int, draw: Callable[[npt.NDArray[np.int64]], list[int]]) -> I64:
    """A ring buffer over consecutive epochs of `sizes` samples: positions in the stream of all epochs, delivered.

    Step t picks an offset into what the ring holds of the epoch that is being delivered, swaps it to the front,
    delivers it, and reads sample t + capacity into the freed slot. `draw` gives the offsets for the numbers of
    samples to choose from.
    """
    total = sum(sizes)
    ends = np.cumsum(sizes)
    t = np.arange(total, dtype=np.int64)
    end = np.repeat(ends, sizes)
    held = np.minimum(end, t + capacity) - t  # [total] how many of this epoch are in the ring
    slots = list(range(capacity))
    out = [0] * total
    for step, offset in enumerate(draw(held)):
        front = step % capacity
        at = (step + offset) % capacity
        out[step] = slots[at]
        slots[at] = slots[front]
        slots[front] = step + capacity
    return np.array(out, np.int64)


def dali(sizes: list[int], fill: int, seed: int) -> I64:
    """NVIDIA DALI 2.4.0, `random_shuffle=True, initial_fill=fill, seed=seed`: one reader's stream over its epochs.

    The ring goes on across epochs (and across shards when the reader does not stick to one), but never mixes them.
    """
    below = MinStd(seed).below
    return ring(sizes, fill, lambda held: [below(h) for h in held.tolist()])


def dali_file_list(n: int) -> I64:
    """The order of the list that DALI's file reader shuffles once when `random_shuffle=True`, whatever the seed."""
    return std_shuffle(n, DALI_LIST_SEED)


def tfdata(n: int, capacity: int, seed: int, iteration: int) -> I64:
    """TensorFlow 2.21 `Dataset.shuffle(capacity, seed=seed)`, the `iteration`-th pass over it."""
    first, second = philox_words(TF_GRAPH_SEED, seed, 2 * iteration, 2 * iteration + 2).tolist()
    words = philox_words(first, second, 0, n).astype(np.int64)
    return ring([n], max(1, min(capacity, n)), lambda held: (words % held).tolist())


# -- Python's random: torch and webdataset -------------------------------------------------------------------------


def torch(n: int, capacity: int, seed: int) -> I64:
    """torch 2.13 `IterDataPipe.shuffle(buffer_size=capacity).set_seed(seed)`."""
    source = python_random(seed)
    capacity = min(capacity, n)
    slots = np.arange(capacity, dtype=np.int64)
    out = np.empty(n, np.int64)
    if n > capacity:
        replace(slots, python_below(source, capacity, n - capacity), capacity, out[: n - capacity])
    rest = slots.tolist()
    for t in range(n - capacity, n):
        out[t] = rest.pop(source.randrange(len(rest)))  # later slots move up by one
    return out


class PythonPicks:
    """webdataset's picks: `rng.randint(0, len(buf) - 1)`."""

    def __init__(self, source: PythonRandom) -> None:
        self.source = source

    def one(self, bound: int) -> int:
        return self.source.randrange(bound)

    def many(self, bound: int, count: int) -> I64:
        return python_below(self.source, bound, count)

    def drain(self, held: I64) -> I64:
        rest = held.tolist()
        out = np.empty(len(rest), np.int64)
        for t in range(len(rest)):
            k = self.source.randrange(len(rest))
            out[t] = rest[k]
            rest[k] = rest[-1]
            rest.pop()
        return out


def webdataset(n: int, capacity: int, initial: int, seed: int) -> I64:
    """webdataset 0.2.111 and 1.0.2 `shuffle(capacity, initial=initial, seed=seed)`.

    `detshuffle` is the same with seed + epoch; `WebDataset(shardshuffle=N, seed=seed)` is the same on the worker's
    list of shards with capacity N and initial 100, and without `detshuffle=True` in every epoch again.
    """
    return growing(n, capacity, initial, PythonPicks(python_random(seed)))


# -- numpy: Hugging Face datasets ----------------------------------------------------------------------------------


def hf_generator(seed: int, shifts: list[int]) -> Generator:
    """The buffer's generator after `shift_rngs` with each of `shifts` (the epoch if not 0, then the worker)."""
    for shift in shifts:
        seed = int(numpy_default_rng(seed).integers(0, 1 << 63)) - shift
    return numpy_default_rng(seed)


def hf_half_flush(n: int, capacity: int, rng: Generator) -> I64:
    """datasets 5.2.0 `IterableDataset.shuffle(buffer_size=capacity)`, on sources that yield one sample at a time."""
    out = np.empty(n, np.int64)
    held = np.zeros(0, np.int64)
    read = done = 0
    keep = capacity // 2
    while read + capacity - len(held) <= n:
        fresh = capacity - len(held)
        held = np.concatenate([held, np.arange(read, read + fresh)])
        read += fresh
        held = held[rng.permutation(capacity)]
        out[done : done + capacity - keep] = held[: capacity - keep]
        done += capacity - keep
        held = held[capacity - keep :]
    held = np.concatenate([held, np.arange(read, n)])
    out[done:] = held[rng.permutation(len(held))] if len(held) else held
    return out


def hf_shard_order(shards: int, seed: int, epoch: int) -> I64:
    """Order of the shards in `epoch`: shuffled by the user's seed, and from epoch 1 on once more by the epoch."""
    order = list(range(shards))
    numpy_default_rng(seed).shuffle(order)
    if epoch:
        again = list(range(shards))
        numpy_default_rng(epoch).shuffle(again)
        order = [order[i] for i in again]
    return np.array(order, np.int64)


# -- Grain -----------------------------------------------------------------------------------------------------------


def grain_map(n: int, seed: int, epoch: int) -> I64:
    """Grain 0.2.18 `MapDataset.shuffle(seed)`: a cipher of the index, with seed + epoch."""
    return index_shuffle(np.arange(n, dtype=np.int64), n - 1, (seed + epoch) % (1 << 32))


def grain_windows(n: int, size: int, seed: int) -> I64:
    """Grain 0.2.18 `WindowShuffleIterDataset(size, seed)`: every window by the cipher with seed + its number, and
    delivered from its end."""
    out = np.empty(n, np.int64)
    for number, start in enumerate(range(0, n, size)):
        held = min(size, n - start)
        inside = index_shuffle(np.arange(held, dtype=np.int64), held - 1, seed + number)
        out[start : start + held] = start + inside[::-1]
    return out
