"""ShardDataset: a torch IterableDataset over the shards of a manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed
from torch.utils.data import IterableDataset, get_worker_info

from ..base.errors import StateError, UsageError
from ..base.seeds import named_stream, seed_process
from ..disk.samples import SampleReader, Stored
from ..loaders.shardtool import BUFFER, splits_of
from ..schedule.epoch_order import SHUFFLES_BY, EpochOrder, ShuffleBy, window_rows
from ..schedule.splits import Policy, Splits, nearest
from .decode import Decoder, resolve
from .lanes import Lane, LaneReader
from .state import Identity, adopted, identity_of

EXTRAS = frozenset(("__id__", "__seed__"))


class ShardDataset(IterableDataset[Any]):
    """Samples of a manifest's shards as dicts of bytes, shared out over ranks and workers.

    manifest           manifest.json, or the folder that holds it
    batch_size         samples of a rank's batch. The dataset then yields lists of samples: use DataLoader(dataset,
                       batch_size=None) or ShardLoader. None: it yields single samples, which the DataLoader batches
    global_batch_size  instead of batch_size: of all ranks together
    shuffle            'shards': an order of the shards for every epoch, and windows of `buffer` samples;
                       'global': a full shuffle for every epoch, read at random places; 'none' or None: stored order
    buffer             samples that a split reads at a time, rounded up to whole steps
    num_splits, turns  fixed splits, so that every compatible world has the same global batches; see schedule.splits
    policy             'exact': every sample once, ranks may differ by one batch; 'drop', 'pad': equal ranks
    fields             fields to read; None: all. '__key__', '__id__' (stored number) and '__seed__' (for random
                       augmentation that does not depend on the world) may be named too
    decoders           field -> name in DECODERS, or a function of bytes
    check              None, 'crc' or 'digest': see SampleReader
    rank, world_size   default: torch.distributed where initialised, else RANK and WORLD_SIZE, else one rank. Asked
                       when the dataset is made, because workers cannot

    Raises UsageError for numbers that do not go together, DataError for files that do not match the manifest.
    """

    def __init__(
        self, manifest: str | os.PathLike[str], *, batch_size: int | None = None, global_batch_size: int | None = None,
        shuffle: ShuffleBy | None = "shards", seed: int = 0, buffer: int = BUFFER, num_splits: int | None = None,
        turns: int | None = None, policy: Policy = "exact", fields: Sequence[str] | None = None,
        decoders: Mapping[str, str | Decoder] | None = None, check: str | None = None, rank: int | None = None,
        world_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.rank, self.ranks = _world(rank, world_size)
        self.batch_size = _batch(batch_size, global_batch_size, self.ranks)
        self.shuffle: ShuffleBy = shuffle or "none"
        if self.shuffle not in SHUFFLES_BY:
            raise UsageError(f"shuffle {shuffle!r} is none of {', '.join(SHUFFLES_BY)}")
        if buffer < 1:
            raise UsageError(f"buffer must be at least 1, not {buffer}")
        if num_splits is not None and self.batch_size is None:
            raise UsageError("num_splits needs batch_size", why="only whole batches can be the same in every world",
                             remedy="give batch_size here, and batch_size=None to the DataLoader")  # fmt: skip
        self.seed, self.buffer, self.policy = seed, buffer, policy
        self.num_splits, self.turns = num_splits, turns
        self.stored = Stored.open(manifest)
        self.fingerprint = self.stored.fingerprint
        wanted = None if fields is None else [f for f in fields if f not in EXTRAS]
        self.reader = SampleReader(self.stored, wanted, check)
        self.extras = frozenset(fields or ()) & EXTRAS
        self.decoders = resolve(decoders)
        # [epoch, step]: in shared memory, so that workers that live on see what the main process sets
        self._start = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._own: tuple[int, int] | None = None  # of a state that was loaded in a worker: its own next step
        self._at = (0, 0)
        self.splits(1)

    # -- who reads what -------------------------------------------------------------------------------------------

    @property
    def unit(self) -> str:
        """What a step is: 'batch', or 'sample' when the DataLoader makes the batches."""
        return "sample" if self.batch_size is None else "batch"

    def splits(self, num_workers: int) -> Splits:
        """The splits with so many workers a rank (0 counts as 1); raises UsageError."""
        return splits_of(
            self.stored.manifest.samples, self.ranks, max(1, num_workers),
            global_batch=(self.batch_size or 1) * self.ranks, num_splits=self.num_splits, turns=self.turns,
            policy=self.policy,
        )  # fmt: skip

    def steps(self, num_workers: int = 0) -> int:
        """Batches (samples without batch_size) that this rank delivers in an epoch."""
        return self.splits(num_workers).steps(self.rank, self.ranks)

    def order(self, epoch: int, num_workers: int = 0) -> EpochOrder:
        """The order of an epoch."""
        return EpochOrder(
            self.stored.manifest.shard_samples, self.splits(num_workers), self.shuffle, self.buffer, self.seed, epoch
        )

    def identity(self, num_workers: int = 0) -> Identity:
        """What a state of this dataset is a state of."""
        splits = self.splits(num_workers)
        window = window_rows(self.buffer, splits.share)
        return identity_of(splits, self.fingerprint, self.seed, self.shuffle, window, self.unit)

    # -- reading --------------------------------------------------------------------------------------------------

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """The epoch that the next iteration reads, from this step on. Without it every iteration reads epoch 0."""
        if epoch < 0 or step < 0:
            raise UsageError(f"epoch {epoch}, step {step}: both count from 0")
        self._start[0], self._start[1] = epoch, step

    @property
    def start(self) -> tuple[int, int]:
        """(epoch, step) of the next iteration."""
        return int(self._start[0]), int(self._start[1])

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        epoch, first = self.start
        # The DataLoader asks worker 0 first, whatever the step.
        (epoch, step), self._own = self._own or (epoch, first + worker), None
        self._at = (epoch, step)
        lane = Lane(self.rank, self.ranks, worker, workers)
        if info is not None:
            seed = named_stream(self.seed, "worker", epoch, step, self.rank, worker)
            seed_process(seed)
            torch.manual_seed(seed)
        return self._read(LaneReader(self.reader, self.order(epoch, workers), lane, self.decoders, self.extras), step)

    def _read(self, lane: LaneReader, first: int) -> Iterator[Any]:
        epoch, single = lane.order.epoch, self.batch_size is None
        for step, samples in lane.batches(first):
            self._at = (epoch, step + lane.lane.workers)
            yield samples[0] if single else samples

    # -- states ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands; what StatefulDataLoader asks for in its workers. Where there are workers the
        training process does not know what they delivered: use ShardLoader, or elastic_state()."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return self.identity(workers).state(*self._at, worker, workers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state says. Raises StateError naming what differs.

        Without num_splits the dataset takes over the splits of the state, where they suit its ranks.
        """
        info = get_worker_info()
        start = self.adopt(state).accept(state)
        mine = (0, 1) if info is None else (info.id, info.num_workers)
        if (state["worker"], state["workers"]) != mine:
            raise StateError(
                f"this state is of worker {state['worker']} of {state['workers']}",
                why=f"it is loaded in worker {mine[0]} of {mine[1]}",
                remedy="make one of all workers' states: elastic_state(loader_state)",
            )
        if info is None:
            self.set_epoch(*start)
            self._at = start
        else:
            self._own = start

    def adopt(self, state: Mapping[str, Any]) -> Identity:
        """Take over a state's splits when none were asked for; the identity that it must then have."""
        if self.num_splits is None:
            count, turns = adopted(state, self.ranks)
            mine = self.identity(turns)
            if state["global_batch"] == mine.global_batch and state["unit"] == mine.unit:
                if self.turns is None or self.turns == turns:
                    self.num_splits, self.turns = count, turns
                return self.identity()
            return replace(mine, num_splits=count, turns=turns)
        return self.identity()


def _world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """(rank, ranks); UsageError for a rank outside its world."""
    if (rank is None) != (world_size is None):
        raise UsageError("rank and world_size belong together", remedy="give both, or neither")
    if rank is None or world_size is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        else:
            try:
                rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
            except ValueError as error:
                raise UsageError(f"RANK or WORLD_SIZE is no number: {error}") from None
    if not 0 <= rank < world_size:
        raise UsageError(f"rank {rank} of {world_size} ranks", why="ranks count from 0")
    return rank, world_size


def _batch(batch_size: int | None, global_batch_size: int | None, ranks: int) -> int | None:
    if global_batch_size is not None:
        if batch_size is not None:
            raise UsageError("batch_size and global_batch_size say the same", remedy="give one of them")
        if global_batch_size % ranks:
            raise UsageError(
                f"a global batch of {global_batch_size:,} samples cannot be dealt to {ranks:,} ranks",
                remedy=f"give global_batch_size={nearest(global_batch_size, ranks)}",
            )
        batch_size = global_batch_size // ranks
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, not {batch_size}")
    return batch_size
