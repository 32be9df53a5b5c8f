"""Maximal marginal relevance (Carbonell and Goldstein 1998).

From the candidates R, with the list L so far, the next item is

    argmax over i in R \\ L of  (1 − diversity) · relevance_i − diversity · max over j in L of similarity_ij

Similarities are those of the model (`similar_items`), or the cosine of the items' tags or features. Negative ones count as 0,
and they are divided by the largest among the user's candidates: both terms then range over [0, 1], and one `diversity` means
about the same for a model of partial correlations, which are small, as for one of cosines.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gramian.core.params import configurable, param
from gramian.core.reranking import Candidates, Reordering, Reranker
from gramian.core.scorer import compare_items
from gramian.data.catalog import Catalog
from gramian.errors import NotSupported
from gramian.linalg.reranking import compare_sparse_rows, order_by_marginal_relevance
from gramian.linalg.sparse import unit_rows

SIMILARITIES_AT_ONCE = 4_000_000  # 16 MB


@configurable
class MMR(Reranker):
    """Maximal marginal relevance: prefer items that are unlike those above them   (Carbonell and Goldstein 1998)."""

    diversity: float = param(0.3, "weight of being unlike the items above; 0 keeps the order", at_least=0, at_most=1)
    similarity: str = param(
        "model", "what makes two items alike: the model, their tags or their features", choices=("model", "tags", "features")
    )

    def reorder(self, candidates: Candidates) -> Reordering:
        n_users, depth = candidates.columns.shape
        together = max(1, SIMILARITIES_AT_ONCE // max(1, depth * depth))
        result = Reordering(candidates.columns)
        for start in range(0, n_users, together):
            rows = slice(start, start + together)
            columns, relevance = candidates.columns[rows], candidates.relevance[rows]
            arrays = result.order[rows], result.cause[rows], result.amount[rows]
            similarity = self.compare(columns, candidates)
            order_by_marginal_relevance(*arrays, columns, relevance, similarity, candidates.k, self.diversity)
        return result

    def compare(self, columns: np.ndarray, candidates: Candidates) -> np.ndarray:
        """Return the similarity of all pairs in each list, lists × depth × depth."""
        if self.similarity == "model":
            return compare_items(candidates.scorer, columns)
        vectors = unit_rows(self.item_vectors(candidates.catalog))
        return np.asarray(compare_sparse_rows(columns, vectors.indptr, vectors.indices, vectors.data))

    def item_vectors(self, catalog: Catalog) -> sp.csr_array:
        """Return what is known of the items, as sparse rows."""
        if self.similarity == "tags":
            return catalog.tag_shares
        if catalog.features is None:
            raise NotSupported("items with features", "a catalog without", "Add them: events.with_features(...)")
        return catalog.features.matrix.sorted_indices()

    def describe_cause(self, cause: int, amount: float, catalog: Catalog) -> str:
        return f"{amount:.2f} similar to {catalog.title_of(cause)} above it"
