"""The most-popular baseline."""

from __future__ import annotations

import numpy as np

from gramian.core.params import configurable
from gramian.core.recipe import Recipe
from gramian.core.updates import RowChange
from gramian.data.interactions import Interactions
from gramian.models.scorers import GlobalScores


@configurable
class Popularity(Recipe):
    """The most popular items, the same for every user, without those in the user's history."""

    def fit_scorer(self, events: Interactions, dtype: type) -> GlobalScores:
        return GlobalScores(events.popularity)

    def update(self, scorer: GlobalScores, after: Interactions, change: RowChange) -> GlobalScores:
        """Return the popularity after the change."""
        return GlobalScores(after.popularity)

    def residual(self, scorer: GlobalScores, histories: Interactions) -> float:
        """Return the largest difference from the counts."""
        return float(np.abs(scorer.values - histories.popularity).max(initial=0))
