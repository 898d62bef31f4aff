"""What this machine lets the process use."""

from __future__ import annotations

import os

CGROUP = "/sys/fs/cgroup"


def default_jobs() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_memory() -> int:
    """Half of what the memory cgroup or the machine has, bytes; at least 64 MiB."""
    return max(64 << 20, total_memory() // 2)


def total_memory() -> int:
    """What the memory cgroup or the machine has, bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _cgroup_limit()
    return min(total, limit or total)


def _cgroup_limit() -> int | None:
    """The smallest memory.max (version 2) or limit_in_bytes (version 1) on the way to our cgroup."""
    limits = []
    try:
        with open("/proc/self/cgroup", encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, name = CGROUP, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = f"{CGROUP}/memory", "memory.limit_in_bytes"
        else:
            continue
        while True:
            limits.append(_number(f"{root}{path.rstrip('/')}/{name}"))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None  # 'max', or no such file
