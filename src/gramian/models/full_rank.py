"""How full-rank linear autoencoders are fitted, resumed and updated: one positive definite inverse for all of them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from gramian.core.gram import Gram
from gramian.core.recipe import GramRecipe, Recipe, retry_in_float64
from gramian.core.scorer import Scorer
from gramian.core.updates import RowChange
from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate, PrecisionWarning, RefitWarning
from gramian.linalg.coefficients import Coefficients
from gramian.linalg.gram import write_gram
from gramian.linalg.influence import ItemScore
from gramian.linalg.inverse import TOLERANCE, check_inverse, inverse_residual, invert, pivot_size, scale_and_probe, sweep_blocks
from gramian.linalg.inverse_by_users import by_users_bytes, invert_by_users, prefers_users
from gramian.linalg.resumable import ResumableSweep, clear_scratch, scratch_file_bytes
from gramian.linalg.sparse import csr_from_sorted, squared_column_norms
from gramian.linalg.symmetric import BLOCK_WIDTH, Symmetric
from gramian.linalg.updated import MAX_DEFERRED_RANK, UpdatedSymmetric
from gramian.linalg.woodbury import defer_update, pad_inverse, update_inverse
from gramian.models.scorers import InverseWeights
from gramian.progress import track

ROWS_PER_UPDATE = 512  # rank of one Woodbury update
REFIT_SHARE = 0.5  # an update of higher rank than this share of the items costs more than a new inverse


class HasCoefficients(Protocol):
    """A recipe that is one `Coefficients` object."""

    @property
    def coefficients(self) -> Coefficients: ...


class UpdatedInverse(NamedTuple):
    """An inverse after an update, and its residual."""

    inverse: Symmetric
    residual: float


class LinearAutoencoder(GramRecipe):
    """A model that is one inverse and one `Coefficients` object."""

    takes_dislikes = True  # a signed X has a Gram matrix like any other

    l2: float

    @property
    @abstractmethod
    def coefficients(self) -> Coefficients:
        """The ten numbers that, with the Gram matrix, determine the model."""

    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        if self.needs_dense_gram(events, dtype):
            return super().fit_scorer(events, dtype)
        self.require_binary(events.is_binary)
        s = squared_column_norms(events.matrix)
        inverse = invert_by_users(events.matrix, s, self.coefficients.penalty(s), dtype)
        return weights_from_inverse(inverse, s, self.coefficients)

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        s = squared_column_norms(events.matrix)
        return not prefers_users(events.matrix, s, self.coefficients.penalty(s), dtype)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        if self.needs_dense_gram(events, dtype):
            return super().fit_bytes(events, dtype)
        return by_users_bytes(events.matrix, dtype)

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

    def update(self, scorer: InverseWeights, after: Interactions, change: RowChange) -> Scorer:
        """Update the inverse by Woodbury's identity, or fit again where that is cheaper or more accurate."""
        self.require_binary(after.is_binary)
        s = squared_column_norms(after.matrix)
        squares = change.rows.data.astype(np.float64) ** 2
        updated = update_for_users(scorer.inverse, self.coefficients, s, after.matrix, change, squares)
        if updated is None:
            return retry_in_float64(lambda dtype: self.fit_scorer(after, dtype), scorer.inverse.dtype.type)
        weights = weights_from_inverse(updated.inverse, s, self.coefficients)
        weights.measured = after.matrix, updated.residual
        return weights

    def fade(self, scorer: InverseWeights, after: Interactions, factor: float) -> tuple[Recipe, Scorer]:
        """Divide P by factor², since S, s and the penalty are all multiplied by it."""
        self.require_binary(after.is_binary)
        faded = self.set_params(l2=self.l2 * factor**2)
        inverse = scorer.inverse.copy()
        inverse.buffer /= inverse.dtype.type(factor**2)
        return faded, weights_from_inverse(inverse, squared_column_norms(after.matrix), faded.coefficients)

    def residual(self, scorer: InverseWeights, histories: Interactions) -> float:
        """Return the largest entry of |P(Av) − v| for a few random v, scaled to a unit diagonal of A.

        The update that made the scorer has measured it, if it was to these interactions.
        """
        if scorer.measured is not None and scorer.measured[0] is histories.matrix:
            return scorer.measured[1]
        s = squared_column_norms(histories.matrix)
        return weights_residual(scorer, weights_from_inverse(scorer.inverse, s, self.coefficients), histories.matrix, s, self)

    def item_score(
        self, scorer: InverseWeights, histories: Interactions, history: np.ndarray, values: np.ndarray, item: int
    ) -> ItemScore:
        """Return the score of an item, from which training users can be left out."""
        s = squared_column_norms(histories.matrix)
        return ItemScore.of(scorer.inverse, self.coefficients, s, history, values, item)


def weights_residual(
    weights: InverseWeights, expected: InverseWeights, x: sp.csr_array, s: np.ndarray, recipe: HasCoefficients
) -> float:
    """Return the residual of the inverse of XᵀX + diag(Λ), Λ made of s; inf if factor or diagonal are not those of P."""
    pairs = ((weights.factor, expected.factor), (weights.diagonal, expected.diagonal))
    if not all(np.allclose(found, right, rtol=1e-3, atol=1e-6) for found, right in pairs):
        return float("inf")
    return inverse_residual(weights.inverse, x, squared_column_norms(x), recipe.coefficients.penalty(s))


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
    change: RowChange,
    added_to_s: np.ndarray,
) -> UpdatedInverse | None:
    """Update the inverse of XᵀX + diag(slope·s + ridge) by Woodbury's identity; None where a new fit is cheaper or needed.

    Parameters
    ----------
    inverse
        The inverse before the change, which stays as it is. A change of an `UpdatedSymmetric` is deferred.
    coefficients, s
        The penalty, and its s after the change.
    after, change
        The rows of X after the change, and those that were added and removed.
    added_to_s
        What each stored entry of the changed rows counts in s, without the sign of its row.
    """
    added_to_s = added_to_s * change.sign_of_entry
    before = s - np.bincount(change.rows.indices, added_to_s, len(s))
    is_definite = all((d + coefficients.slope * d + coefficients.ridge).min() > 0 for d in (s, before))
    batches = list(update_batches(change, added_to_s, coefficients.slope))
    rank = sum(len(core) for _, core in batches)
    if not is_definite or rank > REFIT_SHARE * len(s):
        reason = f"a change of rank {rank:,} for {len(s):,} items" if is_definite else "items without interactions and penalty"
        warnings.warn(f"The update is {reason}. Fitting again.", RefitWarning, stacklevel=5)
        return None
    if isinstance(inverse, UpdatedSymmetric) and inverse.n == len(s) and inverse.rank + rank <= MAX_DEFERRED_RANK:
        for rows, core in batches:
            inverse = defer_update(inverse, rows, core)
        updated: Symmetric = inverse
    else:
        updated = pad_inverse(inverse, 1 / coefficients.penalty(np.zeros(len(s) - inverse.n)))
        for rows, core in track(batches, "updating"):
            update_inverse(updated, rows, core)
    residual = inverse_residual(updated, after, squared_column_norms(after), coefficients.penalty(s))
    if residual < TOLERANCE[updated.dtype]:
        return UpdatedInverse(updated, residual)
    problem = f"The updated inverse has residuals of {residual:.2g}. Fitting again."
    warnings.warn(problem, PrecisionWarning, stacklevel=5)
    return None


def update_batches(change: RowChange, added_to_s: np.ndarray, slope: float) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """Yield what a change adds to S + diag(slope·s) as Bᵀ C B, in batches of few rows: (B, C).

    Without dropout B is the changed rows themselves, and C their signs. With dropout the diagonal changes too. B then either
    selects the items of these rows, or is the rows followed by the items whose s changes: whichever is smaller. The second is
    for users with long histories and few new events. `added_to_s` is what each entry adds to s.
    """
    start, n = 0, change.rows.shape[0]
    while start < n:
        stop = min(start + ROWS_PER_UPDATE, n)
        while True:
            rows, signs = change.rows[start:stop], change.signs[start:stop]
            added = np.bincount(rows.indices, added_to_s[change.rows.indptr[start] : change.rows.indptr[stop]], rows.shape[1])
            touched, moved = np.unique(rows.indices), np.flatnonzero(slope * added)
            if min(len(touched), len(signs) + len(moved)) <= ROWS_PER_UPDATE or not slope or stop == start + 1:
                break
            stop = start + (stop - start) // 2
        start = stop
        if not slope or len(signs) + len(moved) < len(touched):
            yield (
                sp.csr_array(sp.vstack([rows, select_columns_of(moved, rows)])),
                np.diag(np.append(signs, slope * added[moved])),
            )
            continue
        dense = rows[:, touched].toarray().astype(np.float64)
        yield select_columns_of(touched, rows), dense.T @ (signs[:, None] * dense) + np.diag(slope * added[touched])


def select_columns_of(columns: np.ndarray, x: sp.csr_array) -> sp.csr_array:
    """Return the rows of the identity that select these columns of X."""
    return csr_from_sorted(np.arange(len(columns)), columns, np.ones(len(columns)), (len(columns), x.shape[1]))
