"""verify finds what is wrong, whatever it is, and nothing where nothing is."""

import json
import pathlib
import random
import shutil
import sys
import tarfile

import pytest
import xxhash

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import makers

from shardtool.base.errors import DataError, UsageError
from shardtool.disk.sources import SourceOptions
from shardtool.jobs.manifest import ManifestOptions, write_manifest
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.recorded import merged, recorded_rules, recorded_source
from shardtool.jobs.repack import repack
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.manifest import Manifest
from shardtool.layout.rules import Rules

SHARDS = 4


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """format -> (source, output) of a repack, never changed."""
    folder = tmp_path_factory.mktemp("verify")
    makers.sorted_tars(folder / "tar" / "in")
    makers.sorted_tfrecords(folder / "tfrecord" / "in")
    common = {"shards": SHARDS, "jobs": 1, "seed": 3, "digests": ("sha256",)}
    repack([str(folder / "tar" / "in")], str(folder / "tar" / "out"),
           RepackOptions(**common, exports=("dali-wds", "wids", "webdataset"), rules=Rules(label="cls")))  # fmt: skip
    repack([str(folder / "tfrecord" / "in")], str(folder / "tfrecord" / "out"),
           RepackOptions(**common, exports=("dali-tfrecord", "tfrecord")))  # fmt: skip
    return {kind: (folder / kind / "in", folder / kind / "out") for kind in ("tar", "tfrecord")}


@pytest.fixture(params=["tar", "tfrecord"])
def kind(request):
    return request.param


@pytest.fixture
def out(outputs, kind, tmp_path):
    """A copy to damage."""
    return shutil.copytree(outputs[kind][1], tmp_path / "out")


def shards_of(out):
    return [out / shard["name"] for shard in json.loads((out / "manifest.json").read_text())["shards"]]


def check(out, **options):
    return verify([str(out / "manifest.json")], VerifyOptions(**options))


def words(report):
    return "\n".join(map(str, report.findings))


def flip(path, at, mask=1):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def edit(out, change):
    """Change the facts of the manifest, and write it as it would be written."""
    path = out / "manifest.json"
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=1) + "\n")


def test_nothing_wrong(outputs, kind):
    source, out = outputs[kind]
    report = check(out, against=(str(source),), readers=("webdataset", "tfrecord"), jobs=2)
    assert report.findings_total == 0, words(report)
    assert (report.shards, report.samples) == (SHARDS, 60)
    assert report.bytes == sum(path.stat().st_size for path in shards_of(out))
    assert report.against["equal"]
    assert report.against["sum"] == report.sample_digest_sum
    assert [facts["differences"] for facts in report.readers.values()] == [0]
    assert [facts["samples"] for facts in report.readers.values()] == [60]


def test_folder_stands_for_its_manifest(outputs, kind):
    assert verify([str(outputs[kind][1])]).manifest.endswith("manifest.json")


def test_jobs_do_not_matter(out):
    flip(shards_of(out)[1], 700 if out.name == "tar" else 30)
    one, two = check(out, jobs=1), check(out, jobs=2)
    assert one.findings == two.findings != []


def test_any_flipped_byte_is_found(out):
    """Shards, indexes, exports: the first and the last byte, and some in between, each bit in turn."""
    rng = random.Random(4)
    for path in sorted(out.rglob("*")):
        if not path.is_file() or path.name == "manifest.json":
            continue
        good = path.read_bytes()
        for at in {0, len(good) - 1, *(rng.randrange(len(good)) for _ in range(8))}:
            flip(path, at, 1 << rng.randrange(8))
            assert check(out).findings_total, f"{path.name}, byte {at} of {len(good)}"
            path.write_bytes(good)


def test_flipped_bytes_of_the_manifest(out):
    """Everything but the release that wrote it is held against something else."""
    path = out / "manifest.json"
    good = path.read_bytes()
    version = good.index(b'"version": "')
    rng = random.Random(5)
    for at in sorted(rng.sample(range(len(good)), 250)):
        flip(path, at, 1 << rng.randrange(7))
        report = check(out)
        if version + 12 <= at < version + 20:
            assert report.findings_total or "written by shardtool" in report.notes[0]
        else:
            assert report.findings_total, good[max(0, at - 40) : at + 20]
        path.write_bytes(good)


def test_places_of_damage_are_named(out, kind):
    shard = shards_of(out)[2]
    flip(shard, 148 if kind == "tar" else 0)  # a header checksum, a length
    report = check(out)
    damage = [f for f in report.findings if f.file == shard.name and f.offset is not None]
    assert damage[0].offset == 0
    assert "checksum" in damage[0].what or "TFRecord" in damage[0].what


@pytest.mark.parametrize("name", ["shard", "index", "export"])
def test_missing_files(out, name):
    facts = json.loads((out / "manifest.json").read_text())
    files = {
        "shard": facts["shards"][1]["name"], "index": facts["shards"][1]["index"],
        "export": next(iter(facts["exports"].values()))[0],
    }  # fmt: skip
    (out / files[name]).unlink()
    report = check(out)
    assert any(f.file == files[name] and "missing" in f.what for f in report.findings), words(report)


def test_cut_and_grown_shards(out):
    shard = shards_of(out)[0]
    good = shard.read_bytes()
    for data in (good[:-1], good[: len(good) // 2], b"", good + b"x"):
        shard.write_bytes(data)
        assert f"the shard has {len(data):,} bytes, the manifest says {len(good):,}" in words(check(out))


def test_exchanged_shards(out):
    a, b = shards_of(out)[:2]
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    assert check(out).findings_total


def edit_index(out, shard, change):
    """Change an index file and give it a right checksum, as a fault of ours would."""
    index = out / json.loads((out / "manifest.json").read_text())["shards"][shard]["index"]
    body = bytearray(index.read_bytes()[:-16])
    change(body)
    index.write_bytes(bytes(body) + xxhash.xxh3_128(bytes(body)).digest())


def column_place(body, name):
    length = int.from_bytes(body[8:16], "little")
    for column, dtype, count, offset in json.loads(bytes(body[16 : 16 + length]))["columns"]:
        if column == name:
            return offset, int(dtype[2:]), count
    raise KeyError(name)


COLUMNS = {
    "tfrecord": ["offset", "length", "number"],
    "tar": [
        "offset", "length", "number", "label", "key", "key_end", "part_end", "part_ext", "part_offset", "part_size",
    ],
}  # fmt: skip


def test_every_column_is_tested(outputs, kind):
    assert set(json.loads((outputs[kind][1] / "manifest.json").read_text())["index"]) == set(COLUMNS[kind])


@pytest.mark.parametrize(
    ("kind", "column"), [(kind, column) for kind, columns in COLUMNS.items() for column in columns], indirect=["kind"]
)
def test_wrong_index_with_a_right_checksum(out, kind, column):
    """The index says something else than the shard, and its own checksum is right."""

    def change(body):
        offset, width, count = column_place(body, column)
        at = offset + (count - 1) * width
        body[at] = body[at] ^ 1

    edit_index(out, 1, change)
    report = check(out)
    named = {"key": "a key is not", "label": "label", "number": "order", "key_end": ""}
    assert report.findings_total
    assert named.get(column, f"column '{column}' does not fit the shard") in words(report)


def test_order_is_that_of_the_seed(out):
    edit(out, lambda f: (f.update(seed=4), f["options"].update(seed=4)))
    assert "not in the order of seed 4" in words(check(out))


def test_order_goes_on_from_shard_to_shard(out, tmp_path, outputs, kind):
    """Two whole shards exchanged in the manifest, each right in itself."""

    def change(f):
        f["shards"][0], f["shards"][1] = f["shards"][1], f["shards"][0]

    edit(out, change)
    assert "does not continue the order" in words(check(out))


def test_source_order(tmp_path, outputs, kind):
    source, _ = outputs[kind]
    out = tmp_path / "plain"
    repack([str(source)], str(out), RepackOptions(shards=3, order="source", jobs=1))
    assert check(out).findings_total == 0

    def change(f):
        f["shards"][0], f["shards"][1] = f["shards"][1], f["shards"][0]

    edit(out, change)
    assert "not in source order" in words(check(out))


def test_numbers_out_of_range(out):
    def change(body):
        offset, width, _ = column_place(body, "number")
        body[offset : offset + width] = (60).to_bytes(width, "little")

    edit_index(out, 0, change)
    assert "number 60 is none of 60 samples" in words(check(out))


def test_keys_must_be_unique(tmp_path):
    """Two tars, each fine, with one key in common: a manifest that says "unique" is wrong."""
    for name in ("a", "b"):
        makers.write_tar(tmp_path / f"{name}.tar", [(f"{name}.txt", b"1"), ("same.txt", b"2")])
    write_manifest([str(tmp_path)], str(tmp_path / "manifest.json"), ManifestOptions(jobs=1))
    assert check(tmp_path).findings_total == 0

    edit(tmp_path, lambda f: f["keys"].update(unique=True))
    report = check(tmp_path)
    assert "a key is there twice" in words(report)
    assert report.findings[0].member == "same"


def test_labels_and_fields_of_the_manifest(outputs, tmp_path):
    for number, (change, said) in enumerate([
        (lambda f: f["labels"]["histogram"].update({"0": 19, "1": 21}), "histogram"),
        (lambda f: f["labels"].update(missing=1), "samples have none"),
        (lambda f: f["fields"]["jpg"].update(bytes=5), '"fields"'),
        (lambda f: f["field_sets"].update({"cls,jpg": 59, "jpg": 1}), '"field_sets"'),
        (lambda f: f.update(bytes=f["bytes"] + 1), '"bytes"'),
        (lambda f: f["sources"][0].update(bytes=1), "source_fingerprint"),
        (lambda f: f.update(sample_digest_sum="0" * 64), "sample_digest_sum"),
        (lambda f: f["shards"].pop() and f.update(samples=45, bytes=sum(s["bytes"] for s in f["shards"])), "sources"),
    ]):  # fmt: skip
        out = shutil.copytree(outputs["tar"][1], tmp_path / str(number))
        edit(out, change)
        assert said in words(check(out)), (said, words(check(out)))


def test_an_edited_manifest_is_noticed(out):
    path = out / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert "not in the form" in words(check(out))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff{}", b'{"shardtool": 1}', b'{"shardtool": {"schema": 99}}',
                                  b'{"shardtool": {"schema": 1}}', b"[" * 100_000])  # fmt: skip
def test_no_manifest_is_a_finding(tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text)
    report = check(tmp_path)
    assert report.findings_total == 1
    assert report.findings[0].file == "manifest.json"


def test_names_must_stay_in_the_folder(out):
    edit(out, lambda f: f["shards"][0].update(name="../x.tar"))
    assert "outside its folder" in words(check(out))


def test_left_overs_are_findings_and_strangers_notes(out, kind):
    (out / ".shardtool").mkdir()
    stranger = "stranger.tar" if kind == "tar" else "stranger.tfrecord"
    (out / stranger).write_bytes(b"")
    (out / "notes.txt").write_bytes(b"")
    (out / "index" / "old.index").write_bytes(b"")
    report = check(out)
    assert [f.file for f in report.findings] == [".shardtool"]
    assert len(report.notes) == 1
    assert stranger in report.notes[0]
    assert "index/old.index" in report.notes[0]
    assert "notes.txt" not in report.notes[0]


def test_findings_are_counted_beyond_those_shown(out):
    for path in out.rglob("*"):
        if path.is_file() and path.name != "manifest.json":
            path.unlink()
    report = check(out)
    assert len(report.findings) == min(20, report.findings_total)
    assert report.findings_total >= 2 * SHARDS


# -- shards that existed ------------------------------------------------------------------------------------------


def test_manifest_of_shards_that_exist(outputs, kind, tmp_path):
    folder = shutil.copytree(outputs[kind][0], tmp_path / "there")
    path = folder / "set.json"
    exports = ("dali-wds",) if kind == "tar" else ("dali-tfrecord",)
    write_manifest([str(folder)], str(path), ManifestOptions(jobs=1, exports=exports))
    report = verify([str(path)], VerifyOptions(against=(str(outputs[kind][0]),)))
    assert report.findings_total == 0, words(report)
    shard = next(p for p in sorted(folder.iterdir()) if p.suffix in (".tar", ".tfrecord"))
    flip(shard, shard.stat().st_size // 2)
    assert verify([str(path)]).findings_total


def test_odd_tars_that_exist(tmp_path):
    """Links, sparse members and members apart: their index is checked as far as it says something."""
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        import io

        for name, data in (("a.jpg", b"AA"), ("b.jpg", b"B"), ("a.cls", b"0")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("b.cls")
        link.type, link.linkname = tarfile.LNKTYPE, "a.cls"
        archive.addfile(link)
    rules = Rules(group="archive")
    write_manifest([str(path)], str(tmp_path / "manifest.json"), ManifestOptions(jobs=1, rules=rules))
    assert check(tmp_path, against=(str(path),)).findings_total == 0


# -- without a manifest -------------------------------------------------------------------------------------------


def test_bare_shards(outputs, kind, tmp_path):
    source, out = outputs[kind]
    shards = [str(path) for path in shards_of(out)]
    report = verify(shards, VerifyOptions(against=(str(source),), readers=("webdataset", "tfrecord"), jobs=2))
    assert report.findings_total == 0
    assert report.manifest is None
    assert report.against["equal"]
    assert (report.shards, report.samples) == (SHARDS, 60)


def test_bare_damage_of_several_files(out, kind):
    shards = shards_of(out)
    flip(shards[0], 148 if kind == "tar" else 14)
    shards[2].write_bytes(shards[2].read_bytes()[:700 if kind == "tar" else 50])
    report = verify([str(path) for path in shards])
    assert {f.file for f in report.findings} == {shards[0].name, shards[2].name}
    assert all(f.offset is not None for f in report.findings)
    assert report.samples == 30


def test_bare_file_of_another_kind(out):
    shards = shards_of(out)
    shards[1].write_bytes(b"<html>" * 200)
    report = verify([str(path) for path in shards])
    assert report.findings_total >= 1
    assert shards[1].name in words(report)


def test_what_cannot_be_a_set_of_shards(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        verify([str(tmp_path / "absent.tar")])
    makers.write_tfrecord(tmp_path / "x-00000-of-00002.tfrecord", [b"1"])
    with pytest.raises(DataError, match="incomplete"):
        verify([str(tmp_path)])


# -- against ------------------------------------------------------------------------------------------------------


def test_missing_and_extra_samples_are_named(outputs, kind, tmp_path):
    out = outputs[kind][1]
    other = tmp_path / "other"
    if kind == "tar":
        makers.sorted_tars(other, samples=19)  # one less in each of three files
        makers.write_tar(other / "train-000003.tar", [("new/1.jpg", b"new"), ("new/1.cls", b"9")])
        missing_name, extra_name = "new/1", "c0/0019"
    else:
        makers.sorted_tfrecords(other, records=19)
        makers.write_tfrecord(other / "more.tfrecord", [b"new"])
        missing_name, extra_name = "record 0", "record"
    report = check(out, against=(str(other),))
    assert not report.against["equal"]
    assert (report.against["missing"], report.against["extra"]) == (1, 3)
    missing = [f for f in report.findings if f.what == "a sample of --against is missing"]
    extra = [f for f in report.findings if f.what == "a sample that --against does not have"]
    assert [f.member for f in missing] == [missing_name]
    assert len(extra) == 3
    assert any(extra_name in f.member for f in extra)
    assert "60 samples here, 58 there" in words(report)


def test_a_sample_twice_is_not_a_sample_once(tmp_path):
    makers.write_tfrecord(tmp_path / "a" / "x.tfrecord", [b"1", b"2", b"2", b"3"])
    makers.write_tfrecord(tmp_path / "b" / "x.tfrecord", [b"1", b"2", b"3", b"3"])
    report = verify([str(tmp_path / "a")], VerifyOptions(against=(str(tmp_path / "b"),)))
    assert (report.against["missing"], report.against["extra"]) == (1, 1)


def test_renamed_keys_and_reordered_fields_are_the_same_samples(tmp_path):
    makers.write_tar(tmp_path / "a.tar", [("k.jpg", b"1"), ("k.cls", b"2")])
    makers.write_tar(tmp_path / "b.tar", [("other.cls", b"2"), ("other.jpg", b"1")])
    makers.write_tar(tmp_path / "c.tar", [("k.cls", b"1"), ("k.jpg", b"2")])
    same = verify([str(tmp_path / "a.tar")], VerifyOptions(against=(str(tmp_path / "b.tar"),)))
    other = verify([str(tmp_path / "a.tar")], VerifyOptions(against=(str(tmp_path / "c.tar"),)))
    assert same.against["equal"]
    assert not other.against["equal"]


def test_recorded_options_are_applied_to_the_source(tmp_path):
    """A damaged source, repacked with --on-corrupt skip: --against drops the same records."""
    source = makers.write_tfrecord(tmp_path / "in" / "x.tfrecord", [b"one", b"two", b"three"])
    flip(source, 16 + 3 + 12)  # payload of the second record
    rules = Rules(on_corrupt="skip")
    repack([str(source)], str(tmp_path / "out"), RepackOptions(shards=1, jobs=1, rules=rules))
    report = check(tmp_path / "out", against=(str(source),))
    assert report.findings_total == 0, words(report)
    assert report.against["samples"] == 2
    flip(shards_of(tmp_path / "out")[0], 13)  # damage of our own shard is not skipped
    assert check(tmp_path / "out").findings_total


def test_recorded_rules_are_those_of_the_run(tmp_path):
    makers.sorted_tars(tmp_path / "in", files=1, samples=3)
    rules = Rules(on_duplicate="first", group="archive", require=(b"jpg", b"\xff"), label="cls", strict=True)
    rules_written = Rules(on_duplicate="first", group="archive", require=(b"jpg",), label="cls", strict=True)
    repack([str(tmp_path / "in")], str(tmp_path / "out"), RepackOptions(shards=1, jobs=1, rules=rules_written))
    options = Manifest.from_json((tmp_path / "out" / "manifest.json").read_text()).options
    assert recorded_rules(options) == rules_written
    assert recorded_source(options) == SourceOptions(strict=True)
    from shardtool.jobs.options import public_rules

    assert recorded_rules(public_rules(rules)) == rules
    assert merged(Rules(group="archive"), Rules(on_corrupt="skip")) == Rules(group="archive", on_corrupt="skip")


def test_formats_must_agree(outputs):
    with pytest.raises(UsageError, match="--against is tfrecord"):
        check(outputs["tar"][1], against=(str(outputs["tfrecord"][0]),))


# -- readers ------------------------------------------------------------------------------------------------------


def test_unknown_and_unfitting_readers(outputs):
    with pytest.raises(UsageError, match="none of dali, datasets, tensorflow, tfrecord, webdataset, wids"):
        check(outputs["tar"][1], readers=("tensorflow1",))
    with pytest.raises(UsageError, match="no --reader of tfrecord reads tar"):
        check(outputs["tar"][1], readers=("tfrecord",))


def test_a_reader_that_reads_something_else_is_a_finding(tmp_path):
    """webdataset makes a sample of a hidden member, which we leave out; and fails on a field that is twice there."""
    hidden = makers.write_tar(tmp_path / "hidden.tar", [("a.txt", b"1"), ("d/.x", b"2"), ("b.txt", b"3")])
    report = verify([str(hidden)], VerifyOptions(readers=("webdataset",)))
    assert "webdataset reads" in words(report)
    assert report.readers["webdataset"]["differences"] > 0
    twice = makers.write_tar(tmp_path / "twice.tar", [("a.txt", b"1"), ("a.txt", b"2")])
    report = verify([str(twice)], VerifyOptions(readers=("webdataset",), rules=Rules(on_duplicate="first")))
    assert "webdataset fails on sample 0" in words(report)


def test_a_reader_lower_cases_fields(tmp_path):
    path = makers.write_tar(tmp_path / "upper.tar", [("a.JPG", b"1"), ("a.Cls", b"2"), ("ü.JPG", b"3")])
    report = verify([str(path)], VerifyOptions(readers=("webdataset",)))
    assert report.findings_total == 0, words(report)
