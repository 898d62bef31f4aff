"""Faults of the host: the k-th call that touches the disk fails, in this process or any of its children.

Every call of the package that opens, reads, writes, syncs, names or removes goes through `os` or the builtin `open`;
both are replaced in a forked child. What goes through pipes is left alone.
"""

import builtins
import errno
import mmap
import os
import stat
import struct

READS = ("read", "pread", "preadv", "stat", "listdir", "scandir", "statvfs")
WRITES = ("write", "pwrite", "fsync", "rename", "mkdir", "ftruncate", "unlink", "rmdir")
OPENS = ("open",)
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class Faults:
    """Counts calls over all processes; call number `at` raises `error`.

    error   an errno; None: EIO for reads, the write errors in turn for the rest
    sticky  a full disk stays full: all writes from there on fail as well
    """

    def __init__(self, at=None, error=None, sticky=False):
        self.at, self.error, self.sticky = at, error, sticky
        self._shared = mmap.mmap(-1, 64)  # calls; whether one failed; its name

    @property
    def calls(self):
        return struct.unpack_from("<Q", self._shared)[0]

    @property
    def failed(self):
        """Name of the call that failed, or ''."""
        return bytes(self._shared[16:64]).rstrip(b"\0").decode()

    def install(self):
        """In the child: replace the calls."""
        for name in (*READS, *WRITES, *OPENS):
            setattr(os, name, self._wrapped(getattr(os, name), name))
        builtins.open = self._wrapped(builtins.open, "open()")

    def _wrapped(self, call, name):
        fstat = os.fstat

        def wrapped(*args, **kwargs):
            if name in ("read", "write") and not stat.S_ISREG(fstat(args[0]).st_mode):
                return call(*args, **kwargs)
            if name == "open()" and isinstance(args[0], int):
                return call(*args, **kwargs)
            number = self.calls
            struct.pack_into("<Q", self._shared, 0, number + 1)
            if self.at is not None and (number == self.at or (self.sticky and number > self.at and name in WRITES)):
                if not self.failed:
                    self._shared[16 : 16 + len(name)] = name.encode()
                raise self._error(name, args, number)
            return call(*args, **kwargs)

        return wrapped

    def _error(self, name, args, number):
        code = self.error
        if code is None:
            code = errno.EIO if name in READS else WRITE_ERRORS[number % len(WRITE_ERRORS)]
        # As the system's own: calls on paths name the file, calls on descriptors do not.
        if args and isinstance(args[0], (str, bytes)):
            return OSError(code, os.strerror(code), args[0])
        return OSError(code, os.strerror(code))
