"""What a file's name says before it is opened: whether it claims to be a shard, and of which set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..base.errors import DataError, printable

# '*.tar' '*.tar.*' '*.tgz' '*.tfrecord*' '*.tfrec*' '*.recordio*' '*-DDDDD-of-DDDDD*'
# 'part-DDDDD*', and Hadoop's 'part-r-DDDDD*'
_CLAIM = re.compile(
    rb"\.tar(\Z|\.)|\.tgz\Z|\.tfrec|\.recordio|-[0-9]{5,}-of-[0-9]{5,}|\Apart-([a-z]-)?[0-9]{5,}", re.I
)
_TAR = re.compile(rb"\.tar(\Z|\.)|\.tgz\Z", re.I)
_TFRECORD = re.compile(rb"\.tfrec|\.recordio", re.I)

# Side files of shards: they bear a shard's name, or lie beside it, and never are one.
_JUNK_ENDINGS = (
    b".idx", b".index", b".tfindex", b".index.json",  # indexes
    b".crc", b".md5", b".sha1", b".sha256", b".sha512", b".asc", b".sig",  # checksums and signatures
    b".tmp", b".temp", b".incomplete", b".part", b".partial", b".crdownload", b".aria2",  # unfinished
    b".swp", b"~", b".bak", b".lock", b".log", b".dvc",
)  # fmt: skip
_JUNK_NAMES = {
    b"_success", b"_metadata", b"_common_metadata",
    b"manifest.json", b"dataset_info.json", b"dataset_infos.json", b"features.json",
}  # fmt: skip
_JUNK_STARTS = (b".", b"readme", b"license", b"_committed_", b"_started_")
# Folders that hold no finished shards: hidden ones, archives' Mac litter, jobs of Hadoop that still run.
_JUNK_FOLDERS = {b"__macosx", b"_temporary", b"lost+found"}

# Text beside shards, such as `train-00000-of-00004.json`: no claim.
_TEXT = (b".json", b".jsonl", b".txt", b".csv", b".tsv", b".md", b".html", b".xml", b".yaml", b".yml", b".py")
# Not worth opening to see whether it is a shard, unless its name claims so: a folder may hold millions.
_SAMPLES = (
    *_TEXT, b".cls", b".jpg", b".jpeg", b".png", b".gif", b".webp", b".bmp", b".tif", b".tiff", b".ppm",
    b".wav", b".flac", b".mp3", b".ogg", b".opus", b".m4a", b".mp4", b".mkv", b".webm", b".avi", b".mov",
    b".npy", b".npz", b".pt", b".pth", b".parquet", b".arrow", b".pdf", b".pyd",
)  # fmt: skip


# In a folder of sample files less is put aside, for a sample may be called anything: `license_plate_7.jpg`, `a.idx`.
_LITTER_ENDINGS = (
    b".tmp", b".temp", b".incomplete", b".part", b".partial", b".crdownload", b".aria2", b".swp", b"~", b".bak",
    b".lock", b".dvc",
)  # fmt: skip
_LITTER_NAMES = {
    b"manifest.json", b"dataset_info.json", b"dataset_infos.json", b"features.json", b"thumbs.db", b"desktop.ini",
}  # fmt: skip
_ABOUT = re.compile(rb"(readme|licen[cs]e|changelog|checksums?|md5sums|sha(1|256|512)sums)\.(md|txt|rst|html?)", re.I)


def is_litter(name: bytes) -> bool:
    """Whether a file with this base name is ignored among sample files: unfinished, or about the folder."""
    low = name.lower()
    return low in _LITTER_NAMES or low.endswith(_LITTER_ENDINGS) or _ABOUT.fullmatch(low) is not None


def is_junk(name: bytes) -> bool:
    """Whether a file with this base name is ignored in a folder: hidden, index, checksum, unfinished, ..."""
    low = name.lower()
    return low in _JUNK_NAMES or low.startswith(_JUNK_STARTS) or low.endswith(_JUNK_ENDINGS)


def is_junk_folder(name: bytes) -> bool:
    """Whether a folder with this base name is not entered."""
    return name.startswith(b".") or name.lower() in _JUNK_FOLDERS


def claims(name: bytes) -> bool:
    """Whether the base name claims that the file is a shard."""
    return _CLAIM.search(name) is not None and not name.lower().endswith(_TEXT)


def worth_opening(name: bytes) -> bool:
    """Whether the content of a file whose name claims nothing may be a shard."""
    return not name.lower().endswith(_SAMPLES)


def format_of_name(name: bytes) -> str | None:
    """'tar' or 'tfrecord' when the base name says which; None for `part-00000` or `x-00000-of-00004`."""
    if _TAR.search(name):
        return "tar"
    return "tfrecord" if _TFRECORD.search(name) else None


_MEMBER = re.compile(rb"(.*)-([0-9]{5,})-of-([0-9]{5,})(.*)", re.S)
# Some writers end each name in a hash of the content: 'train-00000-of-00002-6f3a0c5e9d21b874.tar'.
_HASH = re.compile(rb"\A-[0-9a-f]{8,}(?=\.|\Z)")
# How many missing members a message names.
_NAMED = 5


@dataclass
class _Set:
    """Files `X-DDDDD-of-DDDDD` of one folder with one X: total as written -> the numbers that are there."""

    before: bytes
    after: bytes
    totals: dict[bytes, dict[int, int]] = field(default_factory=dict)  # total -> number -> digits

    def member(self, number: int, digits: int, total: bytes) -> bytes:
        return b"%s-%0*d-of-%s%s" % (self.before, digits, number, total, self.after)


def check_sets(names: Iterable[bytes], allow_incomplete: bool, strict: bool) -> list[str]:
    """Check that every shard set among `names` (relative paths) is whole; returns warnings.

    A set is all `X-00000-of-00010` of one folder with one X, what follows the total included. Raises
    DataError for missing members and for two totals of one X; `allow_incomplete` makes a warning of both. A
    set numbered 1..N is whole, with a warning (`strict`: DataError).
    """
    sets: dict[tuple[bytes, bytes], _Set] = {}
    for name in names:
        folder, slash, base = name.rpartition(b"/")
        match = _MEMBER.fullmatch(base)
        if match:
            before, number, total, after = match.groups()
            after = _HASH.sub(b"", after)
            before = folder + slash + before
            one = sets.setdefault((before, after), _Set(before, after))
            one.totals.setdefault(total, {})[int(number)] = len(number)
    warnings = []
    for key in sorted(sets):
        for what, why, tolerated in _faults(sets[key]):
            if strict if tolerated else not allow_incomplete:
                remedy = "complete the set, or give --allow-incomplete"
                if tolerated:
                    remedy = "leave out --strict, or give the files numbers from 0"
                raise DataError(what, why=why, remedy=remedy)
            warnings.append(f"{what} ({why})")
    return warnings


def _faults(one: _Set) -> Iterator[tuple[str, str, bool]]:
    """(what, why, whether it is only odd) for everything wrong with one set."""
    if len({int(total) for total in one.totals}) > 1:
        parts = [f"{len(one.totals[t])} files of-{t.decode()}" for t in sorted(one.totals)]
        pattern = printable(one.before) + "-*-of-*" + printable(one.after)
        why = "the remains of an older run are often left like this; reading both counts samples twice"
        yield f"two different totals in the shard set {pattern}: {', '.join(parts)}", why, False
    for total, numbers in sorted(one.totals.items()):
        count = int(total)
        digits = max(numbers.values())
        pattern = f"{printable(one.before)}-*-of-{total.decode()}{printable(one.after)}"
        from_one = 0 not in numbers and count in numbers
        first = 1 if from_one else 0
        beyond = sorted(n for n in numbers if n >= count + first)
        missing = count - (len(numbers) - len(beyond))
        if missing:
            absent = _first_missing(numbers, first, count, digits, one, total)
            more = f" and {missing - len(absent):,} more" if missing > len(absent) else ""
            yield (
                f"the shard set {pattern} is incomplete: missing {', '.join(absent)}{more}",
                f"{len(numbers) - len(beyond):,} of {count:,} files are there", False,
            )  # fmt: skip
        elif from_one:
            last = one.member(count, digits, total)
            why = f"{count:,} files up to {printable(last)}: complete, though others number from 0"
            yield f"the shard set {pattern} is numbered from 1", why, True
        if beyond:
            name = printable(one.member(beyond[0], digits, total))
            what = f"the shard set {pattern} has a file beyond its total: {name}"
            yield what, "numbers end at total - 1", False


def _first_missing(
    numbers: dict[int, int], first: int, count: int, digits: int, one: _Set, total: bytes
) -> list[str]:
    absent: list[str] = []
    # At most len(numbers) + _NAMED steps, whatever total a name claims.
    for number in range(first, first + count):
        if number not in numbers:
            absent.append(printable(one.member(number, digits, total)))
            if len(absent) == _NAMED:
                break
    return absent
