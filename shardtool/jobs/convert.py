"""From what a source has to what the shards get: fields renamed and left out, features into members and back.

    Scan -> Scan      the same samples; the index then describes the parts of the output

Nothing is written, and no payload is kept: an index of parts says where each lies and, for numbers, what its other
form comes to. docs/formats/conversion.md has the rules.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.errors import DataError, UsageError, printable
from ..base.reporting import Reporter
from ..disk.columns import Store
from ..disk.files import read_small
from ..disk.sources import Inputs
from ..layout.example import KEY
from ..layout.fields import with_fields
from ..layout.index import SPAN, windows
from ..layout.manifest import Manifest, decode_name, parse_public_name, public_name
from ..layout.rules import Rules
from .fieldnames import (
    TYPE_NAMES,
    TYPES,
    Conversion,
    Converted,
    by_new,
    new_names,
    require_apart,
    require_names,
    require_parts,
    table,
)  # fmt: skip
from .scan import Scan

STEP = 1 << 16


def changes_samples(source: str, format: str, conversion: Conversion) -> bool:
    """Whether the samples of these sources come out other than they are. Raises UsageError for what cannot be asked."""
    if conversion.fields and (source, format) == ("tfrecord", "tar"):
        raise UsageError("--field gives the type of a feature, members of a tar have none", remedy="leave it out")
    if conversion.fields and format == "tar":
        raise UsageError("--field gives the type of a feature", remedy="add --format tfrecord")
    if conversion.records != "auto" and source != "tfrecord":
        raise UsageError(f"--records says what TFRecords hold, the source is {source}", remedy="leave it out")
    if source == format == "tfrecord":
        if conversion.fields:
            raise UsageError(
                "--field gives the type of a feature, those of records have one", remedy="convert to tar first"
            )
        if conversion.records == "raw":
            raise UsageError(
                "--records raw: records are carried over whole, and nothing in them can be renamed or left out",
                remedy="leave it out",
            )  # fmt: skip
    return source != format or conversion.asked


def convert(
    scan: Scan, format: str, conversion: Conversion, rules: Rules, *, jobs: int, reporter: Reporter,
    store: Store | None = None,
) -> Converted:  # fmt: skip
    """The scan with an index of the output's parts, whose columns go into the store (None: memory).

    Raises DataError (records that are no Examples, fields that cannot be converted, names that cannot be written),
    UsageError (a field that no sample has).
    """
    store = store or Store(1 << 62)
    if scan.format == format == "tfrecord":
        from .records import records_of

        return records_of(scan, conversion, jobs, reporter, store)
    if scan.format == "tfrecord":
        from .members import members_of

        return members_of(scan, conversion, rules, jobs, reporter, store)
    return _fields(scan, format, conversion, rules, jobs, reporter, store)


def _fields(
    scan: Scan, format: str, conversion: Conversion, rules: Rules, jobs: int, reporter: Reporter, store: Store
) -> Converted:
    index = scan.index
    records = format == "tfrecord"
    keyless = records and KEY in conversion.drop and KEY not in index.exts
    known = [*index.exts, KEY] if keyless else list(index.exts)
    new = new_names(known, conversion, conversion.names if records else {})[: len(index.exts)]
    require_names(index.exts, new, format)
    made = with_fields(index, new, store, by_name=records)
    require_parts(made, "--drop fewer fields")
    require_apart(made, by_new(index.exts, new), format, rules)
    renamed = table(index.exts, new)
    if not records:
        return Converted(replace(scan, index=made), renamed)
    if keyless:
        made = replace(made, keys=None)
    kinds: dict[bytes, int] = {}
    for old, name in zip(index.exts, new, strict=True):
        if name is not None:
            type = conversion.fields.get(old, conversion.types.get(old, "bytes"))
            kinds[name] = max(kinds.get(name, SPAN), TYPES[type])
    made = replace(made, records=True)
    values: dict[bytes, tuple[int, int, int]] = {}
    if any(kinds.values()):
        from .numbers import typed

        made, values = typed(replace(scan, index=made), kinds, jobs, reporter, store)
    types = {name: TYPE_NAMES[kind] for name, kind in kinds.items()}
    return Converted(replace(scan, index=made), renamed, types=types, values=values)


def way_back(inputs: Inputs) -> tuple[dict[bytes, bytes], dict[bytes, str]]:
    """Member -> the name, and the type, that it had as a feature, where manifests of ours beside the sources say so.

    Raises UsageError when they disagree.
    """
    back: dict[bytes, bytes] = {}
    types: dict[bytes, str] = {}
    beside = {os.path.join(os.path.dirname(file.path), b"manifest.json") for file in inputs.files}
    for path in sorted({*inputs.manifests, *beside}):
        try:
            manifest = Manifest.from_json(read_small(path).decode("ascii"), file=path)
        except (OSError, ValueError, DataError):
            continue  # none, or not ours
        if any(source.format != "tfrecord" for source in manifest.sources):
            continue
        for public, name in manifest.renamed.get("fields", {}).items():
            old = parse_public_name(public)
            if back.setdefault(decode_name(name), old) != old:
                raise UsageError(
                    f"the manifests of SRC disagree on the name that {printable(decode_name(name))} had",
                    remedy="say it: --rename OLD=NEW",
                )  # fmt: skip
        for public, type in manifest.renamed.get("types", {}).items():
            name = parse_public_name(public)
            if types.setdefault(name, str(type)) != type or type not in TYPES:
                raise UsageError(
                    f"the manifests of SRC disagree on the type that {printable(name)} had",
                    remedy=f"say it: --field {printable(name)}=int64, float or bytes",
                )  # fmt: skip
    return back, types


def feature_facts(converted: Converted) -> dict[str, dict[str, Any]]:
    """The manifest's "fields" of converted records: as of sampled TFRecords, over all samples."""
    if converted.facts is not None:
        return {name: dict(facts) for name, facts in converted.facts.items()}
    index = converted.scan.index
    assert index.ext is not None
    count, total = np.zeros(len(index.exts), np.int64), np.zeros(len(index.exts), np.int64)
    for lo, hi in windows(len(index.size), STEP):
        ext = index.ext[lo:hi].astype(np.int64)
        count += np.bincount(ext, minlength=len(count))
        np.add.at(total, ext, index.size[lo:hi])
    facts = {}
    for code, name in enumerate(index.exts):
        kind = converted.types.get(name, "bytes")
        fewest, most, values = converted.values.get(name, (1, 1, int(count[code])))
        size = {"bytes": int(total[code]), "float": 4 * values, "int64": 8 * values}[kind]
        facts[public_name(name)] = {
            "type": kind, "samples": int(count[code]), "bytes": size, "fewest": fewest, "most": most,
            "sampled": index.samples,
        }  # fmt: skip
    return facts
