"""Where bytes go: the smallest number of shards, cuts, windows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import UsageError
from shardtool.layout.frames import tar_file_bytes
from shardtool.layout.layout import Layout, Limits, choose_shards, contents, shard_cuts, shard_names
from shardtool.layout.order import Order

NONE = np.zeros(0, np.int64)


def same(content):
    return content


def largest(frames, shards, file_bytes=same):
    """By definition: add up the frames of every shard."""
    n = len(frames)
    return max(
        int(file_bytes(np.int64(sum(frames[k * n // shards : (k + 1) * n // shards])))) for k in range(shards)
    )


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.one_of(st.none(), st.integers(50, 400)),
    st.one_of(st.none(), st.integers(1, 70)),
)
@settings(deadline=None)
def test_the_fewest_shards_that_keep_the_limits(frames, size, samples):
    n = len(frames)
    got, warnings = choose_shards(np.cumsum(frames), Limits(None, size, samples), same, oversize=NONE, strict=False)
    wanted = min(
        k
        for k in range(1, n + 1)
        if (size is None or largest(frames, k) <= size) and (samples is None or -(-n // k) <= samples)
    )
    assert (got, warnings) == (wanted, [])


def test_end_blocks_count_as_bytes_of_the_shard():
    # 9 frames of 1,024 bytes and two zero blocks fill 10,240 exactly; ten need a second block of 10,240
    frames = np.full(18, 1024)
    assert choose_shards(np.cumsum(frames), Limits(bytes=10240), tar_file_bytes, oversize=NONE, strict=False)[0] == 2
    frames = np.full(19, 1024)
    assert choose_shards(np.cumsum(frames), Limits(bytes=10240), tar_file_bytes, oversize=NONE, strict=False)[0] == 3


def test_exact_number_and_limits_that_contradict_it():
    end = np.cumsum(np.full(100, 10))
    limits = Limits(shards=4, bytes=250, samples=25)
    assert choose_shards(end, limits, same, oversize=NONE, strict=False) == (4, [])
    with pytest.raises(UsageError) as caught:
        choose_shards(end, Limits(shards=4, samples=24), same, oversize=NONE, strict=False)
    assert "--shards 5" in caught.value.remedy
    with pytest.raises(UsageError) as caught:
        choose_shards(end, Limits(shards=3, bytes=250), same, oversize=NONE, strict=False)
    assert "--shards 4" in caught.value.remedy


def test_fewer_samples_than_shards():
    end = np.cumsum(np.full(3, 10))
    shards, warnings = choose_shards(end, Limits(shards=5), same, oversize=NONE, strict=False)
    assert shards == 3 and "3 samples cannot fill 5 shards" in warnings[0]
    with pytest.raises(UsageError):
        choose_shards(end, Limits(shards=5), same, oversize=NONE, strict=True)


def test_a_sample_larger_than_the_limit_gives_way_alone():
    frames = np.full(100, 10)
    frames[37] = 1000
    shards, _ = choose_shards(np.cumsum(frames), Limits(bytes=200), same, oversize=np.array([37]), strict=False)
    sizes = sorted(contents(np.cumsum(frames), shard_cuts(np.cumsum(frames), shards)))
    assert shards == 5 and sizes[-1] == 1190 and sizes[-2] == 200


def test_names():
    assert shard_names("train", "tfrecord", 2) == ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord")
    assert shard_names("train", "tar", 2) == ("train-000000.tar", "train-000001.tar")
    assert shard_names("t", "tar", 1_000_001)[-1] == "t-1000000.tar"
    assert shard_names("t", "tfrecord", 100_000)[0] == "t-000000-of-100000.tfrecord"


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=80), st.integers(1, 20), st.integers(1, 20000))
@settings(deadline=None)
def test_windows_cover_every_shard_without_gap(frames, shards, most):
    n = len(frames)
    shards = min(shards, n)
    order = Order(n, 3)
    ids = order.whole()
    end = np.cumsum(np.array(frames)[ids])
    cuts = shard_cuts(end, shards)
    layout = Layout("tfrecord", order, ids, end, cuts, contents(end, cuts))
    for k in range(shards):
        lo, seen, at = int(cuts[k]), [], 0
        while lo < cuts[k + 1]:
            hi = layout.cut_by_bytes(lo, most)
            got, place = layout.window(lo, hi)
            assert place[0] == at and lo < hi <= cuts[k + 1]
            assert hi == lo + 1 or place[-1] - place[0] <= most
            # as many as fit
            assert hi == cuts[k + 1] or place[-1] - place[0] + frames[ids[hi]] > most
            assert np.diff(place).tolist() == [frames[i] for i in got]
            seen += got.tolist()
            lo, at = hi, place[-1]
        assert seen == ids[cuts[k] : cuts[k + 1]].tolist()
        assert at == layout.shard_bytes[k]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 60))
@settings(deadline=None)
def test_cuts_by_bytes(frames, shards):
    shards = min(shards, len(frames))
    end = np.cumsum(frames)
    cuts = shard_cuts(end, shards, "bytes")
    assert cuts[0] == 0 and cuts[-1] == len(frames) and (np.diff(cuts) > 0).all()
    if shards * 4 <= len(frames):  # room enough that no cut was pushed aside
        ends = np.concatenate([[0], end])
        for k in range(shards + 1):
            nearest = np.abs(ends - end[-1] * k // shards).min()
            pushed = k and cuts[k] == cuts[k - 1] + 1
            assert pushed or abs(int(ends[cuts[k]]) - int(end[-1]) * k // shards) <= nearest + 1


def test_cuts_by_bytes_even_out_sizes_that_counts_do_not():
    frames = np.random.default_rng(1).lognormal(8, 1.5, 20_000).astype(np.int64) + 1
    end = np.cumsum(frames)
    spread = {b: np.ptp(contents(end, shard_cuts(end, 16, b))) for b in ("samples", "bytes")}
    assert spread["bytes"] < 2 * frames.max() and spread["bytes"] < spread["samples"] / 3
