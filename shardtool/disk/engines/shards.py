"""The end of every shard, whichever engine filled it."""

from __future__ import annotations

from collections.abc import Callable

from ...layout.frames import tar_file_bytes
from ...layout.manifest import Receipt
from ..digests import XXH3
from ..files import rename
from ..writer import ShardWriter
from .job import CopyJob


def finish_shard(
    job: CopyJob, shard: int, writer: ShardWriter, temporary: bytes, publish_index: Callable[[], str]
) -> Receipt:
    """With all frames written: end marker, index, sync, name. The receipt."""
    if job.layout.format == "tar":
        writer.write(bytes(int(tar_file_bytes(writer.bytes)) - writer.bytes))
    writer.end()
    index = publish_index()  # while the disk takes the last buffers
    digests = writer.finish()
    expected = int(job.layout.shard_bytes[shard])
    if writer.bytes != expected:
        raise AssertionError(f"shard {shard} has {writer.bytes} bytes, the layout says {expected}")
    rename(temporary, job.out + b"/" + job.names[shard].encode())
    return Receipt(
        shard=shard, name=job.names[shard], samples=int(job.layout.cuts[shard + 1] - job.layout.cuts[shard]),
        bytes=writer.bytes, digest=f"{XXH3}:{digests.pop(XXH3)}", digests=digests, index=index,
    )  # fmt: skip
