"""Errors that a user is meant to read: what happened, where, why, and what to do about it.

Each class carries the exit status of the command line (0 and 1 are "done" and "a bug in shardtool").
"""

from __future__ import annotations

import os


def printable(name: bytes | str) -> str:
    """A file or member name for a message: control characters and bytes that are no UTF-8 come out escaped."""
    if isinstance(name, str):
        name = os.fsencode(name)
    text = name.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class ShardtoolError(Exception):
    """Base of all errors raised on purpose.

    what    one sentence, no final stop
    file    the file it is about
    offset  byte offset in that file
    member  member of a tar, key of a sample, or number of a record
    why     the reason behind it
    remedy  what the user can do
    """

    status = 1

    def __init__(
        self,
        what: str,
        *,
        file: bytes | str | None = None,
        offset: int | None = None,
        member: bytes | str | None = None,
        why: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = file
        self.offset = offset
        self.member = member
        self.why = why
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel from worker processes to the parent; the default would lose the keywords.
        return _rebuild, (type(self), self.what, self.__dict__)

    @property
    def where(self) -> str:
        """'FILE, byte OFFSET, member NAME', as far as known."""
        parts = []
        if self.file is not None:
            parts.append(printable(self.file))
        if self.offset is not None:
            parts.append(f"byte offset {self.offset}")
        if self.member is not None:
            parts.append(f"member {printable(self.member)}")
        return ", ".join(parts)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.remedy:
            lines.append(f"  do:    {self.remedy}")
        return "\n".join(lines)


def _rebuild(cls: type[ShardtoolError], what: str, state: dict[str, object]) -> ShardtoolError:
    error = cls(what)
    error.__dict__.update(state)
    return error


class UsageError(ShardtoolError):
    """The command asks for something that cannot be."""

    status = 2


class DataError(ShardtoolError):
    """The input is damaged or breaks a policy."""

    status = 3


class StateError(ShardtoolError):
    """What is already in OUT or the work folder forbids the job."""

    status = 4


class HostError(ShardtoolError):
    """The machine failed: disk full, permission, memory, a killed worker."""

    status = 5


class FindingError(ShardtoolError):
    """A check that the user asked for (`verify`, `--fail-on`) found something."""

    status = 6
