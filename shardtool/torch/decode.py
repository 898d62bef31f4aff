"""Bytes of a field to a value. None of these runs code that a file contains: no pickle, no eval."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, UsageError
from ..disk.formats.example import entries, list_values

Decoder = Callable[[bytes], Any]


def text(data: bytes) -> str:
    """UTF-8. ValueError for other bytes."""
    return data.decode("utf-8")


def integer(data: bytes) -> int:
    """A decimal number in ASCII, blanks around it allowed: a `cls` of webdataset. ValueError for anything else."""
    return int(data.decode("ascii"))


def json_value(data: bytes) -> Any:
    """One JSON document. ValueError for anything else."""
    return json.loads(data)


def npy(data: bytes) -> npt.NDArray[Any]:
    """A `.npy` array; ValueError for arrays of Python objects, which would be a pickle."""
    array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def example(data: bytes) -> dict[str, list[bytes | int | float]]:
    """A serialized tf.train.Example: feature -> its values. ValueError for anything else."""
    return {name.decode("utf-8", "surrogateescape"): list_values(value) for name, value in entries(data)}


DECODERS: dict[str, Decoder] = {"text": text, "int": integer, "json": json_value, "npy": npy, "example": example}


def resolve(decoders: Mapping[str, str | Decoder] | None) -> dict[str, Decoder]:
    """Names of DECODERS to functions; UsageError for other names."""
    found = {}
    for field, decoder in (decoders or {}).items():
        if isinstance(decoder, str):
            if decoder not in DECODERS:
                raise UsageError(f"decoder {decoder!r} of {field!r} is none of {', '.join(DECODERS)}",
                                 remedy="name one of them, or give a function of bytes")  # fmt: skip
            decoder = DECODERS[decoder]
        found[field] = decoder
    return found


def apply(sample: dict[str, Any], decoders: Mapping[str, Decoder], number: int) -> None:
    """Decode the fields of one sample in place; a field that it does not have is left out.

    Raises DataError naming field and sample where a decoder raises ValueError.
    """
    for field, decoder in decoders.items():
        if field not in sample:
            continue
        try:
            sample[field] = decoder(sample[field])
        except ValueError as error:
            raise DataError(
                f"field {field!r} of a sample cannot be decoded", member=sample.get("__key__", f"number {number}"),
                why=str(error),
            ) from None  # fmt: skip
