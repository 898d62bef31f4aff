"""inspect counts what tarfile counts, and names every trap that is set, and no other."""

import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import makers

from shardtool.base.errors import UsageError
from shardtool.jobs.inspect import InspectOptions, inspect, spread
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.layout.rules import Rules
from shardtool.layout.traps import TRAPS


def look(*paths, **rules):
    return inspect([str(path) for path in paths], InspectOptions(rules=Rules(**rules)))


def tar(folder, *members, name="x.tar", form=tarfile.USTAR_FORMAT):
    return makers.write_tar(folder / name, [m if isinstance(m, tuple) else (m, b"1") for m in members], form)


# -- counts -------------------------------------------------------------------------------------------------------


def test_counts_of_tars(tmp_path):
    makers.sorted_tars(tmp_path, files=3, samples=5)
    found = look(tmp_path, label="cls")
    sizes = [700 + 13 * (k % 7) for k in range(5)]
    assert (found.format, found.compression, found.samples) == ("tar", {"none": 3}, 15)
    assert found.shard_samples.tolist() == [5, 5, 5]
    assert found.bytes == sum(p.stat().st_size for p in tmp_path.iterdir())
    assert found.sample_bytes == {"min": min(sizes) + 1, "median": sorted(sizes)[2] + 1, "max": max(sizes) + 1}
    assert found.fields["cls"] == {"samples": 15, "bytes": 15, "smallest": 1, "largest": 1, "share": 1.0}
    assert found.fields["jpg"]["bytes"] == 3 * sum(sizes)
    assert found.field_sets == {"cls,jpg": 15}
    assert found.labels == {"field": "cls", "histogram": {"0": 5, "1": 5, "2": 5}, "missing": 0}
    assert found.label_spread == [(f"train-{k:06}.tar", 1, str(k), 1.0) for k in range(3)]
    assert (found.h_d, found.h_d_sorted) == (5, 5)
    assert found.traps == {}
    assert found.fields_sampled is None


def test_counts_of_records(tmp_path):
    makers.sorted_tfrecords(tmp_path, files=2, records=6)
    found = look(tmp_path)
    sizes = [4 + 40 + k % 7 for k in range(6)]
    assert (found.format, found.samples, found.fields, found.field_sets) == ("tfrecord", 12, {}, None)
    assert found.sample_bytes == {"min": min(sizes), "median": sorted(sizes)[2], "max": max(sizes)}
    assert found.fields_sampled == 12 or found.fields_sampled == 1000
    assert found.labels is found.h_d is None


def test_records_with_features(tmp_path):
    """Fields come from the first records and say so; the label from all."""
    tfrecord = pytest.importorskip("tfrecord")
    for name, labels in (("a", [0] * 8), ("b", [1] * 4)):
        writer = tfrecord.TFRecordWriter(str(tmp_path / f"{name}.tfrecord"))
        for label in labels:
            writer.write({"label": (label, "int"), "x": (b"abc", "byte")})
        writer.close()
    found = look(tmp_path, label="label")
    assert found.fields_sampled == 8
    assert found.fields["label"]["type"] == "int64"
    assert found.fields["x"]["share"] == 1
    assert found.labels["histogram"] == {"0": 8, "1": 4}
    assert found.label_spread == [("a.tfrecord", 1, "0", 1.0), ("b.tfrecord", 1, "1", 1.0)]
    assert found.h_d == 6  # the mean of 8 and 4


def test_a_repack_is_mixed(tmp_path):
    makers.sorted_tars(tmp_path / "in", files=4, samples=100, size=10)
    repack([str(tmp_path / "in")], str(tmp_path / "out"),
           RepackOptions(shards=4, jobs=1, seed=1, rules=Rules(label="cls")))  # fmt: skip
    before, after = look(tmp_path / "in", label="cls"), look(tmp_path / "out")
    assert before.h_d == 100
    assert after.labels == before.labels  # the label field is the one that the manifest names
    assert after.h_d < 3  # mean 1, variance 2/9 with 9 degrees of freedom: 3 is more than four deviations away
    assert after.h_d_mixed == pytest.approx(300 / 399, abs=1e-6)
    assert after.fields == before.fields


def test_labels_that_are_missing(tmp_path):
    path = tar(tmp_path, ("a.cls", b"0"), "a.jpg", "b.jpg")
    found = look(path, label="cls")
    assert found.labels == {"field": "cls", "histogram": {"0": 1}, "missing": 1}
    assert found.h_d is None
    with pytest.raises(UsageError, match="no sample has the label field"):
        look(path, label="absent")


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_spread(count):
    values = np.array(random.Random(count).sample(range(100), count), np.int64)
    ranked = sorted(values.tolist())
    assert spread(values) == {"min": ranked[0], "median": ranked[(count - 1) // 2], "max": ranked[-1]}


def test_json_holds_it_all(tmp_path):
    makers.sorted_tars(tmp_path)
    facts = json.loads(json.dumps(look(tmp_path, label="cls").facts()))
    assert facts["shards"][1] == {"name": "train-000001.tar", "bytes": 61440, "samples": 20}
    assert facts["shard_samples"] == {"min": 20, "median": 20, "max": 20}
    assert facts["label_spread"][2] == {"name": "train-000002.tar", "classes": 1, "largest": "2", "share": 1.0}


# -- traps --------------------------------------------------------------------------------------------------------

LONG = "d" * 60 + "/" + "e" * 60  # 121 bytes: prefix and name
LONGER = "f" * 130  # no '/': only a long-name header holds it


def link(folder):
    path = folder / "x.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("a.cls")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
        other = tarfile.TarInfo("b.cls")
        other.type, other.linkname = tarfile.LNKTYPE, "a.cls"
        archive.addfile(other)
    return path


def two(folder, one, other):
    tar(folder, *one, name="a.tar")
    tar(folder, *other, name="b.tar")
    return folder


CASES = {
    "prefix": lambda f: tar(f, LONG + ".jpg", "b.jpg"),
    "gnu_long_name": lambda f: tar(f, LONGER + ".jpg", "b.jpg", form=tarfile.GNU_FORMAT),
    "pax_name": lambda f: tar(f, LONGER + ".jpg", "b.jpg", form=tarfile.PAX_FORMAT),
    "white_space": lambda f: tar(f, "a b.jpg", "c.jpg", "d\ne.jpg"),
    "white_space_in_field": lambda f: tar(f, "a.j pg", "b.j pg"),
    "upper_case_field": lambda f: tar(f, "a.JPG", "b.JPG"),
    "inner_dots": lambda f: tar(f, *(f"{k:02}.jpg" for k in range(6)), "IMG.2020.jpg"),
    "duplicate_keys": lambda f: two(f, ["a.jpg", "b.jpg"], ["b.jpg", "c.jpg"]),
    "case_colliding_keys": lambda f: tar(f, "a.jpg", "b.jpg", "A.jpg"),
    "hard_links": link,
    "dot_slash": lambda f: tar(f, "./a.jpg", "./b.jpg"),
    "hidden": lambda f: tar(f, "a.jpg", "d/._a.jpg", ".DS_Store", "b.jpg"),
    "no_extension": lambda f: tar(f, "README", "a.jpg"),
    "meta": lambda f: tar(f, "__meta__", "a.jpg"),
    "first_five_differ": lambda f: tar(f, "a.jpg", "a.cls", "b.jpg"),
}
COUNTS = {"white_space": 2, "hidden": 2, "dot_slash": 1, "upper_case_field": 2, "white_space_in_field": 2,
          "first_five_differ": 2}  # fmt: skip


@pytest.mark.parametrize("trap", CASES)
def test_a_trap_is_named_alone(trap, tmp_path):
    found = look(CASES[trap](tmp_path))
    assert set(found.traps) == {trap}, found.traps
    assert found.traps[trap]["count"] == COUNTS.get(trap, 1)
    assert found.traps[trap]["readers"]
    assert found.traps[trap]["remedy"]


def test_traps_that_need_a_rule(tmp_path):
    path = tar(tmp_path, "a.jpg", "b.jpg", "a.cls", "b.cls")
    found = look(path, group="archive")
    assert set(found.traps) == {"not_adjacent"}
    assert found.traps["not_adjacent"]["count"] == 2
    path = tar(tmp_path, "a.jpg", "a.JPG", name="y.tar")
    found = look(path, allow_case_collision=True)
    assert set(found.traps) == {"case_colliding_fields", "upper_case_field"}
    assert found.traps["case_colliding_fields"]["examples"] == ["a"]


def test_dot_slash_before_a_long_name(tmp_path):
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        found = look(tar(tmp_path, f"./{LONGER}.jpg", form=form))
        assert found.traps["dot_slash"]["examples"][0].startswith("./fff")


def test_sparse(tmp_path):
    if "GNU tar" not in subprocess.run(["tar", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("needs GNU tar")
    with open(tmp_path / "a.bin", "wb") as file:
        file.seek(400_000)
        file.write(b"end")
    subprocess.run(["tar", "-S", "-C", tmp_path, "-cf", tmp_path / "x.tar", "a.bin"], check=True)
    if (tmp_path / "x.tar").stat().st_size > 300_000:
        pytest.skip("this file system keeps no holes")
    assert set(look(tmp_path / "x.tar").traps) == {"sparse"}


def test_empty_shards(tmp_path):
    two(tmp_path, ["a.jpg"], [])
    assert set(look(tmp_path).traps) == {"empty_shards"}


def test_records_beyond_a_message(tmp_path):
    """A record of 2 GiB, of which the disk holds nothing."""
    size = 1 << 31
    head = size.to_bytes(8, "little")
    path = tmp_path / "x.tfrecord"
    with open(path, "wb") as file:
        file.write(head + makers.masked(head).to_bytes(4, "little"))
        file.truncate(12 + size + 4)
    if path.stat().st_blocks > 1000:
        pytest.skip("this file system keeps no holes")
    found = look(path)  # payload checksums are not looked at
    assert found.traps["large_records"]["examples"] == ["record 0"]
    assert found.sample_bytes["max"] == size


def test_every_trap_is_tested():
    elsewhere = {"not_adjacent", "case_colliding_fields", "sparse", "empty_shards", "large_records"}
    assert set(CASES) | elsewhere == set(TRAPS)


def test_nothing_to_say_of_plain_names(tmp_path):
    """Folders with dots, names of 100 bytes, fields in some samples only: no reader stumbles over these."""
    names = [f"v1.2/{k:03}.{field}" for k in range(8) for field in ("jpg", "seg.png")]
    names.append("g" * 96 + ".jpg")
    assert look(tar(tmp_path, *names)).traps == {}


def test_what_repack_writes_has_no_trap(tmp_path):
    """All that can be mended by a repack with short names is mended."""
    folder = tmp_path / "in"
    for trap in ("pax_name", "gnu_long_name", "prefix", "white_space", "hidden", "no_extension", "meta", "dot_slash",
                 "duplicate_keys", "case_colliding_keys", "hard_links"):  # fmt: skip
        (tmp_path / trap).mkdir()
        CASES[trap](tmp_path / trap)
    for path in list(tmp_path.rglob("*.tar")):
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    repack([str(folder)], str(tmp_path / "out"), RepackOptions(shards=2, jobs=1, keys="ordinal"))
    assert look(folder).traps
    assert set(look(tmp_path / "out").traps) <= {"first_five_differ"}  # jpg in some samples, cls in others


# -- indexes beside the shards ------------------------------------------------------------------------------------


def test_side_indexes(tmp_path):
    makers.sorted_tfrecords(tmp_path / "in", files=1, records=10)
    repack([str(tmp_path / "in")], str(tmp_path / "out"),
           RepackOptions(shards=1, jobs=1, exports=("dali-tfrecord",)))  # fmt: skip
    index = next(p for p in (tmp_path / "out").iterdir() if p.suffix == ".idx")
    found = look(tmp_path / "out").side_indexes
    assert [(i["file"], i["fits"]) for i in found] == [(index.name, True)]
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:6]))
    assert look(tmp_path / "out").side_indexes[0]["words"] == "names 6 of 10 records"


def test_side_indexes_of_tars(tmp_path):
    makers.sorted_tars(tmp_path / "in")
    repack([str(tmp_path / "in")], str(tmp_path / "out"), RepackOptions(shards=2, jobs=1, exports=("dali-wds",)))
    found = look(tmp_path / "out").side_indexes
    assert [i["words"] for i in found] == ["names all 30 records"] * 2
    os.replace(tmp_path / "out" / "shard-000000.idx", tmp_path / "out" / "shard-000001.idx")
    found = look(tmp_path / "out").side_indexes
    assert [i["of"] for i in found] == ["shard-000001.tar"]
    assert "spans are wrong" in found[0]["words"]


# -- what is shown ------------------------------------------------------------------------------------------------


def shown(capsys, *words):
    from shardtool.cli.main import main

    with pytest.raises(SystemExit) as stop:
        main(["inspect", *map(str, words)])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_readable_at_80_columns(tmp_path, capsys):
    """Two shards or hundreds, short names or long: every line of a table fits, and the page does not grow."""
    makers.sorted_tars(tmp_path / "few", files=2)
    few = shown(capsys, tmp_path / "few", "--label", "cls")
    assert "train-000001.tar" in few
    many = tmp_path / "many"
    for k in range(400):
        name = "a-name-of-a-shard-that-is-much-too-long-for-any-table-" * 2 + f"{k:06}.tfrecord"
        makers.write_tfrecord(many / name, [b"x" * (k % 50)] * (1 + k % 3))
    text = shown(capsys, many)
    assert "of 400" in text
    for line in [*few.splitlines(), *text.splitlines()]:
        assert len(line.rstrip()) <= 80, line
    assert len(text.splitlines()) < 40


def test_many_classes_and_traps_fit(tmp_path, capsys):
    members = [(f"{k:04}.cls", b"class-with-a-rather-long-name-%04d" % (k % 60)) for k in range(300)]
    for k in range(30):
        makers.write_tar(tmp_path / f"s-{k:03}.tar", members[10 * k : 10 * k + 10])
    makers.write_tar(tmp_path / "t.tar", [("x y/" + "n" * 90 + ".cls", b"1"), ("a.CLS", b"1")])
    text = shown(capsys, tmp_path, "--label", "cls")
    assert "more" in text
    assert "DALI with wds2idx: refuses the index" in text
    for line in text.splitlines():
        assert len(line.rstrip()) <= 80, line


def test_json_is_one_object(tmp_path, capsys):
    makers.sorted_tars(tmp_path)
    assert json.loads(shown(capsys, tmp_path, "--json"))["samples"] == 60
