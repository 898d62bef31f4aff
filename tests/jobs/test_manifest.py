"""manifest.json for shards that exist: what it says, what it leaves alone, what a crash leaves."""

import collections
import hashlib
import importlib.util
import json
import os
import pathlib
import struct

import jsonschema
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError, StateError, UsageError
from shardtool.base.ragged import Ragged
from shardtool.base.reporting import Reporter
from shardtool.cli.main import _run
from shardtool.disk.indexfile import ShardIndex
from shardtool.jobs.manifest import ManifestOptions, add_exports, write_manifest
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.summary import field_sets, fields_of, labels_of, source_fingerprint, tfrecord_fields_sample
from shardtool.layout.index import Index, Source
from shardtool.layout.manifest import Manifest
from shardtool.layout.rules import Rules
from tests.makers import content, sorted_tars, sorted_tfrecords, write_tar, write_tfrecord

SCHEMA = json.loads(
    (pathlib.Path(importlib.util.find_spec("shardtool").origin).parent / "manifest.schema.json").read_text()
)


def index(folder, *exports, name="manifest.json", sources=None, reporter=None, overwrite=False, jobs=1, **rules):
    options = ManifestOptions(exports=exports, jobs=jobs, overwrite=overwrite, rules=Rules(**rules))
    return write_manifest(sources or [str(folder)], str(folder / name), options, reporter=reporter)


def example(**features):
    """A serialized tf.train.Example; the number and kind of a feature's values by their Python type."""

    def part(tag, data):
        return bytes([tag << 3 | 2, len(data)]) + data

    entries = b""
    for name, values in features.items():
        if isinstance(values, bytes):
            feature = part(1, part(1, values))
        elif values and isinstance(values[0], float):
            feature = part(2, part(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            feature = part(3, part(1, bytes(values)))
        entries += part(1, part(1, name.encode()) + part(2, feature))
    return part(1, entries)


def shards(folder, format):
    if format == "tar":
        return sorted_tars(folder)
    records = [example(image=b"x" * k, label=[k % 3], box=[0.5] * (k % 4)) for k in range(20)]
    for k in range(2):
        write_tfrecord(folder / f"part-{k:05}-of-00002.tfrecord", records[10 * k :][:10])
    return folder


# -- what it says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [None, "label"])
@pytest.mark.parametrize("format", ["tar", "tfrecord"])
@pytest.mark.parametrize("job", ["manifest", "repack"])
def test_it_fits_the_schema_and_comes_back_as_it_was(job, format, label, tmp_path):
    shards(tmp_path / "in", format)
    field = label and ("cls" if format == "tar" else "label")
    exports = ("dali", "wids", "webdataset") if format == "tar" else ("dali", "tfrecord")
    if job == "manifest":
        index(tmp_path / "in", *exports, label=field)
        path = tmp_path / "in/manifest.json"
    else:
        options = RepackOptions(shards=2, exports=exports, rules=Rules(label=field), jobs=1, digests=("sha256",))
        repack([str(tmp_path / "in")], str(tmp_path / "out"), options)
        path = tmp_path / "out/manifest.json"
    text = path.read_text()
    assert text.isascii() and text.endswith("}\n")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(text), SCHEMA, cls=jsonschema.Draft202012Validator)
    assert Manifest.from_json(text).to_json() == text
    assert (json.loads(text)["labels"] is None) == (label is None)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(more=1), lambda m: m.pop("warnings"), lambda m: m["shards"][0].update(name="../x.tar"),
        lambda m: m["shards"][0].update(name="/x.tar"), lambda m: m["shards"][0].update(samples=-1),
        lambda m: m["shards"][0].update(digest="xxh3-128:1"), lambda m: m.update(samples=1.5),
        lambda m: m["index"].pop("offset"), lambda m: m["index"].update(offset=">i8"), lambda m: m.update(shards=[]),
        lambda m: m["shardtool"].update(schema=2), lambda m: m["dropped"].update(sample=1),
        lambda m: m["fields"].update(jpg={"samples": 1}), lambda m: m["index"].pop("key"),
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_no_manifest(change, tmp_path):
    index(shards(tmp_path, "tar"))
    facts = json.loads((tmp_path / "manifest.json").read_text())
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid(facts)
    change(facts)
    assert not validator.is_valid(facts)


def test_of_tars(tmp_path):
    sorted_tars(tmp_path / "a")
    write_tar(tmp_path / "b/train-000000.tar", [("c0/0000.jpg", b"x"), ("solo.txt", b"yy")])
    before = content(tmp_path)
    manifest = index(tmp_path, "wids", label="cls").manifest
    after = content(tmp_path)
    assert {name: after[name] for name in before} == before
    assert [r.name for r in manifest.shards] == [*(f"a/train-{k:06}.tar" for k in range(3)), "b/train-000000.tar"]
    assert [s.name.decode() for s in manifest.sources] == [r.name for r in manifest.shards]
    assert (manifest.seed, manifest.order, manifest.shards_requested) == (None, "source", None)
    assert manifest.samples == 62 and manifest.bytes == sum(len(data) for data in before.values())
    assert manifest.keys == {"mode": "keep", "unique": False}
    assert manifest.field_sets == {"cls,jpg": 60, "jpg": 1, "txt": 1}
    assert manifest.fields["txt"] == {"samples": 1, "bytes": 2, "smallest": 2, "largest": 2}
    assert manifest.labels == {"field": "cls", "histogram": {"0": 20, "1": 20, "2": 20}, "missing": 2}
    assert manifest.classes == (b"0", b"1", b"2")
    for receipt in manifest.shards:
        data = before[receipt.name]
        assert receipt.digest == f"xxh3-128:{xxhash.xxh3_128_hexdigest(data)}" and receipt.bytes == len(data)
        assert receipt.digests == {"md5": hashlib.md5(data).hexdigest()}
        assert receipt.index == f"index/{receipt.name}.index"
    numbers, labels, keys = [], [], []
    for receipt in manifest.shards:
        with ShardIndex(os.fsencode(tmp_path / receipt.index), receipt.name) as opened:
            assert {name: dtype for name, (dtype, _) in opened.columns.items()} == manifest.index
            numbers += opened.column("number").tolist()
            labels += opened.column("label").tolist()
            keys += list(opened.keys())
            data = before[receipt.name]
            places = opened.column("part_offset"), opened.column("part_size")
            assert len(places[0]) == opened.column("part_end")[-1]
            for at, size in zip(*(column.tolist() for column in places), strict=True):
                assert at % 512 == 0 and data[at + size : at + size + -size % 512] == bytes(-size % 512)
            for at, size in zip(opened.column("offset").tolist(), opened.column("length").tolist(), strict=True):
                assert data[at + 257 : at + 262] == b"ustar" and size % 512 == 0
            # the frames of tars without anything between follow each other
            assert (opened.column("offset")[1:] == (opened.column("offset") + opened.column("length"))[:-1]).all()
    assert numbers == list(range(62)) and labels == [0] * 20 + [1] * 20 + [2] * 20 + [-1] * 2
    assert keys[0] == b"c0/0000" and keys[-1] == b"solo"


def test_of_records(tmp_path):
    shards(tmp_path, "tfrecord")
    manifest = index(tmp_path).manifest
    assert manifest.keys == {"mode": "none", "unique": None} and manifest.field_sets is None
    assert manifest.index == {"offset": "<i8", "length": "<u4", "number": "<u4"}
    assert manifest.fields == {
        "image": {"type": "bytes", "samples": 10, "bytes": 45, "fewest": 1, "most": 1, "sampled": 10},
        "label": {"type": "int64", "samples": 10, "bytes": 80, "fewest": 1, "most": 1, "sampled": 10},
        "box": {"type": "float", "samples": 10, "bytes": 4 * 13, "fewest": 0, "most": 3, "sampled": 10},
    }
    assert index(tmp_path, label="label").manifest.labels["histogram"] == {"0": 7, "1": 7, "2": 6}


def test_jobs_do_not_change_a_byte(tmp_path):
    for jobs in (1, 3):
        sorted_tars(tmp_path / str(jobs))
        index(tmp_path / str(jobs), "dali", "wids", "webdataset", jobs=jobs, label="cls")
    assert content(tmp_path / "1") == content(tmp_path / "3")


# -- summaries, against their definitions --------------------------------------------------------------------------


@st.composite
def indexes(draw):
    exts = [b"a", b"b", b"c.d", b"\xff", b"e"]
    sample = st.dictionaries(st.sampled_from(exts), st.integers(0, 9), min_size=1)
    samples = draw(st.lists(sample, min_size=1, max_size=20))
    labels = draw(st.lists(st.integers(-1, 2), min_size=len(samples), max_size=len(samples)))
    parts = [(exts.index(ext), size) for sample in samples for ext, size in sample.items()]
    first = np.cumsum([0, *map(len, samples)])
    sizes = np.array([size for _, size in parts], np.int64)
    made = Index(
        (Source(b"x", 1, len(samples), "tar"),), first, sizes, sizes, sizes, np.array([e for e, _ in parts], np.uint32),
        tuple(exts), Ragged.of([b""] * len(samples)), np.array(labels, np.int32), (b"0", b"1", b"\xfe"),
    )  # fmt: skip
    return samples, labels, made


def shown(name):
    return "base64:/w==" if name == b"\xff" else name.decode()


@settings(max_examples=50, deadline=None)
@given(indexes())
def test_fields_sets_and_labels(drawn):
    samples, labels, made = drawn
    fields = {}
    for name in {name for sample in samples for name in sample}:
        sizes = [sample[name] for sample in samples if name in sample]
        fields[shown(name)] = {
            "samples": len(sizes), "bytes": sum(sizes), "smallest": min(sizes), "largest": max(sizes)
        }  # fmt: skip
    assert fields_of(made) == fields
    assert field_sets(made) == collections.Counter(",".join(map(shown, sorted(sample))) for sample in samples)
    count = collections.Counter(labels)
    histogram = {"0": count[0], "1": count[1], "base64:/g==": count[2]}
    assert labels_of(made, "a") == {"field": "a", "histogram": histogram, "missing": count[-1]}
    assert labels_of(made, None) is None


def test_field_sets_of_many_fields():
    """More fields than a machine word has bits, and windows that end inside."""
    exts = tuple(sorted(b"%d" % k for k in range(100)))
    samples = [sorted({k % 100, (k * 7 + 1) % 100, (k // 1000) % 100}) for k in range(70_000)]
    ext = np.array([code for sample in samples for code in sample], np.uint32)
    first = np.cumsum([0, *map(len, samples)])
    size = np.ones(len(ext), np.int64)
    made = Index((Source(b"x", 1, len(samples), "tar"),), first, size, size, size, ext, exts)
    wanted = collections.Counter(",".join(exts[k].decode() for k in sorted(sample)) for sample in map(tuple, samples))
    assert field_sets(made) == wanted
    assert sum(about["samples"] for about in fields_of(made).values()) == len(ext)


def test_the_fingerprint_says_what_the_sources_are():
    sources = (Source(b"a.tar", 10, 2, "tar"), Source(b"\xff.tar", 10, 2, "tar"))
    wanted = xxhash.xxh3_128(b'["a.tar", 10, 2, "tar"]\n[{"base64": "/y50YXI="}, 10, 2, "tar"]\n').hexdigest()
    assert source_fingerprint(sources) == f"xxh3-128:{wanted}"
    others = [
        sources[::-1], sources[:1], (Source(b"a.tar", 11, 2, "tar"), sources[1]),
        (Source(b"a.tar", 10, 3, "tar"), sources[1]), (Source(b"a.tar", 10, 2, "tfrecord"), sources[1]),
    ]  # fmt: skip
    assert len({source_fingerprint(other) for other in [sources, *others]}) == 6


def scanned(path, payloads):
    write_tfrecord(path, payloads)
    from shardtool.jobs.scan import scan

    return scan([str(path)]).index


def test_fields_of_records_are_a_sample(tmp_path):
    made = scanned(tmp_path / "x.tfrecord", [example(a=b"1")] * 1000 + [b"\xff no example"])
    found = tfrecord_fields_sample([os.fsencode(tmp_path / "x.tfrecord")], made)
    assert found == {"a": {"type": "bytes", "samples": 1000, "bytes": 1000, "fewest": 1, "most": 1, "sampled": 1000}}


@pytest.mark.parametrize(
    ("payloads", "types"),
    [
        ([b"\xff no example"], {}), ([example(a=b"1"), b"\xff"], {}), ([b""], {}),
        ([example(a=b"1"), example(a=[1])], {"a": "mixed"}),
        ([example(a=[1, 2]), example(b=[0.5])], {"a": "int64", "b": "float"}),
        # Features { a: Feature {} } beside one with a value
        ([b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00"], {"a": "empty"}),
        ([b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00", example(a=[1])], {"a": "int64"}),
        # an unpacked int64: a varint field per value
        ([b"\x0a\x0d\x0a\x0b\x0a\x01a\x12\x06\x1a\x04\x08\x05\x08\x06"], {"a": "int64"}),
    ],
)  # fmt: skip
def test_kinds_of_features(payloads, types, tmp_path):
    made = scanned(tmp_path / "x.tfrecord", payloads)
    found = tfrecord_fields_sample([os.fsencode(tmp_path / "x.tfrecord")], made)
    assert {name: about["type"] for name, about in found.items()} == types
    assert all(about["sampled"] == len(payloads) for about in found.values())


# -- where it may be written ---------------------------------------------------------------------------------------


def test_a_shard_outside_its_folder_is_refused_and_a_link_helps(tmp_path):
    sorted_tars(tmp_path / "data")
    (tmp_path / "here").mkdir()
    with pytest.raises(UsageError, match="outside") as caught:
        write_manifest([str(tmp_path / "data")], str(tmp_path / "here/manifest.json"))
    assert str(tmp_path / "data/manifest.json") in caught.value.remedy
    assert content(tmp_path / "here") == {}
    (tmp_path / "here/data").symlink_to("../data")
    result = write_manifest([str(tmp_path / "here/data")], str(tmp_path / "here/manifest.json"))
    assert result.manifest.shards[0].name == "data/train-000000.tar"
    # and by way of a link to the manifest's own folder
    (tmp_path / "way").symlink_to("data")
    result = write_manifest([str(tmp_path / "way")], str(tmp_path / "data/manifest.json"))
    assert result.manifest.shards[0].name == "train-000000.tar"


def test_relative_paths(tmp_path, monkeypatch):
    sorted_tars(tmp_path / "d/e")
    monkeypatch.chdir(tmp_path / "d")
    write_manifest(["e"], "manifest.json", ManifestOptions(exports=("dali",)))
    first = content(tmp_path / "d")
    for name in first:
        if not name.endswith(".tar"):
            (tmp_path / "d" / name).unlink()
    monkeypatch.chdir(tmp_path)
    write_manifest([str(tmp_path / "d/e")], "d/manifest.json", ManifestOptions(exports=("dali",)))
    assert content(tmp_path / "d") == first


def test_a_name_that_is_no_utf8_is_refused(tmp_path):
    write_tar(tmp_path / "a.tar", [("x.jpg", b"1")])
    os.rename(tmp_path / "a.tar", os.fsencode(tmp_path) + b"/\xff.tar")
    with pytest.raises(UsageError, match="UTF-8"):
        index(tmp_path)


def test_two_manifests_of_one_folder_leave_each_other_alone(tmp_path):
    sorted_tars(tmp_path)
    index(tmp_path, label="cls")
    before = content(tmp_path)
    index(tmp_path, name="plain.json", sources=[str(tmp_path / "train-000000.tar")])
    after = content(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"plain.json", "plain.index/train-000000.tar.index"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_is_no_manifest_stays(overwrite, tmp_path):
    sorted_tars(tmp_path)
    (tmp_path / "manifest.json").write_text('{"shards": []}')
    before = content(tmp_path)
    with pytest.raises(StateError, match="no manifest"):
        index(tmp_path, overwrite=overwrite)
    assert content(tmp_path) == before


def test_a_folder_in_its_place_is_told(tmp_path):
    sorted_tars(tmp_path)
    with pytest.raises(UsageError, match="folder"):
        write_manifest([str(tmp_path)], str(tmp_path))


def test_the_manifest_of_a_repack_is_kept_unless_told(tmp_path):
    sorted_tars(tmp_path / "in")
    repack([str(tmp_path / "in")], str(tmp_path / "out"), RepackOptions(shards=2, exports=("dali",), jobs=1))
    before = content(tmp_path / "out")
    with pytest.raises(StateError, match="repack"):
        index(tmp_path / "out")
    assert content(tmp_path / "out") == before
    assert index(tmp_path / "out", overwrite=True).manifest.seed is None
    after = content(tmp_path / "out")
    assert set(before) - set(after) == {"shard-000000.idx", "shard-000001.idx"}
    assert all(after[name] == before[name] for name in before if name.endswith(".tar"))


def test_again_replaces_what_it_wrote(tmp_path):
    sorted_tars(tmp_path)
    index(tmp_path, "dali", "wids", label="cls", sources=[str(tmp_path / "*.tar")])
    index(tmp_path, "webdataset", sources=[str(tmp_path / "train-00000[01].tar")])
    assert sorted(content(tmp_path)) == [
        "index/train-000000.tar.index", "index/train-000001.tar.index", "manifest.json",
        *(f"train-{k:06}.tar" for k in range(3)), "train.brace.txt", "train.shards.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["manifest.json", "other.json"])
def test_again_says_the_same(name, tmp_path):
    sorted_tars(tmp_path / "a")
    (tmp_path / "a/notes.txt").write_text("mine")
    index(tmp_path, "dali", "wids", "webdataset", name=name)
    before = content(tmp_path)
    manifest = index(tmp_path, "dali", "wids", "webdataset", name=name).manifest
    assert content(tmp_path) == before
    assert manifest.ignored == {"files": 1} and "a/notes.txt" in manifest.warnings[0]


def test_an_index_of_somebody_else_stays(tmp_path):
    sorted_tars(tmp_path)
    (tmp_path / "train-000001.idx").write_text("v1.2 0\n")
    before = content(tmp_path)
    with pytest.raises(StateError, match="another") as caught:
        index(tmp_path, "dali")
    assert caught.value.file == os.fsencode(tmp_path / "train-000001.idx")
    assert content(tmp_path) == before
    index(tmp_path, "dali", overwrite=True)
    assert (tmp_path / "train-000001.idx").read_text().startswith("v1.2 20\n")


def test_a_file_in_the_place_of_an_index_stays(tmp_path):
    sorted_tars(tmp_path)
    (tmp_path / "index").mkdir()
    (tmp_path / "index/train-000000.tar.index").write_text("mine")
    with pytest.raises(StateError):
        index(tmp_path)
    assert (tmp_path / "index/train-000000.tar.index").read_text() == "mine"


def test_damage_leaves_nothing(tmp_path):
    sorted_tfrecords(tmp_path)
    data = bytearray((tmp_path / "part-00001-of-00003.tfrecord").read_bytes())
    data[100] ^= 1
    (tmp_path / "part-00001-of-00003.tfrecord").write_bytes(data)
    before = content(tmp_path)
    with pytest.raises(DataError):
        index(tmp_path, "dali")
    assert content(tmp_path) == before and not (tmp_path / ".shardtool").exists()
    manifest = index(tmp_path, "dali", on_corrupt="skip").manifest
    assert manifest.samples == 59 and manifest.dropped == {"records": 1}
    # the index alone repairs the file: the damaged record is left out
    assert (tmp_path / "part-00001-of-00003.tfrecord.idx").read_text().count("\n") == 19


def test_an_unfinished_repack_is_left_alone(tmp_path):
    sorted_tars(tmp_path)
    (tmp_path / ".shardtool/shards").mkdir(parents=True)
    (tmp_path / ".shardtool/run.json").write_text("{}")
    with pytest.raises(StateError, match="unfinished"):
        index(tmp_path)
    assert (tmp_path / ".shardtool/run.json").exists()


# -- exports of a manifest -----------------------------------------------------------------------------------------


def test_exports_added_later_equal_those_of_the_repack(tmp_path):
    sorted_tars(tmp_path / "in")
    kinds = ("dali-wds", "webdataset", "wids")
    repack([str(tmp_path / "in")], str(tmp_path / "a"), RepackOptions(shards=3, exports=kinds, jobs=1))
    repack([str(tmp_path / "in")], str(tmp_path / "b"), RepackOptions(shards=3, jobs=1))
    for kind in kinds:
        result = add_exports(str(tmp_path / "b/manifest.json"), ManifestOptions(exports=(kind,), jobs=1))
        assert list(result.exports) == [kind] and result.written
    a, b = content(tmp_path / "a"), content(tmp_path / "b")
    one, other = (Manifest.from_json(found.pop("manifest.json").decode()) for found in (a, b))
    assert a == b
    assert one.exports == other.exports and one.shards == other.shards
    jsonschema.validate(json.loads(other.to_json()), SCHEMA)


def test_a_changed_shard_gets_no_export(tmp_path):
    sorted_tars(tmp_path)
    index(tmp_path)
    before = content(tmp_path)
    path = tmp_path / "train-000001.tar"
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="digest"):
        add_exports(str(tmp_path / "manifest.json"), ManifestOptions(exports=("wids",)))
    path.write_bytes(data[:-512])
    with pytest.raises(DataError, match="bytes, the manifest says"):
        add_exports(str(tmp_path / "manifest.json"), ManifestOptions(exports=("dali",)))
    path.unlink()
    with pytest.raises(DataError, match="missing"):
        add_exports(str(tmp_path / "manifest.json"), ManifestOptions(exports=("dali",)))
    before.pop("train-000001.tar")
    assert content(tmp_path) == before


def test_a_digest_can_be_added(tmp_path):
    sorted_tars(tmp_path)
    index(tmp_path)
    options = ManifestOptions(exports=("webdataset",), digests=("sha256",))
    manifest = add_exports(str(tmp_path / "manifest.json"), options).manifest
    for receipt in manifest.shards:
        assert receipt.digests == {"sha256": hashlib.sha256((tmp_path / receipt.name).read_bytes()).hexdigest()}


def test_no_such_manifest(tmp_path):
    with pytest.raises(UsageError):
        add_exports(str(tmp_path / "manifest.json"), ManifestOptions(exports=("dali",)))
    (tmp_path / "manifest.json").write_bytes(b"\xff")
    with pytest.raises(DataError):
        add_exports(str(tmp_path / "manifest.json"), ManifestOptions(exports=("dali",)))


# -- crashes -------------------------------------------------------------------------------------------------------

LABELLED = ManifestOptions(exports=("wids",), jobs=1, rules=Rules(label="cls"))


def killed(count, folder, sources):
    """Write manifests of these sources in a child that ends, without any clean-up, at the `count`-th rename or
    unlink; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [count]

    def dying(real):
        def call(*args, **kwargs):
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    os.rename, os.unlink = dying(os.rename), dying(os.unlink)
    status = 1
    try:
        for source in sources:
            write_manifest([str(folder / source)], str(folder / "manifest.json"), LABELLED)
        status = 0
    finally:
        os._exit(status)


def test_killed_anywhere_it_leaves_an_old_a_new_or_no_manifest(tmp_path):
    """The first run writes a manifest of all shards, the second replaces it by one of one shard."""
    wanted, states = sorted_tars(tmp_path / "wanted", files=2, samples=2), [b""]
    steps = ["*.tar", "train-000000.tar"]
    for step in steps:
        write_manifest([str(wanted / step)], str(wanted / "manifest.json"), LABELLED)
        states.append((wanted / "manifest.json").read_bytes())
    finished = content(wanted)
    count = status = 0
    while count == 0 or status != 0:
        place = sorted_tars(tmp_path / str(count), files=2, samples=2)
        shards = content(place)
        status = killed(count, place, steps)
        assert status in (0, 9)
        left = content(place)
        assert {name: left[name] for name in shards} == shards
        manifest = left.get("manifest.json", b"")
        assert manifest in states
        if manifest:
            facts = json.loads(manifest)
            listed = {one["index"] for one in facts["shards"]}.union(*facts["exports"].values())
            assert listed <= set(left), f"killed at {count}: the manifest lists what is not there"
        # the second job, begun anew, ends as if nothing had happened, whichever was killed
        write_manifest([str(place / steps[1])], str(place / "manifest.json"), LABELLED)
        assert content(place) == finished
        count += 1
    assert count > 15


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command(tmp_path, monkeypatch, capsys):
    def shardtool(*args):
        status = _run(["manifest", *args])
        return status, *capsys.readouterr()

    monkeypatch.chdir(sorted_tars(tmp_path))
    status, out, _ = shardtool("train-*.tar", "-o", "manifest.json", "--label", "cls", "--export", "dali", "--json")
    facts = json.loads(out)
    assert (status, facts["samples"], facts["shards"], facts["warnings"]) == (0, 60, 3, [])
    assert facts["exports"] == {"dali-wds": [f"train-{k:06}.idx" for k in range(3)]}
    before = content(tmp_path)
    status, out, _ = shardtool("manifest.json", "--export", "dali,wids", "-o", "idx", "--json")
    assert status == 0 and json.loads(out)["written"] is False
    after = content(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {*(f"idx/train-{k:06}.idx" for k in range(3)), "idx/train.wids.json"}
    assert json.loads(after["idx/train.wids.json"])["shardlist"][0]["url"] == "../train-000000.tar"
    for args, words in (
        (["train-*.tar"], "-o is missing"), (["manifest.json", "--export", "nope"], "'nope' is not known"),
        (["manifest.json", "--export", "tfrecord"], "is for tfrecord shards"),
        (["manifest.json", "--export", "dali", "--label", "cls"], "reads no sample"),
        (["train-*.tar", "-o", "m.json", "--digest", "crc32"], "md5, sha256"),
        (["train-*.tar", "-o", "m.json", "--jobs", "0"], "--jobs 0"),
    ):  # fmt: skip
        status, out, err = shardtool(*args)
        assert (status, out) == (2, "") and words in err
    assert content(tmp_path) == after
    status, out, _ = shardtool("train-*.tar", "-o", "manifest.json")
    assert status == 0 and "60" in out


def test_warnings_are_kept(tmp_path):
    write_tar(tmp_path / "a.tar", [("x.jpg", b"1"), ("README", b"2")])
    reporter = Reporter()
    manifest = index(tmp_path, reporter=reporter).manifest
    assert manifest.ignored == {"no_extension": 1}
    assert list(manifest.warnings) == reporter.warnings and "README" in manifest.warnings[0]
