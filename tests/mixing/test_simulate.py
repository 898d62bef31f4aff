"""The job and the command: the numbers people act on, JSON, bad input, report."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import UsageError
from shardtool.jobs import simulate as job
from shardtool.jobs.simulate import Options, Stored, described, facts, simulate
from shardtool.mixing import exact
from shardtool.mixing import metrics as m
from shardtool.mixing.shuffles import SHUFFLES
from shardtool.report import mixing as report_words

FASHION = np.repeat(np.arange(10, dtype=np.int32), 6000)  # ten classes of 6,000, sorted


def run(*given_words, status=0):
    command = [sys.executable, "-m", "shardtool", "simulate", *map(str, given_words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def sim(*given_words):
    return json.loads(run(*given_words, "--json").stdout)


def fashion(**options):
    return simulate(
        Options(batch_size=64, **options),
        Stored(np.array([60_000]), FASHION, tuple("0123456789"), 784.0),
    )


# -- the numbers of the definitions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("buffer", "runs", "classes"), [(1000, 8975, 1.71), (6000, 35_770, 4.47), (20_000, 50_060, 7.94)]
)
@pytest.mark.parametrize("loader", ["tfdata", "webdataset", "dali"])
def test_sorted_classes_as_the_loaders_mix_them(buffer, runs, classes, loader):
    """Label runs and classes per batch that tf.data, webdataset (initial = buffer) and DALI showed, 12 seeds each."""
    results = [
        fashion(loader=loader, buffer=buffer, seed=seed, shuffle_shards=False,
                initial=buffer if loader == "webdataset" else None)
        for seed in range(4)
    ]  # fmt: skip
    seen = np.array([r.scores["runs"].value for r in results])
    per_batch = np.array([r.classes_mean for r in results])
    # the recorded means are of 12 runs and rounded: their error and ours, three times
    error = np.sqrt(seen.var(ddof=1) * (1 / 4 + 1 / 12))
    assert abs(seen.mean() - runs) < 3 * error + 5
    assert abs(per_batch.mean() - classes) < 3 * np.sqrt(per_batch.var(ddof=1) * (1 / 4 + 1 / 12)) + 0.005


@pytest.mark.parametrize("loader", ["tfdata", "webdataset", "dali"])
def test_the_exact_orders_have_the_same_numbers(loader):
    result = fashion(loader=loader, buffer=6000, seed=3, exact=True, shuffle_shards=False,
                     initial=6000 if loader == "webdataset" else None)  # fmt: skip
    assert abs(result.scores["runs"].value - 35_770) < 600
    assert abs(result.classes_mean - 4.47) < 0.06


def test_the_ideal_of_sorted_classes():
    result = fashion(loader="full")
    assert result.scores["runs"].full == pytest.approx(54_001, abs=1)
    assert result.classes_expected == pytest.approx(9.99, abs=0.005)
    assert result.indistinguishable and result.failed_test is None
    assert result.deff == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("share", "score"), [(0.01, 10), (0.1, 47), (0.2, 66)])
def test_a_share_of_the_files_in_order(share, score):
    assert fashion(loader="dali", buffer=int(share * 60_000)).score == pytest.approx(score, abs=1.5)


@pytest.mark.parametrize(("shards", "score", "worth"), [(1, 63, 2.7), (10, 95, 19.5)])
def test_shards_in_random_order(shards, score, worth):
    result = simulate(Options("torch", shards * 1000, shuffle_shards=True), described(1_000_000, 1000, None))
    assert result.score == pytest.approx(score, abs=1)
    assert result.effective_batch == pytest.approx(worth, rel=0.05)
    options = Options("torch", shards * 1000, shuffle_shards=True, repacked=True)
    again = simulate(options, described(500_000, 1000, None))
    assert again.score == pytest.approx(100, abs=0.5)
    assert again.deff == pytest.approx(1, abs=0.02)


def test_webdataset_shuffles_its_shards_through_a_buffer():
    stored = described(600_000, 500, None)
    through = simulate(Options("webdataset", 5000), stored)
    wider = simulate(Options("webdataset", 5000, shardshuffle=1200), stored)
    assert through.score < wider.score < 90
    det = simulate(Options("webdataset", 5000, detshuffle=True), stored)
    assert through.scores["freshness"].value > 3 * det.scores["freshness"].value


def test_global_and_rank_batches():
    """Contiguous ranges: one rank sees a tenth of the data at a time, a step sees all ranks' places."""
    result = simulate(Options("dali", 2000, world_size=8, batch_size=32), described(256_000, None, None))
    assert result.rank_score < result.score
    assert result.scores["worst rank"].value > 0.5
    plain = simulate(Options("full", world_size=8, batch_size=32), described(256_000, None, None))
    assert plain.scores["worst rank"].value < 0.02
    assert plain.scores["skew"].value == pytest.approx(1, abs=1.5)


def test_labels_decide_not_the_shards():
    """Shards already mixed: a small buffer is enough, whatever the distances say."""
    rng = np.random.default_rng(0)
    mixed = Stored(np.full(100, 1000), rng.integers(0, 10, 100_000).astype(np.int32), tuple("abcdefghij"))
    apart = Stored(mixed.shard_samples, np.repeat(np.arange(10, dtype=np.int32), 10_000), mixed.classes)
    options = Options("torch", 1000, shuffle_shards=True)
    assert simulate(options, mixed).deff == pytest.approx(1, abs=0.05)
    assert simulate(options, mixed).closed.deff == pytest.approx(1, abs=0.1)
    bad = simulate(options, apart)
    assert bad.deff > 50
    assert bad.closed.deff == pytest.approx(bad.deff, rel=0.15)
    assert "Repack" in simulate(Options("torch", 10_000, shuffle_shards=True), apart).advice.sentence


# -- targets and advice ----------------------------------------------------------------------------------------------


def test_target():
    stored = described(1_000_000, 1000, 100_000)
    found = facts(simulate(Options("torch", 1000, shuffle_shards=True, workers=2, target=90), stored))["target"]
    assert found["buffer"] == pytest.approx(4660, rel=0.25)
    assert found["simulated_score"] >= 90
    assert found["bytes"] == 2 * found["bytes_per_worker"] == pytest.approx(2 * found["buffer"] * 100_000)
    none = simulate(Options("webdataset", 1000, workers=8, target=95), stored)
    assert facts(none)["target"]["buffer"] is None
    assert none.advice.fix.action == "repack"


def test_advice_names_the_cheapest_fix():
    stored = described(1_000_000, 1000, 100_000)
    ordered = simulate(Options("torch", 10_000), stored).advice
    assert ordered.fix.action == "shuffle-shards"
    assert "costs nothing" in ordered.sentence
    one = simulate(Options("torch", 10_000), described(1_000_000, None, 100_000)).advice
    assert one.fix.action == "repack" and "186 GiB" not in one.sentence and "93.1 GiB" in one.sentence
    assert simulate(Options("full"), stored).advice.fix.action == "none"


def test_large_sets_are_scaled_or_taken_from_the_closed_form(monkeypatch):
    """With smaller limits, so that it is quick: above 800,000 samples, models of 200,000."""
    monkeypatch.setattr(job, "WHOLE", 800_000)
    monkeypatch.setattr(job, "MODEL", 200_000)
    for shard, buffer, how in ((40_000, 400_000, "in proportion"), (4000, 8000, "of the shards")):
        stored = described(80_000_000, shard, None)
        result = simulate(Options("torch", buffer, shuffle_shards=True, batch_size=64), stored)
        assert how in result.model and result.model_samples <= 1_000_000
        assert result.score == pytest.approx(result.closed.score, abs=2.5)
        assert result.deff == pytest.approx(result.closed.deff, rel=0.1)
    ordered = simulate(Options("dali", 1000), described(80_000_000, None, None))
    assert ordered.model_samples == 0 and ordered.score == ordered.closed.score < 0.1
    scaled = simulate(Options("dali", 4_000_000), described(80_000_000, None, None))
    assert scaled.score == pytest.approx(scaled.closed.score, abs=1)


# -- the command -------------------------------------------------------------------------------------------------------


KEYS = {
    "loader", "samples", "buffer", "batch_size", "shuffle_shards", "score", "indistinguishable", "failed_test",
    "effective_batch", "deff", "same_shard_pairs", "same_shard_pairs_ideal", "classes_per_batch", "label_runs",
    "label_runs_expected", "freshness", "rank_skew", "closed_form", "recommendation", "curve",
}  # fmt: skip


def test_json_keys():
    made = sim("-n", 20_000, "--samples-per-shard", 100, "--loader", "torch", "--buffer", 500, "--batch-size", 32)
    assert not KEYS - set(made)
    assert set(made["classes_per_batch"]) == {"mean", "worst", "expected"}
    assert set(made["closed_form"]) == {"score", "deff"}
    assert all(set(point) == {"buffer", "bytes", "score", "deff"} for point in made["curve"])
    assert made["shuffle_shards"] is False and made["shuffle_shards_assumed"] is True
    assert made["rank_skew"] is None and "ids" not in made


def test_a_buffer_of_two():
    made = sim("-n", 10, "--buffer", 2, "--trials", 4000, "--seed", 1)["trials"]
    expected = [[0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7], [0, 8], [0, 9], [0, 9]]
    assert made["support_by_position"] == expected
    assert made["probability"][0][0] == pytest.approx(0.5, abs=0.03)
    assert made["probability"][2][:4] == pytest.approx([0.125, 0.125, 0.25, 0.5], abs=0.03)
    assert made["expected_source_index_by_position"][:3] == pytest.approx([0.5, 1.25, 2.125], abs=0.06)


def test_a_buffer_of_one_and_of_all():
    assert sim("-n", 6, "--buffer", 1, "--batch-size", 2, "--ids")["ids"] == [0, 1, 2, 3, 4, 5]
    for buffer in (6, 100):
        orders = sim("-n", 6, "--buffer", buffer, "--batch-size", 2, "--trials", 3000, "--ids")["ids"]
        assert len(orders) == 3000
        assert len({tuple(o) for o in orders}) > 700  # of 720; 3,000 draws leave about 11 unseen


def test_exact_ids():
    made = sim("-n", 2000, "--loader", "tfdata", "--buffer", 300, "--seed", 4, "--exact", "--ids", "--epochs", 2)
    assert made["ids"][:2000] == exact.tfdata(2000, 300, 4, 0).tolist()
    assert made["ids"][2000:] == exact.tfdata(2000, 300, 4, 1).tolist()


def test_same_command_same_output():
    words = ("-n", 5000, "--samples-per-shard", 50, "--loader", "webdataset", "--buffer", 100, "--batch-size", 16)
    assert run(*words).stdout == run(*words).stdout
    assert sim(*words, "--seed", 1)["score"] != sim(*words, "--seed", 2)["score"]


def test_the_output_says_what_it_means():
    text = run("-n", 50_000, "--samples-per-shard", 500, "--loader", "webdataset", "--picture", "always").stdout
    for words in ("Mixing score", "Effective batch", "Same-shard pairs", "Classes per batch", "Epoch freshness",
                  "source order", "full shuffle", "assumed: this loader's default", "Closed form",
                  "worst case: if every shard held one class", "█"):  # fmt: skip
        assert words in text
    assert "\x1b" not in text  # no colours into a pipe


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "either SRC"),
        (("-n", 100, "x.tar"), "either SRC"),
        (("-n", 1), "cannot be shuffled"),
        (("-n", -5), "cannot be shuffled"),
        (("-n", 100, "--samples-per-shard", 0), "not positive"),
        (("-n", 100, "--batch-size", 101), "more than all"),
        (("-n", 100, "--batch-size", 0), "too small"),
        (("-n", 1000, "--buffer", 0), "too small"),
        (("-n", 1000, "--loader", "tfdata"), "no default buffer"),
        (("-n", 1000, "--loader", "full", "--buffer", 5), "has no buffer"),
        (("-n", 1000, "--loader", "lancedb", "--buffer", 5), "--shuffle-clump-size"),
        (("-n", 1000, "--loader", "dali", "--initial", 5), "belongs to webdataset"),
        (("-n", 1000, "--loader", "torch", "--dali-reader", "file"), "belongs to dali"),
        (("-n", 1000, "--loader", "torch", "--detshuffle"), "belongs to webdataset"),
        (("-n", 1000, "--loader", "torch", "--shardshuffle", 5), "webdataset"),
        (("-n", 1000, "--loader", "torch", "--shuffle-clump-size", 5), "lancedb"),
        (("-n", 1000, "--loader", "webdataset", "--workers", 4), "cannot feed"),
        (("-n", 1000, "--loader", "nonsense"), "nonsense"),
        (("-n", 1000, "--loader", "mosaic-py1e", "--exact"), "not reproduced"),
        (("-n", 1000, "--exact", "--trials", 3), "--trials"),
        (("-n", 1000, "--target", 101), "no score"),
        (("-n", 1000, "--label", "cls"), "needs SRC"),
        (("-n", 10**9, "--exact"), "leave out --exact"),
        (("-n", 1000, "--figure", "x.gif"), ""),
    ],
)
def test_bad_input(words, says):
    assert says in run(*words, status=2).stderr


# -- figures and page ----------------------------------------------------------------------------------------------


def test_report_and_figures(tmp_path):
    pytest.importorskip("matplotlib")
    page, png, svg = (tmp_path / name for name in ("r.html", "f.png", "f.svg"))
    words = ("-n", 50_000, "--samples-per-shard", 500, "--loader", "torch", "--buffer", 500, "--shuffle-shards",
             "--sample-bytes", "110k", "--world-size", 2, "--target", 90)  # fmt: skip
    made = json.loads(run(*words, "--html", page, "--figure", png, "--json").stdout)
    run(*words, "--figure", svg, "-q")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()
    text = page.read_text()
    for name in ("Mixing score", "Effective batch", "Same-shard pairs", "Classes per batch", "Epoch freshness",
                 "Rank skew", "How to reproduce", "--samples-per-shard 500", "Settings"):  # fmt: skip
        assert name in text
    assert f"{made['score']:.0f} <small>" in text
    assert text.count("<img src='data:image/svg+xml;base64,") == 4
    # Nothing that a browser would fetch: no source but data:, and the policy forbids what is left.
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*['"]?(?!data:|'data:)[a-z]+:""", text)
    assert "default-src 'none'" in text and "<script" not in text and "@import" not in text


def test_without_matplotlib_the_way_is_told(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else real(name, *a)\n"
        "from shardtool.cli.main import main\n"
        f"main(['simulate', '-n', '1000', '--html', {str(tmp_path / 'x.html')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "shardtool[figures]" in done.stderr


def test_half_blocks_in_colour():
    from shardtool.report.mixing import heat_lines

    lines = heat_lines(np.eye(4) * 4, colour=True)
    assert len(lines) == 2 and all(line.count("▀") == 4 and line.endswith("\x1b[0m") for line in lines)
    assert heat_lines(np.eye(4) * 4, colour=False) == ["██  ", "  ██"]
    assert heat_lines(np.ones((2, 2)), colour=False) == ["▒▒"]


def test_heatmap_of_a_full_shuffle_is_even():
    from shardtool.mixing.pictures import distance_curve, heatmap

    order = np.random.default_rng(0).permutation(100_000)
    heat = heatmap(order, 100_000, 10, 10)
    assert heat.shape == (10, 10) and abs(heat - 1).max() < 0.2
    assert np.allclose(heatmap(np.arange(1000), 1000, 10, 10), 10 * np.eye(10))
    curve = distance_curve(m.pair_distances(order.reshape(-1, 50), 100_000, np.random.default_rng(1)))
    assert np.abs(curve.share - curve.full).max() < 0.01


@given(
    loader=st.sampled_from(sorted(SHUFFLES)), n=st.sampled_from([2, 3, 10, 64, 300, 2000]),
    shard=st.sampled_from([None, 1, 3, 10, 100]), buffer=st.sampled_from([1, 2, 7, 100, 10_000]),
    labels=st.sampled_from([0, 0, 1, 7]), options=st.fixed_dictionaries({
        "batch_size": st.sampled_from([None, 2, 3, 8]), "workers": st.integers(0, 3), "world_size": st.integers(1, 3),
        "epochs": st.integers(1, 2), "target": st.sampled_from([None, 90]), "exact": st.booleans(),
        "repacked": st.booleans(), "shuffle_shards": st.sampled_from([None, True, False]),
        "cycle": st.sampled_from([None, 1, 4]), "seed": st.integers(0, 99), "ids": st.booleans(),
    }),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_odd_sizes_give_numbers_or_a_reason(loader, n, shard, buffer, labels, options):
    """Whatever the sizes: JSON without NaN and words, or a UsageError; nothing else."""
    stored = described(n, shard, 1000)
    if labels:
        stored = replace(stored, codes=(np.arange(n) * 31 % labels).astype(np.int32), classes=tuple("abcdefg"[:labels]))
    sized = SHUFFLES[loader].sized and loader != "lancedb"
    try:
        result = simulate(Options(loader, buffer if sized else None, pictures=True, **options), stored)
    except UsageError as error:
        assert error.what and (error.remedy or error.why)
        return
    made = facts(result)
    json.dumps(made, allow_nan=False)
    assert 0 <= made["score"] <= 100
    assert report_words.five_numbers(result) and report_words.pipeline_words(result) and report_words.flag(result)


def test_unknown_loader_in_the_library():
    with pytest.raises(UsageError, match="no loader"):
        simulate(Options("x"), described(100, None, None))


def test_the_exact_order_of_our_own_loader_is_the_loaders():
    """What simulate delivers is what ShardTool, and so shardtool.torch, reads: batch by batch."""
    from shardtool.jobs.simulate import deliver_epochs, pipeline_of
    from shardtool.loaders.shardtool import ShardTool
    from shardtool.schedule.world import World

    sizes = np.array([50, 70, 31, 49])
    options = Options(loader="shardtool", buffer=20, batch_size=5, workers=2, world_size=2, seed=9, exact=True)
    runs = deliver_epochs(pipeline_of(options, Stored(sizes)), sizes, [0, 1])
    for epoch, run in enumerate(runs):
        schedule = ShardTool(window=20).split(sizes, World(2, workers_per_rank=2, batch_size=5), epoch, 9)
        for rank in range(2):
            reading = schedule.rank(rank)
            edges = zip(run.first, run.first[1:], run.rank, strict=False)
            mine = [run.ids[a:b].tolist() for a, b, r in edges if r == rank]
            assert mine == [reading.batch(j).tolist() for j in range(len(reading.batches))]
