"""The digest of a sample and the multiset of samples."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.layout.multiset import multiset_sum, prefixes, sample_digest, show_sum, surplus

DIGEST = st.binary(min_size=32, max_size=32)


def table(digests):
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)


def test_sample_digest_by_hand():
    jpg, cls = hashlib.sha256(b"picture").digest(), hashlib.sha256(b"7").digest()
    text = b"\x03\0\0\0\0\0\0\0cls" + cls + b"\x03\0\0\0\0\0\0\0jpg" + jpg
    assert sample_digest([(b"jpg", jpg), (b"cls", cls)]) == hashlib.sha256(text).digest()


@given(st.lists(st.tuples(st.binary(max_size=6), DIGEST), max_size=5), st.randoms())
def test_sample_digest_does_not_depend_on_order(fields, rng):
    other = fields[:]
    rng.shuffle(other)
    assert sample_digest(fields) == sample_digest(other)


def test_sample_digest_is_not_ambiguous():
    """Bytes that move between field name and digest give another digest."""
    a, b = b"\x01" * 32, b"\x02" * 32
    assert sample_digest([(b"x", a), (b"y", b)]) != sample_digest([(b"x" + a + b"y", b)])
    assert sample_digest([(b"x", a), (b"y", b)]) != sample_digest([(b"x", b), (b"y", a)])
    assert sample_digest([]) != sample_digest([(b"", a)])
    with pytest.raises(ValueError, match="32 bytes"):
        sample_digest([(b"x", b"short")])


@given(st.lists(DIGEST, max_size=20))
def test_sum_is_that_of_big_integers(digests):
    expected = sum(int.from_bytes(d, "big") for d in digests) % (1 << 256)
    assert multiset_sum(table(digests)) == expected
    assert int(show_sum(expected), 16) == expected
    assert len(show_sum(expected)) == 64


def test_equal_samples_do_not_cancel():
    twice = table([b"\xaa" * 32] * 2)
    assert multiset_sum(twice) != 0
    assert multiset_sum(table([b"\xff" * 32] * 3)) == (1 << 256) - 3  # carries through all words


@given(st.lists(st.integers(0, 12), max_size=30), st.lists(st.integers(0, 12), max_size=30))
def test_surplus_is_that_of_counters(ours, theirs):
    high = 1 << 63
    mine, other = (np.array([high + v for v in side], np.uint64) for side in (ours, theirs))
    values, count = surplus(mine, other)
    assert dict(zip((int(v) - high for v in values), count.tolist(), strict=True)) == Counter(ours) - Counter(theirs)
    assert (np.diff(values.astype(object)) > 0).all()


def test_prefixes_are_the_first_eight_bytes():
    digests = [bytes(range(k, k + 32)) for k in range(3)]
    assert prefixes(table(digests)).tolist() == [int.from_bytes(d[:8], "big") for d in digests]
