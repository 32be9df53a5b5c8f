"""L3AE: EASE whose weights are shrunk towards a similarity of features instead of towards 0   (Moon et al. 2025).

The paper's second phase, with S = XᵀX and C the similarity of features (models/feature_similarity.py, its first phase), is

    min ‖X − XB‖² + λ_X·‖B‖² + λ_KD·‖B − C‖²  with  diag(B) = 0.

The two penalties are one, up to a constant: l2·‖B − θC‖² with l2 = λ_X + λ_KD and θ = λ_KD / l2. With P = (S + l2·I)⁻¹, setting
the gradient to 0 with multipliers for the diagonal gives

    B = I + θ·l2·P C − P diag(γ),   γ_j = (1 + θ·l2·(PC)_jj) / P_jj.

C = U Vᵀ with thin U and V, up to its diagonal, which cancels. So P C costs n²·d operations instead of n³, and B is not formed:

    B = I − P diag(1/P_jj + θ·E_j·V_j/P_jj) + θ·E Vᵀ,   E = l2·P U.

P does not depend on θ, so that a search tries all values of it with one inverse. θ = 0 is EASE.

An item that nobody has touched has zeros in S: P is padded by 1/l2, C by its features, and nothing is inverted again. As for
CEASE, the column of an item c solves A_{−c} b = S_c + θ·l2·U V_c without row c; each feature k adds V_ck times
θ·l2·(y U)_k, where y = x·A_{−c}⁻¹.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe, Recipe
from gramian.core.updates import RowChange
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.woodbury import pad_inverse
from gramian.models.autoencoders import EASE
from gramian.models.feature_similarity import FeatureSimilarity, feature_similarity_bytes
from gramian.models.parameters import feature_l2_param, l2_param
from gramian.models.scorers import InverseWeights, LowRankWeights, ScorerSum
from gramian.validation import is_number


class PriorTerms(NamedTuple):
    """B as a sum of two terms: EASE, and prior_weight times what the prior adds."""

    inverse: Symmetric  # P
    encoder: np.ndarray  # E = l2·P U
    decoder: np.ndarray  # V
    shift: np.ndarray  # E_j·V_j / P_jj, which is added to the factor 1/P_jj of EASE

    @staticmethod
    def of(inverse: Symmetric, similarity: FeatureSimilarity, l2: float) -> PriorTerms:
        """Compute what all values of prior_weight share from P and the similarity."""
        encoder = l2 * (inverse @ similarity.encoder.astype(inverse.dtype)).astype(np.float64)
        shift = np.einsum("ik,ik->i", encoder, similarity.decoder) / inverse.diagonal()
        return PriorTerms(inverse, encoder, similarity.decoder, shift)

    def combine(self, prior_weight: float) -> ScorerSum:
        """Return the weights B."""
        factor = 1 / self.inverse.diagonal() + prior_weight * self.shift
        weights = InverseWeights(self.inverse, factor, np.ones(self.inverse.n))
        return ScorerSum([weights, LowRankWeights(prior_weight * self.encoder, self.decoder)], [1, 1])

    def separate(self) -> tuple[InverseWeights, ScorerSum]:
        """Return both terms, which all values of prior_weight share."""
        ease = InverseWeights(self.inverse, 1 / self.inverse.diagonal(), np.ones(self.inverse.n))
        shift = InverseWeights(self.inverse, self.shift, np.zeros(self.inverse.n))
        return ease, ScorerSum([shift, LowRankWeights(self.encoder, self.decoder)], [1, 1])


@configurable
class L3AE(GramRecipe):
    """EASE with a prior from item features, such as embeddings of their texts   (Moon et al. 2025).

    min ‖X − XB‖² + l2·‖B − prior_weight·C‖²  with  diag(B) = 0, where C is EASE on the features
    """

    needs_features = True

    l2: float = l2_param()
    feature_l2: float = feature_l2_param(100.0)
    prior_weight: float = param(
        0.5, "how far the weights are shrunk towards those of the features; usually 0 to 1", at_least=0, free=True,
        tries=(0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2),
    )  # fmt: skip

    @staticmethod
    def from_paper(lam_x: float, lam_kd: float, lam_f: float = 100.0) -> L3AE:
        """Return the recipe in the parameters of the paper.

        Parameters
        ----------
        lam_x, lam_kd
            The penalties λ_X on the weights and λ_KD on their distance from the similarity of features.
        lam_f
            The penalty of the first phase.
        """
        if not (is_number(lam_x) and is_number(lam_kd) and lam_x >= 0 and lam_kd >= 0 and lam_x + lam_kd > 0):
            got = f"lam_x={lam_x!r}, lam_kd={lam_kd!r}"
            raise InvalidInput("penalties of at least 0, one of them above 0", got, "Pass lam_x=100, lam_kd=100, say")
        return L3AE(l2=lam_x + lam_kd, feature_l2=lam_f, prior_weight=lam_kd / (lam_x + lam_kd))

    def canonical(self) -> Recipe:
        return EASE(self.l2) if self.prior_weight == 0 or self.l2 == 0 else self

    def solve(self, gram: Gram, overwrite: bool) -> ScorerSum:
        return self.solve_prior(gram, overwrite).combine(self.prior_weight)

    def solve_terms(self, gram: Gram, overwrite: bool) -> tuple[InverseWeights, ScorerSum]:
        """Return the scorers that recipes with other values of prior_weight share; the model is their sum."""
        return self.solve_prior(gram, overwrite).separate()

    @property
    def term_weights(self) -> list[float]:
        """The weights of the scorers that `solve_terms` returns."""
        return [1, self.prior_weight]

    def solve_prior(self, gram: Gram, overwrite: bool) -> PriorTerms:
        """Invert, and compute what the prior adds."""
        features = self.require_features(gram.catalog)
        assert features is not None
        inverse = EASE(self.l2).solve(gram, overwrite).inverse
        return PriorTerms.of(inverse, FeatureSimilarity.of(features, self.feature_l2), self.l2)

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        n_features = 0 if events.catalog.features is None else events.catalog.features.n_features
        return super().fit_bytes(events, dtype) + feature_similarity_bytes(events.n_items, n_features)

    def update(self, scorer: ScorerSum, after: Interactions, change: RowChange) -> ScorerSum:
        """Update P as EASE does, and the prior's part from it."""
        features = self.require_features(after.catalog)
        assert features is not None
        updated = EASE(self.l2).update(ease_of(scorer), after, change)
        assert isinstance(updated, InverseWeights)
        similarity = FeatureSimilarity.of(features, self.feature_l2)
        return PriorTerms.of(updated.inverse, similarity, self.l2).combine(self.prior_weight)

    def add_items(self, scorer: ScorerSum, before: Features, after: Features) -> ScorerSum:
        """Pad P, and make the prior's part anew: n²·d operations."""
        untouched = EASE(self.l2).coefficients.penalty(np.zeros(len(after) - len(before)))
        inverse = pad_inverse(ease_of(scorer).inverse, 1 / untouched)
        return PriorTerms.of(inverse, FeatureSimilarity.of(after, self.feature_l2), self.l2).combine(self.prior_weight)

    def feature_contributions(
        self, scorer: ScorerSum, features: Features, history: np.ndarray, values: np.ndarray, item: int
    ) -> np.ndarray:
        """Return V_ck · θ·l2·(y U)_k for each feature k; l2·(y U) = x·E − (x·P)_c/P_cc · E_c."""
        weights, prior = scorer.scorers
        assert isinstance(weights, InverseWeights)
        assert isinstance(prior, LowRankWeights)
        others = np.where(history == item, 0, values).astype(np.float64)
        row = weights.inverse.row(item).astype(np.float64)
        projected = others @ prior.encoder[history] - (others @ row[history]) / row[item] * prior.encoder[item]
        return prior.decoder[item] * projected


def ease_of(scorer: ScorerSum) -> InverseWeights:
    """Return the term of a fitted L3AE that holds P."""
    weights = scorer.scorers[0]
    assert isinstance(weights, InverseWeights)
    return weights
