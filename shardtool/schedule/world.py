"""Who takes part in a run: nodes, ranks, workers, and how large a batch is."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import UsageError

# Ranks are drawn as rows of arrays [epoch, rank, lane]; beyond this many lanes no table is of use to anyone.
MOST_LANES = 1 << 24


@dataclass(frozen=True)
class World:
    """A lane is one worker of one rank; a rank without workers reads in its own process and is one lane.

    ranks             processes that train, each with its own loader (world size)
    ranks_per_node    ranks that share a machine's memory and disk; None: min(8, ranks)
    workers_per_rank  loader processes of a rank; 0: none, the rank reads itself
    batch_size        samples a rank asks for at a time
    """

    ranks: int = 1
    ranks_per_node: int | None = None
    workers_per_rank: int = 0
    batch_size: int = 1

    def __post_init__(self) -> None:
        least = {"ranks": 1, "ranks_per_node": 1, "workers_per_rank": 0, "batch_size": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise UsageError(
                    f"{WORDS[name]} must be at least {bound}, not {value}", remedy=f"give {bound} or more"
                )
        if self.ranks * self.lanes_per_rank > MOST_LANES:
            raise UsageError(
                f"{self.ranks:,} ranks x {self.lanes_per_rank:,} workers are more than {MOST_LANES:,} lanes",
                remedy="plan for a smaller world",
            )
        if self.batch_size >= 1 << 40:
            raise UsageError("batch size must be below 2^40", remedy="give a smaller --batch-size")

    @property
    def lanes_per_rank(self) -> int:
        return max(1, self.workers_per_rank)

    @property
    def lanes(self) -> int:
        return self.ranks * self.lanes_per_rank

    @property
    def ranks_on_node(self) -> int:
        """Ranks of a full node."""
        return min(8, self.ranks) if self.ranks_per_node is None else min(self.ranks_per_node, self.ranks)

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.ranks_on_node)


WORDS = {
    "ranks": "world size",
    "ranks_per_node": "ranks per node",
    "workers_per_rank": "workers per rank",
    "batch_size": "batch size",
}
