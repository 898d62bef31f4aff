"""The state of a run, in OUT/.shardtool: what is being made, which shards are finished, who is at work.

    lock          held with flock while a run is at work
    run.json      all that decides the bytes, and both fingerprints; written before the first shard
    shards/K      receipt of shard K, written when the shard has its final name
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..base.errors import DataError, StateError
from ..layout.manifest import Receipt, dumps
from .files import fsync_folder, naming, publish, read_small, remove_folder

FOLDER = b".shardtool"
# A run that was just killed may need a moment until its workers are gone and the lock with them.
PATIENCE = 2.0


class Journal:
    """OUT/.shardtool of one OUT."""

    def __init__(self, out: bytes) -> None:
        self.out = out
        self.folder = os.path.join(out, FOLDER)
        self._run = os.path.join(self.folder, b"run.json")
        self._shards = os.path.join(self.folder, b"shards")
        self._lock: int | None = None

    # -- the lock ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; makes OUT and the work folder. StateError when another run is at work."""
        until = time.monotonic() + PATIENCE
        lock = os.path.join(self.folder, b"lock")
        while True:
            os.makedirs(self._shards, exist_ok=True)
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._wait_for(fd, until)
                if _is_at(fd, lock):
                    yield
                    return
                # The run that held it has removed its work folder and the lock: nobody else waits for this one.
            finally:
                os.close(fd)

    def _wait_for(self, fd: int, until: float) -> None:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            if time.monotonic() > until:
                raise StateError(
                    "another run is at work in this folder", file=self.out,
                    remedy="wait until it has ended, or choose another -o",
                )  # fmt: skip
            time.sleep(0.05)

    # -- the run ----------------------------------------------------------------------------------------------

    def read_run(self) -> dict[str, Any] | None:
        """run.json, or None when no run has got so far."""
        try:
            text = read_small(self._run)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            facts = json.loads(text)
            if not isinstance(facts, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError) as error:
            raise DataError("the journal of a run is damaged", file=self._run, why=str(error)) from None
        return facts

    def write_run(self, facts: dict[str, Any]) -> None:
        """Publish run.json: from here on the run can be continued."""
        publish(self._run + b".tmp", self._run, [dumps(facts).encode("ascii")])

    # -- receipts ---------------------------------------------------------------------------------------------

    def write_receipt(self, receipt: Receipt) -> None:
        """The receipt of a finished shard, complete or not there as far as processes go. It is not synced: a power cut
        that loses or empties it costs one shard, written again; a sync would cost every run."""
        path = os.path.join(self._shards, b"%06d" % receipt.shard)
        facts = {**asdict(receipt), "digests": dict(receipt.digests)}
        with naming(path), open(path + b".tmp", "wb") as file:
            file.write(dumps(facts).encode("ascii"))
        os.rename(path + b".tmp", path)

    def receipts(self) -> dict[int, Receipt]:
        """Shard -> receipt, of the shards that are finished and still have their size."""
        found = {}
        for entry in os.listdir(self._shards):
            if not entry.isdigit():
                continue
            try:
                receipt = Receipt(**json.loads(read_small(os.path.join(self._shards, entry))))
            except (ValueError, TypeError, RecursionError):
                continue  # damaged since: its shard is written again
            if self._is_there(receipt):
                found[receipt.shard] = receipt
        return found

    def forget_receipts(self) -> None:
        """Before another job begins."""
        for entry in os.listdir(self._shards):
            os.unlink(os.path.join(self._shards, entry))

    def _is_there(self, receipt: Receipt) -> bool:
        try:
            size = os.stat(os.path.join(self.out, receipt.name.encode())).st_size
            os.stat(os.path.join(self.out, receipt.index.encode()))
        except FileNotFoundError:
            return False
        return size == receipt.bytes

    def remove(self) -> None:
        """The end of a run: run.json first, so that a half-removed folder is none that could be continued."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._run)
        remove_folder(self.folder)
        fsync_folder(self.out)


def _is_at(fd: int, path: bytes) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
