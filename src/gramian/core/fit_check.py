"""Checks of a fit: its numbers are finite, its objective falls, and it ranks its training data as well as Popularity."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from gramian.core.ranking import finite_panels
from gramian.core.scorer import Panels, Scorer
from gramian.data.interactions import Interactions
from gramian.data.kinds import is_target
from gramian.errors import Diverged, Inaccurate, PoorFitWarning
from gramian.linalg.finite import find_non_finite
from gramian.linalg.sparse import csr_from_sorted, row_of_entry
from gramian.linalg.topk import TopK

if TYPE_CHECKING:
    from gramian.core.recipe import Recipe

CHECKED_USERS = 256  # whose lists are compared
LIST_LENGTH = 20
POPULAR_PANEL = 512  # columns ranked by popularity at a time
POOR_SHARE = 0.9  # of Popularity's hits: a fit that finds fewer is poor, and not by chance of the sample
DIVERGED_GROWTH = 10.0  # how far, in multiples of its first value, an objective may rise above it


def require_finite_scorer(scorer: Scorer, recipe: Recipe) -> Scorer:
    """Return the scorer, or raise `Inaccurate` if one of its arrays is not finite."""
    name = find_non_finite(scorer.save()[1])
    if name is not None:
        do = "Rescale the weights of the interactions, raise l2, or fit with dtype='float64'"
        raise Inaccurate(f"finite numbers in a fitted {type(recipe).__name__}", f"infinite ones in {name}", do)
    return scorer


def require_convergence(objective: float, first: float, recipe: Recipe) -> None:
    """Raise `Diverged` if an objective is not finite, or far above its value after the first epoch."""
    if not objective <= first + DIVERGED_GROWTH * abs(first):
        do = "Lower the learning rate, raise l2, or train for fewer epochs"
        raise Diverged(f"an objective of {recipe} that falls", f"{objective:.4g} after {first:.4g}", do)


def warn_if_poor(scorer: Scorer, recipe: Recipe, events: Interactions) -> None:
    """Warn if lists made from half of a training user's items hold fewer of the other half than the most popular items do."""
    inputs, targets = halve_histories(events.matrix, min(CHECKED_USERS, scorer.users_per_block))
    mask = is_target(targets.data, events.kinds)
    targets = csr_from_sorted(row_of_entry(targets)[mask], targets.indices[mask], targets.data[mask], targets.shape)
    popularity = events.popularity.astype(np.float32)

    def popular_panels(histories: sp.csr_array) -> Panels:
        for first in range(0, events.n_items, POPULAR_PANEL):
            yield first, np.tile(popularity[first : first + POPULAR_PANEL], (histories.shape[0], 1))

    hits, popular_hits = (count_hits(panels, inputs, targets) for panels in (scorer.panels, popular_panels))
    if hits < POOR_SHARE * popular_hits:
        measured = f"from half of a history it finds {hits:,} items of the other half, and Popularity {popular_hits:,}"
        problem = f"{recipe} ranks its own training data worse than Popularity: {measured}"
        remedy = "Train longer, or change the parameters"
        warnings.warn(f"{problem} (the first {LIST_LENGTH} places of {inputs.shape[0]} users). {remedy}.", PoorFitWarning, 3)


def halve_histories(x: sp.csr_array, n_users: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Split the histories of a sample of users with two or more items: alternate items are inputs, the others targets."""
    users = np.flatnonzero(np.diff(x.indptr) >= 2)
    sample = x[users[:: max(1, len(users) // n_users)][:n_users]]
    row = row_of_entry(sample)
    is_input = (np.arange(sample.nnz) - sample.indptr[row]) % 2 == 0
    inputs, targets = (
        csr_from_sorted(row[mask], sample.indices[mask], sample.data[mask], sample.shape) for mask in (is_input, ~is_input)
    )
    return inputs, targets


def count_hits(panels: Callable[[sp.csr_array], Panels], inputs: sp.csr_array, targets: sp.csr_array) -> int:
    """Count the targets in the lists of the inputs."""
    n_users, n_items = inputs.shape
    best = TopK(n_users, LIST_LENGTH, inputs, np.ones(n_items, np.bool_))
    for first, panel in finite_panels(panels, inputs):
        best.push(panel, first)
    columns = best.lists()[0]
    pairs = np.where(columns < 0, -1, np.arange(n_users)[:, None] * n_items + columns)  # −1 ends a short list
    return int(np.isin(pairs, row_of_entry(targets) * n_items + targets.indices).sum())
