"""Index files of other loaders, read by those loaders; DALI's by its own rule, against the bytes at the offsets."""

import dataclasses
import hashlib
import io
import json
import os
import tarfile

import braceexpand
import numpy as np
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st
from tfrecord.reader import tfrecord_iterator

from shardtool.base.errors import DataError, UsageError
from shardtool.base.ragged import Ragged
from shardtool.base.reporting import Reporter
from shardtool.disk.exports import EXPORTS
from shardtool.disk.exports.lines import decimals, lines, padded
from shardtool.disk.exports.names import set_name
from shardtool.disk.exports.webdataset import brace_patterns
from shardtool.jobs.export import DALI, check_names, resolve_exports
from shardtool.jobs.manifest import ManifestOptions, add_exports, write_manifest
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.layout.manifest import Receipt
from shardtool.layout.rules import Rules
from tests.disk import tarmaker
from tests.makers import (
    content,
    frame,
    read_tar,
    read_tfrecord,
    sorted_tars,
    sorted_tfrecords,
    write_tar,
    write_tfrecord,
)


def index(folder, *exports, reporter=None, sources=None, **options):
    """Manifest and exports for the shards that are in `folder`."""
    rules = Rules(**options.pop("rules", {}))
    return write_manifest(
        sources or [str(folder)], str(folder / "manifest.json"),
        ManifestOptions(exports=exports, jobs=1, rules=rules, **options), reporter=reporter,
    )  # fmt: skip


def tokens(path):
    """A v1.2 index as DALI's reader takes it apart: [[(ext, offset, size, name), ...] of every sample]."""
    head, *rows = path.read_bytes().split(b"\n")[:-1]
    version, count = head.split()
    assert version == b"v1.2" and int(count) == len(rows) > 0
    samples = []
    for row in rows:
        parts = row.split()
        assert len(parts) % 4 == 0
        samples.append([(e, int(o), int(s), n) for e, o, s, n in zip(*(parts[k::4] for k in range(4)), strict=True)])
    return samples


def by_offset(shard, index_path):
    """{field: bytes} of every sample, by the index alone."""
    data = shard.read_bytes()
    found = []
    for parts in tokens(index_path):
        assert all(offset % 512 == 0 and offset + size <= len(data) for _, offset, size, _ in parts)
        found.append({ext: data[offset : offset + size] for ext, offset, size, _ in parts})
    return found


def by_tarfile(shard):
    """The same by Python's tarfile; members of a sample are collected over the archive."""
    found = {}
    with tarfile.open(shard) as archive:
        for member in archive:
            folder, slash, base = member.name.rpartition("/")
            if member.isdir() or base.startswith(".") or "." not in base or member.name.startswith("__"):
                continue
            key, _, ext = base.partition(".")
            fields = found.setdefault((folder + slash + key).removeprefix("./"), {})
            fields[os.fsencode(ext)] = archive.extractfile(member).read()
    return list(found.values())


# -- DALI WebDataset -----------------------------------------------------------------------------------------------

LONG = "d" * 90 + "/" + "k" * 60  # fits prefix + name
LONGER = "d" * 160 + "/" + "k" * 99  # fits neither


def members(*stems):
    return [
        (f"{stem}.{ext}", f"{stem} {ext} ".encode() * n) for n, stem in enumerate(stems, 1) for ext in ("jpg", "cls")
    ]


def with_link():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, payload in members("a", "b"):
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))
        for name, target in (("c.jpg", "a.jpg"), ("c.cls", "b.cls")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.LNKTYPE, target
            archive.addfile(info)
    return buffer.getvalue()


def of_tarfile(format, *stems):
    def made(path):
        write_tar(path, members(*stems), format=format)

    return made


def of_bytes(*pieces):
    def made(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(pieces))

    return made


V7 = {"magic": bytes(8)}
FLAVOURS = {
    "ustar": of_tarfile(tarfile.USTAR_FORMAT, "a", "b/c"),
    "ustar prefix": of_tarfile(tarfile.USTAR_FORMAT, LONG, "a"),
    "gnu long names": of_tarfile(tarfile.GNU_FORMAT, "a", LONGER, "b"),
    "pax long names": of_tarfile(tarfile.PAX_FORMAT, "a", LONGER, "b"),
    "spaces": of_tarfile(tarfile.USTAR_FORMAT, "a b/c  d", "e"),
    "not ascii, gnu": of_tarfile(tarfile.GNU_FORMAT, "größe/ß", "日本"),
    "not ascii, pax": of_tarfile(tarfile.PAX_FORMAT, "größe/ß", "日本"),
    "v7": of_bytes(
        tarmaker.member(b"a.jpg", b"x" * 600, **V7), tarmaker.member(b"a.cls", b"1", **V7),
        tarmaker.member(b"b.jpg", b"", **V7), tarmaker.member(b"b.cls", b"22", **V7), tarmaker.END,
    ),
    "global pax": of_bytes(
        tarmaker.pax((b"comment", b"made by hand"), kind=b"g"), tarmaker.member(b"a.jpg", b"x"),
        tarmaker.pax((b"mtime", b"1.5")), tarmaker.member(b"a.cls", b"7"), tarmaker.END,
    ),
    "not adjacent": of_bytes(
        *(tarmaker.member(name.encode(), name.encode() * 99) for name in ("a.jpg", "b.jpg", "c.x", "a.cls", "b.cls")),
        tarmaker.END,
    ),
    "hard links": of_bytes(with_link()),
    "what is no sample between": of_bytes(
        tarmaker.member(b"./"), tarmaker.member(b"./a.jpg", b"x" * 700), tarmaker.member(b"./._a.jpg", b"apple"),
        tarmaker.member(b"./a.cls", b"1"), tarmaker.member(b"README", b"read"), tarmaker.member(b"__meta__", b"{}"),
        tarmaker.member(b"./b.jpg", b"y"), tarmaker.member(b"./b.cls", b"2"), tarmaker.END,
    ),
    "no end marker": of_bytes(tarmaker.member(b"a.jpg", b"x" * 513), tarmaker.member(b"a.cls", b"1")),
    "upper case": of_tarfile(tarfile.USTAR_FORMAT, "A"),
    "inner dots": of_bytes(
        tarmaker.member(b"a/b.c/e.f.jpg", b"x"), tarmaker.member(b"a/b.c/e.cls", b"1"), tarmaker.END
    ),
}  # fmt: skip


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_dali_finds_every_payload_of_existing_archives(flavour, tmp_path):
    shard = tmp_path / "x.tar"
    FLAVOURS[flavour](shard)
    before = shard.read_bytes()
    rules = {"group": "archive"} if flavour == "not adjacent" else {}
    if flavour == "what is no sample between":
        rules = {"group": "archive"}
    index(tmp_path, "dali", rules=rules)
    assert by_offset(shard, tmp_path / "x.idx") == by_tarfile(shard)
    assert shard.read_bytes() == before


@pytest.mark.parametrize("keys", ["keep", "ordinal"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_dali_finds_every_payload_of_our_archives(flavour, keys, tmp_path):
    FLAVOURS[flavour](tmp_path / "in" / "x.tar")
    rules = Rules(group="archive" if flavour in ("not adjacent", "what is no sample between") else "adjacent")
    options = RepackOptions(shards=1, exports=("dali",), keys=keys, name="y", rules=rules, jobs=1)
    repack([str(tmp_path / "in")], str(tmp_path / "out"), options)
    ours = by_offset(tmp_path / "out/y-000000.tar", tmp_path / "out/y-000000.idx")
    assert ours == by_tarfile(tmp_path / "out/y-000000.tar")
    assert sorted(map(repr, map(sorted, (s.items() for s in ours)))) == sorted(
        map(repr, map(sorted, (s.items() for s in by_tarfile(tmp_path / "in/x.tar"))))
    )


def test_dali_index_to_the_letter(tmp_path):
    write_tar(tmp_path / "a.1.tar", [("k 1.jpg", b"x" * 600), ("k 1.cls", b"7"), ("d/m.jpg", b""), ("d/m.cls", b"8")])
    index(tmp_path, "dali-wds")
    assert (tmp_path / "a.1.idx").read_bytes() == (
        b"v1.2 2\njpg 512 600 k_1.jpg cls 2048 1 k_1.cls\njpg 3072 0 d/m.jpg cls 3584 1 d/m.cls\n"
    )


def test_white_space_and_control_bytes_in_names_are_counted_and_said_once(tmp_path):
    names = ("x y.jpg", "x\ny.jpg", "\x7f.jpg", "z.jpg")
    for shard in ("a", "b"):
        write_tar(tmp_path / f"{shard}.tar", [(name, b"1") for name in names])
    reporter = Reporter()
    index(tmp_path, "dali", reporter=reporter)
    said = [text for text in reporter.warnings if "DALI" in text]
    assert len(said) == 1 and "in 6 member names" in said[0]
    assert [row[0][3] for row in tokens(tmp_path / "a.idx")] == [b"x_y.jpg", b"x_y.jpg", b"_.jpg", b"z.jpg"]


@pytest.mark.parametrize("ext", ["j pg", "jpg\t", "a\nb", "x\x0by"])
def test_white_space_in_an_extension_is_an_error_that_names_it(ext, tmp_path):
    write_tar(tmp_path / "a.tar", [("good.jpg", b"1"), (f"bad.{ext}", b"2")])
    with pytest.raises(DataError, match="extension") as caught:
        index(tmp_path, "dali")
    assert caught.value.member == f"bad.{ext}".encode() and caught.value.file == "a.tar"
    assert sorted(content(tmp_path)) == ["a.tar"]


def test_a_sparse_member_has_no_place(tmp_path):
    runs = b"%011o\0%011o\0" % (0, 512) + b"%011o\0%011o\0" % (1024, 0)
    sparse = tarmaker.head(b"a.jpg", 512, kind=b"S", magic=b"ustar  \0", at_386=runs, at_483=b"%011o\0" % 1024)
    (tmp_path / "a.tar").write_bytes(sparse + b"x" * 512 + tarmaker.member(b"a.cls", b"1") + tarmaker.END)
    with pytest.raises(DataError, match="sparse") as caught:
        index(tmp_path, "dali")
    assert caught.value.member == b"a.jpg"
    assert index(tmp_path, "webdataset").manifest.samples == 1


def test_an_empty_shard_has_no_dali_index(tmp_path):
    sorted_tars(tmp_path, files=1)
    (tmp_path / "zero.tar").write_bytes(bytes(10240))
    reporter = Reporter()
    result = index(tmp_path, "dali", reporter=reporter)
    assert result.exports == {"dali-wds": ("train-000000.idx",)}
    assert any("zero.tar has no samples, so DALI" in text for text in reporter.warnings)


def test_extensions_in_upper_case_are_told(tmp_path):
    write_tar(tmp_path / "a.tar", [("x.JPG", b"1"), ("x.cls", b"2")])
    reporter = Reporter()
    index(tmp_path, "dali", reporter=reporter)
    assert any("case_sensitive_extensions" in text and "(JPG)" in text for text in reporter.warnings)


# -- TFRecord ------------------------------------------------------------------------------------------------------


def test_record_indexes_cut_the_file_into_its_frames(tmp_path):
    payloads = [b"", b"a", b"b" * 5000, b"c" * 11]
    shard = write_tfrecord(tmp_path / "x.tfrecord", payloads)
    index(tmp_path, "dali", "tfrecord")
    data = shard.read_bytes()
    for name in ("x.tfrecord.idx", "x.tfindex"):
        rows = [tuple(map(int, row.split(b" "))) for row in (tmp_path / name).read_bytes().splitlines()]
        assert [data[at : at + size] for at, size in rows] == list(map(frame, payloads))
        assert sum(size for _, size in rows) == len(data)
    assert (tmp_path / "x.tfindex").read_bytes().endswith(b"\n")


def test_the_tfrecord_package_reads_by_our_index(tmp_path):
    sorted_tfrecords(tmp_path / "in", files=2, records=25)
    options = RepackOptions(shards=3, exports=("tfrecord",), name="train", jobs=1)
    repack([str(tmp_path / "in")], str(tmp_path / "out"), options)
    for shard in sorted((tmp_path / "out").glob("*.tfrecord")):
        stem = str(shard.with_suffix(""))
        wanted = read_tfrecord(shard)
        got = []
        for k in range(4):
            got += map(bytes, tfrecord_iterator(str(shard), f"{stem}.tfindex", shard=(k, 4)))
        assert got == wanted
        # without `shard` it begins at a random record and goes round
        assert sorted(map(bytes, tfrecord_iterator(str(shard), f"{stem}.tfindex"))) == sorted(wanted)


def test_the_tfrecord_package_fails_on_one_record_and_we_say_so(tmp_path):
    write_tfrecord(tmp_path / "one.tfrecord", [b"only"])
    write_tfrecord(tmp_path / "two.tfrecord", [b"a", b"b"])
    reporter = Reporter()
    index(tmp_path, "tfrecord", reporter=reporter)
    assert [text for text in reporter.warnings if "one.tfrecord" in text and "two.tfrecord" not in text]
    with pytest.raises(IndexError):
        list(tfrecord_iterator(str(tmp_path / "one.tfrecord"), str(tmp_path / "one.tfindex")))


# -- wids ----------------------------------------------------------------------------------------------------------


def read_wids(wids, path, cache):
    dataset = wids.ShardListDataset(str(path), transformations=[], cache_dir=str(cache))
    return [
        {key: value.read() for key, value in dataset[k].items() if key.startswith(".")} for k in range(len(dataset))
    ]


def fields(members):
    samples = {}
    for name, payload in members:
        key, _, ext = name.partition(".")
        samples.setdefault(key, {})[f".{ext}"] = payload
    return list(samples.values())


def test_wids_reads_every_sample(wids, tmp_path):
    sorted_tars(tmp_path / "in")
    options = RepackOptions(shards=4, exports=("wids",), name="train", jobs=1)
    repack([str(tmp_path / "in")], str(tmp_path / "out"), options)
    wanted = [s for shard in sorted((tmp_path / "out").glob("*.tar")) for s in fields(read_tar(shard))]
    assert read_wids(wids, tmp_path / "out/train.wids.json", tmp_path / "cache") == wanted
    facts = json.loads((tmp_path / "out/train.wids.json").read_text())
    assert facts["__kind__"] == "wids-shard-index-v1" and facts["wids_version"] == 1 and facts["name"] == "train"
    for shard in facts["shardlist"]:
        data = (tmp_path / "out" / shard["url"]).read_bytes()
        assert shard["md5sum"] == hashlib.md5(data).hexdigest() and shard["filesize"] == len(data)


def test_wids_reads_from_another_folder(wids, tmp_path):
    sorted_tars(tmp_path / "data/a", files=2)
    sorted_tars(tmp_path / "data/b", files=1)
    index(tmp_path / "data")
    before = content(tmp_path / "data")
    options = ManifestOptions(exports=("wids", "dali"), jobs=1)
    result = add_exports(str(tmp_path / "data/manifest.json"), options, folder=str(tmp_path / "elsewhere/idx"))
    assert content(tmp_path / "data") == before and not result.written
    wanted = [s for shard in sorted((tmp_path / "data").rglob("*.tar")) for s in fields(read_tar(shard))]
    assert read_wids(wids, tmp_path / "elsewhere/idx/train.wids.json", tmp_path / "cache") == wanted
    assert by_offset(tmp_path / "data/b/train-000000.tar", tmp_path / "elsewhere/idx/b/train-000000.idx")


def test_names_too_long_for_wids_are_told(tmp_path):
    write_tar(tmp_path / "a.tar", members("d/" + "x" * 94, "d/" + "y" * 95))
    reporter = Reporter()
    index(tmp_path, "wids", reporter=reporter)
    assert any(text.startswith("2 member names are longer than 100 bytes") for text in reporter.warnings)


# -- webdataset ----------------------------------------------------------------------------------------------------


def read_webdataset(urls):
    dataset = webdataset.WebDataset(urls, shardshuffle=False)
    return [{key: value for key, value in sample.items() if not key.startswith("__")} for sample in dataset]


def test_webdataset_reads_brace_string_and_list(tmp_path, monkeypatch):
    sorted_tars(tmp_path / "in", files=3)
    write_tar(tmp_path / "in" / "sub" / "odd.tar", members("only"))
    index(tmp_path / "in", "webdataset")
    monkeypatch.chdir(tmp_path / "in")
    wanted = []
    for shard in ("sub/odd.tar", *(f"train-{k:06}.tar" for k in range(3))):
        samples = fields(read_tar(tmp_path / "in" / shard))
        wanted += [{key[1:]: value for key, value in sample.items()} for sample in samples]
    braces = (tmp_path / "in/shards.brace.txt").read_text()
    assert braces == "sub/odd.tar::train-{000000..000002}.tar\n"
    assert read_webdataset(braces.strip()) == wanted
    assert read_webdataset((tmp_path / "in/shards.shards.txt").read_text().splitlines()) == wanted


def test_a_name_that_braces_cannot_hold_leaves_the_list(tmp_path, monkeypatch):
    write_tar(tmp_path / "a{1}.tar", members("x"))
    reporter = Reporter()
    result = index(tmp_path, "webdataset", reporter=reporter)
    assert result.exports == {"webdataset": ("a{1}.shards.txt",)}
    assert any("brace string" in text for text in reporter.warnings)


NAMES = st.lists(
    st.builds("{}{:0{}}-{}.tar".format, st.sampled_from(["a", "b/a", "a1_"]), st.integers(0, 120), st.integers(1, 3),
              st.sampled_from(["", "0", "x7"])),
    min_size=1, max_size=30,
)  # fmt: skip


@given(NAMES | NAMES.map(sorted))
def test_brace_patterns_expand_to_the_names(names):
    patterns = brace_patterns(names)
    assert [name for pattern in patterns for name in braceexpand.braceexpand(pattern)] == names


@pytest.mark.parametrize("count", [1, 2, 100, 1000])
def test_a_plain_set_is_one_pattern(count):
    names = [f"d/train-{k:06}.tar" for k in range(count)]
    assert len(brace_patterns(names)) == 1


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["train-000000.tar", "train-000001.tar"], "train"),
        (["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"], "train"),
        (["a/x-00000-of-00002-0123456789abcdef.tar", "b/x-00001-of-00002-fedcba9876543210.tar"], "x"),
        (["one.tar"], "one"), (["0.tar", "1.tar"], "shards"), (["a.tar", "b.tar"], "shards"), (["a", "a1"], "a"),
    ],
)  # fmt: skip
def test_the_name_of_a_set(names, wanted, tmp_path):
    sorted_tars(tmp_path, files=1)
    manifest = index(tmp_path).manifest
    shards = tuple(Receipt(k, name, 1, 1, "", {}, "") for k, name in enumerate(names))
    assert set_name(dataclasses.replace(manifest, shards=shards)) == wanted


def test_files_of_one_name_are_refused_before_anything_is_written(tmp_path):
    write_tar(tmp_path / "a.tar", members("x"))
    write_tar(tmp_path / "a.TAR", members("y"))
    with pytest.raises(UsageError, match=r"called a\.idx"):
        index(tmp_path, "dali")
    assert sorted(content(tmp_path)) == ["a.TAR", "a.tar"]


@pytest.mark.parametrize("format", ["tar", "tfrecord"])
def test_no_two_exports_of_a_format_share_a_name(format, tmp_path):
    (sorted_tars if format == "tar" else sorted_tfrecords)(tmp_path)
    manifest = index(tmp_path).manifest
    kinds = [kind for kind, export in EXPORTS.items() if format in export.formats]
    names = [name for files in check_names(manifest, kinds).values() for name in files]
    assert len(names) == len(set(names)) >= len(kinds)


def test_resolving_kinds():
    assert resolve_exports(["dali", "wids", "dali-wds"], "tar") == ("dali-wds", "wids")
    assert resolve_exports(["dali", "tfrecord"], "tfrecord") == ("dali-tfrecord", "tfrecord")
    assert set(DALI.values()) <= set(EXPORTS)
    with pytest.raises(UsageError, match="'nope' is not known") as caught:
        resolve_exports(["nope"], "tar")
    assert all(kind in caught.value.remedy for kind in ["dali", *EXPORTS])
    for kind, export in EXPORTS.items():
        for format in ("tar", "tfrecord"):
            if format in export.formats:
                assert resolve_exports([kind], format) == (kind,)
            else:
                with pytest.raises(UsageError, match=f"these are {format}"):
                    resolve_exports([kind], format)


# -- lines ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**17) | st.integers(0, 1100), min_size=1, max_size=40), st.sampled_from([b"", b" "]))
def test_decimals(values, end):
    assert lines(decimals(np.array(values, np.int64), end)) == b"".join(b"%d%b" % (v, end) for v in values)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.binary().map(lambda b: b.replace(b"\0", b"x"))), min_size=1))
def test_lines_join_columns(rows):
    numbers, words = zip(*rows, strict=True)
    ends = padded(Ragged.of([b"\n"] * len(rows)))
    got = lines(decimals(np.array(numbers, np.int64), b" "), padded(Ragged.of(words)), ends)
    assert got == b"".join(b"%d %b\n" % row for row in rows)
