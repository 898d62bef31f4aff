"""Samples by number: the bytes that were stored, in few reads, and errors instead of wrong bytes."""

import json
import os
import pathlib
import pickle
import shutil
import sys

import numpy as np
import pytest

from shardtool import RepackOptions, repack, write_manifest
from shardtool.base.errors import DataError, UsageError
from shardtool.disk import indexfile
from shardtool.disk import samples as module
from shardtool.disk.mapping import mapped
from shardtool.disk.samples import SampleReader, Stored

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import makers


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """rec, tar: repacked; foreign: tars of others with a manifest; each with its samples in stored order, read by
    code that shares nothing with ours."""
    work = tmp_path_factory.mktemp("samples")
    makers.sorted_tfrecords(work / "raw-rec", 3, 40, 300)
    makers.sorted_tars(work / "raw-tar", 3, 20, 900)
    repack([str(work / "raw-rec")], str(work / "rec"), RepackOptions(shards=4, jobs=1))
    repack([str(work / "raw-tar")], str(work / "tar"), RepackOptions(shards=4, jobs=1))
    shutil.copytree(work / "raw-tar", work / "foreign")
    sources = sorted(str(p) for p in (work / "foreign").glob("*.tar"))
    write_manifest(sources, str(work / "foreign" / "manifest.json"))
    return work


def truth(folder):
    """Samples in stored order."""
    found = []
    for shard in json.loads((folder / "manifest.json").read_text())["shards"]:
        path = folder / shard["name"]
        if path.suffix == ".tfrecord":
            found += [{"record": payload} for payload in makers.read_tfrecord(path)]
            continue
        for name, payload in makers.read_tar(path):
            key, _, ext = name.partition(".")
            if not found or found[-1]["__key__"] != key:
                found.append({"__key__": key})
            found[-1][ext] = payload
    return found


@pytest.mark.parametrize("kind", ["rec", "tar", "foreign"])
@pytest.mark.parametrize("how", ["stored", "shuffled", "twice", "few", "none"])
def test_bytes_are_those_stored(made, kind, how, monkeypatch):
    monkeypatch.setattr(module, "OPEN", 2)  # descriptors come and go, and so do maps
    monkeypatch.setattr(module, "MAPPED", 3)
    known = truth(made / kind)
    reader = SampleReader(Stored.open(made / kind))
    ids = {
        "stored": np.arange(len(known)), "shuffled": np.random.default_rng(1).permutation(len(known)),
        "twice": np.array([3, 3, 50, 3, 0]), "few": np.array([len(known) - 1, 7]), "none": np.zeros(0, np.int64),
    }[how]  # fmt: skip
    assert list(reader.fetch(ids)) == [known[i] for i in ids.tolist()]
    reader.close()


def test_few_reads(made):
    """One read a shard for everything, one for a stretch."""
    for kind in ("rec", "tar"):
        stored = Stored.open(made / kind)
        reader = SampleReader(stored)
        held = reader.fetch(np.arange(stored.manifest.samples)).held
        assert reader.reads == 4
        assert held <= stored.manifest.bytes
        reader.fetch(np.arange(3, 9)[::-1])
        assert reader.reads == 5


def test_large_runs_are_cut_and_gaps_left_out(made, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2000)
    monkeypatch.setattr(module, "GAP", 100)
    for kind in ("rec", "tar"):
        known = truth(made / kind)
        reader = SampleReader(Stored.open(made / kind))
        assert list(reader.fetch(np.arange(len(known)))) == known
        assert reader.reads > 10
        fetched = reader.fetch(np.arange(0, len(known), 5))
        assert list(fetched) == known[::5]
        assert fetched.held < 0.4 * reader.stored.manifest.bytes


def test_what_is_not_in_memory_is_asked_for_at_once(made, monkeypatch):
    """Bytes are the same; what is asked for is what is read afterwards."""
    monkeypatch.setattr(module, "GAP", 0)
    asked, advise = [], os.posix_fadvise

    def seen(fd, at, n, what):
        asked.append((n, what))
        advise(fd, at, n, what)

    monkeypatch.setattr(os, "posix_fadvise", seen)
    for kind in ("rec", "tar"):
        known = truth(made / kind)
        ids = np.arange(0, len(known), 3)
        for cached in (True, False):
            reader = SampleReader(Stored.open(made / kind))
            monkeypatch.setattr(reader, "_cached", lambda *_, told=cached: told)
            asked.clear()
            assert list(reader.fetch(ids)) == known[::3]
            assert len(asked) == (0 if cached else reader.reads)
            assert all(n > 0 and what == os.POSIX_FADV_WILLNEED for n, what in asked)


def test_what_was_just_written_is_in_memory(made):
    reader = SampleReader(Stored.open(made / "rec"))
    reader.fetch(np.arange(reader.samples))
    assert not module._NO_WAIT or reader._cached([0] * 16, [0] * 16)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_map_costs_no_descriptor_and_goes_with_its_last_view(tmp_path):
    file = tmp_path / "mapped-file"
    file.write_bytes(bytes(range(256)) * 100)
    before = descriptors()
    maps = [mapped(os.fsencode(file)) for _ in range(20)]
    assert descriptors() == before
    view = maps[3].view(np.uint16)[7:]
    del maps
    assert view[0] == 15 << 8 | 14
    assert pathlib.Path("/proc/self/maps").read_text().count("mapped-file") == 1
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    del view
    assert "mapped-file" not in pathlib.Path("/proc/self/maps").read_text()
    file.write_bytes(b"")
    assert len(mapped(os.fsencode(file))) == 0
    with pytest.raises(FileNotFoundError):
        mapped(os.fsencode(tmp_path / "none"))


def test_more_shards_than_descriptors(tmp_path, monkeypatch):
    """A full shuffle asks all shards for samples in every window: few descriptors, and every index is checked once."""
    makers.sorted_tfrecords(tmp_path / "raw", 2, 60, 50)
    repack([str(tmp_path / "raw")], str(tmp_path / "out"), RepackOptions(shards=40, jobs=1))
    known = truth(tmp_path / "out")
    monkeypatch.setattr(module, "OPEN", 4)
    monkeypatch.setattr(module, "MAPPED", 8)
    digests, real = [], indexfile._digest
    monkeypatch.setattr(indexfile, "_digest", lambda *given: digests.append(given) or real(*given))
    before = descriptors()
    reader = SampleReader(Stored.open(tmp_path / "out"))
    order = np.random.default_rng(2).permutation(120)
    for a in range(0, 120, 30):
        assert list(reader.fetch(order[a : a + 30])) == [known[i] for i in order[a : a + 30].tolist()]
        assert descriptors() <= before + 4
    assert len(digests) == 40
    reader.close()
    assert descriptors() == before


def test_only_the_fields_that_are_asked_for(made, monkeypatch):
    monkeypatch.setattr(module, "GAP", 0)
    stored = Stored.open(made / "tar")
    known = truth(made / "tar")
    reader = SampleReader(stored, ["cls"])
    fetched = reader.fetch(np.arange(len(known)))
    assert fetched.held == len(known)  # of one byte each
    assert list(fetched) == [{"cls": sample["cls"]} for sample in known]
    keys = SampleReader(stored, ["__key__"]).fetch(np.arange(5))
    assert list(keys) == [{"__key__": sample["__key__"]} for sample in known[:5]]
    with pytest.raises(UsageError, match="no sample has a field 'png'") as caught:
        SampleReader(stored, ["png"])
    assert "cls, jpg" in str(caught.value)


def test_a_reader_travels_to_other_processes(made):
    reader = SampleReader(Stored.open(made / "rec"))
    first = list(reader.fetch(np.array([5])))
    assert list(pickle.loads(pickle.dumps(reader)).fetch(np.array([5]))) == first


# -- what does not match ----------------------------------------------------------------------------------------------


@pytest.fixture
def copy(made, tmp_path):
    def of(kind):
        shutil.copytree(made / kind, tmp_path / kind)
        return tmp_path / kind

    return of


def first_shard(folder):
    return folder / json.loads((folder / "manifest.json").read_text())["shards"][0]["name"]


def edit(folder, change):
    facts = json.loads((folder / "manifest.json").read_text())
    change(facts)
    (folder / "manifest.json").write_text(json.dumps(facts))


def fails(folder, *says, check=None, opens=False):
    with pytest.raises(DataError) as caught:
        stored = Stored.open(folder)
        assert not opens, "it should have been noticed at once"
        SampleReader(stored, check=check).fetch(np.arange(stored.manifest.samples))
    for words in says:
        assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["rec", "tar"])
def test_a_manifest_that_does_not_match(copy, kind):
    folder = copy(kind)
    shard = first_shard(folder)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    fails(folder, "another size", shard.name, '"bytes" of shards[0]', opens=True)
    shard.unlink()
    fails(folder, "is missing", shard.name, "shards[0]", opens=True)
    shard.write_bytes(whole)
    index = folder / "index" / f"{shard.name}.index"
    kept = index.read_bytes()
    index.unlink()
    fails(folder, "is missing", index.name, opens=True)
    for cut in (0, 10, 60, len(kept) // 2, len(kept) - 1):
        index.write_bytes(kept[:cut])
        fails(folder, "index of a shard is damaged", index.name)
    for at in range(20, len(kept), len(kept) // 13):
        index.write_bytes(kept[:at] + bytes([kept[at] ^ 4]) + kept[at + 1 :])
        fails(folder, "index of a shard is damaged", index.name)
    other = sorted((folder / "index").iterdir())[1]
    index.write_bytes(other.read_bytes())
    fails(folder, f"not of '{shard.name}'")


def test_a_manifest_that_is_none(copy, tmp_path):
    fails(tmp_path / "nowhere", "no manifest")
    folder = copy("rec")
    edit(folder, lambda f: f["shardtool"].update(schema=99))
    fails(folder, "schema 99", "manifest.json")
    (folder / "manifest.json").write_text("{")
    fails(folder, "no JSON")


def test_samples_that_are_not_those_of_the_index(copy):
    folder = copy("rec")
    edit(folder, lambda f: (f["shards"][0].update(samples=f["shards"][0]["samples"] + 1), f.update(samples=121)))
    fails(folder, "does not belong", "the manifest says 31")


def test_another_file_of_the_same_size(copy):
    folder = copy("rec")
    shard = first_shard(folder)
    data = bytearray(shard.read_bytes())
    data[0] ^= 1
    shard.write_bytes(data)
    fails(folder, "not where the index says", shard.name, "byte offset 0")


@pytest.mark.parametrize("at", ["payload", "checksum of the length", "checksum of the payload"])
@pytest.mark.parametrize("check", ["crc", "digest"])
def test_checks_find_damaged_payload(copy, check, at):
    folder = copy("rec")
    shard = first_shard(folder)
    data = bytearray(shard.read_bytes())
    size = int.from_bytes(data[:8], "little")
    data[{"payload": 20, "checksum of the length": 8, "checksum of the payload": 12 + size}[at]] ^= 1
    shard.write_bytes(data)
    fails(folder, "is damaged", shard.name, check=check)
    assert sum(1 for _ in SampleReader(Stored.open(folder)).fetch(np.arange(120))) == 120  # unasked, it is not seen


def test_checks_of_a_tar(copy):
    folder = copy("tar")
    with pytest.raises(UsageError, match="no checksum of its payload"):
        SampleReader(Stored.open(folder), check="crc")
    with pytest.raises(UsageError, match="none of crc, digest"):
        SampleReader(Stored.open(folder), check="md5")
    SampleReader(Stored.open(folder), check="digest").fetch(np.arange(60))
    shard = first_shard(folder)
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)
    fails(folder, "a shard is damaged", shard.name, '"digest"', check="digest")


def test_cut_short_while_it_is_open(copy):
    folder = copy("rec")
    stored = Stored.open(folder)
    reader = SampleReader(stored)
    reader.fetch(np.array([0]))
    shard = first_shard(folder)
    os.truncate(shard, stored.manifest.shards[0].bytes - 100)
    with pytest.raises(DataError, match="cut short"):
        reader.fetch(np.array([stored.manifest.shards[0].samples - 1]))
