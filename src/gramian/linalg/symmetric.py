"""A symmetric n × n matrix of which only the lower half is stored, in block columns: about 2n² bytes in float32.

Block column J covers the columns [first, last) and the rows from `first` down. It is one contiguous array in Fortran order,
so BLAS works on it in place, the lower part of a column is contiguous, and no block has more than n · width elements, so the
32-bit integers of BLAS suffice:

    J = 0   1   2
    ┌───┐
    │   │
    │   ├───┐
    │   │   │
    │   │   ├───┐
    │   │   │   │
    └───┴───┴───┘

A matrix with a single block column is full: both halves are stored, and its rows are contiguous too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numba import njit
from numba.extending import register_jitable

from gramian.errors import DamagedFile, InvalidInput
from gramian.linalg.memory import format_bytes, require_memory
from gramian.linalg.recycled import allocate

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
PANEL = 64  # columns scored at a time: 256 bytes of a row in float32; divides the block width, so a panel lies in one block
BLOCK_WIDTH = 512  # columns in a block; the fastest inverse from 8,192 items on, see benchmarks/README.md
MAX_BLOCK_WIDTH = 1 << 20  # of a saved matrix; kernels count in 64 bits
FULL_WIDTH = MAX_BLOCK_WIDTH  # of the single block column of a full matrix


class Symmetric:
    """The lower half of a symmetric matrix in one flat buffer of block columns."""

    def __init__(self, n: int, buffer: np.ndarray, width: int = BLOCK_WIDTH) -> None:
        self.n, self.buffer, self.width = n, buffer, width

    @staticmethod
    def empty(n: int, dtype: type = np.float32, width: int = BLOCK_WIDTH) -> Symmetric:
        """Allocate an uninitialised matrix. Raises `NotEnoughMemory` before allocating if it does not fit."""
        what = f"{'a' if n <= width else 'half of a'} {n:,} × {n:,} matrix"
        do = "Keep fewer items (k_core) or use a machine with more memory"
        return Symmetric(n, allocate(stored_size(n, width), np.dtype(dtype), what, do), width)

    @staticmethod
    def from_buffer(n: int, buffer: np.ndarray, width: int) -> Symmetric:
        """Wrap a buffer read from a file that is not trusted. Raises `DamagedFile` if it does not fit n and width."""
        is_size = type(n) is int and type(width) is int and n >= 1 and 1 <= width <= MAX_BLOCK_WIDTH and width % PANEL == 0
        if not is_size or buffer.dtype not in DTYPES or buffer.shape != (stored_size(n, width),):
            raise DamagedFile(f"half of a {n} × {n} matrix", f"{buffer.dtype} of shape {buffer.shape}", "Save it again")
        return Symmetric(n, buffer, width)

    def __repr__(self) -> str:
        return f"Symmetric({self.n:,} × {self.n:,} {self.dtype}, {format_bytes(self.buffer.nbytes)})"

    @property
    def dtype(self) -> np.dtype:
        return self.buffer.dtype

    @property
    def is_full(self) -> bool:
        """Whether both halves are stored, in a single block column."""
        return self.n <= self.width

    @property
    def rows(self) -> np.ndarray:
        """A view of a full matrix as rows."""
        return self.buffer.reshape(self.n, self.n)

    def halved(self) -> Symmetric:
        """The matrix with its lower half stored: a copy of a full one, and any other as it is."""
        if self.width <= BLOCK_WIDTH:
            return self
        half = Symmetric.empty(self.n, self.dtype.type)
        for first, last, block in half.blocks():
            block[:] = self.rows[first:last, first:].T
        return half

    def spans(self) -> list[tuple[int, int]]:
        """The columns [first, last) of every block."""
        return [(first, min(first + self.width, self.n)) for first in range(0, self.n, self.width)]

    def block(self, first: int, last: int) -> np.ndarray:
        """A view of the block column [first, last), of shape (n − first, last − first), in Fortran order."""
        start = block_start(first, self.n, self.width)
        return self.buffer[start : start + (self.n - first) * (last - first)].reshape(last - first, self.n - first).T

    def blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield (first, last, view) of every block column."""
        for first, last in self.spans():
            yield first, last, self.block(first, last)

    def copy(self) -> Symmetric:
        duplicate = Symmetric.empty(self.n, self.dtype.type, self.width)
        duplicate.buffer[:] = self.buffer
        return duplicate

    def diagonal(self) -> np.ndarray:
        """A float64 copy of the diagonal."""
        return np.concatenate([block.diagonal() for _, _, block in self.blocks()]).astype(np.float64)

    def change_diagonal(self, change: Callable[[np.ndarray, int, int], np.ndarray]) -> None:
        """Replace the diagonal of every block by change(diagonal, first, last)."""
        for first, last, block in self.blocks():
            i = np.arange(last - first)
            block[i, i] = change(block[i, i], first, last)

    def scale(self, by: np.ndarray) -> None:
        """Replace A by diag(by) · A · diag(by), in place."""
        for first, last, block in self.blocks():
            block *= by[first:last]
            block *= by[first:, None]

    def __matmul__(self, thin: np.ndarray) -> np.ndarray:
        """A · thin, for a matrix of few columns."""
        if self.is_full:
            return np.asarray(self.rows @ thin)
        out = np.zeros((self.n, thin.shape[1]), dtype=thin.dtype)
        for first, last, block in self.blocks():
            out[first:] += block @ thin[first:last]
            out[first:last] += block[last - first :].T @ thin[last:]
        return out

    def row(self, i: int) -> np.ndarray:
        """A copy of row i, which is also column i."""
        out = np.empty(self.n, self.dtype)
        for first, last, block in self.blocks():
            if last <= i:
                out[first:last] = block[i - first]
            else:
                out[first:i] = block[i - first, : i - first]
                out[i:] = block[i - first :, i - first]
                return out
        return out

    def entries(self, items: np.ndarray) -> np.ndarray:
        """The rows and columns of a few items, in float64."""
        return np.asarray(gather_entries(items, self.buffer, self.n, self.width))

    def dense(self) -> np.ndarray:
        """The full n × n matrix as an array, for small n and for tests."""
        require_memory(
            self.n * self.n * self.dtype.itemsize, f"a dense {self.n:,} × {self.n:,} matrix", "Work with the model instead"
        )
        out = np.empty((self.n, self.n), self.dtype)
        for first, last, block in self.blocks():
            out[first:, first:last] = block
            out[first:last, last:] = block[last - first :].T
        return out


@register_jitable
def block_start(first: int, n: int, width: int) -> int:
    """The index in the buffer at which the block column whose first column is `first` starts."""
    n_before = first // width
    return first * n - width * width * (n_before * (n_before - 1) // 2)


@njit(inline="always")
def locate_column(column, n, width):  # type: ignore[no-untyped-def]
    # The index in the buffer where row 0 of a column would be. Stored are only the rows from the block's first column down.
    first = column // width * width
    return block_start(first, n, width) + (column - first) * (n - first) - first


@njit(inline="always")
def read_entry(i, j, buffer, n, width):  # type: ignore[no-untyped-def]
    # A[i, j], from the lower half
    return buffer[locate_column(min(i, j), n, width) + max(i, j)]


@njit(cache=True)
def gather_entries(items, buffer, n, width):  # type: ignore[no-untyped-def]
    out = np.empty((len(items), len(items)))
    for a in range(len(items)):
        for b in range(a + 1):
            out[a, b] = out[b, a] = read_entry(items[a], items[b], buffer, n, width)
    return out


def parse_dtype(dtype: str | type) -> type:
    """Convert a dtype or its name to np.float32 or np.float64; raise `InvalidInput` for any other."""
    try:
        if dtype is not None and np.dtype(dtype) in DTYPES:
            return np.dtype(dtype).type
    except TypeError:
        pass
    raise InvalidInput("dtype float32 or float64", repr(dtype), "Leave it out")


def stored_size(n: int, width: int = BLOCK_WIDTH) -> int:
    """The number of stored elements: n²/2, and about width/2 more for each column."""
    n_blocks, remainder = divmod(n, width)
    whole = width * (n * n_blocks - width * (n_blocks * (n_blocks - 1) // 2))  # Σ_j width · (n − j · width)
    return whole + remainder * remainder
