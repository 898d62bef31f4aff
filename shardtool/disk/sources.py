"""From SRC arguments to the ordered list of input files.

An argument is a file, a folder, a glob, a brace pattern, `@list.txt` or a manifest of ours. The content of a
file decides its format; its name decides whether it claims to be a shard. docs/sources.md has the rules.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import DataError, HostError, StateError, UsageError, printable
from ..layout.manifest import decode_name
from ..layout.rules import Rules
from . import decode, samplefiles
from .arguments import Path, expand, unreachable
from .claims import check_sets, claims, format_of_name, is_junk, is_junk_folder, worth_opening
from .files import is_file, read_at
from .formats import sniff
from .patterns import host, join, tree
from .samplefiles import SampleFiles
from .scanned import Findings

# Bytes of a file's head that decide its format: two tar blocks, for what stands behind a first header.
HEAD = 1024
# Size up to which a JSON file is read: a shard set of 10^6 shards has a manifest of about 200 MB.
MANIFEST_LIMIT = 1 << 30

# What the content of a compressed file may come to, unless --spool-limit says: times its size, plus.
RATIO, SLACK = 100, 1 << 30

_WORDS = {"tar": "a tar archive", "tfrecord": "a TFRecord file", None: "a shard"}
FOLDER = "folder"
DAMAGED = {"tar": "archives_damaged", "tfrecord": "files_damaged", None: "files_damaged"}

Source = str | bytes | os.PathLike[str]


@dataclass(frozen=True)
class SourceOptions:
    """How SRC is to be understood; names are those of the options.

    base              folder that names are relative to
    from_             'tar', 'tfrecord' or 'folder' instead of what content and names say
    label_from        'dir': the first folder below SRC gives the label
    allow_incomplete  read shard sets that lack members
    strict            warnings of policy become errors
    spool_limit       bytes that the content of one compressed file may come to; None: 100 times its size and 1 GiB
    """

    base: str | None = None
    from_: str | None = None
    label_from: str | None = None
    allow_incomplete: bool = False
    strict: bool = False
    spool_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One file to read, or one folder of sample files.

    path         absolute, to open it
    name         relative to the base, '/' between folders: for order, messages and the manifest
    format       'tar', 'tfrecord' or 'folder'; of a compressed file its content's
    size         bytes of the file; 0 is possible. Of a folder: of its sample files together
    mtime_ns, inode  to notice a change during a run; the time of a folder is that of its newest sample file
    compression  None, or how the file is compressed: 'gzip', 'zlib', 'zstd', 'bz2', 'xz'
    linked       the file was reached by a symbolic link to it
    limit        bytes that the content of a compressed file may come to
    files        of a folder: its sample files
    """

    path: bytes
    name: bytes
    format: str
    size: int
    mtime_ns: int
    inode: int
    compression: str | None = None
    linked: bool = False
    limit: int | None = None
    files: SampleFiles | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """As Source.identity of layout.index: equal for the same input wherever it lies."""
        return (self.name, self.size, None if self.files is None else self.files.listing)

    @property
    def private(self) -> list[object]:
        """What tells that the input was changed or replaced, on this machine."""
        facts: list[object] = [printable(self.path), self.size, self.mtime_ns, self.inode]
        return facts if self.files is None else [*facts, self.files.private]

    @property
    def dependencies(self) -> tuple[bytes, ...]:
        """Absolute paths that a change of the input shows at: the file, or all folders below a folder."""
        return (self.path,) if self.files is None else self.files.folders


@dataclass(frozen=True)
class Inputs:
    """What SRC comes to: at least one file, ascending by name.

    base       absolute folder that names are relative to
    files      in source order
    findings   what was ignored and dropped, and warnings
    roots      folders given as SRC, and folders entered by a link
    folders    every folder that was entered, ascending
    manifests  manifests given as SRC
    """

    base: bytes
    files: tuple[Input, ...]
    findings: Findings
    roots: tuple[bytes, ...] = ()
    folders: tuple[bytes, ...] = ()
    manifests: tuple[bytes, ...] = ()

    @property
    def format(self) -> str:
        """The format of all files; 'tar' when there are folders besides tars."""
        return next((one.format for one in self.files if one.format != FOLDER), FOLDER)

    @property
    def output_format(self) -> str:
        """The format of the shards that a repack writes when it is not told another."""
        return "tar" if self.format == FOLDER else self.format

    @property
    def compressed(self) -> list[int]:
        """Numbers of the files that are compressed."""
        return [number for number, one in enumerate(self.files) if one.compression]

    @property
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(one.size for one in self.files)


@dataclass(slots=True)
class _Found:
    """A file on its way to become an Input.

    unknown  the head of a file of no known format; of a compressed file, of its content
    error    what keeps the head of a compressed file from being decoded
    """

    path: bytes
    size: int
    mtime_ns: int
    inode: int
    device: int
    linked: bool
    explicit: bool
    claimed: bool
    format: str | None = None
    compression: str | None = None
    blank: bool = False
    unknown: bytes | None = None
    error: DataError | HostError | None = None


@dataclass
class _Collected:
    """All that the arguments name."""

    files: list[_Found] = field(default_factory=list)
    samples: list[SampleFiles] = field(default_factory=list)
    ignored: list[tuple[str, bytes]] = field(default_factory=list)  # (reason, path)
    anchors: set[bytes] = field(default_factory=set)  # folders whose deepest common one is the base
    roots: set[bytes] = field(default_factory=set)
    folders: set[bytes] = field(default_factory=set)
    manifests: set[bytes] = field(default_factory=set)

    def enter(self, root: bytes, folder: bytes, linked: bool) -> None:
        """Note a folder below `root`."""
        self.folders.add(folder)
        if linked or folder == root:
            self.roots.add(folder)


def resolve(
    sources: Sequence[Source], options: SourceOptions | None = None, rules: Rules | None = None
) -> Inputs:
    """The input files that `sources` name, in the order in which their samples are numbered.

    The order of `sources` and of the file system do not matter. Of `rules`, on_corrupt and verify decide what
    becomes of files that claim to be shards and are none.

    Raises UsageError (no such file, the same file twice, not supported), DataError (no shard, an incomplete
    set), HostError (unreadable).
    """
    options, rules = options or SourceOptions(), rules or Rules()
    if not sources:
        raise UsageError("no SRC given", remedy="name files, folders or patterns to read")
    collected = _Collected()
    for source in sources:
        for path in expand(os.fsencode(source)):
            _collect(path, options, rules, collected)
    if not collected.anchors:
        raise UsageError("SRC names no file", why="the list is empty", remedy="name files or folders")
    base = _base(options.base, collected.anchors)
    findings = Findings(loose=bool(collected.samples) and not collected.files)
    named = [(_relative(base, one.path), one.path, one) for one in collected.files]
    named.sort(key=lambda triple: triple[:2])
    _refuse_twice(named)
    files, dropped = _decide([(name, one) for name, _, one in named], options, rules, collected, findings)
    files = sorted([*files, *_sample_inputs(base, options, rules, collected)], key=lambda one: one.name)
    _refuse_mixed(files)
    for reason, left in sorted(collected.ignored, key=lambda pair: pair[1]):
        findings.ignore(reason, _relative(base, left))
    # What is damaged is not missing.
    names = sorted([*dropped, *(one.name for one in files)])
    findings.warnings.extend(check_sets(names, options.allow_incomplete, options.strict))
    if not files:
        why = "; ".join([*findings.warnings, *findings.sentences()])
        raise DataError("SRC has no samples", why=why or None)
    return Inputs(
        base, tuple(files), findings, tuple(sorted(collected.roots)), tuple(sorted(collected.folders)),
        tuple(sorted(collected.manifests)),
    )  # fmt: skip


# -- what comes with a later release --------------------------------------------------------------------------


def _refuse_mixed(files: list[Input]) -> None:
    """Sample files and members of tars become the same samples; records of TFRecord files are others."""
    by_format = {one.format: one.name for one in reversed(files)}
    if len(by_format) < 2 or "tfrecord" not in by_format:
        return
    names = " and ".join(f"{printable(name)} ({kind})" for kind, name in sorted(by_format.items(), key=_by_words))
    what = "tar" if "tar" in by_format else "a folder of sample files"
    raise UsageError(
        f"SRC mixes {what} and TFRecord, which is not supported yet: {names}",
        remedy="give --from tar or --from tfrecord, or name only files of one format",
    )


def _by_words(pair: tuple[str, bytes]) -> tuple[bool, str]:
    return (pair[0] == "tfrecord", pair[0])


# -- paths -> files ------------------------------------------------------------------------------------------


def _collect(named: Path, options: SourceOptions, rules: Rules, into: _Collected) -> None:
    """Put what one path stands for into `into`."""
    path = named.path
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise unreachable(path, error, named.origin) from None
    absolute = _absolute(path)
    if stat.S_ISDIR(mode):
        _collect_folder(absolute, options, rules, into)
    elif options.from_ == FOLDER:
        raise UsageError(
            "--from folder: this is no folder", file=path, remedy="name the folder that holds the sample files"
        )
    elif named.matched and is_junk(os.path.basename(absolute)):
        into.anchors.add(os.path.dirname(absolute))
        into.ignored.append(("files", absolute))
    elif stat.S_ISREG(mode):
        found = _examine(absolute, linked=os.path.islink(absolute), explicit=True)
        shards = None
        if found.unknown and not found.compression and found.unknown.lstrip()[:1] == b"{":
            shards = _manifest_shards(absolute, found.size)
        if shards is None:
            into.files.append(found)
            into.anchors.add(os.path.dirname(absolute))
        else:
            _collect_manifest(absolute, shards, into)
    else:
        raise UsageError(
            "this is no regular file", file=path, why="shards are read by position: no pipe, no device",
            remedy="write it to a file first",
        )  # fmt: skip


def _collect_manifest(path: bytes, shards: list[bytes], into: _Collected) -> None:
    """The shards that a manifest of ours lists."""
    folder = os.path.dirname(path)
    into.anchors.add(folder)
    into.manifests.add(path)
    for name in shards:
        shard = join(folder, name)
        if name.startswith(b"/") or b".." in name.split(b"/"):
            raise DataError("the manifest names a shard outside its folder", file=path, member=name)
        if not is_file(shard):
            raise DataError(
                "a shard that the manifest lists is missing", file=shard, why=f"listed in {printable(path)}",
                remedy="put the shard back, or name the shards themselves",
            )  # fmt: skip
        into.files.append(_examine(shard, linked=os.path.islink(shard), explicit=True))


def _collect_folder(root: bytes, options: SourceOptions, rules: Rules, into: _Collected) -> None:
    """The shards below a folder, and then all other files are ignored and counted; else its sample files."""
    into.anchors.add(root)
    if options.from_ == FOLDER:
        _collect_samples(root, rules, into)
        return
    shards: list[_Found] = []
    others: list[bytes] = []
    junk: list[bytes] = []
    ignored: list[tuple[str, bytes]] = []
    entered: dict[bytes, bool] = {}
    dangling = False
    wanted = (options.from_,) if options.from_ else ("tar", "tfrecord")

    def skip(folder: bytes, name: bytes) -> bool:
        if name == b".shardtool" or (name == b"index" and _is_output(folder)):
            return True  # our own work folder and index: part of the shards, not worth a word
        if is_junk_folder(name):
            ignored.append(("directories", join(folder, name)))
            return True
        return False

    for entry in tree(root, skip, entered.__setitem__):
        name = entry.path[entry.path.rfind(b"/") + 1 :]
        claimed = claims(name)
        if entry.kind == "file" and not is_junk(name):
            found = None
            if claimed or worth_opening(name):
                found = _examine(entry.path, linked=entry.linked, explicit=False)
            if found and (found.format in wanted or (claimed and not found.format)):
                shards.append(found)
            else:
                others.append(entry.path)
        elif entry.kind == "file":
            junk.append(entry.path)
        elif entry.kind == "dangling" and claimed and not is_junk(name):
            raise DataError(
                "this link points to nothing", file=entry.path, why="its name claims that it is a shard",
                remedy="fetch its content (git annex get, dvc pull, hf download), or remove the link",
            )  # fmt: skip
        else:
            ignored.append(("symlinks" if entry.kind == "dangling" else "special", entry.path))
            dangling = dangling or entry.kind == "dangling"
    sampled = bool(others) or dangling or any(samplefiles.is_sample(root, path) for path in junk)
    if not shards and sampled and options.from_ is None:
        del others, junk, ignored
        _collect_samples(root, rules, into)
        return
    if not shards:
        _no_shards(root, others, junk, options)
    for folder, linked in entered.items():
        into.enter(root, folder, linked)
    into.files.extend(shards)
    into.ignored.extend(ignored)
    into.ignored.extend(("files", path) for path in (*others, *junk))


def _collect_samples(root: bytes, rules: Rules, into: _Collected) -> None:
    """The sample files below a folder."""
    ignored: list[tuple[str, bytes]] = []

    def ignore(reason: str, path: bytes) -> None:
        if reason == "no_extension" and rules.strict:
            raise DataError(
                "a file without an extension", file=path, why="it has no field, so it is no part of a sample",
                remedy="rename it to KEY.FIELD or remove it; without --strict it is ignored and counted",
            )  # fmt: skip
        ignored.append((reason, path))

    found = samplefiles.find(
        root, b"", ignore, lambda folder, linked: into.enter(root, folder, linked),
        keep_going=rules.on_corrupt != "error",
    )  # fmt: skip
    if not len(found):
        why = f"{len(ignored):,} files and folders are ignored" if ignored else "it is empty"
        if ignored:
            reason, first = min(ignored, key=lambda pair: pair[1])
            why += f", {printable(_relative(root, first))} ({reason}) the first"
        raise DataError("there is no sample file in this folder", file=root, why=why)
    into.ignored.extend(ignored)
    into.samples.append(found)


def _sample_inputs(base: bytes, options: SourceOptions, rules: Rules, collected: _Collected) -> list[Input]:
    """Folders of sample files as inputs."""
    if options.label_from is not None and (collected.files or collected.manifests):
        raise UsageError(
            "--label-from dir is for folders of sample files, and SRC has shards", file=collected.files[0].path,
            remedy="leave it out, or add --from folder when these are samples",
        )  # fmt: skip
    if options.label_from is not None and rules.label not in (None, "cls"):
        raise UsageError(
            f"--label-from dir makes the field cls the label, --label says {rules.label!r}",
            remedy="leave out one of the two",
        )
    _refuse_overlap(collected.samples)
    classes = None
    if options.label_from is not None:
        classes = tuple(sorted({name for one in collected.samples for name in _first_folders(one)}))
    inputs = []
    for one in collected.samples:
        name = b"." if one.root == base else _relative(base, one.root)
        files = replace(one, prefix=b"" if name == b"." else join(name, b""), classes=classes)
        inputs.append(
            Input(
                one.root, name, FOLDER, int(one.size.sum()), int(one.mtime_ns.max()), os.stat(one.root).st_ino,
                files=files,
            )
        )
    return inputs


def _first_folders(one: SampleFiles) -> set[bytes]:
    start = len(join(one.root, b""))
    return {path[start:] for path in one.folders if path != one.root and b"/" not in path[start:]}


def _refuse_overlap(samples: list[SampleFiles]) -> None:
    """UsageError when two of the folders lead to one: each of its samples would count twice."""
    seen: dict[tuple[int, int], int] = {}
    for number, one in enumerate(samples) if len(samples) > 1 else ():
        for folder in one.folders:
            with host(folder):
                status = os.stat(folder)
            other = seen.setdefault((status.st_dev, status.st_ino), number)
            if other != number:
                raise UsageError(
                    f"the same folder is reached twice: {printable(folder)}",
                    why=f"from {printable(samples[other].root)} and from {printable(one.root)}; "
                    "its samples would be counted twice",
                    remedy="name it once, or remove the link",
                )  # fmt: skip


def _no_shards(root: bytes, others: list[bytes], junk: list[bytes], options: SourceOptions) -> None:
    ignored = sorted(_relative(root, path) for path in (*others, *junk))
    why = "it is empty"
    if ignored:
        why = f"{len(ignored):,} files are ignored, {printable(ignored[0])} the first"
    wanted = f"{options.from_} " if options.from_ else ""
    raise DataError(f"there is no {wanted}shard in this folder, so no samples", file=root, why=why)


def _is_output(folder: bytes) -> bool:
    """Whether a job of ours writes, or wrote, into this folder."""
    if os.path.isdir(join(folder, b".shardtool")):
        return True
    path = join(folder, b"manifest.json")
    return os.path.isfile(path) and _manifest_shards(path, os.stat(path).st_size) is not None


def _manifest_shards(path: bytes, size: int) -> list[bytes] | None:
    """Names of the shards in a manifest of ours, or None when the file is none."""
    if size > MANIFEST_LIMIT:
        return None
    with host(path), open(path, "rb") as file:
        text = file.read()
    if b'"shardtool"' not in text:
        return None
    try:
        facts = json.loads(text)
        if "shardtool" not in facts:
            return None
        return [decode_name(shard["name"]) for shard in facts["shards"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _examine(path: bytes, *, linked: bool, explicit: bool) -> _Found:
    """Open a file, read its head once, and say what it is."""
    with host(path):
        # Not to block on a FIFO that took the file's place since it was listed.
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(number)
            head = read_at(number, HEAD, 0) if status.st_size else b""
        finally:
            os.close(number)
    found = _Found(
        path, status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev, linked, explicit,
        claimed=explicit or claims(os.path.basename(path)),
    )  # fmt: skip
    if not head.strip(b"\0"):
        found.blank = True  # no byte, or the zero blocks of an empty archive
    elif sniff.looks_like_tfrecord(head):
        found.format = "tfrecord"
    elif sniff.looks_like_tar(head):
        found.format = "tar"
    else:
        _look_inside(found, head)
    return found


def _look_inside(found: _Found, head: bytes) -> None:
    """Say what a compressed file holds; what is not compressed is unknown."""
    kind = sniff.compression_of(head)
    if kind is None:
        found.unknown = head
        return
    with host(found.path):
        inner, error = decode.head(found.path, kind, HEAD)
    if sniff.looks_like_tfrecord(inner):
        found.format = "tfrecord"
    elif sniff.looks_like_tar(inner):
        found.format = "tar"
    elif error is None and not inner.strip(b"\0"):
        found.blank = True
    elif kind == "zlib":
        found.unknown = head  # its two bytes of header prove nothing
        return
    else:
        found.unknown, found.error = inner, error
    found.compression = kind


# -- what becomes of every file ------------------------------------------------------------------------------


def _decide(
    named: list[tuple[bytes, _Found]],
    options: SourceOptions,
    rules: Rules,
    collected: _Collected,
    findings: Findings,
) -> tuple[list[Input], list[bytes]]:
    """(files to read, names of damaged files that are left out), both in order."""
    files: list[Input] = []
    dropped: list[bytes] = []
    siblings = _Siblings(named)
    for name, one in named:
        base = os.path.basename(name)
        if one.format is None and one.explicit and is_junk(base) and len(named) > 1:
            collected.ignored.append(("files", one.path))  # a side file caught by a pattern of the shell
            continue
        if options.from_ and one.format not in (None, options.from_):
            raise DataError(
                f"not {_WORDS[options.from_]}, but {_WORDS[one.format]}", file=one.path,
                remedy=f"leave out --from {options.from_}, or the file",
            )  # fmt: skip
        kind = one.format or options.from_ or format_of_name(base) or siblings.format(name)
        if one.unknown is not None and not _left_to_scan(one, kind, options, rules):
            error = _no_shard(one, kind)
            if rules.on_corrupt == "error":
                raise error
            dropped.append(name)
            findings.dropped[DAMAGED[kind]] += 1
            findings.warnings.append(f"{printable(name)} is left out: {error.what}")
        elif kind is None:
            raise DataError(
                "SRC has no samples: the file is empty (0 bytes), and neither its name nor a file beside it "
                "says its format",
                file=one.path, remedy="give --from tar or --from tfrecord, or name files that are not empty",
            )  # fmt: skip
        else:
            limit = (options.spool_limit or RATIO * one.size + SLACK) if one.compression else None
            files.append(
                Input(one.path, name, kind, one.size, one.mtime_ns, one.inode, one.compression, one.linked, limit)
            )
    return files, dropped


class _Siblings:
    """The format of a file that does not say it: of the others in its folder, else of all, if they agree."""

    def __init__(self, named: Iterable[tuple[bytes, _Found]]) -> None:
        self._formats: dict[bytes, set[str]] = {}
        self._all: set[str] = set()
        for name, one in named:
            if one.format:
                self._formats.setdefault(os.path.dirname(name), set()).add(one.format)
                self._all.add(one.format)

    def format(self, name: bytes) -> str | None:
        formats = self._formats.get(os.path.dirname(name)) or self._all
        return next(iter(formats)) if len(formats) == 1 else None


def _left_to_scan(one: _Found, kind: str | None, options: SourceOptions, rules: Rules) -> bool:
    """Whether a file of no known content is given to the scan of its kind, which reads past damage."""
    head = one.unknown or b""
    if isinstance(one.error, HostError):
        raise one.error
    if kind is None:
        return False
    if one.error is not None:
        return rules.on_corrupt != "error"
    if rules.on_corrupt == "resync":
        return True
    if sniff.what_is(head) is not None:
        return False
    return options.from_ is not None or (kind == "tfrecord" and not rules.verify)


def _no_shard(one: _Found, kind: str | None) -> DataError:
    if isinstance(one.error, DataError):
        return one.error
    if one.compression:
        return _no_shard_inside(one, kind)
    head = one.unknown or b""
    why = "it was named as a source" if one.explicit else "its name claims that it is a shard"
    if sniff.what_is(head) is None and kind is not None:
        expected = {"tar": "512 bytes are no header", "tfrecord": "12 bytes are no length"}[kind]
        why = f"its first {expected} with a right checksum: corrupt, or another format"
        if kind == "tfrecord":
            why += " (--no-verify reads records whose lengths have wrong checksums)"
    return DataError(
        sniff.not_a(_WORDS[kind], head), file=one.path, offset=0, why=why,
        remedy="fetch the file again, leave it out of SRC, or give --on-corrupt skip"
        + ("" if one.explicit else "; --from folder if the folder holds samples as files"),
    )  # fmt: skip


def _no_shard_inside(one: _Found, kind: str | None) -> DataError:
    head = one.unknown or b""
    why = "what one decompression gives is looked at" if sniff.compression_of(head) else None
    return DataError(
        f"what this {one.compression} data holds is {sniff.not_a(_WORDS[kind], head)}", file=one.path, offset=0,
        why=why, remedy="decompress it and give the result, leave it out of SRC, or give --on-corrupt skip",
    )  # fmt: skip


# -- names ---------------------------------------------------------------------------------------------------


def _absolute(path: bytes) -> bytes:
    """The path from the root on, links left as they are; only a '..' is resolved, for it may leave a link."""
    parts = path.split(b"/")
    if b".." in parts:
        folder, name = os.path.split(path.rstrip(b"/"))
        if name in (b"", b".", b".."):
            return os.path.realpath(path)
        return join(os.path.realpath(folder or b"."), name)
    return re.sub(rb"\A//+", b"/", os.path.abspath(path))


def _base(option: str | None, anchors: set[bytes]) -> bytes:
    """The folder that names are relative to."""
    if option is None:
        return os.path.commonpath(sorted(anchors))
    path = os.fsencode(option)
    if not os.path.isdir(path):
        raise UsageError("--base is no folder", file=path, remedy="give a folder that holds all of SRC")
    return _absolute(path)


def _relative(base: bytes, path: bytes) -> bytes:
    prefix = join(base, b"")
    if path.startswith(prefix):
        return path[len(prefix) :]
    # The two may be written by way of different links.
    folder, name = os.path.split(path)
    real, prefix = join(os.path.realpath(folder), name), join(os.path.realpath(base), b"")
    if real.startswith(prefix):
        return real[len(prefix) :]
    raise UsageError(
        "a source lies outside --base", file=path, why=f"--base is {printable(base)}",
        remedy="give a folder that holds all of SRC",
    )  # fmt: skip


def _refuse_twice(named: list[tuple[bytes, bytes, _Found]]) -> None:
    """The same file by two ways would give every sample twice. Hard links are two files of equal content."""
    seen: dict[tuple[int, int], _Found] = {}
    for _, path, one in named:
        first = seen.setdefault((one.device, one.inode), one)
        other = first.path
        if first is not one and os.path.realpath(other) == os.path.realpath(path):
            same = printable(path) if path == other else f"{printable(other)} and {printable(path)}"
            raise UsageError(
                f"the same file is reached twice: {same}", why="each of its samples would be counted twice",
                remedy="name it once, or remove the link",
            )  # fmt: skip
    for (name, a, _), (following, b, _) in itertools.pairwise(named):
        if name == following:
            both = f"{printable(a)} and {printable(b)}"
            raise UsageError(f"two files have one name: {both}", remedy="give another --base")


# -- beside the inputs ---------------------------------------------------------------------------------------

_SHARD_ENDING = re.compile(rb"\.(tar|tfrecords?|tfrec|recordio)\Z", re.I)


def side_indexes(one: Input) -> list[bytes]:
    """Paths of index files that loaders may use for this file: X.tfrecord.idx, X.idx, X.tfindex, ..."""
    stems = [one.path] if one.files is None else []
    if _SHARD_ENDING.search(one.path):
        stems.append(_SHARD_ENDING.sub(b"", one.path))
    endings = (b".idx", b".index", b".tfindex")
    return [path for stem in stems for path in (stem + ending for ending in endings) if is_file(path)]


def check_apart(out: str | bytes, inputs: Inputs) -> None:
    """Raise StateError when OUT is, holds, or lies inside a source, by real paths."""
    target = os.path.realpath(os.fsencode(out))
    inside_target = join(target, b"")
    for root in inputs.roots:
        real = os.path.realpath(root)
        if real == target:
            raise _not_apart("OUT and SRC are the same folder", out, root)
        if target.startswith(join(real, b"")):
            raise _not_apart("OUT lies inside a folder of SRC", out, root)
        if real.startswith(inside_target):
            raise _not_apart("a folder of SRC lies inside OUT", out, root)
    folders: dict[bytes, bytes] = {}
    for one in inputs.files:
        if one.files is not None:
            _check_links_apart(out, target, one.files)
            continue
        folder, name = os.path.split(one.path)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        # The link is input too: OUT may hold neither it nor what it points to.
        reals = {join(folders[folder], name)}
        if one.linked:
            reals.add(os.path.realpath(one.path))
        for real in reals:
            if real == target or target.startswith(join(real, b"")):
                raise _not_apart("OUT and an input file are the same", out, one.path)
            if real.startswith(inside_target):
                raise _not_apart("an input file lies inside OUT", out, one.path)


def _check_links_apart(out: str | bytes, target: bytes, files: SampleFiles) -> None:
    """The same for sample files that are links; the folders themselves are among the roots."""
    for number in files.linked.nonzero()[0].tolist():
        real = os.path.realpath(files.path(number))
        if real == target or real.startswith(join(target, b"")):
            raise _not_apart("an input file lies inside OUT", out, files.path(number))


def _not_apart(what: str, out: str | bytes, source: bytes) -> StateError:
    return StateError(
        what, file=out, why=f"the source is {printable(source)}; input is never changed or removed",
        remedy="give a folder apart from SRC as OUT",
    )  # fmt: skip
