"""`verify --reader` with every library that is installed, on whole and on damaged sets, as a user runs it."""

import json
import subprocess
import sys

import pytest

from shardtool.disk.readers import READERS
from tests.real.known import readable
from tests.real.sets import RECORDS, SAMPLES, TARS

pytestmark = pytest.mark.real


def verify(folder, reader, *more):
    """(status, report) in a process of its own: some libraries exclude each other."""
    done = subprocess.run(
        [sys.executable, "-m", "shardtool", "verify", str(folder), "--reader", reader, "--json", *more],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


CASES = [
    (reader, flavour)
    for reader, about in READERS.items()
    for flavour in (TARS if "tar" in about.formats else RECORDS)
]


@pytest.mark.parametrize(("reader", "flavour"), CASES)
def test_whole_sets(reader, flavour, tars, records):
    if READERS[reader].missing:
        pytest.skip(f"{READERS[reader].missing[0]} is not installed")
    of = (tars if flavour in TARS else records)(flavour)
    status, report = verify(of.folder, reader)
    told = report["readers"][reader]
    assert told["release"] == READERS[reader].release
    if readable(reader, flavour):
        assert status == 0 and told["samples"] == SAMPLES and told["differences"] == 0
    else:
        assert status == 6 and told["differences"] == SAMPLES
