"""The options that a manifest records, as the values that a scan takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..base.errors import UsageError
from ..disk.sources import SourceOptions
from ..layout.manifest import Manifest, decode_name
from ..layout.rules import Rules

# Options of a conversion, with the value that means "none". What a conversion does to a sample will be applied to the
# other source where `jobs.compare` makes its digests.
_CONVERSIONS: dict[str, Any] = {"rename": None, "drop": None, "field": None, "records": None}


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


def refuse_conversion(options: Mapping[str, Any]) -> None:
    """UsageError when the manifest records a conversion, which no source can be given yet."""
    for name, none in _CONVERSIONS.items():
        if options.get(name, none) not in (none, [], {}, "", "auto"):
            raise UsageError(
                f"the manifest records --{name}, which --against cannot apply to another source yet",
                remedy="leave out --against",
            )


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


def shard_rules(manifest: Manifest) -> Rules:
    """How the shards themselves are to be read.

    Shards that we wrote hold nothing odd, so the defaults apply and any damage is one. Shards that existed are read as
    they were when the manifest was made.
    """
    rules = recorded_rules(manifest.options)
    if made_in_place(manifest):
        return rules
    return Rules(label=rules.label, allow_case_collision=rules.allow_case_collision)
