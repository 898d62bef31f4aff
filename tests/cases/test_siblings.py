"""What holds for a case holds for its siblings: the same shards under a compression, and other hostile inputs."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tarfile

import pytest

from shardtool.disk.decode import zstd
from tests.cases import judge
from tests.cases.test_cases import RUNS, check_error, id_of, inputs  # noqa: F401 (a fixture)
from tests.makers import sorted_tars, write_tar, write_tfrecord
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
