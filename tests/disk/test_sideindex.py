"""Indexes of loaders beside the shards: right ones fit, stale ones are described."""

import os

import numpy as np
import pytest

from shardtool.disk.sideindex import check_components, check_spans

OFFSET, SIZE = np.array([0, 20, 50], np.int64), np.array([20, 30, 25], np.int64)
PARTS = [(b"JPG", 512, 10), (b"cls", 1536, 1), (b"jpg", 2560, 9), (b"cls", 3584, 1)]


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
    found = check_components(os.fsencode(tmp_path / "x.idx"), 2, PARTS)
    assert found.words == words
    assert found.fits == (words == "names all 2 records")
