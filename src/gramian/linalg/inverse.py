"""The inverse of a symmetric positive definite matrix, in place on its stored half.

One sweep over the block columns. Sweeping the block K turns

    [ A_KK  A_Kr ]        [ −A_KK⁻¹          A_KK⁻¹ A_Kr             ]
    [ A_rK  A_rr ]  into  [ A_rK A_KK⁻¹      A_rr − A_rK A_KK⁻¹ A_Kr ]

and sweeping every block once leaves −A⁻¹. With A_KK = R Rᵀ and E = A_rK R⁻ᵀ the update is A_rr − E Eᵀ: Cholesky's own, so the
sweep is as stable as Cholesky followed by inversion, costs the same n³ operations, all but O(n²·width) of them in one
matrix product per pair of blocks, and needs no more memory than one block column beside the matrix.
"""

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from gramian.errors import Inaccurate
from gramian.linalg.symmetric import Symmetric
from gramian.progress import track

PROBES = 4
TOLERANCE = {np.dtype(np.float32): 2e-3, np.dtype(np.float64): 1e-6}
REMEDY = "Raise l2 (or dropout), or use float64: dtype='float64' in fit or in Gram.of"


def workspace(n: int, width: int) -> int:
    """How many numbers the sweep needs beside the matrix."""
    return n * min(n, width)


def invert(matrix: Symmetric) -> None:
    """Replace a positive definite matrix by its inverse.

    The matrix is first scaled to a unit diagonal, which makes float32 go furthest. A residual probe, the worst entry of
    A⁻¹(A V) − V for a few normal V, guards the result: `Inaccurate` is raised rather than a poor inverse returned.
    """
    diagonal = matrix.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise Inaccurate("a positive diagonal", f"{diagonal.min():.3g} at item {int(diagonal.argmin())}", REMEDY)
    by = 1 / np.sqrt(diagonal)
    matrix.scale(by.astype(matrix.dtype))
    probe = np.random.default_rng(0).standard_normal((matrix.n, PROBES)).astype(matrix.dtype)
    image = matrix @ probe
    sweep(matrix)
    error = np.abs(matrix @ image + probe).max()  # the sweep leaves −A⁻¹; the worst entry, so that no corner hides
    if not error < TOLERANCE[matrix.dtype]:
        raise Inaccurate(
            f"an inverse with residuals below {TOLERANCE[matrix.dtype]:g}", f"{error:.2g} in {matrix.dtype}", REMEDY
        )
    np.negative(matrix.buffer, out=matrix.buffer)
    matrix.scale(by.astype(matrix.dtype))


def sweep(matrix: Symmetric) -> None:
    """Replace a positive definite matrix by minus its inverse."""
    potrf, trtri, lauum = get_lapack_funcs(("potrf", "trtri", "lauum"), dtype=matrix.dtype)
    trmm, gemm = get_blas_funcs(("trmm", "gemm"), dtype=matrix.dtype)
    work = np.empty(workspace(matrix.n, matrix.width), matrix.dtype)
    for first, last in track(matrix.spans(), "inverting"):
        column = work[: matrix.n * (last - first)].reshape(matrix.n, last - first)  # A_rK, the whole height
        for at, end, block in matrix.blocks():
            if at < first:
                column[at:end] = block[first - at : last - at].T
        column[first:] = matrix.block(first, last)
        root, failed = potrf(column[first:last], lower=1)
        if failed:
            raise Inaccurate("a positive definite matrix", f"a pivot not above 0 at item {first + failed - 1}", REMEDY)
        inverse_root, _ = trtri(root, lower=1)
        column[first:last] = 0
        trmm(1, inverse_root, column.T, lower=1, overwrite_b=1)  # E = A_rK R⁻ᵀ
        for at, end, block in matrix.blocks():
            if at != first:
                gemm(-1, column[at:].T, column[at:end].T, beta=1, c=block, trans_a=1, overwrite_c=1)
        trmm(1, inverse_root, column.T, lower=1, trans_a=1, overwrite_b=1)  # E R⁻¹ = A_rK A_KK⁻¹
        pivot = np.tril(lauum(inverse_root, lower=1)[0])
        column[first:last] = -(pivot + np.tril(pivot, -1).T)
        for at, end, block in matrix.blocks():
            if at < first:
                block[first - at : last - at] = column[at:end].T
        matrix.block(first, last)[:] = column[first:]
