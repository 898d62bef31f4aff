"""Where a reading stands, as a small dict: what it is a state of, epoch and step. No torch.

Every batch is a function of what stands here and of the world, so a state has no buffer and no generator in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import StateError
from ..schedule.epoch_order import ShuffleBy
from ..schedule.feistel import ORDER
from ..schedule.splits import Policy, Splits

MARK = "shardtool.torch"
SCHEMA = 1


@dataclass(frozen=True)
class Identity:
    """What decides the batches. window: rows of a window, of shuffle 'shards' only; unit: 'batch' or 'sample'."""

    manifest: str
    samples: int
    seed: int
    shuffle: ShuffleBy
    window: int | None
    policy: Policy
    unit: str
    global_batch: int
    num_splits: int
    turns: int

    def state(self, epoch: int, step: int, worker: int = 0, workers: int = 1) -> dict[str, Any]:
        """`step` is the next that this worker delivers; of a whole rank (workers = 1), the next of all."""
        return {
            MARK: SCHEMA, "manifest": self.manifest, "samples": self.samples, "order": ORDER, "seed": self.seed,
            "shuffle": self.shuffle, "window": self.window, "policy": self.policy, "unit": self.unit,
            "global_batch": self.global_batch, "num_splits": self.num_splits, "turns": self.turns,
            "epoch": epoch, "step": step, "worker": worker, "workers": workers,
        }  # fmt: skip

    def accept(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """(epoch, step) of a state of the same batches. Raises StateError that names the field that differs."""
        check_schema(state)
        words = {
            "manifest": ("of another manifest", "read the shards that it was made with"),
            "samples": ("of another number of samples", "read the shards that it was made with"),
            "order": ("of another kind of order", f"this release has {ORDER}"),
            "seed": ("of another seed", "give seed={}"),
            "shuffle": ("of another shuffle", "give shuffle={!r}"),
            "window": ("of another buffer", "give buffer={}"),
            "policy": ("of another policy", "give policy={!r}"),
            "unit": ("of another kind of step", "give batch_size to both, or to neither"),
            "global_batch": ("of another global batch", "let batch_size x ranks be {}"),
            "num_splits": ("of other splits", "give num_splits={}"),
            "turns": ("of splits in other turns", "give turns={}"),
        }
        mine = self.state(0, 0)
        for name, (what, remedy) in words.items():
            if state[name] != mine[name]:
                raise StateError(
                    f"this state is {what}", why=f'its "{name}" is {state[name]!r}, here it is {mine[name]!r}',
                    remedy=remedy.format(state[name]),
                )  # fmt: skip
        return state["epoch"], state["step"]


def check_schema(state: Mapping[str, Any]) -> None:
    """Raises StateError for what is no state of ours, or one of a newer release, or has a field of another type."""
    if not isinstance(state, Mapping) or MARK not in state:
        raise StateError("this is no state of shardtool.torch", why=f"it has no field {MARK!r}",
                         remedy="states of StatefulDataLoader go through elastic_state() first")  # fmt: skip
    if state[MARK] != SCHEMA:
        raise StateError(f"this state has schema {state[MARK]!r}, this release knows {SCHEMA}",
                         remedy="install the release that wrote it")  # fmt: skip
    fields = set(Identity("", 0, 0, "none", None, "exact", "batch", 1, 1, 1).state(0, 0))
    for name in sorted(fields - {MARK}):
        if name not in state:
            raise StateError("this state is damaged", why=f"it has no field {name!r}")
    for name in ("samples", "seed", "global_batch", "num_splits", "turns", "epoch", "step", "worker", "workers"):
        least = {"seed": None, "global_batch": 1, "num_splits": 1, "turns": 1, "workers": 1}.get(name, 0)
        value = state[name]
        if type(value) is not int or (least is not None and value < least):
            raise StateError("this state is damaged", why=f"its field {name!r} is {value!r}")


def adopted(state: Mapping[str, Any], ranks: int) -> tuple[int, int]:
    """(num_splits, turns) of a state whose splits this number of ranks can share; StateError when it cannot."""
    check_schema(state)
    count, turns = state["num_splits"], state["turns"]
    slots = count // turns
    if count % turns or slots % ranks:
        good = [str(r) for r in range(1, slots + 1) if slots % r == 0]
        raise StateError(
            f"{ranks:,} ranks cannot go on with this state", why=f'its "num_splits" is {count:,} in {turns:,} turn(s)',
            remedy=f"go on with {', '.join(good[-20:])} ranks",
        )  # fmt: skip
    return count, turns


def elastic_state(states: Any) -> dict[str, Any]:
    """The state of a whole rank from that of a StatefulDataLoader, or from those of its workers: it can be loaded with
    any number of workers, and of ranks that suits the splits.

    Looks for states of ours in nested dicts and lists. Raises StateError when there are none, or when the workers do
    not stand at one step, as when the DataLoader made batches of single samples.
    """
    found = list(_ours(states))
    if not found:
        raise StateError("there is no state of shardtool.torch in this", remedy="give the loader's state_dict()")
    for one in found:
        check_schema(one)
    first = found[0]
    step = min(one["step"] for one in found)
    same = [name for name in first if name not in ("step", "worker", "workers")]
    for one in found:
        differs = [name for name in same if one[name] != first[name]]
        if differs:
            raise StateError("these states do not belong together", why=f"they differ in {differs[0]!r}")
        if one["step"] >= step + one["workers"]:
            raise StateError(
                "the workers do not stand at one step",
                why=f"worker {one['worker']} is at step {one['step']}, another at {step}",
                remedy="give batch_size to ShardDataset and batch_size=None to the DataLoader",
            )
    return {**first, "step": step, "worker": 0, "workers": 1}


def _ours(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if MARK in value:
            yield value
        else:
            for inner in value.values():
                yield from _ours(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _ours(inner)


def identity_of(splits: Splits, fingerprint: str, seed: int, shuffle: ShuffleBy, window: int, unit: str) -> Identity:
    """The identity of a reading by `splits`."""
    return Identity(
        fingerprint, splits.samples, seed, shuffle, window if shuffle == "shards" else None, splits.policy, unit,
        splits.global_batch, splits.count, splits.turns,
    )  # fmt: skip
