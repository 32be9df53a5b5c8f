"""GF-CF: a linear and an ideal low-pass filter on the item graph, without training   (Shen et al. 2021).

With user degrees u, item degrees s and R̃ = diag(u)^-½ X diag(s)^-½, a history x has the scores

    x · (Q + low_pass · diag(s)^-½ V Vᵀ diag(s)^½),    Q = R̃ᵀR̃,    V the top `rank` eigenvectors of Q.
"""

from __future__ import annotations

from numpy.polynomial import Chebyshev

from gramian.core.params import configurable
from gramian.models.graph_filter import LINEAR, FilterBasis, FilterRecipe
from gramian.models.parameters import eigenvectors_param, low_pass_param
from gramian.models.scorers import ScorerSum


@configurable
class GFCF(FilterRecipe):
    """Graph filter: the normalised item graph plus an ideal low-pass filter, without training   (Shen et al. 2021).

    Scores x·(Q + low_pass·diag(s)^-½ V Vᵀ diag(s)^½).
    """

    rank: int = eigenvectors_param()
    low_pass: float = low_pass_param()

    @property
    def transfer(self) -> Chebyshev:
        return LINEAR

    def truncate_to_scorer(self, decomposition: FilterBasis) -> ScorerSum:
        return ScorerSum([decomposition.filter(LINEAR), decomposition.low_pass(self.rank)], [1, self.low_pass])
