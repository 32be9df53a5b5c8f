"""The inverse of a symmetric positive definite matrix, in place on its stored half.

One sweep over the block columns. Sweeping the block K turns

    [ A_KK  A_Kr ]        [ −A_KK⁻¹          A_KK⁻¹ A_Kr             ]
    [ A_rK  A_rr ]  into  [ A_rK A_KK⁻¹      A_rr − A_rK A_KK⁻¹ A_Kr ]

and sweeping every block once leaves −A⁻¹. With A_KK = R Rᵀ and E = A_rK R⁻ᵀ the update is A_rr − E Eᵀ: Cholesky's own, so the
sweep is as stable as Cholesky followed by inversion, costs the same n³ operations, all but O(n²·width) of them in one
matrix product per pair of blocks, and needs no more memory than one block column beside the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from gramian.errors import Inaccurate
from gramian.linalg.symmetric import Symmetric
from gramian.progress import track

PROBES = 4
TOLERANCE = {np.dtype(np.float32): 2e-3, np.dtype(np.float64): 1e-6}
REMEDY = "Raise l2 (or dropout), or use float64: dtype='float64' in fit or in Gram.of"


def column_size(n: int, width: int) -> int:
    """How many numbers a block column of the whole height holds."""
    return n * min(n, width)


def pivot_size(n: int, width: int) -> int:
    """How many numbers the sweep's few matrices of the size of a pivot hold."""
    return 6 * min(n, width) ** 2


class Operator(Protocol):
    """A symmetric matrix, however it is held."""

    @property
    def n(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __matmul__(self, right: np.ndarray) -> np.ndarray: ...


class Sweep:
    """A sweep and how far it has come, here in memory. `Scratch` keeps one in files, so that it survives the process.

    A step sweeps one block column: its `column` and `root` are prepared, then every block is changed, then the step is
    finished from `spare`. One more step, after all block columns, brings the result to its scale.
    """

    step = 0

    def __init__(self, matrix: Symmetric) -> None:
        width = min(matrix.n, matrix.width)
        self.matrix = matrix
        self.column = np.empty(column_size(matrix.n, matrix.width), matrix.dtype)
        self.spare = self.column  # when nobody resumes, the column itself may be overwritten
        self.root = np.empty((width, width), matrix.dtype, order="F")

    def must_prepare(self) -> bool:
        return True

    def prepared(self) -> None:
        """The column and the root of this step are there."""

    def blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """The blocks that this step has yet to change."""
        return self.matrix.blocks()

    def finished(self) -> None:
        self.step += 1


def invert(matrix: Symmetric) -> None:
    """Replace a positive definite matrix by its inverse."""
    by, image = begin(matrix)
    sweep = Sweep(matrix)
    run(sweep, by)
    check(matrix, by, image)


def begin(matrix: Symmetric) -> tuple[np.ndarray, np.ndarray]:
    """Scale A to a unit diagonal, which makes float32 go furthest: the scale, and the image A(scale · V) of a probe V."""
    diagonal = matrix.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise Inaccurate("a positive diagonal", f"{diagonal.min():.3g} at item {int(diagonal.argmin())}", REMEDY)
    by = (1 / np.sqrt(diagonal)).astype(matrix.dtype)
    matrix.scale(by)
    return by, (matrix @ probe(matrix)) / by[:, None]


def probe(matrix: Operator) -> np.ndarray:
    """A few normal vectors."""
    return np.random.default_rng(0).standard_normal((matrix.n, PROBES)).astype(matrix.dtype)


def residual(inverse: Operator, by: np.ndarray, image: np.ndarray) -> float:
    """The worst entry of A⁻¹ · image / scale − V, so that no corner hides."""
    return float(np.abs((inverse @ image) / by[:, None] - probe(inverse)).max())


def check(inverse: Symmetric, by: np.ndarray, image: np.ndarray) -> None:
    """Raise `Inaccurate` rather than leave a poor inverse."""
    error, allowed = residual(inverse, by, image), TOLERANCE[inverse.dtype]
    if not error < allowed:
        raise Inaccurate(f"an inverse with residuals below {allowed:g}", f"{error:.2g} in {inverse.dtype}", REMEDY)


def drift(inverse: Operator, x: sp.csr_array, s: np.ndarray, penalty: np.ndarray) -> float:
    """The residual of an inverse of XᵀX + dMat(penalty), by the sparse X: no Gram matrix is needed."""
    by = 1 / np.sqrt(s + penalty)
    scaled = by[:, None] * probe(inverse)
    image = x.T @ (x @ scaled) + penalty[:, None] * scaled
    return residual(inverse, by, image.astype(inverse.dtype))


def run(sweep: Sweep, by: np.ndarray) -> None:
    """Replace a positive definite matrix by its inverse, from wherever the sweep stands, and bring that to its scale."""
    matrix = sweep.matrix
    potrf, trtri, lauum = get_lapack_funcs(("potrf", "trtri", "lauum"), dtype=matrix.dtype)
    trmm, gemm = get_blas_funcs(("trmm", "gemm"), dtype=matrix.dtype)
    for first, last in track(matrix.spans()[sweep.step :], "inverting"):
        shape = matrix.n, last - first
        column, spare = (part[: shape[0] * shape[1]].reshape(shape) for part in (sweep.column, sweep.spare))
        root = sweep.root[: last - first, : last - first]
        if sweep.must_prepare():
            for at, end, block in matrix.blocks():
                if at < first:
                    column[at:end] = block[first - at : last - at].T
            column[first:] = matrix.block(first, last)  # A_rK, the whole height
            factor, failed = potrf(column[first:last], lower=1)
            if failed:
                raise Inaccurate("a positive definite matrix", f"a pivot not above 0 at item {first + failed - 1}", REMEDY)
            root[:], _ = trtri(factor, lower=1, overwrite_c=1)
            column[first:last] = 0
            trmm(1, root, column.T, lower=1, overwrite_b=1)  # E = A_rK R⁻ᵀ
            sweep.prepared()
        for at, end, block in sweep.blocks():
            if at != first:
                gemm(-1, column[at:].T, column[at:end].T, beta=1, c=block, trans_a=1, overwrite_c=1)
        if sweep.spare is not sweep.column:
            spare[:] = column
        trmm(1, root, spare.T, lower=1, trans_a=1, overwrite_b=1)  # E R⁻¹ = A_rK A_KK⁻¹
        pivot = np.tril(lauum(root, lower=1)[0])
        spare[first:last] = -(pivot + np.tril(pivot, -1).T)
        for at, end, block in matrix.blocks():
            if at < first:
                block[first - at : last - at] = spare[at:end].T
        matrix.block(first, last)[:] = spare[first:]
        sweep.finished()
    for first, last, block in sweep.blocks():
        block *= -by[first:last]
        block *= by[first:, None]
    sweep.finished()
