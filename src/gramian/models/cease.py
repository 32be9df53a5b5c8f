"""CEASE: collective EASE, in which features are further users who touched the items that have them   (Jeunen et al. 2020).

With F_k the items × features matrix of the k-th block of features and α_k its weight,

    A = XᵀX + Σ_k α_k F_k F_kᵀ + l2·I,   P = A⁻¹,   W_ij = −P_ij / P_jj off the diagonal and 0 on it,

which is EASE on X with the rows √α_k F_kᵀ below it. The sum costs n²·d operations for d features, beside the n³ of the inverse.

A new item that nobody has touched borders A with b = Σ_k α_k F_k f_k, for its features f, so that P is bordered too
(linalg/woodbury.py). Its column of W is P·b: every feature adds α_k f_k times a column of P F_k.

For any item c, the column of W solves A_{−c} w = (XᵀX)_c + Σ_k α_k F_k f_k without row c. The second term is what features add
to a score: with y = x·P − (x·P)_c/P_cc · P_c, which is x·A_{−c}⁻¹, each feature adds α_k f_k · (y F_k).
"""

from __future__ import annotations

import numpy as np

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe, Recipe, retry_in_float64
from gramian.core.updates import RowChange
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.linalg.coefficients import Coefficients
from gramian.linalg.gram import add_outer_product
from gramian.linalg.inverse import invert
from gramian.linalg.sparse import squared_column_norms, stack_rows
from gramian.linalg.woodbury import border_inverse
from gramian.models.autoencoders import EASE
from gramian.models.full_rank import add_penalty, update_for_users, weights_from_inverse
from gramian.models.parameters import l2_param
from gramian.models.scorers import InverseWeights


@configurable
class CEASE(GramRecipe):
    """Collective EASE: item features count as further users   (Jeunen et al. 2020).

    min ‖X − XW‖² + Σ_k feature_weight_k·‖F_kᵀ − F_kᵀW‖² + l2·‖W‖²  with  diag(W) = 0
    """

    needs_features = True

    l2: float = l2_param()
    feature_weight: float | tuple[float, ...] = param(
        10.0, "weight α of the features, on the scale of item popularity; usually 1 to 300", at_least=0,
        tries=(0, 1, 3, 10, 30, 100, 300), one_per="block of features",
    )  # fmt: skip

    @property
    def coefficients(self) -> Coefficients:
        """Those of EASE."""
        return EASE(self.l2).coefficients

    def canonical(self) -> Recipe:
        return EASE(self.l2) if not np.any(self.feature_weight) else self

    def solve(self, gram: Gram, overwrite: bool) -> InverseWeights:
        features = self.require_features(gram.catalog)
        assert features is not None
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        add_outer_product(matrix, features.scaled(self.feature_weight, matrix.dtype.type))
        s = add_penalty(matrix, self.coefficients)
        invert(matrix)
        return weights_from_inverse(matrix, s, self.coefficients)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n_features = 0 if events.catalog.features is None else events.catalog.features.n_features
        return super().fit_bytes(events, dtype) + 2 * events.n_items * n_features * np.dtype(dtype).itemsize

    def update(self, scorer: InverseWeights, after: Interactions, change: RowChange) -> InverseWeights:
        """Update the inverse by Woodbury's identity, or fit again where that is cheaper or more accurate."""
        features = self.require_features(after.catalog)
        assert features is not None
        if features.n_features and len(features) > scorer.n_items:  # new items have features, which border the inverse
            scorer = self.add_items(scorer, features.take(features.items[: scorer.n_items]), features)
        stacked = stack_rows(after.matrix, features.scaled(self.feature_weight).T)
        s, squares = squared_column_norms(stacked), change.rows.data.astype(np.float64) ** 2
        updated = update_for_users(scorer.inverse, self.coefficients, s, stacked, change, squares)
        if updated is None:
            return retry_in_float64(lambda dtype: self.fit_scorer(after, dtype), scorer.inverse.dtype.type)  # type: ignore[return-value]
        return weights_from_inverse(updated.inverse, s, self.coefficients)

    def add_items(self, scorer: InverseWeights, before: Features, after: Features) -> InverseWeights:
        """Border the inverse with the features of the new items."""
        f = after.scaled(self.feature_weight, np.float64)
        known, new = f[: len(before)], f[len(before) :]
        s = np.einsum("ik,ik->i", new, new)
        corner = new @ new.T + np.diag(self.coefficients.penalty(s))
        inverse = border_inverse(scorer.inverse, known @ new.T, corner)
        return weights_from_inverse(inverse, np.zeros(inverse.n), self.coefficients)  # EASE's weights do not depend on s

    def feature_contributions(
        self, scorer: InverseWeights, features: Features, history: np.ndarray, values: np.ndarray, item: int
    ) -> np.ndarray:
        """Return α_k f_k · (y F_k) for each feature, as in the module header."""
        f = features.scaled(self.feature_weight)
        return f[item] * (project_history(scorer, history, values, item) @ f)


def project_history(scorer: InverseWeights, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
    """Return x·A_{−c}⁻¹ for the item c: the history x, without c, times the inverse of A without row and column c."""
    column = scorer.inverse.row(item).astype(np.float64)
    product = np.zeros(scorer.n_items)
    for at, value in zip(history, values, strict=True):
        if at != item:
            product += value * scorer.inverse.row(at)
    return product - product[item] / column[item] * column
