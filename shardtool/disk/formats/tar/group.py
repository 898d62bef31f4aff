"""From members to samples: columns that grow member by member, and the policies on what a sample is."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....base.errors import DataError, printable
from ....base.ragged import Ragged
from ....layout.index import I64, Runs
from ....layout.rules import Rules
from ...scanned import NAMED


@dataclass(frozen=True)
class Columns:
    """Parts of all samples, as in layout.index.Index."""

    first: I64
    offset: I64
    head: I64
    size: I64
    ext: npt.NDArray[np.uint32]
    exts: tuple[bytes, ...]
    keys: Ragged
    sparse: dict[int, Runs]


class Samples:
    """Samples of one archive under construction. Members are added in file order."""

    def __init__(self, file: bytes, rules: Rules) -> None:
        self.file = file
        self.rules = rules
        self.collect = rules.group == "archive"
        self.offset, self.head, self.size = array("q"), array("q"), array("q")
        self.ext, self.owner = array("I"), array("q")
        self.first = array("q")
        self.keys: dict[bytes, int] = {}  # key -> sample number, of this archive
        self.cut: set[bytes] = set()  # keys of samples that lost a member
        self.codes: dict[bytes, int] = {}
        self.sparse: dict[int, Runs] = {}
        self.dropped = 0
        self.repeated: list[bytes] = []  # members that gave way to another of the same name
        self.repeats = 0
        self.doubtful: dict[bytes, list[int]] = {}  # samples beside a damage -> their fields
        self._rejected: set[bytes] = set()  # those of them that lost a member
        self._shape: list[int] | None = None  # fields of the finished samples, while they are all alike
        self._uniform = True
        self.last: bytes | None = None  # key of the sample that is being read
        self._mine: list[int] = []  # codes of its fields
        self._folds: dict[bytes, int] = {}
        self._fold_of: list[int] = []
        self._check_case = False
        self._required = [self._code(name) for name in rules.require]
        self._places: dict[tuple[int, int], int] = {}  # (sample, code) -> part, when collecting

    # -- adding -------------------------------------------------------------------------------------

    def add(self, key: bytes, ext: bytes, offset: int, payload: int, size: int) -> bool:
        """One member; False when a policy leaves it out."""
        code = self.codes.get(ext)
        if code is None:
            code = self._code(ext)
        if key != self.last and not self._begin(key, offset):
            return False
        if self.collect:
            if not self._place(key, ext, code, offset):
                return False
        else:
            if code in self._mine and not self._repeat(key, ext, code, offset):
                return False
            if self._check_case:
                self._compare_case(key, code, self._mine, offset)
            self._mine.append(code)
        self.offset.append(offset)
        self.head.append(payload - offset)
        self.size.append(size)
        self.ext.append(code)
        return True

    def _code(self, ext: bytes) -> int:
        code = self.codes.get(ext)
        if code is None:
            code = self.codes[ext] = len(self.codes)
            fold = self._folds.setdefault(ext.lower(), code)
            self._fold_of.append(fold)
            # only then a sample can hold two fields that differ by case
            self._check_case |= fold != code and not self.rules.allow_case_collision
        return code

    def _begin(self, key: bytes, offset: int) -> bool:
        """Another key than that of the member before."""
        if self.last is not None:
            self.finish()
        if self.cut and key in self.cut:
            self.last, self._mine = None, []
            return False
        if key not in self.keys:
            self.keys[key] = len(self.keys)
            self.first.append(len(self.offset))
        elif not self.collect:
            raise DataError(
                f"members of the sample {printable(key)} are not adjacent in their archive",
                file=self.file, offset=offset, member=key,
                why="the key appears again behind other samples; readers would see two half samples",
                remedy="--group archive collects the members of a sample over the whole archive",
            )  # fmt: skip
        self.last = key
        self._mine = []
        return True

    def _repeat(self, key: bytes, ext: bytes, code: int, offset: int) -> bool:
        """The same field twice in one sample; True when the new one takes the place of the old."""
        self._complain(key, ext, offset)
        if self.rules.on_duplicate == "first":
            return False
        at = len(self.offset) - len(self._mine) + self._mine.index(code)
        for column in (self.offset, self.head, self.size, self.ext):
            column.pop(at)
        self._mine.remove(code)
        self.sparse = {part - (part > at): runs for part, runs in self.sparse.items() if part != at}
        return True

    def _place(self, key: bytes, ext: bytes, code: int, offset: int) -> bool:
        """When collecting: note the owner of the part that is about to be appended."""
        number = self.keys[key]
        part = self._places.get((number, code))
        if part is not None:
            self._complain(key, ext, offset)
            if self.rules.on_duplicate == "first":
                return False
            self.owner[part] = -1
        if self._check_case:
            others = [c for c in range(len(self.codes)) if (number, c) in self._places and c != code]
            self._compare_case(key, code, others, offset)
        self._places[number, code] = len(self.offset)
        self.owner.append(number)
        return True

    def _complain(self, key: bytes, ext: bytes, offset: int) -> None:
        member = key + b"." + ext
        if self.rules.on_duplicate == "error":
            raise DataError(
                f"duplicate member {printable(member)}: the same field twice in one archive",
                file=self.file, offset=offset, member=member,
                remedy="--on-duplicate first or last keeps one of them",
            )  # fmt: skip
        self.repeats += 1
        if len(self.repeated) < NAMED:
            self.repeated.append(member)

    def _compare_case(self, key: bytes, code: int, others: list[int], offset: int) -> None:
        fold = self._fold_of[code]
        for other in others:
            if self._fold_of[other] == fold and other != code:
                names = list(self.codes)
                one, two = printable(names[other]), printable(names[code])
                raise DataError(
                    f"two fields of the sample {printable(key)} differ by letter case only: {one} and {two}",
                    file=self.file, offset=offset, member=key,
                    why="webdataset and others lower-case extensions and then see a duplicate",
                    remedy="rename one of them, or --allow-case-collision",
                )  # fmt: skip

    # -- the end of a sample ------------------------------------------------------------------------

    def finish(self) -> None:
        """The sample that is being read has all its members (when not collecting)."""
        if self.last is None or self.collect:
            return
        if self.last in self.doubtful:
            self.doubtful[self.last] = self._mine  # no model for others, and judged at the end
            return
        if self._shape is None:
            self._shape = self._mine
        elif self._mine != self._shape:
            self._uniform = False
        if self._required:
            self._check_required(self.last, self._mine, self.offset[-1])

    def _check_required(self, key: bytes, codes: list[int], offset: int) -> None:
        missing = [printable(name) for name in self.rules.require if self.codes[name] not in codes]
        if missing:
            raise DataError(
                f"the sample {printable(key)} has no {', '.join(missing)}",
                file=self.file, offset=offset, member=key,
                why=f"--require {','.join(printable(name) for name in self.rules.require)}",
                remedy="remove the sample, or ask for fewer fields",
            )  # fmt: skip

    # -- damage -------------------------------------------------------------------------------------

    def cut_sample(self, key: bytes) -> None:
        """A member of this sample is lost: drop the sample as a whole, with what may still come of it."""
        if key in self.cut:
            return
        self.cut.add(key)
        self.dropped += 1
        if self.collect:
            return  # members go when the archive has been read
        if key == self.last:
            self._drop_last()

    def _drop_last(self) -> None:
        assert self.last is not None
        self.truncate(self.first[-1], len(self.first) - 1)

    def truncate(self, parts: int, samples: int) -> None:
        """Back to as many parts and samples."""
        for column in (self.offset, self.head, self.size, self.ext, self.owner):
            del column[parts:]
        del self.first[samples:]
        for key in list(self.keys)[samples:] if samples < len(self.keys) else []:
            del self.keys[key]
        self.sparse = {part: runs for part, runs in self.sparse.items() if part < parts}
        self._places = {place: part for place, part in self._places.items() if part < parts}
        self.last, self._mine = None, []

    def doubt(self, key: bytes) -> None:
        """This sample stands beside a damage and may have lost a member."""
        if not self.collect:
            self.doubtful.setdefault(key, [])

    def settle(self) -> list[bytes]:
        """Judge the doubtful samples by the others; returns those that cannot be judged.

        When all others have the same fields, or some fields are required, a doubtful sample without one of them
        has lost it and is dropped.
        """
        open_ones = []
        required = {self.codes[name] for name in self.rules.require}
        model = set(self._shape) if self._uniform and self._shape is not None else None
        for key, codes in self.doubtful.items():
            if key in self.cut or key not in self.keys:
                continue
            mine = set(codes)
            if not mine >= required or (model is not None and mine < model):
                self._rejected.add(key)
                self.dropped += 1
            elif model is None or mine != model:
                open_ones.append(key)
        return open_ones

    # -- all of it ----------------------------------------------------------------------------------

    def columns(self) -> Columns:
        """Columns of everything that was added; fields are numbered by their bytes."""
        offset, head, size = (np.array(column, np.int64) for column in (self.offset, self.head, self.size))
        ext = np.array(self.ext, np.uint32)
        keys, sparse = list(self.keys), self.sparse
        if self.collect:
            owner = np.array(self.owner, np.int64)  # [parts]
            gone = self.cut
        else:
            first = np.array([*self.first, len(offset)], np.int64)
            owner = np.repeat(np.arange(len(keys)), np.diff(first))
            gone = self._rejected
        if self.collect or gone:
            lost = np.array([key in gone for key in keys], bool)  # [samples]
            kept = np.flatnonzero((owner >= 0) & ~lost[owner])
            order = kept[np.argsort(owner[kept], kind="stable")]  # [parts that stay], by sample
            counts = np.bincount(owner[order], minlength=len(keys))[~lost]
            keys = [key for key in keys if key not in gone]
            first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
            offset, head, size, ext = offset[order], head[order], size[order], ext[order]
            sparse = {new: sparse[old] for new, old in enumerate(order.tolist()) if old in sparse}
        used = np.unique(ext)
        names = list(self.codes)
        exts = sorted(names[code] for code in used.tolist())
        number = np.zeros(len(names) + 1, np.uint32)  # [codes]: code of this scan -> place among `exts`
        for place, name in enumerate(exts):
            number[self.codes[name]] = place
        columns = Columns(first, offset, head, size, number[ext], tuple(exts), Ragged.of(keys), sparse)
        if self.collect and self._required:
            self._require_all(columns, keys)
        return columns

    def _require_all(self, columns: Columns, keys: list[bytes]) -> None:
        for i, key in enumerate(keys):
            a, b = int(columns.first[i]), int(columns.first[i + 1])
            codes = [self.codes[columns.exts[e]] for e in columns.ext[a:b].tolist()]
            self._check_required(key, codes, int(columns.offset[a]))
