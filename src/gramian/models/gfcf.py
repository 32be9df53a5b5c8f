"""GF-CF: a linear and an ideal low-pass filter on the item graph, without training   (Shen et al. 2021).

With user degrees u, item degrees s and R̃ = diag(u)^-½ X diag(s)^-½, a history x has the scores

    x · (Q + low_pass · diag(s)^-½ V Vᵀ diag(s)^½),    Q = R̃ᵀR̃,    V the top `rank` eigenvectors of Q.

Q is the row-normalised Gram matrix scaled on both sides by diag(s)^-½.
"""

from __future__ import annotations

import numpy as np

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe, require_rank
from gramian.data.interactions import Interactions
from gramian.linalg.eigen import eigenpairs_bytes, top_eigenpairs
from gramian.models.scorers import LowRankWeights, ScorerSum, SymmetricWeights


@configurable
class GFCF(GramRecipe):
    """Graph filter: the normalised item graph plus an ideal low-pass filter, without training   (Shen et al. 2021).

    Scores x·(Q + low_pass·diag(s)^-½ V Vᵀ diag(s)^½).
    """

    normalised = True
    needs_binary = True  # degrees are counts

    rank: int = param(256, "eigenvectors of the low-pass filter", at_least=1, tries=(64, 128, 256, 512))
    low_pass: float = param(0.3, "weight of the low-pass filter; usually 0 to 1", at_least=0, tries=(0, 0.1, 0.3, 1))

    def solve(self, gram: Gram, overwrite: bool) -> ScorerSum:
        require_rank(self.rank, min(gram.n_users, gram.n_items), gram)
        matrix = gram.matrix if overwrite else gram.matrix.copy()
        root = np.sqrt(np.maximum(gram.catalog.popularity, 1)).astype(matrix.dtype)
        matrix.scale(1 / root)  # Q
        v = top_eigenpairs(matrix, self.rank).vectors
        linear = SymmetricWeights(matrix, np.ones(matrix.n), np.zeros(matrix.n))
        return ScorerSum([linear, LowRankWeights(v / root[:, None], v * root[:, None])], [1, self.low_pass])

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        eigenpairs = eigenpairs_bytes(events.n_items, self.rank, np.dtype(dtype).itemsize)
        return super().fit_bytes(events, dtype) + eigenpairs
