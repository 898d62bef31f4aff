"""Records that stay records, with features renamed and left out: every list is carried over as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.reporting import Reporter
from ..disk.columns import Constant, Derived, Store
from ..layout.fields import with_fields
from ..layout.index import NO_LIST, Index
from ..layout.manifest import parse_public_name, public_name
from ..layout.rules import Rules
from .fieldnames import (
    Conversion,
    Converted,
    by_new,
    new_names,
    require_apart,
    require_names,
    require_parts,
    table,
)  # fmt: skip
from .parsed import NotExamples, Rows, not_an_example, parse
from .scan import Scan
from .summary import tfrecord_fields_sample


def records_of(scan: Scan, conversion: Conversion, jobs: int, reporter: Reporter, store: Store) -> Converted:
    """The records with other features. DataError for a record that is no Example."""
    rows = _parsed(scan, jobs, reporter, store)
    new = new_names(rows.names, conversion, {})
    renamed = [(old, name) for old, name in zip(rows.names, new, strict=True) if name != old]
    require_names([old for old, _ in renamed], [name for _, name in renamed], "tfrecord")
    made = with_fields(_index(scan.index, rows), new, store, by_name=True)
    require_parts(made, "drop fewer")
    require_apart(made, by_new(rows.names, new), "tfrecord", Rules())
    facts = _facts(scan, dict(zip(rows.names, new, strict=True)))
    return Converted(replace(scan, index=made), table(rows.names, new), facts=facts)


def lists_of(scan: Scan, jobs: int, reporter: Reporter) -> Scan:
    """The features of records as they are, for a comparison with such records."""
    store = Store(1 << 62)
    rows = _parsed(scan, jobs, reporter, store)
    return replace(scan, index=with_fields(_index(scan.index, rows), rows.names, store, by_name=True))


def _parsed(scan: Scan, jobs: int, reporter: Reporter, store: Store) -> Rows:
    rows = parse(scan, jobs, reporter, store, lists=True)
    if isinstance(rows, NotExamples):
        raise not_an_example(scan.index, rows, "only features of tf.train.Examples can be renamed or left out")
    return rows


def _index(index: Index, rows: Rows) -> Index:
    """One part a feature."""
    return replace(
        index, first=rows.first, offset=rows.offset, head=Constant(0, len(rows.offset)), size=rows.stored,
        stored=rows.stored, kind=Derived(_kinds, rows.type), ext=rows.name, exts=rows.names, records=True,
    )  # fmt: skip


def _kinds(type: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return (type + NO_LIST).astype(np.uint8)


def _facts(scan: Scan, new: Mapping[bytes, bytes | None]) -> dict[str, Mapping[str, Any]]:
    """What the first records show, under the new names."""
    facts: dict[str, Mapping[str, Any]] = {}
    for public, found in tfrecord_fields_sample(scan.content, scan.index).items():
        name = new[parse_public_name(public)]
        if name is not None:
            facts[public_name(name)] = found
    return facts
