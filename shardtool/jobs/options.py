"""Options of a repack as one value; the command line and Python share it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..base.errors import UsageError
from ..disk.exports.dali_wds import OPTION, VERSIONS
from ..disk.sources import SourceOptions
from ..layout.layout import Limits
from ..layout.manifest import encode_name, public_name
from ..layout.rules import Rules
from .fieldnames import TYPES, Conversion

DEFAULT_SHARD_SIZE = 256 << 20
LEAST_MEMORY = 64 << 20
LONGEST_NAME = 200


@dataclass(frozen=True)
class RepackOptions:
    """Names are those of the command line (docs/cli.md).

    format         'tar', 'tfrecord', or None: as the source
    shards, shard_size (bytes), shard_samples  limits; none given: shard_size 256 MiB
    balance        'samples' or 'bytes': what shards have alike
    order          'shuffle' or 'source'
    keys           'auto', 'keep', 'source' or 'ordinal'
    exports        kinds of index files for other loaders
    dali_idx_version  of the export dali-wds: '1.2', or '1.1' without names
    digests        algorithms besides xxh3-128
    memory         bytes the job may allocate over all processes; None: half of what there is
    jobs           processes; None: the cores this process may use
    engine         'auto' or a name from ENGINES
    work_dir       folder for bulk data of the run (spool, spill); None: in OUT
    rename, drop, fields, records  what is converted (docs/formats/conversion.md): old name -> new one, names, name ->
                   'int64', 'float' or 'bytes', and 'auto', 'example' or 'raw'
    names, types   member -> the name, and the type, it had as a feature; None: what a manifest beside the sources says
    """

    format: str | None = None
    shards: int | None = None
    shard_size: int | None = None
    shard_samples: int | None = None
    balance: str = "samples"
    seed: int = 0
    order: str = "shuffle"
    name: str = "shard"
    keys: str = "auto"
    exports: tuple[str, ...] = ()
    dali_idx_version: str = VERSIONS[0]
    digests: tuple[str, ...] = ()
    strict: bool = False
    overwrite: bool = False
    memory: int | None = None
    jobs: int | None = None
    engine: str = "auto"
    work_dir: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    records: str = "auto"
    names: Mapping[str, str] | None = None
    types: Mapping[str, str] | None = None
    source: SourceOptions = field(default_factory=SourceOptions)
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        for name, value in (
            ("--shards", self.shards), ("--shard-size", self.shard_size),
            ("--shard-samples", self.shard_samples), ("--jobs", self.jobs), ("--memory", self.memory),
        ):  # fmt: skip
            if value is not None and value < 1:
                raise UsageError(f"{name} {value} is less than 1")
        if not -(1 << 63) <= self.seed < 1 << 64:
            raise UsageError(f"--seed {self.seed} does not fit 64 bits")
        if not self.name or "/" in self.name or self.name.startswith((".", "_", "-")) or not self.name.isprintable():
            raise UsageError(
                f"--name {self.name!r} cannot begin a shard's name",
                remedy="use a name without '/', not beginning with '.', '_' or '-'",
            )
        if len(os.fsencode(self.name)) > LONGEST_NAME:
            raise UsageError(
                f"--name has {len(os.fsencode(self.name))} bytes, more than {LONGEST_NAME} bytes",
                why="the number of the shard and the ending of its index come behind, and a file's name ends at 255",
            )
        if self.memory is not None and self.memory < LEAST_MEMORY:
            raise UsageError(f"--memory {self.memory} is less than 64 MiB", remedy="give at least --memory 64MiB")
        for name, type in self.fields.items():
            if type not in TYPES:
                raise UsageError(f"--field {name}={type}: the type is none of {', '.join(sorted(TYPES))}")
        if self.records not in ("auto", "example", "raw"):
            raise UsageError(f"--records {self.records!r} is none of auto, example, raw")
        for algorithm in self.digests:
            if algorithm not in ("sha256", "md5"):
                raise UsageError(f"--digest {algorithm!r} is none of sha256, md5")

        check_idx_version(self.dali_idx_version)

    @property
    def limits(self) -> Limits:
        """What was asked of the shards."""
        none = self.shards is None and self.shard_size is None and self.shard_samples is None
        size = DEFAULT_SHARD_SIZE if none else self.shard_size
        return Limits(self.shards, size, self.shard_samples, self.balance)

    @property
    def conversion(self) -> Conversion:
        """The same with names as bytes."""
        return Conversion(
            {os.fsencode(old): os.fsencode(new) for old, new in self.rename.items()},
            tuple(sorted(map(os.fsencode, set(self.drop)))),
            {os.fsencode(name): type for name, type in self.fields.items()}, self.records,
            {os.fsencode(name): os.fsencode(old) for name, old in (self.names or {}).items()},
            {os.fsencode(name): type for name, type in (self.types or {}).items()},
        )  # fmt: skip

    def public(self) -> dict[str, Any]:
        """All that decides bytes of the output, for manifest and journal."""
        facts: dict[str, Any] = {
            "format": self.format,
            "shards": self.shards,
            "shard_size": self.limits.bytes,
            "shard_samples": self.shard_samples,
            "balance": self.balance,
            "seed": self.seed % (1 << 64),
            "order": self.order,
            "name": self.name,
            "keys": self.keys,
            "exports": sorted(self.exports),
            OPTION: self.dali_idx_version,
            "digests": sorted(self.digests),
            "label_from": self.source.label_from,
            "from": self.source.from_,
            "allow_incomplete": self.source.allow_incomplete,
        }
        facts.update(public_rules(self.rules))
        facts.update(public_conversion(self.conversion))
        return facts


def check_idx_version(version: str) -> None:
    """UsageError for a version of DALI's index that is not written."""
    if version not in VERSIONS:
        raise UsageError(f"--dali-idx-version {version!r} is none of {', '.join(VERSIONS)}")


def public_conversion(conversion: Conversion) -> dict[str, Any]:
    """A Conversion as JSON; `recorded.recorded_conversion` reads it."""
    return {
        "rename": {public_name(old): encode_name(new) for old, new in conversion.rename.items()},
        "drop": [encode_name(name) for name in conversion.drop],
        "field": {public_name(name): type for name, type in conversion.fields.items()},
        "records": conversion.records,
        "names": {public_name(name): encode_name(old) for name, old in conversion.names.items()},
        "types": {public_name(name): type for name, type in conversion.types.items()},
    }


def public_rules(rules: Rules) -> dict[str, Any]:
    """The fields of Rules as JSON."""
    return {**asdict(rules), "require": [encode_name(name) for name in rules.require]}
