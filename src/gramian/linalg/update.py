"""P = A⁻¹ when A changes by a few rows' worth: Woodbury's identity by matrix products, in place on the stored half.

(A ± Bᵀ C B)⁻¹ = P − G C (± I + H C)⁻¹ Gᵀ    with G = P Bᵀ and H = B P Bᵀ
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg import get_blas_funcs

from gramian.linalg.product import panels
from gramian.linalg.symmetric import Symmetric


def update(inverse: Symmetric, rows: sp.csr_array, core: np.ndarray, sign: int) -> None:
    """Turn the inverse of A into that of A + sign · Bᵀ C B, for sparse rows B and a small symmetric core C."""
    (gemm,) = get_blas_funcs(("gemm",), dtype=inverse.dtype)
    g = np.empty((inverse.n, rows.shape[0]), inverse.dtype)
    for first, panel in panels(rows, inverse, np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)):
        g[first : first + panel.shape[1]] = panel.T
    h = rows.astype(np.float64) @ g.astype(np.float64)
    small = core @ np.linalg.inv(sign * np.eye(len(core)) + h @ core)
    weighted = g @ ((small + small.T) / 2).astype(inverse.dtype)
    for first, last, block in inverse.blocks():
        gemm(-1, weighted[first:].T, g[first:last].T, beta=1, c=block, trans_a=1, overwrite_c=1)


def grown(matrix: Symmetric, diagonal: np.ndarray) -> Symmetric:
    """A copy of the matrix, bordered by as many new rows and columns as there are entries for their diagonal."""
    n = matrix.n
    larger = Symmetric.empty(n + len(diagonal), matrix.dtype.type, matrix.width)
    if len(diagonal) == 0:
        larger.buffer[:] = matrix.buffer
        return larger
    larger.buffer[:] = 0
    for first, last, block in matrix.blocks():
        larger.block(first, min(first + matrix.width, larger.n))[: n - first, : last - first] = block
    added = np.concatenate([np.zeros(n), diagonal])
    larger.change_diagonal(lambda old, first, last: old + added[first:last])
    return larger
