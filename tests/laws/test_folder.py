"""Law 1 to 3 for folders of sample files: the same bytes wherever they lie and however they move, nothing lost."""

import os
import random
import shutil
import subprocess

import pytest
from tfrecord.example_pb2 import Example

from shardtool.disk.engines import ENGINES
from shardtool.disk.sources import SourceOptions
from shardtool.jobs import lay_out as lay_out_module
from shardtool.jobs import repack as repack_module
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.order import Order
from tests.makers import content, read_tar, read_tfrecord

ENGINE = pytest.mark.parametrize("engine", sorted(ENGINES))
LABELS = pytest.mark.parametrize("label_from", [None, "dir"])


def files():
    """Samples of one to three fields, payloads of none to 9,000 bytes."""
    draw = random.Random(5)
    return {
        f"{kind}/{'deep/' * (k % 3)}{k:03}.{field}": draw.randbytes(draw.choice([0, 1, 511, 512, 513, 2000, 9000]))
        for kind in ("ant", "a-b", "z") for k in range(25)
        for field in ("jpg", "json", "s.png")[: 1 + k % 3]
    }  # fmt: skip


def write(root, order):
    made = files()
    for name in order(sorted(made)):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made[name])
    return root


def run(source, out, label_from, chunk=None, **options):
    before = lay_out_module.CHUNK
    lay_out_module.CHUNK = chunk or before
    try:
        options = RepackOptions(
            **{"shards": 5, "seed": 3, "jobs": 1, **options}, source=SourceOptions(label_from=label_from)
        )
        result = repack([str(source)], str(out), options)
    finally:
        lay_out_module.CHUNK = before
    return result, content(out)


@ENGINE
@LABELS
def test_same_bytes_however_they_move(tmp_path, monkeypatch, engine, label_from):
    source = write(tmp_path / "in", list)
    result, reference = run(source, tmp_path / "reference", label_from, engine=engine)
    # made in another order, in a folder of another name, behind a link, of links
    other = write(tmp_path / "far" / "away", lambda names: random.Random(1).sample(names, len(names)))
    os.symlink(other, tmp_path / "link")
    shutil.copytree(source, tmp_path / "links", copy_function=os.symlink)
    places = {
        "elsewhere": (other, {}), "by a link": (tmp_path / "link", {}), "of links": (tmp_path / "links", {}),
        "jobs": (source, {"jobs": 3}), "memory": (source, {"memory": 64 << 20}),
        "small buffer": (source, {"chunk": 4096}), "buffer smaller than a frame": (source, {"chunk": 512, "jobs": 2}),
    }  # fmt: skip
    for name, (place, options) in places.items():
        before = os.umask(0o077)
        try:
            _, got = run(place, tmp_path / f"out, {name}", label_from, engine=engine, **options)
        finally:
            os.umask(before)
        assert got == reference, name
    # broken off after the second shard
    real, done = repack_module.Journal.write_receipt, []

    def write_receipt(journal, receipt):
        real(journal, receipt)
        done.append(receipt)
        if len(done) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(repack_module.Journal, "write_receipt", write_receipt)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "broken", label_from, engine=engine)
    again, got = run(source, tmp_path / "broken", label_from, engine=engine)
    assert got == reference and again.resumed_shards == 2 and result.resumed_shards == 0


@ENGINE
def test_the_same_shards_as_from_a_tar_of_the_folder(tmp_path, engine):
    source = write(tmp_path / "in", list)
    result, reference = run(source, tmp_path / "out", None, engine=engine)
    (tmp_path / "tar").mkdir()
    # GNU tar sorts by path, the folder is read by key: here that is the same
    names = sorted(files(), key=lambda name: os.fsencode(name).replace(b".", b"\0", 1))
    subprocess.run(["tar", "cf", tmp_path / "tar" / "x.tar", "-C", source, *names], check=True)
    _, got = run(tmp_path / "tar", tmp_path / "from tar", None, engine=engine)
    for receipt in result.manifest.shards:
        assert got[receipt.name] == reference[receipt.name]
        assert got[receipt.index] == reference[receipt.index]


@ENGINE
@LABELS
def test_order_by_formula_and_nothing_lost(tmp_path, engine, label_from):
    source, made = write(tmp_path / "in", list), files()
    result, _ = run(source, tmp_path / "out", label_from, engine=engine)
    got = [member for r in result.manifest.shards for member in read_tar(tmp_path / "out" / r.name)]
    assert {name: payload for name, payload in got if not name.endswith(".cls")} == made
    assert len(got) == len(made) + (75 if label_from else 0)
    keys = sorted({name[: name.index(".")] for name in made}, key=os.fsencode)
    delivered = list(dict.fromkeys(name[: name.index(".")] for name, _ in got))
    assert delivered == [keys[i] for i in Order(75, 3).whole()]
    if label_from:
        classes = ["a-b", "ant", "z"]
        assert all(classes[int(p)] == n.split("/")[0] for n, p in got if n.endswith(".cls"))


@ENGINE
@pytest.mark.parametrize("format", ["tar", "tfrecord"])
def test_fields_left_out_and_renamed(tmp_path, monkeypatch, engine, format):
    """Each payload stays with its sample when parts before it are left out; and --against sees it."""
    monkeypatch.setattr("shardtool.jobs.compare.FOLDER_STEP", 7)
    for k in range(30):
        for field in ("a", "b", "c", "d"):
            (tmp_path / "in").mkdir(exist_ok=True)
            (tmp_path / "in" / f"{k:02}.{field}").write_bytes(f"{field}{k}".encode())
    options = RepackOptions(shards=2, drop=("b",), rename={"d": "_"}, format=format, engine=engine)
    made = repack([str(tmp_path / "in")], str(tmp_path / "out"), options).manifest
    found = {}
    for receipt in made.shards:
        path = tmp_path / "out" / receipt.name
        if format == "tar":
            found.update(read_tar(path))
            continue
        for record in read_tfrecord(path):
            row = {n: f.bytes_list.value[0] for n, f in Example.FromString(record).features.feature.items()}
            found.update({f"{row['__key__'].decode()}.{name}": data for name, data in row.items() if name != "__key__"})
    assert found == {f"{k:02}.{n}": f"{f}{k}".encode() for k in range(30) for f, n in ("aa", "cc", "d_")}
    against = VerifyOptions(against=(str(tmp_path / "in"),), jobs=2)
    report = verify([str(tmp_path / "out")], against)
    assert report.against["equal"] and not report.findings
    (tmp_path / "in" / "07.c").write_bytes(b"other")
    report = verify([str(tmp_path / "out")], against)
    assert report.against["missing"] == report.against["extra"] == 1
