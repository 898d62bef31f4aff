"""NVIDIA DALI's reader of tars, on the CPU, by the index of the export dali-wds where one lies beside the shard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .reader import Sample

BATCH = 64


def samples(path: bytes, fields: tuple[bytes, ...]) -> Iterator[Sample]:
    """See Samples. DALI gives no keys, and a field that a sample lacks as one without bytes."""
    from nvidia.dali import fn, pipeline_def

    index = os.path.splitext(path)[0] + b".idx"
    more: dict[str, Any] = {"index_paths": [os.fsdecode(index)]} if os.path.isfile(index) else {}
    names = [os.fsdecode(name) for name in fields]

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        read = fn.readers.webdataset(
            paths=[os.fsdecode(path)], ext=names, missing_component_behavior="empty", name="shard", **more
        )
        return tuple(read) if isinstance(read, list) else read

    pipe = pipeline()
    pipe.build()
    left = pipe.epoch_size("shard")
    while left:
        outputs = [output.as_array() if output.is_dense_tensor() else output for output in pipe.run()]
        for row in range(min(left, BATCH)):
            content = {}
            for name, output in zip(fields, outputs, strict=True):
                data = bytes(output.at(row) if hasattr(output, "at") else output[row])
                if data:
                    content[name] = data
            yield None, content
        left -= min(left, BATCH)
