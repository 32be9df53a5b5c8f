"""Rules for a list: at most so many items of a tag, and slots reserved for a tag."""

from __future__ import annotations

import difflib

import numpy as np

from gramian.core.params import configurable, param
from gramian.core.reranking import Candidates, Reordering, Reranker
from gramian.data.catalog import Catalog
from gramian.errors import InvalidInput, UnknownId
from gramian.linalg.reranking import order_by_limit, order_by_slots


@configurable
class MaxPerTag(Reranker):
    """At most so many items of any tag; those beyond the limit move behind all others."""

    limit: int = param(3, "how many items of a tag a list may have", at_least=1)
    tags: str = param("all", "which tags of an item count: all, or the first one alone, as its group", choices=("all", "first"))
    fill: bool = param(True, "whether items beyond the limit fill a list that would be too short")

    def reorder(self, candidates: Candidates) -> Reordering:
        shares = candidates.catalog.tag_shares
        starts, indices = shares.indptr, shares.indices
        if self.tags == "first":
            starts, indices = first_tags(candidates.catalog)
        result = Reordering(candidates.columns)
        order_by_limit(
            result.order, result.cause, candidates.columns, (starts, indices, shares.shape[1]), self.limit, self.fill
        )
        return result

    def describe_cause(self, cause: int, amount: float, catalog: Catalog) -> str:
        return f"{self.limit} of {catalog.tag_names[cause]} above it"


def first_tags(catalog: Catalog) -> tuple[np.ndarray, np.ndarray]:
    """Return each item's first tag, if it has one, as the `indptr` and `indices` of items × tags."""
    tags, columns = catalog.tags or (), {tag: column for column, tag in enumerate(catalog.tag_names)}
    starts = np.append(0, np.cumsum([len(item_tags) > 0 for item_tags in tags]))
    return starts, np.array([columns[item_tags[0]] for item_tags in tags if item_tags], np.int32)


@configurable
class ReservedSlots(Reranker):
    """Ranks that are reserved for the best items with a tag; the others follow in their order.

    Items above the first slot stay. If the candidates have too few items with the tag, the remaining slots go to others.
    """

    tag: str = param(None, "the tag", like="tag")
    slots: int = param(1, "how many ranks are reserved, one after another", at_least=1)
    rank: int = param(1, "the first reserved rank, from 1", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tag is None:
            raise InvalidInput("a tag for ReservedSlots", "none", "Pass tag='Documentary', say")

    def reorder(self, candidates: Candidates) -> Reordering:
        known = candidates.catalog.tag_names
        if self.tag not in candidates.catalog.columns_by_tag:
            close = difflib.get_close_matches(self.tag, known, cutoff=0.5)
            do = f"{'Close' if close else 'Such as'}: {', '.join(close or known[:10])}" if known else "The items have no tags"
            raise UnknownId("a tag of an item", repr(self.tag), do)
        result = Reordering(candidates.columns)
        has_tag = candidates.catalog.has_tag([self.tag])
        order_by_slots(result.order, result.cause, candidates.columns, has_tag, self.rank - 1, self.slots)
        return result

    def describe_cause(self, cause: int, amount: float, catalog: Catalog) -> str:
        last = self.rank + self.slots - 1
        ranks = f"rank {self.rank} is" if self.slots == 1 else f"ranks {self.rank} to {last} are"
        return f"{ranks} reserved for {self.tag}"
