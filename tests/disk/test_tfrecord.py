"""The TFRecord walker: whole files, cut files, flipped bytes."""

import contextlib
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardtool.base.errors import DataError
from shardtool.disk.crc import masked_of_lengths
from shardtool.disk.formats import tfrecord
from shardtool.disk.formats.example import feature_values
from shardtool.layout.rules import Rules
from tests.makers import frame, masked

SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 3000)), max_size=25)


def scan(tmp_path, data, window=None, **rules):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(data)
    before = tfrecord.WINDOW
    tfrecord.WINDOW = window or before
    try:
        return tfrecord.scan(bytes(path), b"x.tfrecord", Rules(**rules))
    finally:
        tfrecord.WINDOW = before


def payloads(data, found):
    assert found.head.tolist() == [12] * found.samples
    return [data[o + 12 : o + 12 + s] for o, s in zip(found.offset.tolist(), found.size.tolist(), strict=True)]


@given(SIZES, st.sampled_from([None, 64, 500, 4096]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scan_of_written_records_is_the_records(tmp_path, sizes, window):
    """Law 3, with windows smaller and larger than the records."""
    records = [bytes([k % 256]) * size for k, size in enumerate(sizes)]
    data = b"".join(map(frame, records))
    found = scan(tmp_path, data, window)
    assert payloads(data, found) == records and found.end == len(data)
    assert bool(found.findings.warnings) == (not records)


RECORDS = [b"", b"first", b"x" * 300, b"", b"last one"]
DATA = b"".join(map(frame, RECORDS))
STARTS = [sum(len(frame(r)) for r in RECORDS[:k]) for k in range(len(RECORDS) + 1)]


@pytest.mark.parametrize("window", [None, 64])
def test_cut_at_every_byte(tmp_path, window):
    for cut in range(1, len(DATA)):
        data = DATA[:cut]
        whole = sum(start <= cut for start in STARTS) - 1
        if cut in STARTS:
            assert scan(tmp_path, data, window).samples == whole
            continue
        with pytest.raises(DataError) as caught:
            scan(tmp_path, data, window)
        assert caught.value.offset == STARTS[whole] and "truncated" in str(caught.value)
        kept = scan(tmp_path, data, window, on_corrupt="skip")
        assert payloads(data, kept) == RECORDS[:whole] and kept.findings.dropped == {"records": 1}


@pytest.mark.parametrize("window", [None, 64])
def test_every_flipped_byte_is_found(tmp_path, window):
    for at in range(len(DATA)):
        data = bytearray(DATA)
        data[at] ^= 0x10
        record = sum(start <= at for start in STARTS) - 1
        with pytest.raises(DataError) as caught:
            scan(tmp_path, bytes(data), window)
        assert caught.value.offset == STARTS[record]
        in_head = at - STARTS[record] < 12
        kept = scan(tmp_path, bytes(data), window, on_corrupt="skip")
        others = RECORDS[:record] + ([] if in_head else RECORDS[record + 1 :])
        assert payloads(data, kept) == others
        assert kept.findings.dropped["files_damaged" if in_head else "records"] == 1
        found = scan(tmp_path, bytes(data), window, on_corrupt="resync")
        assert payloads(data, found) == RECORDS[:record] + RECORDS[record + 1 :]
        if in_head and record < 4:
            assert "found by search" in found.findings.warnings[0]


def test_resync_after_a_long_gap(tmp_path):
    data = frame(b"a") + b"\0" * 100_000 + frame(b"b" * 50_000) + b"junk" + frame(b"c")
    found = scan(tmp_path, data, 4096, on_corrupt="resync")
    assert payloads(data, found) == [b"a", b"b" * 50_000, b"c"]
    assert found.findings.dropped == {"files_damaged": 1, "bytes": 100_004}


@pytest.mark.parametrize("length", [2**62, 2**64 - 1, 2**64 - 17, 2**41])
def test_a_huge_length_with_a_right_checksum_is_no_allocation(tmp_path, length):
    head = struct.pack("<Q", length)
    data = frame(b"one") + head + struct.pack("<I", masked(head)) + b"rest" * 10
    for window in (None, 64):
        with pytest.raises(DataError, match="exceeds the file") as caught:
            scan(tmp_path, data, window)
        assert caught.value.offset == len(frame(b"one"))
    assert scan(tmp_path, data, on_corrupt="skip").samples == 1


def test_zero_bytes_behind_the_last_record(tmp_path):
    # a length of 0 with the checksum 0 is no record: the checksum of eight zero bytes is not 0
    with pytest.raises(DataError):
        scan(tmp_path, frame(b"x") + bytes(64))


def test_foreign_content_is_named(tmp_path):
    with pytest.raises(DataError, match="git-lfs"):
        scan(tmp_path, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    unmasked = b"".join(
        struct.pack("<QI", len(r), crc(struct.pack("<Q", len(r)))) + r + struct.pack("<I", crc(r))
        for r in (b"a", b"bc")
    )
    with pytest.raises(DataError, match="--no-verify"):
        scan(tmp_path, unmasked)
    assert payloads(unmasked, scan(tmp_path, unmasked, verify=False)) == [b"a", b"bc"]


def crc(data):
    import crc32c

    return crc32c.crc32c(data)


def test_lengths_checksum_by_table():
    import numpy as np

    lengths = [0, 1, 255, 256, 2**31, 2**63 + 12345, 2**64 - 1]
    assert masked_of_lengths(np.array(lengths, np.uint64)).tolist() == [masked(struct.pack("<Q", n)) for n in lengths]


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features):
    entries = b""
    for name, feature in features.items():
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def test_labels(tmp_path):
    records = [
        example(label=field(3, field(1, varint(7))), image=field(1, field(1, b"png"))),
        example(label=field(3, field(1, varint(2**64 - 1)))),
        example(label=field(1, field(1, b"cat"))),
        example(image=field(1, field(1, b"png"))),
        example(label=field(3, varint(1 << 3) + varint(300))),  # not packed
    ]
    data = b"".join(map(frame, records))
    for window in (None, 16):
        assert scan(tmp_path, data, window, label="label").labels == [b"7", b"-1", b"cat", None, b"300"]
    two = frame(example(label=field(3, field(1, varint(7) + varint(8)))))
    with pytest.raises(DataError, match="has 2 values"):
        scan(tmp_path, two, label="label")
    with pytest.raises(DataError, match=r"no tf\.train\.Example") as caught:
        scan(tmp_path, frame(records[0]) + frame(b"\xff\xff"), label="label")
    assert caught.value.offset == len(frame(records[0]))


def test_example_values_as_protobuf_reads_them():
    example_pb2 = pytest.importorskip("tfrecord.example_pb2")
    made = example_pb2.Example()
    made.features.feature["i"].int64_list.value.extend([1, -5, 2**62])
    made.features.feature["f"].float_list.value.extend([0.5, -2.0])
    made.features.feature["b"].bytes_list.value.extend([b"", b"\xff"])
    made.features.feature["e"].int64_list.SetInParent()
    data = made.SerializeToString()
    wanted = {"i": [1, -5, 2**62], "f": [0.5, -2.0], "b": [b"", b"\xff"], "e": [], "none": None}
    assert {name: feature_values(data, name.encode()) for name in wanted} == wanted


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_an_example_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        feature_values(data, b"x")


@pytest.mark.parametrize("window", [1000, 64_000, 8 << 20])
def test_many_records_with_damage(tmp_path, window):
    """Windows with thousands of records, where walk and checksums take their fast ways."""
    records = [b"%06d" % k + bytes([k % 251]) * (k % 60) for k in range(30_000)]
    frames = [frame(record) for record in records]
    starts = [0]
    for each in frames:
        starts.append(starts[-1] + len(each))
    path = tmp_path / "many.tfrecord"

    def read(data, **rules):
        path.write_bytes(data)
        return tfrecord.scan(bytes(path), b"many", Rules(**rules), window=window)

    data = bytearray(b"".join(frames))
    found = read(data)
    assert found.offset.tolist() == starts[:-1] and payloads(data, found) == records
    bad = [17, 20_000, 20_001, 29_999]
    for k in bad:
        data[starts[k] + 14] ^= 1
    with pytest.raises(DataError, match="payload checksum") as caught:
        read(data)
    assert (caught.value.offset, caught.value.member) == (starts[17], "number 17")
    left = read(data, on_corrupt="skip")
    assert payloads(data, left) == [record for k, record in enumerate(records) if k not in bad]
    assert left.findings.dropped == {"records": 4}
    data[starts[25_000] + 1] ^= 1
    with pytest.raises(DataError, match="length checksum") as caught:
        read(data[starts[20_002] :])
    assert caught.value.offset == starts[25_000] - starts[20_002] and caught.value.member == "number 4998"
    after = read(data, on_corrupt="resync")
    assert payloads(data, after) == [record for k, record in enumerate(records) if k not in (*bad, 25_000)]
