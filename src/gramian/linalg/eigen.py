"""Eigenvalues and eigenvectors of symmetric matrices.

`Spectrum` is a full eigendecomposition A = Q diag(v) Qᵀ. It gives (A + ridge·I)⁻¹ for every ridge as an operator.

`top_eigenpairs` computes the largest eigenpairs of a positive semidefinite operator, which is anything with `@`: a stored
Gram matrix, or XᵀX as a product with the sparse X (`ImplicitGram`). Where X has few rows, those of XXᵀ are computed instead:
XXᵀu = θu gives XᵀX(Xᵀu) = θ(Xᵀu).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh, qr

from gramian.errors import Inaccurate, InvalidInput
from gramian.linalg.gram_product import apply_gram
from gramian.linalg.inverse import SymmetricOperator
from gramian.linalg.memory import require_memory
from gramian.linalg.symmetric import Symmetric
from gramian.progress import progress_bar

EIGENVECTOR_ROWS = 1024  # rows of Q squared at a time, which bounds the temporary memory
IDENTITY_STRIP = 256  # columns of the identity that an operator is multiplied by at a time, to make it dense

# Measured time, in units of one n × n inverse: of an eigendecomposition, and of scoring n users by a dense product.
DECOMPOSITION_COST, DENSE_SCORING_COST = 7.0, 1.4

LAPACK_MAX_SIZE = 1_500  # n up to which LAPACK is fast enough for any k
LAPACK_MIN_SHARE = 0.15  # k/n above which LAPACK is faster than Lanczos
MIN_LANCZOS_WIDTH = 8  # vectors in a Lanczos block: narrow ones need a smaller basis
MAX_LANCZOS_WIDTH = 64  # and wide ones multiply faster
NEW_SHARE = 1e-3  # of an image's norm that is orthogonal to the basis, below which rounding errors may be as large
RESTART_SIZE = 10_000  # n up to which LAPACK takes over if a basis has reached its limit; it needs 16n² bytes
MAX_RESTARTS = 50
REFINEMENT_STEPS = 12  # blocks of residuals that are added to a basis; a new decomposition is cheaper than more
RESIDUAL_TOLERANCE = 1e-3  # ‖Aq − θq‖/θ of an eigenpair; see benchmarks/README.md


@dataclass(frozen=True)
class TopEigenpairs:
    """The largest eigenvalues, in descending order, and their eigenvectors in columns."""

    values: np.ndarray
    vectors: np.ndarray


class ImplicitGram:
    """XᵀX as a linear operator: multiplies by the sparse X and its transpose, and never forms the product."""

    def __init__(self, x: sp.csr_array, dtype: type) -> None:
        self.x, self.n, self.dtype = x, x.shape[1], np.dtype(dtype)

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        return apply_gram(self.x, right)

    def has_few_rows(self, k: int) -> bool:
        """Whether LAPACK on XXᵀ is the cheapest way to the k largest eigenpairs."""
        n_rows = self.x.shape[0]
        return k <= n_rows < self.n and n_rows <= 2 * LAPACK_MAX_SIZE and prefers_lapack(n_rows, k)


def top_eigenpairs(operator: SymmetricOperator, k: int, seed: int = 0) -> TopEigenpairs:
    """Compute the k largest eigenpairs of a positive semidefinite operator.

    Uses LAPACK if the operator is small, on either side of X, or k is a large share of n, else block Lanczos from a random
    start. Each pair then has a residual ‖Aq − θq‖ of at most RESIDUAL_TOLERANCE·θ plus the rounding error of the largest
    eigenvalue.
    """
    n = operator.n
    if not 1 <= k <= n:
        raise InvalidInput(f"a rank between 1 and the {n:,} items", f"{k:,}", "Choose a rank in between")
    with np.errstate(over="ignore", invalid="ignore"):  # `multiply_finite` checks
        if isinstance(operator, ImplicitGram) and operator.has_few_rows(k):
            return decompose_by_rows(operator, k)
        if prefers_lapack(n, k):
            return decompose_by_lapack(operator, k)
        return decompose_by_lanczos(operator, k, seed) or decompose_by_lapack(operator, k)


def multiply_finite(operator: SymmetricOperator, right: np.ndarray) -> np.ndarray:
    """Return operator · right, or raise `Inaccurate` where it overflows."""
    return refuse_overflow(operator @ right, operator.dtype)


def refuse_overflow(image: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array as it is, or raise `Inaccurate` where it overflows."""
    if not np.isfinite(image).all():
        do = "Rescale the weights of the interactions, or fit with dtype='float64'"
        raise Inaccurate(f"a matrix within the range of {dtype}", "an overflow", do)
    return image


def prefers_lapack(n: int, k: int) -> bool:
    """Whether LAPACK is expected to be faster than block Lanczos."""
    return n <= LAPACK_MAX_SIZE or k > LAPACK_MIN_SHARE * n


def eigenpairs_bytes(n: int, k: int, itemsize: int) -> int:
    """Estimate the peak memory of `top_eigenpairs`, without the operator."""
    if prefers_lapack(n, k):
        return spectrum_bytes(n, itemsize)
    return n * (8 * k + 16 * lanczos_width(k)) * itemsize  # a large basis, the eigenvectors twice, and a few blocks


def lanczos_width(k: int) -> int:
    """Return the number of vectors in a Lanczos block for k eigenpairs."""
    return min(MAX_LANCZOS_WIDTH, max(MIN_LANCZOS_WIDTH, k // 64 * 8))


def decompose_by_lapack(operator: SymmetricOperator, k: int) -> TopEigenpairs:
    """Compute the k largest eigenpairs from the dense matrix, which is obtained by multiplying with the identity."""
    n = operator.n
    require_memory(spectrum_bytes(n, operator.dtype.itemsize), f"a decomposition of {n:,} items", "Choose a lower rank")
    dense = np.empty((n, n), operator.dtype, order="F")
    for first in range(0, n, IDENTITY_STRIP):
        strip = np.zeros((n, min(IDENTITY_STRIP, n - first)), operator.dtype)
        strip[np.arange(first, first + strip.shape[1]), np.arange(strip.shape[1])] = 1
        dense[:, first : first + IDENTITY_STRIP] = multiply_finite(operator, strip)
    values, vectors = eigh(dense, driver="evr", subset_by_index=(n - k, n - 1), overwrite_a=True, check_finite=False)
    return TopEigenpairs(np.maximum(values[::-1], 0), np.ascontiguousarray(vectors[:, ::-1]))


def decompose_by_rows(operator: ImplicitGram, k: int) -> TopEigenpairs:
    """Compute the k largest eigenpairs of XᵀX from those of XXᵀ, in float64, because XXᵀ has the squares of X's precision."""
    x = operator.x.astype(np.float64)
    m, products = x.shape[0], (x @ x.T).toarray()
    refuse_overflow(products.astype(operator.dtype), operator.dtype)
    values, left = eigh(products, driver="evr", subset_by_index=(m - k, m - 1), overwrite_a=True, check_finite=False)
    vectors = qr(x.T @ left[:, ::-1], mode="economic", check_finite=False)[0]  # unit length; any basis where θ is 0
    return TopEigenpairs(np.maximum(values[::-1], 0).astype(operator.dtype), vectors.astype(operator.dtype, order="C"))


def decompose_by_lanczos(operator: SymmetricOperator, k: int, seed: int) -> TopEigenpairs | None:
    """Compute the k largest eigenpairs by block Lanczos with full reorthogonalisation.

    The basis of the Krylov space grows by a block at a time, and the operator is projected on it. The component of the newest
    image that is orthogonal to the basis bounds the residuals, and is the next block. A basis that has reached its limit is
    replaced by half as many of its Ritz vectors and that block (thick restart). Returns None if LAPACK is cheaper, or after
    `MAX_RESTARTS`.
    """
    n, width = operator.n, lanczos_width(k)
    limit = min(n // 2, 6 * k + 16 * width) // width * width
    basis = np.empty((n, limit + width), operator.dtype, order="F")
    projected = np.zeros((limit, limit), operator.dtype)
    basis[:, :width] = orthonormalise(np.random.default_rng(seed).standard_normal((n, width)).astype(operator.dtype))[0]
    next_check = k + k // 2  # the size of the basis at which to test for convergence
    size, n_restarts = 0, 0
    with progress_bar("decomposing", limit) as advance:
        while True:
            size += width
            current, newest = basis[:, :size], slice(size - width, size)
            image = multiply_finite(operator, basis[:, newest])
            # A symmetric operator's image has components in the last two blocks only, but for rounding errors. These are
            # removed first, so that one pass over the whole basis suffices for the rest.
            for first in (max(size - 2 * width, 0), 0):
                overlap = basis[:, first:size].T @ image
                projected[first:size, newest] += overlap
                image -= basis[:, first:size] @ overlap
            block, coupling = orthonormalise(image)
            if np.abs(np.diag(coupling)).min() < NEW_SHARE * np.abs(projected[newest, newest]).max():
                block -= current @ (current.T @ block)  # QR scales up rounding errors where little of the image is new
                block = orthonormalise(block)[0]
            basis[:, size : size + width] = block
            advance(width)
            if size < min(next_check, limit):
                continue
            n_kept = k if size < limit else limit // 2 // width * width
            values, vectors = eigh(
                projected[:size, :size], lower=False, subset_by_index=(size - n_kept, size - 1), check_finite=False
            )
            values, vectors = values[::-1], vectors[:, ::-1]
            residuals = np.linalg.norm(coupling @ vectors[newest, :k], axis=0)
            rounding = np.finfo(operator.dtype).eps * values[0]
            if (residuals <= RESIDUAL_TOLERANCE * values[:k] + 10 * rounding).all():
                return TopEigenpairs(np.maximum(values[:k], 0), np.ascontiguousarray(current @ vectors[:, :k]))
            next_check = size + max(width, k // 4)
            if size >= limit:
                if n <= RESTART_SIZE or n_restarts == MAX_RESTARTS:
                    return None
                for first in range(0, n, EIGENVECTOR_ROWS):  # in place
                    basis[first : first + EIGENVECTOR_ROWS, :n_kept] = current[first : first + EIGENVECTOR_ROWS] @ vectors
                basis[:, n_kept : n_kept + width] = block
                advance(n_kept - size)
                projected[:] = 0
                projected[np.diag_indices(n_kept)] = values
                size, n_restarts, next_check = n_kept, n_restarts + 1, 0


def refine_eigenpairs(operator: SymmetricOperator, start: np.ndarray, k: int, floor: float) -> TopEigenpairs | None:
    """Compute the k largest eigenpairs from a basis that nearly contains them, as after a small change of the operator.

    Ritz pairs of the basis are accepted with the residuals that `top_eigenpairs` accepts. Until then the basis grows by the
    residuals.

    Parameters
    ----------
    operator
        A positive semidefinite operator.
    start
        The basis, in columns; it is overwritten.
    k
        The number of eigenpairs.
    floor
        Eigenvalues up to this need not be accurate.

    Returns
    -------
    TopEigenpairs
        None if the residuals are still too large after `REFINEMENT_STEPS`.
    """
    basis = orthonormalise(start)[0]
    image = multiply_finite(operator, basis)
    for step in range(REFINEMENT_STEPS):
        size = basis.shape[1]
        values, vectors = eigh(basis.T @ image, subset_by_index=(max(size - k, 0), size - 1), check_finite=False)
        values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        ritz = basis @ vectors
        residuals = image @ vectors - ritz * values
        allowed = RESIDUAL_TOLERANCE * values + 10 * np.finfo(operator.dtype).eps * values[0]
        is_rough = (np.linalg.norm(residuals, axis=0) > allowed) & (values > floor)
        if not is_rough.any():
            return TopEigenpairs(values, np.ascontiguousarray(ritz))
        if step < REFINEMENT_STEPS - 1:
            residuals = residuals[:, is_rough]
            for _ in range(2):  # as in Lanczos
                residuals = orthonormalise(residuals - basis @ (basis.T @ residuals))[0]
            basis, image = np.hstack([basis, residuals]), np.hstack([image, multiply_finite(operator, residuals)])
    return None


def orthonormalise(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """QR factorization: an orthonormal basis of the columns, and their coordinates in it. Overwrites `block`."""
    return qr(block, mode="economic", overwrite_a=True, check_finite=False)


def is_decomposition_cheaper(n_ridges: int, n_users: float, n: int) -> bool:
    """Whether one eigendecomposition and a dense product per ridge cost less than one inverse per ridge."""
    return DECOMPOSITION_COST + n_ridges * DENSE_SCORING_COST * n_users / n < n_ridges


def spectrum_bytes(n: int, itemsize: int) -> int:
    """The peak memory of a decomposition: the matrix, LAPACK's workspace of twice that, and the eigenvectors in C order."""
    return 4 * n * n * itemsize


@dataclass(frozen=True)
class Spectrum:
    """An eigendecomposition: eigenvalues in ascending order, and eigenvectors in columns."""

    values: np.ndarray
    vectors: np.ndarray

    @staticmethod
    def of(matrix: Symmetric) -> Spectrum:
        values, vectors = eigh(matrix.dense(), driver="evd", overwrite_a=True, check_finite=False)
        return Spectrum(values, np.ascontiguousarray(vectors))

    def inverse(self, ridge: float) -> ShiftedInverse:
        """(A + ridge·I)⁻¹, as an operator."""
        return ShiftedInverse(self, (1 / (self.values.astype(np.float64) + ridge)).astype(self.values.dtype))


@dataclass(frozen=True)
class ShiftedInverse:
    """(A + ridge·I)⁻¹ = Q diag(shrunk) Qᵀ as a linear operator, with shrunk = 1/(v + ridge)."""

    spectrum: Spectrum
    shrunk: np.ndarray

    @property
    def n(self) -> int:
        return len(self.shrunk)

    @property
    def dtype(self) -> np.dtype:
        return self.shrunk.dtype

    def diagonal(self) -> np.ndarray:
        """A float64 array of the diagonal."""
        q, starts = self.spectrum.vectors, range(0, self.n, EIGENVECTOR_ROWS)
        return np.concatenate([q[start : start + EIGENVECTOR_ROWS] ** 2 @ self.shrunk for start in starts]).astype(np.float64)

    def __matmul__(self, right: np.ndarray) -> np.ndarray:
        q = self.spectrum.vectors
        return q @ (self.shrunk[:, None] * (q.T @ right))
