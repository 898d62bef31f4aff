"""One set of every flavour for all tests of a run."""

import pytest

from shardtool.disk.exports import EXPORTS
from tests.real.sets import RECORDS, TARS, make_set, write_rows


def made(factory, flavours, format):
    kinds = [kind for kind, export in EXPORTS.items() if format in export.formats]
    sets = {}

    def get(flavour):
        if flavour not in sets:
            wanted = [kind for kind in kinds if not (kind == "tfds" and flavour == "raw")]
            sets[flavour] = make_set(factory.mktemp("set"), flavour, wanted)
        return sets[flavour]

    assert set(flavours) <= {*TARS, *RECORDS}
    return get


@pytest.fixture(scope="session")
def tars(tmp_path_factory):
    """Flavour -> Set, with all exports of tars."""
    return made(tmp_path_factory, TARS, "tar")


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """Flavour -> Set, with all exports of TFRecords."""
    return made(tmp_path_factory, RECORDS, "tfrecord")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    write_rows()
