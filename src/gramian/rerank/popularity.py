"""A penalty on popularity: items are ordered by relevance − strength · log(1 + users) / log(1 + users of the most popular)."""

from __future__ import annotations

import numpy as np

from gramian.core.params import configurable, param
from gramian.core.reranking import Candidates, Reordering, Reranker
from gramian.data.catalog import Catalog


@configurable
class PopularityPenalty(Reranker):
    """A penalty on popularity, so that items of the long tail move up."""

    strength: float = param(0.3, "penalty of the most popular item; 0 keeps the order; usually 0 to 1", at_least=0)

    def reorder(self, candidates: Candidates) -> Reordering:
        columns, popularity = candidates.columns, candidates.catalog.popularity
        penalty = self.strength * np.log1p(popularity) / max(np.log1p(popularity.max(initial=0)), 1e-300)
        result = Reordering(columns)
        values = np.where(columns >= 0, candidates.relevance - penalty[columns], -np.inf)
        order = np.argsort(-values, axis=1, kind="stable")
        is_item = columns >= 0
        result.order[:] = np.where(is_item, order, -1)
        result.cause[:] = np.where(is_item, popularity[columns], -1)
        result.amount[:] = np.where(is_item, penalty[columns], 0)
        return result

    def describe_cause(self, cause: int, amount: float, catalog: Catalog) -> str:
        return f"{cause:,} users, a penalty of {amount:.2f}"
