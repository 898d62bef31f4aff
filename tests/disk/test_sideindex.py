"""Indexes of loaders beside the shards: right ones fit, stale ones are described."""

import os
import tracemalloc

import numpy as np
import pytest

from shardtool.disk import sideindex
from shardtool.disk.sideindex import check_components, check_spans

OFFSET, SIZE = np.array([0, 20, 50], np.int64), np.array([20, 30, 25], np.int64)
EXTS = (b"JPG", b"cls", b"jpg")
CODE, PLACE, LENGTH = (np.array(column) for column in ([0, 1, 2, 1], [512, 1536, 2560, 3584], [10, 1, 9, 1]))


def spans(tmp_path, text):
    (tmp_path / "x.idx").write_bytes(text)
    return check_spans(os.fsencode(tmp_path / "x.idx"), OFFSET, SIZE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"0 20\n20 30\n50 25\n", "names all 3 records"),
        (b"50 25\n0 20\n20 30", "names all 3 records"),
        (b"0 20\n20 30\n", "names 2 of 3 records"),
        (b"", "names 0 of 3 records"),
        (b"0 20\n20 30\n50 20\n", "1 of 3 spans are wrong"),
        (b"0 20\n20 30\n50 25\n75 25\n", "names 4 records, there are 3; 1 of 4 spans are wrong"),
        (b"\x00\x01binary", "is no index of a known kind"),
        (b"0 20 3\n", "is no index of a known kind"),
        (b"0 99999999999999999999\n", "is no index of a known kind"),
        (b"0 20\n-1 30\n50 25\n", "1 of 3 spans are wrong"),
    ],
)
def test_spans(tmp_path, text, words):
    found = spans(tmp_path, text)
    assert found.words == words
    assert found.fits == (words == "names all 3 records")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"v1.2 2\njpg 512 10 a.jpg cls 1536 1 a.cls\njpg 2560 9 b.jpg cls 3584 1 b.cls\n", "names all 2 records"),
        (b"v1.1 2\njpg 512 10 cls 1536 1\njpg 2560 9 cls 3584 1\n", "names all 2 records"),
        (b"v1.1 1\njpg 512 10 cls 1536 1\n", "names 1 of 2 records"),
        (b"v1.1 2\njpg 512 10 cls 1536 1\njpg 2560 8 cls 3584 1\n", "1 of 2 spans are wrong"),
        (b"v9 2\n", "is no index of a known kind"),
        (b"", "is no index of a known kind"),
        (b"v1.2 2\njpg 512 10\n", "is no index of a known kind"),
    ],
)
def test_components(tmp_path, text, words):
    (tmp_path / "x.idx").write_bytes(text)
    found = check_components(os.fsencode(tmp_path / "x.idx"), 2, EXTS, CODE, PLACE, LENGTH)
    assert found.words == words
    assert found.fits == (words == "names all 2 records")


def test_empty_payloads_at_one_place(tmp_path):
    """Hard links of one member, or parts without a byte, may have one place."""
    (tmp_path / "x.idx").write_bytes(b"v1.1 1\nb 512 0 a 512 7 c 512 0\n")
    places = np.array([512, 512, 512])
    path = os.fsencode(tmp_path / "x.idx")
    assert check_components(path, 1, (b"a", b"b", b"c"), np.array([0, 1, 2]), places, np.array([7, 0, 0])).fits
    assert not check_components(path, 1, (b"a", b"b", b"c"), np.array([0, 1, 2]), places, np.array([7, 0, 1])).fits


@pytest.mark.parametrize("piece", [b"1", b"0 20\n"], ids=["a line without an end", "many lines"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(sideindex, "LONGEST", 1 << 12)
    (tmp_path / "x.idx").write_bytes(piece * ((256 << 10) // len(piece)))
    tracemalloc.start()
    try:
        check_spans(os.fsencode(tmp_path / "x.idx"), OFFSET, SIZE)
        check_components(os.fsencode(tmp_path / "x.idx"), 2, EXTS, CODE, PLACE, LENGTH)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20  # lines as Python objects; all of them would be 10 MiB
