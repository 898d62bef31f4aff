"""The walk in lanes says what the walk frame by frame says, for any bytes."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.disk import lanes
from tests.makers import frame, masked


@pytest.fixture(autouse=True, scope="module")
def eager():
    """Lanes for small inputs too, so that hypothesis reaches every branch."""
    before = {name: getattr(lanes, name) for name in ("PROBE", "MANY", "LINK", "CHECK_EVERY")}
    lanes.PROBE, lanes.MANY, lanes.LINK, lanes.CHECK_EVERY = 3, 1, 1e9, 5
    yield
    for name, value in before.items():
        setattr(lanes, name, value)


def reference(data):
    """The chain, written once more with nothing shared."""
    places, lengths, at = [], [], 0
    while len(data) - at >= 16:
        length = int.from_bytes(data[at : at + 8], "little")
        if at + 16 + length > len(data):
            break
        places.append(at)
        lengths.append(length)
        at += 16 + length
    return places, lengths, at


def same(data):
    wanted = reference(data)
    for walk in (lanes.plain, lanes.walk):
        places, lengths, stop = walk(memoryview(data))
        assert (places.dtype, lengths.dtype, type(stop)) == (np.int64, np.uint64, int)
        assert (places.tolist(), lengths.tolist(), stop) == wanted, walk
    return len(wanted[0])


def head(length):
    word = struct.pack("<Q", length)
    return word + struct.pack("<I", masked(word))


# Payloads that look like something else: whole frames, right heads that lead nowhere or far, zeros, small integers.
PAYLOADS = st.one_of(
    st.integers(0, 90).map(bytes),
    st.binary(max_size=60),
    st.binary(max_size=20).map(frame),
    st.lists(st.binary(max_size=9).map(frame), max_size=4).map(b"".join),
    st.one_of(st.integers(0, 200), st.integers(0, 1 << 24), st.just(1 << 40), st.just((1 << 64) - 1)).map(head),
    st.lists(st.integers(0, 300), max_size=9).map(lambda values: np.array(values, "<i8").tobytes()),
)
FRAMES = st.lists(PAYLOADS.map(frame), min_size=4, max_size=60)


@given(FRAMES, st.integers(0, 3), st.data())
@settings(deadline=None, max_examples=200)
def test_any_window_of_any_records(frames, cut, data):
    whole = b"".join(frames)
    begin = data.draw(st.integers(0, len(frames) - 1)) if cut & 1 else 0
    begin = sum(map(len, frames[:begin]))
    end = data.draw(st.integers(begin, len(whole))) if cut & 2 else len(whole)
    same(whole[begin:end])


@given(FRAMES, st.data())
@settings(deadline=None, max_examples=200)
def test_damage(frames, data):
    whole = bytearray(b"".join(frames))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["flip", "huge", "zeros", "gone", "more"]))
        if kind == "flip":
            whole[at] ^= data.draw(st.integers(1, 255))
        elif kind == "huge":
            whole[at : at + 8] = data.draw(st.sampled_from([b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\xf0" + b"\xff" * 7]))
        elif kind == "zeros":
            whole[at : at + 40] = bytes(40)
        elif kind == "gone":
            del whole[at : at + 5]
        else:
            whole[at:at] = b"\0\1\0"
    same(bytes(whole))


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes(data):
    same(data)


def random_frames(sizes, seed=1):
    rng = np.random.Generator(np.random.PCG64(seed))
    return [frame(rng.bytes(size)) for size in sizes]


@pytest.mark.parametrize("odd", [0, 1])
def test_lanes_are_used_and_counted_on(odd, monkeypatch):
    """Ordinary records: hardly a frame is walked one by one."""
    sizes = [100 + 37 * k % 300 for k in range(4000)]
    data = b"".join(random_frames(sizes))
    if odd:
        data = frame(b"x" * 7) + data
    walked = []
    one_by_one = lanes._sequence

    def counting(*arguments):
        places, at = one_by_one(*arguments)
        walked.extend(places)
        return places, at

    monkeypatch.setattr(lanes, "LINK", 250.0)
    monkeypatch.setattr(lanes, "_sequence", counting)
    places, _, _ = lanes.walk(memoryview(data))
    assert len(places) == 4000 + odd and len(walked) == lanes.PROBE
    monkeypatch.undo()
    assert same(data) == 4000 + odd


@pytest.mark.parametrize("length", [1, 200, 255, 256, 511, 65_535, 65_536, 65_537, 1 << 20, (1 << 24) - 1])
@pytest.mark.parametrize("around", [0x00, 0x55])
def test_a_head_is_seen_at_every_place(length, around):
    """Either parity of address, zeros or others before and behind."""
    raw = np.full(1 << 25, around, np.uint8)
    for strip, at in enumerate(range(5_000, 5_040), 1):
        raw[strip * 20_000 + at : strip * 20_000 + at + 12] = np.frombuffer(head(length), np.uint8)
    for odd in (0, 1):
        # 1,600 strips or so of 20,000 bytes, of which 40 hold a head
        seen = lanes._starts(raw[odd:], len(raw[odd:]) // 20_000, 12_000) + odd
        assert seen[1:].tolist() == [strip * 20_000 + 4_999 + strip for strip in range(1, 41)]


def test_false_beginnings_are_walked_round():
    """Every payload holds a row of whole frames, on which most lanes begin."""
    inner = b"".join(random_frames([20] * 12, seed=2))
    assert same(b"".join(frame(inner + b"#" * (k % 7)) for k in range(500))) == 500


def test_records_of_two_kinds():
    """Lanes of very different length: thousands of empty records, then large ones."""
    assert same(frame(b"") * 5000 + b"".join(random_frames([9000] * 40)) + frame(b"a") * 3000) == 8040


def test_a_dead_end_in_the_middle():
    """A length that reaches past the window: nothing behind it counts, however right it looks."""
    sizes = [50] * 400
    before, behind = b"".join(random_frames(sizes)), b"".join(random_frames(sizes, seed=3))
    for length in (len(behind) + 100, 1 << 40, (1 << 63) + 5, (1 << 64) - 1, (1 << 64) - 16):
        data = before + head(length) + behind
        assert same(data) == 400 and lanes.walk(data)[2] == len(before)


def test_a_lane_begins_at_a_dead_end():
    """The first head of a strip is that of a frame which is not whole, and the walk arrives there."""
    data = b"".join(random_frames([60] * 50)) + head(5000) + bytes(3000)
    assert same(data) == 50


@pytest.mark.parametrize("payload", [bytes(700), np.arange(90, dtype="<i8").tobytes(), b"\1" + bytes(699)])
def test_payloads_full_of_plausible_lengths(payload):
    assert same(frame(payload) * 600) == 600


def test_few_or_large_records_are_walked_one_by_one(monkeypatch):
    monkeypatch.setattr(lanes, "MANY", 1000)
    monkeypatch.setattr(lanes, "LINK", 200.0)
    assert lanes._count(900 * 200, 200) == 0
    assert lanes._count(1100 * 200, 200) > 1
    assert lanes._count(2000 * 100_000, 100_000) == 0
