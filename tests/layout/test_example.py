"""Sizes of a tf.train.Example in closed form, and the bytes around its payloads, against google's protobuf."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord import example_pb2

from shardtool.base.ragged import Ragged
from shardtool.disk.formats.example_encode import features_of, varints
from shardtool.disk.formats.values import computed, packed
from shardtool.layout.example import KEY, example_bytes, signed_varint_bytes, varint_bytes
from shardtool.layout.index import SPAN, TO_FLOAT, TO_INT64, Index, Source
from shardtool.layout.keys import KEEP, NONE, OutputKeys

EDGES = sorted({max(0, (1 << bits) + d) for bits in range(0, 63, 7) for d in (-1, 0, 1)} | {(1 << 63) - 1})


def varint(value):
    """From its definition: seven bits a byte, the lowest first."""
    text = b""
    while value > 127:
        text, value = text + bytes([value % 128 + 128]), value // 128
    return text + bytes([value])


def test_varints_are_minimal():
    values = np.array(EDGES, np.int64)
    assert list(varints(values)) == [varint(value) for value in EDGES]
    assert varint_bytes(values).tolist() == [len(varint(value)) for value in EDGES]
    assert len(varints(np.zeros(0, np.int64))) == 0


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_of_signed_numbers(value):
    assert packed([value]) == varint(value % (1 << 64))
    assert signed_varint_bytes(value) == len(packed([value]))


INT64 = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([0, -1, 127, 128]))
VALUE = st.one_of(
    st.tuples(st.just(SPAN), st.binary(max_size=200)),
    st.tuples(st.just(TO_INT64), INT64.map(lambda n: b"%d" % n)),
    st.tuples(st.just(TO_FLOAT), st.floats(width=32, allow_nan=False).map(lambda x: repr(x).encode())),
)
AROUND_KEY = st.sampled_from(["jpg", "cls", "a", "~", "Z", "_", "__key_", "__key__z"])
NAME = st.one_of(AROUND_KEY, st.text(min_size=1, max_size=5))
SAMPLE = st.dictionaries(NAME.filter(lambda name: name != "__key__"), VALUE, min_size=1, max_size=5)


def index_of(samples, keys):
    """An index whose parts have these payloads, ascending by name as convert makes them."""
    exts = sorted({name.encode() for sample in samples for name in sample})
    number = {name: k for k, name in enumerate(exts)}
    rows = [sorted((name.encode(), value) for name, value in sample.items()) for sample in samples]
    flat = [one for row in rows for one in row]
    kind = np.array([value[0] for _, value in flat], np.uint8)
    payload = [data if k == SPAN else computed(k, data) for _, (k, data) in flat]
    size = np.array([len(data) for data in payload], np.int64)
    none = np.zeros(len(flat), np.int64)
    first = np.cumsum([0, *map(len, rows)])
    index = Index(
        (Source(b"x.tar", 1, len(samples), "tar"),), first, none, none, size,
        np.array([number[name] for name, _ in flat], np.uint32), tuple(exts), Ragged.of(keys), kind=kind,
        stored=size, records=True,
    )  # fmt: skip
    return index, payload


def message(sample, key):
    example = example_pb2.Example()
    if key is not None:
        example.features.feature["__key__"].bytes_list.value.append(key)
    for name, (kind, data) in sample.items():
        feature = example.features.feature[name]
        if kind == SPAN:
            feature.bytes_list.value.append(data)
        elif kind == TO_INT64:
            feature.int64_list.value.append(int(data))
        else:
            feature.float_list.value.append(float(data))
    return example


@pytest.mark.parametrize("mode", [KEEP, NONE])
@given(samples=st.lists(SAMPLE, min_size=1, max_size=6), data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_what_protobuf_writes(mode, samples, data):
    """Also for samples in any order, and for the same one twice."""
    keys = [b"%d" % k + b"k" * data.draw(st.sampled_from([0, 1, 130])) for k in range(len(samples))]
    index, payload = index_of(samples, keys)
    ids = data.draw(st.lists(st.integers(0, len(samples) - 1), min_size=1, max_size=8))
    features = features_of(index, OutputKeys(mode, index), np.array(ids, np.int64))
    heads, prefixes, size = features.heads(), features.prefixes(), features.example_bytes()
    for k, sample in enumerate(ids):
        text = heads[k]
        for q in range(int(features.begin[k]), int(features.begin[k + 1])):
            part = int(features.part[q])
            text += prefixes[q] + (keys[sample] if part < 0 else payload[part])
        expected = message(samples[sample], keys[sample] if mode == KEEP else None)
        assert len(text) == size[k]
        assert example_pb2.Example.FromString(text) == expected
        names = [name.encode() for name in expected.features.feature]
        assert [features.names[c] for c in features.name[features.begin[k] : features.begin[k + 1]]] == sorted(names)
        again = b"".join(
            field(entry(name, expected.features.feature[name.decode()].SerializeToString())) for name in sorted(names)
        )
        assert text == field(again)


def field(data, tag=0x0A):
    return bytes([tag]) + varint(len(data)) + data


def entry(name, feature):
    return field(name) + field(feature, 0x12)


def test_lengths_at_every_edge_of_a_varint():
    """One feature whose payload makes each nested length cross 2^7, 2^14, 2^21, 2^28 and 2^31, without its bytes."""
    edges = [edge + d for edge in (1 << 7, 1 << 14, 1 << 21, 1 << 28, 1 << 31) for d in range(-40, 4)]
    sizes = np.array(edges, np.int64)
    begin = np.arange(len(edges) + 1, dtype=np.int64)

    def framed(n):
        return 1 + len(varint(n)) + n

    expected = []
    for size in edges:
        feature = framed(framed(size))
        expected.append(framed(framed(framed(len(KEY)) + framed(feature))))
    assert example_bytes(begin, np.full(len(edges), len(KEY)), sizes).tolist() == expected
