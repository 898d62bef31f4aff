"""Equal keys are found, and only those, however little memory there is."""

import collections
import errno
import os
import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.ragged import Ragged
from shardtool.disk import keycheck
from shardtool.disk.keycheck import KeyCheck, check_keys

KEYS = st.lists(st.text("aAbBé", max_size=4).map(lambda s: s.encode()), max_size=60)


def by_definition(keys):
    seen = {}
    for number, key in enumerate(keys):
        if key in seen:
            return "repeated"
        seen[key] = number
    return len(keys) - len({key.lower() for key in keys})


def windows(keys, size):
    return lambda: (Ragged.of(keys[lo : lo + size]) for lo in range(0, len(keys), size))


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Runs of 8 keys: everything happens with few."""
    monkeypatch.setattr(keycheck, "LEAST", 1)
    monkeypatch.setattr(keycheck, "FIRST", 3)


@pytest.mark.parametrize("memory", [1, 20 * keycheck.SORTING, 1 << 20])
@settings(max_examples=40, deadline=None)
@given(keys=KEYS, size=st.integers(1, 20))
def test_the_definition(memory, keys, size):
    found, expected = check_keys(windows(keys, size), memory), by_definition(keys)
    if expected == "repeated":
        first, second = found.repeated
        assert first < second and keys[first] == keys[second]
    else:
        assert found.repeated is None and found.case_collisions == expected and found.keys == len(keys)
        if expected:
            first, second = found.case_example
            assert keys[first] != keys[second] and keys[first].lower() == keys[second].lower()


@pytest.mark.parametrize("apart", [1, 7, 8, 9, 500, 998])
def test_two_equal_keys_anywhere(apart):
    keys = [b"k%06d" % k for k in range(1000)]
    keys[apart + 1] = keys[1]
    assert check_keys(windows(keys, 100), 1).repeated == (1, apart + 1)


def test_windows_that_begin_in_the_middle_of_their_data():
    whole = Ragged.of([b"x", b"Ab", b"y", b"aB", b"z"])
    part = Ragged(whole.data, whole.first[1:5])
    assert check_keys(lambda: [part], 1).case_example == (0, 2)


def test_equal_halves_are_not_equal_hashes(monkeypatch):
    """Upper halves that collide, as they would once in 10^19 pairs."""
    def hashes(keys):
        return np.array([[len(key) % 3, int(key)] for key in keys], np.uint64).reshape(-1, 2)

    monkeypatch.setattr(keycheck, "hash128", hashes)
    keys = [b"%d" % k for k in range(300)]
    assert check_keys(windows(keys, 50), 1).repeated is None
    assert check_keys(windows([*keys, b"7"], 50), 1).repeated == (7, 300)


def test_nothing_is_left_and_a_full_disk_is_an_error(tmp_path):
    keys = [b"k%06d" % k for k in range(5000)]
    assert check_keys(windows(keys, 100), 1, bytes(tmp_path)).repeated is None
    assert not list(tmp_path.iterdir())
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError) as caught:
            check_keys(windows(keys, 100), 1, bytes(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.errno == errno.EFBIG and os.fsencode(caught.value.filename).startswith(bytes(tmp_path))


def test_memory_does_not_grow_with_the_keys(monkeypatch):
    """A child with little room sorts more hashes than fit in it."""
    monkeypatch.undo()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            import tracemalloc

            keys = Ragged.of([b"some/folder/%08d" % k for k in range(1 << 15)])

            def many():
                for k in range(12):
                    data = keys.data.copy().reshape(len(keys), -1)
                    data[:, 0] = 97 + k
                    yield Ragged(data.reshape(-1), keys.first)

            tracemalloc.start()
            memory = 8 << 20
            found = check_keys(many, memory)
            peak = tracemalloc.get_traced_memory()[1]
            status = 0 if found == KeyCheck(12 << 15, None) and peak < memory + (8 << 20) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_counts_of_a_counter_agree():
    keys = [b"Key", b"kEy", b"keY", b"other", b"OTHER", b"one"]
    folded = collections.Counter(key.lower() for key in keys)
    assert check_keys(windows(keys, 2), 1).case_collisions == sum(n - 1 for n in folded.values()) == 3
