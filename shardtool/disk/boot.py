"""Which boot of the machine this is: files that were never synced are complete only within one."""

from __future__ import annotations


def boot() -> bytes:
    """The boot's id, or b'unknown' where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()
    except OSError:
        return b"unknown"
