"""Read-only maps of whole files that cost no descriptor.

Python's mmap keeps a copy of the descriptor for as long as the map lives (before 3.13, where it can be told not to), so
that a process with a thousand maps has no descriptor left for anything else.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def mapped(path: bytes) -> npt.NDArray[np.uint8]:
    """The bytes of a file, uint8[size], read-only; unmapped when neither it nor a view of it is left. OSError when it
    cannot be opened or mapped."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if not size:
            return np.empty(0, np.uint8)
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fsdecode(path))
    finally:
        os.close(fd)
    buffer = (ctypes.c_ubyte * size).from_address(address)
    # Arrays keep the buffer alive, and the buffer the map.
    weakref.finalize(buffer, _libc.munmap, address, size).atexit = False
    view: npt.NDArray[np.uint8] = np.frombuffer(memoryview(buffer), np.uint8)
    view.flags.writeable = False
    return view
