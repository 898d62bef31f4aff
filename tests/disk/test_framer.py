"""What a framer does to a buffer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardtool.base.ragged import Ragged
from shardtool.disk.engines.frames import TarFramer
from shardtool.disk.engines.job import CopyJob
from shardtool.layout.frames import pad512, tar_head_bytes, tar_heads
from shardtool.layout.index import Index, Source
from shardtool.layout.keys import KEEP, OutputKeys

SIZES = st.one_of(st.integers(0, 3), st.integers(505, 520), st.integers(0, 2000))


@given(st.lists(st.tuples(st.sampled_from([1, 3, 98, 99, 200]), SIZES), min_size=1, max_size=12), st.integers(0, 1500))
def test_heads_and_padding_of_a_window(members, behind):
    """Whatever the buffer held, it holds our headers and zeros around the payloads, and is untouched behind them."""
    names = Ragged.of(b"%0*d" % (length, k) for k, (length, _) in enumerate(members))
    sizes = np.array([size for _, size in members], np.int64)
    count = len(members)
    index = Index(
        (Source(b"s.tar", 1 << 20, count, "tar"),), np.arange(count + 1), np.arange(count) * 4096, np.full(count, 512),
        sizes, np.zeros(count, np.uint32), (b"x",), names,
    )  # fmt: skip
    job = CopyJob.__new__(CopyJob)
    object.__setattr__(job, "index", index)
    object.__setattr__(job, "keys", OutputKeys(KEEP, index))
    full = Ragged.glue(names, Ragged.repeat(b".x", count))
    frames = tar_head_bytes(full) + pad512(sizes)
    place = np.concatenate([[0], np.cumsum(frames)])
    framer = TarFramer(job)
    source, offset, length, to = framer.plan(np.arange(count), place)
    assert offset.tolist() == (np.flatnonzero(sizes) * 4096 + 512).tolist()
    raw = np.full(int(place[-1]) + behind, 0xA5, np.uint8)
    framer.finish(raw, memoryview(raw), None)
    wanted = b"".join(
        head + b"\xa5" * size + bytes(-size % 512) for head, size in zip(tar_heads(full, sizes), sizes, strict=True)
    )
    assert raw.tobytes() == wanted + b"\xa5" * behind
    assert length.tolist() == sizes[sizes > 0].tolist() and not source.any() and len(to) == len(length)
