"""FeatureIALS: iALS whose item vectors have a prior that is linear in the features of the items.

With the loss of IALS, F the items × features matrix, f_i its rows, and λ_i the penalty of IALS on the vector of item i,

    min Σ_pos (1 − p_u·q_i)² + α Σ_ui (p_u·q_i)² + Σ_u λ_u ‖p_u‖² + Σ_i λ_i ‖q_i − Gᵀf_i‖² + feature_l2·‖G‖².

Each epoch minimises it exactly in G, then in the users, then in the items:

    G    (Fᵀ diag(λ) F + feature_l2·I)⁻¹ Fᵀ diag(λ) Q, a ridge regression of the item vectors on the features;
    q_i  the row of iALS with λ_i Gᵀf_i added to the right side. The solvers of linalg/row_solvers.py take it as 2K more
         columns, the unit vectors and their negatives, which have no weight and the entries of ±λ_i Gᵀf_i above 0 as targets.

An item without interactions takes no part in the loss: that nobody could touch it says nothing about it. Its vector is Gᵀf_i,
the mean of the prior, and each of its features adds f_ik·(G_k·p_u) to the score. G = 0, as for a very large feature_l2, is
IALS. The idea is that of regression-based latent factor models (Agarwal and Chen 2009); irspack has it for iALS.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from gramian.core.epochs import TrainingState
from gramian.core.params import configurable
from gramian.core.scorer import SavedScorer
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.errors import Inaccurate
from gramian.io.damage import require_content
from gramian.linalg.row_solvers import EXTRA_TARGET, EXTRA_WEIGHT, RIDGE, UNOBSERVED_WEIGHT, FixedSide, RowProblems
from gramian.linalg.sparse import row_sums
from gramian.models.als import (
    AlternatingRecipe,
    UserSums,
    als_l2_param,
    ials_item_ridges,
    ials_row_loss,
    l2_exponent_param,
    solver_param,
    unobserved_weight_param,
    weighted_gram,
)
from gramian.models.factors import Factors, RowLoss
from gramian.models.parameters import epochs_param, feature_l2_param, rank_param, seed_param
from gramian.models.solvers import Solver


class FeatureFactors(Factors):
    """`Factors` with a vector for each feature, whose sum over an item's features is the prior mean of its vector.

    Parameters
    ----------
    fixed, loss
        As in `Factors`.
    feature_vectors
        G, features × rank, in the basis of the item vectors.
    """

    name = "feature-factors"

    def __init__(self, fixed: FixedSide, loss: RowLoss, feature_vectors: np.ndarray) -> None:
        super().__init__(fixed, loss)
        self.feature_vectors = feature_vectors.astype(fixed.factors.dtype)

    def save(self) -> SavedScorer:
        facts, arrays = super().save()
        return facts, arrays | {"feature_vectors": self.feature_vectors}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> FeatureFactors:
        vectors = arrays["feature_vectors"]
        plain = Factors.load(facts, {name: array for name, array in arrays.items() if name != "feature_vectors"})
        is_matching = vectors.ndim == 2 and vectors.shape[1] == plain.fixed.factors.shape[1]
        require_content(is_matching and vectors.dtype == plain.fixed.factors.dtype, "a vector for every feature")
        return FeatureFactors(plain.fixed, plain.loss, vectors)


@configurable
class FeatureIALS(AlternatingRecipe):
    """iALS with a prior on item vectors that is linear in item features, for items with few or no interactions.

    min the loss of IALS + Σ_i λ_i ‖q_i − Gᵀf_i‖² + feature_l2·‖G‖²
    """

    needs_features = True

    rank: int = rank_param()
    unobserved_weight: float = unobserved_weight_param()
    l2: float = als_l2_param()
    l2_exponent: float = l2_exponent_param()
    feature_l2: float = feature_l2_param(10.0)
    n_epochs: int = epochs_param()
    solver: Solver = solver_param()
    seed: int = seed_param()

    refine = None  # type: ignore[assignment]  # its item vectors have a prior, which is not that of `AlternatingRecipe`

    def row_loss(self, n_items: int) -> RowLoss:
        return ials_row_loss(n_items, self.unobserved_weight, self.l2, self.l2_exponent)

    def item_ridges(self, sums: UserSums) -> np.ndarray:
        return ials_item_ridges(sums, self.unobserved_weight, self.l2, self.l2_exponent)

    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        users, items = state.users, state.items
        del state
        x, dtype, n_users = events.matrix, items.dtype, events.n_users
        is_touched = events.popularity > 0
        loss, sizes, sums = self.row_loss(int(is_touched.sum())), row_sums(x), UserSums.of(x)
        exact_coefficients = loss.row_coefficients(sizes)
        coefficients = exact_coefficients.astype(dtype)
        user_rows = RowProblems(x, coefficients, np.ones((events.n_items, 2), dtype))
        item_coefficients = self.item_coefficients(sums, dtype)
        item_coefficients[~is_touched, UNOBSERVED_WEIGHT] = 0
        ridges = item_coefficients[:, RIDGE].astype(np.float64)
        regress = self.feature_regression(events, ridges)
        item_rows, prior_at = self.item_problems(x, item_coefficients, coefficients, dtype)
        loss_at_zero = float(loss.loss_at_zero.at(sizes[sizes > 0]).sum())
        unit_vectors = np.concatenate([np.eye(self.rank, dtype=dtype), -np.eye(self.rank, dtype=dtype)])
        while True:
            fixed, basis = FixedSide.of(items, touched_gram(items, is_touched), np.zeros(self.rank))
            items, users = fixed.factors, self.half_step(user_rows, fixed, users, basis)[0]
            feature_vectors, means = regress(items)
            pull = ridges[:, None] * means
            item_rows.x.data[prior_at] = np.maximum(np.hstack([pull, -pull]), 0)
            gram = weighted_gram(users, coefficients[:, UNOBSERVED_WEIGHT])
            fixed, basis = FixedSide.of(np.concatenate([users, unit_vectors]), gram, np.zeros(self.rank))
            users, (items, values) = fixed.factors[:n_users], self.half_step(item_rows, fixed, items, basis)
            penalty = float(exact_coefficients[:, RIDGE] @ np.einsum("uk,uk->u", users, users, dtype=np.float64))
            penalty += float(ridges @ (means**2).sum(axis=1)) + self.feature_l2 * float((feature_vectors**2).sum())
            yield TrainingState.of(users, items, float(values.sum()) + penalty + loss_at_zero)

    def feature_regression(
        self, events: Interactions, ridges: np.ndarray
    ) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Return a function from item vectors to G and F G. Items without interactions do not count."""
        features = self.require_features(events.catalog)
        assert features is not None
        f = features.matrix.astype(np.float64)
        weighted = sp.csr_array(f.multiply(np.where(events.popularity > 0, ridges, 0)[:, None])).T.tocsr()
        system = (weighted @ f).toarray()
        system[np.diag_indices(len(system))] += self.feature_l2
        if not np.isfinite(system).all():
            raise Inaccurate("finite penalties of the items", "an overflow", "Lower l2 or l2_exponent, or rescale the weights")
        factor = cho_factor(system, lower=True)

        def regress(items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            vectors = cho_solve(factor, weighted @ items.astype(np.float64))
            return vectors, f @ vectors

        return regress

    def item_problems(
        self, x: sp.csr_array, by_row: np.ndarray, user_coefficients: np.ndarray, dtype: np.dtype
    ) -> tuple[RowProblems, np.ndarray]:
        """Return the rows of the items with 2·rank more columns each, and where the values of these are stored."""
        n_users, n_items = x.shape
        n_more = 2 * self.rank
        transposed = x.T.tocsr()
        indptr = np.concatenate([[0], np.cumsum(np.diff(transposed.indptr) + n_more)])
        prior_at = indptr[1:, None] - n_more + np.arange(n_more)
        is_prior = np.zeros(indptr[-1], np.bool_)
        is_prior[prior_at] = True
        indices, data = np.empty(len(is_prior), x.indices.dtype), np.empty(len(is_prior), dtype)
        indices[~is_prior], data[~is_prior] = transposed.indices, transposed.data
        indices[prior_at] = n_users + np.arange(n_more)
        rows = sp.csr_array((data, indices, indptr.astype(x.indptr.dtype)), (n_items, n_users + n_more))
        no_weight = np.tile(np.array([0, 1], dtype), (n_more, 1))
        by_column = np.concatenate([user_coefficients[:, [EXTRA_WEIGHT, EXTRA_TARGET]], no_weight])
        return RowProblems(rows, by_row, by_column), prior_at

    def to_scorer(self, events: Interactions, state: TrainingState) -> FeatureFactors:
        is_touched = events.popularity > 0
        fixed, _ = FixedSide.of(state.items, touched_gram(state.items, is_touched), np.zeros(self.rank))
        ridges = self.item_coefficients(UserSums.of(events.matrix), np.dtype(np.float64))[:, RIDGE]
        vectors, means = self.feature_regression(events, ridges)(fixed.factors)
        fixed.factors[~is_touched] = means[~is_touched]
        return FeatureFactors(fixed, self.row_loss(int(is_touched.sum())), vectors)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n_features = 0 if events.catalog.features is None else events.catalog.features.n_features
        prior = events.n_items * self.rank * (8 * 8 + 2 * np.dtype(dtype).itemsize)  # the wider rows, and where they are
        return super().fit_bytes(events, dtype) + prior + 16 * n_features**2

    def add_items(self, scorer: FeatureFactors, before: Features, after: Features) -> FeatureFactors:
        """Give each new item the vector that its features have."""
        added = after.matrix[len(before) :] @ scorer.feature_vectors
        factors = np.concatenate([scorer.fixed.factors, added.astype(scorer.fixed.factors.dtype)])
        fixed = FixedSide(**(asdict(scorer.fixed) | {"factors": factors}))
        return FeatureFactors(fixed, scorer.loss, scorer.feature_vectors)

    def feature_contributions(
        self, scorer: FeatureFactors, features: Features, history: np.ndarray, values: np.ndarray, item: int
    ) -> np.ndarray:
        """Return f_ik·(G_k·p_u) for each feature k, with the vector p_u of the history."""
        row = sp.csr_array((values, history, [0, len(history)]), (1, scorer.n_items))
        (user,) = scorer.user_vectors(row)
        return features.matrix[[item]].toarray()[0] * (scorer.feature_vectors.astype(np.float64) @ user)


def touched_gram(items: np.ndarray, is_touched: np.ndarray) -> np.ndarray:
    """Return QᵀQ over the items that somebody has touched."""
    touched = items[is_touched]
    return touched.T @ touched
