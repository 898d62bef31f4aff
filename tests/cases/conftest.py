"""Folders of these tests lie in memory where there is one: many short runs, each with its syncs."""

import os
import pathlib
import tempfile

import pytest


@pytest.fixture
def tmp_path():
    at = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=at, prefix="shardtool-test-") as folder:
        yield pathlib.Path(folder)
