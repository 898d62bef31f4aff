"""Exact orders against what the real loaders delivered (tests/golden, scripts/capture_orders.py)."""

import json
import pathlib
import random

import numpy as np
import pytest

from shardtool.base import foreign_rng, seeds
from shardtool.base.errors import UsageError
from shardtool.mixing import exact
from shardtool.mixing.pipeline import Pipeline, deliver_epochs
from shardtool.mixing.shuffles import SHUFFLES, dali

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
N = 2000


def golden(name):
    return json.loads((GOLDEN / f"real_{name}.json").read_text())


def delivered(loader, buffer, *, shards=1, epochs=1, **more):
    """Flat ids of all epochs, from the pipeline that users reach."""
    shuffle = SHUFFLES[loader]
    made = {"initial": shuffle.initial, "shuffle_shards": shuffle.shuffle_shards and shards > 1, "cycle": shuffle.cycle}
    pipe = Pipeline(shuffle, buffer, 10, exact=True, **{**made, **more})
    runs = deliver_epochs(pipe, np.full(shards, N // shards), list(range(epochs)))
    return [int(i) for run in runs for i in run.ids]


def dali_rows():
    return [k for k in golden("dali") if k != "shard2"]


@pytest.mark.parametrize("key", dali_rows())
def test_dali(key):
    fill = int(key.split("_")[0][1:])
    seed = int(key.split("_s")[1]) if "_s" in key else 1
    assert delivered("dali", fill, epochs=2, seed=seed) == golden("dali")[key]


def test_dali_reads_the_other_shard_next():
    pipe = Pipeline(SHUFFLES["dali"], 300, 10, ranks=2, seed=3, exact=True)
    runs = deliver_epochs(pipe, np.array([N]), [0, 1, 2])
    rank0 = []
    for run in runs:
        rank = np.repeat(run.rank, np.diff(run.first))
        rank0 += run.ids[rank == 0].tolist()
    assert rank0 == golden("dali")["shard2"]


def test_dali_file_list():
    """The first entries of the list of 200 files, which no seed changes."""
    assert exact.dali_file_list(200)[:12].tolist() == [30, 198, 59, 154, 165, 196, 193, 195, 136, 144, 50, 4]
    pipe = Pipeline(dali("file"), 1, 10, exact=True, seed=5)
    assert deliver_epochs(pipe, np.array([200]), [0])[0].ids[:3].tolist() == [30, 198, 59]


@pytest.mark.parametrize("key", golden("dali_file"))
def test_dali_file_reader(key):
    """FILL_SEED_SHARDS: 500 files, random_shuffle, shard 0, 1,000 samples."""
    fill, seed, shards = map(int, key.split("_"))
    pipe = Pipeline(dali("file"), fill, 25, ranks=shards, seed=seed, exact=True)
    rank0 = []
    for run in deliver_epochs(pipe, np.array([500]), [0, 1, 2, 3]):
        rank0 += run.ids[np.repeat(run.rank, np.diff(run.first)) == 0].tolist()
    assert rank0[:1000] == golden("dali_file")[key]


@pytest.mark.parametrize("key", [k for k in golden("tf") if k[1:].isdigit()])
def test_tfdata(key):
    assert delivered("tfdata", 300, seed=int(key[1:])) == golden("tf")[key]


def test_tfdata_second_pass():
    if "rep" in golden("tf"):
        assert delivered("tfdata", 300, seed=5, epochs=2) == golden("tf")["rep"]


@pytest.mark.parametrize("key", [k for k in golden("torch") if k.startswith("wds")])
def test_webdataset(key):
    _, buffer, initial = key.split("_")
    assert delivered("webdataset", int(buffer), initial=int(initial), seed=42) == golden("torch")[key]


def test_torch():
    assert delivered("torch", 300, seed=42) == golden("torch")["torch_300"]


def test_hf():
    recorded = golden("hf")
    assert delivered("hf-5.1", 300, seed=42) == recorded["single_shard_B300"]
    assert delivered("hf-5.1", 300, shards=20, seed=42) == recorded["B300_default_interleave"]
    assert delivered("hf-5.1", 1, shards=20, seed=42) == recorded["B1_default"]


def test_grain():
    recorded = golden("grain")
    assert delivered("grain-window", 300, seed=42) == recorded["win"]
    two = delivered("grain-map", 1, seed=42, epochs=2)
    assert two[:N] == recorded["map"][:N]
    assert two[N:] == delivered("grain-map", 1, seed=43)


def test_grain_loses_a_sample_at_65537():
    """As the real one: for n = 2^16 + 1 the cipher's block is one bit short."""
    made = foreign_rng.index_shuffle(np.arange(65_537), 65_536, 3)
    assert len(np.unique(made)) == 65_536 and 65_536 not in made
    for n in (1, 300, 65_536, 65_538):
        assert sorted(foreign_rng.index_shuffle(np.arange(n), n - 1, 9).tolist()) == list(range(n))


def test_hf_epochs_and_uneven_shards():
    sizes = np.array([90 + 10 * k for k in range(13)])
    pipe = Pipeline(SHUFFLES["hf-5.1"], 300, 10, 0, True, 10, seed=42, exact=True)
    for epoch, run in enumerate(deliver_epochs(pipe, sizes, [0, 1, 2])):
        assert run.ids.tolist() == golden("hf_uneven")[f"uneven_e{epoch}"]


def test_webdataset_shard_order():
    """shardshuffle=100, seed=1, 8 shards: the same in every epoch; with detshuffle seed + epoch."""
    orders = [exact.webdataset(8, 100, 100, 1 + epoch).tolist() for epoch in range(3)]
    assert orders == [[2, 4, 0, 7, 5, 1, 6, 3], [0, 7, 6, 2, 1, 4, 3, 5], [3, 4, 6, 1, 2, 7, 5, 0]]
    shuffle = SHUFFLES["webdataset"]
    for det, same in ((False, True), (True, False)):
        pipe = Pipeline(shuffle, 1, 10, 0, True, seed=1, exact=True, det=det)
        a, b = deliver_epochs(pipe, np.full(8, 10), [0, 1])
        assert (a.ids[::10] // 10).tolist() == orders[0]
        assert (a.ids.tolist() == b.ids.tolist()) == same


def test_exact_is_refused_where_it_is_not_known():
    for loader, more in (
        ("mosaic-py1br", {}), ("mosaic-py1e", {}), ("grain-window", {"ranks": 2}), ("grain-map", {"seed": -1}),
        ("torch", {"workers": 2}), ("torch", {"shuffle_shards": True}),
        ("dali", {"shuffle_shards": True}), ("tfdata", {"shuffle_shards": True}),
    ):  # fmt: skip
        pipe = Pipeline(SHUFFLES[loader], 20, 10, exact=True, **more)
        with pytest.raises(UsageError):
            deliver_epochs(pipe, np.full(4, 100), [0])
    with pytest.raises(UsageError, match="more than one epoch"):
        deliver_epochs(Pipeline(SHUFFLES["torch"], 20, 10, exact=True), np.array([100]), [0, 1])


@pytest.mark.parametrize("bound", [1, 2, 3, 100, 300, 1024, 65_537])
def test_python_below_is_randrange(bound):
    ours, theirs = random.Random(7), random.Random(7)
    assert seeds.python_below(ours, bound, 700).tolist() == [theirs.randrange(bound) for _ in range(700)]
    assert ours.random() == theirs.random()  # and leaves the generator where CPython would


def test_generators_of_the_cpp_library():
    """Values printed by a program compiled with g++ 12 (libstdc++)."""
    assert foreign_rng.seed_sequence([-1, 0, 1], 5) == [3841225915, 2531914156, 1377890526, 1606778743, 3864282939]
    assert foreign_rng.seed_sequence([1, 2, 3, 4, 5], 7)[:3] == [2143006432, 2965784503, 132684732]
    source = foreign_rng.MinStd(12345)
    assert [source.below(300) for _ in range(5)] == [145, 289, 52, 226, 1]
    # std::shuffle draws two positions from one word while n * n fits in 32 bits, then one each.
    for n, first, second, last in ((10, 5, 9, 3), (11, 10, 0, 8), (70_000, 14022, 67989, 52528)):
        made = foreign_rng.std_shuffle(n, 524287)
        assert (made[0], made[1], made[-1]) == (first, second, last)


def test_philox_known_answer():
    """Random123's known answers for philox4x32-10: key and counter zero."""
    words = foreign_rng.philox_words(0, 0, 0, 4)
    assert [hex(w) for w in words.tolist()] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    whole = foreign_rng.philox_words(87654321, 7, 0, 50)
    assert foreign_rng.philox_words(87654321, 7, 13, 41).tolist() == whole[13:41].tolist()


def test_std_shuffle_is_a_permutation_on_both_paths():
    for n in (0, 1, 2, 3, 10, 11, 70_000):
        assert sorted(foreign_rng.std_shuffle(n, 9).tolist()) == list(range(n))
