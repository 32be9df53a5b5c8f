"""Exact updates: a fitted model that learns or forgets users without a new fit."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions


@runtime_checkable
class SupportsUpdates(Protocol):
    """A recipe whose fitted scorer can be updated exactly."""

    def update(self, scorer: Any, after: Interactions, change: Interactions, sign: int) -> Scorer:
        """Return the scorer for `after`: the interactions it was fitted on with these users added (1) or removed (−1)."""
        ...
