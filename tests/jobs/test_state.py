"""What a run does about what is in OUT: every combination."""

import pytest

from shardtool.base.errors import StateError
from shardtool.jobs.state import CLEAN_UP, FRESH, REPLACE, RESUME, Found, decide

JOB = {"options": {"seed": 1}, "version": "1", "public": "p", "private": "q"}
OTHER = {**JOB, "options": {"seed": 2}}
MINE = {"options": {"seed": 1}, "version": "1", "public": "p"}
THEIRS = {**MINE, "public": "x"}


@pytest.mark.parametrize(
    ("journal", "manifest", "others", "overwrite", "wanted"),
    [
        (None, None, (), False, FRESH),
        (None, None, (), True, FRESH),
        (None, None, (b"x",), False, "not empty"),
        (None, None, (b"x",), True, "not empty"),
        (JOB, None, (b"x",), False, RESUME),
        (JOB, None, (b"x",), True, RESUME),
        (JOB, MINE, (b"x",), False, CLEAN_UP),
        (JOB, MINE, (b"x",), True, CLEAN_UP),
        (JOB, THEIRS, (b"x",), False, RESUME),  # killed while it was replacing: the old manifest still stands
        (OTHER, None, (b"x",), False, "--seed was 2, now it is 1"),
        (OTHER, None, (b"x",), True, REPLACE),
        ({**JOB, "private": "z"}, None, (b"x",), False, "changed or replaced"),
        ({**JOB, "public": "z"}, None, (b"x",), False, "another one"),
        ({**JOB, "version": "0"}, None, (b"x",), False, "shardtool 0"),
        (None, THEIRS, (b"x",), False, "another one"),
        (None, MINE, (b"x",), False, "newer"),
        (None, MINE, (b"x",), True, REPLACE),
        (OTHER, MINE, (b"x",), True, REPLACE),
    ],
)
def test_decide(journal, manifest, others, overwrite, wanted):
    found = Found(journal, manifest, others)
    if wanted in (FRESH, RESUME, CLEAN_UP, REPLACE):
        assert decide(found, JOB, overwrite=overwrite, out=b"o") == wanted
    else:
        with pytest.raises(StateError) as caught:
            decide(found, JOB, overwrite=overwrite, out=b"o")
        assert wanted in str(caught.value)
