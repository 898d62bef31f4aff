"""simulate: how well a loader's shuffle mixes what is stored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import UsageError, printable
from ..base.reporting import Reporter
from ..base.seeds import generator, sort_keys
from ..base.units import plural, show_count
from ..disk.sources import SourceOptions
from ..layout.order import SHUFFLE
from ..layout.rules import Rules
from ..loaders import LOADERS, loader_class
from ..loaders.shardtool import ShardTool
from ..mixing import advice, closed_forms, metrics, pictures, pipeline
from ..mixing.pipeline import Delivered, Pipeline, shard_gaps
from ..mixing.shuffles import KERNELS, SHUFFLES, Shuffle
from ..mixing.shuffles import dali as dali_shuffle
from ..schedule.world import World
from .plan import manifest_of, read_manifest_file, stored_codes
from .scan import scan

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

# Up to here every sample is simulated; above, a smaller data set with the same ratios stands for it.
WHOLE = 20_000_000
MODEL = 2_000_000
TENTHS = 10
BATCH = 256
# Trials are for small cases: their orders are counted place by place up to here.
PLACES = 64
TRIALS_SCORED = 200


@dataclass(frozen=True)
class Stored:
    """What lies on disk, in stored order.

    shard_samples  int64[shards]
    codes          int32[n] class of every sample, or None
    classes        names of the classes
    mean_bytes     of a sample, or None
    repacked       the stored order is a full shuffle of the source
    """

    shard_samples: I64
    codes: npt.NDArray[np.int32] | None = None
    classes: tuple[str, ...] = ()
    mean_bytes: float | None = None
    repacked: bool = False

    @property
    def samples(self) -> int:
        """n"""
        return int(self.shard_samples.sum())


def stored_labels(
    src: Sequence[str], label: str | None, source: SourceOptions | None = None, rules: Rules | None = None, *,
    jobs: int = 1, reporter: Reporter | None = None,
) -> Stored:  # fmt: skip
    """What SRC or a manifest holds: samples of every shard, labels in stored order, mean sample size.

    A manifest whose index has the labels (or which nobody asks for labels) answers without its shards being read.
    Raises UsageError and DataError as a scan does.
    """
    path = manifest_of(src)
    manifest = None if path is None else read_manifest_file(path)
    if path is not None and manifest is not None and label in (None, (manifest.labels or {}).get("field")):
        shards, codes, classes = manifest.shard_samples, stored_codes(path, manifest), manifest.classes or ()
        size = manifest.bytes
    else:
        wanted = replace(rules or Rules(), label=label)
        found = scan(src, source, wanted, jobs=jobs, check_payload=False, reporter=reporter).index
        shards = np.array([one.samples for one in found.sources], np.int64)
        codes = None if found.label is None else found.label[0 : found.samples].astype(np.int32)
        classes, size = found.classes, sum(one.bytes for one in found.sources)
    names = tuple(printable(name) for name in classes)
    if codes is not None and (codes < 0).any():
        codes = np.where(codes < 0, len(names), codes).astype(np.int32)
        names = (*names, "(no label)")
    shards = shards[shards > 0]
    repacked = manifest is not None and manifest.seed is not None and manifest.order == SHUFFLE
    return Stored(shards, codes, names, size / int(shards.sum()), repacked)


def described(samples: int, samples_per_shard: int | None, sample_bytes: int | None) -> Stored:
    """`samples` in equal shards (the last may be smaller); without a size one shard. Raises UsageError."""
    if samples < 2:
        raise UsageError(f"{plural(samples, 'sample')} cannot be shuffled", remedy="give -n at least 2")
    size = samples if samples_per_shard is None else samples_per_shard
    if size < 1:
        raise UsageError(f"--samples-per-shard {size} is not positive")
    shards = -(-samples // size)
    if shards > WHOLE:
        raise UsageError(f"{show_count(shards)} shards are too many", remedy="give a larger --samples-per-shard")
    sizes = np.full(shards, size, np.int64)
    sizes[-1] = samples - size * (shards - 1)
    return Stored(sizes, mean_bytes=float(sample_bytes) if sample_bytes is not None else None)


@dataclass(frozen=True)
class Options:
    """As the command line has them; None: the loader's default."""

    loader: str = "dali"
    buffer: int | None = None
    batch_size: int | None = None  # 256, or a quarter of a small set
    shuffle_shards: bool | None = None
    cycle: int | None = None
    initial: int | None = None
    clump: int | None = None
    shardshuffle: int | None = None
    dali_reader: str = "tfrecord"
    detshuffle: bool = False
    workers: int = 0
    world_size: int = 1
    epochs: int = 1
    seed: int = 0
    trials: int = 1
    ids: bool = False
    exact: bool = False
    target: float | None = None
    repacked: bool = False
    pictures: bool = False


@dataclass
class Result:
    """Everything the output says. Numbers that were not simulated are None."""

    pipe: Pipeline
    stored: Stored
    assumed_order: bool
    classes_are: str  # 'labels', 'shards' or 'tenths'
    setting: closed_forms.Setting
    closed: closed_forms.Forecast
    target: float
    scores: dict[str, metrics.Score] = field(default_factory=dict)
    score: float = math.nan
    score_sd: float | None = None
    rank_score: float | None = None
    indistinguishable: bool = False
    failed_test: str | None = None
    tests: dict[str, float] = field(default_factory=dict)
    deff: float | None = None
    classes_mean: float | None = None
    classes_worst: int | None = None
    classes_expected: float | None = None
    first_tenth: float | None = None
    median_distance: float | None = None
    model: str | None = None  # how a smaller data set stands for the real one
    model_samples: int = 0
    ids: list[Any] | None = None
    places: dict[str, Any] | None = None
    trials: int = 1
    curve: list[dict[str, Any]] = field(default_factory=list)
    advice: advice.Advice | None = None
    target_check: dict[str, Any] | None = None
    # for the figures
    heat: F64 | None = None
    coarse: F64 | None = None
    strip: F64 | None = None
    distances: pictures.DistanceCurve | None = None

    @property
    def step_batch(self) -> int:
        """Samples a step: of all ranks."""
        return self.pipe.batch_size * self.pipe.ranks

    @property
    def buffers(self) -> int:
        """Buffers in the whole job."""
        return self.pipe.ranks * self.pipe.lanes_per_rank

    @property
    def effective_batch(self) -> float | None:
        """Batch / design effect, at most the batch."""
        return None if self.deff is None else self.step_batch / max(1.0, self.deff)


def chosen_shuffle(options: Options) -> Shuffle:
    """The loader's shuffle, with the kind of reader where it matters. Raises UsageError for an unknown name."""
    if options.loader == "dali":
        return dali_shuffle(options.dali_reader)
    if options.loader in SHUFFLES:
        return SHUFFLES[options.loader]
    if options.loader in LOADERS:
        shuffle: Shuffle | None = loader_class(options.loader)().shuffle
        if shuffle is not None:
            return shuffle
    raise UsageError(f"no loader {options.loader!r} with a shuffle", remedy=f"choose one of {', '.join(SHUFFLES)}")


def pipeline_of(options: Options, stored: Stored) -> Pipeline:
    """Settings with the loader's defaults filled in. Raises UsageError for what cannot be."""
    shuffle = chosen_shuffle(options)
    if options.shardshuffle is not None:
        if options.loader != "webdataset" or options.shardshuffle < 1:
            raise UsageError("--shardshuffle is webdataset's, and at least 1", remedy="drop it; --no-shuffle-shards "
                             "reads the shards in stored order")  # fmt: skip
        shuffle = replace(shuffle, shard_buffer=options.shardshuffle)
    for name, value, least in (
        ("--batch-size", options.batch_size, 2), ("--world-size", options.world_size, 1),
        ("--workers", options.workers, 0), ("--epochs", options.epochs, 1), ("--trials", options.trials, 1),
        ("--buffer", options.buffer, 1), ("--cycle", options.cycle, 1), ("--initial", options.initial, 0),
        ("--shuffle-clump-size", options.clump, 1),
    ):  # fmt: skip
        if value is not None and value < least:
            raise UsageError(f"{name} {value} is too small", remedy=f"give at least {least}")
    n = stored.samples
    batch = options.batch_size
    if batch is None:
        batch = BATCH if 4 * BATCH * options.world_size <= n else max(2, n // (4 * options.world_size))
    if batch * options.world_size > n:
        raise UsageError(
            f"a step of {show_count(batch * options.world_size)} samples is more than all "
            f"{show_count(n)}", remedy="give a smaller --batch-size or --world-size",
        )  # fmt: skip
    buffer = options.buffer if options.buffer is not None else shuffle.buffer
    if shuffle.sized and buffer is None:
        raise UsageError(f"{shuffle.library} has no default buffer", remedy="give --buffer")
    if options.clump is not None and shuffle.kernel != "clumps":
        raise UsageError("--shuffle-clump-size belongs to lancedb", remedy="drop it, or use --loader lancedb")
    if options.buffer is not None and (not shuffle.sized or shuffle.kernel == "clumps"):
        raise UsageError(
            f"{options.loader} has no buffer", why=f"its shuffle is {KERNELS[shuffle.kernel].words.format(buffer='N')}",
            remedy="drop --buffer" + (", give --shuffle-clump-size" if shuffle.kernel == "clumps" else ""),
        )  # fmt: skip
    if shuffle.kernel == "clumps":
        buffer = options.clump if options.clump is not None else 1
    if options.initial is not None and shuffle.kernel != "growing":
        raise UsageError("--initial belongs to webdataset", remedy=f"drop it, or use --loader webdataset, not "
                         f"{options.loader}")  # fmt: skip
    if options.detshuffle and options.loader != "webdataset":
        raise UsageError("--detshuffle belongs to webdataset", remedy="drop it, or use --loader webdataset")
    if options.dali_reader != "tfrecord" and options.loader != "dali":
        raise UsageError("--dali-reader belongs to dali", remedy="drop it, or use --loader dali")
    if options.target is not None and not 0 < options.target <= 100:
        raise UsageError(f"--target {options.target:g} is no score", remedy="give a number above 0, up to 100")
    shards = shuffle.shuffle_shards if options.shuffle_shards is None else options.shuffle_shards
    if shuffle.kernel == "full" or shuffle.kernel == "clumps" or shuffle.fixed_list:
        shards = False  # the samples themselves are listed in random order
    cycle = options.cycle if options.cycle is not None else shuffle.cycle
    return Pipeline(
        shuffle, max(1, buffer or 1), batch,
        shuffle.initial if options.initial is None else options.initial,
        shards, cycle, options.world_size, options.workers, options.seed, options.exact, options.detshuffle,
    )  # fmt: skip


def setting_of(pipe: Pipeline, stored: Stored, classes: int = TENTHS, rho: float = 1.0) -> closed_forms.Setting:
    """The same for the closed forms."""
    split = pipe.shuffle.split
    return closed_forms.Setting(
        KERNELS[pipe.shuffle.kernel].law if not pipe.shuffle.fixed_list else "full",
        stored.samples, stored.samples / len(stored.shard_samples), pipe.batch_size,
        1 if pipe.shuffle.kernel == "none" else pipe.buffer,
        min(pipe.initial, pipe.buffer) if pipe.shuffle.kernel == "growing" else None, pipe.shuffle_shards,
        min(pipe.cycle, max(1, len(stored.shard_samples) // (pipe.ranks * pipe.lanes_per_rank))),
        pipe.ranks, pipe.lanes_per_rank, split == "ranges", split == "shards",
        split == "after" or (pipe.shuffle.uneven == "after" and len(stored.shard_samples) % pipe.ranks != 0),
        pipe.shuffle.grouped, classes, rho, stored.repacked,
        tuple(shard_gaps(pipe, len(stored.shard_samples)).tolist()),
    )  # fmt: skip


def simulate(options: Options, stored: Stored, reporter: Reporter | None = None) -> Result:
    """Runs the pipeline and measures it. Raises UsageError for what cannot be."""
    reporter = reporter or Reporter()
    if options.repacked:
        stored = replace(stored, repacked=True)
    pipe = pipeline_of(options, stored)
    many = len(stored.shard_samples) > 1
    kind = "labels" if stored.codes is not None else "shards" if many else "tenths"
    setting = _with_classes(setting_of(pipe, stored), stored)
    target = 95.0 if options.target is None else options.target
    result = Result(pipe, stored, options.shuffle_shards is None, kind, setting, closed_forms.forecast(setting), target)
    model, model_pipe, result.model = stand_in(stored, pipe)
    if options.exact and result.model:
        raise UsageError(
            f"--exact simulates every sample, {show_count(stored.samples)} are too many",
            remedy=f"leave out --exact, or ask for at most {show_count(WHOLE)} samples",
        )
    result.trials = options.trials
    if model is None:
        _by_closed_form(result)
    else:
        result.model_samples = model.samples
        measure(result, model, model_pipe, options, reporter)
    _curve(result)
    _advise(result)
    if options.target is not None and result.advice is not None:
        result.target_check = check_target(result, options)
    return result


def _with_classes(setting: closed_forms.Setting, stored: Stored) -> closed_forms.Setting:
    """How much the stored shards are of one class each: rho = 1 when they are, 0 when each is like the whole."""
    if stored.codes is None:
        return setting
    kinds = int(stored.codes.max(initial=0)) + 1
    n, shards = stored.samples, len(stored.shard_samples)
    sizes = np.bincount(stored.codes).astype(np.float64)
    chance = float((sizes * (sizes - 1)).sum()) / (n * (n - 1.0))
    if shards == 1 or chance >= 1:
        return replace(setting, classes=max(2, int((sizes > 0).sum())))
    pairs = float((stored.shard_samples * (stored.shard_samples - 1.0)).sum())
    if shards * kinds > 1 << 27 or pairs == 0:
        return setting
    shard_of = np.repeat(np.arange(shards), stored.shard_samples)
    table = np.bincount(shard_of * kinds + stored.codes, minlength=shards * kinds).astype(np.float64)
    inside = float((table * (table - 1)).sum()) / pairs
    return replace(setting, rho=max(0.0, (inside - chance) / (1 - chance)))


def stand_in(
    stored: Stored, pipe: Pipeline, whole: int | None = None
) -> tuple[Stored | None, Pipeline, str | None]:
    """A smaller data set for more than `whole` samples: the score depends on ratios only. (None: closed forms only.)"""
    whole = WHOLE if whole is None else whole
    n, shards = stored.samples, len(stored.shard_samples)
    if n <= whole or stored.codes is not None:
        return stored, pipe, None
    small = max(MODEL, 50 * shards if shards > 1 else 0)
    if pipe.shuffle.sized and pipe.buffer < n:
        small = max(small, -(-8 * pipe.batch_size * pipe.ranks * n // pipe.buffer))
    if small < n and small <= WHOLE:
        sizes = np.full(shards, max(1, small // shards), np.int64)
        buffer = max(1, round(pipe.buffer * int(sizes.sum()) / n))
        words = (f"simulated with {show_count(int(sizes.sum()))} samples, all sizes in proportion (the score depends "
                 "on ratios only)")  # fmt: skip
        return replace(stored, shard_samples=sizes), replace(pipe, buffer=buffer), words
    if n <= WHOLE:
        return stored, pipe, None
    size = n // shards
    if pipe.shuffle_shards and size * 100 <= WHOLE:
        few = max(100, WHOLE // 2 // size)
        words = f"simulated with {show_count(few)} of the shards, all sizes as they are"
        return replace(stored, shard_samples=stored.shard_samples[:few]), pipe, words
    return None, pipe, "from the closed form: too large to simulate"


def _by_closed_form(result: Result) -> None:
    if result.closed.score is None:
        raise UsageError(
            f"{show_count(result.stored.samples)} samples with a buffer of {show_count(result.pipe.buffer)} are too "
            "many to simulate and have no closed form",
            remedy="ask for a smaller data set with the same ratios of buffer, shards and samples",
        )
    result.score = result.closed.score
    result.deff = result.closed.deff


def deliver_epochs(pipe: Pipeline, shard_samples: I64, epochs: list[int], trial: int = 0) -> list[Delivered]:
    """As `mixing.pipeline` has it; the exact order of our own loader comes from the loader."""
    if not (pipe.exact and pipe.shuffle.name == ShardTool.shuffles):
        return pipeline.deliver_epochs(pipe, shard_samples, epochs, trial)
    if not pipe.shuffle_shards or pipe.cycle > 1:
        raise UsageError(
            "--exact does not cover --no-shuffle-shards or --cycle with shardtool", remedy="leave out --exact, or that"
        )
    loader = ShardTool(window=pipe.buffer)
    world = World(pipe.ranks, workers_per_rank=pipe.workers, batch_size=pipe.batch_size)
    runs = []
    for epoch in epochs:
        schedule = loader.split(shard_samples, world, epoch, pipe.seed)
        lanes = [[schedule.lane(r, w).ids for w in range(pipe.lanes_per_rank)] for r in range(pipe.ranks)]
        runs.append(pipeline.batches(pipe, lanes))
    return runs


# -- measuring ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """What a stored id means: its position in the source and its class (None: the position itself decides)."""

    n: int
    position: I64 | None
    codes: npt.NDArray[np.int32] | None
    shard_of: npt.NDArray[np.int32] | None

    def positions(self, ids: I64) -> I64:
        """Source positions of stored ids."""
        return ids if self.position is None else self.position[ids]

    def classes(self, ids: I64, positions: I64) -> npt.NDArray[np.integer]:
        """Class codes: labels, else shards of the source, else tenths of it."""
        if self.codes is not None:
            return self.codes[ids]
        if self.shard_of is not None:
            return self.shard_of[positions]
        return positions * TENTHS // self.n

    def kinds(self) -> int:
        """How many classes there are."""
        if self.codes is not None:
            return int(self.codes.max(initial=0)) + 1
        return int(self.shard_of[-1]) + 1 if self.shard_of is not None else TENTHS


def source_of(stored: Stored, seed: int) -> Source:
    """For repacked data the source position is what the repack scattered: any full shuffle has its law."""
    n, shards = stored.samples, len(stored.shard_samples)
    position = np.argsort(sort_keys(seed ^ 0x5EED, 0, n)) if stored.repacked else None
    shard_of = None
    if shards > 1:
        shard_of = np.repeat(np.arange(shards, dtype=np.int32), stored.shard_samples)
    return Source(n, position, stored.codes, shard_of)


def measure(result: Result, model: Stored, pipe: Pipeline, options: Options, reporter: Reporter) -> None:
    """Fills in what the simulation shows."""
    source = source_of(model, options.seed)
    # Freshness wants a second epoch; the real second epoch of these two is unknown.
    one_epoch = pipe.exact and pipe.shuffle.name in ("torch", "grain-window")
    wanted = options.epochs if one_epoch else max(2, options.epochs)
    with ThreadPoolExecutor(1) as pool:  # numpy works without the interpreter lock: two cores are of use here
        if pipe.exact:
            runs = deliver_epochs(pipe, model.shard_samples, list(range(wanted)))
            later = pool.submit(lambda: runs[1:])
        else:
            later = pool.submit(deliver_epochs, pipe, model.shard_samples, list(range(1, wanted)))
            runs = deliver_epochs(pipe, model.shard_samples, [0])
        table = runs[0].global_batches()
        if not len(table):
            raise UsageError(
                "no step has a full batch from every rank", remedy="give a smaller --batch-size, or fewer workers"
            )
        fresh = pool.submit(lambda: _freshness([runs[0], *later.result()], source.n))
        entropy = pool.submit(_entropy, runs[0], source)
        _mixing(result, table, source, pipe, options)
        result.scores["runs"] = metrics.runs(source.classes(runs[0].ids, source.positions(runs[0].ids)))
        freshness = fresh.result()
        if freshness is not None:
            result.scores["freshness"] = freshness
        result.scores["entropy"] = entropy.result()
    if options.ids and options.trials == 1:
        if result.model:
            reporter.warn("--ids is left out: a smaller data set was simulated")
        else:
            every = [runs[0], *later.result()][: options.epochs]
            result.ids = np.concatenate([run.ids for run in every]).tolist()
    if options.trials > 1:
        _trials(result, model, pipe, options, source)
    if pipe.ranks > 1:
        _skew(result, runs[0], source)
    if options.pictures:
        _pictures(result, runs[0], table, source)


def _entropy(run: Delivered, source: Source) -> metrics.Score:
    order = source.positions(run.ids)
    if source.shard_of is None:
        return metrics.mosaic_entropy(order, None, 1)
    return metrics.mosaic_entropy(order, source.shard_of[order], int(source.shard_of[-1]) + 1)


def _freshness(runs: list[Delivered], n: int) -> metrics.Score | None:
    """Mean over consecutive epochs; None when there is only one."""
    tables = [run.global_batches() for run in runs]
    if len(tables) < 2 or not all(len(t) for t in tables):
        return None
    each = [metrics.freshness(a, b, n) for a, b in itertools.pairwise(tables)]
    return replace(each[0], value=float(np.mean([f.value for f in each])))


def _mixing(result: Result, table: I64, source: Source, pipe: Pipeline, options: Options) -> None:
    """The numbers of one epoch. table int64[steps, ranks * batch] of stored ids."""
    n = source.n
    at = source.positions(table)
    pairs = metrics.pair_distances(at, n, generator(options.seed, "pairs"))
    score = metrics.mixing_score(pairs)
    result.scores["score"] = score
    result.score = min(100.0, max(0.0, score.value))
    result.median_distance = pairs.median()
    if result.pipe.ranks > 1:
        rows = at.reshape(-1, pipe.batch_size)
        inside = metrics.mixing_score(metrics.pair_distances(rows, n, generator(options.seed, "rank pairs")))
        result.rank_score = min(100.0, max(0.0, inside.value))
    order = at.ravel()
    result.first_tenth = metrics.first_tenth(order, n)
    result.scores["drift"] = metrics.drift(order, n)
    result.scores["correlation"] = metrics.spearman(order, n)
    result.indistinguishable, result.failed_test, result.tests = metrics.verdict(
        at, pairs, n, result.scores["correlation"].value, result.scores["drift"].value
    )
    classes = source.classes(table, at)
    parts = metrics.compose(classes)
    result.scores["deff"] = metrics.design_effect(parts)
    result.deff = result.scores["deff"].value
    if source.shard_of is None:
        result.scores["shards"] = metrics.Score("same-shard pairs", 1.0, 1.0, 1.0)
    else:
        own = parts if source.codes is None else metrics.compose(source.shard_of[at])
        result.scores["shards"] = metrics.same_class_pairs(own)
    result.classes_mean = float(parts.distinct.mean())
    result.classes_worst = int(parts.distinct.min())
    result.classes_expected = metrics.expected_classes(parts.sizes, parts.b)
    if options.pictures:
        result.distances = pictures.distance_curve(pairs)


def _skew(result: Result, run: Delivered, source: Source) -> None:
    # Without labels by tenths of the source: ranks that are dealt whole shards share none, which says nothing.
    each = []
    rank_of = np.repeat(run.rank, np.diff(run.first))
    for rank in range(run.ranks):
        ids = run.ids[rank_of == rank]
        at = source.positions(ids)
        each.append(source.codes[ids] if source.codes is not None else at * TENTHS // source.n)
    result.scores["skew"], result.scores["worst rank"] = metrics.rank_skew(each)


def _pictures(result: Result, run: Delivered, table: I64, source: Source) -> None:
    order = source.positions(run.ids)
    result.heat = pictures.heatmap(order, source.n, 128, 128)
    result.coarse = pictures.heatmap(order, source.n, 48, 48)
    at = source.positions(table)
    classes = source.classes(table, at)
    kinds = source.kinds()
    if kinds > 20:  # too many colours: tenths of the source
        classes, kinds = at * TENTHS // source.n, TENTHS
    result.strip = pictures.strip(classes, kinds)


def _trials(result: Result, model: Stored, pipe: Pipeline, options: Options, source: Source) -> None:
    """Many epochs of one pipeline, each with its own draws: spread of the score, and for small n what comes where."""
    if pipe.exact:
        raise UsageError("--exact has one order, --trials asks for many", remedy="drop one of them")
    n = model.samples
    counts = np.zeros((n, n), np.int64) if n <= PLACES else None
    kept: list[list[int]] = []
    scores: list[float] = []
    for trial in range(options.trials):
        run = deliver_epochs(pipe, model.shard_samples, [0], trial)[0]
        if counts is not None and len(run.ids) == n:
            counts[np.arange(n), run.ids] += 1
        if options.ids:
            kept.append(run.ids.tolist())
        if trial < TRIALS_SCORED:
            at = source.positions(run.global_batches())
            if len(at):
                pairs = metrics.pair_distances(at, n, generator(options.seed, "pairs", trial))
                scores.append(metrics.mixing_score(pairs).value)
    if options.ids:
        result.ids = kept
    if len(scores) > 1:
        result.score = min(100.0, max(0.0, float(np.mean(scores))))
        result.score_sd = float(np.std(scores, ddof=1))
    if counts is not None:
        share = counts / options.trials
        result.places = {
            "support_by_position": [[int(row.nonzero()[0][0]), int(row.nonzero()[0][-1])] for row in counts],
            "expected_source_index_by_position": [round(float(v), 6) for v in share @ np.arange(n)],
            "probability": [[round(float(p), 6) for p in row] for row in share],
        }


# -- curve, target, advice ----------------------------------------------------------------------------------------


def most_buffer(result: Result) -> int:
    """The largest buffer that makes sense: all samples of a lane (or of the one stream)."""
    return result.stored.samples // (1 if result.setting.one_stream else result.buffers)


def _bytes(result: Result, buffer: int) -> int | None:
    mean = result.stored.mean_bytes
    return None if mean is None else round(buffer * mean)


def _curve(result: Result) -> None:
    if not result.pipe.shuffle.sized:
        return
    for buffer in pictures.curve_buffers(most_buffer(result), [result.pipe.buffer]):
        at = closed_forms.forecast(replace(result.setting, buffer=buffer))
        result.curve.append({
            "buffer": buffer, "bytes": _bytes(result, buffer), "score": _rounded(at.score), "deff": _rounded(at.deff),
        })  # fmt: skip


def _advise(result: Result) -> None:
    shuffle = result.pipe.shuffle
    costs = advice.Costs(
        result.stored.mean_bytes, result.buffers, len(result.stored.shard_samples) > 1,
        shuffle.sized and shuffle.kernel not in ("clumps",),
    )  # fmt: skip
    result.advice = advice.advise(
        result.setting, costs, result.target, result.score, result.deff, result.stored.codes is not None
    )


def check_target(result: Result, options: Options) -> dict[str, Any]:
    """The smallest buffer for --target: the closed form's, then corrected by a few simulations of a small stand-in."""
    target, most = result.target, most_buffer(result)
    low: int | None = None
    found: tuple[int, float] | None = None
    buffer = closed_forms.buffer_for(result.setting, target) if result.pipe.shuffle.sized else None
    for _ in range(6):
        if buffer is None:
            break
        seen = score_at(result, options, buffer)
        if seen is None:
            break
        if seen >= target:
            if found is None or buffer < found[0]:
                found = (buffer, seen)
        else:
            low = max(low or 0, buffer)
        if abs(seen - target) < 0.3 and seen >= target:
            break
        if found is not None and low is not None:
            following = math.isqrt(low * found[0])
        else:
            # 1 - S falls nearly as 1/buffer: ask for the buffer at which it would be right.
            factor = (100 - seen) / max(100 - target, 0.5)
            following = round(buffer * max(0.6, min(1.6, factor * 1.02)))
        following = max(1, min(most - 1, following))
        if following in (buffer, low, found and found[0]):
            break
        buffer = following
    memory = None if found is None else _bytes(result, found[0])
    return {
        "score": target, "buffer": None if found is None else found[0],
        "bytes": None if memory is None else memory * result.buffers, "bytes_per_worker": memory,
        "simulated_score": None if found is None else _rounded(found[1]),
    }  # fmt: skip


def score_at(result: Result, options: Options, buffer: int) -> float | None:
    """The simulated score with another buffer; above 2 million samples on a stand-in."""
    pipe = replace(result.pipe, buffer=buffer, exact=False)
    model, pipe, _ = stand_in(replace(result.stored, codes=None), pipe, MODEL)
    if model is None:
        return closed_forms.forecast(replace(result.setting, buffer=buffer)).score
    source = source_of(model, options.seed)
    table = deliver_epochs(pipe, model.shard_samples, [0])[0].global_batches()
    if not len(table):
        return None
    pairs = metrics.pair_distances(source.positions(table), source.n, generator(options.seed, "pairs"))
    return metrics.mixing_score(pairs).value


# -- JSON -------------------------------------------------------------------------------------------------------------


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


def facts(result: Result) -> dict[str, Any]:
    """The JSON object."""
    def score(name: str) -> float | None:
        return _rounded(result.scores[name].value, 6) if name in result.scores else None

    def full(name: str) -> float | None:
        return _rounded(result.scores[name].full, 6) if name in result.scores else None

    pipe, given = result.pipe, result.advice
    assert given is not None
    made: dict[str, Any] = {
        "loader": pipe.shuffle.name,
        "library": pipe.shuffle.library,
        "samples": result.stored.samples,
        "shards": len(result.stored.shard_samples),
        "buffer": pipe.buffer if pipe.shuffle.sized else None,
        "batch_size": pipe.batch_size,
        "world_size": pipe.ranks,
        "workers": pipe.workers,
        "buffers": result.buffers,
        "cycle": pipe.cycle,
        "initial": pipe.initial if pipe.shuffle.kernel == "growing" else None,
        "seed": pipe.seed,
        "exact": pipe.shuffle.exact if pipe.exact else None,
        "repacked": result.stored.repacked,
        "shuffle_shards": pipe.shuffle_shards,
        "shardshuffle": pipe.shuffle.shard_buffer if pipe.shuffle_shards else None,
        "shuffle_shards_assumed": result.assumed_order,
        "simulated_samples": result.model_samples,
        "model": result.model,
        "score": _rounded(result.score),
        "rank_batch_score": _rounded(result.rank_score),
        "indistinguishable": result.indistinguishable,
        "failed_test": result.failed_test,
        "p_values": {name: float(f"{p:.3g}") for name, p in result.tests.items()},
        "effective_batch": _rounded(result.effective_batch),
        "deff": _rounded(result.deff),
        "classes_are": result.classes_are,
        "same_shard_pairs": score("shards"),
        "same_shard_pairs_ideal": full("shards"),
        "median_pair_distance": _rounded(result.median_distance, 6),
        "median_pair_distance_ideal": round(1 - 1 / math.sqrt(2), 6),
        "classes_per_batch": {
            "mean": _rounded(result.classes_mean), "worst": result.classes_worst,
            "expected": _rounded(result.classes_expected),
        },
        "label_runs": None if "runs" not in result.scores else int(result.scores["runs"].value),
        "label_runs_expected": full("runs"),
        "freshness": score("freshness"),
        "rank_skew": score("skew"),
        "worst_rank_distance": score("worst rank"),
        "worst_rank_distance_ideal": full("worst rank"),
        "first_tenth_of_source": _rounded(result.first_tenth),
        "drift": score("drift"),
        "entropy": score("entropy"),
        "entropy_ideal": full("entropy"),
        "closed_form": {"score": _rounded(result.closed.score), "deff": _rounded(result.closed.deff)},
        "recommendation": {
            "action": given.fix.action, "buffer": given.fix.buffer, "bytes": given.fix.bytes,
            "score": _rounded(given.fix.score), "target": given.target, "sentence": given.sentence,
            "others": [
                {"action": f.action, "buffer": f.buffer, "bytes": f.bytes, "score": _rounded(f.score)}
                for f in given.others
            ],
        },
        "curve": result.curve,
    }  # fmt: skip
    if result.target_check is not None:
        made["target"] = result.target_check
    if result.trials > 1:
        made["trials"] = {"count": result.trials, "score_sd": _rounded(result.score_sd), **(result.places or {})}
    if result.ids is not None:
        made["ids"] = result.ids
    return made
