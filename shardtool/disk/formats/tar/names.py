"""From member names to keys and fields, by webdataset's rule; and the members that are part of no sample."""

from __future__ import annotations

import re

_DOT_SLASH = re.compile(rb"(?:\./+)+")
_META = re.compile(rb"__[^/]*__(?:/|\Z)")

# (key, extension) of names that need no closer look: behind any './' no component is empty or begins with
# '.' or '_'.
PLAIN = re.compile(rb"(?:\./+)*((?:[^/._][^/]*/)*[^/._][^/.]*)\.([^/]*)")


def strip_dot_slash(name: bytes) -> bytes:
    """Without a leading './', also repeated."""
    match = _DOT_SLASH.match(name)
    return name[match.end() :] if match else name


def split(name: bytes) -> tuple[bytes, bytes] | None:
    """(key, extension) at the first '.' of the last component, verbatim; None without one.

    'a/b.c/e.f.jpg' -> ('a/b.c/e', 'f.jpg'); 'a.' -> ('a', ''): an empty extension is a field like any other.
    """
    dot = name.find(b".", name.rfind(b"/") + 1)
    return (name[:dot], name[dot + 1 :]) if dot >= 0 else None


def unsafe(name: bytes) -> bool:
    """Absolute, or with a '..' component: extracted by tar such a member leaves its folder."""
    return name.startswith(b"/") or (b".." in name and b".." in name.split(b"/"))


def ignored_as(name: bytes) -> str | None:
    """'hidden', 'meta' or 'no_extension' for a member that is no part of a sample, else None."""
    folders, _, base = name.rpartition(b"/")
    if base.startswith(b".") or b"__MACOSX" in folders.split(b"/"):
        return "hidden"
    if _META.match(name):
        return "meta"
    return None if b"." in base else "no_extension"
