"""A symmetric n × n matrix, half of it stored: the lower half in block columns, 2n² bytes in float32.

Block column J covers the columns [first, last) and the rows from `first` down. It is one contiguous Fortran array, so BLAS
works on it in place, a column's lower part is one run of memory, and no index ever counts n² elements:

    J = 0   1   2
    ┌───┐
    │   │
    │   ├───┐
    │   │   │
    │   │   ├───┐
    │   │   │   │
    └───┴───┴───┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numba.extending import register_jitable

from gramian.errors import DamagedFile, InvalidInput
from gramian.linalg.memory import readable, require

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
PANEL = 64  # columns scored at a time; divides a block's width, so that a panel lies in one block
WIDTH = 512  # columns in a block: see benchmarks/README.md


class Symmetric:
    """The lower half of a symmetric matrix in one flat buffer of block columns."""

    def __init__(self, n: int, buffer: np.ndarray, width: int = WIDTH) -> None:
        self.n, self.buffer, self.width = n, buffer, width

    @staticmethod
    def empty(n: int, dtype: type = np.float32, width: int = WIDTH) -> Symmetric:
        """An uninitialised matrix, refused before allocation when it cannot fit."""
        n_bytes = size(n, width) * np.dtype(dtype).itemsize
        require(n_bytes, f"half of a {n:,} × {n:,} matrix", "Keep fewer items (k_core) or use a machine with more memory")
        return Symmetric(n, np.empty(size(n, width), dtype), width)

    @staticmethod
    def stored(n: int, buffer: np.ndarray, width: int) -> Symmetric:
        """A matrix around a buffer that was read from a file, which may be anybody's."""
        if n < 1 or width < 1 or width % PANEL or buffer.dtype not in DTYPES or buffer.shape != (size(n, width),):
            raise DamagedFile(f"half of a {n} × {n} matrix", f"{buffer.dtype} of shape {buffer.shape}", "Save it again")
        return Symmetric(n, buffer, width)

    def __repr__(self) -> str:
        return f"Symmetric({self.n:,} × {self.n:,} {self.dtype}, {readable(self.buffer.nbytes)})"

    @property
    def dtype(self) -> np.dtype:
        return self.buffer.dtype

    def spans(self) -> list[tuple[int, int]]:
        """The columns [first, last) of every block."""
        return [(first, min(first + self.width, self.n)) for first in range(0, self.n, self.width)]

    def block(self, first: int, last: int) -> np.ndarray:
        """A view of the block column [first, last): shape (n − first, last − first), Fortran order."""
        start = block_start(first, self.n, self.width)
        return self.buffer[start : start + (self.n - first) * (last - first)].reshape(last - first, self.n - first).T

    def blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        for first, last in self.spans():
            yield first, last, self.block(first, last)

    def copy(self) -> Symmetric:
        twin = Symmetric.empty(self.n, self.dtype.type, self.width)
        twin.buffer[:] = self.buffer
        return twin

    def diagonal(self) -> np.ndarray:
        """A float64 copy of the diagonal."""
        return np.concatenate([block.diagonal() for _, _, block in self.blocks()]).astype(np.float64)

    def change_diagonal(self, change: Callable[[np.ndarray, int, int], np.ndarray]) -> None:
        """Set the diagonal of every block to change(diagonal, first, last)."""
        for first, last, block in self.blocks():
            at = np.arange(last - first)
            block[at, at] = change(block[at, at], first, last)

    def scale(self, by: np.ndarray) -> None:
        """dMat(by) · A · dMat(by), in place."""
        for first, last, block in self.blocks():
            block *= by[first:last]
            block *= by[first:, None]

    def __matmul__(self, thin: np.ndarray) -> np.ndarray:
        """A · thin for a few columns."""
        out = np.zeros((self.n, thin.shape[1]), dtype=thin.dtype)
        for first, last, block in self.blocks():
            out[first:] += block @ thin[first:last]
            out[first:last] += block[last - first :].T @ thin[last:]
        return out

    def row(self, i: int) -> np.ndarray:
        """Row i, which is column i."""
        out = np.empty(self.n, self.dtype)
        for first, last, block in self.blocks():
            if last <= i:
                out[first:last] = block[i - first]
            else:
                out[first:i] = block[i - first, : i - first]
                out[i:] = block[i - first :, i - first]
                return out
        return out

    def dense(self) -> np.ndarray:
        """The whole matrix, for small n and for tests."""
        require(self.n * self.n * self.dtype.itemsize, f"a dense {self.n:,} × {self.n:,} matrix", "Work with the model instead")
        out = np.empty((self.n, self.n), self.dtype)
        for first, last, block in self.blocks():
            out[first:, first:last] = block
            out[first:last, last:] = block[last - first :].T
        return out


@register_jitable
def block_start(first: int, n: int, width: int) -> int:
    """Where in the buffer the block column that begins with column `first` begins."""
    before = first // width
    return first * n - width * width * (before * (before - 1) // 2)


def checked_dtype(dtype: str | type) -> type:
    """float32 or float64."""
    try:
        if dtype is not None and np.dtype(dtype) in DTYPES:
            return np.dtype(dtype).type
    except TypeError:
        pass
    raise InvalidInput("dtype float32 or float64", repr(dtype), "Leave it out")


def size(n: int, width: int = WIDTH) -> int:
    """How many numbers the stored half holds: n²/2 and half a block's width more per column."""
    return sum((n - first) * (min(first + width, n) - first) for first in range(0, n, width))
