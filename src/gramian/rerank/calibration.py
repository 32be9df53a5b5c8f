"""Calibrated recommendations (Steck 2018): a list whose tags have the shares that they have in the user's history.

With p(g|i) equal shares of item i's tags, the history has p(g) = Σ_i w_i p(g|i) / Σ_i w_i, the list has q(g), the same with
weights of 1, and q̃ = (1 − smoothing) · q + smoothing · p. The list is built greedily from

    (1 − strength) · Σ over the list of relevance − strength · KL(p ‖ q̃),      KL(p ‖ q̃) = Σ_g p(g) log(p(g) / q̃(g))

Items without tags count neither in p nor in q. A history without any tag leaves the order as it is.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.core.params import configurable, param
from gramian.core.reranking import Candidates, Reordering, Reranker
from gramian.core.scorer import EncodesHistories
from gramian.data.catalog import Catalog
from gramian.linalg.reranking import order_by_calibration
from gramian.linalg.sparse import mean_shares


@configurable
class Calibration(Reranker):
    """Calibrated recommendations: the tags of a list in the proportions of the history   (Steck 2018)."""

    strength: float = param(0.5, "weight of the tags' proportions; 0 keeps the order", at_least=0, at_most=1)
    smoothing: float = param(0.01, "share of the history mixed into the list's; usually 0.01", at_least=1e-6, below=1)

    def reorder(self, candidates: Candidates) -> Reordering:
        shares = candidates.catalog.tag_shares
        histories = candidates.histories
        if isinstance(candidates.scorer, EncodesHistories):  # its values are no weights
            histories = sp.csr_array((np.ones(histories.nnz), histories.indices, histories.indptr), histories.shape)
        target = mean_shares(histories, shares)
        result = Reordering(candidates.columns)
        order_by_calibration(
            result.order,
            result.cause,
            result.amount,
            candidates.columns,
            candidates.relevance,
            (target.indptr, target.indices, target.data),
            (shares.indptr, shares.indices, shares.data, shares.shape[1]),
            candidates.k,
            self.strength,
            self.smoothing,
        )
        return result

    def describe_cause(self, cause: int, amount: float, catalog: Catalog) -> str:
        if cause == len(catalog.tag_names):
            return "it has none of the tags that the list lacks"
        direction = "further from" if amount > 0 else "closer to"
        return f"{catalog.tag_names[cause]}: it brings the tags {abs(amount):.2f} {direction} those of the history"
