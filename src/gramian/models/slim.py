"""SLIM: the classic sparse item-item model (Ning and Karypis 2011)."""

from __future__ import annotations

from gramian.core.gram import Gram
from gramian.core.params import configurable, param
from gramian.core.recipe import GramRecipe
from gramian.linalg.elastic_net import elastic_net
from gramian.models.parameters import l2_param
from gramian.models.scorers import SparseWeights


@configurable
class SLIM(GramRecipe):
    """Sparse item-item weights by elastic net regression   (Ning and Karypis 2011).

    min ½‖X − XW‖² + ½·l2·‖W‖² + l1·|W|₁  with  diag(W) = 0  and, by default, W ≥ 0. With l1 = 0 and negative weights
    allowed it is EASE.
    """

    l1: float = param(10.0, "L1 penalty on the weights, which makes most of them 0", at_least=0, tries=(3, 10, 30))
    l2: float = l2_param()
    non_negative: bool = param(True, "allow no negative weights")

    def solve(self, gram: Gram, overwrite: bool) -> SparseWeights:
        return SparseWeights(elastic_net(gram.matrix, self.l1, self.l2, self.non_negative))
