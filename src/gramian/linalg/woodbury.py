"""Low-rank updates of an inverse P = A⁻¹ by Woodbury's identity, in place or deferred, and bordered inverses.

(A + Bᵀ C B)⁻¹ = P − G C (I + H C)⁻¹ Gᵀ    with G = P Bᵀ and H = B P Bᵀ

C need not be definite: rows that are added to A have positive entries in it, and rows that are removed negative ones.

[ A   B ]⁻¹   [ P + G T Gᵀ   −G T ]
[ Bᵀ  D ]   = [ −T Gᵀ           T ]          with G = P B and T = (D − Bᵀ G)⁻¹
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from gramian.errors import Inaccurate
from gramian.linalg.blas import subtract_product
from gramian.linalg.gram import add_outer_product
from gramian.linalg.product import inverse_panels
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.tasks import task_queue
from gramian.linalg.updated import UpdatedSymmetric

COLUMNS_PER_TASK = 256  # of a block column, which are contiguous


def update_inverse(inverse: Symmetric, rows: sp.csr_array, core: np.ndarray) -> None:
    """Turn the inverse of A into the inverse of A + Bᵀ C B, for sparse rows B and a small symmetric core C."""
    weighted, g = factor_change(inverse, rows, core)

    def update(columns: tuple[int, int, np.ndarray]) -> None:
        first, start, values = columns
        subtract_product(values, weighted[first:].T, g[start : start + values.shape[1]].T)

    with task_queue() as run:
        run(update, cut_columns(inverse))


def defer_update(inverse: UpdatedSymmetric, rows: sp.csr_array, core: np.ndarray) -> UpdatedSymmetric:
    """Return the inverse of A + Bᵀ C B as an update of the inverse of A that is not subtracted yet."""
    weighted, g = factor_change(inverse, rows, core)
    return inverse.defer(weighted, g.T)


def factor_change(inverse: Symmetric, rows: sp.csr_array, core: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return G C (I + H C)⁻¹ and G, whose product G C (I + H C)⁻¹ Gᵀ a change of A takes away from its inverse."""
    g = np.empty((inverse.n, rows.shape[0]), inverse.dtype)
    for first, panel in inverse_panels(rows, inverse, np.ones(inverse.n, inverse.dtype), np.zeros(inverse.n, inverse.dtype)):
        g[first : first + panel.shape[1]] = panel.T
    h = rows.astype(np.float64) @ g.astype(np.float64)
    small = core @ np.linalg.inv(np.eye(len(core)) + h @ core)
    return g @ ((small + small.T) / 2).astype(inverse.dtype), g  # symmetric in exact arithmetic, made so after rounding


def cut_columns(matrix: Symmetric) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield a few columns of a block column at a time, as (first row, first column, values)."""
    for first, last, block in matrix.blocks():
        for start in range(first, last, COLUMNS_PER_TASK):
            yield first, start, block[:, start - first : start - first + COLUMNS_PER_TASK]


def pad_inverse(matrix: Symmetric, diagonal: np.ndarray) -> Symmetric:
    """Copy the matrix, with all updates subtracted, and append a row and a column for each entry of `diagonal`.

    They are zero off the diagonal.
    """
    n = matrix.n
    padded = Symmetric.empty(n + len(diagonal), matrix.dtype.type, matrix.width)

    def copy(columns: tuple[int, int, np.ndarray]) -> None:
        first, start, values = columns
        n_rows, n_columns = max(n - first, 0), min(max(n - start, 0), values.shape[1])
        values[n_rows:] = 0
        values[:, n_columns:] = 0
        if n_columns:
            values[:n_rows, :n_columns] = matrix.block(first, start + n_columns)[:, start - first :]

    if isinstance(matrix, UpdatedSymmetric):
        matrix.write(padded.rows[:n, :n])
        padded.rows[n:] = padded.rows[:n, n:] = 0
    else:
        with task_queue() as run:
            run(copy, cut_columns(padded))
    if len(diagonal) == 0:
        return padded
    appended = np.concatenate([np.zeros(n), diagonal])
    padded.change_diagonal(lambda old, first, last: old + appended[first:last])
    return padded


def border_inverse(inverse: Symmetric, border: np.ndarray, corner: np.ndarray) -> Symmetric:
    """Return the inverse of A with k more rows and columns: n × k `border` B and k × k `corner` D.

    With the Cholesky factor T = R Rᵀ, it is P padded by zeros plus [−G R; R] [−G R; R]ᵀ, a product of thin matrices.
    """
    solved = (inverse @ np.ascontiguousarray(border, inverse.dtype)).astype(np.float64)
    schur = corner - border.astype(np.float64).T @ solved
    try:
        root = np.linalg.inv(np.linalg.cholesky((schur + schur.T) / 2)).T
    except np.linalg.LinAlgError:
        raise Inaccurate("a positive definite matrix with the new items", "one that is not", "Raise l2") from None
    bordered = pad_inverse(inverse, np.zeros(len(corner)))
    add_outer_product(bordered, np.concatenate([-solved @ root, root]).astype(inverse.dtype))
    return bordered
