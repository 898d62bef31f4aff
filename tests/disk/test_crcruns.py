"""Checksums by runs find what checking frame by frame finds."""

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.disk import crcruns
from tests.makers import frame, masked


@pytest.fixture(autouse=True, scope="module")
def eager():
    """Runs for few frames too, and small blocks, so that hypothesis reaches every branch."""
    before = {name: getattr(crcruns, name) for name in ("FEW", "WORTH", "BLOCK", "_met")}
    crcruns.FEW, crcruns.WORTH, crcruns.BLOCK = 1, 1, 64
    yield
    for name, value in before.items():
        setattr(crcruns, name, value)


def all_wrong(data, starts, sizes):
    """(number, kind), frame by frame."""
    wrong = []
    for k, (a, n) in enumerate(zip(starts, sizes, strict=True)):
        if masked(data[a : a + 8]) != int.from_bytes(data[a + 8 : a + 12], "little"):
            wrong.append((k, "length"))
        if masked(data[a + 12 : a + 12 + n]) != int.from_bytes(data[a + 12 + n : a + 16 + n], "little"):
            wrong.append((k, "payload"))
    return wrong


def laid_out(sizes, begin=0, seed=0):
    rng = np.random.Generator(np.random.PCG64(seed))
    data = bytearray(begin) + bytearray(b"".join(frame(rng.bytes(size)) for size in sizes))
    starts = [begin + sum(sizes[:k]) + 16 * k for k in range(len(sizes))]
    return data, starts


def same(data, starts, sizes):
    wanted = all_wrong(data, starts, sizes)
    arrays = np.frombuffer(bytes(data), np.uint8), np.array(starts, np.int64), np.array(sizes, np.int64)
    assert crcruns.first_wrong(*arrays) == (wanted[0] if wanted else None)
    assert crcruns.wrong_payloads(*arrays).tolist() == [k for k, kind in wanted if kind == "payload"]
    return wanted


LARGE = crcruns.LARGE
SIZES = st.lists(
    st.one_of(st.integers(0, 40), st.integers(0, 3000), st.sampled_from([LARGE - 1, LARGE, LARGE + 1, 70_000])),
    min_size=1, max_size=90,
)  # fmt: skip


@given(SIZES, st.integers(0, 40), st.integers(0, 9), st.data())
@settings(deadline=None, max_examples=150)
def test_any_damage(sizes, begin, damages, data):
    raw, starts = laid_out(sizes, begin)
    for _ in range(damages):
        k = data.draw(st.integers(0, len(sizes) - 1))
        # in the length, its checksum, the payload or its checksum
        at = data.draw(st.sampled_from([0, 7, 8, 11, 12, 11 + sizes[k], 12 + sizes[k], 15 + sizes[k]]))
        raw[starts[k] + at] ^= data.draw(st.integers(1, 255))
    same(raw, starts, sizes)


def test_every_flipped_byte_is_found():
    sizes = [0, 5, 30, 0, 64, 1]
    raw, starts = laid_out(sizes)
    assert same(raw, starts, sizes) == []
    for at in range(len(raw)):
        for bit in (0x01, 0x80):
            raw[at] ^= bit
            assert same(raw, starts, sizes)
            raw[at] ^= bit


def test_a_right_checksum_of_another_length_is_not_wrong():
    """The checksum holds for the bytes that are there; whether they are the expected ones is another question."""
    sizes = [10, 20, 30]
    raw, starts = laid_out(sizes)
    raw[starts[1] : starts[1] + 12] = frame(bytes(21))[:12]
    assert same(raw, starts, sizes) == []


@pytest.mark.parametrize("size", [0, 1, 200, 1024, 5000, LARGE])
def test_right_frames_are_not_looked_at_one_by_one(size):
    sizes = [size] * 130
    raw, starts = laid_out(sizes)
    arrays = np.frombuffer(raw, np.uint8), np.array(starts), np.array(sizes)
    assert crcruns.suspects(*arrays).tolist() == []
    raw[starts[100] + 12 + size] ^= 4
    among = crcruns.suspects(*arrays)
    assert 100 in among.tolist() and (np.diff(among) == 1).all() and len(among) <= 65


def test_large_frames_are_always_looked_at():
    sizes = [100, LARGE + 1, 100, 100, 200_000]
    raw, starts = laid_out(sizes)
    arrays = np.frombuffer(raw, np.uint8), np.array(starts), np.array(sizes)
    assert crcruns.suspects(*arrays).tolist() == [1, 4]


def test_no_frame():
    none = np.zeros(0, np.int64)
    assert crcruns.first_wrong(np.zeros(0, np.uint8), none, none) is None
    assert crcruns.wrong_payloads(np.zeros(0, np.uint8), none, none).tolist() == []


def test_few_frames_are_checked_one_by_one(monkeypatch):
    monkeypatch.setattr(crcruns, "FEW", 100)
    raw, starts = laid_out([50] * 99)
    arrays = np.frombuffer(raw, np.uint8), np.array(starts), np.array([50] * 99)
    assert len(crcruns.suspects(*arrays)) == 99
    assert crcruns.first_wrong(*arrays) is None


@given(st.lists(st.integers(0, 65_535), min_size=1, max_size=20), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_shifts_are_zero_bytes(distances, register):
    """By the library itself: its value is the complement of the register."""
    shifted = crcruns._shift(np.array(distances), np.full(len(distances), register, np.uint32))
    ones = 0xFFFFFFFF
    assert shifted.tolist() == [crc32c.crc32c(bytes(d), register ^ ones) ^ ones for d in distances]
