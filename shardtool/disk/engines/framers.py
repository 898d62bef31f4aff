"""Which framer makes the frames of a job: by the format of the sources and that of the shards."""

from __future__ import annotations

from collections.abc import Callable

from .frames import Framer, TarFramer, TFRecordFramer
from .job import CopyJob


def _examples(job: CopyJob) -> Framer:
    from .convert import ExampleFramer

    return ExampleFramer(job)


def _members(job: CopyJob) -> Framer:
    from .convert import MemberFramer

    return MemberFramer(job)


# Most jobs convert nothing, and need none of what conversion imports.
FRAMERS: dict[tuple[str, str], Callable[[CopyJob], Framer]] = {
    ("tfrecord", "tfrecord"): TFRecordFramer,
    ("tar", "tar"): TarFramer,
    ("tar", "tfrecord"): _examples,
    ("folder", "tar"): TarFramer,
    ("folder", "tfrecord"): _examples,
    ("tfrecord", "tar"): _members,
}


def framer_of(job: CopyJob) -> Framer:
    """A new framer for one shard of this job."""
    if job.index.records:
        return _examples(job)
    return FRAMERS[job.index.sources[0].format, job.layout.format](job)
