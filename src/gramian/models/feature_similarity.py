"""The similarity of items by their features alone: EASE with features in the place of users.

With F the items × features matrix and the columns of F as users who touched the items, EASE is

    P = (F Fᵀ + l2·I)⁻¹,   C_ij = −P_ij / P_jj off the diagonal and 0 on it.

For d ≪ n features no n × n inverse is needed. By Woodbury's identity, with M = (FᵀF + l2·I)⁻¹, U = F M and h_j = U_j·F_j,

    P = (I − U Fᵀ) / l2,   C = U Vᵀ − diag(h/(1 − h)),   V_j = F_j / (1 − h_j),

so that C is d × d algebra and two thin arrays. A new item is one more row of F: M changes, and nothing else has to be inverted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from gramian.data.features import Features


class FeatureSimilarity(NamedTuple):
    """C = encoder · decoderᵀ − diag(diagonal), in float64."""

    encoder: np.ndarray  # U
    decoder: np.ndarray  # V
    diagonal: np.ndarray  # h / (1 − h)

    @staticmethod
    def of(features: Features, l2: float) -> FeatureSimilarity:
        """Regress every item's features on those of all other items."""
        f = features.scaled(1, np.float64)
        system = f.T @ f
        system[np.diag_indices(len(system))] += l2
        encoder = cho_solve(cho_factor(system, lower=True), f.T).T
        h = np.einsum("ik,ik->i", encoder, f)
        return FeatureSimilarity(encoder, f / (1 - h)[:, None], h / (1 - h))


def feature_similarity_bytes(n_items: int, n_features: int) -> int:
    """Return the memory that making a similarity takes."""
    return 8 * (4 * n_items * n_features + 2 * n_features**2)
