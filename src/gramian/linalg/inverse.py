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


class Sweep:
    """A sweep and how far it has come, here in memory. `Scratch` keeps one in files, so that it survives the process.

    A step sweeps one block column. Its `column` and `root` are prepared, then every block is changed, then the step is
    finished from `spare`. The last step, beyond all block columns, brings the result to its scale.
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
    run(sweep)
    end(sweep, by, image)


def begin(matrix: Symmetric) -> tuple[np.ndarray, np.ndarray]:
    """Scale the matrix to a unit diagonal, which makes float32 go furthest, and take its image of the probe.

    The residual of the probe, the worst entry of A⁻¹(A V) − V for a few normal V, guards the result.
    """
    diagonal = matrix.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise Inaccurate("a positive diagonal", f"{diagonal.min():.3g} at item {int(diagonal.argmin())}", REMEDY)
    by = (1 / np.sqrt(diagonal)).astype(matrix.dtype)
    matrix.scale(by)
    return by, matrix @ probe(matrix)


def probe(matrix: Symmetric) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((matrix.n, PROBES)).astype(matrix.dtype)


def run(sweep: Sweep) -> None:
    """Replace a positive definite matrix by minus its inverse, from wherever the sweep stands."""
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
        if spare is not column:
            spare[:] = column
        trmm(1, root, spare.T, lower=1, trans_a=1, overwrite_b=1)  # E R⁻¹ = A_rK A_KK⁻¹
        pivot = np.tril(lauum(root, lower=1)[0])
        spare[first:last] = -(pivot + np.tril(pivot, -1).T)
        for at, end, block in matrix.blocks():
            if at < first:
                block[first - at : last - at] = spare[at:end].T
        matrix.block(first, last)[:] = spare[first:]
        sweep.finished()


def drift(inverse: Symmetric, x: sp.csr_array, s: np.ndarray, penalty: np.ndarray) -> float:
    """The probe's residual for an inverse of XᵀX + dMat(penalty), by the sparse X: no Gram matrix is needed."""
    by = 1 / np.sqrt(s + penalty)[:, None]
    scaled = by * probe(inverse)
    image = x.T @ (x @ scaled) + penalty[:, None] * scaled
    return float(np.abs((inverse @ image.astype(inverse.dtype)) / by - probe(inverse)).max())


def end(sweep: Sweep, by: np.ndarray, image: np.ndarray) -> None:
    """Check the sweep's −A⁻¹ by the probe and bring it to its scale: `Inaccurate` is raised rather than a poor inverse left."""
    matrix = sweep.matrix
    if sweep.must_prepare():
        error = np.abs(matrix @ image + probe(matrix)).max()  # the worst entry, so that no corner hides
        if not error < TOLERANCE[matrix.dtype]:
            raise Inaccurate(
                f"an inverse with residuals below {TOLERANCE[matrix.dtype]:g}", f"{error:.2g} in {matrix.dtype}", REMEDY
            )
        sweep.prepared()
    for first, last, block in sweep.blocks():
        block *= -by[first:last]
        block *= by[first:, None]
    sweep.finished()
