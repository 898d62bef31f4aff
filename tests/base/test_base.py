"""Arithmetic against its definition."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardtool.base import cuts
from shardtool.base.errors import DataError, UsageError, printable
from shardtool.base.ragged import Ragged
from shardtool.base.seeds import named_stream
from shardtool.base.units import parse_size, show_seconds, show_size

N = st.integers(0, 200)
K = st.integers(1, 30)


@given(N, K)
def test_cuts_are_their_definitions(n, k):
    numbers = np.arange(k + 1)
    assert cuts.floor_cut(n, k, numbers).tolist() == [i * n // k for i in range(k + 1)]
    assert cuts.floor_sizes(n, k).tolist() == [(i + 1) * n // k - i * n // k for i in range(k)]
    sizes = [n // k + (i < n % k) for i in range(k)]
    assert np.diff(cuts.front_cut(n, k, numbers)).tolist() == sizes
    c = -(-n // k)
    assert cuts.ceil_cut(n, k, numbers).tolist() == [min(i * c, n) for i in range(k + 1)]
    assert [cuts.stride_size(n, k, i) for i in range(k)] == [len(range(i, n, k)) for i in range(k)]
    assert cuts.equal_cut(n, k, numbers).tolist() == [i * (n // k) for i in range(k + 1)]


def test_the_table_in_the_docstring():
    rows = {line.split()[0]: line.split()[-4:] for line in cuts.__doc__.splitlines() if line.startswith("    ")}
    number = np.arange(5)
    for rule, cut in (("floor", cuts.floor_cut), ("front", cuts.front_cut), ("ceil", cuts.ceil_cut)):
        assert rows[rule] == [str(x) for x in np.diff(cut(10, 4, number))]
    assert rows["stride"] == [str(cuts.stride_size(10, 4, i)) for i in range(4)]


def test_floor_cut_of_large_numbers_stays_inside_64_bits():
    n, k = 10**15 + 7, 10**6 + 3
    i = np.array([0, 1, k // 2, k - 1, k])
    assert cuts.floor_cut(n, k, i).tolist() == [int(x) * n // k for x in i]


@pytest.mark.parametrize(
    ("text", "size"),
    [("64M", 64 * 10**6), ("64MB", 64 * 10**6), ("64MiB", 64 << 20), ("1.5GiB", 3 << 29), ("4096", 4096),
     ("0.1k", 100), ("9007199254740993", 9007199254740993), ("2 GiB", 2 << 30), ("1tib", 1 << 40)],
)  # fmt: skip
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1X", "1.2.3G", "1e9", "ten"])
def test_no_sizes(text):
    with pytest.raises(UsageError):
        parse_size(text)


def test_shown_numbers():
    sizes = [show_size(s) for s in (0, 1023, 1024, 10240, 1 << 30)]
    assert sizes == ["0 B", "1023 B", "1.00 KiB", "10.0 KiB", "1.00 GiB"]
    assert [show_seconds(s) for s in (0.5, 12, 200, 7500)] == ["0.50 s", "12.0 s", "3 min 20 s", "2 h 05 min"]


STRINGS = st.lists(st.binary(max_size=12), max_size=20)


@given(STRINGS, st.data())
def test_ragged_is_a_list_of_bytes(strings, data):
    made = Ragged.of(strings)
    assert list(made) == strings and len(made) == len(strings)
    assert made.lengths().tolist() == [len(s) for s in strings]
    if strings:
        ids = data.draw(st.lists(st.integers(0, len(strings) - 1), max_size=20))
        assert list(made.take(np.array(ids, np.int64))) == [strings[i] for i in ids]
    assert list(Ragged.join([made, made])) == strings * 2
    assert list(Ragged.glue(made, Ragged.repeat(b"/", len(strings)), made)) == [s + b"/" + s for s in strings]


def test_glue_of_a_slice_of_a_larger_ragged():
    whole = Ragged.of([b"ab", b"", b"cde", b"f"])
    part = Ragged(whole.data, whole.first[2:])
    assert list(Ragged.glue(part, part)) == [b"cdecde", b"ff"]
    assert list(part) == [b"cde", b"f"]


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=6), min_size=1, max_size=3), st.data())
def test_ragged_take_and_glue_are_those_of_lists(columns, data):
    """Of all lengths, and of one length, which has a way of its own; of columns that begin somewhere in their data."""
    length = min(map(len, columns))
    same = data.draw(st.booleans())
    columns = [[(b"%-3b" % s if same else s) for s in column[:length]] for column in columns]
    front = data.draw(st.lists(st.binary(max_size=4), max_size=2))
    made = []
    for column in columns:
        whole = Ragged.of([*front, *column])
        made.append(Ragged(whole.data, whole.first[len(front) :]))
    assert list(Ragged.glue(*made)) == [b"".join(row) for row in zip(*columns, strict=True)]
    ids = data.draw(st.lists(st.integers(0, length - 1), max_size=9))
    for column, ragged in zip(columns, made, strict=True):
        taken = ragged.take(np.array(ids, np.int64))
        assert list(taken) == [column[i] for i in ids] and taken.first[0] == 0


def test_streams_differ_by_name_order_and_type():
    names = ((), (0,), (1,), ("0",), ("a", "b"), ("ab",), ("b", "a"))
    seeds = {named_stream(seed, *name) for seed in (0, 1) for name in names}
    assert len(seeds) == 14


def test_an_error_survives_the_way_from_a_worker():
    error = DataError("cut", file=b"a\n\xff", offset=7, member="k", why="w", remedy="r")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is DataError and str(again) == str(error) and again.status == 3
    assert str(error) == "cut\n  where: a\\n\\xff, byte offset 7, member k\n  why:   w\n  do:    r"


def test_printable():
    assert printable(b"caf\xc3\xa9 \x1b[31m \xff") == "caf\u00e9 \\x1b[31m \\xff"
