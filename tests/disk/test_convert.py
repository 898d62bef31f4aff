"""Conversion between tar and TFRecord: payloads, names, keys, numbers, and what cannot be converted."""

import io
import json
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tfrecord import example_pb2
from tfrecord.reader import tfrecord_iterator

from shardtool.base.errors import DataError, UsageError
from shardtool.disk.formats.example_parse import NoExample, is_sequence, lists, parse_file
from shardtool.disk.formats.values import computed, decimal_bytes, float_list, floats, int64_list, integers, npy, packed
from shardtool.disk.sources import SourceOptions
from shardtool.jobs import lay_out as lay_out_module
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.index import FLOAT_NPY, INT64_NPY, TO_FLOAT, TO_INT64
from tests.makers import content, frame, read_tar, read_tfrecord, write_tar, write_tfrecord


def example(**features):
    """A serialized Example by google's protobuf; a value is bytes, a list of ints or floats, or None (no list)."""
    return serialized(features)


def serialized(features):
    made = example_pb2.Example()
    for name, value in features.items():
        feature = made.features.feature[name]
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        if isinstance(value, bytes) or (values and isinstance(values[0], bytes)):
            feature.bytes_list.value.extend(values)
        elif values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return made.SerializeToString()


def run(source, out, chunk=None, **options):
    before = lay_out_module.CHUNK
    lay_out_module.CHUNK = chunk or before
    try:
        return repack([str(source)], str(out), RepackOptions(**{"jobs": 1, "shards": 1, **options})).manifest
    finally:
        lay_out_module.CHUNK = before


def members(out):
    return dict(m for path in sorted(out.glob("*.tar")) for m in read_tar(path))


def records(out):
    """Examples of all shards as {feature: list of values}, checked by the tfrecord package's reader too."""
    found = []
    for path in sorted(out.glob("*.tfrecord")):
        mine = read_tfrecord(path)
        assert [bytes(record) for record in tfrecord_iterator(str(path))] == mine
        for record in mine:
            message = example_pb2.Example.FromString(record)
            kinds = {name: getattr(f, f.WhichOneof("kind")).value for name, f in message.features.feature.items()}
            found.append({name: list(values) for name, values in kinds.items()})
    return found


# -- tar -> TFRecord ----------------------------------------------------------------------------------------------


def tar(tmp_path, samples=40):
    rows = []
    for k in range(samples):
        rows += [(f"d/{k:03}.jpg", bytes([k]) * (300 * (k % 5))), (f"d/{k:03}.cls", b"%d" % (k - 7))]
        if k % 3 == 0:
            rows.append((f"d/{k:03}.w.txt", b"%.3f" % (k / 7)))
    return write_tar(tmp_path / "in" / "x.tar", rows).parent


def test_members_become_features(tmp_path):
    source = tar(tmp_path)
    options = {"format": "tfrecord", "fields": {"cls": "int64", "w.txt": "float"}, "rename": {"jpg": "image/encoded"}}
    manifest = run(source, tmp_path / "out", shards=3, order="source", **options)
    got = records(tmp_path / "out")
    assert len(got) == 40
    for k, one in enumerate(got):
        wanted = {"__key__": [b"d/%03d" % k], "image/encoded": [bytes([k]) * (300 * (k % 5))], "cls": [k - 7]}
        if k % 3 == 0:
            wanted["w.txt"] = [float(np.float32(float(b"%.3f" % (k / 7))))]
        assert one == wanted
    assert manifest.renamed == {"keys": 0, "fields": {"jpg": "image/encoded"}}
    assert manifest.fields["cls"] == {
        "type": "int64", "samples": 40, "bytes": 320, "fewest": 1, "most": 1, "sampled": 40,
    }  # fmt: skip
    report = verify([str(tmp_path / "out")], VerifyOptions(against=(str(source),)))
    assert report.findings == [] and report.against["equal"]


def test_keys_can_be_left_out_or_numbers(tmp_path):
    source = tar(tmp_path, 3)
    run(source, tmp_path / "none", format="tfrecord", drop=("__key__",), order="source")
    assert all("__key__" not in one for one in records(tmp_path / "none"))
    manifest = run(source, tmp_path / "ordinal", format="tfrecord", keys="ordinal", order="source")
    assert [one["__key__"] for one in records(tmp_path / "ordinal")] == [[b"%09d" % k] for k in range(3)]
    assert manifest.keys == {"mode": "ordinal", "unique": True}
    assert verify([str(tmp_path / "ordinal")]).findings == []


@pytest.mark.parametrize(
    ("fields", "text", "what"),
    [
        ({"cls": "int64"}, b"3\n", "no whole number"),
        ({"cls": "int64"}, b"+3", "no whole number"),
        ({"cls": "int64"}, b"", "no whole number"),
        ({"cls": "int64"}, b"9223372036854775808", "does not fit an int64"),
        ({"cls": "int64"}, b"1" * 5000, "does not fit an int64"),
        ({"cls": "float"}, b"1,5", "no decimal number"),
        ({"cls": "float"}, b"1e39", "does not fit a float32"),
        ({"cls": "int64"}, npy("<f4", np.zeros(2, np.float32)), "one axis of '<i8'"),
        ({"cls": "int64"}, npy("<i8", np.zeros(2, np.int64))[:-1], "another size"),
    ],
)
def test_text_that_is_no_number(tmp_path, fields, text, what):
    write_tar(tmp_path / "in" / "x.tar", [("a.cls", b"1" if fields["cls"] == "int64" else b"1.5"), ("b.cls", text)])
    with pytest.raises(DataError) as error:
        run(tmp_path / "in", tmp_path / "out", format="tfrecord", fields=fields)
    assert what in error.value.why and error.value.member == b"b.cls" and error.value.file == b"x.tar"
    assert error.value.offset == 1536 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "what"),
    [("a b", "white space"), ("a\u2003b", "white space"), ("\udcff", "UTF-8"), ("__key__", "key of the sample")],
)
def test_member_names_that_no_feature_can_have(tmp_path, name, what):
    write_tar(tmp_path / "in" / "x.tar", [(f"s.{name}", b"1"), ("s.jpg", b"2")])
    with pytest.raises(DataError) as error:
        run(tmp_path / "in", tmp_path / "out", format="tfrecord")
    assert what in error.value.why and "--rename" in error.value.remedy
    run(tmp_path / "in", tmp_path / "named", format="tfrecord", rename={name: "x"})
    assert records(tmp_path / "named") == [{"x": [b"1"], "jpg": [b"2"], "__key__": [b"s"]}]
    run(tmp_path / "in", tmp_path / "dropped", format="tfrecord", drop=(name,))
    assert records(tmp_path / "dropped") == [{"jpg": [b"2"], "__key__": [b"s"]}]


def test_an_example_above_two_gibibytes(tmp_path):
    """A sparse member: the archive is small, its payload is not."""
    import subprocess

    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate((2 << 30) - 50)
    (tmp_path / "in").mkdir()
    subprocess.run(["tar", "cSf", tmp_path / "in" / "x.tar", "-C", tmp_path, "a.bin"], check=True)
    with pytest.raises(DataError, match=r"tf\.train\.Example of"):
        repack(
            [str(tmp_path / "in")], str(tmp_path / "out"),
            RepackOptions(shards=1, format="tfrecord", source=SourceOptions(spool_limit=4 << 30)),
        )  # fmt: skip


def test_sparse_members_and_hard_links_are_written_out(tmp_path):
    import os
    import subprocess

    work = tmp_path / "files"
    work.mkdir()
    (work / "a.bin").write_bytes(b"target" * 300)
    os.link(work / "a.bin", work / "b.bin")
    with open(work / "c.bin", "wb") as file:
        file.seek(300_000)
        file.write(b"end")
        file.truncate(400_000)
    (tmp_path / "in").mkdir()
    subprocess.run(
        ["tar", "cSf", tmp_path / "in" / "x.tar", "-C", work, "--sort=name", "a.bin", "b.bin", "c.bin"], check=True
    )
    for chunk in (512, None):
        run(tmp_path / "in", tmp_path / f"out{chunk}", chunk, format="tfrecord")
        got = {one["__key__"][0]: one["bin"][0] for one in records(tmp_path / f"out{chunk}")}
        assert got == {path.stem.encode(): path.read_bytes() for path in work.iterdir()}


# -- TFRecord -> tar ----------------------------------------------------------------------------------------------


def test_features_become_members(tmp_path):
    rows = [
        {"image/encoded": b"j%d" % k * 200, "label": [k - 1], "box": [0.5 * k, 1.5], "ids": [k, -k][: k % 3],
         "names": [b"x", b"yy"], "none": None}
        for k in range(1, 7)
    ]  # fmt: skip
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [serialized(row) for row in rows])
    manifest = run(tmp_path / "in", tmp_path / "out", format="tar", order="source", shards=2)
    got = members(tmp_path / "out")
    for k, row in enumerate(rows):
        key = f"{k:09}"
        assert got.pop(f"{key}.image.encoded") == row["image/encoded"]
        assert got.pop(f"{key}.label") == b"%d" % row["label"][0]
        assert got.pop(f"{key}.names.0") == b"x" and got.pop(f"{key}.names.1") == b"yy"
        for name, dtype in (("box", "<f4"), ("ids", "<i8")):
            if not row[name]:
                continue
            data = got.pop(f"{key}.{name}")
            array = np.load(io.BytesIO(data))
            assert array.tolist() == row[name] and array.dtype == dtype and array.shape == (len(row[name]),)
            again = io.BytesIO()
            np.save(again, array)
            assert again.getvalue() == data
    assert got == {}
    assert "features without a value give no member (records): ids (2), none (6)" in manifest.warnings
    assert manifest.renamed["fields"] == {"image/encoded": "image.encoded"}
    assert manifest.keys == {"mode": "ordinal", "unique": True}
    report = verify([str(tmp_path / "out")], VerifyOptions(against=(str(tmp_path / "in"),), readers=("webdataset",)))
    assert report.findings == [] and report.against["equal"] and report.readers["webdataset"]["differences"] == 0


def test_a_column_is_text_only_where_every_record_has_one_value(tmp_path):
    rows = [{"x": [1], "y": [1], "b": b"1"}, {"y": [2, 3], "b": [b"2", b"3"]}, {"x": [-5], "y": [4], "b": b"4"}]
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [serialized(row) for row in rows])
    run(tmp_path / "in", tmp_path / "out", format="tar", order="source")
    got = members(tmp_path / "out")
    assert got["000000000.x"] == b"1" and got["000000002.x"] == b"-5" and "000000001.x" not in got
    assert [np.load(io.BytesIO(got[f"00000000{k}.y"])).tolist() for k in range(3)] == [[1], [2, 3], [4]]
    assert {name: data for name, data in got.items() if ".b" in name} == {
        "000000000.b.0": b"1", "000000001.b.0": b"2", "000000001.b.1": b"3", "000000002.b.0": b"4",
    }  # fmt: skip


SEQUENCE = b"\x0a\x00\x12\x07\x0a\x05\x0a\x01x\x12\x00"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"no message", "field"),
        (b"", "it has no feature"),
        (b"\x0a\x00", "it has no feature"),
        (example(a=b"1") + b"\x10\x01", "field 2"),
        (SEQUENCE, "SequenceExample"),
    ],
)
def test_records_are_examples_all_or_none(tmp_path, record, why):
    good = example(a=b"1")
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [good])
    write_tfrecord(tmp_path / "in" / "b.tfrecord", [good, record])
    manifest = run(tmp_path / "in", tmp_path / "out", format="tar", order="source")
    assert members(tmp_path / "out") == {"000000000.bin": good, "000000001.bin": good, "000000002.bin": record}
    assert any("record 1 of b.tfrecord" in text and why in text for text in manifest.warnings)
    with pytest.raises(DataError) as error:
        run(tmp_path / "in", tmp_path / "strict", format="tar", records="example")
    assert error.value.member == "number 1" and error.value.file == b"b.tfrecord" and why in error.value.why
    write_tfrecord(tmp_path / "in" / "b.tfrecord", [good])
    run(tmp_path / "in", tmp_path / "raw", format="tar", records="raw")
    assert members(tmp_path / "raw") == {"000000000.bin": good, "000000001.bin": good}


@pytest.mark.parametrize(
    ("keys", "used", "why"),
    [
        ([b"a/1", b"b"], True, None),
        ([b"a", b"a"], False, "twice"),
        ([b"a", b"b.c"], False, "cannot be the key"),
        ([b"a", b"../b"], False, "cannot be the key"),
        ([b"a", b""], False, "cannot be the key"),
        ([b"a", [b"b", b"c"]], False, "not every record"),
        ([b"a", None], False, "not every record"),
    ],
)
def test_keys_of_records(tmp_path, keys, used, why):
    rows = [serialized({"__key__": key, "x": b"%d" % k}) for k, key in enumerate(keys)]
    write_tfrecord(tmp_path / "in" / "a.tfrecord", rows)
    manifest = run(tmp_path / "in", tmp_path / "out", format="tar", order="source")
    wanted = [key.decode() for key in keys] if used else ["000000000", "000000001"]
    assert members(tmp_path / "out") == {f"{key}.x": b"%d" % k for k, key in enumerate(wanted)}
    assert used or any(why in text for text in manifest.warnings)
    run(tmp_path / "in", tmp_path / "kept", format="tar", order="source", rename={"__key__": "name"})
    assert "000000000.name" in members(tmp_path / "kept") or "000000000.name.0" in members(tmp_path / "kept")


def test_keys_by_source(tmp_path):
    for name in ("a", "b"):
        write_tfrecord(tmp_path / "in" / f"{name}.tfrecord", [example(x=b"1")] * 2)
    run(tmp_path / "in", tmp_path / "out", format="tar", keys="source")
    assert sorted(members(tmp_path / "out")) == ["a/000000000.x", "a/000000001.x", "b/000000000.x", "b/000000001.x"]
    with pytest.raises(UsageError, match="no keys"):
        run(tmp_path / "in", tmp_path / "kept", format="tar", keys="keep")


def test_names_that_collide(tmp_path):
    write_tfrecord(
        tmp_path / "in" / "a.tfrecord", [serialized({"a/b": b"1", "c": b""}), serialized({"a/b": b"1", "a.b": b"2"})]
    )
    with pytest.raises(DataError) as error:
        run(tmp_path / "in", tmp_path / "out", format="tar")
    assert "--rename" in error.value.remedy and "a.b and a/b" in error.value.what and error.value.member == "number 1"
    run(tmp_path / "in", tmp_path / "named", format="tar", rename={"a/b": "z"}, order="source")
    assert members(tmp_path / "named")["000000001.z"] == b"1"
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [serialized({"A": b"1", "a": b"2"})])
    with pytest.raises(DataError, match="letter case"):
        run(tmp_path / "in", tmp_path / "case", format="tar")


def test_types_that_disagree_and_samples_without_a_value(tmp_path):
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [example(a=b"1", b=b"2"), example(a=[1], b=b"2")])
    with pytest.raises(DataError, match="feature a is int64 here"):
        run(tmp_path / "in", tmp_path / "out", format="tar")
    run(tmp_path / "in", tmp_path / "dropped", format="tar", drop=("a",))
    assert set(members(tmp_path / "dropped").values()) == {b"2"}
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [example(a=b"1"), example(a=None)])
    with pytest.raises(DataError, match="no field"):
        run(tmp_path / "in", tmp_path / "empty", format="tar")


def test_damage_is_found_before_anything_is_written(tmp_path):
    path = write_tfrecord(tmp_path / "in" / "a.tfrecord", [example(a=b"x" * 50)] * 3)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="checksum"):
        run(tmp_path / "in", tmp_path / "out", format="tar")
    assert not (tmp_path / "out").exists()
    run(tmp_path / "in", tmp_path / "skip", format="tar", rules=RepackOptions().rules.__class__(on_corrupt="skip"))
    assert len(members(tmp_path / "skip")) == 2


# -- both ways ----------------------------------------------------------------------------------------------------


def test_there_and_back(tmp_path):
    """Bytes come back as they were, under the names they had; numbers too, where their types are said again."""
    rows = [
        {"image/encoded": bytes([k]) * (100 * k), "label": [k], "box": [k / 3, 2.0], "__key__": b"k%d" % k}
        for k in range(20)
    ]
    source = write_tfrecord(tmp_path / "in" / "a.tfrecord", [serialized(row) for row in rows]).parent
    run(source, tmp_path / "tar", format="tar", shards=3)
    types = {"label": "int64", "box": "float"}
    manifest = run(tmp_path / "tar", tmp_path / "out", format="tfrecord", shards=2, fields=types, seed=5)
    got = sorted(records(tmp_path / "out"), key=lambda one: one["label"])
    for row, one in zip(rows, got, strict=True):
        assert one["image/encoded"] == [row["image/encoded"]] and one["__key__"] == [row["__key__"]]
        assert one["label"] == row["label"] and one["box"] == np.float32(row["box"]).tolist()
    assert manifest.renamed["fields"] == {"image.encoded": "image/encoded"}
    assert manifest.options["names"] == {"image.encoded": "image/encoded"}
    run(tmp_path / "out", tmp_path / "again", format="tar", shards=1)
    assert members(tmp_path / "again") == members(tmp_path / "tar")
    # a copy without the manifest does not know the names
    alone = tmp_path / "alone"
    alone.mkdir()
    for path in (tmp_path / "tar").glob("*.tar"):
        (alone / path.name).write_bytes(path.read_bytes())
    assert "fields" not in run(alone, tmp_path / "plain", format="tfrecord").renamed


def test_tar_to_tar_with_other_fields(tmp_path):
    source = tar(tmp_path)
    manifest = run(source, tmp_path / "out", rename={"cls": "label", "jpg": "png"}, drop=("w.txt",), shards=3)
    before = members(source)
    wanted = {
        name.replace(".cls", ".label").replace(".jpg", ".png"): data
        for name, data in before.items()
        if not name.endswith(".w.txt")
    }
    assert members(tmp_path / "out") == wanted
    assert manifest.options["drop"] == ["w.txt"] and set(manifest.fields) == {"label", "png"}
    report = verify([str(tmp_path / "out")], VerifyOptions(against=(str(source),)))
    assert report.findings == [] and report.against["equal"]
    with pytest.raises(DataError, match="have one name"):
        run(source, tmp_path / "twice", rename={"cls": "jpg"})


def test_a_changed_payload_is_found_by_against(tmp_path):
    source = tar(tmp_path)
    run(source, tmp_path / "out", format="tfrecord", fields={"cls": "int64"})
    rows = [(name, b"99" if name == "d/004.cls" else data) for name, data in members(source).items()]
    write_tar(tmp_path / "other" / "x.tar", rows)
    report = verify([str(tmp_path / "out")], VerifyOptions(against=(str(tmp_path / "other"),)))
    assert not report.against["equal"] and report.against["missing"] == report.against["extra"] == 1
    assert any(finding.member == "d/004" for finding in report.findings)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"rename": {"nope": "x"}}, "--rename nope"),
        ({"drop": ("nope",)}, "--drop nope"),
        ({"fields": {"cls": "int64"}}, "--field"),
        ({"records": "raw"}, "--records"),
        ({"format": "tfrecord", "fields": {"cls": "int32"}}, "--field cls=int32"),
        ({"format": "tfrecord", "drop": ("cls",), "rename": {"cls": "x"}}, "--drop cls"),
    ],
)
def test_what_cannot_be_asked(tmp_path, options, what):
    with pytest.raises(UsageError) as error:
        run(tar(tmp_path, 2), tmp_path / "out", **options)
    assert what in error.value.what and not (tmp_path / "out").exists()


def test_records_stay_whole(tmp_path):
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [example(a=b"1")])
    for more in ({"records": "raw"}, {"fields": {"a": "int64"}}):
        with pytest.raises(UsageError, match=r"carried over whole|those of records have one"):
            run(tmp_path / "in", tmp_path / "out", rename={"a": "b"}, **more)
    write_tfrecord(tmp_path / "in" / "b.tfrecord", [b"none"])
    with pytest.raises(DataError, match=r"no tf.train.Example"):
        run(tmp_path / "in", tmp_path / "out", rename={"a": "b"})
    with pytest.raises(UsageError, match="--drop z"):
        (tmp_path / "in" / "b.tfrecord").unlink()
        run(tmp_path / "in", tmp_path / "out", drop=("z",))
    with pytest.raises(DataError, match="no field in the output"):
        run(tmp_path / "in", tmp_path / "out", drop=("a",))


LISTS = st.one_of(
    st.none(), st.lists(st.binary(max_size=40), max_size=3), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3),
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from("abcde"), LISTS, max_size=4), min_size=1, max_size=14), st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_with_other_features(tmp_path, rows, bucket):
    """Types may differ, lists be empty, missing or several: protobuf reads the same values under the new names."""
    import shutil

    shutil.rmtree(tmp_path / "x", ignore_errors=True)
    rows = [{**row, "keep": [k], "gone": b"x" * k} for k, row in enumerate(rows)]
    rows[0].setdefault("a", [1])
    written = [serialized(row) for row in rows]
    write_tfrecord(tmp_path / "x" / "in" / "a.tfrecord", written)
    out = tmp_path / "x" / "out"
    run(
        tmp_path / "x" / "in", out, rename={"a": "zz"}, drop=("gone",), shards=2 if len(rows) > 1 else 1,
        engine="bucket" if bucket else "gather", chunk=4096,
    )  # fmt: skip

    def named(record, rename):
        features = example_pb2.Example.FromString(record).features.feature
        return {rename.get(name, name): feature.SerializeToString() for name, feature in features.items()}

    made = [record for path in sorted(out.glob("*.tfrecord")) for record in read_tfrecord(path)]
    wanted = [named(record, {"a": "zz"}) for record in written]
    for row in wanted:
        del row["gone"]
    assert sorted(map(sorted, (named(r, {}).items() for r in made))) == sorted(map(sorted, (w.items() for w in wanted)))
    for record in made:
        assert [name for name, *_ in lists(record)] == sorted(name for name, *_ in lists(record))
    report = verify([str(out)], VerifyOptions(against=(str(tmp_path / "x" / "in"),)))
    assert not report.findings and report.against["equal"]


def test_a_finished_conversion_is_not_done_again(tmp_path):
    source = tar(tmp_path)
    run(source, tmp_path / "out", format="tfrecord", fields={"cls": "int64"})
    before = content(tmp_path / "out")
    options = RepackOptions(format="tfrecord", shards=1, fields={"cls": "int64"})
    again = repack([str(source)], str(tmp_path / "out"), options)
    assert again.done == "nothing to do" and content(tmp_path / "out") == before
    facts = json.loads((tmp_path / "out" / "manifest.json").read_text())["options"]
    assert facts["field"] == {"cls": "int64"} and facts["records"] == "auto" and facts["rename"] == {}


# -- parsing and numbers ------------------------------------------------------------------------------------------

FEATURE = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.lists(st.binary(max_size=10), min_size=1, max_size=4),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=6),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=6),
)


@given(st.lists(st.dictionaries(st.text(max_size=8), FEATURE, min_size=1, max_size=5), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parsing_is_that_of_protobuf(tmp_path, rows):
    payloads = [serialized(row) for row in rows]
    path = tmp_path / "x"
    path.write_bytes(b"".join(payloads))
    size = np.array([len(p) for p in payloads], np.int64)
    parsed = parse_file(bytes(path), b"x", np.cumsum(size) - size, size)
    data = path.read_bytes()
    for k, row in enumerate(rows):
        found = {}
        for q in range(int(parsed.first[k]), int(parsed.first[k + 1])):
            name = parsed.names[parsed.name[q]].decode()
            span = data[parsed.offset[q] : parsed.offset[q] + parsed.stored[q]]
            if parsed.type[q] == 1:
                found.setdefault(name, []).append(span)
            else:
                found[name] = (float_list if parsed.type[q] == 2 else int64_list)(span).tolist()
                assert parsed.values[q] == len(found[name])
        wanted = {n: v if isinstance(v, list) else [v] for n, v in row.items() if v is not None}
        assert found == wanted
    assert sum(parsed.empty.values()) == sum(value is None for row in rows for value in row.values())


NAMES = ("label", "__key__", "image/encoded", "box", "none", "a" * 130)
COLUMN = st.sampled_from(
    [
        lambda k: b"x" * (k * 17 % 400), lambda k: [k * 7919 - 3000], lambda k: [(-1) ** k << (k % 63)],
        lambda k: [1.5] * (k % 4), lambda k: [b"y"] * (k % 3), lambda k: [k, k], lambda k: None,
    ]
)  # fmt: skip


@given(
    columns=st.lists(st.dictionaries(st.sampled_from(NAMES), COLUMN, min_size=1), min_size=1, max_size=3),
    count=st.integers(10, 60),
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=3),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_walked_together_are_those_walked_alone(tmp_path, columns, count, damage):
    """Records of a few shapes, some damaged: rows, keys and the first refusal are those of the plain loop."""
    payloads = [serialized({n: make(k) for n, make in columns[k % len(columns)].items()}) for k in range(count)]
    size = np.array([len(p) for p in payloads], np.int64)
    offset = np.cumsum(size) - size
    data = bytearray(b"".join(payloads))
    for at, value in damage:
        data[at % len(data)] ^= value
    path = bytes(tmp_path / "x")
    with open(path, "wb") as file:
        file.write(data)
    together = parse_file(path, b"x", offset, size)
    alone = [parse_file(path, b"x", offset[k : k + 1], size[k : k + 1]) for k in range(count)]
    refused = next((k for k, one in enumerate(alone) if one.refused), None)
    if refused is not None:
        assert together.refused.record == refused and together.refused.why == alone[refused].refused.why
        assert together.refused.offset == offset[refused]
        return
    assert together.refused is None
    for k, one in enumerate(alone):
        rows = slice(int(together.first[k]), int(together.first[k + 1]))
        names = [together.names[code] for code in together.name[rows]]
        assert names == [one.names[code] for code in one.name]
        for column in ("type", "values", "place", "offset", "stored", "number"):
            assert getattr(together, column)[rows].tolist() == getattr(one, column).tolist(), column
    assert together.empty == sum((one.empty for one in alone), type(together.empty)())
    keys = [one.keys for one in alone]
    assert together.keys == (None if None in keys else [key for one in keys for key in one])


def test_numbers_that_are_not_packed():
    """Both forms of the wire are read, also mixed."""
    ints = b"\x08\x05\x0a\x02\x01\x02\x08" + packed([-1])
    record = frame_of(b"x", b"\x1a" + bytes([len(ints)]) + ints)
    assert example_pb2.Example.FromString(record).features.feature["x"].int64_list.value == [5, 1, 2, -1]
    assert int64_list(ints).tolist() == [5, 1, 2, -1]
    real = np.float32([1.5, -2.0, 0.1]).tobytes()
    reals = b"\x0d" + real[:4] + b"\x0a\x08" + real[4:]
    record = frame_of(b"x", b"\x12" + bytes([len(reals)]) + reals)
    assert example_pb2.Example.FromString(record).features.feature["x"].float_list.value == [1.5, -2.0, np.float32(0.1)]
    assert float_list(reals).tobytes() == real
    assert [(name, kind) for name, kind, _, _ in lists(record)] == [(b"x", 2)]


def frame_of(name, feature):
    def field(data, tag=10):
        return bytes([tag, len(data)]) + data

    return field(field(field(name) + field(feature, 18)))


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_parse_or_are_refused(data):
    """Whatever is accepted, protobuf reads too."""
    for record in (data, example(a=b"12", b=[1, 2])[: len(data)] + data):
        try:
            found = {name for name, _, _, _ in lists(record)}
        except ValueError:
            continue
        try:
            message = example_pb2.Example.FromString(record)
        except Exception:  # a name that is no UTF-8, or a list whose inside is only looked at later
            continue
        assert {name.encode() for name in message.features.feature} == found


def test_every_cut_of_a_record_is_refused():
    record = example(a=b"12", b=[1, 300], c=[0.5])
    for cut in range(1, len(record)):
        with pytest.raises(ValueError):
            list(lists(record[:cut]))
    with pytest.raises(NoExample):
        list(lists(record + b"\x08\x01"))
    assert is_sequence(SEQUENCE) and not is_sequence(record) and not is_sequence(b"x")


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5))
def test_whole_numbers_there_and_back(values):
    data = b"\x0a" + packed([len(packed(values))]) + packed(values)
    array = computed(INT64_NPY, data)
    assert np.load(io.BytesIO(array)).tolist() == values == integers(array)
    assert computed(TO_INT64, array) == packed(values)
    assert decimal_bytes(np.array(values, np.int64)).tolist() == [len(str(value)) for value in values]
    if len(values) == 1:
        assert computed(TO_INT64, str(values[0]).encode()) == packed(values)


@given(st.lists(st.binary(min_size=4, max_size=4), max_size=5))
def test_float_bits_there_and_back(words):
    """Also those of NaNs."""
    bits = b"".join(words)
    array = computed(FLOAT_NPY, b"\x0a" + packed([len(bits)]) + bits)
    assert array[128:] == bits and np.load(io.BytesIO(array)).tobytes() == bits
    assert computed(TO_FLOAT, array) == bits


@pytest.mark.parametrize(("text", "value"), [(b"1", 1), (b"-.5", -0.5), (b"2.", 2), (b"1e3", 1000), (b"-inf", -np.inf)])
def test_decimal_texts(text, value):
    assert floats(text).tolist() == [value]


def test_readers_open_what_is_written(tmp_path):
    """tarfile and webdataset the tar; the frames are those of the plain arithmetic."""
    rows = [{"img": bytes([k]) * 700, "cls": [k]} for k in range(8)]
    write_tfrecord(tmp_path / "in" / "a.tfrecord", [serialized(row) for row in rows])
    run(tmp_path / "in", tmp_path / "tar", format="tar")
    with tarfile.open(tmp_path / "tar" / "shard-000000.tar") as archive:
        assert len(archive.getmembers()) == 16
    webdataset = pytest.importorskip("webdataset")
    got = list(webdataset.WebDataset(str(tmp_path / "tar" / "shard-000000.tar"), shardshuffle=False))
    assert sorted((one["cls"], one["img"]) for one in got) == [(b"%d" % row["cls"][0], row["img"]) for row in rows]
    run(tmp_path / "tar", tmp_path / "rec", format="tfrecord", fields={"cls": "int64"})
    path = tmp_path / "rec" / "shard-00000-of-00001.tfrecord"
    assert path.read_bytes() == b"".join(map(frame, read_tfrecord(path)))


def test_types_come_back(tmp_path):
    """bytes, int64 and float features are what they were, record by record and byte by byte."""
    rows = [
        {"a": b"raw", "i": k - 5, "f": [k / 7, -1.0], "n": list(range(k % 3)) or [9], "t/x": [b"7"], "one": [2.5]}
        for k in range(20)
    ]  # fmt: skip
    written = [serialized({**row, "__key__": b"%03d" % k}) for k, row in enumerate(rows)]
    write_tfrecord(tmp_path / "in" / "a.tfrecord", written)
    made = run(tmp_path / "in", tmp_path / "tar", format="tar", shards=2)
    assert made.renamed["types"] == {"i": "int64", "f": "float", "n": "int64", "one": "float"}
    back = run(tmp_path / "tar", tmp_path / "back", format="tfrecord")

    def plain(folder):
        found = {}
        for path in sorted(folder.glob("*.tfrecord")):
            for record in read_tfrecord(path):
                features = example_pb2.Example.FromString(record).features.feature
                key = features["__key__"].bytes_list.value[0]
                found[key] = {name: feature.SerializeToString() for name, feature in features.items()}
        return found

    assert plain(tmp_path / "back") == plain(tmp_path / "in") and len(plain(tmp_path / "in")) == 20
    assert back.options["types"] == made.renamed["types"] and back.fields["f"]["type"] == "float"
    report = verify([str(tmp_path / "back")], VerifyOptions(against=(str(tmp_path / "tar"),)))
    assert not report.findings and report.against["equal"]
    as_text = run(tmp_path / "tar", tmp_path / "text", format="tfrecord", fields={"i": "bytes", "n": "bytes"})
    assert as_text.fields["i"]["type"] == "bytes" and as_text.fields["f"]["type"] == "float"
