"""Options that are flags of training loaders: `--loader` and every field of every loader, once each.

The list is static, so that `--help` imports no loader; a test compares it with the loaders' fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..loaders import LOADERS, SYNONYMS  # names only: imports no numpy

if TYPE_CHECKING:
    from ..loaders.base import Loader

Command = Callable[..., Any]


def _flag(name: str, words: str, **more: Any) -> Callable[[Command], Command]:
    return click.option(f"--{name}/--no-{name}", default=None, help=words, **more)


def _number(name: str, words: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", type=int, metavar="N", help=words)


def _choice(name: str, values: list[str], words: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", type=click.Choice(values, case_sensitive=False), help=words)


OPTIONS = [
    _choice("last-batch-policy", ["fill", "drop", "partial"], "dali: of the framework iterator.  [fill]"),
    _flag("pad-last-batch", "dali: the reader fills its last batch with copies of its last sample."),
    _flag("stick-to-shard", "dali: the same shard in every epoch, no rotation."),
    _flag("shuffle-after-epoch", "dali: the whole list anew after every epoch; sticks to the shard."),
    _flag("random-shuffle", "dali: shuffle buffer of --initial-fill samples."),
    _number("initial-fill", "dali: samples of that buffer.  [1024]"),
    _choice("dali-reader", ["file", "tfrecord", "webdataset", "mxnet"], "dali: which reader.  [tfrecord]"),
    _choice(
        "split-over", ["lanes", "workers", "none"],
        "torch, torch-stride, tfrecord: over ranks x workers, over a rank's workers only, or not.  [lanes]",
    ),
    _flag("drop-last", "DataLoader(drop_last), of DistributedSampler: drop instead of repeat, grain: of Batch."),
    _flag("drop-last-batch", "torch-distributed: drop_last of the DataLoader."),
    _flag("shuffle", "torch-distributed, lancedb, grain: the library's own shuffle.  [on; grain off]"),
    _number("num-splits", "lancedb, shardtool: fixed splits.  [world size; one a worker]"),
    _number("shuffle-clump-size", "lancedb: rows that stay together."),
    _number("global-batch-size", "lancedb, shardtool: samples of a step of all ranks; sets the batch of a rank."),
    _number("turns", "shardtool: a split serves every so many steps.  [1 with --num-splits, else workers]"),
    _choice("policy", ["exact", "drop", "pad"], "shardtool: samples that do not divide.  [exact]"),
    _choice("shuffle-by", ["shards", "global", "none"], "shardtool: order of an epoch.  [shards]"),
    _number("window", "shardtool: samples that a split reads and shuffles at a time.  [1000]"),
    _choice("shard", ["element", "file", "none"], "tfdata: what Dataset.shard divides.  [element]"),
    _choice("auto-shard-policy", ["auto", "file", "data", "off"], "tfdata: tf.distribute's, not --shard."),
    _number("cycle-length", "tfdata: files that interleave has open.  [1]"),
    _number("block-length", "tfdata: samples of a file in turn.  [1]"),
    _flag("drop-remainder", "tfdata: of batch(); grain: of ShardOptions."),
    _choice("sampler", ["index", "sequential"], "grain: IndexSampler or SequentialSampler.  [index]"),
    _choice(
        "nodesplitter", ["split_by_node", "single_node_only", "none"], "webdataset.  [split_by_node]"
    ),
    _choice("workersplitter", ["split_by_worker", "none"], "webdataset.  [split_by_worker]"),
    _flag("resampled", "webdataset: shards drawn with replacement; needs --with-epoch."),
    _number("shardshuffle", "webdataset: buffer of shards.  [0]"),
    _flag("detshuffle", "webdataset: another shard order in every epoch."),
    _flag("empty-check", "webdataset: a worker without samples raises.  [on]"),
    _number("with-epoch", "webdataset: samples of a worker's epoch."),
    _choice("strategy", ["auto", "shards", "examples"], "hf: of split_dataset_by_node.  [auto]"),
    _choice("style", ["iterable", "map"], "hf: IterableDataset or Dataset.  [iterable]"),
    _flag("index", "tfrecord: with an index file.  [on]"),
    _choice("shard-strategy", ["scatter", "replicate"], "shard-floor: of NeMo.  [scatter]"),
]  # fmt: skip


def loader_options(function: Command) -> Command:
    """`--loader` and all flags; the command receives `loader` (a name) and `loader_flags`: those given."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in FLAG_NAMES}
        flags = {name: value for name, value in given.items() if value is not None}
        return function(*args, loader_flags=flags, **kwargs)

    command: Command = run
    for option in reversed(OPTIONS):
        command = option(command)
    return click.option(
        "--loader", "--scheme", default="dali", show_default=True, metavar="NAME",
        type=click.Choice([*LOADERS, *SYNONYMS]), help=f"One of {', '.join(LOADERS)}.",
    )(command)  # fmt: skip


def _names() -> list[str]:
    """Parameter names that click makes of OPTIONS."""

    def nothing() -> None: ...

    made: Command = nothing
    for option in OPTIONS:
        made = option(made)
    return [str(p.name) for p in click.command("names")(made).params]


FLAG_NAMES = _names()


def make_loader(name: str, flags: dict[str, Any]) -> Loader:
    """The loader with these flags; UsageError for a flag that it does not have, naming the loaders that
    do."""
    from ..base.errors import UsageError
    from ..loaders import loader_class

    cls = loader_class(name)
    field_of = {option_name(cls, field): field for field in cls.flags()}
    for flag in flags:
        if flag not in field_of:
            have = [
                other for other in LOADERS
                if flag in {option_name(loader_class(other), f) for f in loader_class(other).flags()}
            ]  # fmt: skip
            mine = ", ".join(sorted(cls.flag(f) for f in cls.flags()))
            raise UsageError(
                f"--{flag.replace('_', '-')} is no flag of {cls.name}",
                why=f"loaders that have it: {', '.join(have)}; flags of {cls.name}: {mine}",
                remedy=f"leave it out, or use --loader {have[0]}",
            )
    return cls(**{field_of[flag]: value for flag, value in flags.items()})


def option_name(cls: type[Loader], field: str) -> str:
    """The parameter name that click gives to a field's option."""
    return cls.flag(field)[2:].replace("-", "_")
