"""ChebyCF: a plateau-shaped filter by Chebyshev interpolation, with a low-pass term   (Kim et al. 2025).

With R̃ = diag(u)^-½ X diag(s)^-½, Q = R̃ᵀR̃ and V its top `rank` eigenvectors, a history x has the scores

    x · diag(s)^-β · (p(Q) + low_pass · V Vᵀ) · diag(s)^β,      β = item_power.

On the scale t = 1 − 2q, from −1 for q = 1 to 1 for q = 0, the target is the plateau h(t) = ½ − ½·sign(t)·|t|^flatness, and
p = Σ_{k ≤ degree} c_k T_k(t) with the coefficients of interpolation at the degree + 1 Chebyshev nodes.
The authors' code evaluates the target at the extrema cos(jπ/degree) in place of the nodes, and rounds it to three decimals; the
published figures are those of the code, and so is p here.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Chebyshev, chebyshev

from gramian.core.params import configurable, param
from gramian.models.graph_filter import FilterBasis, FilterRecipe
from gramian.models.parameters import eigenvectors_param, low_pass_param
from gramian.models.scorers import ScorerSum


@configurable
class ChebyCF(FilterRecipe):
    """Graph filter: a plateau by Chebyshev interpolation plus an ideal low-pass filter   (Kim et al. 2025).

    Scores x·diag(s)^-β·(p(Q) + low_pass·V Vᵀ)·diag(s)^β with β = item_power.
    """

    rank: int = eigenvectors_param()
    low_pass: float = low_pass_param(0.2)
    flatness: float = param(
        3.0, "exponent of the plateau: high values pass all frequencies alike", at_least=0, tries=(1, 1.5, 3, 10)
    )
    item_power: float = param(
        0.4, "power of item popularity that histories are divided by, and scores multiplied by", at_least=0, tries=(0, 0.2, 0.4)
    )
    degree: int = param(8, "degree of the polynomial: one product with the interactions each", at_least=1, below=65)

    @property
    def transfer(self) -> Chebyshev:
        places = np.arange(self.degree + 1)
        t = np.round(np.cos((self.degree - places) / self.degree * np.pi), 3)
        target = np.round(0.5 - 0.5 * np.sign(t) * np.abs(t) ** self.flatness, 3)
        nodes = np.cos((self.degree + 0.5 - places) / (self.degree + 1) * np.pi)
        c = 2 / (self.degree + 1) * chebyshev.chebvander(nodes, self.degree).T @ target
        c[0] /= 2
        return Chebyshev(c * (-1) ** places, domain=(0, 1))  # T_k(1 − 2q) = (−1)^k T_k(2q − 1)

    def truncate_to_scorer(self, decomposition: FilterBasis) -> ScorerSum:
        scale = decomposition.root ** (2 * self.item_power)
        terms = [decomposition.filter(self.transfer), decomposition.low_pass(self.rank, power=0)]
        return ScorerSum(terms, [1, self.low_pass], item_scale=scale, history_scale=1 / scale)
