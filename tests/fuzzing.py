"""Parsers and what may be done to their input: for the tests (short) and scripts/fuzz.py (long).

A target takes bytes and parses them; only errors meant for users may come out of it.
"""

import bz2
import contextlib
import functools
import gzip
import itertools
import json
import lzma
import os
import pathlib
import random
import struct
import tarfile
import tempfile
import zlib

import numpy as np
import xxhash

from shardtool.base.errors import ShardtoolError
from shardtool.disk import decode, sideindex
from shardtool.disk.formats import example, scan_file, sniff
from shardtool.disk.indexfile import ShardIndex
from shardtool.disk.sources import SourceOptions, resolve
from shardtool.jobs.options import RepackOptions
from shardtool.jobs.repack import repack
from shardtool.jobs.scan import scan
from shardtool.jobs.verify import VerifyOptions, verify
from shardtool.layout.manifest import Manifest
from shardtool.layout.rules import Rules
from tests.disk import tarmaker
from tests.makers import content, masked, sorted_tars, sorted_tfrecords, write_tar, write_tfrecord

RULES = [
    Rules(),
    Rules(on_corrupt="skip"),
    Rules(on_corrupt="resync", ignore_zeros=True, group="archive"),
    Rules(on_corrupt="resync", on_duplicate="last", on_unsafe_name="skip", allow_case_collision=True, label="cls"),
    Rules(on_corrupt="skip", ignore_trailing=True, on_duplicate="first", verify=False, strict=True),
]
# Values that lengths, counts and offsets are set to.
NUMBERS = [0, 1, 7, 255, 511, 512, 513, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 64) - 1]
WORDS = [
    b"0", b"-1", b"77777777777", b"\0" * 512, b"\xff" * 8, b"9" * 30, b"ustar\0" b"00", b"L", b"x", b"g", b"S", b"1",
    b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b"BZh9", b"\xfd7zXZ\0", b"[" * 2000, b"{" * 50, b"null", b"1e999", b"\n",
    b"..", b"/", b"\x80" + b"\0" * 11, b"30 size=9999999999\n", b"18 GNU.sparse.major=1\n",
]  # fmt: skip


def changed(data, changes):
    """data with changes made to it. changes: (kind, place in 0..1, number) triples."""
    data = bytearray(data)
    for kind, place, number in changes:
        at = min(int(place * len(data)), max(len(data) - 1, 0))
        if kind == "flip" and data:
            data[at] ^= 1 << number % 8
        elif kind == "byte" and data:
            data[at] = number % 256
        elif kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at : at + number % 700]
        elif kind == "twice":
            data[at:at] = data[at : at + number % 1500]
        elif kind == "word":
            word = WORDS[number % len(WORDS)]
            data[at : at + len(word)] = word
        elif kind == "insert":
            data[at:at] = WORDS[number % len(WORDS)]
        elif kind == "number":
            value = NUMBERS[number % len(NUMBERS)]
            width = (2, 4, 8)[number // len(NUMBERS) % 3]
            data[at : at + width] = struct.pack("<Q", value)[:width]
        elif kind == "octal" and len(data) >= 512:
            block = at // 512 * 512  # a size, then a right checksum
            data[block + 124 : block + 136] = b"%011o\0" % (NUMBERS[number % len(NUMBERS)] & 0o77777777777)
            data[block : block + 512] = tarmaker.sealed(data[block : block + 512])
        elif kind == "seal" and len(data) >= 512:
            block = at // 512 * 512
            data[block : block + 512] = tarmaker.sealed(data[block : block + 512])
        elif kind == "length" and len(data) >= 12:
            head = struct.pack("<Q", NUMBERS[number % len(NUMBERS)])
            data[at : at + 12] = head + struct.pack("<I", masked(head))
    return bytes(data)


KINDS = ["flip", "byte", "cut", "drop", "twice", "word", "insert", "number", "octal", "seal", "length"]


def random_changes(choose):
    count = choose.choice((1, 1, 2, 4, 9))
    return [(choose.choice(KINDS), choose.random(), choose.randrange(1 << 16)) for _ in range(count)]


def _with_file(function):
    """A target that wants a path."""

    @functools.wraps(function)
    def target(data, *more):
        with tempfile.NamedTemporaryFile(dir=PLACE) as file:
            file.write(data)
            file.flush()
            return function(os.fsencode(file.name), *more)

    return target


PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_turn = itertools.count()


@_with_file
def tar(path):
    scan_file("tar", path, b"x.tar", RULES[next(_turn) % len(RULES)], check_payload=True)


@_with_file
def tfrecord(path):
    scan_file("tfrecord", path, b"x.tfrecord", RULES[next(_turn) % len(RULES)], check_payload=bool(next(_turn) % 2))


def an_example(data):
    example.feature_text(data, b"label", file=b"x", offset=0)
    for name in (b"image", b"label", b"number"):
        with contextlib.suppress(ValueError):  # what its callers expect of records that are no Example
            example.feature_values(data, name)


def manifest(data):
    Manifest.from_json(data.decode("utf-8", "surrogateescape"))


@_with_file
def index(path):
    with ShardIndex(path, "a.tar") as opened:
        for name in opened.columns:
            opened.column(name)
        opened.keys()


def sealed_index(data):
    """The same with a right checksum: what a hostile file would have."""
    index(data[:-16] + xxhash.xxh3_128_digest(data[:-16]))


@_with_file
def spans(path):
    sideindex.check_spans(path, np.arange(3) * 20, np.full(3, 20))


@_with_file
def components(path):
    sideindex.check_components(
        path, 2, (b"jpg", b"cls"), np.array([0, 1], np.uint32), np.array([512, 1536]), np.array([5, 1])
    )


def heads(data):
    for name in ("looks_like_tar", "looks_like_tfrecord", "compression_of", "what_is", "first_words"):
        getattr(sniff, name)(data[:8192])


def decoder(kind):
    @_with_file
    def target(path):
        with decode.Decoder(path, b"x", kind, limit=1 << 20) as opened:
            for _ in opened:
                pass

    @_with_file
    def salvaged(path):
        decode.head(path, kind, 4096)
        decode.known_size(path, kind, os.stat(path).st_size)
        decode.salvage(path, b"x", kind, 1 << 20)

    def both(data):
        salvaged(data)
        target(data)

    return both


def source(data):
    """From a file to its index, whatever it is."""
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        path = pathlib.Path(folder) / "part-00000"
        path.write_bytes(data)
        rules = RULES[next(_turn) % len(RULES)]
        options = SourceOptions(spool_limit=1 << 20)
        resolve([str(path)], options, rules)
        scan([str(path)], options, rules, jobs=1, check_payload=True)


class Output:
    """A whole output of which one file is altered: verify must say so, or say that it is well."""

    def __init__(self, make, exports):
        self.folder = tempfile.TemporaryDirectory(dir=PLACE)
        place = pathlib.Path(self.folder.name)
        self.out = place / "out"
        repack([str(make(place / "in", 2, 6))], str(self.out), RepackOptions(shards=2, jobs=1, exports=exports))
        self.files = content(self.out)

    def target(self, name):
        def check(data):
            path = self.out / name
            path.write_bytes(data)
            try:
                verify([str(self.out / "manifest.json")], VerifyOptions(jobs=1))
            finally:
                path.write_bytes(self.files[name])

        return check


def _seed_tars(place):
    """Every kind of header."""
    t = tarmaker
    plain = write_tar(place / "a.tar", [(f"d/{k}.{e}", b"x" * (300 * k)) for k in range(4) for e in ("jpg", "cls")])
    pax = write_tar(place / "p.tar", [("é" * 120 + ".jpg", b"y" * 20)], format=tarfile.PAX_FORMAT, mtime=1.5)
    gnu = write_tar(place / "g.tar", [("n" * 300 + ".jpg", b"y" * 20)], format=tarfile.GNU_FORMAT)
    odd = (
        t.pax((b"path", b"q.jpg"), (b"size", b"3")) + t.member(b"other", b"abc")
        + t.member(b"h.cls", b"1") + t.head(b"h.jpg", kind=b"1", link=b"h.cls")
        + t.pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"s.jpg"),
                (b"GNU.sparse.realsize", b"4096"))
        + t.member(b"s", b"1\n1024\n3\n".ljust(512, b"\0") + b"abc")
        + t.pax((b"comment", b"all"), kind=b"g") + t.member(b"z.jpg", b"z") + t.END
    )  # fmt: skip
    return [plain.read_bytes(), pax.read_bytes(), gnu.read_bytes(), odd]


def _seed_example():
    feature = lambda body: b"\x0a" + bytes([len(body)]) + body  # noqa: E731
    entry = b"\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x07"
    other = b"\x0a\x05image\x12\x07\x0a\x05\x0a\x03abc"
    return feature(feature(entry) + feature(other))


@functools.cache
def targets():
    """name -> (function of bytes, seeds)"""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        tars = _seed_tars(place)
        records = write_tfrecord(place / "r", [b"", b"abc" * 100, _seed_example(), b"x" * 2000]).read_bytes()
    found = {
        "tar": (tar, tars),
        "tfrecord": (tfrecord, [records]),
        "example": (an_example, [_seed_example()]),
        "spans": (spans, [b"0 20\n20 20\n40 20\n"]),
        "components": (
            components, [b"v1.2 2\njpg 512 5 0.jpg cls 1536 1 0.cls\njpg 512 5 a\n", b"v1.0 1\njpg 512 5\n"],
        ),
        "heads": (heads, [*tars, records, b"<html>", b"version https://git-lfs.github.com/spec/v1\n"]),
    }
    zstd = decode.zstd().compress
    packers = {"gzip": gzip.compress, "zlib": zlib.compress, "bz2": bz2.compress, "xz": lzma.compress, "zstd": zstd}
    for kind, pack in packers.items():
        packed = [pack(records), pack(b"") + pack(b"a" * 100_000)]
        found[kind] = (decoder(kind), packed)
    found["source"] = (source, [*tars, records, *(pack(records) for pack in packers.values()), gzip.compress(tars[0])])
    for make, exports in ((sorted_tars, ("dali-wds", "wids")), (sorted_tfrecords, ("dali-tfrecord",))):
        output = Output(make, exports)
        for name, data in output.files.items():
            if name == "manifest.json" or "00000" in name or "wids" in name or name.endswith("s.json"):
                found[f"verify {name}"] = (output.target(name), [data])
        if make is sorted_tars:
            found["manifest"] = (manifest, [output.files["manifest.json"]])
            data = output.files["index/shard-000000.tar.index"].replace(b"shard-000000.tar", b"a.tar" + b" " * 11)
            text = json.loads(data[16 : 16 + int.from_bytes(data[8:16], "little")])
            text["shard"] = "a.tar"
            head = json.dumps(text).encode().ljust(int.from_bytes(data[8:16], "little"))
            data = data[:16] + head + data[16 + len(head) : -16]
            data += xxhash.xxh3_128_digest(data)
            found["index"] = (index, [data])
            found["sealed index"] = (sealed_index, [data])
    return found


def try_one(name, data):
    """Raises what must not come out."""
    try:
        targets()[name][0](data)
    except ShardtoolError as error:
        str(error)


def seeded(name, number):
    """The input of execution `number`."""
    choose = random.Random(f"{name} {number}")
    seeds = targets()[name][1]
    return changed(choose.choice(seeds), random_changes(choose))
