"""Count the bytes before allocating them."""

from pathlib import Path

import psutil

from gramian.errors import NotEnoughMemory

CGROUP = Path("/sys/fs/cgroup")  # the limit of a Linux container, which the machine's own figures do not show


def available() -> int:
    """Bytes this process can still have."""
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used)) if limit != "max" else free
    except OSError:
        return free


def held_in_memory(folder: Path) -> bool:
    """Whether a folder's files take up memory, as those of /dev/shm do."""
    place = str(folder.absolute())
    mounts = {m.mountpoint.rstrip("/"): m.fstype for m in psutil.disk_partitions(all=True)}
    inside = [mount for mount in mounts if place == mount or place.startswith(mount + "/")]
    return bool(inside) and mounts[max(inside, key=len)] in {"tmpfs", "ramfs"}


def require(n_bytes: int, what: str, do: str) -> None:
    """Refuse, with the numbers, what cannot fit."""
    free = available()
    if n_bytes > free:
        raise NotEnoughMemory(f"{readable(n_bytes)} of free memory for {what}", f"{readable(free)} free", do)


def readable(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if n_bytes < 999.5 or unit == "TB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.3g} {unit}"
