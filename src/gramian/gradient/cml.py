"""Collaborative metric learning   (Hsieh et al. 2017).

    w_ui · E_j [margin + d_ui − d_uj]₊    with squared distances d and all vectors in the unit ball, ‖p_u‖ ≤ 1, ‖q_i‖ ≤ 1

The weight of a positive grows with its rank: w_ui = log(1 + r_ui), where r_ui = ⌊n · share of negatives within the margin⌋
estimates how many of the n items are nearer to the user than i, or farther by less than the margin. It is a constant of the
gradient. The paper's penalty on covariances is left out.
"""

from __future__ import annotations

from dataclasses import replace

from gramian.core.params import configurable, param
from gramian.core.registry import register
from gramian.gradient.array_functions import Array, log
from gramian.gradient.loss import Gradients, Loss, Scores, n_negatives_param, sampler_param
from gramian.gradient.samplers import Sampler


@register
@configurable
class CML(Loss):
    """log(1 + rank_ui) · E_j [margin + d_ui − d_uj]₊ with squared distances d in the unit ball   (Hsieh et al. 2017).

    Collaborative metric learning: an item that a user likes should be nearer than the others, by a margin. Positives that many
    items outrank weigh more.
    """

    margin: float = param(
        0.5, "distance by which negatives should be farther, usually 0.1 to 1", at_least=0, tries=(0.2, 0.5, 1)
    )
    weighs_ranks: bool = param(True, "whether a positive weighs log(1 + rank), or 1")
    n_negatives: int = n_negatives_param(16)
    sampler: Sampler = sampler_param()

    uses_distances = True
    in_unit_ball = True
    is_pairwise = True

    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        weight = s.negative_weight()
        if getattr(weight, "ndim", 1) == 2:  # a weight of each negative of each row
            weight = weight[:, None, :]
        excess = self.margin + s.negatives[:, None, :] - s.positives[:, :, None]
        is_violated = (excess > 0) * weight
        rank_weight = log(1 + s.n_items * is_violated.sum(2) // 1) if self.weighs_ranks else 1.0
        positive_weight = s.positive_weight * rank_weight
        value = (positive_weight * (is_violated * excess).sum(2)).sum(1)
        by_pairs = positive_weight[:, :, None] * is_violated
        return value, Gradients(-by_pairs.sum(2), by_pairs.sum(1))

    def all_items_loss(self) -> Loss:
        """Without weights of ranks: a new user's vector is then the minimum of a convex function."""
        return replace(self, weighs_ranks=False)
