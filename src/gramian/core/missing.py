"""Why an item is missing from a list, and the smallest change of the history that would bring it in.

A change adds items to the history, with a weight of 1 each, or removes items from it. Its size is the number of these items.
Searched are single items, and pairs if no single item suffices; among changes of one size, the one that ranks the item best.

Which items are tried: the `pool` items whose addition raises the item's own score most, the items now in the list (an item in
the history leaves the list), and the items of the history, up to `pool`. Where the scores are sums over the history (item-item
models), all singles and pairs of these are tried; with a pool of all items the result is therefore the smallest change of one
or two items there is. A model that solves for each user, such as IALS, is asked for a new list for every change, so that only
the most similar items are tried, and few pairs. Every change that is returned was checked by ranking the changed history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.ranking import finite_panels
from gramian.core.scorer import EncodesHistories, Scorer, SupportsExplanations, SupportsSimilarity, SupportsWeights
from gramian.data.catalog import Catalog
from gramian.linalg.history_changes import count_after_one, count_after_two, count_better
from gramian.linalg.memory import require_memory
from gramian.linalg.sparse import csr_from_sorted

DEFAULT_POOL = 500  # items that may be added: 125,000 pairs, under a second
MAX_RANKED = 100  # changed histories that are ranked one by one, for a model that is not a sum over the history
MAX_RANKED_PAIRS = 15  # items of which all pairs are ranked one by one

UNKNOWN, SEEN, DENIED, NOT_ALLOWED = "unknown", "seen", "denied", "not allowed"
RANKED_OUT, RECOMMENDED = "ranked out", "recommended"
Tried = tuple[int, list[tuple[int, ...]]]  # how many changes were tried, and those that bring the item in, best first
Searches = tuple[Callable[[], Tried], Callable[[], Tried]]  # over single columns, and over pairs


@dataclass(frozen=True)
class HistoryChange:
    """A change of a history that brings an item into the list.

    Parameters
    ----------
    added, removed
        The items to add to the history or to remove from it; one of the two is empty.
    rank
        The rank of the missing item after the change, from 1.
    titles
        Item → title, where the model has titles.
    """

    added: list[Any]
    removed: list[Any]
    rank: int
    titles: dict[Any, str]

    def __len__(self) -> int:
        return len(self.added) + len(self.removed)

    def __str__(self) -> str:
        names = " and ".join(str(self.titles.get(item, item)) for item in [*self.added, *self.removed])
        return f"{'with' if self.added else 'without'} {names} in the history it would be at rank {self.rank}"


@dataclass(frozen=True)
class MissingExplanation:
    """Why an item is, or is not, in a list.

    Parameters
    ----------
    item, title
        The item; its title is None where the model has no titles or does not know it.
    status
        "unknown": the model does not know the item. "seen": it is in the history. "denied": a rule leaves it out.
        "not allowed": a rule allows only others. "ranked out": k items are better. "recommended": it is in the list.
    k
        The length of the list.
    rank
        Its rank, from 1, among all items that may be listed; the one it would have, where a rule or the history leaves it out.
    score, lacking
        Its score, and how much more the last item of the list has; 0 if it is in the list, or would be.
    addition, removal
        The smallest additions to the history, and the smallest removals, that would bring it in; None if none was found.
    searched
        What was tried, in words.
    is_exhaustive
        Whether every change of one or two items was tried, so that None means that there is none of that size.
    unknown
        The history items that the model does not know and ignored.
    fallback
        Whether no item of the history was known, so that scores are numbers of users.
    """

    item: Any
    title: str | None
    status: str
    k: int
    rank: int | None = None
    score: float | None = None
    lacking: float | None = None
    addition: HistoryChange | None = None
    removal: HistoryChange | None = None
    searched: str = "nothing"
    is_exhaustive: bool = True
    unknown: tuple[Any, ...] = ()
    fallback: bool = False

    @property
    def smallest(self) -> HistoryChange | None:
        """The smaller one of `addition` and `removal`; the addition if they are equal."""
        return min((change for change in (self.addition, self.removal) if change), key=len, default=None)

    def __str__(self) -> str:
        name = self.item if self.title is None else self.title
        place = "" if self.rank is None else f", rank {self.rank:,} by a score of {self.score:.4g}"
        lacks = f", {self.lacking:.4g} short of the list of {self.k}" if self.lacking else ""
        lines = [f"{name}: {self.status}{place}{lacks}", *(str(c) for c in (self.addition, self.removal) if c)]
        if self.status == RANKED_OUT and self.smallest is None:
            lines.append(f"no change found; tried {self.searched}")
        return "; ".join(lines)


@dataclass(frozen=True)
class FoundChange:
    """The columns of the smallest change found, none if there is none, and how many single columns and pairs were tried."""

    columns: tuple[int, ...]
    rank: int
    n_singles: int
    n_pairs: int

    def named(self, catalog: Catalog, *, adds: bool) -> HistoryChange | None:
        """Return the change in ids and titles."""
        if not self.columns:
            return None
        ids, titles = catalog.ids[np.array(self.columns)], catalog.titles_of(self.columns)
        named = {} if titles is None else dict(zip(ids, titles, strict=True))
        return HistoryChange(ids if adds else [], [] if adds else ids, self.rank, named)

    def describe(self, verb: str) -> str:
        """Say what was tried."""
        return f"{self.n_singles:,} single items to {verb} and {self.n_pairs:,} pairs"

    def is_exhaustive(self, n_singles: int, n_pairs: int) -> bool:
        """Whether no change of one or two columns can be smaller than the one found, of so many that there are."""
        return self.n_singles >= n_singles and (len(self.columns) == 1 or self.n_pairs >= n_pairs)


@dataclass(frozen=True)
class MissingItem:
    """An item in question: the history, as one row in the model's columns, and which items the rules permit."""

    scorer: Scorer
    catalog: Catalog
    history: sp.csr_array
    item: int
    k: int
    permitted: np.ndarray
    exclude_seen: bool

    @property
    def is_sum(self) -> bool:
        """Whether scores are sums over the history, of values that do not depend on each other."""
        return SupportsWeights in self.scorer.capabilities and not isinstance(self.scorer, EncodesHistories)

    def value_of_addition(self, column: int) -> float:
        """Return the value of an added item: a weight of 1, or what a scorer with values of its own makes of a bare id."""
        if not isinstance(self.scorer, EncodesHistories):
            return 1.0
        ids = self.catalog.ids[np.array([column])]
        return float(next(iter(self.scorer.encode_history(ids, ids))))

    def is_competitor(self, history: sp.csr_array) -> np.ndarray:
        """Return a mask of the items that may be listed for a history."""
        mask = self.permitted.copy()
        if self.exclude_seen:
            mask[history.indices] = False
        return mask

    def scores_of(self, histories: sp.csr_array) -> np.ndarray:
        """Return the scores of all items for few histories; the popularity for an empty one."""
        n_rows, n_items = histories.shape
        require_memory(4 * n_rows * n_items, f"{n_rows:,} × {n_items:,} scores", "Pass a smaller pool")
        scores = np.empty((n_rows, n_items), np.float32)
        for first, panel in finite_panels(self.scorer.panels, histories):
            scores[:, first : first + panel.shape[1]] = panel
        scores[np.diff(histories.indptr) == 0] = self.catalog.popularity
        return scores

    def rank_in(self, history: sp.csr_array) -> int:
        """Return the rank of the item, from 1, for one history."""
        (scores,) = self.scores_of(history)
        return 1 + int(count_better(scores, self.item, self.is_competitor(history)))

    def change_history(self, change: Iterable[int], *, adds: bool) -> sp.csr_array:
        """Return the history with items added, at a weight of 1, or removed."""
        weights = dict(zip(self.history.indices.tolist(), self.history.data.tolist(), strict=True))
        for column in change:
            if adds:
                weights[column] = self.value_of_addition(column)
            else:
                del weights[column]
        columns = np.array(sorted(weights), np.int64)
        values = np.array([weights[column] for column in columns.tolist()], np.float32)
        return csr_from_sorted(np.zeros(len(columns), np.int64), columns, values, self.history.shape)

    def addition_pool(self, pool: int | None) -> np.ndarray:
        """Return the columns to try to add, the most promising first."""
        n_items = len(self.catalog)
        gain = np.zeros(n_items)
        if self.is_sum and isinstance(self.scorer, SupportsExplanations):
            gain = self.scorer.contributions(np.arange(n_items), np.ones(n_items), self.item)
        elif SupportsSimilarity in self.scorer.capabilities and isinstance(self.scorer, SupportsSimilarity):
            gain = self.scorer.similar(self.item)
        order = np.argsort(-gain, kind="stable")
        (scores,) = self.scores_of(self.history)
        is_listed = np.zeros(n_items, np.bool_)
        mask = self.is_competitor(self.history)
        is_listed[np.argsort(-np.where(mask, scores, -np.inf), kind="stable")[: self.k]] = True
        order = order if pool is None else order[is_listed[order] | (np.arange(n_items) < pool)]
        is_usable = np.ones(n_items, np.bool_)
        is_usable[self.history.indices] = is_usable[self.item] = False
        return order[is_usable[order]]

    def removal_pool(self, pool: int | None) -> np.ndarray:
        """Return the columns to try to remove; those that lower the item's score most, if there are more than the pool."""
        columns = self.history.indices[self.history.indices != self.item]
        if pool is None or len(columns) <= pool or not (self.is_sum and isinstance(self.scorer, SupportsExplanations)):
            return columns[:pool]
        contributions = self.scorer.contributions(columns, np.ones(len(columns)), self.item)
        return columns[np.argsort(contributions, kind="stable")[:pool]]

    def find_change(self, columns: np.ndarray, *, adds: bool) -> FoundChange:
        """Return the smallest change of one or two of these columns that brings the item in, if there is one."""
        n_kept = np.inf if adds else self.history.nnz  # a removal must not empty the history: that shows the popular items
        n_tried = [0, 0]
        search = self._search_sums if self.is_sum else self._search_lists
        for size, changes in enumerate(search(columns, adds), start=1):
            if n_kept <= size or len(columns) < size:
                break
            n_tried[size - 1], found = changes()
            for change in found:
                rank = self.rank_in(self.change_history(change, adds=adds))
                if rank <= self.k:
                    return FoundChange(change, rank, *n_tried)
        return FoundChange((), 0, *n_tried)

    def _search_sums(self, columns: np.ndarray, adds: bool) -> Searches:
        """Return the searches over all single columns, and over all pairs, by the rows that they add to the scores."""
        weights = np.ones(len(columns), np.float32)
        if not adds:
            weights = self.history.data[np.searchsorted(self.history.indices, columns)]
        shape = (len(columns), len(self.catalog))
        rows = self.scores_of(sp.csr_array((weights, columns, np.arange(len(columns) + 1)), shape)) * np.float32(
            1 if adds else -1
        )
        scores = np.zeros(len(self.catalog)) if self.history.nnz == 0 else self.scores_of(self.history)[0].astype(np.float64)
        stays = self.permitted[columns] & (not (adds and self.exclude_seen))
        competitors = np.flatnonzero(self.is_competitor(self.history))
        competitors = competitors[np.argsort(-scores[competitors], kind="stable")]  # so that the best are counted first
        facts = scores, rows, columns.astype(np.int64), self.item, competitors, stays

        def singles() -> Tried:
            counts = count_after_one(*facts)
            order = np.argsort(counts, kind="stable")
            return len(columns), [(columns[c],) for c in order.tolist() if counts[c] < self.k]

        def pairs() -> Tried:
            partners, counts = count_after_two(*facts, self.k)
            order = np.argsort(counts, kind="stable")
            found: list[tuple[int, ...]] = [(columns[c], columns[partners[c]]) for c in order.tolist() if partners[c] >= 0]
            return comb(len(columns), 2), found

        return singles, pairs

    def _search_lists(self, columns: np.ndarray, adds: bool) -> Searches:
        """Return the searches over few single columns, and over pairs of the best of them, by ranking each changed history."""
        few = columns[:MAX_RANKED].tolist()
        ranks: dict[tuple[int, ...], int] = {}

        def rank_all(changes: list[tuple[int, ...]]) -> Tried:
            for change in changes:
                ranks[change] = self.rank_in(self.change_history(change, adds=adds))
            return len(changes), sorted((c for c in changes if ranks[c] <= self.k), key=ranks.__getitem__)

        def pairs() -> Tried:
            best = sorted(few, key=lambda column: ranks[(column,)])[:MAX_RANKED_PAIRS]
            return rank_all(list(combinations(best, 2)))

        return lambda: rank_all([(column,) for column in few]), pairs


def explain_missing_item(question: MissingItem, status: str, pool: int | None, unknown: Sequence[Any]) -> MissingExplanation:
    """Return the rank and the score of an item, and the smallest changes that bring it in if others are better."""
    catalog, item, k = question.catalog, question.item, question.k
    (scores,) = question.scores_of(question.history)
    rank, listed = question.rank_in(question.history), scores[question.is_competitor(question.history)]
    last = np.partition(listed, -k)[-k] if len(listed) >= k else scores[item]
    if not status:
        status = RECOMMENDED if rank <= k else RANKED_OUT
    (item_id,), titles = catalog.ids[np.array([item])], catalog.titles_of([item])
    explanation = MissingExplanation(
        item_id,
        titles[0] if titles else None,
        status,
        k,
        rank,
        float(scores[item]),
        max(0.0, float(last) - float(scores[item])),
        unknown=tuple(unknown),
        fallback=question.history.nnz == 0,
    )
    if status != RANKED_OUT:
        return explanation
    additions, removals = question.addition_pool(pool), question.removal_pool(pool)
    added, removed = question.find_change(additions, adds=True), question.find_change(removals, adds=False)
    n_kept = question.history.nnz
    n_usable = len(catalog) - len(np.union1d(question.history.indices, [item]))
    n_removable = len(np.setdiff1d(question.history.indices, [item])) if n_kept > 1 else 0  # one item must stay
    n_removable_pairs = comb(n_removable, 2) if n_kept > 2 else 0
    return replace(
        explanation,
        addition=added.named(catalog, adds=True),
        removal=removed.named(catalog, adds=False),
        searched=f"{added.describe('add')}, {removed.describe('remove')}",
        is_exhaustive=added.is_exhaustive(n_usable, comb(n_usable, 2))
        and removed.is_exhaustive(n_removable, n_removable_pairs),
    )
