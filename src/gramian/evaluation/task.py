"""Test users in a model's columns: from histories to lists (core/ranking.py), from lists to hits, from hits to metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.histories import encode_events
from gramian.core.ranking import Exclusions
from gramian.core.recommender import Recommender
from gramian.core.reranking import Reranking
from gramian.core.scorer import Scorer
from gramian.data.catalog import Catalog
from gramian.data.interactions import Interactions
from gramian.data.split import HeldOutUsers
from gramian.errors import LeakedEvaluation
from gramian.evaluation.metrics import Metric, RankedLists, find_hits
from gramian.evaluation.report import Report


@dataclass(frozen=True, eq=False)
class RankingTask:
    """Rank all items for test users, and compare the lists with the users' targets.

    Parameters
    ----------
    users
        The ids of the test users.
    histories, targets
        Their known items and their targets, in the columns of the catalog.
    n_targets
        The number of targets of each user, items that the catalog does not have included: these are missed.
    catalog
        The items of the model.
    n_train_users
        The number of training users.
    fingerprint
        The fingerprint of the split.
    fold_in
        The known items as interactions, for scorers that take histories in values of their own.
    """

    users: list[Any]
    histories: sp.csr_array
    targets: sp.csr_array
    n_targets: np.ndarray
    catalog: Catalog
    n_train_users: int
    fingerprint: str
    fold_in: Interactions | None = None

    @staticmethod
    def of(held_out: HeldOutUsers, catalog: Catalog) -> RankingTask:
        """Bring test users to the columns of a catalog."""
        users = held_out.target.users
        fold_in = held_out.fold_in.reindex(users, catalog.ids)
        return RankingTask(
            users.tolist(),
            fold_in.matrix,
            held_out.target.reindex(users, catalog.ids).matrix,
            np.diff(held_out.target.matrix.indptr).astype(np.int64),
            catalog,
            held_out.n_train_users,
            held_out.fingerprint,
            fold_in,
        )

    def encode_histories(self, scorer: Scorer | None) -> sp.csr_array:
        """Return the known items in the values that a scorer takes."""
        return self.histories if scorer is None or self.fold_in is None else encode_events(self.fold_in, scorer).matrix

    def count_leaked(self, histories: Interactions) -> int:
        """Return how many targets are among these histories of the same users.

        A target that is also among the user's known items is not counted: no list shows it. That happens where published
        train and test files overlap.
        """
        rows = histories.users.positions(self.users)
        known = np.flatnonzero(rows >= 0)
        fitted = histories.matrix[rows[known]].astype(np.bool_)
        leaked = self.targets[known].astype(np.bool_).multiply(fitted)
        return int(leaked.nnz - leaked.multiply(self.histories[known].astype(np.bool_)).nnz)

    def require_no_leakage(self, histories: Interactions, allow: bool = False) -> int:
        """Return how many targets are among the interactions a model is fitted on; unless allowed, refuse if there are any."""
        n_leaked = self.count_leaked(histories)
        if n_leaked and not allow:
            raise LeakedEvaluation(
                "a model that was fitted without the targets of the split",
                f"{n_leaked:,} of {self.n_targets.sum():,} targets among the interactions it was fitted on",
                "Fit it on split.train, or pass allow_leakage=True to see metrics that are too high",
            )
        return n_leaked

    def rank(self, model: Recommender, k: int, *, exclude_self: bool = False, reranking: Reranking | None = None) -> np.ndarray:
        """Return the k best columns for every user, without what is in the user's history."""
        exclusions = Exclusions(self_ids=self.users if exclude_self else None)
        return model.top_k(self.encode_histories(model.scorer), k, exclusions=exclusions, reranking=reranking)[0]

    def lists(self, columns: np.ndarray, rows: np.ndarray | None = None) -> RankedLists:
        """Return lists with their hits, for all users or for those in `rows`."""
        targets, n_targets, histories = self.targets, self.n_targets, self.histories
        if rows is not None:
            targets, n_targets, histories = targets[rows], n_targets[rows], histories[rows]
        hits = find_hits(columns, targets)
        return RankedLists(columns, hits, n_targets, self.catalog, self.n_train_users, targets, histories)

    def report(self, columns: np.ndarray, metrics: Sequence[Metric], n_leaked: int | None = 0) -> Report:
        """Measure the lists of all users. `n_leaked` is only reported."""
        lists = self.lists(columns)
        values = {str(metric): metric(lists) for metric in metrics}
        per_user = {str(metric): np.asarray(values[str(metric)]) for metric in metrics if metric.per_user}
        catalog = {str(metric): float(values[str(metric)]) for metric in metrics if not metric.per_user}
        return Report(per_user, catalog, self.users, self.fingerprint, tuple(values), n_leaked)
