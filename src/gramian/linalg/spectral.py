"""Spectra: of a whole symmetric matrix, or the top of an operator that is only multiplied by.

`Spectrum` is one eigendecomposition A = Q dMat(v) Qᵀ, which gives (A + ridge·I)⁻¹ for every ridge without ever forming it.

`top` gives the largest eigenpairs of a positive semidefinite operator: a Gram matrix, XᵀX by the sparse X, anything with `@`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh, qr

from gramian.errors import InvalidInput
from gramian.linalg.inverse import Operator
from gramian.linalg.memory import require
from gramian.linalg.product import gram_times
from gramian.linalg.symmetric import Symmetric
from gramian.progress import bar

ROWS = 1024  # of Q at once
STRIP = 256  # columns of a dense operator at once

# Measured on this kind of work, in units of one n × n inverse: a decomposition, and scoring n users by a dense product.
DECOMPOSITION, DENSE_SCORING = 7.0, 1.4

SMALL = 1_500  # items up to which LAPACK is quick anyway
LARGE_SHARE = 0.15  # of all eigenpairs, from which LAPACK is quicker
WIDEST = 64  # vectors multiplied at once
ACCURACY = 1e-3  # residual of an eigenpair, relative to its eigenvalue


@dataclass(frozen=True)
class Top:
    """The largest eigenvalues, in order, and their eigenvectors in columns."""

    values: np.ndarray
    vectors: np.ndarray


class GramOf:
    """XᵀX by the sparse X, never formed."""

    def __init__(self, x: sp.csr_array, dtype: type) -> None:
        self.x, self.n, self.dtype = x, x.shape[1], np.dtype(dtype)

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        return gram_times(self.x, right)


def top(operator: Operator, k: int, seed: int = 0) -> Top:
    """The k largest eigenpairs, each with a residual ‖Aq − θq‖ of at most ACCURACY·θ and the rounding of the largest.

    By LAPACK where the operator is small or k is a large part of it, else by block Lanczos from a random start.
    """
    n = operator.n
    if not 1 <= k <= n:
        raise InvalidInput(f"a rank between 1 and the {n:,} items", f"{k:,}", "Choose a rank in between")
    if n <= SMALL or k > LARGE_SHARE * n:
        return by_lapack(operator, k)
    return by_lanczos(operator, k, seed) or by_lapack(operator, k)


def top_bytes(n: int, k: int, itemsize: int) -> int:
    """About the peak memory of `top`, beside the operator."""
    return spectrum_bytes(n, itemsize) if n <= SMALL or k > LARGE_SHARE * n else 6 * n * (k + 3 * WIDEST) * itemsize


def by_lapack(operator: Operator, k: int) -> Top:
    n = operator.n
    require(spectrum_bytes(n, operator.dtype.itemsize), f"a decomposition of {n:,} items", "Choose a lower rank")
    dense = np.empty((n, n), operator.dtype, order="F")
    for first in range(0, n, STRIP):
        strip = np.zeros((n, min(STRIP, n - first)), operator.dtype)
        strip[np.arange(first, first + strip.shape[1]), np.arange(strip.shape[1])] = 1
        dense[:, first : first + STRIP] = operator @ strip
    values, vectors = eigh(dense, driver="evr", subset_by_index=(n - k, n - 1), overwrite_a=True, check_finite=False)
    return Top(np.maximum(values[::-1], 0), np.ascontiguousarray(vectors[:, ::-1]))


def by_lanczos(operator: Operator, k: int, seed: int) -> Top | None:
    """Project the operator on the space of its own powers, a block at a time, each orthogonal to all before it.

    What the image of the newest block has outside the space shows the residuals, and is the next block. None where the space
    would grow so large that LAPACK is cheaper.
    """
    n, width = operator.n, min(WIDEST, max(16, k // 4))
    limit = min(n // 2, 6 * k + 16 * width) // width * width
    basis = np.empty((n, limit + width), operator.dtype, order="F")
    projected = np.zeros((limit, limit), operator.dtype)
    basis[:, :width] = orthonormal(np.random.default_rng(seed).standard_normal((n, width)).astype(operator.dtype))[0]
    look = k + k // 2
    with bar("decomposing", limit) as advance:
        for size in range(width, limit + 1, width):
            known, newest = basis[:, :size], slice(size - width, size)
            image = operator @ basis[:, newest]
            for _ in range(2):  # once leaves rounding behind
                overlap = known.T @ image
                projected[:size, newest] += overlap
                image -= known @ overlap
            following, coupling = orthonormal(image)
            following -= known @ (known.T @ following)  # what rounding left, where the image was nearly all in the space
            basis[:, size : size + width] = orthonormal(following)[0]
            advance(width)
            if size < min(look, limit):
                continue
            found = eigh(projected[:size, :size], lower=False, subset_by_index=(size - k, size - 1), check_finite=False)
            values, vectors = found[0][::-1], found[1][:, ::-1]
            residuals = np.linalg.norm(coupling @ vectors[newest], axis=0)
            rounding = np.finfo(operator.dtype).eps * values[0]
            if (residuals <= ACCURACY * values + 10 * rounding).all():
                return Top(np.maximum(values, 0), np.ascontiguousarray(known @ vectors))
            look = size + max(width, k // 2)
    return None


def orthonormal(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal basis of the columns, and the columns in it."""
    return qr(block, mode="economic", overwrite_a=True, check_finite=False)


def pays(n_ridges: int, n_users: float, n: int) -> bool:
    """Whether a decomposition and a dense product for each ridge cost less than an inverse for each ridge."""
    return DECOMPOSITION + n_ridges * DENSE_SCORING * n_users / n < n_ridges


def spectrum_bytes(n: int, itemsize: int) -> int:
    """The peak memory of a decomposition: the matrix, LAPACK's workspace of two more, and the eigenvectors by rows."""
    return 4 * n * n * itemsize


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
