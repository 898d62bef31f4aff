"""Holds a folder of shards against what is expected of a case. Reads with struct and tarfile, never with shardtool.

digest          tar: SHA-256 of the sorted lines `key TAB field TAB sha256(payload) LF`;
                TFRecord: SHA-256 of the sorted SHA-256 (hex) of all records, joined by LF
payload_digest  tar, without keys: SHA-256 of the sorted JSON lists of (field, sha256) of every sample, joined by LF
"""

import hashlib
import io
import json
import tarfile

from tests.makers import read_tfrecord


def sha(data):
    return hashlib.sha256(data).hexdigest()


def split(name):
    """(key, field) by the first dot of the base name."""
    folder, slash, base = name.rpartition("/")
    stem, dot, field = base.partition(".")
    assert stem and dot, f"a member without key or field: {name}"
    return folder + slash + stem, field


def samples_of_tar(path):
    """[(key, {field: payload})]; asserts what a strict reader would demand of a tar that we wrote."""
    data = path.read_bytes()
    found = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            assert member.isreg() and not member.sparse, member.name
            key, field = split(member.name)
            if not found or found[-1][0] != key:
                found.append((key, {}))
            assert field not in found[-1][1], f"{member.name} twice"
            found[-1][1][field] = archive.extractfile(member).read()
        end = archive.offset
    assert not data[end:].strip(b"\0") and len(data) - end >= 1024, "no end-of-archive marker, or something behind it"
    return found


def shards(out):
    return [out / shard["name"] for shard in json.loads((out / "manifest.json").read_text())["shards"]]


def records(out):
    return [record for path in shards(out) for record in read_tfrecord(path)]


def samples(out):
    found = [sample for path in shards(out) for sample in samples_of_tar(path)]
    keys = [key for key, _ in found]
    assert len(set(keys)) == len(keys), "a key occurs twice, or its members are not neighbours"
    return found


def tfrecord_digest(found):
    return sha("\n".join(sorted(map(sha, found))).encode())


def encoded(name):
    return name.encode("utf-8", "surrogateescape")


def tar_digest(found):
    lines = [
        encoded(key) + b"\t" + encoded(field) + b"\t" + sha(data).encode() + b"\n"
        for key, fields in found
        for field, data in fields.items()
    ]
    return sha(b"".join(sorted(lines)))


def payload_digest(found):
    rows = (json.dumps(sorted((field, sha(data)) for field, data in fields.items())) for _, fields in found)
    return sha("\n".join(sorted(rows)).encode())


def check(out, expect):
    """Assert that the shards in `out` hold what is expected, and nothing else lies under a shard's name."""
    for path in shards(out):
        assert path.stat().st_size, f"{path.name} is empty"
    listed = {path.name for path in shards(out)} | {"manifest.json", "index"}
    assert {p.name for p in out.iterdir() if not p.name.endswith((".idx", ".json", ".tfindex"))} <= listed
    if expect["format"] == "tfrecord":
        found = records(out)
        assert len(found) == expect["sample_count"]
        assert tfrecord_digest(found) == expect["digest"]
    else:
        found = samples(out)
        assert len(found) == expect["sample_count"]
        if expect["keys"] == "exact":
            assert tar_digest(found) == expect["digest"]
        else:
            assert payload_digest(found) == expect["payload_digest"]
