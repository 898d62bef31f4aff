"""What Energon, TFDS, Hugging Face, open_clip and open_lm ask for, to the letter; tests/real opens it with them."""

import itertools
import json
import struct

import pytest
from click.testing import CliRunner

from shardtool.base.errors import DataError, StateError, UsageError
from shardtool.base.reporting import Reporter
from shardtool.cli.main import cli
from shardtool.disk.exports import tfds
from shardtool.disk.exports.energon import part_of
from shardtool.disk.exports.hf import dtype_of
from shardtool.disk.exports.yaml import quoted
from shardtool.jobs.manifest import ManifestOptions, add_exports
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.layout import shard_names
from tests.disk import tarmaker
from tests.disk.test_exports import index
from tests.makers import content, read_tar, sorted_tars, sorted_tfrecords, write_tar, write_tfrecord
from tests.real.sets import example, make_set

BESIDE = ("energon", "hf", "open_lm", "sizes")


# -- Energon -------------------------------------------------------------------------------------------------------


def test_energon_offsets_are_where_tarfile_finds_the_samples(tmp_path):
    of = make_set(tmp_path, "long (GNU)", ["energon"])
    for receipt in of.manifest.shards:
        data = (of.folder / receipt.name).read_bytes()
        raw = (of.folder / f"{receipt.name}.idx").read_bytes()
        starts = struct.unpack(f"<{len(raw) // 8}Q", raw)
        assert len(starts) == receipt.samples + 1 and starts[0] == 0
        assert data[starts[-1] :].strip(b"\0") == b"" and data[starts[-1] - 512 : starts[-1]].strip(b"\0")
        members = []
        for lo, hi in itertools.pairwise(starts):
            (tmp_path / "one.tar").write_bytes(data[lo:hi] + bytes(1024))
            members.append(read_tar(tmp_path / "one.tar"))
            assert len({name.rpartition("/")[2].partition(".")[0] for name, _ in members[-1]}) == 1
        assert [member for sample in members for member in sample] == read_tar(of.folder / receipt.name)


def test_energon_files_to_the_letter(tmp_path):
    members = [("k.jpg", b"x" * 600), ("k.cls", b"7"), ("m.jpg", b""), ("m.cls", b"8")]
    for name in ("train-000000", "train-000001", "val-000000", "test/a"):
        write_tar(tmp_path / f"{name}.tar", members)
    index(tmp_path, "energon")
    meta = tmp_path / ".nv-meta"
    assert json.loads((meta / ".info.json").read_text())["shard_counts"] == {
        "test/a.tar": 2, "train-000000.tar": 2, "train-000001.tar": 2, "val-000000.tar": 2
    }  # fmt: skip
    assert (meta / "split.yaml").read_text() == (
        'split_parts:\n  train: ["train-{000000..000001}.tar"]\n  val: ["val-000000.tar"]\n'
        '  test: ["test/a.tar"]\nexclude: []\n'
    )
    assert "__class__: CrudeWebdataset\n" in (meta / "dataset.yaml").read_text()
    assert (tmp_path / "val-000000.tar.idx").read_bytes() == struct.pack("<3Q", 0, 2560, 4096)


def test_energon_needs_the_members_of_a_sample_together(tmp_path):
    (tmp_path / "a.tar").write_bytes(
        b"".join(tarmaker.member(n, b"1") for n in (b"a.jpg", b"b.jpg", b"a.cls", b"b.cls")) + tarmaker.END
    )
    with pytest.raises(DataError, match="one behind the other") as caught:
        index(tmp_path, "energon", rules={"group": "archive"})
    assert caught.value.file == "a.tar" and caught.value.offset == 1024
    assert sorted(content(tmp_path)) == ["a.tar"]


def test_an_empty_shard_is_left_out_of_energon(tmp_path):
    sorted_tars(tmp_path, files=1)
    (tmp_path / "zero.tar").write_bytes(bytes(10240))
    reporter = Reporter()
    index(tmp_path, "energon", reporter=reporter)
    assert "zero.tar" not in (tmp_path / ".nv-meta/.info.json").read_text()
    assert not (tmp_path / "zero.tar.idx").exists()
    assert any("zero.tar has no samples" in text for text in reporter.warnings)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train-000000.tar", "train"), ("val-000000.tar", "val"), ("Validation_3.tar", "val"), ("dev.tar", "val"),
        ("test-000000.tar", "test"), ("testify-0.tar", "train"), ("value-0.tar", "train"),
        ("shard-000000.tar", "train"), ("val/000000.tar", "val"), ("test/x/000000.tar", "test"), ("a/val-0.tar", "val"),
    ],
)  # fmt: skip
def test_the_part_of_a_shard(name, part):
    assert part_of(name) == part


def test_a_later_repack_without_the_export_leaves_nothing_of_it(tmp_path):
    sorted_tars(tmp_path / "in")
    for exports in (("energon",), ()):
        options = RepackOptions(shards=2, exports=exports, overwrite=True, jobs=1)
        repack([str(tmp_path / "in")], str(tmp_path / "out"), options)
        assert (tmp_path / "out/.nv-meta").exists() == bool(exports)
    assert not verify([str(tmp_path / "out")]).findings


@pytest.mark.parametrize("kind", ["energon", "hf"])
def test_a_name_that_an_export_cannot_have_is_refused_before_the_copy(kind, tmp_path):
    sorted_tars(tmp_path / "in")
    options = RepackOptions(shards=2, exports=(kind,), name={"energon": "a{b}", "hf": "a*b"}[kind], jobs=1)
    with pytest.raises(DataError):
        repack([str(tmp_path / "in")], str(tmp_path / "out"), options)
    assert not (tmp_path / "out").exists()


def test_the_command_takes_the_version(tmp_path):
    sorted_tars(tmp_path / "in")
    words = ["repack", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--export", "dali", "-q"]
    assert CliRunner().invoke(cli, [*words, "--dali-idx-version", "1.1"]).exit_code == 0
    assert (tmp_path / "out/shard-000000.idx").read_bytes().startswith(b"v1.1 60\n")
    words = ["manifest", str(tmp_path / "out/manifest.json"), "--export", "dali", "-q", "-o", str(tmp_path / "other")]
    assert CliRunner().invoke(cli, [*words, "--dali-idx-version", "1.2"]).exit_code == 0
    assert (tmp_path / "other/shard-000000.idx").read_bytes().startswith(b"v1.2 60\n")
    assert not verify([str(tmp_path / "out")]).findings


# -- TFDS ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 16, 100_000])
@pytest.mark.parametrize("name", ["train", "my set", "x_1", "a.b-c", "größe", "shard-00000-of-00001"])
def test_the_template_gives_our_names(name, count):
    """Filled in as TFDS does: both numbers with as many digits as the larger, at least five."""
    split, template = tfds.naming(list(shard_names(name, "tfrecord", count)))
    width = max(5, len(str(count)))
    for k in (0, count // 2, count - 1):
        one = f"{k:0{width}}-of-{count:0{width}}"
        made = template.format(SPLIT=split, FILEFORMAT="tfrecord", SHARD_X_OF_Y=one)
        assert made == shard_names(name, "tfrecord", count)[k]
    assert any(letter.isalnum() for letter in split)


@pytest.mark.parametrize(
    "names",
    [
        ["a.tfrecord"], ["x-00000-of-00002.tfrecord"], ["x-0-of-1.tfrecord"], ["d/x-00000-of-00001.tfrecord"],
        ["{SPLIT}-00000-of-00001.tfrecord"], ["x-00001-of-00002.tfrecord", "x-00000-of-00002.tfrecord"],
        ["x-00000-of-00002.tfrecord", "y-00001-of-00002.tfrecord"],
    ],
)  # fmt: skip
def test_names_that_tfds_cannot_be_told(names):
    with pytest.raises(DataError, match="cannot be told") as caught:
        tfds.naming(names)
    assert caught.value.file in names


def test_tfds_features_come_from_the_records(tmp_path):
    of = make_set(tmp_path, "Example", ["tfds"])
    features = json.loads((of.folder / "features.json").read_text())["featuresDict"]["features"]
    kinds = {name: (f["tensor"]["dtype"], f["tensor"]["shape"]) for name, f in features.items()}
    many = {"dimensions": ["-1"]}
    assert kinds == {
        "image": ("string", {}), "label": ("int64", {}), "scores": ("float32", many), "tags": ("int64", many)
    }  # fmt: skip
    split = json.loads((of.folder / "dataset_info.json").read_text())["splits"][0]
    assert split["shardLengths"] == [str(n) for n in of.manifest.shard_samples]


def test_records_that_are_no_examples_are_refused_before_the_copy(tmp_path):
    sorted_tfrecords(tmp_path / "in")
    for dry_run in (True, False):
        with pytest.raises(DataError, match=r"no tf\.train\.Example"):
            repack(
                [str(tmp_path / "in")], str(tmp_path / "out"), RepackOptions(exports=("tfds",), jobs=1), dry_run=dry_run
            )
        assert not (tmp_path / "out").exists()


def test_a_sample_of_the_records_is_said_to_be_one(tmp_path):
    write_tfrecord(tmp_path / "x-00000-of-00001.tfrecord", [example(k % 40) for k in range(1100)])
    reporter = Reporter()
    index(tmp_path, "tfds", reporter=reporter)
    assert any("1,000 of 1,100 records" in text for text in reporter.warnings)


# -- Hugging Face --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "dtype"),
    [
        ("jpg", "image"), ("seg.PNG", "image"), ("cls", "int64"), ("txt", "string"), ("json", None),
        ("a.json.gz", None),
        ("wav", "audio"), ("bin", "binary"), ("txt.gz", "string"), ("gz", "binary"), ("npy", None),
    ],
)  # fmt: skip
def test_types_of_fields(field, dtype):
    assert dtype_of(field) == dtype


def test_the_readme_to_the_letter(tmp_path):
    write_tar(tmp_path / "train-000000.tar", [("k.jpg", b"x"), ("k.cls", b"7")])
    write_tar(tmp_path / "val-000000.tar", [("m.jpg", b"x"), ("m.cls", b"7")])
    index(tmp_path, "hf")
    assert (tmp_path / "README.md").read_text() == """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path:
    - "train-000000.tar"
  - split: validation
    path:
    - "val-000000.tar"
dataset_info:
  features:
  - name: "__key__"
    dtype: string
  - name: "__url__"
    dtype: string
  - name: "cls"
    dtype: int64
  - name: "jpg"
    dtype: image
  splits:
  - name: train
    num_bytes: 10240
    num_examples: 1
  - name: validation
    num_bytes: 10240
    num_examples: 1
  download_size: 20480
  dataset_size: 20480
---
"""


def test_types_that_only_the_content_shows_are_left_to_the_reader(tmp_path):
    write_tar(tmp_path / "a.tar", [("k.json", b"{}"), ("k.cls", b"7"), ("m.json", b"{}")])
    reporter = Reporter()
    index(tmp_path, "hf", reporter=reporter)
    assert "features" not in (tmp_path / "README.md").read_text()
    assert any("first 5 samples" in text for text in reporter.warnings)


def test_labels_that_are_no_numbers_are_told(tmp_path):
    write_tar(tmp_path / "a.tar", [("k.jpg", b"x"), ("k.cls", b"cat"), ("m.jpg", b"x"), ("m.cls", b"1")])
    reporter = Reporter()
    index(tmp_path, "hf", reporter=reporter, rules={"label": "cls"})
    assert any("fails on cat" in text for text in reporter.warnings)


def test_a_readme_of_the_user_stays(tmp_path):
    sorted_tars(tmp_path)
    (tmp_path / "README.md").write_text("mine\n")
    with pytest.raises(StateError) as caught:
        index(tmp_path, "hf")
    assert caught.value.file.endswith(b"README.md")
    assert (tmp_path / "README.md").read_text() == "mine\n" and not (tmp_path / "manifest.json").exists()


def test_a_pattern_in_the_name_of_a_shard(tmp_path):
    write_tar(tmp_path / "a[1].tar", [("k.jpg", b"x")])
    with pytest.raises(DataError, match="pattern"):
        index(tmp_path, "hf")


@pytest.mark.parametrize("text", ["a", 'a"b\\c', "größe", "\x85\x7f\n", "\U0001f600"])
def test_quoted_text_is_ascii_and_yaml(text):
    yaml = pytest.importorskip("yaml")  # comes with webdataset
    assert quoted(text).isascii() and yaml.safe_load(quoted(text)) == text


# -- counts --------------------------------------------------------------------------------------------------------


def test_counts_lie_beside_the_shards(tmp_path):
    sorted_tars(tmp_path / "a", files=2, samples=3)
    sorted_tars(tmp_path / "b", files=1, samples=4)
    reporter = Reporter()
    result = index(tmp_path, "sizes", "open_lm", reporter=reporter)
    assert json.loads((tmp_path / "a/sizes.json").read_text()) == {"train-000000.tar": 3, "train-000001.tar": 3}
    assert (tmp_path / "a/__len__").read_text() == "6\n" and (tmp_path / "b/__len__").read_text() == "4\n"
    assert (tmp_path / "a/manifest.jsonl").read_bytes() == (
        b'{"shard": "train-000000", "num_sequences": 3}\n{"shard": "train-000001", "num_sequences": 3}\n'
    )
    assert len(result.exports["sizes"]) == 4
    assert any("2 folders" in text for text in reporter.warnings)
    assert not verify([str(tmp_path / "manifest.json")]).findings


def test_the_reader_of_open_lm_loses_no_shard(tmp_path):
    """Its rule: cut at line feeds, leave out the last piece."""
    of = make_set(tmp_path, "plain", ["open_lm"])
    rows = [json.loads(row) for row in (of.folder / "manifest.jsonl").read_text().split("\n")[:-1]]
    assert [str(of.folder / f"{row['shard']}.tar") for row in rows] == of.shards
    assert [row["num_sequences"] for row in rows] == of.manifest.shard_samples.tolist()


@pytest.mark.parametrize("kind", BESIDE)
def test_what_must_lie_beside_its_shards(kind, tmp_path):
    sorted_tars(tmp_path / "data")
    index(tmp_path / "data")
    options = ManifestOptions(exports=(kind,), jobs=1)
    with pytest.raises(UsageError, match=f"{kind} works only beside"):
        add_exports(str(tmp_path / "data/manifest.json"), options, folder=str(tmp_path / "elsewhere"))
    assert not content(tmp_path / "elsewhere")
    add_exports(str(tmp_path / "data/manifest.json"), options)
    assert not verify([str(tmp_path / "data/manifest.json")]).findings


# -- DALI's index, version 1.1 -------------------------------------------------------------------------------------


def test_version_1_1_to_the_letter(tmp_path):
    write_tar(tmp_path / "a.tar", [("k 1.jpg", b"x" * 600), ("k 1.cls", b"7"), ("d/m.jpg", b""), ("d/m.cls", b"8")])
    reporter = Reporter()
    result = index(tmp_path, "dali-wds", reporter=reporter, dali_idx_version="1.1")
    assert (tmp_path / "a.idx").read_bytes() == b"v1.1 2\njpg 512 600 cls 2048 1\njpg 3072 0 cls 3584 1\n"
    assert result.manifest.options["dali_idx_version"] == "1.1"
    assert not [text for text in reporter.warnings if "DALI" in text]
    assert not verify([str(tmp_path / "manifest.json")]).findings


def test_the_version_is_recorded_and_checked(tmp_path):
    sorted_tars(tmp_path / "in")
    options = RepackOptions(exports=("dali",), dali_idx_version="1.1", shards=2, jobs=1)
    assert repack([str(tmp_path / "in")], str(tmp_path / "out"), options).manifest.options["dali_idx_version"] == "1.1"
    assert (tmp_path / "out/shard-000000.idx").read_bytes().startswith(b"v1.1 30\n")
    assert not verify([str(tmp_path / "out")]).findings
    path = tmp_path / "out/manifest.json"
    add_exports(str(path), ManifestOptions(exports=("dali",), jobs=1))
    assert (tmp_path / "out/shard-000000.idx").read_bytes().startswith(b"v1.1 30\n")
    add_exports(str(path), ManifestOptions(exports=("dali",), dali_idx_version="1.2", jobs=1))
    assert (tmp_path / "out/shard-000000.idx").read_bytes().startswith(b"v1.2 30\n")
    assert not verify([str(tmp_path / "out")]).findings
    path.write_text(path.read_text().replace('"dali_idx_version": "1.2"', '"dali_idx_version": "3"'))
    findings = [finding.what for finding in verify([str(tmp_path / "out")]).findings]
    assert any("dali_idx_version '3'" in what for what in findings)
    with pytest.raises(UsageError, match="dali-idx-version"):
        RepackOptions(dali_idx_version="2")


# -- verify --reader -----------------------------------------------------------------------------------------------


def test_a_reader_that_is_not_installed_is_named(tmp_path, monkeypatch):
    sorted_tars(tmp_path / "in")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"nvidia\.dali is not installed") as caught:
        verify([str(tmp_path / "in")], VerifyOptions(readers=("dali",)))
    assert caught.value.remedy == "pip install nvidia-dali-cuda120"


def test_readers_that_exclude_each_other(tmp_path, monkeypatch):
    sorted_tfrecords(tmp_path / "in")
    monkeypatch.setattr("shardtool.disk.readers.reader._found", lambda name: True)
    with pytest.raises(UsageError, match="tensorflow and tfrecord cannot be loaded"):
        verify([str(tmp_path / "in")], VerifyOptions(readers=("tensorflow", "tfrecord")))
