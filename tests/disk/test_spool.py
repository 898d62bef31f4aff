"""Compressed sources, from SRC to the manifest: with a spool, and without one."""

import bz2
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
import zlib

import pytest

from shardtool.base.errors import DataError, HostError, UsageError
from shardtool.base.reporting import Reporter
from shardtool.disk import decode
from shardtool.disk.blocks import Blocks
from shardtool.disk.content import content_of, scan_content
from shardtool.disk.packed import PASSES, Packed
from shardtool.disk.sources import SourceOptions, resolve
from shardtool.disk.spool import Spool
from shardtool.jobs.compare import Side, multiset
from shardtool.jobs.inspect import InspectOptions, inspect
from shardtool.jobs.manifest import write_manifest
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.scan import scan
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.rules import Rules
from tests.crash.test_kill import in_child
from tests.makers import content, frame, read_tfrecord, sorted_tars, sorted_tfrecords, write_tar

ENCODE = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "zlib": zlib.compress,
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lzma.compress,
    "zstd": decode.zstd().compress,
}
KINDS = sorted(ENCODE)
MAKE = {"tfrecord": sorted_tfrecords, "tar": sorted_tars}


def packed(folder, kind, keep_every=0):
    """Compress the files of a folder in place, under the same names (all but every keep_every-th)."""
    for number, path in enumerate(sorted(folder.iterdir())):
        if not keep_every or number % keep_every:
            path.write_bytes(ENCODE[kind](path.read_bytes()))
    return folder


def shards(out):
    return {name: data for name, data in content(out).items() if name.startswith("t-")}


def options(**more):
    return RepackOptions(**{"shards": 3, "seed": 7, "name": "t", "jobs": 1, **more})


# -- the same output as from the content ---------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", ["tfrecord", "tar"])
def test_repack_gives_the_shards_of_the_content(tmp_path, format, kind, jobs):
    plain = MAKE[format](tmp_path / "plain")
    source = packed(MAKE[format](tmp_path / "packed"), kind, keep_every=3)
    before = content(source)
    repack([str(plain)], str(tmp_path / "a"), options())
    result = repack([str(source)], str(tmp_path / "b"), options(jobs=jobs))
    assert shards(tmp_path / "a") == shards(tmp_path / "b") and content(source) == before
    assert not (tmp_path / "b/.shardtool").exists()
    listed = json.loads((tmp_path / "b/manifest.json").read_text())["sources"]
    assert [(one["name"], one["bytes"], one["format"]) for one in listed] == [
        (name, len(data), format) for name, data in sorted(before.items())
    ]
    assert repack([str(source)], str(tmp_path / "b"), options()).done == "nothing to do"
    assert result.manifest.samples == 60


def test_dry_run_inspect_and_against_store_nothing(tmp_path, monkeypatch):
    empty = tmp_path / "tmp"
    empty.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(empty))
    plain, source = sorted_tars(tmp_path / "plain"), packed(sorted_tars(tmp_path / "packed"), "zstd")
    result = repack([str(source)], str(tmp_path / "out"), options(), dry_run=True)
    assert result.laid_out.layout.samples == 60 and not (tmp_path / "out").exists()
    found, expected = (inspect([str(folder)], InspectOptions(rules=Rules(label="cls"))) for folder in (source, plain))
    assert found.compression == {"zstd": 3} and found.labels == expected.labels and found.fields == expected.fields
    assert set(found.traps) == set(expected.traps)
    repack([str(plain)], str(tmp_path / "out"), options())
    report = verify([str(tmp_path / "out/manifest.json")], VerifyOptions(against=(str(source),)))
    assert report.against["equal"] and not report.findings_total
    bare = verify([str(source)], VerifyOptions(against=(str(plain),), readers=("webdataset",)))
    assert bare.against["equal"] and any("compressed: it was not opened" in note for note in bare.notes)
    assert not list(empty.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_dry_run_says_how_large_the_spool_will_be(tmp_path, kind):
    plain = sorted_tfrecords(tmp_path / "plain", 4)
    source = packed(sorted_tfrecords(tmp_path / "packed", 4), kind, keep_every=2)
    sizes = [path.stat().st_size for path in sorted(plain.iterdir())]
    dry = repack([str(source)], str(tmp_path / "out"), options(engine="bucket"), dry_run=True)
    wet = repack([str(source)], str(tmp_path / "out"), options(engine="bucket"))
    assert dry.cost == wet.cost and dry.cost.spool_bytes == sizes[1] + sizes[3]
    assert dry.cost.temporary_bytes == dry.cost.spool_bytes + sum(sizes)
    assert all(cost.spool_bytes == dry.cost.spool_bytes for cost, _ in dry.laid_out.costs)
    assert repack([str(plain)], str(tmp_path / "x"), options(), dry_run=True).cost.spool_bytes == 0


def test_fields_of_compressed_records(tmp_path):
    feature = b"\x0a\x01x\x12\x05\x0a\x03\x0a\x01y"  # "x": bytes list of b"y"
    example = bytes([0x0A, len(feature) + 2, 0x0A, len(feature)]) + feature
    (tmp_path / "a.tfrecord").write_bytes(ENCODE["xz"](frame(example) * 5))
    found = inspect([str(tmp_path)])
    assert found.samples == 5 and found.fields["x"]["type"] == "bytes" and found.fields["x"]["samples"] == 5


def test_a_manifest_needs_shards_that_can_be_read_by_position(tmp_path):
    source = packed(sorted_tars(tmp_path / "in"), "gzip")
    with pytest.raises(UsageError, match="a manifest lists shards that can be read by position, this is gzip data"):
        write_manifest([str(source)], str(source / "manifest.json"))
    assert not (source / "manifest.json").exists()


# -- what a file is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_content_decides(tmp_path, kind):
    """Names say nothing about compression; what the content is no shard of is said."""
    (tmp_path / "a.tar").write_bytes(ENCODE[kind](frame(b"x") * 3))
    (one,) = resolve([str(tmp_path / "a.tar")]).files
    assert (one.format, one.compression, one.size) == ("tfrecord", kind, (tmp_path / "a.tar").stat().st_size)
    assert one.limit == 100 * one.size + (1 << 30)
    assert resolve([str(tmp_path)], SourceOptions(spool_limit=5)).files[0].limit == 5
    with pytest.raises(DataError, match="not a tar archive, but a TFRecord file"):
        resolve([str(tmp_path / "a.tar")], SourceOptions(from_="tar"))
    (tmp_path / "a.tar").write_bytes(ENCODE[kind](b'{"no": "shard"}'))
    words = "not a tar archive, but (a JSON text|zlib-compressed data)"
    with pytest.raises(DataError, match=words):
        resolve([str(tmp_path / "a.tar")])
    (tmp_path / "a.tar").write_bytes(ENCODE[kind](ENCODE["gzip"](frame(b"x"))))
    with pytest.raises(DataError, match=r"not a tar archive, but (gzip|zlib)-compressed data"):
        resolve([str(tmp_path / "a.tar")])


@pytest.mark.parametrize("kind", KINDS)
def test_empty_content_takes_the_kind_of_the_name(tmp_path, kind):
    sorted_tfrecords(tmp_path / "in", files=1)
    (tmp_path / "in/z.tfrecord.gz").write_bytes(ENCODE[kind](b""))
    found = scan([str(tmp_path / "in")])
    assert [source.samples for source in found.index.sources] == [20, 0]
    assert any("no records (0 bytes)" in text for text in found.findings.warnings)
    write_tar(tmp_path / "e/a.tar", [("a.cls", b"1")])
    (tmp_path / "e/b.tar.gz").write_bytes(ENCODE[kind](b""))
    with pytest.raises(DataError, match="the archive is empty"):
        scan([str(tmp_path / "e")])


def test_files_of_a_folder_that_hold_no_shard_are_ignored(tmp_path):
    sorted_tars(tmp_path / "in", files=1)
    (tmp_path / "in/words.gz").write_bytes(ENCODE["gzip"](b"some words"))
    (tmp_path / "in/cut.gz").write_bytes(ENCODE["gzip"](b"some words" * 99)[:14])
    (tmp_path / "in/shard").write_bytes(ENCODE["bz2"]((tmp_path / "in/train-000000.tar").read_bytes()))
    inputs = resolve([str(tmp_path / "in")])
    assert [one.name for one in inputs.files] == [b"shard", b"train-000000.tar"]
    assert inputs.findings.ignored["files"] == 2


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", ["tfrecord", "tar"])
def test_damage_stops_the_run_and_leaves_nothing(tmp_path, format, kind):
    source = packed(MAKE[format](tmp_path / "in"), kind)
    victim = sorted(source.iterdir())[1]
    whole = victim.read_bytes()
    flipped = whole[:-2] + bytes([whole[-2] ^ 1, whole[-1]])
    for stream in (whole[:-1], whole[: len(whole) // 2], whole + b"junk", flipped):
        victim.write_bytes(stream)
        for jobs in (1, 2):
            with pytest.raises(DataError) as caught:
                repack([str(source)], str(tmp_path / "out"), options(jobs=jobs))
            error = caught.value
            assert os.path.basename(os.fsdecode(error.file)) == victim.name and error.offset is not None
            assert any(word in f"{error.what} {error.why}" for word in ("truncated", "corrupt", "checksum"))
            assert not (tmp_path / "out").exists()
        with pytest.raises(DataError):
            repack([str(source)], str(tmp_path / "out"), options(), dry_run=True)


SKIP = Rules(on_corrupt="skip")


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_truncated_stream_the_samples_before_the_end_are_kept(tmp_path, kind):
    data = b"".join(frame(os.urandom(1000)) for _ in range(1200))
    folder = tmp_path / "in"
    folder.mkdir()
    stream = ENCODE[kind](data)
    (folder / "a.tfrecord").write_bytes(stream[: len(stream) * 2 // 3])
    found = scan([str(folder)], rules=SKIP)
    assert 500 < found.index.samples < 801 and found.findings.dropped["files_damaged"] == 1
    assert "truncated" in found.findings.warnings[0] and "a.tfrecord" in found.findings.warnings[0]
    result = repack([str(folder)], str(tmp_path / "out"), options(shards=1, order="source", rules=SKIP))
    assert result.manifest.dropped["files_damaged"] == 1 and result.manifest.samples == found.index.samples
    (shard,) = (tmp_path / "out").glob("t-*")
    assert data.startswith(shard.read_bytes()) and len(read_tfrecord(shard)) == found.index.samples


@pytest.mark.parametrize("on_corrupt", ["skip", "resync"])
@pytest.mark.parametrize("format", ["tfrecord", "tar"])
def test_behind_a_wrong_checksum_only_records_are_believed(tmp_path, format, on_corrupt):
    """A record has its own checksum; members of a tar have none, so only whole gzip members count."""
    source = MAKE[format](tmp_path / "in", files=1, size=3000)
    (path,) = source.iterdir()
    data = path.read_bytes()
    half = (len(data) // 1024) * 512
    first, second = ENCODE["gzip"](data[:half]), bytearray(ENCODE["gzip"](data[half:]))
    second[-7] ^= 1
    path.write_bytes(first + second)
    rules = Rules(on_corrupt=on_corrupt)
    result = repack([str(source)], str(tmp_path / "out"), options(rules=rules))
    dry = repack([str(source)], str(tmp_path / "x"), options(rules=rules), dry_run=True)
    assert dry.laid_out.layout.samples == result.manifest.samples
    if format == "tfrecord":
        assert result.manifest.samples == 20 and result.manifest.dropped["files_damaged"] == 1
        careless = Rules(on_corrupt=on_corrupt, verify=False)
        assert scan([str(source)], rules=careless).index.samples in (9, 10)
    else:
        assert 7 < result.manifest.samples < 12 and result.manifest.dropped["archives_damaged"] == 1
    assert any("CRC-32" in text for text in result.warnings)


def test_nothing_intact_in_one_of_two(tmp_path):
    source = packed(sorted_tars(tmp_path / "in", files=2), "gzip")
    victim = sorted(source.iterdir())[0]
    stream = bytearray(victim.read_bytes())
    stream[-6] ^= 1
    victim.write_bytes(stream)
    result = repack([str(source)], str(tmp_path / "out"), options(rules=SKIP))
    assert result.manifest.samples == 20 and result.manifest.dropped["archives_damaged"] == 1
    victim.write_bytes(stream[:9])  # its head says nothing, its name says tar
    result = repack([str(source)], str(tmp_path / "out2"), options(rules=SKIP))
    assert result.manifest.samples == 20 and result.manifest.dropped["archives_damaged"] == 1


# -- bounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused_naming_the_flag(tmp_path, kind):
    (tmp_path / "in").mkdir()
    write_tar(tmp_path / "b.tar", [("a.bin", bytes(9 << 20))])
    (tmp_path / "in/a.tar").write_bytes(ENCODE[kind]((tmp_path / "b.tar").read_bytes()))
    small = SourceOptions(spool_limit=3 << 20)
    for dry in (False, True):
        for rules in (Rules(), SKIP):
            with pytest.raises(DataError, match="more than 3,145,728 bytes") as caught:
                repack([str(tmp_path / "in")], str(tmp_path / "out"), options(source=small, rules=rules), dry_run=dry)
            assert "--spool-limit" in caught.value.remedy and not (tmp_path / "out").exists()
    large = SourceOptions(spool_limit=10 << 20)
    assert repack([str(tmp_path / "in")], str(tmp_path / "out"), options(source=large)).manifest.samples == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_spool_that_does_not_fit(tmp_path, kind):
    """gzip and zstd tell their size before anything is written; the others meet the margin on the way."""
    source = packed(sorted_tars(tmp_path / "in", size=50_000), kind)
    inputs = resolve([str(source)])
    work = tmp_path / "work"
    work.mkdir()
    found = os.statvfs(work)
    spool = Spool(bytes(work), margin=found.f_bavail * found.f_frsize - 100_000)
    advanced = []
    with pytest.raises(HostError, match="no room for the decompressed sources") as caught:
        spool.fill(inputs.files, Rules(), 1, advanced.append)
    assert caught.value.status == 5 and ("at least" in caught.value.why) == (kind in ("gzip", "zstd"))
    assert not os.listdir(spool.folder)


# -- a run that is started again -----------------------------------------------------------------------------


def test_what_is_in_the_spool_is_not_decoded_again(tmp_path):
    source = packed(sorted_tfrecords(tmp_path / "in"), "gzip")
    work = tmp_path / "work"
    os.makedirs(work / "spool.another-boot")
    spool = Spool(bytes(work))
    files = resolve([str(source)]).files
    first = spool.fill(files, Rules(), 2, lambda _: None)
    assert os.listdir(work) == [os.path.basename(os.fsdecode(spool.folder))]
    there = {one.path: os.stat(one.path).st_ino for one in first}
    (work / os.path.basename(os.fsdecode(spool.folder)) / "other.tmp").write_bytes(b"half")
    again = spool.fill(files, Rules(), 1, lambda _: None)
    assert again == first and {one.path: os.stat(one.path).st_ino for one in again} == there
    assert len(os.listdir(spool.folder)) == 3
    os.utime(source / "part-00001-of-00003.tfrecord")  # another file, for all we know
    changed = spool.fill(resolve([str(source)]).files, Rules(), 1, lambda _: None)
    assert [a == b for a, b in zip(first, changed, strict=True)] == [True, False, True]
    assert len(os.listdir(spool.folder)) == 3
    spool.remove()
    assert not os.listdir(work)


def test_damage_is_remembered_by_the_spool(tmp_path):
    source = packed(sorted_tfrecords(tmp_path / "in"), "gzip")
    victim = source / "part-00001-of-00003.tfrecord"
    victim.write_bytes(victim.read_bytes()[:-9])
    files = resolve([str(source)]).files
    spool = Spool(bytes(tmp_path))
    first, again = (spool.fill(files, SKIP, 1, lambda _: None) for _ in range(2))
    assert first[1].damage.why == again[1].damage.why and first[0].damage is None
    scans = [scan_content(files[1], one[1], SKIP, check_payload=False) for one in (first, again)]
    direct = scan_content(files[1], content_of(files[1], SKIP), SKIP, check_payload=False)
    for one in scans:
        assert one.samples == direct.samples and one.findings == direct.findings
    with pytest.raises(DataError, match="truncated"):
        spool.fill(files, Rules(), 1, lambda _: None)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_killed_at_every_change(tmp_path, before):
    source = str(packed(sorted_tars(tmp_path / "in", samples=4), "zstd"))
    out = tmp_path / "out"

    def work():
        repack([source], str(out), options(shards=2))

    changes = in_child(work)
    reference = content(out)
    assert changes > 30
    for k in range(changes):
        subprocess.run(["rm", "-rf", str(out)], check=True)
        assert in_child(work, k, before) is None
        work()
        assert content(out) == reference, f"killed at change {k}"


def test_a_process_killed_while_it_decodes(tmp_path):
    """SIGKILL with two workers: what was complete is used, what was not is gone."""
    folder = tmp_path / "in"
    folder.mkdir()
    data = b"".join(frame(os.urandom(50_000)) for _ in range(300))
    for k in range(4):
        (folder / f"{k}.tfrecord").write_bytes(gzip.compress(data, 1))
    repack([str(folder)], str(tmp_path / "whole"), options())
    script = (
        "import sys\nfrom shardtool.jobs.options import RepackOptions\nfrom shardtool.jobs.repack import repack\n"
        "repack([sys.argv[1]], sys.argv[2], RepackOptions(shards=3, seed=7, name='t', jobs=2))\n"
    )
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", script, str(folder), str(out)])
    until = time.monotonic() + 20
    while not list(out.glob(".shardtool/spool.*/*")) and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(out.glob(".shardtool/spool.*/*"))
    assert subprocess.run([sys.executable, "-c", script, str(folder), str(out)]).returncode == 0
    assert shards(out) == shards(tmp_path / "whole") and not (out / ".shardtool").exists()


def test_a_source_that_changes_is_noticed(tmp_path):
    source = packed(sorted_tfrecords(tmp_path / "in"), "gzip")
    files = resolve([str(source)]).files
    os.utime(source / "part-00001-of-00003.tfrecord", (1, 1))
    with pytest.raises(DataError, match="the input changed during the run"):
        Spool(bytes(tmp_path)).fill(files, Rules(), 1, lambda _: None)


# -- content by position -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 9 << 20])
def test_content_at_any_position(tmp_path, size):
    """Forward, backward, in small and large pieces: as the plain file."""
    data = os.urandom(size // 2) + bytes(size - size // 2)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "a.gz").write_bytes(gzip.compress(data, 1))
    path = Packed(bytes(tmp_path / "a.gz"), "gzip", size, None, data if size == 100 else None)
    places = [0, size // 3, size // 3 + 5, size - 40, size // 2, 1, size // 5, 0, size - 60, 7, 3, size // 4, 2]
    with Blocks(path, b"a", 1 << 16) as a, Blocks(bytes(tmp_path / "a"), b"a", 1 << 16) as b:
        assert a.size == b.size == size
        for at in places * 2:
            for count in (1, 50, 70_000):
                assert a.peek(at, count) == b.peek(at, count) == data[at : at + count]
            assert a.window(at) == b.window(at)
        target = memoryview(bytearray(30))
        a.read_into(target, size - 50)
        assert target == data[-50:-20]
    assert len(places) > PASSES


def test_hard_links_in_a_compressed_tar(tmp_path):
    path = tmp_path / "in/a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for k in range(30):
            info = tarfile.TarInfo(f"{k:03}.bin")
            info.size = 200_000
            archive.addfile(info, open("/dev/urandom", "rb"))
            if k:
                link = tarfile.TarInfo(f"{k:03}.cls")
                link.type, link.linkname = tarfile.LNKTYPE, "000.bin"
                archive.addfile(link)
    (tmp_path / "b.tar").write_bytes(gzip.compress(path.read_bytes(), 1))
    sums = [multiset(Side(resolve([str(p)]).files, Rules()), 1, Reporter(), "x") for p in (path, tmp_path / "b.tar")]
    assert sums[0] == sums[1] and sums[0][1] == 30

