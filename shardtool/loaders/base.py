"""What every loader model answers. One file a loader; `LOADERS` in this package names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from ..base.errors import UsageError
from ..mixing.shuffles import SHUFFLES, Shuffle
from ..schedule.counts import Counts
from ..schedule.schedule import Schedule
from ..schedule.world import World

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Loader(ABC):
    """Fields of a subclass are the library's own flags with its own defaults; the command line finds them
    there.

    name        as on the command line
    release     the release whose source the rule was read from
    unit        what the library divides: 'samples', 'shards' or 'splits'
    uses_workers  loader processes of a rank divide its data; otherwise a rank is one lane whatever
    `--workers`
    shuffles    name in mixing.shuffles.SHUFFLES of the library's buffer and order of shards, or None
    resumes_exactly  a checkpoint of the loader goes on without a gap in every world that it accepts
    """

    name: ClassVar[str]
    release: ClassVar[str]
    unit: ClassVar[str] = "samples"
    uses_workers: ClassVar[bool] = True
    shuffles: ClassVar[str | None] = None
    resumes_exactly: ClassVar[bool] = False

    @classmethod
    def flags(cls) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def flag(cls, name: str) -> str:
        """Field name -> the option of the command line: '--pad-last-batch'."""
        found = {f.name: f.metadata.get("flag", f.name) for f in fields(cls)}
        return "--" + str(found[name]).replace("_", "-")

    @property
    def shuffle(self) -> Shuffle | None:
        """Which buffer and which order of shards the library uses; None: it has no shuffle of its own."""
        return None if self.shuffles is None else SHUFFLES[self.shuffles]

    def lanes_per_rank(self, world: World) -> int:
        """Worker processes that divide a rank's data."""
        return world.lanes_per_rank if self.uses_workers else 1

    @abstractmethod
    def check(self, shard_samples: I64, world: World) -> None:
        """Raises UsageError, with the library's own reason, where the library itself would raise."""

    @abstractmethod
    def counts(self, shard_samples: I64, world: World, epochs: int = 1, seed: int = 0) -> Counts:
        """Closed form for epochs 0..epochs-1; shard_samples int64[s] are the samples of the files in
        order."""

    @abstractmethod
    def split(self, shard_samples: I64, world: World, epoch: int = 0, seed: int = 0) -> Schedule:
        """The ids of one epoch, lane by lane."""

    def notes(self, shard_samples: I64, world: World) -> list[str]:
        """Facts about the library that the numbers alone do not show."""
        return []

    def ways_out(self, found: set[str], shard_samples: I64, world: World) -> list[str]:
        """Concrete flags or counts that end what was found: names as in `schedule.verdict.FINDINGS`, and
        'empty batches' and 'batches of copies'."""
        return []

    def alternatives(self) -> list[tuple[str, Loader]]:
        """Other settings of the same loader worth trying, with the words a user would type."""
        return []

    def steps_follow(self, world: World, global_batch: int) -> tuple[bool, int, str]:
        """Whether global step t reads the same samples in every world: (yes, in steps of how many, why)."""
        return False, 1, "each world size cuts the data into other pieces"

    def global_batch(self, world: World) -> int:
        """Samples of one step of all ranks."""
        return world.batch_size * world.ranks

    def fix(self, world: World) -> Loader:
        """The same loader with every default that depends on the world written out, to be used in other
        worlds."""
        return self

    def buffered(self) -> tuple[int, int]:
        """(samples of a worker's shuffle buffer by the library's default, samples needed before the first
        batch)."""
        return 0, 0

    def read_factor(self, shard_samples: I64, world: World) -> int:
        """How many times the data set is read by all ranks together to be delivered once."""
        return 1

    def refuse(self, reason: str, remedy: str) -> NoReturn:
        """The library raises with `reason`."""
        raise UsageError(f"{self.name} refuses this configuration: {reason}", remedy=remedy)


def total(shard_samples: I64) -> int:
    """Samples of all shards."""
    return int(shard_samples.sum())
