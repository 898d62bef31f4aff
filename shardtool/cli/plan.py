"""`shardtool plan`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .loader_options import loader_options, make_loader
from .options import CommaList, Size, console_options, source_options

if TYPE_CHECKING:
    from ..disk.sources import SourceOptions
    from ..jobs.plan import Plan, ShardTable
    from ..layout.rules import Rules
    from ..report.console import Console

EPILOG = """\
Examples:

  shardtool plan mixed/manifest.json --world-size 8 --batch-size 64 --epochs 3

  shardtool plan -n 1000000 --loader lancedb --num-splits 48 --world-size 8 --elastic 1-64

  shardtool plan --shard-sizes 146x1000 --loader shard-floor --world-size 8 --fail-on hang,lost

EXIT STATUS: 0 done, 2 usage, or the loader itself refuses the configuration, 3 the manifest is damaged,
5 the host failed, 6 a --fail-on finding.
"""


@click.command("plan", epilog=EPILOG)
@click.argument("src", nargs=-1)
@click.option("-n", "--samples", type=int, metavar="N", help="That many samples instead of SRC.")
@click.option("--shard-sizes", metavar="LIST", help="Samples of every shard: 10,10,10 or 146x1000.")
@click.option(
    "--samples-per-shard", type=int, metavar="N", help="With -n: shards of N.  [default: one shard]"
)
@click.option("--sample-bytes", type=Size(), metavar="SIZE", help="Mean stored size of a sample.")
@click.option(
    "--world-size", "--num-shards", "world_size", type=int, default=1, show_default=True, metavar="W",
    help="Ranks: processes that train.",
)  # fmt: skip
@click.option("--ranks-per-node", type=int, metavar="N", help="Ranks of a machine.  [default: min(8, W)]")
@click.option(
    "--workers", "--num-workers", "workers", type=int, default=0, show_default=True, metavar="N",
    help="Loader processes of a rank; 0: the rank reads itself.",
)  # fmt: skip
@click.option(
    "--batch-size", type=int, metavar="N", help="Samples that a rank asks for at a time.  [default: 1]"
)
@click.option("--epochs", type=int, default=1, show_default=True, metavar="E")
@click.option("--seed", type=int, default=0, show_default=True)
@loader_options
@click.option("--elastic", metavar="RANKS", help="Other world sizes to compare: 1-64, 8-64/8, 4,6,8.")
@click.option("--elastic-workers", metavar="LIST", help="Workers to compare there.  [default: --workers]")
@click.option(
    "--buffer", type=int, metavar="N", help="Samples of a worker's buffer.  [default: the loader's]"
)
@click.option("--samples-per-second", type=float, metavar="X", help="Wanted speed of a rank.")
@click.option(
    "--disk-speed", type=Size(), default="500MB", show_default=True, metavar="SIZE",
    help="Bytes a second that a node reads.",
)  # fmt: skip
@click.option("--per-worker", is_flag=True, help="With --json or --csv: the workers of every rank.")
@click.option("--ids", is_flag=True, help="The ids of every rank in delivery order.")
@click.option("--grid", is_flag=True, help="A text grid of ids, for small worlds.")
@click.option("--csv", "as_csv", is_flag=True, help="The table as CSV on stdout, nothing else there.")
@click.option(
    "--fail-on", type=CommaList(), default="", metavar="WHAT[,WHAT...]",
    help="Status 6 when found: hang, empty, uneven, lost, repeated.",
)  # fmt: skip
@source_options
@console_options
def command(
    src: tuple[str, ...], samples: int | None, shard_sizes: str | None, samples_per_shard: int | None,
    sample_bytes: int | None, world_size: int, ranks_per_node: int | None, workers: int,
    batch_size: int | None, epochs: int, seed: int, loader: str, loader_flags: dict[str, Any],
    elastic: str | None, elastic_workers: str | None, buffer: int | None, samples_per_second: float | None,
    disk_speed: int, per_worker: bool, ids: bool, grid: bool, as_csv: bool, fail_on: tuple[str, ...],
    source: SourceOptions, rules: Rules, console: Console,
) -> None:  # fmt: skip
    """Say which rank and worker reads what, what it costs, and whether it hangs.

    SRC: a manifest.json or the folder that holds it (no shard is opened), or shards (their headers are read).
    Nothing is written, and no training library is needed: the rules are the releases' own (docs/loaders).
    """
    from ..base.errors import UsageError
    from ..jobs.host import default_jobs
    from ..jobs.plan import PlanRequest, make_plan, shard_table
    from ..schedule.verdict import FINDINGS
    from ..schedule.world import World

    unknown = sorted(set(fail_on) - set(FINDINGS))
    if unknown:
        known = ", ".join(FINDINGS)
        raise UsageError(f"--fail-on does not know {', '.join(unknown)}", remedy=f"choose of {known}")
    made = make_loader(loader, loader_flags)
    world = World(world_size, ranks_per_node, workers, _batch(batch_size, loader_flags, world_size))
    table = _counted(samples, shard_sizes, samples_per_shard, sample_bytes, bool(src))
    if table is None:
        table = shard_table(src, source, rules, jobs=default_jobs(), reporter=console)
    plan = make_plan(
        PlanRequest(
            made, table, world, epochs, seed, _worlds("--elastic", elastic, 1) or [],
            _worlds("--elastic-workers", elastic_workers, 0), buffer, samples_per_second, disk_speed,
        )
    )  # fmt: skip
    _show(console, plan, per_worker=per_worker, ids=ids, grid=grid, as_csv=as_csv)
    _fail(plan, fail_on)


def _batch(batch_size: int | None, flags: dict[str, Any], world_size: int) -> int:
    """The batch of a rank; a global batch is divided by the ranks (the loader checks that it can be)."""
    from ..base.errors import UsageError

    whole = flags.get("global_batch_size")
    if whole is None:
        return 1 if batch_size is None else batch_size
    if whole < 1:
        raise UsageError(f"global batch size must be at least 1, not {whole}")
    each = max(int(whole) // max(world_size, 1), 1)
    if batch_size is not None and batch_size != each:
        raise UsageError(
            f"--batch-size {batch_size} and --global-batch-size {whole} on {world_size} ranks contradict "
            f"each other",
            remedy=f"leave out --batch-size (it is {each})",
        )
    return each


def _counted(
    samples: int | None, sizes: str | None, per_shard: int | None, sample_bytes: int | None, src: bool
) -> ShardTable | None:
    """The table that -n or --shard-sizes give; None for SRC."""
    from ..base.errors import UsageError
    from ..jobs.plan import table_of_counts, table_of_sizes

    given = [src, samples is not None, sizes is not None]
    if sum(given) != 1:
        what = (
            "nothing to plan for" if not any(given) else "SRC, --samples and --shard-sizes exclude each other"
        )
        raise UsageError(what, remedy="give one of SRC, -n N, or --shard-sizes 10,10,10")
    if sample_bytes is not None and sample_bytes < 1:
        raise UsageError("--sample-bytes must be at least 1")
    if per_shard is not None and samples is None:
        raise UsageError("--samples-per-shard goes with -n", remedy="leave it out")
    if samples is not None:
        return table_of_counts(samples, per_shard, sample_bytes)
    return table_of_sizes(sizes, sample_bytes) if sizes is not None else None


def _worlds(option: str, text: str | None, least: int) -> list[int] | None:
    from ..base.errors import UsageError
    from ..schedule.elastic import parse_worlds

    if text is None:
        return None
    try:
        return parse_worlds(text, least)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is no list of numbers", remedy="write 1-64, 8-64/8 or 4,6,8"
        ) from None


def _show(console: Console, plan: Plan, *, per_worker: bool, ids: bool, grid: bool, as_csv: bool) -> None:
    from ..jobs.plan import plan_facts
    from ..report.plan import show_grid, show_ids, show_plan, write_csv

    if console.as_json:
        console.result(plan_facts(plan, per_worker=per_worker, ids=ids))
    elif as_csv:
        write_csv(plan, per_worker=per_worker)
    else:
        show_plan(console, plan)
        if grid:
            show_grid(console, plan)
        if ids:
            show_ids(console, plan)


def _fail(plan: Plan, fail_on: tuple[str, ...]) -> None:
    from ..base.errors import FindingError

    hit = [name for name in fail_on if name in plan.verdict.found]
    if hit:
        ways = "; ".join(plan.ways_out)
        raise FindingError(
            f"the plan is {', '.join(hit)}", why="; ".join(plan.verdict.reasons),
            remedy=ways or "see the ways out that `shardtool plan` prints",
        )  # fmt: skip
