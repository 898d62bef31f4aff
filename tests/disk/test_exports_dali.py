"""DALI itself reads by our indexes. Needs nvidia-dali (CPU is enough)."""

import numpy as np
import pytest

from shardtool.layout.rules import Rules
from tests.disk.test_exports import FLAVOURS, by_tarfile, index
from tests.makers import read_tfrecord, write_tfrecord

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def dali():
    pytest.importorskip("nvidia.dali", exc_type=ImportError)
    from nvidia.dali import fn, pipeline_def

    return fn, pipeline_def


def run(dali, reader, samples):
    """Bytes of every output of every sample."""
    _, pipeline_def = dali
    pipe = pipeline_def(batch_size=1, num_threads=1, device_id=None)(reader)()
    pipe.build()
    return [[np.array(out.at(0)).tobytes() for out in pipe.run()] for _ in range(samples)]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_webdataset_reader(flavour, dali, tmp_path):
    fn, _ = dali
    shard = tmp_path / "x.tar"
    FLAVOURS[flavour](shard)
    group = "archive" if flavour in ("not adjacent", "what is no sample between") else "adjacent"
    index(tmp_path, "dali", rules=vars(Rules(group=group)))
    wanted = [s for s in by_tarfile(shard) if "inner" in flavour or {b"jpg", b"cls"} <= set(s)]
    exts = sorted(wanted[0]) if "inner" in flavour else [b"cls", b"jpg"]

    def reader():
        return tuple(
            fn.readers.webdataset(
                paths=[str(shard)], index_paths=[str(tmp_path / "x.idx")], ext=[ext.decode() for ext in exts],
                missing_component_behavior="skip",
            )
        )  # fmt: skip

    assert run(dali, reader, len(wanted)) == [[sample[ext] for ext in exts] for sample in wanted]


def test_tfrecord_reader(dali, tmp_path):
    fn, _ = dali
    import nvidia.dali.tfrecord as tfrec

    def example(number):
        # Example{1: Features{1: entry{1: "n", 2: Feature{1: BytesList{1: text}}}}}
        def part(tag, data):
            return bytes([tag << 3 | 2, len(data)]) + data

        return part(1, part(1, part(1, b"n") + part(2, part(1, part(1, b"record %d" % number)))))

    shards = [
        write_tfrecord(tmp_path / f"{k}.tfrecord", [example(n) for n in range(3 * k, 3 * k + 3)]) for k in range(2)
    ]
    index(tmp_path, "dali")
    assert len(read_tfrecord(shards[0])) == 3

    def reader():
        return fn.readers.tfrecord(
            path=[str(shard) for shard in shards], index_path=[f"{shard}.idx" for shard in shards],
            features={"n": tfrec.FixedLenFeature((), tfrec.string, "")},
        )["n"]  # fmt: skip

    assert run(dali, reader, 6) == [[b"record %d" % n] for n in range(6)]
