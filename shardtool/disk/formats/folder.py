"""A folder of sample files: files that share their path up to the first dot of the file's own name are one sample."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError, printable
from ...base.ragged import Ragged
from ...base.units import plural
from ...layout.index import I64
from ...layout.rules import Rules
from ..blocks import Blocks
from ..samplefiles import SampleFiles
from ..scanned import NAMED, Findings, Scanned
from .tar import LABEL_BYTES

CLS = b"cls"
_RENAME = "rename the files: one dot in a name, before the field"


@dataclass
class _Rows:
    """Parts of all samples, one for each file, in the order of the table.

    first  int64[n+1];  ext  uint32[F], number in `exts`, which ascend by bytes
    """

    first: I64
    ext: npt.NDArray[np.uint32]
    exts: tuple[bytes, ...]

    @property
    def samples(self) -> int:
        return len(self.first) - 1

    @property
    def owner(self) -> I64:
        """int64[F], sample of every file."""
        return np.repeat(np.arange(self.samples, dtype=np.int64), np.diff(self.first))


def scan_folder(files: SampleFiles, rules: Rules) -> Scanned:
    """The samples of a folder; of the files only their names are read, and the label field when asked for.

    Raises DataError for what the rules forbid.
    """
    rows = _group(files)
    findings = Findings()
    if files.lost:
        findings.dropped["files_damaged"] += len(files.lost)
        findings.dropped["samples"] += files.lost_samples
        listed = ", ".join(printable(files.prefix + name) for name in files.lost[:NAMED])
        findings.warnings.append(
            f"{plural(files.lost_samples, 'sample')} left out for {plural(len(files.lost), 'file')} without content "
            f"(links to nothing, pointers of git-lfs): {listed}"
        )
    _require(files, rows, rules)
    if not rules.allow_case_collision:
        _compare_case(files, rows)
    odd = _odd_fields(files, rows)
    if odd and rules.strict:
        raise DataError(odd, file=files.root, remedy=f"{_RENAME}; without --strict this is a warning")
    if odd:
        findings.warnings.append(f"{odd}; nothing is lost, but where that is not meant, {_RENAME}")
    scanned = Scanned(
        rows.samples, rows.first, np.zeros(len(files), np.int64), np.zeros(len(files), np.int64), files.size,
        rows.ext, rows.exts, _keys(files, rows), findings=findings, file=np.arange(len(files), dtype=np.int64),
    )  # fmt: skip
    if files.classes is not None:
        return _with_classes(files, scanned, rows)
    if rules.label is not None:
        scanned.labels = _labels(files, rows, rules.label.encode("utf-8", "surrogateescape"))
    return scanned


def _group(files: SampleFiles) -> _Rows:
    """Neighbours with one key are a sample."""
    first, ext = array("q"), array("I")
    codes: dict[bytes, int] = {}
    last = None
    for number, (name, dot) in enumerate(zip(files.names, files.dot.tolist(), strict=True)):
        key = name[:dot]
        if key != last:
            first.append(number)
            last = key
        ext.append(codes.setdefault(name[dot + 1 :], len(codes)))
    exts = sorted(codes)
    place = np.zeros(len(codes), np.uint32)  # [codes] -> place among `exts`
    for at, name in enumerate(exts):
        place[codes[name]] = at
    return _Rows(np.array([*first, len(files)], np.int64), place[np.array(ext, np.int64)], tuple(exts))


def _keys(files: SampleFiles, rows: _Rows) -> Ragged:
    """Paths up to the dot, of the first file of every sample."""
    at = rows.first[:-1]
    length = files.dot[at]
    first = np.zeros(len(at) + 1, np.int64)
    np.cumsum(length, out=first[1:])
    # index of every byte: start of its name + its place in the key
    byte = np.arange(first[-1], dtype=np.int64) + np.repeat(files.names.first[at] - first[:-1], length)
    return Ragged(files.names.data[byte], first)


def _name(files: SampleFiles, number: int) -> bytes:
    return files.prefix + files.names[number]


def _key(files: SampleFiles, rows: _Rows, sample: int) -> bytes:
    number = int(rows.first[sample])
    return files.names[number][: int(files.dot[number])]


# -- policies -------------------------------------------------------------------------------------------------


def _require(files: SampleFiles, rows: _Rows, rules: Rules) -> None:
    """DataError for the first sample that lacks a required field."""
    for name in rules.require:
        has = np.zeros(rows.samples, bool)
        if name in rows.exts:
            has[rows.owner[rows.ext == rows.exts.index(name)]] = True
        if not has.all():
            sample = int(np.flatnonzero(~has)[0])
            raise DataError(
                f"the sample {printable(_key(files, rows, sample))} has no {printable(name)}",
                file=_name(files, int(rows.first[sample])),
                why=f"--require {','.join(printable(field) for field in rules.require)}",
                remedy="remove the sample, or ask for fewer fields",
            )  # fmt: skip


def _compare_case(files: SampleFiles, rows: _Rows) -> None:
    """DataError for two fields of a sample that differ by letter case only."""
    folds: dict[bytes, int] = {}
    fold = np.array([folds.setdefault(name.lower(), len(folds)) for name in rows.exts], np.int64)
    if len(folds) == len(rows.exts):
        return
    pair = rows.owner * len(folds) + fold[rows.ext]
    order = np.argsort(pair, kind="stable")
    same = np.flatnonzero(pair[order][1:] == pair[order][:-1])
    if len(same):
        a, b = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        key = printable(_key(files, rows, int(rows.owner[a])))
        one, two = (printable(rows.exts[int(rows.ext[number])]) for number in (a, b))
        raise DataError(
            f"two fields of the sample {key} differ by letter case only: {one} and {two}", file=_name(files, b),
            why="webdataset and others lower-case extensions and then see a duplicate",
            remedy="rename one of them, or --allow-case-collision",
        )  # fmt: skip


def _odd_fields(files: SampleFiles, rows: _Rows) -> str | None:
    """What to say of fields that come about by dots in names that were meant as part of the name.

    Such a field has a dot, and at most a tenth of the samples has it: `00001.7c53336b.txt`, not `00001.left.png`.
    """
    n = rows.samples
    count = np.bincount(rows.ext, minlength=len(rows.exts))
    dotted = np.array([b"." in name for name in rows.exts], bool)
    odd = dotted & (count <= max(1, n // 10)) & (2 * count <= n)
    hit = odd[rows.ext]  # [F]
    if not hit.any():
        return None
    number = int(np.flatnonzero(hit)[0])
    name, field = printable(_name(files, number)), printable(rows.exts[int(rows.ext[number])])
    text = (
        f"{plural(int(hit.sum()), 'file')} with dots inside the name: by WebDataset's rule all behind the first dot is "
        f"the field, so {name} is field {field} of sample {printable(_key(files, rows, int(rows.owner[number])))} "
        f"({plural(int(odd.sum()), 'such field')}, each in few of {n:,} samples)"
    )
    merged = _merged(files, rows, hit)
    if merged:
        listed = ", ".join(printable(files.prefix + _key(files, rows, sample)) for sample in merged[:NAMED])
        more = f" and {len(merged) - NAMED:,} more" if len(merged) > NAMED else ""
        text += f"; {plural(len(merged), 'sample')} of several such files, whose names differ: {listed}{more}"
    return text


def _merged(files: SampleFiles, rows: _Rows, hit: npt.NDArray[np.bool_]) -> list[int]:
    """Samples with an odd field whose files differ before the last dot of their names."""
    found = []
    for sample in np.unique(rows.owner[hit]).tolist():
        a, b = int(rows.first[sample]), int(rows.first[sample + 1])
        if len({files.names[number].rpartition(b".")[0] for number in range(a, b)}) > 1:
            found.append(sample)
    return found


# -- labels ---------------------------------------------------------------------------------------------------


def _with_classes(files: SampleFiles, scanned: Scanned, rows: _Rows) -> Scanned:
    """With a field `cls` in every sample: the number of the folder, directly in the root, that holds it."""
    classes = files.classes
    assert classes is not None and scanned.ext is not None and scanned.file is not None
    if CLS in rows.exts:
        number = int(np.flatnonzero(rows.ext == rows.exts.index(CLS))[0])
        raise DataError(
            "the sample has a field cls, and --label-from dir would add another", file=_name(files, number),
            remedy="leave out --label-from (--label cls takes the class from the file), or rename these files",
        )  # fmt: skip
    number_of = {name: number for number, name in enumerate(classes)}
    codes = np.empty(rows.samples, np.int32)
    for sample, number in enumerate(rows.first[:-1].tolist()):
        name = files.names[number]
        folder, slash, _ = name.partition(b"/")
        if not slash:
            raise DataError(
                "--label-from dir: a sample file lies directly in SRC, so it has no label", file=_name(files, number),
                remedy="move it into the folder of its class, or leave out --label-from",
            )  # fmt: skip
        codes[sample] = number_of[folder]
    exts = tuple(sorted([*rows.exts, CLS]))
    cls = exts.index(CLS)
    digits = np.array([len(b"%d" % number) for number in range(len(classes))], np.int64)  # [classes]
    place = np.cumsum(digits) - digits
    # one part more a sample, put where its field's name belongs
    owner = np.concatenate([rows.owner, np.arange(rows.samples, dtype=np.int64)])
    ext = np.concatenate([scanned.ext + (scanned.ext >= cls), np.full(rows.samples, cls)]).astype(np.uint32)
    order = np.lexsort((ext, owner))

    def column(ours: I64, more: I64) -> I64:
        return np.concatenate([ours, more])[order]

    scanned.exts, scanned.ext = exts, ext[order]
    scanned.first = rows.first + np.arange(rows.samples + 1, dtype=np.int64)
    scanned.offset = column(scanned.offset, place[codes])
    scanned.head = np.zeros(len(order), np.int64)
    scanned.size = column(scanned.size, digits[codes])
    scanned.file = column(scanned.file, np.full(rows.samples, len(files), np.int64))
    scanned.codes = codes
    return scanned


def _labels(files: SampleFiles, rows: _Rows, field: bytes) -> list[bytes | None]:
    """Content of the label field of every sample, without white space around it."""
    labels: list[bytes | None] = [None] * rows.samples
    if field not in rows.exts:
        return labels
    numbers = np.flatnonzero(rows.ext == rows.exts.index(field))
    for number, owner in zip(numbers.tolist(), rows.owner[numbers].tolist(), strict=True):
        size = int(files.size[number])
        if size > LABEL_BYTES:
            raise DataError(
                f"the label field {printable(field)} is larger than {LABEL_BYTES} bytes ({size:,})",
                file=_name(files, number), remedy="name a field that holds a class, not content",
            )  # fmt: skip
        with Blocks(files.path(number), _name(files, number)) as file:
            labels[owner] = bytes(file.peek(0, size)).strip()
    return labels
