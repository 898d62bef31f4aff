"""The multiset of samples: one number of 256 bits that does not depend on order or on shards.

Digest of a sample with fields: SHA-256 over its (field, SHA-256 of the payload) pairs in ascending order, each as

    8 bytes   length of the field name, little-endian
    ...       the field name
    32 bytes  SHA-256 of the payload

The length in front makes the text unambiguous: no two lists of pairs give the same bytes. A raw TFRecord record has
no fields; its digest is the SHA-256 of its payload. The key is no part of it: a repack may give samples new keys.

Multiset of samples: the sum of all digests, each read as a big-endian number, modulo 2^256. A sum and not an
exclusive or: there two equal samples would cancel, and losing both would go unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

BYTES = 32
MODULUS = 1 << 256


def sample_digest(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Digest of a sample, 32 bytes, from (field name, SHA-256 of its payload) pairs in any order."""
    text = bytearray()
    for name, digest in sorted(fields):
        if len(digest) != BYTES:
            raise ValueError(f"a SHA-256 has {BYTES} bytes, not {len(digest)}")
        text += len(name).to_bytes(8, "little") + name + digest
    return hashlib.sha256(text).digest()


def multiset_sum(digests: U8) -> int:
    """Sum modulo 2^256 of digests uint8[n, 32], n < 2^32."""
    words = np.ascontiguousarray(digests).reshape(-1, BYTES).view(">u4")  # [n, 8], the highest word first
    sums = words.sum(axis=0, dtype=np.uint64).tolist()  # [8], below 2^64 each
    total = 0
    for word in sums:
        total = (total << 32) + word
    return total % MODULUS


def show_sum(total: int) -> str:
    """64 hexadecimal digits."""
    return f"{total % MODULUS:064x}"


def prefixes(digests: U8) -> U64:
    """The first eight bytes of digests uint8[n, 32] as numbers, uint64[n]."""
    return np.ascontiguousarray(digests[:, :8]).view(">u8")[:, 0].astype(np.uint64)


def surplus(ours: U64, theirs: U64) -> tuple[U64, I64]:
    """What `ours` has more often than `theirs`: distinct values ascending, and by how many each."""
    mine, count = np.unique(ours, return_counts=True)
    other, other_count = np.unique(theirs, return_counts=True)
    at = np.searchsorted(other, mine)
    found = at < len(other)
    found[found] = other[at[found]] == mine[found]
    more = count.astype(np.int64)
    more[found] -= other_count[at[found]]
    keep = more > 0
    return mine[keep], more[keep]
