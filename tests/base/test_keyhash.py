"""Hashes of many strings at once are those of each alone, and structured strings do not collide."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.keyhash import STARTS, STEP, hash128
from shardtool.base.ragged import Ragged
from shardtool.base.seeds import mix64


def literally(key):
    lanes = []
    for start in map(int, STARTS):
        lane = mix64(len(key) + start)
        for at in range(0, len(key), 8):
            lane = mix64(lane ^ int.from_bytes(key[at : at + 8], "little")) + start
        lanes.append(lane % 2**64)
    return lanes


@settings(max_examples=100, deadline=None)
@given(keys=st.lists(st.binary(max_size=40), max_size=30), cut=st.integers(0, 30))
def test_the_definition(keys, cut):
    whole = Ragged.of(keys)
    part = Ragged(whole.data, whole.first[min(cut, len(keys)) :])  # begins in the middle of its data
    assert hash128(part).tolist() == [literally(key) for key in keys[cut:]]
    assert hash128(whole).tolist() == [literally(key) for key in keys]


def test_more_than_a_step():
    keys = [b"k%d" % k for k in range(2 * STEP + 3)]
    assert hash128(Ragged.of(keys)).tolist() == [literally(key) for key in keys]


def test_structured_keys_have_no_lane_in_common():
    """Numbers, zeros at the end, bytes that move by a word: 64-bit lanes of 10^5 keys collide once in 10^9 sets."""
    keys = [b"train/%08d" % k for k in range(40_000)] + [b"%d" % k for k in range(40_000)]
    keys += [b"\0" * k for k in range(300)] + [b"a" * k for k in range(1, 300)]
    keys += [b"%08d%08d%04d" % (a, b, c) for a in range(20) for b in range(20) for c in range(20)]
    hashes = hash128(Ragged.of(keys))
    assert all(len(np.unique(hashes[:, lane])) == len(set(keys)) == len(keys) for lane in (0, 1))


def test_every_bit_of_a_key_moves_half_of_the_hash():
    key = b"a key of 24 bytes length"
    one = literally(key)
    for bit in range(8 * len(key)):
        other = bytearray(key)
        other[bit // 8] ^= 1 << bit % 8
        two = hash128(Ragged.of([bytes(other)]))[0].tolist()
        moved = [bin(a ^ b).count("1") for a, b in zip(one, two, strict=True)]
        assert all(12 <= count <= 52 for count in moved), (bit, moved)  # 32 +- 4: five deviations
