"""The Manifest: the list of receipts, published last. Its JSON is the commit point of a repack.

ASCII, sorted keys, integers, a final newline: the same job gives the same bytes. Names that are no UTF-8 are
written as {"base64": "..."}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError
from .index import Source

Name = bytes  # below, `bytes` is also a field

SCHEMA = 1


@dataclass(frozen=True)
class Receipt:
    """What was written, returned by every write of a shard.

    digest   'xxh3-128:<hex>' of the file's bytes in order
    digests  further digests that were asked for: algorithm -> hex
    index    name of its index file relative to the manifest
    """

    shard: int
    name: str
    samples: int
    bytes: int
    digest: str
    digests: Mapping[str, str]
    index: str


@dataclass(frozen=True)
class Manifest:
    """manifest.json as a value. Fields are its keys (docs/manifest.md has the table)."""

    version: str
    format: str
    samples: int
    bytes: int
    seed: int | None
    order: str
    shards_requested: int | None
    shards: tuple[Receipt, ...]
    index: Mapping[str, str]
    sources: tuple[Source, ...]
    source_fingerprint: str
    sample_digest_sum: str | None
    keys: Mapping[str, Any]
    fields: Mapping[str, Mapping[str, Any]]
    field_sets: Mapping[str, int] | None
    classes: tuple[Name, ...] | None
    labels: Mapping[str, Any] | None
    options: Mapping[str, Any]
    ignored: Mapping[str, int]
    dropped: Mapping[str, int]
    renamed: Mapping[str, Any]
    warnings: tuple[str, ...]
    exports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shard_samples(self) -> npt.NDArray[np.int64]:
        """int64[N]"""
        return np.fromiter((r.samples for r in self.shards), np.int64, len(self.shards))

    @property
    def shard_sizes(self) -> npt.NDArray[np.int64]:
        """int64[N], bytes of the shard files"""
        return np.fromiter((r.bytes for r in self.shards), np.int64, len(self.shards))

    def to_json(self) -> str:
        """The text of manifest.json."""
        facts: dict[str, Any] = {
            "shardtool": {"schema": SCHEMA, "version": self.version},
            "format": self.format,
            "samples": self.samples,
            "bytes": self.bytes,
            "seed": self.seed,
            "order": self.order,
            "shards_requested": self.shards_requested,
            "shards": [
                {
                    "name": r.name, "samples": r.samples, "bytes": r.bytes,
                    "digest": r.digest, "digests": dict(r.digests), "index": r.index,
                }
                for r in self.shards
            ],
            "index": dict(self.index),
            "sources": [
                {
                    "name": encode_name(s.name), "bytes": s.bytes, "samples": s.samples, "format": s.format,
                    **({} if s.listing is None else {"listing": s.listing}),
                }
                for s in self.sources
            ],
            "source_fingerprint": self.source_fingerprint,
            "sample_digest_sum": self.sample_digest_sum,
            "keys": dict(self.keys),
            "fields": {name: dict(about) for name, about in self.fields.items()},
            "field_sets": None if self.field_sets is None else dict(self.field_sets),
            "classes": None if self.classes is None else [encode_name(c) for c in self.classes],
            "labels": None if self.labels is None else dict(self.labels),
            "options": dict(self.options),
            "ignored": dict(self.ignored),
            "dropped": dict(self.dropped),
            "renamed": dict(self.renamed),
            "warnings": list(self.warnings),
            "exports": {kind: list(files) for kind, files in self.exports.items()},
        }  # fmt: skip
        return dumps(facts)

    @classmethod
    def from_json(cls, text: str, *, file: Name | str = "manifest.json") -> Manifest:
        """Raises DataError for text that is no manifest, or one of a newer schema, naming file and field."""
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError("manifest is no JSON", file=file, why=str(error)) from None
        head = facts.get("shardtool") if isinstance(facts, dict) else None
        if not isinstance(head, dict) or not isinstance(head.get("schema"), int):
            raise DataError("this JSON is no manifest of shardtool", file=file, why='it has no "shardtool": {"schema"}')
        if head["schema"] > SCHEMA:
            raise DataError(
                f"manifest has schema {head['schema']}, this release knows up to {SCHEMA}",
                file=file, remedy="install a newer shardtool",
            )  # fmt: skip
        try:
            return cls._from_facts(facts)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise DataError("manifest is damaged", file=file, why=reason) from None

    @classmethod
    def _from_facts(cls, f: dict[str, Any]) -> Manifest:
        shards = tuple(
            Receipt(k, s["name"], s["samples"], s["bytes"], s["digest"], s["digests"], s["index"])
            for k, s in enumerate(f["shards"])
        )
        sources = tuple(
            Source(decode_name(s["name"]), s["bytes"], s["samples"], s["format"], s.get("listing"))
            for s in f["sources"]
        )
        numbers = [f["samples"], f["bytes"], *(r.samples for r in shards), *(r.bytes for r in shards)]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("samples and bytes must be whole numbers")
        if sum(r.samples for r in shards) != f["samples"]:
            raise ValueError(f'"samples" is {f["samples"]}, the shards have {sum(r.samples for r in shards)}')
        classes = f["classes"]
        return cls(
            version=f["shardtool"]["version"], format=f["format"], samples=f["samples"], bytes=f["bytes"],
            seed=f["seed"], order=f["order"], shards_requested=f["shards_requested"], shards=shards,
            index=f["index"], sources=sources, source_fingerprint=f["source_fingerprint"],
            sample_digest_sum=f["sample_digest_sum"], keys=f["keys"], fields=f["fields"],
            field_sets=f["field_sets"], classes=None if classes is None else tuple(map(decode_name, classes)),
            labels=f["labels"], options=f["options"], ignored=f["ignored"], dropped=f["dropped"],
            renamed=f["renamed"], warnings=tuple(f["warnings"]),
            exports={kind: tuple(files) for kind, files in f["exports"].items()},
        )  # fmt: skip


def dumps(facts: Mapping[str, Any]) -> str:
    """ASCII JSON, sorted keys, one-space indent, final newline."""
    return json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=1, allow_nan=False) + "\n"


def encode_name(name: bytes) -> str | dict[str, str]:
    """A JSON string where the bytes are UTF-8, else {"base64": ...}."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(name).decode("ascii")}


def decode_name(value: str | dict[str, str]) -> bytes:
    """The reverse of encode_name."""
    if isinstance(value, str):
        return value.encode("utf-8")
    return base64.b64decode(value["base64"], validate=True)


def public_name(name: bytes) -> str:
    """A name as a JSON object key, where {"base64"} cannot stand: 'base64:<...>' for bytes that are no UTF-8."""
    encoded = encode_name(name)
    return encoded if isinstance(encoded, str) else f"base64:{encoded['base64']}"


def parse_public_name(text: str) -> bytes:
    """The reverse of public_name."""
    return decode_name({"base64": text[7:]} if text.startswith("base64:") else text)
