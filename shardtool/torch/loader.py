"""ShardLoader: a DataLoader over a ShardDataset that counts what the training loop has been given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from ..base.errors import UsageError
from .dataset import ShardDataset


class ShardLoader:
    """Batches of a ShardDataset, epoch after epoch.

    num_workers and the other keywords are DataLoader's (collate_fn, pin_memory, prefetch_factor, persistent_workers,
    multiprocessing_context, ...). `for batch in loader` reads from where the loader stands to the end of the epoch;
    after it, the loader stands at the next epoch. A loop that was left goes on at the next `for`.

    A state counts batches that were handed out, never those that workers have ahead, so it is exact at any step; it
    has no workers in it, and may be loaded with another number of them, and of ranks where the splits allow it.

    epoch, step   where it stands: batches of this epoch that were handed out
    """

    def __init__(self, dataset: ShardDataset, num_workers: int = 0, **more: Any) -> None:
        if dataset.batch_size is None:
            raise UsageError("ShardLoader needs batch_size in its ShardDataset",
                             remedy="ShardDataset(..., batch_size=32)")  # fmt: skip
        odd = sorted({"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & set(more))
        if odd:
            raise UsageError(f"{odd[0]} belongs to ShardDataset", why="it makes the batches")
        self.dataset, self.num_workers, self._more = dataset, num_workers, more
        self.epoch, self.step = dataset.start
        self._loader = self._new()

    def _new(self) -> DataLoader[Any]:
        return DataLoader(self.dataset, batch_size=None, num_workers=self.num_workers, **self._more)

    def __len__(self) -> int:
        """Batches of an epoch on this rank."""
        return self.dataset.steps(self.num_workers)

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Go to another place."""
        self.dataset.set_epoch(epoch, step)
        self.epoch, self.step = epoch, step

    def __iter__(self) -> Iterator[Any]:
        # Workers read the start when they begin, which may be after the first batch is here: it stays as it is
        # until the last of them has ended.
        self.dataset.set_epoch(self.epoch, self.step)
        for batch in self._loader:
            self.step += 1
            yield batch
        self.set_epoch(self.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """What was handed out, for `load_state_dict` here or in another world."""
        return self.dataset.identity(self.num_workers).state(self.epoch, self.step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the last batch of the state. Raises StateError naming what differs."""
        self.dataset.load_state_dict(state)
        self.epoch, self.step = self.dataset.start
        self._loader = self._new()  # workers that live on would not know of splits that were taken over
