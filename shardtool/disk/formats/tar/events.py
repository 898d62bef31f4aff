"""What a walk over an archive tells, one event at a time.

An event is a tuple (kind, name, offset, payload, size, extra): `offset` is where the member's frame begins
(extension headers included), `payload` where its stored bytes begin, both in the file; `extra` depends on
kind. Tuples instead of objects: an archive has millions of members, and a dataclass each would cost more than
the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....base.errors import DataError

FILE = 0  # payload is one run; extra None
SPARSE = 1  # extra: runs; size is the logical size
LINK = 2  # hard link; extra: name of its target
OTHER = 3  # no content; extra: why it is ignored, a word of Findings
DAMAGE = 4  # extra: Damage; going on searches for the next valid header
FOUND = 5  # reading goes on at `payload`, found by search

Event = tuple[int, bytes, int, int, int, Any]


@dataclass(frozen=True)
class Damage:
    """What is wrong, and what it hits.

    error         ready to be raised
    known         the event holds the damaged member's name; else the damage may have taken any member's
                  header, or one that lends the next member its name
    after_marker  it lies behind an end-of-archive marker
    """

    error: DataError
    known: bool = False
    after_marker: bool = False
