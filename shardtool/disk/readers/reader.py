"""What a reader is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

# A sample as the library gives it: (key, or None where it has none; {field: payload}, or the record's payload)
Sample = tuple[bytes | None, Mapping[bytes, bytes] | bytes]
# (path of a shard, names of the fields in it) -> its samples in file order
Samples = Callable[[bytes, tuple[bytes, ...]], Iterator[Sample]]


@dataclass(frozen=True)
class Reader:
    """One library.

    packages    what must be importable; the first is the library
    install     what `pip install` may call it; the first is what to install
    formats     shard formats that it reads
    samples     see Samples; whatever it raises is a finding
    fold_case   it lower-cases field names
    skip_empty  it gives no difference between a field of no bytes and none
    not_with    readers that cannot be imported into the same process
    """

    packages: tuple[str, ...]
    install: tuple[str, ...]
    formats: tuple[str, ...]
    samples: Samples
    fold_case: bool = False
    skip_empty: bool = False
    not_with: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Packages that cannot be imported."""
        return [package for package in self.packages if not _found(package)]

    @property
    def release(self) -> str:
        """The installed release."""
        for name in self.install:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return "of unknown release"


def _found(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of 'a.b' there is no 'a'
        return False
