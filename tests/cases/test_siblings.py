"""What holds for a case holds for its siblings: the same shards under a compression, and other hostile inputs."""

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tarfile

import pytest
import xxhash

from shardtool.disk.decode import zstd
from tests.cases import judge
from tests.cases.test_cases import RUNS, check_error, id_of, inputs  # noqa: F401 (a fixture)
from tests.disk import tarmaker
from tests.makers import read_tar, sorted_tars, write_tar, write_tfrecord
from tests.runner import shardtool

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACK = [lambda data: gzip.compress(data, 1), lambda data: zstd().compress(data), bz2.compress,
        lambda data: lzma.compress(data, preset=0)]  # fmt: skip
# Compressed already; no shards; what lies beside; or what is said of the compressed file only.
NOT_PACKED = ("gzip", "zstd", "zlib", "lfs", "empty", "junk", "idx-", "rem-", "hash-seed", "label-sorted", "large")
PACKED = [(*run, k) for k, run in enumerate(RUNS) if not any(word in run[0] for word in NOT_PACKED)]


@pytest.mark.parametrize(("case", "flags", "expects", "number"), PACKED, ids=map(id_of, PACKED))
def test_under_compression(inputs, tmp_path, case, flags, expects, number):  # noqa: F811
    source, out = shutil.copytree(inputs / case, tmp_path / "in"), tmp_path / "out"
    for path in source.rglob("*"):
        if path.is_file() and path.stat().st_size:
            path.write_bytes(PACK[number % len(PACK)](path.read_bytes()))
    where = [source]
    if flags.startswith("--input-glob"):
        where, flags = [f"{source}/{flags.split(chr(39))[1]}"], ""
    done = shardtool("repack", *where, "-o", out, "--shards", "3", "--seed", "7", *flags.split())
    if expects[0]["outcome"] == "error":
        check_error(done, expects[0], out)
        return None
    assert done.status == 0, done.err
    failures = []
    for expect in expects:
        try:
            return judge.check(out, expect)
        except AssertionError as error:
            failures.append(error)
    raise failures[0]


# -- hostile input ----------------------------------------------------------------------------------------------


def limited():
    """Room for the interpreter and what is there, and 400 MiB."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (400 << 20), size + (400 << 20)))


def test_control_characters_are_escaped_in_messages(tmp_path):
    evil = "a\x1b]0;owned\x07\r\n/../b.jpg"
    source = write_tar(tmp_path / "in" / "a\x1b[31m.tar", [(evil, b"x")])
    done = shardtool("repack", source.parent, "-o", tmp_path / "out")
    assert done.status == 3
    assert not any(c in done.err for c in "\x1b\x07\r") and "\\x1b" in done.err


def test_many_members_in_a_small_file(tmp_path):
    """200,000 empty members under gzip come to some hundred KiB."""
    head = io.BytesIO()
    with tarfile.open(fileobj=head, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("README"))
    block = head.getvalue()[:512]
    data = block * 200_000 + write_tar(tmp_path / "one.tar", [("k.jpg", b"x")]).read_bytes()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(gzip.compress(data, 1))
    assert (tmp_path / "in" / "a.tar").stat().st_size < 1 << 20
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", "--jobs", "1", "--json", prepare=limited)
    assert done.status == 0, done.err
    assert done.json["ignored"]["no_extension"] == 200_000 and done.json["samples"] == 1


def test_many_empty_gzip_members(tmp_path):
    data = write_tar(tmp_path / "one.tar", [("k.jpg", b"x")]).read_bytes()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(gzip.compress(b"") * 50_000 + gzip.compress(data))
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", "--jobs", "1", "--json", prepare=limited)
    assert done.status == 0 and done.json["samples"] == 1, done.err


def test_a_bomb(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tfrecord").write_bytes(gzip.compress(bytes(64 << 20)))
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", "--spool-limit", "1MiB", prepare=limited)
    assert done.status == 3 and not (tmp_path / "out").exists()


def test_names_that_are_no_text_in_the_c_locale(tmp_path):
    folder = os.path.join(os.fsencode(tmp_path), b"in\xff")
    os.mkdir(folder)
    name = write_tar(tmp_path / "one.tar", [("caf\udce9.jpg", b"x")])
    shutil.copy(name, os.path.join(folder, b"a\xfe.tar"))

    done = subprocess.run(
        [sys.executable, "-m", "shardtool", "repack", folder, "-o", tmp_path / "out"], capture_output=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [(key, fields)] = judge.samples(tmp_path / "out")
    assert key.encode("utf-8", "surrogateescape") == b"caf\xe9" and fields == {"jpg": b"x"}


def test_deep_folders(tmp_path):
    deep = tmp_path / "in" / "/".join(["d"] * 400)
    write_tfrecord(deep / "a.tfrecord", [b"one"])
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "out")
    assert done.status == 0 and judge.records(tmp_path / "out") == [b"one"]
    (deep / "back").symlink_to(tmp_path / "in")
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "again")
    assert done.status == 0 and judge.records(tmp_path / "again") == [b"one"]


@pytest.mark.parametrize("where", ["out", "parent"])
def test_a_folder_that_must_not_be_written(tmp_path, where):
    """As another user than root: an existing OUT, and one that would have to be made."""
    source = sorted_tars(tmp_path / "in", 1, 3)
    parent = tmp_path / "parent"
    parent.mkdir()
    out = parent / "out"
    if where == "out":
        out.mkdir(mode=0o555)
    parent.chmod(0o555)
    tmp_path.chmod(0o755)

    def nobody():
        codecs.lookup("ascii")  # from here on the interpreter's files may be unreadable
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    done = shardtool("repack", source, "-o", out, prepare=nobody)
    assert done.status == 5 and "Permission denied" in done.err and str(parent) in done.err


# -- sparse members larger than anything -------------------------------------------------------------------------


def sparse_of(size):
    """Three samples, one of them sparse: `size` bytes, of which 512 are stored."""
    facts = ((b"GNU.sparse.major", b"0"), (b"GNU.sparse.minor", b"1"), (b"GNU.sparse.name", b"s.bin"))
    extra = tarmaker.pax(*facts, (b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.map", b"0,512"))
    one, two = tarmaker.member(b"a.bin", b"x"), tarmaker.member(b"b.bin", b"y")
    return one + extra + tarmaker.member(b"q.bin", b"z" * 512) + two + tarmaker.END


def old_sparse_of(size):
    number = b"\x80" + size.to_bytes(11, "big")
    head = tarmaker.head(
        b"s.bin", 512, kind=b"S", magic=b"ustar  \0", at_386=b"00000000000\x0000000001000\0", at_483=number
    )
    one, two = tarmaker.member(b"a.bin", b"x"), tarmaker.member(b"b.bin", b"y")
    return one + head + b"z" * 512 + two + tarmaker.END


@pytest.mark.parametrize("make", [sparse_of, old_sparse_of])
@pytest.mark.parametrize("size", [1 << 40, 1 << 52, 1 << 62, (1 << 63) - 1, 1 << 63])
def test_a_sparse_bomb(tmp_path, make, size):
    """Some hundred bytes that would be a terabyte on disk: refused before a byte is written."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(make(size))
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", prepare=limited)
    assert done.status == 3 and "sparse" in done.err and "s" in done.err, done.err
    assert not (tmp_path / "out").exists()
    assert "--spool-limit" in done.err or size > 1 << 52
    if size > 1 << 52:  # damage: what is before it is kept, and with resync what is behind
        command = ["repack", tmp_path / "in", "-o", tmp_path / "out", "--overwrite", "--json", "--on-corrupt"]
        for mode, samples in (("skip", 1), ("resync", 2)):
            done = shardtool(*command, mode, prepare=limited)
            assert done.status == 0 and done.json["samples"] == samples, done.err


def test_a_limit_for_holes(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(sparse_of(5 << 20))
    command = ["repack", tmp_path / "in", "-o", tmp_path / "out", "--shards", "1"]
    refused = shardtool(*command, "--spool-limit", "4MiB")
    assert refused.status == 3 and "s of a.tar" in refused.err and "the limit is 4.00 MiB" in refused.err, refused.err
    assert shardtool(*command, "--spool-limit", "5MiB").status == 0
    assert dict(read_tar(tmp_path / "out" / "shard-000000.tar"))["s.bin"] == b"z" * 512 + bytes((5 << 20) - 512)


def test_many_sparse_members_do_not_overflow(tmp_path):
    """Each below the largest file, together above 2^63."""
    data = b"".join(
        tarmaker.head(
            b"s%05d.bin" % k, 0, kind=b"S", magic=b"ustar  \0", at_483=b"\x80" + (1 << 52).to_bytes(11, "big")
        )
        for k in range(3000)
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(data + tarmaker.END)
    done = shardtool("repack", tmp_path / "in", "-o", tmp_path / "out", prepare=limited)
    assert done.status == 3 and "--spool-limit" in done.err, done.err


# -- manifests that lie ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["name", "index"])
@pytest.mark.parametrize("name", ["shard-000000.tar/x", "x" * 300, "index"])
def test_a_manifest_that_names_what_no_file_can_be_called(tmp_path, what, name):
    """A finding about the manifest, not an error of the disk."""
    out = tmp_path / "out"
    assert shardtool("repack", sorted_tars(tmp_path / "in"), "-o", out, "--shards", "2", "--export", "wids").status == 0
    path = out / "manifest.json"
    facts = json.loads(path.read_text())
    facts["shards"][0][what] = name
    path.write_text(json.dumps(facts, ensure_ascii=True, sort_keys=True, indent=1) + "\n")
    done = shardtool("verify", path, "--json")
    assert done.status == 6 and done.json["findings"], done.err


def test_an_index_with_a_type_that_numpy_would_evaluate(tmp_path):
    """Right checksum, odd header: damage, whatever the name of the type."""
    out = tmp_path / "out"
    assert shardtool("repack", sorted_tars(tmp_path / "in"), "-o", out, "--shards", "1").status == 0
    (path,) = (out / "index").iterdir()
    data = path.read_bytes()
    size = int.from_bytes(data[8:16], "little")
    head = data[16 : 16 + size]
    for dtype in (b"<,8", b",", b"O", b"(2,)i8"):
        at = head.index(b'"<i8"')
        other = head[:at] + b'"' + dtype.ljust(3) + b'"' + head[at + 5 :]
        body = data[:8] + len(other).to_bytes(8, "little") + other + data[16 + size : -16]
        path.write_bytes(body + xxhash.xxh3_128_digest(body))
        done = shardtool("verify", out / "manifest.json")
        assert done.status == 6 and "index" in done.out + done.err, done.err


def test_sources_whose_names_make_one_prefix(tmp_path):
    """Dots become '_' in `--keys source`: two sources may come to one, and no sample may hide another."""
    for name in ("a.b", "a_b"):
        write_tfrecord(tmp_path / "in" / f"{name}.tfrecord", [b"1", b"2"])
    command = ["repack", tmp_path / "in", "-o", tmp_path / "out", "--format", "tar", "--records", "raw"]
    done = shardtool(*command, "--keys", "source")
    assert done.status == 3 and "a_b/00000000" in done.err and "--keys ordinal" in done.err, done.err
    assert not (tmp_path / "out").exists() and shardtool(*command).status == 0
