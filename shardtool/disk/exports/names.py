"""What the files of exports are called."""

from __future__ import annotations

import re

from ...layout.manifest import Manifest

_TAR = re.compile(r"\.tar\Z", re.I)
# '-000012', '_3', '-00000-of-00016', and the hash that some writers add behind it
_NUMBER = re.compile(r"[-_.]?[0-9]+(-of-[0-9]+)?(-[0-9a-f]{8,})?\Z")
_ENDING = re.compile(r"\.(tar|tfrecords?|tfrec|recordio)\Z", re.I)


def without_tar(name: str) -> str:
    """'a/b.tar' -> 'a/b'; a name without the ending stays."""
    return _TAR.sub("", name) or name


def set_name(manifest: Manifest) -> str:
    """What the shards have in common: 'train' for train-000000.tar, train-000001.tar, ...; else 'shards'."""
    stems = set()
    for receipt in manifest.shards:
        base = receipt.name.rpartition("/")[2]
        stems.add(_NUMBER.sub("", _ENDING.sub("", base)))
    stem = stems.pop() if len(stems) == 1 else ""
    return stem if stem and not stem.startswith(".") else "shards"
