"""Awkward inputs, each with what must come of it: tests/golden/cases has the inputs and the expectations.

A case stands for its kind; siblings (other formats, other places, under compression) are in test_siblings.py.
"""

import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tarfile

import pytest

from tests.cases import judge
from tests.makers import content, write_tfrecord
from tests.runner import shardtool

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "cases"
CASES = {case["id"]: case for case in json.loads((GOLDEN / "cases.json").read_text())}


def runs():
    """(case id, flags, expectations of which one must hold)"""
    for case in CASES.values():
        yield case["id"], "", [case["expect"]]
        for variant in case["variants"]:
            yield case["id"], variant["flags"], [variant["expect"], *variant.get("alternatives", [])]


# These need more than a command line: below.
APART = ("ws-disk-full", "ws-input-inside-output", "ws-fd-limit")
RUNS = [run for run in runs() if run[0] not in APART]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    with tarfile.open(GOLDEN / "inputs.tar.xz") as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    # One input is made here, being large: a record of 3 MiB between small ones.
    sizes = CASES["tfr-large-record"]["expect"]["records_size"]
    payloads = [hashlib.shake_256(b"%d" % n).digest(n) for n in sizes]
    (folder / "tfr-large-record").mkdir()
    write_tfrecord(folder / "tfr-large-record" / "big.tfrecord", payloads)
    CASES["tfr-large-record"]["expect"]["digest"] = judge.tfrecord_digest(payloads)
    return folder


def seen(folder):
    """All that must not change of an input."""
    return {
        p: (p.read_bytes() if p.is_file() else None, p.lstat().st_mtime_ns, p.lstat().st_mode, p.lstat().st_ino)
        for p in [folder, *folder.rglob("*")]
    }


@pytest.fixture
def case_input(inputs, request):
    """The input of a case; it must be the same afterwards."""
    folder = inputs / request.param
    before = seen(folder)
    yield folder
    assert seen(folder) == before


def id_of(run):
    return f"{run[0]} {run[1]}".strip()


@pytest.mark.parametrize(("case_input", "flags", "expects"), RUNS, ids=map(id_of, RUNS), indirect=["case_input"])
def test_case(case_input, flags, expects, tmp_path):
    out = tmp_path / "out"
    source = [case_input]
    if flags.startswith("--input-glob"):
        source, flags = [f"{case_input}/{flags.split(chr(39))[1]}"], ""
    done = shardtool("repack", *source, "-o", out, "--shards", "3", "--seed", "7", "--json", *flags.split())
    if expects[0]["outcome"] == "error":
        check_error(done, expects[0], out)
        return
    assert done.status == 0, done.err
    failures = []
    for expect in expects:
        try:
            judge.check(out, expect)
            check_report(done, expect, out)
            break
        except AssertionError as error:
            failures.append(error)
    else:
        raise failures[0]
    if "max_rss_mb" in expects[0]:
        assert done.rss < expects[0]["max_rss_mb"] << 10
    verified = shardtool("verify", out / "manifest.json")
    assert verified.status == 0, verified.out + verified.err
    if flags:
        return
    dry = shardtool("repack", *source, "-o", tmp_path / "dry", "--shards", "3", "--dry-run", *flags.split())
    assert dry.status == 0 and not (tmp_path / "dry").exists(), dry.err


def check_error(done, expect, out):
    assert done.status in (2, 3, 4), done.err
    assert done.out == ""
    for words in expect.get("stderr_mentions_all_of_any", []):
        assert any(re.search(word, done.err, re.I) for word in words), f"none of {words} in {done.err}"
    assert re.search(r"^  do:", done.err, re.M), f"no remedy: {done.err}"
    assert not out.exists()


def check_report(done, expect, out):
    said = done.json
    manifest = json.loads((out / "manifest.json").read_text())
    for kind in ("ignored", "dropped"):
        assert said[kind] == manifest[kind]
        if kind in expect:
            assert {reason: said[kind].get(reason, 0) for reason in expect[kind]} == expect[kind]
    for word in expect.get("stderr_mentions", []):
        assert word in done.err
    for word in expect.get("warnings", []):
        assert word.lower() in " ".join(said["warnings"]).lower()
        assert word.lower() in done.err.lower()
    for wanted, samples in expect.get("report", {}).get("field_sets", {}).items():
        assert manifest["field_sets"][wanted] == samples


def test_every_kind_of_case_is_here():
    assert {run[0] for run in RUNS} | set(APART) == set(CASES)
    assert len(CASES) == 64 and len(RUNS) > 80


# -- cases that need more than a command line ----------------------------------------------------------------


@pytest.mark.parametrize("case_input", ["ws-fd-limit"], indirect=True)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_more_shards_than_open_files(case_input, tmp_path, jobs):
    done = shardtool(
        "repack", case_input, "-o", tmp_path / "out", "--shards", "200", "--jobs", jobs,
        prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )  # fmt: skip
    assert done.status == 0, done.err
    judge.check(tmp_path / "out", CASES["ws-fd-limit"]["expect"])
    assert len(judge.shards(tmp_path / "out")) == 200


@pytest.mark.parametrize("case_input", ["ws-input-inside-output"], indirect=True)
@pytest.mark.parametrize("where", [".", "sub", "link", "..", "link/sub", "missing/../sub"])
def test_input_and_output_in_each_other(case_input, where, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(case_input)
    out = link / where[5:] if where.startswith("link") else case_input / where
    for source in (case_input, case_input / "a.tfrecord"):
        if where in ("..", ".", "link") or source == case_input:
            done = shardtool("repack", source, "-o", out, "--shards", "2", "--overwrite")
            check_error(done, CASES["ws-input-inside-output"]["expect"], case_input / "manifest.json")
            assert done.status == 4


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="needs to mount a small file system")
@pytest.mark.parametrize("case_input", ["ws-disk-full"], indirect=True)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk(case_input, tmp_path, jobs):
    case = CASES["ws-disk-full"]
    disk = tmp_path / "disk"
    command = ["repack", case_input, "-o", disk / "out", "--shards", "4", "--seed", "7", "--jobs", jobs]
    with small_disk(disk, "104k"):
        done = shardtool(*command)
        check_host_error(done, case["expect"], disk / "out")
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        again = shardtool(*command)
        assert again.status == 0, again.err
        judge.check(disk / "out", case["variants"][0]["expect"])
        reference = shardtool(*command[:3], tmp_path / "reference", *command[4:])
        assert reference.status == 0 and content(disk / "out") == content(tmp_path / "reference")


@pytest.mark.parametrize("case_input", ["ws-disk-full"], indirect=True)
@pytest.mark.parametrize("size", [0, 1000, 4096, 40000, 40509])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_limit_of_file_sizes(case_input, tmp_path, size, jobs):
    """Also where nothing can be mounted. SIGXFSZ is ignored by Python; the write says EFBIG."""
    case = CASES["ws-disk-full"]
    command = ["repack", case_input, "-o", tmp_path / "out", "--shards", "4", "--seed", "7", "--jobs", jobs]
    done = shardtool(*command, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    assert done.status == 5
    if size:  # else the message cannot be stored either, since it goes to a file here
        assert "File too large" in done.err and str(tmp_path) in done.err
    check_no_half(tmp_path / "out")
    again = shardtool(*command)
    assert again.status == 0, again.err
    judge.check(tmp_path / "out", case["variants"][0]["expect"])


def check_host_error(done, expect, out):
    assert done.status == 5 and done.out == ""
    for words in expect["stderr_mentions_all_of_any"]:
        assert any(re.search(word, done.err, re.I) for word in words), done.err
    check_no_half(out)


def check_no_half(out):
    """No manifest, and whatever has the name of a shard is whole."""
    assert not (out / "manifest.json").exists()
    for path in out.glob("*.tfrecord") if out.exists() else ():
        judge.read_tfrecord(path)


# -- randomness -----------------------------------------------------------------------------------------------


def chi_square_tail(x, freedom):
    """P(chi-square of `freedom` degrees > x), freedom odd: the finite series by integration by parts."""
    total, term = math.erfc(math.sqrt(x / 2)), math.sqrt(2 * x / math.pi) * math.exp(-x / 2)
    for k in range(3, freedom + 2, 2):
        total += term
        term *= x / k
    return total


def test_the_tail_of_chi_square():
    # Tables: 3.841 and 82.529 are the 5 % points of 1 and 63 degrees of freedom.
    assert chi_square_tail(3.841459, 1) == pytest.approx(0.05, abs=1e-6)
    assert chi_square_tail(82.528727, 63) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("case_input", ["rnd-label-sorted"], indirect=True)
def test_every_class_goes_to_every_shard(case_input, tmp_path):
    """Class against shard over 20 seeds: no table is far from independence, and their p-values are uniform."""
    tails, outputs = [], set()
    for seed in range(20):
        out = tmp_path / str(seed)
        command = ["repack", case_input, "-o", out, "--shards", "8", "--seed", str(seed), "--jobs", "1"]
        assert shardtool(*command).status == 0
        tables = [[int(fields["cls"]) for _, fields in judge.samples_of_tar(path)] for path in judge.shards(out)]
        assert [len(labels) for labels in tables] == [50] * 8
        expected = 50 * 40 / 400
        x = sum((labels.count(c) - expected) ** 2 / expected for labels in tables for c in range(10))
        tails.append(chi_square_tail(x, 63))
        outputs.add(tuple(map(tuple, tables)))
        shutil.rmtree(out)
    assert len(outputs) == 20
    assert min(tails) > 1e-6
    ranked = sorted(tails)
    distance = max(max(p - k / 20, (k + 1) / 20 - p) for k, p in enumerate(ranked))
    assert distance < 0.435  # Kolmogorov-Smirnov, 20 values, p = 0.001


@pytest.mark.parametrize("case_input", ["rnd-hash-seed"], indirect=True)
def test_surroundings_do_not_matter(case_input, tmp_path):
    """Hash seed, locale, time zone, umask, working directory, number of workers."""
    reference = None
    for number, (hash_seed, locale, zone, umask, jobs) in enumerate(
        [("0", "C", "UTC", 0o022, "1"), ("1", "C.UTF-8", "Asia/Kathmandu", 0o077, "2"),
         ("random", "POSIX", "America/St_Johns", 0o000, "4")]
    ):  # fmt: skip
        place = tmp_path / f"place {number}"
        place.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": locale, "TZ": zone}
        environment["PYTHONPATH"] = str(pathlib.Path(__file__).resolve().parents[2])
        done = subprocess.run(
            ["sh", "-c", 'umask "$0" && exec "$@"', f"{umask:03o}", sys.executable, "-m", "shardtool", "repack",
             os.path.relpath(case_input, place), "-o", "out", "--shards", "3", "--seed", "7", "--jobs", jobs],
            cwd=place, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = content(place / "out")
        reference = reference or found
        assert found == reference
    judge.check(tmp_path / "place 0" / "out", CASES["rnd-hash-seed"]["expect"])




# -- index files beside the input, and those we write ----------------------------------------------------------


@pytest.mark.parametrize(
    ("case_input", "words"),
    [("idx-stale", "a.tfrecord.idx"), ("idx-offset-garbage", "a.idx")],
    indirect=["case_input"],
)
def test_inspect_names_a_wrong_index(case_input, words):
    done = shardtool("inspect", case_input)
    assert done.status == 0 and words in done.out + done.err


@pytest.mark.parametrize("case_input", ["idx-dali-roundtrip", "key-spaces-newline"], indirect=True)
def test_offsets_of_the_dali_index(case_input, tmp_path):
    done = shardtool("repack", case_input, "-o", tmp_path / "out", "--shards", "2", "--index", "dali")
    assert done.status == 0, done.err
    for path in judge.shards(tmp_path / "out"):
        data, samples = path.read_bytes(), judge.samples_of_tar(path)
        head, *lines = path.with_suffix(".idx").read_text("ascii").splitlines()
        assert head == f"v1.2 {len(samples)}" and len(lines) == len(samples)
        for line, (_, fields) in zip(lines, samples, strict=True):
            words = line.split(" ")
            assert len(words) == 4 * len(fields)
            for k in range(0, len(words), 4):
                extension, offset, size = words[k], int(words[k + 1]), int(words[k + 2])
                assert offset % 512 == 0 and data[offset : offset + size] == fields[extension]


@pytest.mark.parametrize("case_input", ["set-unpadded-numbers"], indirect=True)
def test_the_order_of_arguments_does_not_matter(case_input, tmp_path):
    files = sorted(case_input.iterdir())
    copy = tmp_path / "copy"
    shutil.copytree(case_input, copy)
    outputs = []
    for number, source in enumerate(([case_input], files, files[::-1], [copy], [f"{copy}/*"])):
        out = tmp_path / str(number)
        assert shardtool("repack", *source, "-o", out, "--shards", "3").status == 0
        outputs.append(content(out))
    assert all(output == outputs[0] for output in outputs)
