"""The tf.train.Example that shardtool writes: how many bytes it has, before any of them is made.

    Example  { Features features = 1 }
    Features { map<string, Feature> feature = 1 }      one entry { string key = 1; Feature value = 2 } a feature
    Feature  { BytesList = 1 | FloatList = 2 | Int64List = 3 }, each { repeated value = 1 }

(tensorflow/core/example/example.proto and feature.proto; the wire format is that of Protocol Buffers.) Every message
is preceded by its tag (one byte, all field numbers are small) and by its length as a varint. A feature here has one
list, and the list one field: a bytes value, or the values of all numbers packed. So whatever the type, a feature of
payload p is

    0A |entry|  0A |name| name  12 |feature|  TAG |list|  0A |p| p        TAG = 0A bytes, 12 float, 1A int64

and every length is a closed form of |name| and |p|. Features stand in ascending order of their names' bytes: a map has
no order, and implementations of protobuf differ in the one they write.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .index import I64

KEY = b"__key__"  # the feature that carries a sample's key
LARGEST = (1 << 31) - 1  # bytes: protobuf refuses longer messages

BYTES_TAG, FLOAT_TAG, INT64_TAG = 0x0A, 0x12, 0x1A
MESSAGE_TAG, VALUE_TAG = 0x0A, 0x12


def varint_bytes(value: I64) -> I64:
    """Bytes of the shortest varint of every value >= 0, int64[k]: one for every seven bits begun."""
    count = np.ones(len(value), np.int64)
    most = int(value.max(initial=0))
    for bits in range(7, most.bit_length(), 7):
        count += value >= 1 << bits
    return count


def signed_varint_bytes(value: int) -> int:
    """Bytes of the varint of an int64: a negative one is written as value + 2^64, ten bytes."""
    return 10 if value < 0 else max(1, (value.bit_length() + 6) // 7)


def framed(length: I64) -> I64:
    """Bytes of a field of this length with its tag and its length."""
    return 1 + varint_bytes(length) + length


# What the payload of a feature is: the one field of its list, the whole list, or there is no list.
VALUE, LIST, NOTHING = 0, 1, 2
Forms = npt.NDArray[np.uint8]


def feature_lengths(names: I64, sizes: I64, forms: Forms | None = None) -> tuple[I64, I64, I64]:
    """Lengths of the entry, the Feature and its list, int64[q] each.

    names  int64[q], bytes of every feature's name
    sizes  int64[q], bytes of its payload: a value, or packed numbers
    forms  uint8[q], VALUE, LIST or NOTHING; None: all are VALUE
    """
    inner = framed(sizes)
    if forms is not None:
        inner = np.where(forms == VALUE, inner, sizes)
    feature = framed(inner)
    if forms is not None:
        feature[forms == NOTHING] = 0
    return framed(names) + framed(feature), feature, inner


def features_bytes(begin: I64, names: I64, sizes: I64, forms: Forms | None = None) -> I64:
    """Length of every sample's Features message, int64[k].

    begin  int64[k+1]: features of sample i are begin[i]:begin[i+1]; at least one each
    """
    entry, _, _ = feature_lengths(names, sizes, forms)
    return np.add.reduceat(framed(entry), begin[:-1]) if len(begin) > 1 else np.zeros(0, np.int64)


def example_bytes(begin: I64, names: I64, sizes: I64, forms: Forms | None = None) -> I64:
    """Length of every sample's serialized Example, int64[k]; arguments as for `features_bytes`."""
    return framed(features_bytes(begin, names, sizes, forms))
