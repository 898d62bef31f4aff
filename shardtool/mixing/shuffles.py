"""How each training library shuffles: which buffer, which shard order, which stream a buffer reads.

One frozen dataclass a library; its defaults are the documented defaults of the named release. A loader's `.shuffle`
is one of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..base.seeds import Generator
from . import buffers

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kernel:
    """A way to reorder a stream of whole or cut shards.

    words         what it does, for the output; {buffer} is its size in samples
    law           the shape of its closed form: see `closed_forms`
    sized         whether it has a buffer size at all
    """

    words: str
    law: str
    sized: bool = True


KERNELS = {
    "none": Kernel("no shuffle: the order of the stream", "rolling", sized=False),
    "full": Kernel("a full shuffle of all samples", "full", sized=False),
    "rolling": Kernel("a rolling buffer of {buffer} samples", "rolling"),
    "growing": Kernel("a rolling buffer that grows to {buffer} samples", "rolling"),
    "windows": Kernel("tumbling windows of {buffer} samples", "windows"),
    "half": Kernel("a buffer of {buffer} samples that gives away half when it is full", "half"),
    "spread": Kernel("every sample moved at random within about {buffer} samples", "spread"),
    "blocks": Kernel("tumbling blocks of about {buffer} samples", "blocks"),
    "within": Kernel("samples shuffled inside their shard only", "within", sized=False),
    "clumps": Kernel("runs of {buffer} samples kept together, the runs in random order", "clumps"),
}


def reorder(kernel: str, bounds: I64, buffer: int, initial: int, rng: Generator) -> I64:
    """One epoch of the stream whose shards lie at bounds[i]..bounds[i+1]: positions in order of delivery."""
    n = int(bounds[-1])
    match kernel:
        case "none":
            return np.arange(n, dtype=np.int64)
        case "full":
            return rng.permutation(n)
        case "rolling":
            return buffers.rolling(n, buffer, rng)
        case "growing":
            return buffers.growing(n, buffer, initial, buffers.UniformPicks(rng))
        case "windows":
            return buffers.windows(n, buffer, rng)
        case "half":
            return buffers.half_flush(n, buffer, rng)
        case "spread":
            return buffers.spread(n, bounds, buffer, rng)
        case "blocks":
            return buffers.random_blocks(n, buffer, rng)
        case "within":
            return buffers.pieces(bounds, rng)
        case "clumps":
            return buffers.clumps(n, buffer, rng)
    raise ValueError(kernel)


@dataclass(frozen=True)
class Shuffle:
    """The shuffle of one library.

    name            what users type
    library         library and release that were read and run
    kernel          key of KERNELS
    buffer          default size in samples; None: the library has none, the user must say
    initial         samples held before the first is delivered (webdataset)
    shuffle_shards  whether the order of the shards is random by default
    shard_buffer    shards the shard shuffle holds; None: all (a full shuffle of the list)
    new_shard_order whether every epoch has its own shard order
    cycle           shards that are read in turn
    grouped         the cycle is over contiguous groups of shards (HF), not over open shards (tf.data)
    split           how ranks and workers share the data: 'ranges' (contiguous samples, rotating each epoch),
                    'shards' (every k-th whole shard; the order is shuffled inside a lane), 'order' (every k-th
                    shard of the shuffled list), 'after' (every k-th sample of the shuffled stream)
    uneven          what happens when ranks do not divide the shards: 'deal' (some get one more), 'after' (every rank
                    reads all and keeps every k-th sample), 'samples' (with too few shards, every k-th sample)
    workers         'processes': each worker has its own shards and buffer and makes whole batches; 'threads': they
                    do not change the order
    fixed_list      the list of all samples is shuffled once, the same for every epoch and seed (DALI's file reader)
    exact           the release whose order `--exact` reproduces; empty: none
    """

    name: str
    library: str
    kernel: str
    buffer: int | None = None
    initial: int = 0
    shuffle_shards: bool = False
    shard_buffer: int | None = None
    new_shard_order: bool = True
    cycle: int = 1
    grouped: bool = False
    split: str = "shards"
    uneven: str = "deal"
    workers: str = "processes"
    fixed_list: bool = False
    exact: str = ""

    @property
    def sized(self) -> bool:
        """Whether there is a buffer size to choose."""
        return KERNELS[self.kernel].sized


def dali(reader: str = "tfrecord") -> Shuffle:
    """DALI by kind of reader: `file` shuffles its list once, besides the buffer; the others have the buffer only."""
    return replace(SHUFFLES["dali"], fixed_list=reader == "file")


# In PyTorch's and webdataset's world a DataLoader worker is a process with a buffer of its own; DALI and tf.data
# use threads, which deliver in one order.
SHUFFLES: dict[str, Shuffle] = {
    made.name: made
    for made in (
        Shuffle("dali", "NVIDIA DALI 2.4.0, random_shuffle", "rolling", 1024, split="ranges", workers="threads",
                exact="DALI 2.4.0"),
        Shuffle("tfdata", "TensorFlow 2.21, Dataset.shuffle", "rolling", None, split="order", uneven="samples",
                workers="threads", exact="TensorFlow 2.21.0"),
        Shuffle("torch", "torch 2.13, IterDataPipe.shuffle and hand-written buffers", "rolling", 10_000,
                split="order", exact="torch 2.13.0"),
        Shuffle("webdataset", "webdataset 1.0.2, shuffle", "growing", 1000, 100, True, 100, False,
                exact="webdataset 1.0.2"),
        Shuffle("hf-4", "Hugging Face datasets 4, IterableDataset.shuffle", "rolling", 1000, 0, True, split="order",
                uneven="after"),
        Shuffle("hf-5.0", "Hugging Face datasets 5.0, IterableDataset.shuffle", "rolling", 1000, 0, True, cycle=10,
                grouped=True, split="order", uneven="after"),
        Shuffle("hf-5.1", "Hugging Face datasets 5.1 and later, IterableDataset.shuffle", "half", 1000, 0, True,
                cycle=10, grouped=True, split="order", uneven="after", exact="datasets 5.2.0"),
        Shuffle("grain-window", "Grain 0.2.18, WindowShuffle", "windows", None, split="after", workers="threads",
                exact="Grain 0.2.18"),
        Shuffle("grain-map", "Grain 0.2.18, MapDataset.shuffle", "full", None, split="after", workers="threads",
                exact="Grain 0.2.18"),
        Shuffle("mosaic-py1e", "MosaicML Streaming 0.13, py1e", "spread", 1 << 18, 0, True, split="after",
                workers="threads"),
        Shuffle("mosaic-py1br", "MosaicML Streaming 0.13, py1br", "blocks", 1 << 18, 0, True, split="after",
                workers="threads"),
        Shuffle("mosaic-py1s", "MosaicML Streaming 0.13, py1s", "within", None, 0, True, split="after",
                workers="threads"),
        Shuffle("mosaic-py2s", "MosaicML Streaming 0.13, py2s", "within", None, 0, True, split="after",
                workers="threads"),
        Shuffle("mosaic-naive", "MosaicML Streaming 0.13, naive", "full", None, split="after", workers="threads"),
        Shuffle("lancedb", "lancedb 0.40, permutation with clumps", "clumps", 1, split="after", workers="threads"),
        Shuffle("shardtool", "shardtool.torch, shuffle='shards'", "windows", 1000, 0, True, split="ranges",
                exact="torch 2.13.0"),
        Shuffle("none", "no shuffle", "none", None),
        Shuffle("full", "a full shuffle of all samples every epoch", "full", None, split="after", workers="threads"),
    )
}  # fmt: skip
