"""All randomness of shardtool: a counter hash, never a stateful generator; and, for simulation, other people's.

`mix64` is the finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014): a bijection of 64-bit numbers. Sort keys and streams are hashes of (seed, counter), so any part of
them can be computed anywhere, in any order, by any process.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

U64 = npt.NDArray[np.uint64]


def mix64(value: int) -> int:
    """The splitmix64 finaliser of one number; the result is in [0, 2**64)."""
    z = value & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


def mix64_inplace(z: U64) -> U64:
    """The same for every element of a uint64 array, overwriting it; returns the array."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def sort_key(seed: int, i: int) -> int:
    """Key of sample i: mix64(mix64(seed + G) + (i+1)*G). Samples by ascending key are the shuffled order.

    The seed is hashed first: with mix64(seed + i) seed 1 would be seed 0 shifted by one sample, with
    mix64(seed ^ i) it would be seed 0 with neighbours exchanged.
    """
    return mix64(mix64(seed + GOLDEN) + (i + 1) * GOLDEN)


def sort_keys(seed: int, lo: int, hi: int) -> U64:
    """Keys of samples lo..hi-1, uint64[hi-lo]."""
    z = np.arange(lo + 1, hi + 1, dtype=np.uint64)
    z *= np.uint64(GOLDEN)
    z += np.uint64(mix64(seed + GOLDEN))
    return mix64_inplace(z)


def named_stream(seed: int, *names: str | int) -> int:
    """A 64-bit seed for the stream with these names, e.g. named_stream(7, "shard order", epoch).

    Streams with different names are independent; `seed + epoch` would make epoch 1 of seed 0 equal to epoch 0
    of seed 1.
    """
    state = mix64(seed + GOLDEN)
    for name in names:
        data = name.encode() if isinstance(name, str) else name.to_bytes(8, "little", signed=name < 0)
        tag = 1 if isinstance(name, str) else 2
        state = mix64(state + tag * GOLDEN + len(data))
        for at in range(0, len(data), 8):
            state = mix64((state ^ int.from_bytes(data[at : at + 8], "little")) + GOLDEN)
    return state


def seed_process(seed: int) -> None:
    """Seed Python's and numpy's global generators, for code of others that draws from them in a loader's worker."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - the legacy generator is the one that others draw from


# -- simulation ---------------------------------------------------------------------------------------------------
#
# What follows is for simulating other people's shuffles. No byte that shardtool writes depends on it.

PythonRandom = random.Random
if TYPE_CHECKING:
    Generator = np.random.Generator
else:  # numpy imports its generators when they are first asked for, and a repack never asks

    def __getattr__(name: str) -> object:
        if name == "Generator":
            return np.random.Generator
        raise AttributeError(name)


def generator(seed: int, *names: str | int) -> Generator:
    """A numpy generator for a simulation: its law matters, its stream is numpy's own and not promised."""
    return np.random.Generator(np.random.PCG64(named_stream(seed, *names)))


def numpy_default_rng(seed: int) -> Generator:
    """`numpy.random.default_rng(seed)`: what Hugging Face datasets draws from."""
    return np.random.default_rng(seed)


def python_random(seed: int) -> random.Random:
    """`random.Random(seed)`: what torch's Shuffler and webdataset draw from."""
    return random.Random(seed)


def python_below(source: random.Random, bound: int, count: int) -> npt.NDArray[np.int64]:
    """`[source.randrange(bound) for _ in range(count)]` as int64[count], without the loop; `source` moves on.

    CPython takes the top bit_length(bound) bits of successive words of MT19937 and throws away what is not below
    the bound (Lib/random.py, `_randbelow_with_getrandbits`); numpy has the same generator, so its state is copied
    there and back. For 1 <= bound < 2**32.
    """
    bits = np.random.MT19937()
    version, words, gauss = source.getstate()
    state = bits.state
    state["state"] = {"key": np.array(words[:-1], np.uint32), "pos": words[-1]}
    bits.state = state
    width = bound.bit_length()
    draws = np.empty(count, np.int64)
    done = 0
    while done < count:
        before = bits.state
        # About 2**width / bound words are needed for one draw; a few more, so that one round is the rule.
        raw = bits.random_raw(int((count - done) * (2**width / bound) * 1.02) + 64).astype(np.uint32)
        raw >>= np.uint32(32 - width)
        good = np.flatnonzero(raw < bound)[: count - done]
        draws[done : done + len(good)] = raw[good]
        done += len(good)
        if done == count and len(good):
            # Back to just behind the last word that was used: the caller's next draw must be CPython's.
            bits.state = before
            bits.random_raw(int(good[-1]) + 1)
    last = bits.state["state"]
    source.setstate((version, (*(int(word) for word in last["key"]), int(last["pos"])), gauss))
    return draws


def mt19937_words(seed: int, count: int) -> npt.NDArray[np.uint32]:
    """The first `count` words of C++'s `std::mt19937(seed)`, uint32[count]."""
    return np.frombuffer(np.random.RandomState(seed).bytes(4 * count), "<u4")
