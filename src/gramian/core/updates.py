"""What a recipe can do with its fitted scorer: learn or forget users, and take in items that have features."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from gramian.core.scorer import Scorer
from gramian.data.features import Features
from gramian.data.interactions import Interactions


@runtime_checkable
class SupportsUpdates(Protocol):
    """A recipe whose fitted scorer can be updated exactly."""

    def update(self, scorer: Any, after: Interactions, change: Interactions, sign: int) -> Scorer:
        """Return the scorer for `after`: the interactions it was fitted on with these users added (1) or removed (−1)."""
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
