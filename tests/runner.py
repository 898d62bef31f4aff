"""The command line as a user meets it, in a forked child: no 150 ms of imports, its own limits, environment, folder."""

import importlib
import json
import os
import resource
import tempfile
from dataclasses import dataclass

from shardtool.cli import main as command_line

# What commands import when they run: once here, instead of in every child.
for module in ("jobs.repack", "jobs.verify", "jobs.inspect", "report.repack", "report.verify", "report.inspect"):
    importlib.import_module(f"shardtool.{module}")
for name in command_line.COMMANDS:
    importlib.import_module(f"shardtool.cli.{name}")
for library in ("rich.table", "rich.console", "tqdm"):
    importlib.import_module(library)


@dataclass(frozen=True)
class Done:
    """How a command ended. status: exit status, or minus the signal; rss: the child's peak in KiB."""

    status: int
    out: str
    err: str
    rss: int

    @property
    def json(self):
        return json.loads(self.out)


def shardtool(*arguments, prepare=None, timeout=60):
    """Run a command. prepare: called in the child before it (limits, environment, faults)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout + 5))  # a hang ends by a signal
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                _plain_streams()
                if prepare:
                    prepare()
                command_line.main([os.fspath(a) for a in arguments])
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
            except BaseException:
                import traceback

                traceback.print_exc()
                status = 1
            finally:
                _flush()
                os._exit(status)
        _, status, usage = os.wait4(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
    done = Done(os.waitstatus_to_exitcode(status), *texts, usage.ru_maxrss)
    assert "Traceback" not in done.err, done.err
    return done


def _plain_streams():
    """Streams of the child's own descriptors: pytest has replaced those of this process."""
    import sys

    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False, encoding="utf-8", errors="surrogateescape")
    sys.stderr = os.fdopen(2, "w", closefd=False, encoding="utf-8", errors="backslashreplace")


def _flush():
    import contextlib
    import sys

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
