#!/usr/bin/env python3
"""Fail every call that touches the disk, with every error, in small runs: the long form of tests/crash/test_faults.py.

    python scripts/stress_faults.py [--every N]

Each time the status must be 5 with a file named, nothing half-written, the input untouched; and the rerun must end with
the bytes of an undisturbed run. Prints one line a kind of run. Takes half an hour on two cores.
"""

import argparse
import errno
import gzip
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tests.crash.test_faults import command_for, run_with_every_fault
from tests.faults import WRITE_ERRORS
from tests.makers import content, sorted_tars, sorted_tfrecords
from tests.runner import shardtool


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--every", type=int, default=1, metavar="N", help="fail every N-th call only")
    step = arguments.parse_args().every
    total = 0
    for make in (sorted_tfrecords, sorted_tars):
        for packed in (False, True):
            for error in WRITE_ERRORS:
                begun = time.monotonic()
                with tempfile.TemporaryDirectory() as folder:
                    source, out = make(pathlib.Path(folder) / "in", 2, 8), pathlib.Path(folder) / "out"
                    if packed:
                        for path in list(source.iterdir()):
                            path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
                    command = command_for(source, out)
                    assert shardtool(*command).status == 0
                    count = run_with_every_fault(command, source, out, content(out), step=step, error=error)
                total += count
                kind = f"{make.__name__.removeprefix('sorted_')}{' under gzip' if packed else ''}"
                print(f"{kind}: {count} calls failed with {errno.errorcode[error]}, nothing lost "
                      f"({time.monotonic() - begun:.0f} s)", flush=True)  # fmt: skip
    print(f"{total} operations failed in all")


if __name__ == "__main__":
    main()
