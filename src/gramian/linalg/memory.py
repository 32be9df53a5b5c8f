"""Memory checks: compare the bytes an allocation needs with what is available, before allocating."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import psutil

from gramian.errors import NotEnoughMemory

# The memory limits of Linux containers, which the figures of the host do not show.
CGROUP = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")  # a line for each hierarchy: number, controllers, path, separated by colons
# Files with the limit and the usage, and the key in memory.stat of cached files, which count as used but are dropped first.
V2_FILES = ("memory.max", "memory.current", "inactive_file")
V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")

# The resident bytes that this process may reach within `limit_memory`; None where there is no such limit.
MAX_RESIDENT_BYTES: ContextVar[int | None] = ContextVar("MAX_RESIDENT_BYTES", default=None)


def available_bytes() -> int:
    """Bytes that this process can still allocate, within its address space, the limits of its containers, and its own."""
    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *address_space_bytes(), *container_bytes(), *own_limit_bytes()]))


@contextmanager
def limit_memory(n_bytes: int | None) -> Iterator[None]:
    """Let memory checks in the block refuse more than `n_bytes` beyond what is allocated now; None for no limit."""
    limit = None if n_bytes is None else int(psutil.Process().memory_info().rss) + n_bytes
    token = MAX_RESIDENT_BYTES.set(limit)
    try:
        yield
    finally:
        MAX_RESIDENT_BYTES.reset(token)


def own_limit_bytes() -> Iterator[int]:
    """Yield what is left of the limit of `limit_memory`, if there is one."""
    limit = MAX_RESIDENT_BYTES.get()
    if limit is not None:
        yield limit - int(psutil.Process().memory_info().rss)


def address_space_bytes() -> Iterator[int]:
    """Yield what is left of the limit on this process's address space (`ulimit -v`), if it has one."""
    with suppress(ImportError):  # no such limits on Windows
        import resource  # noqa: PLC0415

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - int(psutil.Process().memory_info().vms)


def container_bytes() -> Iterator[int]:
    """Yield the free memory of each control group of this process and of its parent groups (cgroup v1 and v2)."""
    try:
        hierarchies = [line.split(":", 2) for line in PROCESS_CGROUPS.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in hierarchies:
        if controllers == "":
            roots, files = [CGROUP, CGROUP / "unified"], V2_FILES
        elif "memory" in controllers.split(","):
            roots, files = [CGROUP / "memory"], V1_FILES
        else:
            continue
        for root in roots:
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from _group_bytes(folder, *files)


def _group_bytes(folder: Path, limit: str, usage: str, cache: str) -> Iterator[int]:
    """Yield the free memory of a control group; nothing if it has no limit or is not visible from inside a container."""
    with suppress(OSError, ValueError, KeyError):  # the limit may be "max"
        free = int((folder / limit).read_text()) - int((folder / usage).read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        yield free + int(statistics[cache])


def is_memory_backed(folder: Path) -> bool:
    """Whether files in the folder occupy memory, as in /dev/shm."""
    path = str(folder.absolute())
    fstypes = {mount.mountpoint.rstrip("/"): mount.fstype for mount in psutil.disk_partitions(all=True)}
    enclosing = [mountpoint for mountpoint in fstypes if path == mountpoint or path.startswith(mountpoint + "/")]
    return bool(enclosing) and fstypes[max(enclosing, key=len)] in {"tmpfs", "ramfs"}


def require_memory(n_bytes: int, what: str, do: str) -> None:
    """Raise `NotEnoughMemory`, with both sizes, if `n_bytes` for `what` are not available; `do` says what to try instead."""
    free = available_bytes()
    if n_bytes > free:
        raise NotEnoughMemory(f"{format_bytes(n_bytes)} of free memory for {what}", f"{format_bytes(free)} free", do)


def format_bytes(n_bytes: float) -> str:
    """Format a size with three significant digits and a decimal unit, such as "1.5 kB"."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if n_bytes < 999.5 or unit == "TB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.3g} {unit}"
