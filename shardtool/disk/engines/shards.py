"""The end of every shard, whichever engine filled it.

While the disk takes the last buffers of a shard and makes it durable, its worker fills the next one: syncs are waits,
and a disk that waits for the next buffer is time lost.
"""

from __future__ import annotations

from collections.abc import Callable

from ...layout.frames import tar_file_bytes
from ...layout.manifest import Receipt
from ..digests import XXH3
from ..files import rename
from ..runners import Later
from ..shardindex import ShardIndexWriter
from ..writer import Ended, ShardWriter
from .job import CopyJob


def finish_shard(
    job: CopyJob, shard: int, writer: ShardWriter, temporary: bytes, index: Callable[[], ShardIndexWriter]
) -> Later[Receipt]:
    """With all frames written: end marker and index; later sync and names. The receipt.

    index  gives the index with all its rows; called when the writer's thread has its last buffer
    """
    if job.layout.format == "tar":
        writer.write(bytes(int(tar_file_bytes(writer.bytes)) - writer.bytes))
    ended = writer.end()
    made: ShardIndexWriter | None = None
    try:
        made = index()
        made.end()
    except BaseException:
        _drop(ended, made)
        raise
    return Later(lambda: _published(job, shard, ended, made, temporary), lambda: _drop(ended, made))


def _drop(ended: Ended, index: ShardIndexWriter | None) -> None:
    ended.drop()
    if index is not None:
        index.close()


def _published(job: CopyJob, shard: int, ended: Ended, index: ShardIndexWriter, temporary: bytes) -> Receipt:
    try:
        digests = dict(ended.finish())
        index.sync()
    finally:
        index.close()
    expected = int(job.layout.shard_bytes[shard])
    if ended.bytes != expected:
        raise AssertionError(f"shard {shard} has {ended.bytes} bytes, the layout says {expected}")
    rename((index.temporary, index.path), (temporary, job.out + b"/" + job.names[shard].encode()))
    return Receipt(
        shard=shard, name=job.names[shard], samples=int(job.layout.cuts[shard + 1] - job.layout.cuts[shard]),
        bytes=ended.bytes, digest=f"{XXH3}:{digests.pop(XXH3)}", digests=digests, index=index.name,
    )  # fmt: skip
