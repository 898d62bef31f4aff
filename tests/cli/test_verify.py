"""The command `verify`: its arguments, its output, its exit status."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import makers

from shardtool.cli.main import main
from shardtool.cli.verify import spread_against


def run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    shown = capsys.readouterr()
    return stop.value.code, shown.out, shown.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("m --against a b c", "m --against a --against b --against c"),
        ("m --against a b --json", "m --against a --against b --json"),
        ("--against a b --jobs 2 m", "--against a --against b --jobs 2 m"),
        ("--against a b m", "--against a --against b m"),
        ("--json --jobs 2 --against a m", "--json --jobs 2 --against a m"),
        ("--reader webdataset --against a m", "--reader webdataset --against a m"),
        ("m --against a --against b", "m --against a --against b"),
        ("m --against=a b", "m --against=a b"),
        ("m --against", "m"),
        ("--against a", "--against a"),
        ("x y", "x y"),
        ("-- --against", "-- --against"),
    ],
)
def test_against_takes_all_values(typed, meant):
    assert spread_against(typed.split()) == meant.split()


@pytest.fixture
def out(tmp_path, capsys):
    makers.sorted_tars(tmp_path / "in")
    assert run(capsys, "repack", tmp_path / "in", "-o", tmp_path / "out", "--shards", 3, "-q")[0] == 0
    return tmp_path / "out"


def test_done(out, tmp_path, capsys):
    sources = sorted((tmp_path / "in").iterdir())
    words = ("verify", out / "manifest.json", "--reader", "webdataset", "--against", *sources)
    status, shown, errors = run(capsys, *words)
    assert (status, errors) == (0, "")
    assert "3 shards, 60 samples" in shown
    assert "the same 60 samples as in 3 files" in shown
    assert "60 samples, all equal" in shown


def test_finding(out, capsys):
    shard = out / "shard-000001.tar"
    data = bytearray(shard.read_bytes())
    data[600] ^= 1
    shard.write_bytes(data)
    status, shown, errors = run(capsys, "verify", out / "manifest.json")
    assert status == 6
    assert "shard-000001.tar: the xxh3-128 digest of the shard is wrong" in shown
    assert errors.startswith("Error: 1 finding, the first: shard-000001.tar")
    assert "Traceback" not in errors

    status, shown, errors = run(capsys, "verify", out / "manifest.json", "--json")
    assert status == 6
    facts = json.loads(shown)
    assert {"manifest", "shards", "samples", "bytes", "findings", "readers", "against"} <= set(facts)
    assert facts["findings"][0]["file"] == "shard-000001.tar"
    assert facts["findings_total"] == 1


def test_nothing_to_check(tmp_path, capsys):
    status, _, errors = run(capsys, "verify", tmp_path / "manifest.json")
    assert status == 2
    assert "no such file" in errors
    assert run(capsys, "verify")[0] == 2
    assert run(capsys, "verify", tmp_path, "--jobs", 0)[0] == 2


def test_help_names_the_exit_statuses(capsys):
    status, shown, _ = run(capsys, "verify", "--help")
    assert status == 0
    assert "EXIT STATUS" in shown
    assert "shardtool verify" in shown
