"""Which framer makes the frames of a job: by the format of the sources and that of the shards."""

from __future__ import annotations

from .convert import ExampleFramer, MemberFramer
from .frames import Framer, TarFramer, TFRecordFramer
from .job import CopyJob

Made = type[TFRecordFramer] | type[TarFramer] | type[ExampleFramer] | type[MemberFramer]

FRAMERS: dict[tuple[str, str], Made] = {
    ("tfrecord", "tfrecord"): TFRecordFramer,
    ("tar", "tar"): TarFramer,
    ("tar", "tfrecord"): ExampleFramer,
    ("folder", "tar"): TarFramer,
    ("folder", "tfrecord"): ExampleFramer,
    ("tfrecord", "tar"): MemberFramer,
}


def framer_of(job: CopyJob) -> Framer:
    """A new framer for one shard of this job."""
    if job.index.records:
        return ExampleFramer(job)
    return FRAMERS[job.index.sources[0].format, job.layout.format](job)
