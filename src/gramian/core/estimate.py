"""The memory and disk space that a fit needs, counted before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from gramian.linalg.memory import format_bytes


@dataclass(frozen=True)
class Estimate:
    """What a fit needs and what is free, in bytes.

    Parameters
    ----------
    peak_bytes
        Peak memory of the fit, beside the interactions.
    free_bytes
        Free memory.
    disk_bytes, free_disk_bytes
        Size of the scratch file, and free space on its disk; 0 without a scratch folder.
    """

    peak_bytes: int
    free_bytes: int
    disk_bytes: int = 0
    free_disk_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether memory and disk suffice."""
        return self.peak_bytes <= self.free_bytes and self.disk_bytes <= self.free_disk_bytes

    def __str__(self) -> str:
        needs = [f"{format_bytes(self.peak_bytes)} of {format_bytes(self.free_bytes)} free memory"]
        if self.disk_bytes:
            needs.append(f"{format_bytes(self.disk_bytes)} of {format_bytes(self.free_disk_bytes)} free disk space")
        return f"needs {' and '.join(needs)}: it {'fits' if self.fits else 'does not fit'}"
