"""EDLAE with sparse weights, for catalogs whose n × n matrix does not fit into memory.

Each item i is predicted from the items N that are nearest to it. With S = XᵀX, s = diag(S), dropout p, q = 1 − p and
Λ = (p/q)·s + l2,

    W_Ni = (S_NN + diag(Λ_N))⁻¹ S_Ni / q,   and W = 0 elsewhere.

This is the minimum of EDLAE's loss among the weights on that support. N holds the `neighbours` items k with the largest
S_ki / √((s_k + Λ_k)(s_i + Λ_i)), which alone would lower the loss of item i the most, of those that share a user with i. If all
items do and all are neighbours, the model is EDLAE. Memory grows with n · neighbours instead of n².
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.core.params import configurable
from gramian.data.interactions import Interactions
from gramian.linalg.local_ridge import solve_local_ridges
from gramian.linalg.neighbours import nearest_neighbours
from gramian.linalg.sparse import squared_column_norms
from gramian.models.neighbours import NeighbourRecipe
from gramian.models.parameters import dropout_param, l2_param, neighbours_param
from gramian.models.scorers import SparseWeights


@configurable
class SparseEDLAE(NeighbourRecipe):
    """EDLAE (Steck 2020) whose weights are 0 except between near items, for catalogs too large for a dense model.

    With dropout 0 it is a sparse EASE. Compare Spišák et al. (2023), who approximate the inverse of EASE instead.
    """

    dropout: float = dropout_param()
    l2: float = l2_param()
    neighbours: int = neighbours_param()

    def fit_scorer(self, events: Interactions, dtype: type) -> SparseWeights:
        self.require_fit_memory(events)
        s = squared_column_norms(events.matrix)
        penalty = self.dropout / (1 - self.dropout) * s + self.l2
        scale = 1 / np.sqrt(np.maximum(s + penalty, np.finfo(np.float32).tiny))
        supports = nearest_neighbours(events.matrix, scale, scale, 0.0, self.neighbours)
        weights = solve_local_ridges(events.matrix, supports, penalty, dtype) / dtype(1 - self.dropout)
        by_column = sp.csc_array((weights, supports.indices, supports.indptr), supports.shape)  # row i of supports
        return SparseWeights(by_column.tocsr())
