"""What to do about what is already in OUT: a pure decision, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import StateError, printable

FRESH = "fresh"  # nothing there that matters
RESUME = "resume"  # a journal of this very job
CLEAN_UP = "clean up"  # journal and manifest of this job: only the end of the clean-up is missing
REPLACE = "replace"  # --overwrite: remove what an earlier run wrote


@dataclass(frozen=True)
class Found:
    """What is in OUT.

    journal   run.json of an unfinished run, or None
    manifest  the options and fingerprint of a manifest, or None
    others    a few names of anything else
    """

    journal: Mapping[str, Any] | None
    manifest: Mapping[str, Any] | None
    others: tuple[bytes, ...]


def decide(found: Found, job: Mapping[str, Any], *, overwrite: bool, out: bytes) -> str:
    """One of the four words above.

    job  what run.json of this job would hold: 'options', 'version', 'public', 'private'

    Raises StateError that says what differs.
    """
    if found.journal is not None:
        different = differences(found.journal, job)
        if not different:
            mine = found.manifest is not None and found.manifest["public"] == job["public"] and not differences(
                found.manifest, {key: job[key] for key in ("options", "version")}
            )  # fmt: skip
            return CLEAN_UP if mine else RESUME
        if overwrite:
            return REPLACE
        raise StateError(
            "an unfinished run of another job is in this folder", file=out, why="; ".join(different),
            remedy="finish that run with its own arguments, or start anew with --overwrite",
        )  # fmt: skip
    if found.manifest is not None:
        if overwrite:
            return REPLACE
        different = differences(found.manifest, job)
        raise StateError(
            "the finished output of another job is in this folder", file=out,
            why="; ".join(different) or "an input is newer than its manifest",
            remedy="choose another -o, or replace it with --overwrite",
        )  # fmt: skip
    if found.others:
        names = ", ".join(printable(name) for name in found.others)
        raise StateError(
            "the output folder is not empty", file=out,
            why=f"it holds {names}, and no manifest says that an earlier run wrote that",
            remedy="choose another -o or empty the folder; --overwrite removes only what a run of this tool wrote",
        )  # fmt: skip
    return FRESH


def differences(there: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """In words: which options, version or input differ. Keys that only one side has do not count."""
    words = []
    old, new = there.get("options", {}), job["options"]
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            words.append(f"--{key.replace('_', '-')} was {old.get(key)!r}, now it is {new.get(key)!r}")
    if "version" in there and there["version"] != job["version"]:
        words.append(f"it was written by shardtool {there['version']}, this is {job['version']}")
    another = "the input is another one"
    for key, text in (("sources", another), ("public", another), ("private", "an input file was changed or replaced")):
        if key in there and key in job and there[key] != job[key]:
            words.append(text)
            break
    return words
