"""The inverse of XᵀX + diag(Λ) from a matrix of users × users, where there are fewer users than items.

With Y = X diag(Λ)^-½ and K = I + Y Yᵀ, Woodbury's identity gives

    P = (XᵀX + diag(Λ))⁻¹ = diag(Λ)^-½ (I − Yᵀ K⁻¹ Y) diag(Λ)^-½.

For m users and n items, inverting K takes m³ operations in place of n³. The products with the sparse Y take m + n/2 operations
for each interaction. I − Yᵀ K⁻¹ Y subtracts nearly equal numbers for an item whose Λ is far below its s = diag(XᵀX), so that
such data is left to the inverse of the items' matrix.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.errors import Inaccurate
from gramian.linalg.gram import write_gram
from gramian.linalg.inverse import INACCURATE_REMEDY, TOLERANCE, column_size, inverse_residual, invert, pivot_size
from gramian.linalg.memory import available_bytes
from gramian.linalg.product import inverse_panels, multiply_packed
from gramian.linalg.sparse import scale_columns
from gramian.linalg.symmetric import BLOCK_WIDTH, PANEL, Symmetric, stored_size
from gramian.linalg.tasks import task_queue
from gramian.linalg.threads import available_cores
from gramian.progress import track

MIN_ITEMS = 2_048  # below, both inverses take a fraction of a second
MAX_USERS_SHARE = 0.8  # of the items; benchmarks/exact.py users
MAX_PENALTY_RATIO = 1e3  # s/Λ; float32 loses three of its seven digits there, and half of the tolerance is left
ITEMS_PER_CHUNK = 8 * BLOCK_WIDTH  # items for which K⁻¹Y is computed at a time; a multiple of the block width


def prefers_users(x: sp.csr_array, s: np.ndarray, penalty: np.ndarray, dtype: type) -> bool:
    """Whether the users' matrix is the cheaper way to the inverse, accurate enough, and fits into memory."""
    n_users, n_items = x.shape
    is_cheaper = n_items >= MIN_ITEMS and n_users <= MAX_USERS_SHARE * n_items
    is_accurate = bool((s <= MAX_PENALTY_RATIO * penalty).all())
    return is_cheaper and is_accurate and by_users_bytes(x, dtype) <= available_bytes()


def invert_by_users(x: sp.csr_array, s: np.ndarray, penalty: np.ndarray, dtype: type) -> Symmetric:
    """Compute the inverse of XᵀX + diag(penalty).

    Parameters
    ----------
    x
        Users × items.
    s
        The diagonal of XᵀX.
    penalty
        A positive number for each item.
    dtype
        np.float32 or np.float64.

    Returns
    -------
    Symmetric
        The inverse. `Inaccurate` is raised if rounding spoils it.
    """
    root = (1 / np.sqrt(penalty)).astype(dtype)
    by_item = sp.csr_array(scale_columns(x, root).T.tocsr())  # Yᵀ
    users = Symmetric.empty(x.shape[0], dtype)
    write_gram(users, by_item)
    users.change_diagonal(lambda diagonal, first, last: diagonal + 1)
    invert(users)
    inverse = Symmetric.empty(x.shape[1], dtype)
    for first in track(range(0, inverse.n, ITEMS_PER_CHUNK), "from users to items"):
        write_columns(inverse, users, by_item, first, root)
    inverse.change_diagonal(lambda diagonal, first, last: diagonal + root[first:last] ** 2)
    residual, allowed = inverse_residual(inverse, x, s, penalty), TOLERANCE[inverse.dtype]
    if not residual < allowed:
        expected = f"an inverse with residuals below {allowed:g}"
        raise Inaccurate(expected, f"{residual:.2g} in {inverse.dtype}", INACCURATE_REMEDY)
    return inverse


def write_columns(inverse: Symmetric, users: Symmetric, by_item: sp.csr_array, start: int, root: np.ndarray) -> None:
    """Write −diag(Λ)^-½ Yᵀ K⁻¹ Y diag(Λ)^-½ to `ITEMS_PER_CHUNK` columns of the stored half, from `start` on; users is K⁻¹."""
    chunk = by_item[start : start + ITEMS_PER_CHUNK]
    solved = np.zeros((users.n, -(-chunk.shape[0] // PANEL) * PANEL), inverse.dtype)  # K⁻¹Y
    ones, zeros = np.ones(users.n, inverse.dtype), np.zeros(users.n, inverse.dtype)
    for first, panel in inverse_panels(chunk, users, ones, zeros):
        solved[first : first + panel.shape[1], : len(panel)] = panel.T
    indptr = by_item.indptr.astype(np.int64)

    def write_panel(first: int) -> None:
        top = first // inverse.width * inverse.width
        last = min(first + PANEL, inverse.n)
        products = np.empty((inverse.n - top, PANEL), inverse.dtype)
        packed = np.ascontiguousarray(solved[:, first - start : first - start + PANEL])
        multiply_packed(products, indptr[top:], by_item.indices, by_item.data, packed)
        products *= -root[top:, None]
        block = inverse.block(top, min(top + inverse.width, inverse.n))
        block[:, first - top : last - top] = products[:, : last - first] * root[first:last]

    with task_queue() as run:
        run(write_panel, range(start, start + chunk.shape[0], PANEL))


def by_users_bytes(x: sp.csr_array, dtype: type) -> int:
    """Return the peak memory of `invert_by_users`."""
    n_users, n_items = x.shape
    itemsize, chunk = np.dtype(dtype).itemsize, min(ITEMS_PER_CHUNK, n_items)
    inverting = stored_size(n_users) + column_size(n_users, BLOCK_WIDTH) + pivot_size(n_users, BLOCK_WIDTH)
    panels = (available_cores() + 2) * (n_users + chunk) * PANEL + available_cores() * (n_users + 2 * n_items) * PANEL
    writing = stored_size(n_users) + stored_size(n_items) + chunk * n_users + panels
    interactions = (2 * itemsize + 4 + 8) * x.nnz  # Y, Yᵀ, and a copy by column
    return max(inverting, writing) * itemsize + interactions
