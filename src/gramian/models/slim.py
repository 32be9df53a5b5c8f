"""SLIM: the classic sparse item-item model (Ning and Karypis 2011)."""

from __future__ import annotations

from dataclasses import dataclass

from gramian.linalg.elastic_net import regressions
from gramian.linalg.gram import Gram
from gramian.models.autoencoders import l2_setting
from gramian.models.recipe import ClosedForm, setting
from gramian.models.scorers import SparseWeights


@dataclass(frozen=True)
class SLIM(ClosedForm):
    """min ½‖X − XW‖² + ½·l2·‖W‖² + l1·|W|₁  with  diag W = 0  and, unless told otherwise, W ≥ 0.

    With l1 = 0 and negative weights it is EASE.
    """

    l1: float = setting(10.0, "L1 penalty on the weights, which makes most of them 0", at_least=0, tries=(3, 10, 30))
    l2: float = l2_setting()
    non_negative: bool = setting(True, "allow no negative weights")

    def from_gram(self, gram: Gram, overwrite: bool) -> SparseWeights:
        return SparseWeights(regressions(gram.matrix, self.l1, self.l2, self.non_negative))
