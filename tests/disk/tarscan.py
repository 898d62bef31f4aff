"""Both scans of a tar archive, held against each other."""

from __future__ import annotations

import contextlib
from dataclasses import fields

import numpy as np

from shardtool.base.errors import DataError
from shardtool.base.ragged import Ragged
from shardtool.disk.blocks import Blocks
from shardtool.disk.formats import tar
from shardtool.disk.formats.tar import vector
from shardtool.disk.scanned import Scanned


@contextlib.contextmanager
def constants(**values):
    """Constants of the scan in batches, for a while."""
    before = {name: getattr(vector, name) for name in values}
    try:
        for name, value in values.items():
            setattr(vector, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(vector, name, value)


def plain_scan(path, name, rules):
    with constants(LEAST=1 << 62):
        return tar.scan(path, name, rules)


def both(path, name, rules, **eager):
    """What the plain scan returns or raises, once the scan in batches has been seen to do the same."""
    wanted = _outcome(plain_scan, path, name, rules)
    with constants(**{"LEAST": 0, "PIECE": 2048, "BATCH": 2, **eager}):
        found = _outcome(tar.scan, path, name, rules)
    assert _comparable(found) == _comparable(wanted)
    if isinstance(wanted, DataError):
        raise wanted
    return wanted


def taken(path, rules, **eager):
    """Whether the scan in batches goes through without falling back."""
    with constants(**{"LEAST": 0, "PIECE": 2048, "BATCH": 2, **eager}), Blocks(path, b"t.tar") as blocks:
        return vector.columns(blocks, rules) is not None


def _outcome(scan, path, name, rules):
    try:
        return scan(path, name, rules)
    except DataError as error:
        return error


def _comparable(value):
    if isinstance(value, Scanned):
        return [(field.name, _comparable(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, DataError):
        return str(value), value.offset, value.member
    if isinstance(value, Ragged):
        return _comparable(value.first), _comparable(value.data)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    return value
