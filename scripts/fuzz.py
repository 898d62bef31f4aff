#!/usr/bin/env python3
"""Change inputs at random and parse them, in children whose memory and time are limited.

    python scripts/fuzz.py [--seconds N] [--first N] [TARGET...]

Prints executions by target and stops at the first input that ends in anything but an error for users: it is kept as
fuzz-TARGET-NUMBER, and `--first NUMBER` makes it again.
"""

import argparse
import os
import pathlib
import resource
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tests import fuzzing

BATCH = 50
# What a child may take beyond what it has when it is forked, and how long one batch may compute.
MEMORY, CPU = 768 << 20, 60


def batch(name, first, count):
    """Run in a child; (executions, number of the one that failed or None)."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        number = first
        try:
            size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 1))
            for number in range(first, first + count):
                os.pwrite(progress, number.to_bytes(8, "little"), 0)
                fuzzing.try_one(name, fuzzing.seeded(name, number))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(into)
    os.close(out)
    _, status = os.waitpid(pid, 0)
    last = int.from_bytes(os.pread(progress, 8, 0), "little")
    if status:
        print(f"{name}: number {last} ended with {os.waitstatus_to_exitcode(status)}")
        pathlib.Path(f"fuzz-{name.replace('/', '_')}-{last}").write_bytes(fuzzing.seeded(name, last))
    return (count, None) if not status else (last - first + 1, last)


def main():
    global progress
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("targets", nargs="*", metavar="TARGET")
    arguments.add_argument("--seconds", type=float, default=600, metavar="N", help="over all targets  [600]")
    arguments.add_argument("--first", type=int, default=0, metavar="N", help="number of the first execution  [0]")
    options = arguments.parse_args()
    import tempfile

    with tempfile.TemporaryFile() as shared:
        progress = shared.fileno()
        os.pwrite(progress, bytes(8), 0)
        known = fuzzing.targets()  # made here, else every child would make its own and leave it behind
        names = options.targets or list(known)
        total = failed = 0
        for name in names:
            until = time.monotonic() + options.seconds / len(names)
            at, count = options.first, 0
            while time.monotonic() < until:
                done, bad = batch(name, at, BATCH)
                at, count = at + done, count + done
                failed += bad is not None
                if bad is not None:
                    break
            total += count
            print(f"{name}: {count:,} executions", flush=True)
    print(f"{total:,} executions, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
