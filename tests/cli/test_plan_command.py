"""`shardtool plan` as users type it: the cases, the JSON keys, the exit statuses."""

import contextlib
import csv
import io
import json
import pathlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from shardtool.cli.loader_options import FLAG_NAMES, option_name
from shardtool.cli.main import _run
from shardtool.cli.plan import command
from shardtool.loaders import LOADERS, loader_class

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "plan"
CASES = {case["id"]: case for case in json.loads((GOLDEN / "cases.json").read_text())}


def run(*words):
    """(exit status, stdout, stderr) of the command as `main` runs it, in this process: a start of Python each
    is too much for so many."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = _run(["plan", *map(str, words)])
    assert "Traceback" not in err.getvalue() and "unexpected" not in err.getvalue()
    return status, out.getvalue(), err.getvalue()


def test_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "shardtool", "plan", "-n", "3", "--world-size", "10"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "refuses" in done.stderr and "Traceback" not in done.stderr


def plan(*words):
    """The JSON object."""
    result = CliRunner().invoke(command, [*map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def samples(facts, epoch=0):
    return [rank["samples"] for rank in facts["epochs"][epoch]["ranks"]]


# -- the cases ----------------------------------------------------------


def test_ceil_leaves_a_worker_empty():
    case = CASES["plan-torch-ceil-empty-worker"]
    spec, expect = case["spec"], case["expect"]
    facts = plan(
        "-n", spec["samples"], "--num-workers", spec["num_workers"], "--loader", "torch", "--per-worker"
    )
    assert [w["samples"] for w in facts["epochs"][0]["ranks"][0]["workers"]] == expect["sizes"]
    assert facts["verdict"]["empty_workers"] == [[0, 3]]
    # the same as ranks, where the ids are the ranges
    facts = plan("-n", spec["samples"], "--world-size", 4, "--scheme", "torch-ceil", "--ids")
    ids = [rank["ids"] for rank in facts["epochs"][0]["ranks"]]
    assert ids == [list(range(lo, hi)) for lo, hi in expect["ranges"]]


def test_batches_are_formed_per_worker():
    case = CASES["plan-torch-batch-sizes"]
    spec, expect = case["spec"], case["expect"]
    words = ["-n", spec["samples"], "--num-workers", spec["num_workers"], "--batch-size", spec["batch_size"]]
    facts = plan(*words, "--loader", "torch", "--per-worker")
    rank = facts["epochs"][0]["ranks"][0]
    assert [w["samples"] for w in rank["workers"]] == expect["worker_sizes"]
    assert rank["batches"] == expect["batches"] and sum(expect["batch_sizes_in_order"]) == rank["samples"]
    dropped = plan(*words, "--loader", "torch", "--drop-last")["epochs"][0]["ranks"][0]
    assert dropped["batches"] == expect["batches_with_drop_last"] and dropped["dropped"] == spec["samples"]


def test_dali_batch_without_samples():
    case = CASES["plan-dali-zero-batch"]
    spec, expect = case["spec"], case["expect"]
    words = [
        "-n",
        spec["samples"],
        "--num-shards",
        spec["num_shards"],
        "--batch-size",
        spec["batch_size"],
        "--pad-last-batch",
        "--last-batch-policy",
        spec["last_batch_policy"],
        "--epochs",
        spec["epochs"],
    ]
    facts = plan(*words)
    assert samples(facts, 0) == expect["shard_sizes"] and samples(facts, 1) == expect["epoch1_sizes_by_rank"]
    assert {r["batches"] for e in facts["epochs"] for r in e["ranks"]} == {expect["batches_per_shard"]}
    batch = spec["batch_size"]
    split = [[min(batch, s), max(0, s - batch)] for s in samples(facts, 0)]
    assert split == expect["epoch0_real_samples_per_batch"]
    assert any("hold no sample at all" in reason for reason in facts["verdict"]["reasons"])
    assert any(reason.startswith("way out: --batch-size") for reason in facts["verdict"]["reasons"])


def test_floor_drops_shards():
    expect = CASES["plan-floor-drops-shards"]["expect"]
    facts = plan("--shard-sizes", "146x1000", "--world-size", 8, "--scheme", "floor")
    assert facts["loader"] == "shard-floor"
    assert set(samples(facts)) == {expect["samples_per_rank"]}
    assert sum(samples(facts)) == expect["samples_used"]
    assert facts["verdict"]["lost_samples"] == [expect["samples_lost"]]
    text = "\n".join(facts["verdict"]["reasons"])
    assert "shards 144 to 145 are never read" in text and f"{expect['shards_per_rank']} for each" in text


def test_fewer_shards_than_ranks():
    expect = CASES["plan-fewer-shards-than-ranks"]["expect"]
    words = ["--shard-sizes", "10,10,10", "--world-size", 8, "--num-workers", 4, "--loader", "webdataset"]
    facts = plan(*words)
    verdict = facts["verdict"]
    assert verdict["hang"] and verdict["empty_ranks"] == expect["ranks_without_data"]
    assert len(verdict["empty_workers"]) == expect["idle_workers"]
    assert any(f"{expect['needed_shards']} shards" in reason for reason in verdict["reasons"])
    status, out, _ = run(*words)
    assert status == 0 and expect["verdict"].split(": ")[1] in out
    assert run(*words, "--fail-on", "hang")[0] == 6


def test_hf_split_by_node():
    case = CASES["plan-hf-split-by-node"]
    for index, spec in enumerate(case["spec"]["cases"]):
        sizes = f"{spec['num_shards']}x{case['spec']['samples_per_shard']}"
        facts = plan("--shard-sizes", sizes, "--world-size", spec["world_size"], "--loader", "hf")
        assert samples(facts) == case["expect"]["samples_by_rank"][index]
        assert facts["capacity"]["read_factor"] == case["expect"]["bytes_read_factor"][index]


def test_lancedb_splits():
    case = CASES["plan-lancedb-splits"]
    spec, expect = case["spec"], case["expect"]
    words = ["-n", spec["rows"], "--num-splits", spec["num_splits"], "--loader", "lancedb"]
    words += ["--global-batch-size", spec["global_batch_size"]]
    for (ranks, workers), valid in zip(spec["topologies"], expect["valid"], strict=True):
        status, out, err = run(*words, "--world-size", ranks, "--num-workers", workers, "--json")
        assert (status == 0) == valid, (ranks, workers)
        if not valid:
            assert status == 2 and "divisible" in err
            continue
        facts = json.loads(out)
        assert sum(samples(facts)) == expect["rows_per_split"] * spec["num_splits"]
        assert facts["verdict"]["lost_samples"] == [expect["rows_dropped"]]
        if workers == 1:
            assert {r["batches"] for r in facts["epochs"][0]["ranks"]} == {expect["steps_per_epoch"]}
    rows = plan(*words, "--world-size", 8, "--elastic", "6-8,16", "--elastic-workers", "1,3,4")["elastic"]
    found = {(r["ranks"], r["workers"]): r for r in rows}
    for (ranks, workers), valid in zip(spec["topologies"], expect["valid"], strict=True):
        row = found[ranks, workers]
        assert row["valid"] == valid and row["same_global_batches"] == valid
        if valid:
            assert (row["resume_skipped"], row["resume_repeated"]) == (0, 0)


def test_lancedb_too_few_rows():
    expect = CASES["plan-lancedb-too-few-rows"]["expect"]
    status, _, err = run("-n", 47, "--num-splits", 48, "--world-size", 8, "--loader", "lancedb")
    assert status == 2
    for words in expect["stderr_mentions_all_of_any"]:
        assert any(word in err for word in words)


@pytest.mark.parametrize("words", CASES["plan-degenerate"]["spec"]["inputs"])
def test_degenerate_numbers(words):
    words = words.split()
    source = [] if "--samples" in words else ["--samples", "10"]
    status, _, err = run(*words, *source)
    assert status == 2 and ("Error" in err or "must be" in err)


# -- what --json holds ----------------------------------------------------------


def test_json_has_exactly_these_keys():
    facts = plan("-n", 10, "--world-size", 2, "--batch-size", 3)
    assert set(facts) == {
        "loader",
        "samples",
        "shard_samples",
        "world",
        "epochs",
        "verdict",
        "elastic",
        "capacity",
    }
    assert set(facts["world"]) == {"ranks", "ranks_per_node", "workers_per_rank", "batch_size"}
    assert set(facts["epochs"][0]) == {"epoch", "ranks"}
    keys = {"rank", "shard", "first", "samples", "batches", "padding", "dropped"}
    assert set(facts["epochs"][0]["ranks"][0]) == keys
    assert set(facts["verdict"]) == {
        "hang",
        "uneven_batches",
        "empty_ranks",
        "empty_workers",
        "lost_samples",
        "repeated_samples",
        "reasons",
    }
    more = plan("-n", 10, "--world-size", 2, "--batch-size", 3, "--ids", "--per-worker")
    assert set(more) - set(facts) == {"ids_opaque"} and more["ids_opaque"] is False
    assert set(more["epochs"][0]["ranks"][0]) - keys == {"workers", "ids", "padding_mask"}
    assert more["epochs"][0]["ranks"][0]["ids"] == [0, 1, 2, 3, 4, 5]
    assert more["epochs"][0]["ranks"][0]["workers"] == [{"worker": 0, "samples": 6, "batches": 2}]
    assert plan("-n", 10, "--shuffle-after-epoch", "--ids")["ids_opaque"] is True


def test_delivered_lost_and_repeated_add_up():
    for words in (
        ["--loader", "dali", "--last-batch-policy", "partial"],
        ["--loader", "torch-distributed"],
        ["--loader", "torch", "--split-over", "none"],
        ["--loader", "tfdata", "--shard", "none"],
    ):
        facts = plan("-n", 101, "--world-size", 4, "--batch-size", 8, "--epochs", 3, *words)
        for epoch in range(3):
            lost, again = (facts["verdict"][k][epoch] for k in ("lost_samples", "repeated_samples"))
            assert sum(samples(facts, epoch)) + lost - again == 101


# -- flags ----------------------------------------------------------


def test_every_field_of_every_loader_has_an_option():
    fields = {option_name(cls, f) for cls in map(loader_class, LOADERS) for f in cls.flags()}
    assert fields == set(FLAG_NAMES)
    options = {p.name for p in command.params}
    assert fields <= options


def test_choices_are_those_of_the_field():
    import typing

    choices = {p.name: set(p.type.choices) for p in command.params if isinstance(p.type, click.Choice)}
    for cls in map(loader_class, LOADERS):
        for field, kind in typing.get_type_hints(cls).items():
            found = [a for a in (kind, *typing.get_args(kind)) if typing.get_origin(a) is typing.Literal]
            if found and field in cls.flags():
                assert set(typing.get_args(found[0])) <= choices[option_name(cls, field)]


def test_help_imports_no_numpy():
    code = (
        "import sys; from shardtool.cli.main import cli; cli(['plan', '--help'], standalone_mode=False); "
        "assert 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "EXIT STATUS" in done.stdout and "Example" in done.stdout


def test_flag_of_another_loader():
    status, _, err = run("-n", 10, "--loader", "hf", "--num-splits", 3)
    assert status == 2 and "--num-splits is no flag of hf" in err and "lancedb" in err
    status, _, err = run("-n", 10, "--loader", "dali", "--no-shuffle")
    assert status == 2 and "lancedb" in err and "torch-distributed" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", 3, "--world-size", 10], "at least equal to the requested number of shards"),
        (["-n", 9, "--stick-to-shard", "--shuffle-after-epoch"], "cannot be both true"),
        (
            ["-n", 9, "--dali-reader", "file", "--random-shuffle", "--shuffle-after-epoch"],
            "cannot be both true",
        ),
        (
            ["-n", 9, "--world-size", 3, "--batch-size", 4, "--last-batch-policy", "drop"],
            "no data in the pipeline",
        ),
        (
            ["--shard-sizes", "2x9", "--world-size", 3, "--loader", "hf", "--strategy", "shards"],
            "num_shards=2",
        ),
        (
            ["--shard-sizes", "2x9", "--world-size", 3, "--loader", "tfdata", "--auto-shard-policy", "auto"],
            "2 file(s)",
        ),
        (["-n", 9, "--loader", "webdataset", "--resampled"], "never end"),
        (["-n", 9, "--loader", "lancedb", "--num-splits", 7, "--world-size", 2], "6 or 8"),
        (["--shard-sizes", "5,1", "--loader", "tfrecord"], "IndexError"),
    ],
)
def test_what_the_loader_refuses(words, says):
    status, _, err = run(*words)
    assert status == 2 and "refuses" in err and says in err and "do:" in err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-n", 5, "--shard-sizes", "5"],
        ["--shard-sizes", "a"],
        ["--shard-sizes", "0,0"],
        ["-n", 1 << 62],
        ["--shard-sizes", "-3"],
        ["-n", 5, "--epochs", 0],
        ["-n", 5, "--ranks-per-node", 0],
        ["-n", 5, "--elastic", "4-2"],
        ["-n", 5, "--fail-on", "everything"],
        ["-n", 5, "--samples-per-shard", 0],
        ["-n", 5, "--sample-bytes", 0],
        ["no-such-folder"],
        ["-n", 5, "--batch-size", 1 << 50],
        ["-n", 10**9, "--ids"],
        ["-n", 96, "--loader", "lancedb", "--global-batch-size", 0],
        ["-n", 5, "--world-size", 1 << 40],
        ["--shard-sizes", f"9x{1 << 60}"],
    ],
)
def test_usage_errors(words):
    status, _, err = run(*words)
    assert status == 2 and err.strip()


# -- what people read ----------------------------------------------------------


def test_ten_unequal_shards_in_one_screen(tmp_path):
    shards = [{"name": f"s-{i:02}.tar", "samples": s, "bytes": s * 1000} for i, s in enumerate([90, 110] * 5)]
    (tmp_path / "manifest.json").write_text(json.dumps({"shards": shards, "samples": 1000, "bytes": 10**6}))
    for source in (tmp_path, tmp_path / "manifest.json"):
        status, out, _ = run(source, "--world-size", 8, "--loader", "webdataset", "--batch-size", 10)
        assert status == 0 and len(out.splitlines()) < 45
        assert (
            "DDP would hang" in out
            and "16 shards of equal size" in out
            and "shuffle buffers of a node" in out
        )
    facts = plan(tmp_path, "--world-size", 8)
    assert facts["shard_samples"] == [90, 110] * 5 and facts["capacity"]["mean_sample_bytes"] == 1000


def test_damaged_manifest(tmp_path):
    for text in ("{", '{"shards": [{"name": "a", "samples": -1, "bytes": 2}]}', '{"shards": []}', "[]"):
        (tmp_path / "manifest.json").write_text(text)
        status, _, err = run(tmp_path / "manifest.json")
        assert status == 3 and "manifest.json" in err


def test_rows_are_folded():
    status, out, _ = run(
        "-n", 513 * 64 + 3, "--world-size", 512, "--batch-size", 16, "--loader", "torch-stride"
    )
    assert status == 0 and len(out.splitlines()) < 25
    assert "ranks 0-66" in out and "ranks 67-511" in out


def test_grid_ids_and_csv():
    words = ["-n", 7, "--world-size", 2, "--batch-size", 2, "--pad-last-batch", "--epochs", 2]
    _, out, _ = run(*words, "--grid")
    assert "rank 0  0 1      2 2*" in out
    _, out, _ = run(*words, "--ids")
    assert "epoch 1 rank 1: 0 1 | 2 2*" in out
    status, out, _ = run(*words, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0 and len(rows) == 4
    assert rows[0] == {
        "epoch": "0",
        "rank": "0",
        "shard": "0",
        "first": "0",
        "samples": "4",
        "batches": "2",
        "padding": "1",
        "dropped": "0",
    }


def test_fail_on():
    words = ["-n", 26, "--world-size", 4, "--batch-size", 5, "--epochs", 2]
    status, out, err = run(*words, "--fail-on", "lost,repeated")
    assert (
        status == 6 and "Verdict" in out and "the plan is lost, repeated" in err and "--pad-last-batch" in err
    )
    assert run(*words, "--fail-on", "hang,empty,uneven")[0] == 0


def test_elastic_of_loaders_that_follow_one_order():
    rows = plan(
        "-n", 1000, "--world-size", 8, "--batch-size", 4, "--loader", "torch-distributed", "--elastic", "1-8"
    )
    same = {r["ranks"]: r["same_global_batches"] for r in rows["elastic"]}
    assert same == {1: True, 2: True, 3: False, 4: True, 5: False, 6: False, 7: False, 8: True}
    assert all(r["resume_skipped"] == r["resume_repeated"] == 0 for r in rows["elastic"] if r["valid"])
    rows = plan("-n", 1000, "--world-size", 8, "--batch-size", 4, "--elastic", "4", "--pad-last-batch")[
        "elastic"
    ]
    assert (
        not rows[0]["same_global_batches"]
        and rows[0]["resume_skipped"] > 0
        and rows[0]["resume_repeated"] > 0
    )
