"""Exact leave-one-user-out cross-validation: m models, each trained without one user, from a single fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.ids import ids_of
from gramian.data.interactions import Interactions
from gramian.data.split import targets
from gramian.errors import InvalidInput, NotSupported, UnknownId
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, parsed_metrics
from gramian.evaluation.metrics import METRICS, Lists, find_hits
from gramian.linalg.leave_out import lists_without_self
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.threads import threads
from gramian.models.autoencoders import LinearAutoencoder, family, squares
from gramian.models.recipe import Recipe, require_interactions
from gramian.progress import bar

BLOCK = 8_192  # users at once
HIT_METRICS = sorted(set(METRICS) - {"novelty", "popularity"})


@dataclass(frozen=True)
class LeftOut:
    """Users of some events, each to be judged by a model trained without them."""

    events: Interactions
    users: Interactions  # those with two items or more
    is_target: np.ndarray  # of their interactions, which are to be found

    @staticmethod
    def of(events: Interactions, fold_in: float, seed: int, users: Iterable[Any] | None = None) -> LeftOut:
        """Of each user a share `fold_in` is known and the rest is to be found."""
        require_interactions(events)
        rows = np.flatnonzero(np.diff(events.matrix.indptr) >= 2)
        if users is not None:
            chosen = events.users.positions(ids_of("user ids", users))
            if not set(chosen.tolist()) <= set(rows.tolist()):
                raise UnknownId("users of the events with two items or more", "others", "Leave them out")
            rows = np.unique(chosen)
        if len(rows) == 0:
            raise InvalidInput("users with two items or more", "none", "Give users more items")
        part = events.take(rows)
        return LeftOut(events, part, targets(part, rows, 1 - fold_in, seed))

    @cached_property
    def target(self) -> sp.csr_array:
        return self.users.keep(self.is_target).matrix

    @cached_property
    def known(self) -> sp.csr_array:
        """1 at what is known of each user, 0 at what is to be found."""
        matrix = self.users.matrix
        return sp.csr_array(((~self.is_target).astype(np.float32), matrix.indices, matrix.indptr), matrix.shape)

    @cached_property
    def squares(self) -> np.ndarray:
        return squares(self.events)

    @cached_property
    def fingerprint(self) -> str:
        own = sha256(self.is_target.tobytes()).hexdigest()
        return sha256(f"{self.events.fingerprint} {self.users.fingerprint} {own}".encode()).hexdigest()

    def lists(self, recipes: Sequence[LinearAutoencoder], inverse: Symmetric, k: int, rows: np.ndarray) -> np.ndarray:
        """The top k columns for these of the users, from the inverse that the recipes share, fitted on everybody."""
        families, alone = [family(recipe) for recipe in recipes], self.events.popularity == 1
        if recipes[0].ridge == 0 and alone[self.users.matrix.indices].any():
            one = "an item that a single user has: without that user nothing holds it"
            raise InvalidInput("l2 above 0", one, "Raise l2, or leave such items out with events.k_core")
        users = self.users.matrix[rows]
        known = self.known[rows].data > 0
        columns = np.empty((len(recipes), len(rows), k), np.int32)
        with bar("leaving users out", len(rows)) as advance:
            for start in range(0, len(rows), BLOCK):
                some = users[start : start + BLOCK]
                entries = slice(users.indptr[start], users.indptr[start] + some.nnz)
                found = lists_without_self(inverse, self.squares, alone, families, some, known[entries], k)
                columns[:, start : start + BLOCK] = found
                advance(some.shape[0])
        return columns

    def values(self, columns: np.ndarray, rows: np.ndarray, parsed: dict[str, tuple[str, int]]) -> dict[str, np.ndarray]:
        """The metrics of these users' lists."""
        target = self.target[rows]
        n_targets = np.diff(target.indptr).astype(np.int64)
        lists = Lists(columns, find_hits(columns, target), n_targets, self.events.popularity, 0)
        return {metric: METRICS[name](lists, k) for metric, (name, k) in parsed.items()}


def leave_one_user_out(
    recipe: Recipe,
    events: Interactions,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    fold_in: float = 0.8,
    seed: int = 0,
    users: Iterable[Any] | None = None,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> Report:
    """The metrics of as many models as there are users, each trained without one and judged on that one, from a single fit.

    Of each user a share `fold_in` is known and the rest is to be found; users with a single item are left out. `users` takes
    a sample. The lists are exactly those of the models fitted anew.
    """
    require_interactions(events)
    canonical, parsed = left_out_recipe(recipe, events), hit_metrics(metrics)
    left_out = LeftOut.of(events, fold_in, seed, users)
    k = min(max(k for _, k in parsed.values()), events.n_items)
    rows = np.arange(left_out.users.n_users)
    with threads(n_threads):
        inverse = canonical.fit(events, dtype=dtype).scorer.inverse  # type: ignore[attr-defined]
        (columns,) = left_out.lists([canonical], inverse, k, rows)
        per_user = left_out.values(columns, rows, parsed)
    return Report(per_user, {}, left_out.users.users.tolist(), left_out.fingerprint, tuple(parsed))


def left_out_recipe(recipe: Recipe, events: Interactions) -> LinearAutoencoder:
    """The canonical form of a recipe that a user can be taken out of."""
    canonical = recipe.canonical() if isinstance(recipe, Recipe) else recipe
    if not (isinstance(recipe, LinearAutoencoder) and isinstance(canonical, LinearAutoencoder)):
        raise NotSupported("a full-rank linear autoencoder", type(recipe).__name__, "Evaluate it on a split")
    recipe.require_binary(events.is_binary)
    return canonical


def hit_metrics(metrics: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Metrics that depend on the hits alone: those of popularity would need every model's own."""
    parsed = parsed_metrics(metrics)
    other = [metric for metric, (name, _) in parsed.items() if name not in HIT_METRICS]
    if other:
        raise InvalidInput(f"metrics of hits ({', '.join(HIT_METRICS)})", other[0], "Evaluate it on a split")
    return parsed
