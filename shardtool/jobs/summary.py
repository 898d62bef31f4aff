"""What a manifest says about its samples: fields, sets of fields, labels, and what the sources were."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xxhash

from ..base.seeds import mix64_inplace
from ..disk.blocks import Blocks
from ..disk.formats.example import entries, fields
from ..disk.formats.folder import CLS
from ..disk.sources import FOLDER
from ..layout.index import I64, Index, Source, windows
from ..layout.manifest import encode_name, public_name

STEP = 1 << 16
# Records of a TFRecord file that are looked into when nothing else asks for their payload.
SAMPLED = 1000
# and how many bytes of them at most: records of a gigabyte exist
SAMPLED_BYTES = 64 << 20
_KINDS = {1: "bytes", 2: "float", 3: "int64"}


def fields_of(index: Index) -> dict[str, dict[str, int]]:
    """Field -> {"samples": how many have it, "bytes": of its payloads, "smallest", "largest": bytes of one}.

    Fields of tar members; {} for records, whose payload nobody has read.
    """
    if index.ext is None:
        return {}
    count, total, largest = (np.zeros(len(index.exts), np.int64) for _ in range(3))
    smallest = np.full(len(index.exts), np.iinfo(np.int64).max)
    for lo, hi in windows(len(index.size), STEP):
        ext = index.ext[lo:hi].astype(np.int64)
        order = np.argsort(ext, kind="stable")
        size = index.size[lo:hi][order]
        # one group of the sorted window for every field in it
        present, start, groups = np.unique(ext[order], return_index=True, return_counts=True)
        count[present] += groups
        total[present] += np.add.reduceat(size, start)
        smallest[present] = np.minimum(smallest[present], np.minimum.reduceat(size, start))
        largest[present] = np.maximum(largest[present], np.maximum.reduceat(size, start))
    return {
        public_name(index.exts[k]): {
            "samples": int(count[k]), "bytes": int(total[k]),
            "smallest": int(smallest[k]), "largest": int(largest[k]),
        }
        for k in np.flatnonzero(count).tolist()
    }  # fmt: skip


def field_sets(index: Index) -> dict[str, int] | None:
    """'cls,jpg' -> samples that have exactly these fields (names sorted as bytes); None for records."""
    if index.ext is None or index.first is None:
        return None
    # A set's mark: the sum modulo 2^64 of a hash of each of its fields. A sample has no field twice.
    marks = mix64_inplace(np.arange(1, len(index.exts) + 1, dtype=np.uint64))
    found: Counter[int] = Counter()
    example: dict[int, int] = {}
    for lo, hi in windows(index.samples, STEP):
        first = index.first[lo : hi + 1].astype(np.int64)
        parts = marks[index.ext[int(first[0]) : int(first[-1])].astype(np.int64)]
        sums = np.add.reduceat(parts, first[:-1] - first[0], dtype=np.uint64)
        mark, where, count = np.unique(sums, return_index=True, return_counts=True)
        for one, at, times in zip(mark.tolist(), where.tolist(), count.tolist(), strict=True):
            found[one] += times
            example.setdefault(one, lo + at)
    return dict(sorted((_field_set(index, example[mark]), times) for mark, times in found.items()))


def _field_set(index: Index, sample: int) -> str:
    assert index.ext is not None
    parts, _ = index.parts_of(np.array([sample], np.int64))
    return ",".join(public_name(ext) for ext in sorted(index.exts[code] for code in index.ext.take(parts)))


def labels_of(index: Index, field: str | None) -> dict[str, Any] | None:
    """{"field", "histogram": {value: samples}, "missing": samples without}; None when no label was asked for.

    Labels that are the names of folders are said to be of the field that holds their number, `cls`.
    Code c of the index column `label` stands for value c of the manifest's "classes"; -1 for none.
    """
    if field is None and any(source.format == FOLDER for source in index.sources):
        field = CLS.decode()
    if field is None or index.label is None:
        return None
    count = np.zeros(len(index.classes) + 1, np.int64)
    for lo, hi in windows(index.samples, STEP):
        count += np.bincount(index.label[lo:hi].astype(np.int64) + 1, minlength=len(count))
    histogram = {public_name(value): n for value, n in zip(index.classes, count[1:].tolist(), strict=True)}
    return {"field": field, "histogram": histogram, "missing": int(count[0])}


def source_fingerprint(sources: Sequence[Source]) -> str:
    """'xxh3-128:<hex>' of the sources' names, bytes, samples and formats: the same wherever they lie.

    Hashed is one line of ASCII JSON a source, [name, bytes, samples, format], as json.dumps writes it; of a folder of
    sample files the digest of their names and sizes stands behind that.
    """
    state = xxhash.xxh3_128()
    for source in sources:
        facts = [encode_name(source.name), source.bytes, source.samples, source.format]
        if source.listing is not None:
            facts.append(source.listing)
        state.update(json.dumps(facts, ensure_ascii=True, sort_keys=True).encode("ascii") + b"\n")
    return f"xxh3-128:{state.hexdigest()}"


def tfrecord_fields_sample(paths: Sequence[bytes], index: Index) -> dict[str, dict[str, int | str]]:
    """Features of the first 1,000 records of the first source that has any, by name.

    paths  of index.sources, in their order

    Fewer where they are large.
    Feature -> {"type": "bytes" | "float" | "int64", "samples", "bytes" (of its values), "fewest", "most"
    (values in one sample), "sampled": records looked into}; "type" is "mixed" where records disagree, "empty"
    where none has a value. {} when a record is no tf.train.Example.
    """
    at = next((k for k, source in enumerate(index.sources) if source.samples), None)
    if at is None:
        return {}
    first = int(index.source_first[at])
    window = slice(first, first + min(SAMPLED, index.sources[at].samples))
    size = index.size[window]
    size = size[np.cumsum(size) <= SAMPLED_BYTES]
    if not len(size):
        return {}
    window = slice(first, first + len(size))
    offset, head = index.offset[window], index.head[window]
    try:
        return _features(paths[at], index.sources[at].name, offset + head, size)
    except ValueError:
        return {}


def _features(path: bytes, name: bytes, place: I64, size: I64) -> dict[str, dict[str, int | str]]:
    found: dict[bytes, list[tuple[str, int, int]]] = {}
    for record in _payloads(path, name, place, size):
        # In a map the last entry of a name counts.
        for feature, value in dict(entries(record)).items():
            found.setdefault(feature, []).append(_list_facts(value))
    return {
        public_name(feature): {
            "type": _one_type({kind for kind, _, _ in facts}),
            "samples": len(facts),
            "bytes": sum(count for _, _, count in facts),
            "fewest": min(values for _, values, _ in facts),
            "most": max(values for _, values, _ in facts),
            "sampled": len(place),
        }
        for feature, facts in sorted(found.items())
    }


def _payloads(path: bytes, name: bytes, place: I64, size: I64) -> Iterator[bytes]:
    with Blocks(path, name) as file:
        for at, count in zip(place.tolist(), size.tolist(), strict=True):
            yield bytes(file.peek(at, count))


def _one_type(kinds: set[str]) -> str:
    kinds = kinds - {"empty"} or {"empty"}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _list_facts(feature: bytes) -> tuple[str, int, int]:
    """(type, number of values, their bytes: 4 a float, 8 an int64) of a serialized Feature."""
    kind, values, size = "empty", 0, 0
    for number, wire, data in fields(feature):
        if number not in _KINDS or wire != 2 or not isinstance(data, bytes):
            raise ValueError(f"unexpected field {number} in Feature")
        kind, values, size = _KINDS[number], 0, 0  # of a oneof the last counts
        for inner, _, item in fields(data):
            if inner != 1:
                raise ValueError(f"unexpected field {inner} in a value list")
            if kind == "bytes" and isinstance(item, bytes):
                values, size = values + 1, size + len(item)
            elif kind == "float" and isinstance(item, bytes):
                values, size = values + len(item) // 4, size + len(item)
            elif kind == "int64":
                # a packed varint ends at the byte without the high bit
                ends = int((np.frombuffer(item, np.uint8) < 128).sum()) if isinstance(item, bytes) else 1
                values, size = values + ends, size + 8 * ends
            else:
                raise ValueError("a value has the wrong wire type")
    return kind if values else "empty", values, size
