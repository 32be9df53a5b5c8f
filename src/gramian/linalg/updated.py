"""A symmetric matrix with low-rank updates that have not been subtracted from it yet: M − L R.

To subtract an update of rank r from a full n × n matrix takes n²·r operations and rewrites all of it. To keep its thin factors
takes n·r numbers, and r operations more for every score. So an update is visible at once, and `subtracted` may come later.
"""

from __future__ import annotations

import numpy as np

from gramian.linalg.blas import subtract_product
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.tasks import task_queue

MAX_DEFERRED_RANK = 512  # of all updates together: at 20,000 items 41 MB for R, which every single request reads
ROWS_PER_TASK = 256  # of a full matrix, subtracted at a time


class UpdatedSymmetric(Symmetric):
    """M − L R for a full symmetric M, where L R is symmetric, too. It has no buffer, so no kernel can overlook the updates.

    Parameters
    ----------
    base
        M, both halves of which are stored. It is not changed.
    left, right
        L, n × rank, and R, rank × n.
    """

    def __init__(self, base: Symmetric, left: np.ndarray, right: np.ndarray) -> None:
        self.n, self.width = base.n, base.width
        self.base, self.left, self.right = base, left, right

    @staticmethod
    def of(base: Symmetric) -> UpdatedSymmetric:
        """Return a full matrix that updates can be deferred for."""
        return UpdatedSymmetric(base, np.empty((base.n, 0), base.dtype), np.empty((0, base.n), base.dtype))

    def __repr__(self) -> str:
        return f"UpdatedSymmetric({self.base!r}, rank {self.rank:,})"

    @property
    def dtype(self) -> np.dtype:
        return self.base.dtype

    @property
    def rank(self) -> int:
        """The rank of all updates together."""
        return len(self.right)

    def defer(self, left: np.ndarray, right: np.ndarray) -> UpdatedSymmetric:
        """Return the matrix minus left · right, with the same M."""
        appended = np.concatenate([self.left, left], axis=1), np.concatenate([self.right, right])
        return UpdatedSymmetric(self.base, *(np.ascontiguousarray(factor, self.dtype) for factor in appended))

    def subtracted(self) -> Symmetric:
        """Return the matrix with all updates subtracted: a new full matrix."""
        full = Symmetric.empty(self.n, self.dtype.type, self.base.width)
        self.write(full.rows)
        return full

    def write(self, rows: np.ndarray) -> None:
        """Write the matrix with all updates subtracted to n rows of n numbers, which may be a part of longer rows."""
        right = np.asfortranarray(self.right)

        def subtract(first: int) -> None:
            few = rows[first : first + ROWS_PER_TASK]
            few[:] = self.base.rows[first : first + ROWS_PER_TASK]
            if self.rank:
                subtract_product(few.T, right, self.left[first : first + ROWS_PER_TASK].T)

        with task_queue() as run:
            run(subtract, range(0, self.n, ROWS_PER_TASK))

    def rebased(self, base: Symmetric, rank: int) -> UpdatedSymmetric:
        """Return the same matrix with another M, from which updates of this rank, the first, have been subtracted."""
        return UpdatedSymmetric(base, np.ascontiguousarray(self.left[:, rank:]), np.ascontiguousarray(self.right[rank:]))

    def copy(self) -> Symmetric:
        return self.subtracted()

    def halved(self) -> Symmetric:
        """The matrix with its lower half stored and all updates subtracted."""
        half = self.base.halved()
        if half is self.base:  # a small matrix
            return self.subtracted()
        right = np.asfortranarray(self.right)
        for first, last, block in half.blocks() if self.rank else ():
            subtract_product(block, right[:, first:], self.left[first:last].T)
        return half

    def diagonal(self) -> np.ndarray:
        """A float64 copy of the diagonal."""
        return self.base.diagonal() - np.einsum("ir,ri->i", self.left, self.right, dtype=np.float64)

    def row(self, i: int) -> np.ndarray:
        """A copy of row i, which is also column i."""
        return np.asarray(self.base.row(i) - self.left[i] @ self.right)

    def entries(self, items: np.ndarray) -> np.ndarray:
        """The rows and columns of a few items, in float64."""
        correction = self.left[items].astype(np.float64) @ self.right[:, items]
        return np.asarray(self.base.entries(items) - correction)

    def __matmul__(self, thin: np.ndarray) -> np.ndarray:
        """(M − L R) · thin, for a matrix of few columns."""
        return np.asarray(self.base @ thin - self.left @ (self.right @ thin))

    def dense(self) -> np.ndarray:
        """The n × n matrix as an array, for small n and for tests."""
        return np.asarray(self.base.dense() - self.left @ self.right)
