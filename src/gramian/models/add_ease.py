"""AddEASE: the sum of EASE on interactions and EASE on features   (Jeunen et al. 2020).

    W = (1 − feature_share)·W_X + feature_share·C,   W_X = EASE on X,   C = EASE on features (models/feature_similarity.py)

C is a product of two thin arrays. An item that nobody has touched has no weights in W_X, and its column of C comes from its
features: Σ_k U_jk V_ck for the history item j, one summand for each feature k. Both parts know new items without a new inverse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe, Recipe
from gramian.core.scorer import Scorer
from gramian.core.updates import RowChange
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.linalg.woodbury import pad_inverse
from gramian.models.autoencoders import EASE
from gramian.models.feature_similarity import FeatureSimilarity, feature_similarity_bytes
from gramian.models.full_rank import weights_from_inverse
from gramian.models.parameters import feature_l2_param, l2_param
from gramian.models.scorers import InverseWeights, LowRankWeights, ScorerSum, SparseWeights


@configurable
class AddEASE(GramRecipe):
    """A weighted sum of EASE on interactions and EASE on features, fitted one by one   (Jeunen et al. 2020)."""

    needs_features = True

    l2: float = l2_param()
    feature_l2: float = feature_l2_param(100.0)
    feature_share: float = param(
        0.3, "share of the model of features", at_least=0, at_most=1, free=True,
        tries=(0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    )  # fmt: skip

    def canonical(self) -> Recipe:
        return EASE(self.l2) if self.feature_share == 0 else self

    def solve(self, gram: Gram, overwrite: bool) -> ScorerSum:
        return self.combine(self.solve_terms(gram, overwrite))

    def solve_terms(self, gram: Gram, overwrite: bool) -> list[Scorer]:
        """Return the scorers that recipes with other values of feature_share share; the model is their sum."""
        features = self.require_features(gram.catalog)
        assert features is not None
        return [EASE(self.l2).solve(gram, overwrite), *self.feature_scorers(features)]

    @property
    def term_weights(self) -> list[float]:
        """The weights of the scorers that `solve_terms` returns."""
        return [1 - self.feature_share, self.feature_share, self.feature_share]

    def feature_scorers(self, features: Features) -> tuple[LowRankWeights, SparseWeights]:
        """Return the model of features: a product of thin arrays, and what makes its diagonal 0."""
        similarity = FeatureSimilarity.of(features, self.feature_l2)
        diagonal = sp.csr_array(sp.diags_array(-similarity.diagonal.astype(np.float32), format="csr"))
        return LowRankWeights(similarity.encoder, similarity.decoder), SparseWeights(diagonal)

    def combine(self, scorers: Sequence[Scorer]) -> ScorerSum:
        """Return the sum of the three scorers."""
        return ScorerSum(scorers, self.term_weights)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n_features = 0 if events.catalog.features is None else events.catalog.features.n_features
        return super().fit_bytes(events, dtype) + feature_similarity_bytes(events.n_items, n_features)

    def update(self, scorer: ScorerSum, after: Interactions, change: RowChange) -> ScorerSum:
        """Update the model of interactions as EASE does; new items change the model of features."""
        features = self.require_features(after.catalog)
        assert features is not None
        weights, *of_features = scorer.scorers
        assert isinstance(weights, InverseWeights)
        updated = EASE(self.l2).update(weights, after, change)
        has_new_items = updated.n_items > weights.n_items
        return self.combine([updated, *(self.feature_scorers(features) if has_new_items else of_features)])

    def add_items(self, scorer: ScorerSum, before: Features, after: Features) -> ScorerSum:
        """Pad the model of interactions, and make that of features anew: d × d algebra."""
        weights = scorer.scorers[0]
        assert isinstance(weights, InverseWeights)
        coefficients = EASE(self.l2).coefficients
        zeros = np.zeros(len(after))
        inverse = pad_inverse(weights.inverse, 1 / coefficients.penalty(zeros[len(before) :]))
        return self.combine([weights_from_inverse(inverse, zeros, coefficients), *self.feature_scorers(after)])

    def feature_contributions(
        self, scorer: ScorerSum, features: Features, history: np.ndarray, values: np.ndarray, item: int
    ) -> np.ndarray:
        """Return feature_share · Σ_j x_j U_jk V_ck for each feature k, without the item itself."""
        similarity = scorer.scorers[1]
        assert isinstance(similarity, LowRankWeights)
        others = np.where(history == item, 0, values).astype(np.float64)
        return self.feature_share * (others @ similarity.encoder[history]) * similarity.decoder[item]
