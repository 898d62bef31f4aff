"""Laws 1 to 3 for every engine and format: same bytes however they move, same multiset, what is written is read."""

import errno
import hashlib
import importlib
import os
import shutil
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError
from shardtool.disk.columns import Store
from shardtool.disk.engines import ENGINES
from shardtool.disk.engines import mapped as mapped_module
from shardtool.jobs import lay_out as lay_out_module
from shardtool.jobs import repack as repack_module
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.scan import scan
from shardtool.layout.order import Order
from tests.makers import content, read_tar, read_tfrecord, sorted_tars, sorted_tfrecords, write_tar, write_tfrecord

# by its full name: the package has a function of the same name
bucket_module = importlib.import_module("shardtool.disk.engines.bucket")
ENGINE = pytest.mark.parametrize("engine", sorted(ENGINES))
MAKE = {"tfrecord": sorted_tfrecords, "tar": sorted_tars}
FORMAT = pytest.mark.parametrize("format", sorted(MAKE))


def run(source, out, chunk=None, budget=None, columns=None, wide=None, **options):
    """A repack with an output buffer of `chunk` bytes, `budget` bytes of frames at a time in the bucket engine, which
    takes `wide` buckets as one in its first pass, and columns in memory up to `columns` bytes."""
    with pytest.MonkeyPatch.context() as patch:
        if chunk:
            patch.setattr(lay_out_module, "CHUNK", chunk)
        if budget:
            patch.setattr(lay_out_module, "bucket_budget", lambda *_: budget)
        if wide:
            patch.setattr(bucket_module, "buckets_at_once", lambda *_: wide)
        if columns is not None:
            patch.setattr(repack_module, "Store", lambda _, folder: Store(columns, folder))
            patch.setattr(lay_out_module, "STEP", 16)
            patch.setattr(lay_out_module, "_PIECE", 1 << 40)
        result = repack([str(source)], str(out), RepackOptions(**{"shards": 5, "seed": 3, "jobs": 1, **options}))
    return result, content(out)


@ENGINE
@FORMAT
def test_same_bytes_however_they_move(tmp_path, monkeypatch, engine, format):
    """Law 1: jobs, buffer size, memory, where the input lies, working folder, umask, file order on disk, and
    whether the output goes through the page cache."""
    source = MAKE[format](tmp_path / "in", 4, 60)
    _, reference = run(source, tmp_path / "reference", engine=engine)
    copy = tmp_path / "elsewhere" / "in"
    copy.mkdir(parents=True)
    for path in sorted(source.iterdir(), reverse=True):
        shutil.copy(path, copy / path.name)
    trials = {
        "jobs": (source, {"jobs": 3}),
        "small buffer": (source, {"chunk": 4096}),
        "buffer smaller than a frame": (source, {"chunk": 512, "jobs": 2}),
        "memory": (source, {"memory": 64 << 20}),
        "columns in a file": (source, {"columns": 0, "jobs": 2}),
        "some columns in a file": (source, {"columns": 3000, "chunk": 4096, "budget": 5000}),
        "a few samples at a time": (source, {"budget": 2500, "jobs": 2}),
        "three passes": (source, {"budget": 2500, "wide": 3, "jobs": 2}),
        "three passes, one bucket each": (source, {"budget": 1000, "wide": 1000}),
        "three passes of large samples": (source, {"budget": 10, "wide": 7}),
        "one sample at a time": (source, {"budget": 1, "chunk": 512}),
        "work folder elsewhere": (source, {"work_dir": str(tmp_path / "work"), "budget": 3000}),
        "elsewhere": (copy, {}),
    }
    for name, (place, options) in trials.items():
        old = os.umask(0o077)
        try:
            _, got = run(place, tmp_path / f"out, {name}", engine=engine, **options)
        finally:
            os.umask(old)
        assert got == reference, name
    assert list((tmp_path / "work").iterdir()) == []
    for io in ("direct", "buffered"):
        monkeypatch.setenv("SHARDTOOL_IO", io)
        for chunk in (4096, 512, None):
            try:
                _, got = run(source, tmp_path / f"out, {io} {chunk}", chunk, engine=engine)
            except OSError as error:
                if io == "direct" and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                    break  # not on this file system
                raise
            assert got == reference, (io, chunk)


@ENGINE
@FORMAT
def test_order_on_disk_is_the_order_by_formula(tmp_path, engine, format):
    source = MAKE[format](tmp_path / "in", 3, 30)
    result, _ = run(source, tmp_path / "out", engine=engine, shards=4)
    read = {"tfrecord": read_tfrecord, "tar": read_tar}[format]
    flat = [sample for path in sorted(source.iterdir()) for sample in read(path)]
    got = [s for r in result.manifest.shards for s in read(tmp_path / "out" / r.name)]
    if format == "tar":  # two members a sample
        flat = list(zip(flat[::2], flat[1::2], strict=True))
        got = list(zip(got[::2], got[1::2], strict=True))
    assert got == [flat[i] for i in Order(90, 3).whole()]


@ENGINE
@FORMAT
def test_source_order_keeps_it(tmp_path, engine, format):
    source = MAKE[format](tmp_path / "in", 3, 30)
    read = {"tfrecord": read_tfrecord, "tar": read_tar}[format]
    result, _ = run(source, tmp_path / "out", engine=engine, order="source")
    flat = [sample for path in sorted(source.iterdir()) for sample in read(path)]
    assert [s for r in result.manifest.shards for s in read(tmp_path / "out" / r.name)] == flat


@ENGINE
@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30), seed=st.integers(0, 2**64 - 1), data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_of_any_size(tmp_path, engine, sizes, seed, data):
    """Law 2 and 3 for TFRecord, with buffers smaller and larger than the records."""
    folder = tmp_path / hashlib.md5(repr((sizes, seed)).encode()).hexdigest()
    records = [bytes([k % 256]) * size for k, size in enumerate(sizes)]
    cut = data.draw(st.integers(0, len(sizes)))
    write_tfrecord(folder / "in" / "a.tfrecord", records[:cut])
    write_tfrecord(folder / "in" / "b.tfrecord", records[cut:])
    shards = data.draw(st.integers(1, len(sizes)))
    chunk, budget = data.draw(st.sampled_from([512, 1024, 1 << 20])), data.draw(st.sampled_from([100, 4000, None]))
    wide = data.draw(st.sampled_from([None, 2]))
    result, _ = run(folder / "in", folder / "out", chunk, budget, wide=wide, engine=engine, shards=shards, seed=seed)
    got = [r for s in result.manifest.shards for r in read_tfrecord(folder / "out" / s.name)]
    assert sorted(got) == sorted(records)
    again = scan([str(folder / "out" / "manifest.json")]).index
    assert again.size[0 : again.samples].tolist() == [len(r) for r in got]
    shutil.rmtree(folder)


NAMES = st.one_of(
    st.text("abcXYZ -_\u00e9", min_size=1, max_size=12),
    st.builds("{}/{}".format, st.text("abc", min_size=1, max_size=150), st.text("xyz", min_size=1, max_size=130)),
    st.text("long", min_size=95, max_size=290),
)  # fmt: skip


@ENGINE
@given(
    keys=st.lists(NAMES, min_size=1, max_size=8, unique=True),
    format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    data=st.data(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_members_of_any_name_and_size(tmp_path, engine, keys, format, data):
    """Laws 2 and 3 for tar: names that need no, one or two extension headers, in and out."""
    folder = tmp_path / hashlib.md5(repr(keys).encode()).hexdigest()
    samples = {}
    for k, key in enumerate(keys):
        fields = data.draw(st.lists(st.sampled_from(["jpg", "cls", "s.png", "J"]), min_size=1, max_size=3, unique=True))
        samples[key] = [(f"{key}.{f}", bytes([k]) * data.draw(st.integers(0, 2100))) for f in fields]
    write_tar(folder / "in" / "a.tar", [m for s in samples.values() for m in s], format, mtime=0.5)
    chunk, budget = data.draw(st.sampled_from([512, 2048, 1 << 20])), data.draw(st.sampled_from([100, 4000, None]))
    shards = data.draw(st.integers(1, len(keys)))
    result, _ = run(folder / "in", folder / "out", chunk, budget, engine=engine, shards=shards)
    got = [m for s in result.manifest.shards for m in read_tar(folder / "out" / s.name)]
    assert sorted(got) == sorted(m for s in samples.values() for m in s)
    assert [g for s in samples.values() for g in got if g in s] != [] and len(got) == len(set(got))
    shutil.rmtree(folder, ignore_errors=True)


@ENGINE
def test_padding_and_headers_are_ours_whatever_the_source_has(tmp_path, engine):
    """Garbage behind a payload, owners and times do not reach the output."""
    source = write_tar(tmp_path / "a" / "x.tar", [("k1.jpg", b"1" * 700), ("k1.cls", b"3"), ("k2.jpg", b"2" * 10)])
    clean = bytearray(source.read_bytes())
    _, reference = run(tmp_path / "a", tmp_path / "clean", engine=engine, shards=1)
    dirty = tmp_path / "b" / "x.tar"
    dirty.parent.mkdir()
    clean[512 + 700 : 512 + 1024] = b"\xaa" * 324
    dirty.write_bytes(clean)
    _, got = run(tmp_path / "b", tmp_path / "dirty", engine=engine, shards=1)
    assert got["shard-000000.tar"] == reference["shard-000000.tar"]
    header = reference["shard-000000.tar"][:512]
    assert header[257:265] == b"ustar\x0000" and header[100:108] == b"0000644\0" and header[136:147] == b"0" * 11


@ENGINE
def test_hard_links_and_sparse_members_are_written_out(tmp_path, engine):
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
    archive = tmp_path / "in" / "x.tar"
    subprocess.run(["tar", "cSf", archive, "-C", work, "--sort=name", "a.bin", "b.bin", "c.bin"], check=True)
    assert archive.stat().st_size < 100_000
    for chunk in (512, 1 << 20):
        result, _ = run(tmp_path / "in", tmp_path / f"out{chunk}", chunk, 3000, engine=engine, shards=2)
        got = dict(m for s in result.manifest.shards for m in read_tar(tmp_path / f"out{chunk}" / s.name))
        assert got == {p.name: p.read_bytes() for p in work.iterdir()}


@ENGINE
@pytest.mark.parametrize("own", [0, 250])
def test_more_sources_than_descriptors(tmp_path, engine, own):
    """own: descriptors of the program that calls the library."""
    import resource

    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(own)]
    for k in range(90):
        write_tfrecord(tmp_path / "in" / f"{k:03}.tfrecord", [b"%d" % k] * 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # 64 for a process that has only its three; other tests of this one may have left some open
    taken = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (61 + taken, hard))
    try:
        _, got = run(tmp_path / "in", tmp_path / "out", engine=engine, shards=70)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in others:
            os.close(fd)
    assert sum(len(read_tfrecord(p)) for p in (tmp_path / "out").glob("*.tfrecord")) == 270
    assert len(got) == 2 * 70 + 1


def test_uniform_by_shard_and_by_position_over_many_seeds(tmp_path):
    """Where sample 0 goes over 1,500 seeds: every shard and every place in a shard equally often (chi-square)."""
    shards, each, seeds = 6, 10, 1500
    by_shard, by_place = np.zeros(shards), np.zeros(each)
    for seed in range(seeds):
        position = Order(shards * each, seed).position(0)
        by_shard[position // each] += 1
        by_place[position % each] += 1
    for counts in (by_shard, by_place):
        expected = seeds / len(counts)
        assert ((counts - expected) ** 2 / expected).sum() < 35  # 9 degrees of freedom: p = 6e-5


@FORMAT
def test_mapped_sources_give_the_same_bytes(tmp_path, monkeypatch, format):
    """Small frames of sources that are large enough come through mappings, in a worker also when one would do."""
    source = MAKE[format](tmp_path / "in", 4, 300)
    (source / "empty-000000.tfrecord").write_bytes(b"") if format == "tfrecord" else None
    _, reference = run(source, tmp_path / "reference", engine="gather")
    monkeypatch.setattr(repack_module, "worth_mapping", lambda *_: True)
    for chunk in (512, 5000, None):
        _, got = run(source, tmp_path / f"out{chunk}", chunk, engine="gather")
        assert got == reference


def test_a_mapped_source_that_is_cut_short_is_an_error(tmp_path, monkeypatch):
    source = sorted_tfrecords(tmp_path / "in", 2, 3000)
    monkeypatch.setattr(repack_module, "worth_mapping", lambda *_: True)
    populated = mapped_module._populate
    monkeypatch.setattr(mapped_module, "_populate", lambda made: (populated(made), cut(source)))
    with pytest.raises(DataError, match="input"):
        run(source, tmp_path / "out", engine="gather")
    assert not (tmp_path / "out").exists()


def cut(source):
    for path in source.iterdir():
        os.truncate(path, 100)


def test_the_engine_is_chosen_by_cost(tmp_path):
    """Small samples that do not fit into --memory go through buckets, others are read where they lie."""
    source = sorted_tfrecords(tmp_path / "in", 2, 50_000, 500)
    small, _ = run(source, tmp_path / "small", memory=64 << 20, jobs=2)
    large, _ = run(source, tmp_path / "large", memory=1 << 30, jobs=2)
    assert (small.engine, large.engine) == ("bucket", "gather")
    assert content(tmp_path / "small") == content(tmp_path / "large")


@pytest.mark.parametrize("engine", ["gather", "bucket"])
@pytest.mark.parametrize("size", [50, 6 << 20], ids=["small", "streamed"])
def test_a_wrong_length_that_leads_on_is_found_on_the_copy(tmp_path, engine, size):
    """The scan of a repack follows lengths without their checksums: one that swallows the next record, and one whose
    checksum alone is wrong, lead to the end of the file as right ones do."""
    for name in ("swallows", "sum"):
        folder = tmp_path / name
        folder.mkdir()
        write_tfrecord(folder / "a.tfrecord", [bytes([k]) * size for k in range(4 if size > 1000 else 200)])
        place = (16 + size) * (2 if size > 1000 else 100)
        data = bytearray((folder / "a.tfrecord").read_bytes())
        if name == "swallows":
            data[place : place + 8] = (2 * size + 16).to_bytes(8, "little")
        else:
            data[place + 8] ^= 1
        (folder / "a.tfrecord").write_bytes(data)
        for dry_run in (False, True):
            with pytest.raises(DataError, match="length checksum") as caught:
                options = RepackOptions(shards=2, engine=engine, memory=64 << 20, jobs=1)
                repack([str(folder)], str(tmp_path / "out"), options, dry_run=dry_run)
            assert caught.value.offset == place
            assert not (tmp_path / "out").exists()
