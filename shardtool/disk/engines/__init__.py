"""Engines choose only the order in which bytes move: all of them write the same bytes.

ENGINES: name -> context manager of (CopyJob, jobs, advance) that gives a function (shard number, advance) -> Receipt,
Later.
What has to happen before the first shard happens on entering, in up to `jobs` processes. The function may be called
in forked children; what it keeps from shard to shard belongs to one process, and what the process that entered the
context keeps is given back at its end.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from .gather import Advance, Write, gather

if TYPE_CHECKING:
    from .job import CopyJob


def _bucket(job: CopyJob, jobs: int, advance: Advance) -> AbstractContextManager[Write]:
    """The engine of that name, imported when it is needed."""
    from .bucket import bucket as engine

    return engine(job, jobs, advance)


ENGINES = {"gather": gather, "bucket": _bucket}
