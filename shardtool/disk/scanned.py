"""What the scan of one file finds. Travels from a worker to the parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..base.errors import printable
from ..base.ragged import Ragged
from ..layout.index import I64, Runs

# How many names a message gives before it says "and N more".
NAMED = 3


@dataclass
class Findings:
    """Facts counted on the way, said once and kept in the manifest.

    ignored   reason -> count: 'directories', 'symlinks', 'special', 'hidden', 'meta', 'no_extension',
              'unsafe_names', 'files'
    dropped   reason -> count: 'samples', 'records', 'bytes', 'archives_damaged', 'files_damaged'
    examples  reason -> the first few names
    warnings  sentences, each with the file's name in it
    loose     it is about files in a folder, not about members and shards
    """

    ignored: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[bytes]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    loose: bool = False

    def ignore(self, reason: str, name: bytes) -> None:
        """Count one ignored member or file."""
        self.ignored[reason] += 1
        names = self.examples.setdefault(reason, [])
        if len(names) < NAMED:
            names.append(name)

    def add(self, other: Findings) -> None:
        """Take in what another file's scan found."""
        self.ignored.update(other.ignored)
        self.dropped.update(other.dropped)
        for reason, names in other.examples.items():
            mine = self.examples.setdefault(reason, [])
            mine.extend(names[: NAMED - len(mine)])
        self.warnings.extend(other.warnings)
        self.loose |= other.loose

    def sentences(self) -> list[str]:
        """One line for each reason for ignoring something."""
        lines = []
        words = _WORDS | _LOOSE_WORDS if self.loose else _WORDS
        for reason, count in sorted(self.ignored.items()):
            names = self.examples.get(reason, [])
            more = f" and {count - len(names):,} more" if count > len(names) else ""
            listed = ", ".join(printable(name) for name in names)
            lines.append(f"ignored {count:,} {words[reason]}: {listed}{more}")
        return lines


_WORDS = {
    "directories": "folder entries",
    "symlinks": "symbolic links",
    "special": "special entries (devices, FIFOs)",
    "hidden": "hidden members (name begins with '.', or under __MACOSX/)",
    "meta": "metadata members (__name__)",
    "no_extension": "members without an extension",
    "unsafe_names": "members with unsafe names (absolute or '..')",
    "files": "files that are no shards",
}

_LOOSE_WORDS = {
    "directories": "folders",
    "special": "special files (devices, pipes, sockets)",
    "symlinks": "symbolic links to nothing",
    "hidden": "hidden files",
    "meta": "metadata files (__name__)",
    "no_extension": "files without an extension",
    "files": "files that are no samples",
}


@dataclass
class Scanned:
    """Samples of one file, in file order. Columns as in layout.index.Index, numbered within this file.

    end     byte behind the last frame that was read (for a tar: where its end marker begins)
    labels  value of the label of every sample (None: it has none), when asked for
    kind, stored  of parts whose payload is computed from other bytes, as in Index; None: there are none
    file    of a folder: number of the file of every part, as in SampleFiles
    codes   of a folder whose folders are the labels: number of every sample's class, int32
    """

    samples: int
    first: I64 | None
    offset: I64
    head: I64
    size: I64
    ext: npt.NDArray[np.uint32] | None = None
    exts: tuple[bytes, ...] = ()
    keys: Ragged | None = None
    sparse: Mapping[int, Runs] = field(default_factory=dict)
    labels: list[bytes | None] | None = None
    end: int = 0
    findings: Findings = field(default_factory=Findings)
    kind: npt.NDArray[np.uint8] | None = None
    stored: I64 | None = None
    file: I64 | None = None
    codes: npt.NDArray[np.int32] | None = None
