"""How full-rank linear autoencoders are fitted, resumed and updated: one positive definite inverse for all of them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gramian.core.gram import Gram
from gramian.core.recipe import GramRecipe, retry_in_float64
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate, PrecisionWarning
from gramian.linalg.coefficients import Coefficients
from gramian.linalg.gram import write_gram
from gramian.linalg.inverse import TOLERANCE, check_inverse, inverse_residual, invert, pivot_size, scale_and_probe, sweep_blocks
from gramian.linalg.resumable import ResumableSweep, clear_scratch, scratch_file_bytes
from gramian.linalg.sparse import csr_from_sorted, squared_column_norms
from gramian.linalg.symmetric import BLOCK_WIDTH, Symmetric
from gramian.linalg.woodbury import pad_inverse, update_inverse
from gramian.models.scorers import InverseWeights
from gramian.progress import track

ROWS_PER_UPDATE = 512  # rank of one Woodbury update
REFIT_SHARE = 0.5  # an update of higher rank than this share of the items costs more than a new inverse


class LinearAutoencoder(GramRecipe):
    """A model that is one inverse and one `Coefficients` object."""

    takes_dislikes = True  # a signed X has a Gram matrix like any other

    @property
    @abstractmethod
    def coefficients(self) -> Coefficients:
        """The ten numbers that, with the Gram matrix, determine the model."""

    def solve(self, gram: Gram, overwrite: bool) -> InverseWeights:
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        s = add_penalty(matrix, self.coefficients)
        invert(matrix)
        return weights_from_inverse(matrix, s, self.coefficients)

    def fit_scorer_in(self, scratch: Path, events: Interactions, dtype: type) -> Scorer:
        self.require_binary(events.is_binary)
        penalty = self.coefficients.penalty(squared_column_norms(events.matrix))
        key = f"{events.fingerprint} {sha256(penalty.tobytes()).hexdigest()} {np.dtype(dtype)}"  # what the inverse depends on

        def fit(dtype: type) -> InverseWeights:
            with ResumableSweep(scratch, key, events.n_items, dtype) as sweep:
                try:
                    if not sweep.has_begun:
                        write_gram(sweep.matrix, events.matrix)
                        s = add_penalty(sweep.matrix, self.coefficients)
                        scale, image = scale_and_probe(sweep.matrix)
                        sweep.begin(s=s, scale=scale, image=image)
                    if not sweep.is_complete:
                        sweep_blocks(sweep, sweep.arrays["scale"])
                    check_inverse(sweep.matrix, sweep.arrays["scale"], sweep.arrays["image"])
                except Inaccurate:
                    clear_scratch(scratch)
                    raise
                return weights_from_inverse(sweep.matrix, sweep.arrays["s"], self.coefficients)

        return retry_in_float64(fit, dtype)

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        n, itemsize = events.n_items, np.dtype(dtype).itemsize
        return 8 * events.n_interactions + pivot_size(n, BLOCK_WIDTH) * itemsize, scratch_file_bytes(n, np.dtype(dtype))

    def update(self, scorer: InverseWeights, after: Interactions, change: Interactions, sign: int) -> Scorer:
        """Update the inverse by Woodbury's identity, or fit again where that is cheaper or more accurate."""
        self.require_binary(after.is_binary)
        s = squared_column_norms(after.matrix)
        inverse = update_for_users(
            scorer.inverse, self.coefficients, s, after.matrix, change.matrix, change.matrix.data**2, sign
        )
        if inverse is None:
            return retry_in_float64(lambda dtype: self.fit_scorer(after, dtype), scorer.inverse.dtype.type)
        return weights_from_inverse(inverse, s, self.coefficients)


def add_penalty(matrix: Symmetric, coefficients: Coefficients, s: np.ndarray | None = None) -> np.ndarray:
    """Turn S into S + diag(Λ) in place, and return the s of the penalty Λ = slope·s + ridge: the diagonal of S if left out."""
    s = matrix.diagonal() if s is None else s
    penalty = coefficients.penalty(s)
    matrix.change_diagonal(lambda diagonal, first, last: diagonal + penalty[first:last])
    return s


def weights_from_inverse(inverse: Symmetric, s: np.ndarray, coefficients: Coefficients) -> InverseWeights:
    """Return the model's weights from P and the diagonal s of the Gram matrix."""
    p_ii = inverse.diagonal()
    coefficients.require_definite(p_ii, s)
    return InverseWeights(inverse, coefficients.scale(p_ii, s), coefficients.diagonal(p_ii, s))


def update_for_users(
    inverse: Symmetric,
    coefficients: Coefficients,
    s: np.ndarray,
    after: sp.csr_array,
    change: sp.csr_array,
    added_to_s: np.ndarray,
    sign: int,
) -> Symmetric | None:
    """Update the inverse of XᵀX + diag(slope·s + ridge) by Woodbury's identity; None where a new fit is cheaper or needed.

    Parameters
    ----------
    inverse
        The inverse before the change, which stays as it is.
    coefficients, s
        The penalty, and its s after the change.
    after, change
        The rows of X after the change, and the rows that were added (sign 1) or removed (sign −1).
    added_to_s
        What each stored entry of `change` adds to s.
    """
    before = s - sign * np.bincount(change.indices, added_to_s, len(s))
    is_definite = all((d + coefficients.slope * d + coefficients.ridge).min() > 0 for d in (s, before))
    batches = list(update_batches(change, added_to_s, coefficients.slope))
    if not is_definite or sum(len(core) for _, core in batches) > REFIT_SHARE * len(s):
        return None
    updated = pad_inverse(inverse, 1 / coefficients.penalty(np.zeros(len(s) - inverse.n)))
    for rows, core in track(batches, "updating"):
        update_inverse(updated, rows, core, sign)
    residual = inverse_residual(updated, after, squared_column_norms(after), coefficients.penalty(s))
    if residual < TOLERANCE[updated.dtype]:
        return updated
    problem = f"The updated inverse has residuals of {residual:.2g}. Fitting again."
    warnings.warn(problem, PrecisionWarning, stacklevel=5)
    return None


def update_batches(users: sp.csr_array, added_to_s: np.ndarray, slope: float) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """Yield what users add to S + diag(slope·s) as Bᵀ C B, in batches of few rows: (B, C).

    Without dropout B is the users themselves. With dropout the penalty changes too, and B selects the items they touched.
    `added_to_s` is what each of their entries adds to s.
    """
    start = 0
    while start < users.shape[0]:
        stop = min(start + ROWS_PER_UPDATE, users.shape[0])
        while slope and stop > start + 1 and len(np.unique(users[start:stop].indices)) > ROWS_PER_UPDATE:
            stop = start + (stop - start) // 2
        batch, added, start = users[start:stop], added_to_s[users.indptr[start] : users.indptr[stop]], stop
        if not slope:
            yield batch, np.eye(batch.shape[0])
            continue
        items = np.unique(batch.indices)
        dense = batch[:, items].toarray().astype(np.float64)
        core = dense.T @ dense
        core[np.diag_indices(len(items))] += slope * np.bincount(np.searchsorted(items, batch.indices), added, len(items))
        yield csr_from_sorted(np.arange(len(items)), items, np.ones(len(items)), (len(items), users.shape[1])), core
