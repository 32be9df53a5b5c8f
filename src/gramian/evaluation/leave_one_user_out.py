"""Exact leave-one-user-out cross-validation: as many models as users, each trained without one user, from a single fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.recipe import Recipe
from gramian.core.registry import METRICS
from gramian.data.ids import as_id_list
from gramian.data.interactions import Interactions
from gramian.data.split import mark_targets
from gramian.errors import InvalidInput, NotSupported, UnknownId
from gramian.evaluation.metrics import DEFAULT_METRICS, Metric, MetricLike, largest_cutoff, parse_metrics
from gramian.evaluation.report import Report
from gramian.evaluation.task import RankingTask
from gramian.linalg.leave_one_out import leave_one_out_lists
from gramian.linalg.sparse import squared_column_norms
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.threads import limit_threads
from gramian.models.full_rank import LinearAutoencoder
from gramian.models.scorers import InverseWeights
from gramian.progress import progress_bar
from gramian.validation import require_instance

LEFT_OUT_PER_BLOCK = 8_192  # users


@dataclass(frozen=True)
class LeftOutUsers:
    """Users of some events, each to be ranked for by a model trained without them.

    Parameters
    ----------
    events
        All interactions.
    users
        The users with two items or more, or a sample of them.
    is_target
        Which of their interactions are targets.
    """

    events: Interactions
    users: Interactions
    is_target: np.ndarray

    @staticmethod
    def of(events: Interactions, fold_in: float, seed: int, users: Iterable[Any] | None = None) -> LeftOutUsers:
        """Take a share `fold_in` of each user's items as known and the rest as targets."""
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        rows = np.flatnonzero(np.diff(events.matrix.indptr) >= 2)
        if users is not None:
            sample = events.users.positions(as_id_list("user ids", users))
            if not set(sample.tolist()) <= set(rows.tolist()):
                raise UnknownId("users of the events with two items or more", "others", "Leave them out")
            rows = np.unique(sample)
        if len(rows) == 0:
            raise InvalidInput("users with two items or more", "none", "Give users more items")
        left_out = events.take(rows)
        return LeftOutUsers(events, left_out, mark_targets(left_out.matrix, rows, 1 - fold_in, seed))

    @cached_property
    def task(self) -> RankingTask:
        """The known items and targets of the users."""
        known, target = self.users.keep(~self.is_target), self.users.keep(self.is_target)
        n_targets = np.diff(target.matrix.indptr).astype(np.int64)
        users = self.users.users.tolist()
        return RankingTask(users, known.matrix, target.matrix, n_targets, self.events.catalog, 0, self.fingerprint)

    @cached_property
    def is_known(self) -> sp.csr_array:
        """1 at each user's known items, 0 at the targets."""
        matrix = self.users.matrix
        return sp.csr_array(((~self.is_target).astype(np.float32), matrix.indices, matrix.indptr), matrix.shape)

    @cached_property
    def squared_norms(self) -> np.ndarray:
        """The diagonal of the Gram matrix of all interactions."""
        return squared_column_norms(self.events.matrix)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of users and targets, the same on every machine."""
        targets = sha256(self.is_target.tobytes()).hexdigest()
        return sha256(f"{self.events.fingerprint} {self.users.fingerprint} {targets}".encode()).hexdigest()

    def rank(self, recipes: Sequence[LinearAutoencoder], inverse: Symmetric, k: int, rows: np.ndarray) -> np.ndarray:
        """Return the k best columns for some of the users, recipes × users × k.

        `inverse` is the one that the recipes share, fitted on everybody.
        """
        coefficients, has_one_user = [recipe.coefficients for recipe in recipes], self.events.popularity == 1
        if coefficients[0].ridge == 0 and has_one_user[self.users.matrix.indices].any():
            got = "an item that a single user has: without that user its penalty would be 0"
            raise InvalidInput("l2 above 0", got, "Raise l2, or leave such items out with events.k_core")
        users, is_known = self.users.matrix[rows], self.is_known[rows].data > 0
        columns = np.empty((len(recipes), len(rows), k), np.int32)
        with progress_bar("leaving users out", len(rows)) as advance:
            for start in range(0, len(rows), LEFT_OUT_PER_BLOCK):
                block = users[start : start + LEFT_OUT_PER_BLOCK]
                entries = slice(users.indptr[start], users.indptr[start] + block.nnz)
                columns[:, start : start + LEFT_OUT_PER_BLOCK] = leave_one_out_lists(
                    inverse, self.squared_norms, has_one_user, coefficients, block, is_known[entries], k
                )
                advance(block.shape[0])
        return columns


def leave_one_user_out(
    recipe: Recipe,
    events: Interactions,
    metrics: Iterable[MetricLike] = DEFAULT_METRICS,
    *,
    fold_in: float = 0.8,
    seed: int = 0,
    users: Iterable[Any] | None = None,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> Report:
    """Evaluate a full-rank autoencoder by exact leave-one-user-out cross-validation, from a single fit.

    Parameters
    ----------
    recipe
        A full-rank linear autoencoder.
    events
        The interactions. Every user is ranked for by the model trained without that user: the lists are exactly those of as
        many new fits.
    metrics
        Metrics that depend on hits alone.
    fold_in
        The share of each user's items that is known; the rest are targets. Users with a single item are left out.
    seed
        Seed of the choice of targets.
    users
        A sample of users; all if left out.
    dtype, n_threads
        As in `recipe.fit`.

    Returns
    -------
    Report
    """
    require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
    canonical, parsed = require_leave_one_out_recipe(recipe, events), require_hit_metrics(metrics)
    left_out = LeftOutUsers.of(events, fold_in, seed, users)
    k = min(largest_cutoff(parsed), events.n_items)
    with limit_threads(n_threads):
        scorer = canonical.fit(events, dtype=dtype).scorer
        assert isinstance(scorer, InverseWeights)
        (columns,) = left_out.rank([canonical], scorer.inverse, k, np.arange(left_out.users.n_users))
        return left_out.task.report(columns, parsed)


def require_leave_one_out_recipe(recipe: Recipe, events: Interactions) -> LinearAutoencoder:
    """Return the canonical form of a recipe that allows exact leave-one-out, or raise `NotSupported`."""
    canonical = recipe.canonical() if isinstance(recipe, Recipe) else recipe
    if not (isinstance(recipe, LinearAutoencoder) and isinstance(canonical, LinearAutoencoder)):
        raise NotSupported("a full-rank linear autoencoder", type(recipe).__name__, "Evaluate it on a split")
    recipe.require_signals(events)
    events.require_no_dislikes("leave-one-user-out", "a dislike is no target")
    recipe.require_binary(events.is_binary)
    return canonical


def require_hit_metrics(metrics: Iterable[MetricLike]) -> list[Metric]:
    """Return metrics that depend on hits alone; others would need the popularity in each user's own training data."""
    parsed = parse_metrics(metrics)
    for metric in parsed:
        if metric.needs != {"hits"}:
            names = ", ".join(name for name, known in METRICS.items() if known.needs == {"hits"})
            raise InvalidInput(f"metrics of hits ({names})", str(metric), "Evaluate it on a split")
    return parsed
