"""Repacked sets with names of every kind, and the check that a reader gave every sample right.

A test reads a set with a real library and calls `judge`. With SHARDTOOL_READERS=FILE in the environment all outcomes
are written to FILE as JSON: scripts/write_reader_table.py makes docs/readers.md of such files.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import struct
import zlib

from shardtool.base.reporting import Reporter
from shardtool.disk.readers import READERS
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.layout.manifest import Manifest
from tests.makers import read_tar, read_tfrecord, write_tar, write_tfrecord

SAMPLES = 45
SHARDS = 4

# Keys of tars by the kind of header that they need.
TARS = {
    "plain": lambda k: f"c{k % 3}/{k:05}",
    "prefixed": lambda k: f"{'d' * 90}/c{k % 3}/{'k' * 40}{k:05}",
    "long (GNU)": lambda k: f"{'d' * 120}/{'e' * 120}/{'k' * 90}{k:05}",
    "spaced": lambda k: f"a b/c  d {k:05} e",
    "non-ASCII": lambda k: f"größe/日本 {k:05}ß".replace(" ", "_"),
}
RECORDS = ("Example", "raw")


@dataclasses.dataclass(frozen=True)
class Set:
    """A repacked set.

    samples  in the order of the manifest: (key, {field: payload}) of tars, (None, payload) of records
    """

    flavour: str
    folder: pathlib.Path
    manifest: Manifest
    samples: list

    @property
    def shards(self):
        return [str(self.folder / receipt.name) for receipt in self.manifest.shards]

    @property
    def contents(self):
        return [content for _, content in self.samples]


def png(k):
    """A 3 x 2 image in grey."""
    rows = b"".join(b"\0" + bytes([k % 251, y, 255 - k % 251]) for y in range(2))
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def fields(k):
    """Sizes around the blocks of a tar; one field without bytes now and then."""
    data = random.Random(k).randbytes((0, 1, 511, 512, 513, 2000)[k % 6])
    return {
        "png": png(k), "cls": b"%d" % (k % 3), "bin": data, "num": b"%04d" % k, "txt": f"sample {k} größe".encode()
    }  # fmt: skip


def varint(value):
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(k):
    """label: one integer; image: one string; scores: three floats; tags: k % 4 integers; words: strings."""
    features = {
        "image": message(1, message(1, png(k))),
        "label": message(3, message(1, varint(k - 7))),
        "scores": message(2, message(1, struct.pack("<3f", k, k / 2, -k))),
        "tags": message(3, message(1, b"".join(map(varint, range(k % 4))))),
    }
    entries = [message(1, message(1, name.encode()) + message(2, data)) for name, data in features.items()]
    return message(1, b"".join(entries))


def values(k):
    """What example(k) holds."""
    return {
        "image": [png(k)], "label": [k - 7], "scores": [float(k), k / 2, float(-k)], "tags": list(range(k % 4)),
    }  # fmt: skip


def make_set(folder, flavour, exports, *, name="train", **options):
    """Repack a source of this flavour; the samples that come out are those that went in, by other people's code."""
    source, out = folder / "in", folder / "out"
    if flavour in TARS:
        key = TARS[flavour]
        for part in range(2):
            numbers = range(part, SAMPLES, 2)
            write_tar(
                source / f"{part}.tar", [(f"{key(k)}.{f}", data) for k in numbers for f, data in fields(k).items()],
                format=1,
            )  # fmt: skip
        wanted = [(key(k), fields(k)) for k in range(SAMPLES)]
    else:
        payloads = [example(k) if flavour == "Example" else b"%d " % k * k for k in range(SAMPLES)]
        for part in range(2):
            write_tfrecord(source / f"{part}.tfrecord", payloads[part::2])
        wanted = [(None, payload) for payload in payloads]
    reporter = Reporter()
    settings = RepackOptions(shards=SHARDS, exports=tuple(exports), name=name, jobs=1, seed=3, **options)
    manifest = repack([str(source)], str(out), settings, reporter=reporter).manifest
    read = read_of_tar if flavour in TARS else lambda path: [(None, payload) for payload in read_tfrecord(path)]
    samples = [sample for receipt in manifest.shards for sample in read(out / receipt.name)]
    assert sorted(map(digest, samples)) == sorted(map(digest, wanted))
    assert list(map(digest, samples)) != list(map(digest, wanted))
    return Set(flavour, out, manifest, samples)


def read_of_tar(path):
    """(key, fields) by Python's tarfile."""
    found = {}
    for name, payload in read_tar(path):
        head, slash, last = name.rpartition("/")
        stem, _, ext = last.partition(".")
        found.setdefault(head + slash + stem, {})[ext] = payload
    return list(found.items())


def digest(sample):
    key, content = sample
    parts = sorted(content.items()) if isinstance(content, dict) else [("", content)]
    return hashlib.sha256(repr((key, parts)).encode()).hexdigest()


def by_reader(name, of):
    """Samples as `verify --reader` takes them: shard by shard."""
    names = tuple(sorted(of.contents[0])) if of.flavour in TARS else ()
    for shard in of.shards:
        for key, content in READERS[name].samples(shard.encode(), tuple(map(str.encode, names))):
            plain = {k.decode(): v for k, v in content.items()} if isinstance(content, dict) else content
            yield (None if key is None else key.decode()), plain


@dataclasses.dataclass(frozen=True)
class Row:
    reader: str
    release: str
    flavour: str
    export: str
    right: int
    all: int


ROWS = []


def judge(reader, release, of, got, export="", wanted=None, *, readable=True):
    """Compare what a library gave with the samples, position by position, and take down how many were right.

    got       an iterable; that it raises ends it
    wanted    default: the contents in the order of the manifest
    readable  False: the library is known not to read this flavour right (docs/readers.md says why), and it is an error
              of this test when it does
    """
    wanted = of.contents if wanted is None else wanted
    found, error = [], None
    if readable:
        found = list(got)
    else:
        try:
            for sample in got:
                found.append(sample)
        except Exception as raised:
            error = raised
    right = sum(a == b for a, b in zip(found, wanted, strict=False)) if len(found) <= len(wanted) else 0
    ROWS.append(Row(reader, release, of.flavour, export, right, len(wanted)))
    if readable:
        assert len(found) == len(wanted) and right == len(wanted), f"{reader}: {right} of {len(wanted)} right"
    else:
        assert right < len(wanted) or error, f"{reader} reads {of.flavour} right by now: say so in the docs"


def write_rows():
    """At the end of a run, when asked to."""
    path = os.environ.get("SHARDTOOL_READERS")
    if path and ROWS:
        rows = [dataclasses.asdict(row) for row in ROWS]
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def in_folder(folder):
    """With this working folder: some libraries take relative names only."""
    before = pathlib.Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
