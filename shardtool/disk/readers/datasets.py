"""Hugging Face datasets, by its builder of WebDataset tars, streaming.

The builder decodes fields by their names (cls to int, json to objects); here its table of decoders is emptied, so that
payloads can be compared byte by byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .reader import Sample


def samples(path: bytes, fields: tuple[bytes, ...]) -> Iterator[Sample]:
    """See Samples."""
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        os.environ.setdefault(variable, "1")
    import datasets
    from datasets.packaged_modules.webdataset.webdataset import WebDataset

    types = {os.fsdecode(name): datasets.Value("binary") for name in fields}
    text = datasets.Value("string")
    decoders, WebDataset.DECODERS = WebDataset.DECODERS, {}
    try:
        rows = datasets.load_dataset(
            "webdataset", data_files={"train": [os.fsdecode(path)]}, split="train", streaming=True,
            features=datasets.Features({"__key__": text, "__url__": text, **types}),
        )  # fmt: skip
        for row in rows:
            content = {os.fsencode(name): row[name] for name in types if row[name] is not None}
            yield os.fsencode(row["__key__"]), content
    finally:
        WebDataset.DECODERS = decoders
