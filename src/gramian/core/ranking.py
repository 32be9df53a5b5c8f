"""From histories to ranked lists: the one path that recommending, evaluating, tuning and serving share.

A scorer yields panels of scores; the best k columns of each user are kept, without what must be excluded. A history without
any item gets the most popular items: the fallback exists here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.scorer import Panels, Scorer, align_panels
from gramian.data.catalog import Catalog
from gramian.data.ids import Index
from gramian.errors import InvalidInput
from gramian.linalg.sparse import csr_from_sorted
from gramian.linalg.threads import limit_threads
from gramian.linalg.topk import ScaledTopK, TopK, rank_values
from gramian.progress import progress_bar


@dataclass(frozen=True)
class Exclusions:
    """What a list must not show.

    Parameters
    ----------
    seen
        Whether to exclude the items of the history.
    self_ids
        The user id of each history. The item with the same id is excluded (for links between the nodes of one graph).
    """

    seen: bool = True
    self_ids: Sequence[Any] | None = None

    def columns(self, histories: sp.csr_array, start: int, items: Index) -> sp.csr_array | None:
        """Return the excluded columns of some histories, the first of which is number `start`; None if there are none."""
        seen = histories if self.seen else None
        if self.self_ids is None:
            return seen
        self_columns = items.positions(list(self.self_ids[start : start + histories.shape[0]]))
        rows = np.flatnonzero(self_columns >= 0)
        links = csr_from_sorted(rows, self_columns[rows], np.ones(len(rows), np.float32), histories.shape)
        return links if seen is None else (seen + links).sorted_indices()

    def ranks_without_self(self, columns: np.ndarray, users: np.ndarray, items: Index) -> np.ndarray:
        """Return, for each user, the first k ranks of a shared list of k + 1 columns, without the item of the user's id."""
        if self.self_ids is None:
            return np.tile(np.arange(len(columns) - 1), (len(users), 1))
        self_columns = items.positions([self.self_ids[user] for user in users.tolist()])
        self_columns[self_columns < 0] = -2  # −1 marks the end of a short list
        n_skipped = (columns[None, :-1] == self_columns[:, None]).cumsum(axis=1)
        return np.arange(len(columns) - 1) + n_skipped


EXCLUDE_SEEN = Exclusions()


def require_finite_scores(panel: np.ndarray, histories: sp.csr_array) -> None:
    """Refuse histories whose weights are so large that a score is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(panel.sum()) or np.isfinite(panel).all()  # a sum is cheap, and seldom overflows
    if not is_finite:
        got = f"scores beyond the range of {panel.dtype} for weights up to {histories.data.max(initial=0):.3g}"
        raise InvalidInput("histories with finite scores", got, "Lower the weights")


def finite_panels(score: Callable[[sp.csr_array], Panels], histories: sp.csr_array) -> Panels:
    """Yield the panels of scores, and refuse histories whose weights are so large that a score is not finite."""
    panels = None
    while True:
        with np.errstate(over="ignore", invalid="ignore"):
            panels = score(histories) if panels is None else panels
            first, panel = next(panels, (0, None))
        if panel is None:
            return
        require_finite_scores(panel, histories)
        yield first, panel


def rank_blocks(
    scorer: Scorer,
    catalog: Catalog,
    histories: sp.csr_array,
    k: int,
    *,
    allowed: np.ndarray | None = None,
    exclusions: Exclusions = EXCLUDE_SEEN,
    n_threads: int | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield lists for a block of users at a time: (first user, columns, scores); a short list ends in −1 and −inf."""
    allowed = np.ones(len(catalog), np.bool_) if allowed is None else allowed
    n_together = scorer.users_per_block
    starts = range(0, max(1, histories.shape[0]), n_together)  # at least one block, even of no users
    with progress_bar("recommending", histories.shape[0] * len(catalog)) as advance:
        for start in starts:
            block = histories if len(starts) == 1 else histories[start : start + n_together]  # a slice is a copy
            best = TopK(block.shape[0], k, exclusions.columns(block, start, catalog.ids), allowed)
            with limit_threads(n_threads), np.errstate(over="ignore", invalid="ignore"):
                scorer.visit_panels(block, partial(push_finite_scores, best, block, advance))
                columns, scores = best.lists()
            empty, popular, counts = popular_lists(block, catalog, k, allowed, exclusions, start)
            columns[empty], scores[empty] = popular, counts
            yield start, columns, scores


def push_finite_scores(
    best: TopK, histories: sp.csr_array, advance: Callable[[int], None], panel: np.ndarray, first: int, start: int | None
) -> None:
    """Check a panel of scores, and keep the best columns of its users: all, or those from `start` on."""
    require_finite_scores(panel, histories)
    if start is None:
        best.push(panel, first)
    else:
        best.push_range(panel, first, start)
    advance(panel.size)


def rank_scaled(
    terms: Sequence[Callable[[sp.csr_array], Panels]],
    mix: np.ndarray,
    scales: np.ndarray,
    catalog: Catalog,
    histories: sp.csr_array,
    k: int,
) -> np.ndarray:
    """Rank for several models whose scores are weighted sums of the same terms, times a scale per item.

    Parameters
    ----------
    terms
        The scores that the models share, each computed once.
    mix, scales
        The weights of the terms, models × terms, and the scales, models × items.

    Returns
    -------
    Users × models × k columns.
    """
    mixes, mix_of_model = np.unique(mix, axis=0, return_inverse=True)
    models = [np.flatnonzero(mix_of_model.reshape(-1) == number) for number in range(len(mixes))]
    best = [ScaledTopK(histories.shape[0], k, histories, scales[members]) for members in models]
    for first, panels in align_panels([finite_panels(term, histories) for term in terms]):
        for weights, lists in zip(mixes, best, strict=True):
            panel = mix_panels(panels, weights)
            lists.push(panel.copy() if panel is panels[0] and len(mixes) > 1 else panel, first)  # pushing may overwrite it
    columns = np.empty((histories.shape[0], len(mix), k), np.int32)
    for members, lists in zip(models, best, strict=True):
        columns[:, members] = lists.lists()
    empty, popular, _ = popular_lists(histories, catalog, k)
    columns[empty] = popular[:, None]
    return columns


def mix_panels(panels: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return the weighted sum of panels, as a new array unless it is the only panel itself."""
    if len(panels) == 1 and weights[0] == 1:
        return panels[0]
    total = panels[0] * panels[0].dtype.type(weights[0])
    for weight, panel in zip(weights[1:], panels[1:], strict=True):
        total += total.dtype.type(weight) * panel
    return total


def popular_lists(
    histories: sp.csr_array,
    catalog: Catalog,
    k: int,
    allowed: np.ndarray | None = None,
    exclusions: Exclusions = EXCLUDE_SEEN,
    start: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of histories without any item, and their lists of the most popular items: rows, columns, counts."""
    empty = np.flatnonzero(np.diff(histories.indptr) == 0)
    if len(empty) == 0:
        return empty, np.empty((0, k), np.int32), np.empty((0, k))
    allowed = np.ones(len(catalog), np.bool_) if allowed is None else allowed
    (columns,), (counts,) = rank_values(catalog.popularity, k + 1, allowed)
    ranks = exclusions.ranks_without_self(columns, start + empty, catalog.ids)
    return empty, columns[ranks], counts[ranks]
