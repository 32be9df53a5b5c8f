"""One eigendecomposition A = Q dMat(v) Qᵀ gives (A + ridge·I)⁻¹ for every ridge, without ever forming it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from gramian.linalg.symmetric import Symmetric

ROWS = 1024  # of Q at once

# Measured on this kind of work, in units of one n × n inverse: a decomposition, and scoring n users by a dense product.
DECOMPOSITION, DENSE_SCORING = 7.0, 1.4


def pays(n_ridges: int, n_users: float, n: int) -> bool:
    """Whether a decomposition and a dense product for each ridge cost less than an inverse for each ridge."""
    return DECOMPOSITION + n_ridges * DENSE_SCORING * n_users / n < n_ridges


def spectrum_bytes(n: int, itemsize: int) -> int:
    """The peak memory of a decomposition: the matrix and LAPACK's workspace of two more."""
    return 3 * n * n * itemsize


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues, and eigenvectors in columns."""

    values: np.ndarray
    vectors: np.ndarray

    @staticmethod
    def of(matrix: Symmetric) -> Spectrum:
        values, vectors = eigh(matrix.dense(), driver="evd", overwrite_a=True, check_finite=False)
        return Spectrum(values, np.ascontiguousarray(vectors))

    def inverse(self, ridge: float) -> ShiftedInverse:
        return ShiftedInverse(self, (1 / (self.values.astype(np.float64) + ridge)).astype(self.values.dtype))


@dataclass(frozen=True)
class ShiftedInverse:
    """(A + ridge·I)⁻¹ = Q dMat(shrunk) Qᵀ, to be multiplied by."""

    spectrum: Spectrum
    shrunk: np.ndarray

    @property
    def n(self) -> int:
        return len(self.shrunk)

    @property
    def dtype(self) -> np.dtype:
        return self.shrunk.dtype

    def diagonal(self) -> np.ndarray:
        q = self.spectrum.vectors
        return np.concatenate([q[at : at + ROWS] ** 2 @ self.shrunk for at in range(0, self.n, ROWS)]).astype(np.float64)

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        q = self.spectrum.vectors
        return q @ (self.shrunk[:, None] * (q.T @ right))
