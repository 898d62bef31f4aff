"""Random generators of the loaders whose order is reproduced bit for bit, as far as they are plain arithmetic.

(The ones that Python and numpy bring themselves are in `seeds`.) They are details of the named releases, not a
promise of those projects; the recorded orders in tests/golden hold them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .seeds import mt19937_words

U32 = npt.NDArray[np.uint32]
_M32 = 0xFFFFFFFF


# -- C++ standard library (libstdc++), as NVIDIA DALI uses it ------------------------------------------------------


def seed_sequence(entropy: list[int], count: int) -> list[int]:
    """`std::seed_seq(entropy).generate(count words)`: ISO C++ [rand.util.seedseq], clause 7."""
    state = [0x8B8B8B8B] * count
    size = len(entropy)
    shift = 11 if count >= 623 else 7 if count >= 68 else 5 if count >= 39 else 3 if count >= 7 else (count - 1) // 2
    near = (count - shift) // 2
    far = near + shift
    rounds = max(size + 1, count)
    for k in range(rounds):
        here, mid, end = k % count, (k + near) % count, (k + far) % count
        word = state[here] ^ state[mid] ^ state[(k - 1) % count]
        first = 1664525 * (word ^ (word >> 27)) & _M32
        if k == 0:
            second = first + size
        elif k <= size:
            second = first + here + (entropy[k - 1] & _M32)
        else:
            second = first + here
        second &= _M32
        state[mid] = (state[mid] + first) & _M32
        state[end] = (state[end] + second) & _M32
        state[here] = second
    for k in range(rounds, rounds + count):
        here, mid, end = k % count, (k + near) % count, (k + far) % count
        word = (state[here] + state[mid] + state[(k - 1) % count]) & _M32
        first = 1566083941 * (word ^ (word >> 27)) & _M32
        second = (first - here) & _M32
        state[mid] ^= first
        state[end] ^= second
        state[here] = second
    return state


class MinStd:
    """`std::minstd_rand0` seeded through `std::seed_seq{seed}`, read by `std::uniform_int_distribution<int>`."""

    MODULUS = 2147483647

    def __init__(self, seed: int) -> None:
        # A generator of one 31-bit word asks the sequence for four words and takes the last.
        self.state = seed_sequence([seed], 4)[3] % self.MODULUS or 1

    def below(self, bound: int) -> int:
        """One draw from 0..bound-1."""
        scale = (self.MODULUS - 2) // bound
        limit = bound * scale
        while True:
            self.state = self.state * 16807 % self.MODULUS
            if self.state - 1 < limit:
                return (self.state - 1) // scale


def std_shuffle(n: int, seed: int) -> npt.NDArray[np.int64]:
    """`std::shuffle` of 0..n-1 with `std::mt19937(seed)`, int64[n].

    libstdc++ draws two positions from one word as long as their product fits in 32 bits
    (bits/stl_algo.h, __gen_two_uniform_ints); a draw below r is the high word of word * r (Lemire's method).
    """
    order = list(range(n))
    words = _words(seed, n + 64)
    if n == 0:
        return np.zeros(0, np.int64)

    def below(bound: int) -> int:
        product = next(words) * bound
        if product & _M32 < bound:
            threshold = (1 << 32) % bound
            while product & _M32 < threshold:
                product = next(words) * bound
        return product >> 32

    def swap(i: int, j: int) -> None:
        order[i], order[j] = order[j], order[i]

    if _M32 // n >= n:
        i = 1
        if n % 2 == 0:
            swap(1, below(2))
            i = 2
        while i < n:
            both = below((i + 1) * (i + 2))
            swap(i, both // (i + 2))
            swap(i + 1, both % (i + 2))
            i += 2
    else:
        for i in range(1, n):
            swap(i, below(i + 1))
    return np.array(order, np.int64)


def _words(seed: int, chunk: int) -> Iterator[int]:
    """The words of mt19937 without end; a longer stream begins with the shorter one."""
    done = 0
    while True:
        yield from mt19937_words(seed, done + chunk)[done:].tolist()
        done += chunk
        chunk = done


# -- Philox 4x32-10, as TensorFlow uses it -------------------------------------------------------------------------


def philox_words(seed: int, seed2: int, lo: int, hi: int) -> U32:
    """Words lo..hi-1 of TensorFlow's `random::PhiloxRandom(seed, seed2)`, uint32[hi-lo].

    Key = the two halves of `seed`, counter = (block number, the two halves of `seed2`), four words a block
    (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
    """
    block = np.arange(lo // 4, -(-hi // 4), dtype=np.uint64)  # [blocks]
    mask, half = np.uint64(_M32), np.uint64(32)
    c0, c1 = block & mask, block >> half
    c2 = np.full_like(block, seed2 & _M32)
    c3 = np.full_like(block, seed2 >> 32 & _M32)
    k0, k1 = seed & _M32, seed >> 32 & _M32
    for _ in range(10):
        p0, p2 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p2 >> half) ^ c1 ^ np.uint64(k0), p2 & mask, (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & _M32, (k1 + 0xBB67AE85) & _M32
    words = np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32).ravel()  # [4 * blocks]
    return words[lo % 4 : lo % 4 + hi - lo]


# -- the Simon-like cipher of Grain's index_shuffle ------------------------------------------------------------------


def index_shuffle(index: npt.NDArray[np.int64], max_index: int, seed: int, rounds: int = 4) -> npt.NDArray[np.int64]:
    """Grain's `index_shuffle(index, max_index, seed, rounds)` of many indices, int64.

    A block cipher of the Simon family (Beaulieu et al., "The SIMON and SPECK families", 2013) on the least even number
    of bits, 16 or more, that ceil(log2(max_index)) asks for, repeated until the result is at most max_index; its
    round keys are the words of `std::seed_seq{seed}`. (For max_index = 2^k, k even and at least 16, the block is one
    bit too small: one index is lost and one comes twice. The real one does that too.)
    """
    if max_index < 1:
        return np.zeros(len(index), np.int64)
    bits = math.ceil(math.log2(max_index))
    word = max(bits + bits % 2, 16) // 2
    mask = np.uint64((1 << word) - 1)
    keys = [np.uint64(key) & mask for key in seed_sequence([seed & _M32], rounds)]

    def turn(x: npt.NDArray[np.uint64], by: int) -> npt.NDArray[np.uint64]:
        by %= word
        return ((x << np.uint64(by)) | (x >> np.uint64(word - by))) & mask

    def mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        return (turn(x, 1) & turn(x, 8)) ^ turn(x, 2)

    value = index.astype(np.uint64)
    todo = np.arange(len(value))
    while len(todo):
        left, right = (value[todo] >> np.uint64(word)) & mask, value[todo] & mask
        for r in range(0, rounds, 2):
            left ^= mixed(right) ^ keys[r]
            right ^= mixed(left) ^ keys[r + 1]
        value[todo] = (left << np.uint64(word)) | right
        todo = todo[value[todo] > np.uint64(max_index)]
    return value.astype(np.int64)
