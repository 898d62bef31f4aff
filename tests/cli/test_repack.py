"""`shardtool repack` as a user types it."""

import fcntl
import json
import os
import subprocess
import sys
import time

import pytest

from tests.makers import content, frame, read_tfrecord, sorted_tars, sorted_tfrecords, write_tar, write_tfrecord


def shardtool(*args, status=0, **kwargs):
    run = subprocess.run(
        [sys.executable, "-m", "shardtool", *map(str, args)], capture_output=True, text=True, **kwargs
    )  # fmt: skip
    assert run.returncode == status, run.stderr
    assert "Traceback" not in run.stderr
    return run


@pytest.fixture
def source(tmp_path):
    return sorted_tfrecords(tmp_path / "in")


def test_json_is_alone_on_stdout_and_has_its_keys(tmp_path, source):
    run = shardtool("repack", source, "-o", tmp_path / "out", "--shards", 4, "--json")
    facts = json.loads(run.stdout)
    assert set(facts) == {
        "manifest", "shards", "samples", "bytes", "bytes_read", "seconds", "engine", "resumed_shards", "ignored",
        "dropped", "renamed_keys", "warnings",
    }  # fmt: skip
    assert (facts["samples"], facts["shards"], facts["resumed_shards"]) == (60, 4, 0)
    assert facts["bytes"] == sum(p.stat().st_size for p in (tmp_path / "out").glob("*.tfrecord"))
    assert facts["manifest"] == str(tmp_path / "out" / "manifest.json")
    assert run.stderr == ""


def test_quiet_says_nothing_and_warnings_remain(tmp_path, source):
    run = shardtool("repack", source, "-o", tmp_path / "out", "-q")
    assert (run.stdout, run.stderr) == ("", "")
    run = shardtool("repack", source, "-o", tmp_path / "out2", "-q", "--shards", 100)
    assert run.stdout == "" and "60 samples cannot fill 100 shards" in run.stderr


def test_manifest_is_deterministic_ascii_json(tmp_path, source):
    env = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    shardtool("repack", source, "-o", tmp_path / "a", "--shards", 3)
    shardtool("repack", source, "-o", tmp_path / "b", "--shards", 3, "--jobs", 1, env=env, cwd=tmp_path)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    text = (tmp_path / "a" / "manifest.json").read_bytes()
    assert text.isascii() and text.endswith(b"}\n")
    facts = json.loads(text)
    assert text.decode() == json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=1) + "\n"
    assert str(tmp_path) not in text.decode()


def test_second_run_has_nothing_to_do(tmp_path, source):
    shardtool("repack", source, "-o", tmp_path / "out")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    run = shardtool("repack", source, "-o", tmp_path / "out")
    assert "Nothing to do" in run.stderr
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")} == before


def test_another_job_in_out_is_refused_and_says_what_differs(tmp_path, source):
    shardtool("repack", source, "-o", tmp_path / "out", "--seed", 1)
    before = content(tmp_path / "out")
    run = shardtool("repack", source, "-o", tmp_path / "out", "--seed", 2, status=4)
    assert "--seed was 1, now it is 2" in run.stderr and "--overwrite" in run.stderr
    write_tfrecord(source / "part-00001-of-00003.tfrecord", [b"new"] * 20)
    run = shardtool("repack", source, "-o", tmp_path / "out", "--seed", 1, status=4)
    assert "the input is another one" in run.stderr
    assert content(tmp_path / "out") == before


def test_a_newer_input_is_refused_until_overwrite(tmp_path, source):
    shardtool("repack", source, "-o", tmp_path / "out")
    before = content(tmp_path / "out")
    path = next(source.iterdir())
    os.utime(path, (time.time() + 5, time.time() + 5))
    assert "newer" in shardtool("repack", source, "-o", tmp_path / "out", status=4).stderr
    shardtool("repack", source, "-o", tmp_path / "out", "--overwrite")
    assert content(tmp_path / "out") == before


def test_overwrite_removes_what_the_manifest_lists_and_nothing_else(tmp_path, source):
    out = tmp_path / "out"
    shardtool("repack", source, "-o", out, "--shards", 5, "--name", "old")
    (out / "notes.txt").write_text("mine")
    shardtool("repack", source, "-o", out, "--shards", 2, "--name", "new", "--overwrite")
    assert {p.name for p in out.iterdir()} == {
        "notes.txt", "index", "manifest.json", "new-00000-of-00002.tfrecord", "new-00001-of-00002.tfrecord",
    }  # fmt: skip
    assert len(list((out / "index").iterdir())) == 2


def test_overwrite_spares_a_folder_that_is_not_ours(tmp_path, source):
    out = tmp_path / "out"
    out.mkdir()
    (out / "shard-00000-of-00001.tfrecord").write_bytes(b"precious")
    for more in ([], ["--overwrite"]):
        run = shardtool("repack", source, "-o", out, *more, status=4)
        assert "not empty" in run.stderr
    assert content(out) == {"shard-00000-of-00001.tfrecord": b"precious"}


def test_overwrite_does_not_write_over_a_foreign_file(tmp_path, source):
    out = tmp_path / "out"
    shardtool("repack", source, "-o", out, "--name", "a")
    (out / "b-00000-of-00001.tfrecord").write_bytes(b"precious")
    before = content(out)
    run = shardtool("repack", source, "-o", out, "--name", "b", "--overwrite", status=4)
    assert "b-00000-of-00001.tfrecord" in run.stderr
    assert content(out) == before


def test_overwrite_spares_shards_that_only_got_a_manifest(tmp_path, source):
    """`shardtool manifest` made the manifest there: the shards are the user's own."""
    own = sorted_tars(tmp_path / "own", 2, 3)
    before = content(own)
    shardtool("manifest", own, "-o", own / "manifest.json")
    shardtool("repack", source, "-o", own, "--overwrite")
    assert before.items() <= content(own).items()
    run = shardtool("repack", sorted_tars(tmp_path / "new"), "-o", own, "--name", "train", "--overwrite", status=4)
    assert "train-000000.tar" in run.stderr


def test_a_manifest_cannot_make_us_remove_files_elsewhere(tmp_path, source):
    out = tmp_path / "out"
    shardtool("repack", source, "-o", out)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = out / "manifest.json"
    facts = json.loads(path.read_text())
    facts["exports"] = {"x": ["../victim", str(victim)]}
    path.write_text(json.dumps(facts))
    shardtool("repack", source, "-o", out, "--overwrite")
    assert victim.read_text() == "mine"


def test_dry_run_writes_nothing(tmp_path, source):
    before = content(tmp_path)
    run = shardtool("repack", source, "-o", tmp_path / "out", "--shards", 4, "--dry-run", "--json")
    facts = json.loads(run.stdout)
    assert facts["shard_samples"] == {"min": 15, "max": 15} and facts["cost"]["engine"] == "gather"
    real = shardtool("repack", source, "-o", tmp_path / "real", "--shards", 4, "--json")
    assert json.loads(real.stdout)["bytes"] == facts["bytes"]
    shown = shardtool("repack", source, "-o", tmp_path / "out", "--shards", 4, "--dry-run", "--disk-speed", "1k").stdout
    assert "Nothing was written." in shown and "--disk-speed" in shown
    assert not (tmp_path / "out").exists()
    assert {k: v for k, v in content(tmp_path).items() if not k.startswith("real/")} == before


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--shards", 0], 2, "less than 1"),
        (["--shards", 2, "--shard-samples", 10], 2, "--shards 6"),
        (["--shard-size", "x"], 2, "not a size"),
        (["--name", "a/b"], 2, "--name"),
        (["--keys", "nonsense"], 2, "keys"),
        (["--format", "zip"], 2, "zip"),
        (["--format", "tar", "--field", "x=int64"], 2, "--field"),
        (["--format", "tar", "--rename", "x"], 2, "OLD=NEW"),
        (["--format", "tar", "--rename", "x=a", "--rename", "x=b"], 2, "twice"),
        (["--format", "tar", "--drop", "x"], 2, "no sample has this field"),
        (["--format", "tar", "--records", "example"], 3, "tf.train.Example"),
        (["--digest", "sha1"], 2, "sha256"),
        (["--seed", 1 << 64], 2, "64 bits"),
        (["--label", "no-such"], 3, "tf.train.Example"),
        (["--shards", 100, "--strict"], 2, "60"),
        (["--memory", "1"], 2, "--memory"),
        (["--export", "nonsense"], 2, "nonsense"),
        (["--export", "dali-wds"], 2, "dali-wds"),
    ],
)
def test_usage_errors_leave_nothing(tmp_path, source, options, status, words):
    run = shardtool("repack", source, "-o", tmp_path / "out", *options, status=status)
    assert words in run.stderr and run.stdout == ""
    assert not (tmp_path / "out").exists()


def test_damage_leaves_nothing_even_when_found_on_the_copy(tmp_path, source):
    path = source / "part-00002-of-00003.tfrecord"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1  # in the last record's payload: lengths are all right, so the scan passes
    path.write_bytes(data)
    run = shardtool("repack", source, "-o", tmp_path / "out", "--shards", 30, status=3)
    at = len(data) - len(frame(b"2-19." + b"\x13" * (40 + 19 % 7)))
    assert "payload checksum" in run.stderr and f"byte offset {at}, member number 19" in run.stderr
    assert path.name in run.stderr
    assert not (tmp_path / "out").exists()
    # and a folder that was there stays as it was
    (tmp_path / "out").mkdir()
    shardtool("repack", source, "-o", tmp_path / "out", "--shards", 30, status=3)
    assert list((tmp_path / "out").iterdir()) == []
    run = shardtool("repack", source, "-o", tmp_path / "out", "--on-corrupt", "skip", "--json")
    facts = json.loads(run.stdout)
    assert (facts["samples"], facts["dropped"]) == (59, {"records": 1})


def test_wrong_checksums_are_made_right_without_verify(tmp_path):
    payloads = [b"a" * 10, b"b" * 2000]
    data = b"".join(frame(p)[:8] + bytes(4) + p + bytes(4) for p in payloads)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.tfrecord").write_bytes(data)
    shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", status=3)
    shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", "--no-verify", "--shards", 1)
    got = read_tfrecord(tmp_path / "out" / "shard-00000-of-00001.tfrecord")
    assert sorted(got) == sorted(payloads)


def test_two_runs_at_once(tmp_path, source):
    (tmp_path / "out" / ".shardtool").mkdir(parents=True)
    with open(tmp_path / "out" / ".shardtool" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = shardtool("repack", source, "-o", tmp_path / "out", status=4)
    assert "another run is at work" in run.stderr


def test_depfile(tmp_path):
    source = tmp_path / "my data #1 $x"
    sorted_tfrecords(source, 2)
    shardtool("repack", source, "-o", "out", "--depfile", "out.d", cwd=tmp_path)
    (tmp_path / "Makefile").write_text("out/manifest.json:\n\t@echo rebuild\n-include out.d\n")
    def make():
        return subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "up to date" in make()
    os.utime(source / "part-00001-of-00002.tfrecord", (time.time() + 9, time.time() + 9))
    assert make() == "rebuild\n"
    (source / "part-00001-of-00002.tfrecord").unlink()
    assert make() == "rebuild\n"


def test_keys(tmp_path):
    for shard in "ab":
        write_tar(tmp_path / "in" / f"{shard}.x.tar", [(f"{k}.txt", shard.encode()) for k in range(3)])
    def keys(name):
        import tarfile

        with tarfile.open(tmp_path / name / "shard-000000.tar") as archive:
            return sorted(archive.getnames())

    run = shardtool("repack", tmp_path / "in", "-o", tmp_path / "auto", "--shards", 1, "--json")
    assert json.loads(run.stdout)["renamed_keys"] == 6
    assert keys("auto") == [f"{s}_x/{k}.txt" for s in "ab" for k in range(3)]
    shardtool("repack", tmp_path / "in", "-o", tmp_path / "ordinal", "--shards", 1, "--keys", "ordinal")
    assert keys("ordinal") == [f"{k:09}.txt" for k in range(6)]
    error = shardtool("repack", tmp_path / "in", "-o", tmp_path / "keep", "--keys", "keep", status=3).stderr
    assert "member " in error and "a.x.tar" in error and "b.x.tar" in error and "--keys source" in error
    facts = json.loads((tmp_path / "auto" / "manifest.json").read_text())
    assert facts["keys"] == {"mode": "source", "unique": True} and facts["renamed"]["keys"] == 6


def test_balance_by_bytes(tmp_path):
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [b"x" * (7 * k) for k in range(400)])
    options = ["repack", tmp_path / "in", "--shards", 8, "-q", "-o"]
    shardtool(*options, tmp_path / "samples")
    shardtool(*options, tmp_path / "bytes", "--balance", "bytes")
    spread = {}
    for name in ("samples", "bytes"):
        shards = json.loads((tmp_path / name / "manifest.json").read_text())["shards"]
        spread[name] = max(s["bytes"] for s in shards) - min(s["bytes"] for s in shards)
        assert sum(s["samples"] for s in shards) == 400
        shardtool("verify", tmp_path / name, "--against", tmp_path / "in")
    assert spread["bytes"] < 2 * 2800 < spread["samples"]


def test_labels_and_fields_in_the_manifest(tmp_path):
    source = sorted_tars(tmp_path / "in", 3, 5)
    shardtool("repack", source, "-o", tmp_path / "out", "--label", "cls", "--shards", 2)
    facts = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert facts["classes"] == ["0", "1", "2"] and facts["labels"]["histogram"] == {"0": 5, "1": 5, "2": 5}
    assert facts["fields"]["jpg"]["samples"] == 15 and facts["field_sets"] == {"cls,jpg": 15}
    run = shardtool("repack", source, "-o", tmp_path / "x", "--label", "no", status=2)
    assert "no sample has the label field" in run.stderr


def test_out_inside_the_input_and_the_other_way_round(tmp_path, source):
    before = content(source)
    for out in (source, source / "sub", tmp_path):
        shardtool("repack", source, "-o", out, "--overwrite", status=4)
    assert content(source) == before


def test_closed_stdout_and_full_stderr_are_no_traceback(tmp_path, source):
    run = subprocess.run(
        f"'{sys.executable}' -m shardtool repack {source} -o {tmp_path}/out | true; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" not in run.stderr
    assert (tmp_path / "out" / "manifest.json").exists()


def test_unwritable_out(tmp_path, source):
    blocked = tmp_path / "file"
    blocked.write_text("")
    run = shardtool("repack", source, "-o", blocked, status=4)
    assert "not a folder" in run.stderr
    run = shardtool("repack", source, "-o", "/proc/out", status=5)
    assert "/proc" in run.stderr


def test_help_is_quick_and_imports_no_numpy():
    code = "import sys; sys.argv=['x','--help']\ntry:\n import shardtool.cli.main as m; m.main(['repack','--help'])\nexcept SystemExit: pass\nprint('numpy' in sys.modules)"  # noqa: E501
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("False\n") and "EXIT STATUS" in run.stdout
