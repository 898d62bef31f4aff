"""repack says what known readers will stumble over in its output, and which option avoids it."""

import tarfile

import pytest

from tests.makers import sorted_tars, write_tar
from tests.runner import shardtool

LONG = "folder/" * 10


def warnings_of(folder, members, *options):
    write_tar(folder / "in" / "a.tar", members, format=tarfile.GNU_FORMAT)
    done = shardtool("repack", folder / "in", "-o", folder / "out", "--shards", "1", "--json", *options)
    assert done.status == 0, done.err
    return done.json["warnings"]


def two(name):
    return [(f"{name}{k}.jpg", b"x") for k in range(2)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (LONG + "x" * 60, ["2 member names over 100 bytes", "wids: loses the folder", "--keys ordinal"]),
        ("x" * 120, ["2 member names in a GNU long-name header", "wids: 0 samples", "DALI", "--keys ordinal"]),
        ("a b", ["2 white space", "DALI with wds2idx: refuses", "--keys ordinal", "--export dali-wds"]),
    ],
)
def test_names_that_ordinal_keys_avoid(tmp_path, name, words):
    (said,) = warnings_of(tmp_path, two(name))
    assert all(word in said for word in words), said
    (tmp_path / "again").mkdir()
    assert not warnings_of(tmp_path / "again", two(name), "--keys", "ordinal")


def test_an_export_takes_the_trouble_of_another_index_away(tmp_path):
    (said,) = warnings_of(tmp_path, two("a b"), "--export", "dali-wds")
    assert "written as '_'" in said and "refuses" not in said


def test_fields(tmp_path):
    (said,) = warnings_of(tmp_path, [("0.JPG", b"x"), ("1.JPG", b"x")])
    assert "2 upper-case letters in field names (first JPG)" in said and "case_sensitive_extensions=False" in said
    members = [("0.jpg", b"x"), ("0.Jpg", b"y"), ("1.jpg", b"x"), ("1.Jpg", b"y")]
    upper, colliding = warnings_of(tmp_path / "two", members, "--allow-case-collision")
    assert "upper-case" in upper and "2 fields of one sample" in colliding and "(first 0, 1)" in colliding


def test_keys_that_differ_by_letter_case_only(tmp_path):
    members = [("Ab.jpg", b"x"), ("aB.jpg", b"y"), ("AB.jpg", b"z"), ("other.jpg", b"x")]
    (said,) = warnings_of(tmp_path, members)
    assert "2 keys that differ by letter case only (first Ab, aB): unpacking on macOS or Windows" in said
    assert said.endswith("What avoids it: --keys ordinal")
    assert not warnings_of(tmp_path / "again", members, "--keys", "ordinal")
    (renamed,) = warnings_of(tmp_path / "renamed", members, "--keys", "source")
    assert "(first a/Ab, a/aB)" in renamed
    records = ["--format", "tfrecord"]  # nobody unpacks those
    assert not [text for text in warnings_of(tmp_path / "records", members, *records) if "case" in text]


def test_the_first_five_of_the_output(tmp_path):
    (said,) = warnings_of(tmp_path, [("0.jpg", b"x"), ("1.png", b"x")])
    assert "2 sets of fields" in said and "Hugging Face" in said and "--require" in said
    members = [(f"{k}.jpg", b"x") for k in range(5)] + [("9.png", b"x")]
    assert not warnings_of(tmp_path / "five", members, "--order", "source")


def test_usual_names_are_no_trap(tmp_path):
    done = shardtool("repack", sorted_tars(tmp_path / "in"), "-o", tmp_path / "out", "--shards", "2", "-q")
    assert done.status == 0 and done.err == ""
