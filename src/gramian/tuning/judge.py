"""Who judges the points of a search: the tested users of a split, or every user by models trained without that user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import sha256

import numpy as np

from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import InvalidInput
from gramian.evaluation.evaluate import parsed_metrics
from gramian.evaluation.leave_one_out import LeftOut, hit_metrics, left_out_recipe
from gramian.evaluation.metrics import METRICS, Lists, find_hits
from gramian.linalg.topk import BestOfMany, ranked
from gramian.models.recipe import ClosedForm, Recipe
from gramian.tuning.family import Family

FIRST, LAST = 8_192, 16_384  # users judged before the first look, and at most between two


class Judge(ABC):
    """Tested users in a fixed random order, and the metric of each under every recipe of a family."""

    train: Interactions

    def __init__(self, metric: str, n_users: int, what: str) -> None:
        self.metric, self.n_users = metric, n_users
        self.what = sha256(f"{what} {metric}".encode()).hexdigest()
        self.order = np.random.default_rng(0).permutation(n_users)

    def blocks(self) -> list[np.ndarray]:
        """The users in blocks that double in size, so that hopeless recipes are found early."""
        ends = [FIRST]
        while ends[-1] < self.n_users:
            ends.append(ends[-1] + min(ends[-1], LAST))
        return [block for block in np.split(self.order, ends) if len(block)]

    @abstractmethod
    def values(self, family: Family, rows: np.ndarray) -> list[np.ndarray]:
        """The metric of these users for each recipe."""

    @abstractmethod
    def canonical(self, recipe: Recipe) -> Recipe:
        """The simplest recipe that gets the same value here."""

    @property
    @abstractmethod
    def n_scored(self) -> float:
        """How many users a family must score by products; infinitely many where it must have its inverse."""


class OnSplit(Judge):
    def __init__(self, split: Split, metric: str) -> None:
        super().__init__(metric, split.target.n_users, split.fingerprint)
        ((self.name, self.k),) = parsed_metrics([metric]).values()
        if self.name not in METRICS:
            raise InvalidInput(f"a metric with a value for each user ({', '.join(METRICS)})", metric, "Choose one of them")
        self.train, users = split.train, split.target.users
        self.histories = split.fold_in.reindex(users, self.train.items).matrix
        self.target = split.target.reindex(users, self.train.items).matrix
        self.n_targets = np.diff(split.target.matrix.indptr).astype(np.int64)

    def canonical(self, recipe: Recipe) -> Recipe:
        if isinstance(recipe, ClosedForm):
            recipe.require_binary(self.train.is_binary)  # which the canonical form may not ask for
        return recipe.canonical()

    @property
    def n_scored(self) -> float:
        return self.n_users

    def values(self, family: Family, rows: np.ndarray) -> list[np.ndarray]:
        histories, k = self.histories[rows], min(self.k, self.train.n_items)
        best = BestOfMany(len(rows), k, histories, family.factors)
        for first, panel in family.panels(histories):
            best.push(panel, first)
        lists = best.lists()
        empty = np.flatnonzero(np.diff(histories.indptr) == 0)
        if len(empty):
            lists[empty] = ranked(self.train.popularity, k, np.ones(self.train.n_items, np.bool_))[0]
        return [self.measured(lists[:, member], rows) for member in range(len(family.recipes))]

    def measured(self, columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
        hits = find_hits(columns, self.target[rows])
        return METRICS[self.name](Lists(columns, hits, self.n_targets[rows], self.train.popularity, self.train.n_users), self.k)


class ByLeavingOut(Judge):
    def __init__(self, events: Interactions, metric: str, fold_in: float, seed: int) -> None:
        self.parsed = hit_metrics([metric])
        self.left_out = LeftOut.of(events, fold_in, seed)
        super().__init__(metric, self.left_out.users.n_users, self.left_out.fingerprint)
        self.train = events

    def canonical(self, recipe: Recipe) -> Recipe:
        return left_out_recipe(recipe, self.train)

    @property
    def n_scored(self) -> float:
        return float("inf")

    def values(self, family: Family, rows: np.ndarray) -> list[np.ndarray]:
        k = min(self.parsed[self.metric][1], self.train.n_items)
        assert family.inverse is not None  # since n_scored is infinite
        recipes = [left_out_recipe(recipe, self.train) for recipe in family.recipes]
        lists = self.left_out.lists(recipes, family.inverse, k, rows)
        return [self.left_out.values(columns, rows, self.parsed)[self.metric] for columns in lists]
