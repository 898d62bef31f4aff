"""A depfile: what a manifest depends on, in the words of make."""

from __future__ import annotations

import os

from ..disk.files import publish
from ..disk.sources import Inputs


def write_depfile(path: str, target: str, inputs: Inputs) -> None:
    """'TARGET: input input ...', and every input as an empty rule, so that one that has gone is no error.

    For a folder of sample files the folder and all folders below it: their times change when a file comes or goes.
    """
    paths = [escape(os.path.relpath(path)) for file in inputs.files for path in file.dependencies]
    text = b"%s: \\\n  %s\n\n%s" % (
        escape(os.fsencode(target)),
        b" \\\n  ".join(paths),
        b"".join(one + b":\n" for one in paths),
    )
    final = os.path.abspath(os.fsencode(path))
    publish(final + b".tmp", final, [text])


def escape(name: bytes) -> bytes:
    """A file name as GNU make reads it: white space and '#' behind a backslash, '$' doubled."""
    for plain, escaped in ((b"$", b"$$"), (b" ", b"\\ "), (b"\t", b"\\\t"), (b"#", b"\\#")):
        name = name.replace(plain, escaped)
    return name
