"""What a search maximises: a metric of the test users of a split, or of users by exact leave-one-user-out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import numpy as np

from gramian.core.recipe import Recipe
from gramian.core.registry import METRICS
from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import InvalidInput, TunedOnTestWarning
from gramian.evaluation.leave_one_user_out import LeftOutUsers, require_hit_metrics, require_leave_one_out_recipe
from gramian.evaluation.metrics import MetricLike, parse_metric
from gramian.evaluation.task import RankingTask
from gramian.tuning.shared_fits import SharedFit

FIRST_BLOCK, LARGEST_BLOCK = 8_192, 16_384  # users evaluated before the first pruning, and at most at once


class Objective(ABC):
    """Users in a fixed random order, and the metric of each under every recipe of a shared fit."""

    train: Interactions
    task: RankingTask

    def __init__(self, metric: MetricLike, n_users: int, data_fingerprint: str) -> None:
        self.metric, self.n_users = parse_metric(metric), n_users
        self.fingerprint = sha256(f"{data_fingerprint} {self.metric}".encode()).hexdigest()
        self.order = np.random.default_rng(0).permutation(n_users)

    @property
    def k(self) -> int:
        """The length of the lists."""
        return min(self.metric.k, self.train.n_items)

    def blocks(self) -> list[np.ndarray]:
        """Return the users in blocks that double in size, so that poor recipes are pruned early."""
        ends = [FIRST_BLOCK]
        while ends[-1] < self.n_users:
            ends.append(ends[-1] + min(ends[-1], LARGEST_BLOCK))
        return [block for block in np.split(self.order, ends) if len(block)]

    def values(self, fit: SharedFit, rows: np.ndarray) -> list[np.ndarray]:
        """Return the metric of these users for each recipe."""
        return [np.asarray(self.metric(self.task.lists(columns, rows))) for columns in self.rank(fit, rows)]

    @abstractmethod
    def rank(self, fit: SharedFit, rows: np.ndarray) -> np.ndarray:
        """Return the lists of these users: recipes × users × k."""

    @abstractmethod
    def canonical(self, recipe: Recipe) -> Recipe:
        """Return the simplest recipe that gets the same value here."""

    @property
    @abstractmethod
    def n_scored(self) -> float:
        """How many users are scored with each fit. Infinity rules out an eigendecomposition: the fit then has its inverse."""


class SplitObjective(Objective):
    """A metric of the test users of a split."""

    def __init__(self, split: Split, metric: MetricLike) -> None:
        super().__init__(metric, split.target.n_users, split.fingerprint)
        if not self.metric.per_user:
            names = ", ".join(name for name, known in METRICS.items() if known.per_user)
            raise InvalidInput(f"a metric with a value for each user ({names})", str(metric), "Choose one of them")
        self.train, self.task = split.train, RankingTask.of(split.held_out, split.train.catalog)
        self.task.require_no_leakage(split.train)

    def canonical(self, recipe: Recipe) -> Recipe:
        recipe.require_signals(self.train)
        recipe.require_binary(self.train.has_unit_weights)  # the canonical form may not require it
        return recipe.canonical()

    @property
    def n_scored(self) -> float:
        return self.n_users

    def rank(self, fit: SharedFit, rows: np.ndarray) -> np.ndarray:
        return fit.rank(self.task.encode_histories(fit.encoder)[rows], self.train.catalog, self.k)


class LeaveOneOutObjective(Objective):
    """A metric of every user, or of a sample, under models trained without that user."""

    def __init__(
        self, events: Interactions, metric: MetricLike, fold_in: float, seed: int, users: Iterable[Any] | None = None
    ) -> None:
        require_hit_metrics([metric])
        self.left_out = LeftOutUsers.of(events, fold_in, seed, users)
        super().__init__(metric, self.left_out.users.n_users, self.left_out.fingerprint)
        self.train, self.task = events, self.left_out.task

    def canonical(self, recipe: Recipe) -> Recipe:
        return require_leave_one_out_recipe(recipe, self.train)

    @property
    def n_scored(self) -> float:
        return float("inf")

    def rank(self, fit: SharedFit, rows: np.ndarray) -> np.ndarray:
        assert fit.inverse is not None  # since n_scored is infinite
        recipes = [require_leave_one_out_recipe(recipe, self.train) for recipe in fit.recipes]
        return self.left_out.rank(recipes, fit.inverse, self.k, rows)


def warn_if_test_users(split: Split) -> None:
    """Warn where a split that has a validation part is used to choose parameters."""
    if split.validation is not None:
        problem = "Parameters are chosen on the test users of the split, whose metrics will then be too high."
        warnings.warn(f"{problem} Pass split.validation, and keep the split for the end.", TunedOnTestWarning, stacklevel=3)
