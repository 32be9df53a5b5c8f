"""What a recipe can do with its fitted scorer: learn events, forget users, and take in items that have features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from gramian.core.scorer import Scorer
from gramian.data.features import Features
from gramian.data.interactions import Interactions
from gramian.linalg.influence import ItemScore
from gramian.linalg.sparse import pad_shape

if TYPE_CHECKING:
    from gramian.core.recipe import Recipe


@dataclass(frozen=True)
class RowChange:
    """The users' rows that an update adds to X and removes from it, in the columns that the model has afterwards.

    A user whose history changes has two rows: the new history is added, and the old one is removed after it. In this order
    XᵀX is never smaller than both before and after, so that it stays positive definite throughout.

    Parameters
    ----------
    rows
        The histories.
    signs
        1 for each row that is added, −1 for each that is removed.
    """

    rows: sp.csr_array
    signs: np.ndarray

    @staticmethod
    def between(before: Interactions, after: Interactions, rows: np.ndarray) -> RowChange:
        """Compare the users in some rows of `after` with `before`, whose users and items `after` has in the same places."""
        known = rows[rows < before.n_users]
        added, removed = after.matrix[rows], pad_shape(before.matrix, after.matrix.shape)[known]
        is_changed = np.ones(len(rows), np.bool_)
        is_changed[rows < before.n_users] = np.diff((after.matrix[known] - removed).indptr) > 0
        added, removed = added[is_changed], removed[is_changed[rows < before.n_users]]
        users = np.concatenate([rows[is_changed], known[is_changed[rows < before.n_users]]])
        signs = np.repeat([1.0, -1.0], [added.shape[0], removed.shape[0]])
        order = np.lexsort((-signs, users))
        return RowChange(sp.csr_array(sp.vstack([added, removed], format="csr"))[order], signs[order])

    @property
    def sign_of_entry(self) -> np.ndarray:
        """The sign of every stored entry's row."""
        return np.repeat(self.signs, np.diff(self.rows.indptr))


@runtime_checkable
class SupportsUpdates(Protocol):
    """A recipe whose fitted scorer can be updated exactly: it then equals a new fit."""

    def update(self, scorer: Any, after: Interactions, change: RowChange) -> Scorer:
        """Return the scorer for `after`: the interactions it was fitted on, with these rows added and removed."""
        ...


@runtime_checkable
class SupportsRefinement(Protocol):
    """A recipe whose fitted scorer can learn events approximately. It cannot forget: what it learned stays in its vectors."""

    def refine(self, scorer: Any, after: Interactions, change: RowChange) -> Scorer:
        """Return a scorer for `after`, started from the one that was fitted before these rows were added and removed."""
        ...


@runtime_checkable
class SupportsDecay(Protocol):
    """A recipe whose fitted scorer is only rescaled when all weights and the penalty fade together."""

    def fade(self, scorer: Any, after: Interactions, factor: float) -> tuple[Recipe, Scorer]:
        """Return the recipe with its penalty times factor², and its scorer for `after`: interactions of `factor` times the
        weight."""
        ...


@runtime_checkable
class SupportsVerification(Protocol):
    """A recipe that can tell from a scorer and its interactions how far the scorer is from a new fit."""

    def residual(self, scorer: Any, histories: Interactions) -> float:
        """Return the largest residual of the equations that a fit on these interactions solves; inf for another model."""
        ...


@runtime_checkable
class SupportsInfluence(Protocol):
    """A recipe that can tell what a fitted scorer would score without a training user."""

    def item_score(self, scorer: Any, histories: Interactions, history: np.ndarray, values: np.ndarray, item: int) -> ItemScore:
        """Return the score of an item for a history, in a form from which users and events can be left out."""
        ...


@runtime_checkable
class SupportsItemFeatures(Protocol):
    """A recipe that learns from item features, so that it can recommend an item that nobody has touched."""

    def add_items(self, scorer: Any, before: Features, after: Features) -> Scorer:
        """Return the scorer with new items: those of `after` beyond the items of `before`, which it was fitted on."""
        ...

    def feature_contributions(
        self, scorer: Any, features: Features, history: np.ndarray, values: np.ndarray, item: int
    ) -> np.ndarray:
        """Return what each feature of an item adds to its score; the rest of the score is due to interactions."""
        ...
