"""Laws 1 to 3 for every pair of formats and every engine, fields renamed and numbers converted on the way."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tfrecord import example_pb2

from shardtool.disk.columns import Store
from shardtool.disk.engines import ENGINES
from shardtool.disk.engines.framers import FRAMERS
from shardtool.jobs import lay_out as lay_out_module
from shardtool.jobs import repack as repack_module
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.scan import scan
from shardtool.jobs.verify import VerifyOptions, verify
from tests.makers import content, read_tar, read_tfrecord, write_tar, write_tfrecord

ENGINE = pytest.mark.parametrize("engine", sorted(ENGINES))
PAIR = pytest.mark.parametrize("pair", [pair for pair in sorted(FRAMERS) if pair[0] != "folder"], ids="-".join)
OPTIONS = {
    ("tar", "tar"): {"rename": {"jpg": "png"}, "drop": ("txt",)},
    ("tar", "tfrecord"): {"rename": {"jpg": "image/encoded"}, "drop": ("txt",), "fields": {"cls": "int64"}},
    ("tfrecord", "tar"): {"rename": {"jpg": "png"}, "drop": ("txt",)},
    ("tfrecord", "tfrecord"): {"rename": {"jpg": "png"}, "drop": ("txt",)},
}


def samples(count, size=300):
    """(key, {field: payload}) with an image, a number and a text, by their number."""
    for k in range(count):
        image = bytes([k % 256]) * (size * (k % 4))
        yield f"d/{k:03}", {"cls": b"%d" % (k * k - 50), "jpg": image, "txt": b"t" * (k % 5)}


def make(folder, format, rows, files=3):
    rows = list(rows)
    for f in range(files):
        some = rows[f * len(rows) // files : (f + 1) * len(rows) // files]
        if format == "tar":
            write_tar(folder / f"{f}.tar", [(f"{key}.{name}", data) for key, row in some for name, data in row.items()])
        else:
            write_tfrecord(folder / f"{f}.tfrecord", [encoded(key, row) for key, row in some])
    return folder


def encoded(key, row):
    example = example_pb2.Example()
    features = example.features.feature
    features["__key__"].bytes_list.value.append(key.encode())
    for name, data in row.items():
        if name == "cls":
            features[name].int64_list.value.append(int(data))
        else:
            features[name].bytes_list.value.append(data)
    return example.SerializeToString()


def fields(folder, format):
    """key -> {field: payload} of all shards, numbers as text, read without shardtool."""
    found = {}
    for path in sorted(folder.glob("*.tar" if format == "tar" else "*.tfrecord")):
        if format == "tar":
            for name, data in read_tar(path):
                key, _, field = name.partition(".")
                found.setdefault(key, {})[field] = data
            continue
        for record in read_tfrecord(path):
            features = example_pb2.Example.FromString(record).features.feature
            row = {
                name: b"%d" % f.int64_list.value[0] if f.HasField("int64_list") else f.bytes_list.value[0]
                for name, f in features.items()
            }
            found[row.pop("__key__").decode()] = row
    return found


def run(source, out, chunk=None, **options):
    before = lay_out_module.CHUNK
    lay_out_module.CHUNK = chunk or before
    try:
        return repack([str(source)], str(out), RepackOptions(**{"shards": 4, "seed": 3, "jobs": 1, **options})).manifest
    finally:
        lay_out_module.CHUNK = before


@ENGINE
@PAIR
def test_same_bytes_however_they_move(tmp_path, monkeypatch, engine, pair):
    options = {**OPTIONS[pair], "format": pair[1], "engine": engine}
    source = make(tmp_path / "in", pair[0], samples(50))
    run(source, tmp_path / "reference", **options)
    reference = content(tmp_path / "reference")
    copy = tmp_path / "elsewhere" / "in"
    shutil.copytree(source, copy)
    trials = {
        "jobs": (source, {"jobs": 3}),
        "small buffer": (source, {"chunk": 4096}),
        "buffer smaller than a frame": (source, {"chunk": 512, "jobs": 2}),
        "memory": (source, {"memory": 64 << 20}),
        "elsewhere": (copy, {}),
        "columns in a file": (source, {"jobs": 2}),
        "some columns in a file": (source, {"jobs": 2}),
    }
    if engine == "gather":
        del trials["columns in a file"], trials["some columns in a file"]
    for name, (place, more) in trials.items():
        with monkeypatch.context() as patch:
            if "columns" in name:
                budget = 0 if name.startswith("columns") else 3000
                patch.setattr(repack_module, "Store", lambda _, folder, budget=budget: Store(budget, folder))
                for module, step in (("parsed", 7), ("numbers", 5)):
                    patch.setattr(f"shardtool.jobs.{module}.STEP", step)
                patch.setattr("shardtool.layout.fields.STEP", 6)
                patch.setattr("shardtool.jobs.parsed.LEAST", 2000)
            run(place, tmp_path / f"out, {name}", **{**options, **more})
        assert content(tmp_path / f"out, {name}") == reference, name


@ENGINE
@PAIR
@given(count=st.integers(1, 12), size=st.integers(0, 900), data=st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_samples_in_other_clothes(tmp_path, engine, pair, count, size, data):
    folder = tmp_path / f"{count}-{size}"
    shutil.rmtree(folder, ignore_errors=True)
    options = {**OPTIONS[pair], "format": pair[1], "engine": engine, "shards": data.draw(st.integers(1, count))}
    rows = dict(samples(count, size))
    source = make(folder / "in", pair[0], rows.items(), 1)
    out = folder / "out"
    run(source, out, data.draw(st.sampled_from([512, 2048, 1 << 20])), **options)
    rename, drop = options.get("rename", {}), options.get("drop", ())
    wanted = {
        key: {rename.get(name, name): value for name, value in row.items() if name not in drop}
        for key, row in rows.items()
    }
    assert fields(out, pair[1]) == wanted
    report = verify([str(out)], VerifyOptions(against=(str(source),)))
    assert report.findings == [] and report.against["equal"]
    again = scan([str(out / "manifest.json")]).index
    assert again.samples == count


@ENGINE
@pytest.mark.parametrize("first", ["tar", "tfrecord"])
def test_round_trip(tmp_path, engine, first):
    """Bytes come back as they were; a number too, because text is its member and --field says it is one."""
    second = {"tar": "tfrecord", "tfrecord": "tar"}[first]
    source = make(tmp_path / "in", first, samples(30))
    types = {"fields": {"cls": "int64"}}
    run(source, tmp_path / "there", format=second, engine=engine, **(types if first == "tar" else {}))
    run(tmp_path / "there", tmp_path / "back", format=first, engine=engine, **(types if second == "tar" else {}))
    assert fields(tmp_path / "back", first) == dict(samples(30))


@ENGINE
@PAIR
def test_more_sources_than_descriptors(tmp_path, engine, pair):
    import resource

    source = make(tmp_path / "in", pair[0], samples(90), 90)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # 64 for a process that has only its three; other tests of this one may have left some open
    taken = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (61 + taken, hard))
    try:
        run(source, tmp_path / "out", **OPTIONS[pair], format=pair[1], engine=engine)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(fields(tmp_path / "out", pair[1])) == 90


@ENGINE
@PAIR
def test_a_second_run_goes_on(tmp_path, engine, pair):
    """Shards that a run had finished stay, the others come out as they would have."""
    options = {**OPTIONS[pair], "format": pair[1], "engine": engine}
    source = make(tmp_path / "in", pair[0], samples(40))
    run(source, tmp_path / "reference", **options)
    from shardtool.disk import writer

    finish, done = writer.Ended.finish, []

    def dies(self):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return finish(self)

    writer.Ended.finish = dies
    try:
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out", **options)
    finally:
        writer.Ended.finish = finish
    assert not os.path.exists(tmp_path / "out" / "manifest.json")
    run(source, tmp_path / "out", **options)
    assert content(tmp_path / "out") == content(tmp_path / "reference")
