"""The options that a manifest records, as the values that a scan takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..disk.sources import SourceOptions
from ..layout.manifest import Manifest, decode_name, encode_name, parse_public_name, public_name
from ..layout.rules import Rules
from .fieldnames import Conversion


def recorded_rules(options: Mapping[str, Any]) -> Rules:
    """Rules of a manifest's "options"; what it does not name has its default."""
    known = {field.name for field in fields(Rules)}
    found = {name: value for name, value in options.items() if name in known}
    if "require" in found:
        found["require"] = tuple(decode_name(name) for name in found["require"])
    return Rules(**found)


def recorded_source(options: Mapping[str, Any]) -> SourceOptions:
    """SourceOptions of a manifest's "options". Not `base`: it says where names begin, and no name is compared."""
    return SourceOptions(
        from_=options.get("from"),
        label_from=options.get("label_from"),
        allow_incomplete=bool(options.get("allow_incomplete", False)),
        strict=bool(options.get("strict", False)),
    )


def recorded_conversion(options: Mapping[str, Any]) -> Conversion:
    """Conversion of a manifest's "options"."""

    def names(option: str) -> dict[bytes, bytes]:
        return {parse_public_name(old): decode_name(new) for old, new in options.get(option, {}).items()}

    return Conversion(
        names("rename"), tuple(map(decode_name, options.get("drop", ()))),
        {parse_public_name(name): type for name, type in options.get("field", {}).items()},
        options.get("records", "auto"), names("names"),
        {parse_public_name(name): type for name, type in options.get("types", {}).items()},
    )  # fmt: skip


def merged(asked: Any, recorded: Any) -> Any:
    """`recorded` (Rules or SourceOptions) with every field that `asked` sets to other than its default."""
    default = type(asked)()
    changes = {
        field.name: getattr(asked, field.name)
        for field in fields(asked)
        if getattr(asked, field.name) != getattr(default, field.name)
    }
    return replace(recorded, **changes)


def made_in_place(manifest: Manifest) -> bool:
    """Whether the manifest describes shards that existed before (`shardtool manifest SRC`): nothing was shuffled, and
    the shards are the sources."""
    return manifest.seed is None and len(manifest.shards) == len(manifest.sources)


def _label_now(manifest: Manifest, label: bytes) -> str | None:
    """What the label field is called in the shards; None when it is not there in the form that was read."""
    if encode_name(label) in manifest.options.get("drop", ()):
        return None
    if any(source.format != manifest.format for source in manifest.sources):
        return None
    name = manifest.renamed.get("fields", {}).get(public_name(label))
    return os.fsdecode(label if name is None else decode_name(name))


def shard_rules(manifest: Manifest) -> Rules:
    """How the shards themselves are to be read.

    Shards that we wrote hold nothing odd, so the defaults apply and any damage is one. Shards that existed are read as
    they were when the manifest was made.
    """
    rules = recorded_rules(manifest.options)
    if made_in_place(manifest):
        return rules
    label = rules.label
    if label is not None:
        label = _label_now(manifest, os.fsencode(label))
    return Rules(label=label, allow_case_collision=rules.allow_case_collision)
