"""DAN: data-adaptive normalisation of a full-rank linear autoencoder by user degrees and item popularity   (Park et al. 2025).

With user degrees u, item counts s, p the dropout and q = 1 − p,

    P = (Xᵀ diag(u)^-2a X + diag(Λ))⁻¹,   Λ = (p/q)·s + l2,   a = user_power
    W = the weights of RDLAE from P and Λ, times (s_i/s_j)^b at each place (i, j),   b = item_power.

The paper's α is b, and its β is 2a. max_diagonal 0 is the paper's model on EASE, 1 the one on LAE, and between them on RLAE.
The paper's item normalisation divides X by powers of s on both sides of the regression; as in the authors' code, the penalty is
that of the unscaled problem, so that b only rescales rows and columns of W, and a search tries all values with one inverse.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.core.gram import Gram, GramPowers
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe, Recipe, retry_in_float64
from gramian.core.scorer import Scorer
from gramian.core.updates import RowChange
from gramian.data.interactions import Interactions
from gramian.linalg.coefficients import Coefficients
from gramian.linalg.inverse import invert
from gramian.linalg.inverse_by_users import by_users_bytes, invert_by_users, prefers_users
from gramian.linalg.sparse import normalise_rows, squared_column_norms
from gramian.linalg.symmetric import Symmetric
from gramian.models.autoencoders import RDLAE
from gramian.models.full_rank import add_penalty, update_for_users, weights_from_inverse, weights_residual
from gramian.models.parameters import dropout_param, l2_param, max_diagonal_param
from gramian.models.scorers import InverseWeights, ScorerSum


@configurable
class DAN(GramRecipe):
    """Linear autoencoder with data-adaptive normalisation, against popularity bias   (Park et al. 2025)."""

    needs_binary = True  # degrees are counts

    dropout: float = dropout_param()
    max_diagonal: float = max_diagonal_param(0.0)
    l2: float = l2_param()
    user_power: float = param(
        0.1,
        "power of a user's degree that rows are divided by; usually 0 to 0.5",
        at_least=0,
        below=1,
        tries=(0, 0.1, 0.25, 0.5),
    )
    item_power: float = param(
        0.1, "power of popularity that scores are divided by and histories multiplied by; usually 0 to 0.5", at_least=0,
        tries=(0, 0.1, 0.2, 0.3, 0.4, 0.5), free=True,
    )  # fmt: skip

    @property
    def gram_powers(self) -> GramPowers:
        return GramPowers(user_power=self.user_power)

    @property
    def coefficients(self) -> Coefficients:
        """Those of RDLAE, with item counts in place of the diagonal of the Gram."""
        return RDLAE(self.dropout, self.max_diagonal, self.l2).coefficients

    def canonical(self) -> Recipe:
        is_plain = self.user_power == self.item_power == 0
        return RDLAE(self.dropout, self.max_diagonal, self.l2).canonical() if is_plain else self

    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        if self.needs_dense_gram(events, dtype):
            return super().fit_scorer(events, dtype)
        self.require_binary(events.is_binary)
        rows, penalty = self.normalised_rows(events, dtype), self.coefficients.penalty(events.popularity.astype(np.float64))
        inverse = invert_by_users(rows, squared_column_norms(rows), penalty, dtype)
        return self.scorer_from_inverse(inverse, events.popularity)

    def needs_dense_gram(self, events: Interactions, dtype: type) -> bool:
        rows, penalty = self.normalised_rows(events, dtype), self.coefficients.penalty(events.popularity.astype(np.float64))
        return not prefers_users(rows, squared_column_norms(rows), penalty, dtype)

    def normalised_rows(self, events: Interactions, dtype: type) -> sp.csr_array:
        """Return diag(u)^-a · X."""
        return normalise_rows(events.matrix, self.user_power, dtype)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        if self.needs_dense_gram(events, dtype):
            return super().fit_bytes(events, dtype)
        return by_users_bytes(events.matrix, dtype) + np.dtype(dtype).itemsize * events.n_interactions

    def solve(self, gram: Gram, overwrite: bool) -> ScorerSum:
        return self.scorer_from_inverse(self.invert_gram(gram, overwrite), gram.catalog.popularity)

    def invert_gram(self, gram: Gram, overwrite: bool) -> Symmetric:
        """Return P, which recipes that differ only in item_power and max_diagonal share."""
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        add_penalty(matrix, self.coefficients, gram.catalog.popularity.astype(np.float64))
        invert(matrix)
        return matrix

    def scorer_from_inverse(self, inverse: Symmetric, popularity: np.ndarray) -> ScorerSum:
        """Return the model's weights from P, rescaled by popularity."""
        weights = weights_from_inverse(inverse, popularity.astype(np.float64), self.coefficients)
        scale = np.maximum(popularity, 1.0) ** self.item_power
        return ScorerSum([weights], [1], item_scale=1 / scale, history_scale=scale)

    def update(self, scorer: ScorerSum, after: Interactions, change: RowChange) -> ScorerSum:
        """Update the inverse by Woodbury's identity, or fit again where that is cheaper or more accurate."""
        self.require_binary(after.is_binary)
        (weights,) = scorer.scorers
        assert isinstance(weights, InverseWeights)
        dtype, popularity = weights.inverse.dtype.type, after.popularity
        rows, changed = (normalise_rows(x, self.user_power, dtype) for x in (after.matrix, change.rows))
        s, added = popularity.astype(np.float64), np.ones(changed.nnz)
        normalised = RowChange(changed, change.signs)
        updated = update_for_users(weights.inverse, self.coefficients, s, rows, normalised, added)
        if updated is None:
            return retry_in_float64(lambda dtype: self.fit_scorer(after, dtype), dtype)  # type: ignore[return-value]
        return self.scorer_from_inverse(updated.inverse, popularity)

    def residual(self, scorer: ScorerSum, histories: Interactions) -> float:
        """Return the residual of the inverse, as for other full-rank autoencoders."""
        (weights,) = scorer.scorers
        assert isinstance(weights, InverseWeights)
        s = histories.popularity.astype(np.float64)
        expected = weights_from_inverse(weights.inverse, s, self.coefficients)
        rows = normalise_rows(histories.matrix, self.user_power, weights.inverse.dtype.type)
        return weights_residual(weights, expected, rows, s, self)
