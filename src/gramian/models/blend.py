"""Blends: a weighted sum of the scores of two models.

Scores of different models are on different scales. With σ the standard deviation of a model's scores over a sample of training
users and the items they have not touched,

    scores = (1 − weight) · first / σ_first + weight · second / σ_second.

A blend is a model, so that blends of more than two are blends of blends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.core.registry import MODELS
from gramian.core.scorer import EncodesHistories, Scorer
from gramian.data.interactions import Interactions
from gramian.errors import NotSupported
from gramian.linalg.sparse import row_of_entry
from gramian.models.autoencoders import EDLAE
from gramian.models.chebycf import ChebyCF
from gramian.models.scorers import ScorerSum

SPREAD_USERS = 256  # whose scores are measured


@configurable
class Blend(Recipe):
    """A weighted sum of two models, each on the scale of its standard deviation."""

    first: Recipe = param(EDLAE(), "the first model", choices=MODELS)
    second: Recipe = param(ChebyCF(), "the second model", choices=MODELS)
    weight: float = param(
        0.5, "share of the second model", at_least=0, at_most=1, free=True,
        tries=(0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    )  # fmt: skip

    def require_signals(self, events: Interactions) -> None:
        for member in (self.first, self.second):
            member.require_signals(events)

    def fit_scorer(self, events: Interactions, dtype: type) -> ScorerSum:
        scorers = [member.fit_scorer(events, dtype) for member in (self.first, self.second)]
        for member, scorer in zip((self.first, self.second), scorers, strict=True):
            if isinstance(scorer, EncodesHistories):  # the other model would have to take the same values
                expected = "members of a blend that take plain weights of items"
                raise NotSupported(expected, str(member), "Blend other models, or fit it alone")
        return self.blend_scorers(scorers, [measure_spread(scorer, events) for scorer in scorers])

    def blend_scorers(self, scorers: Sequence[Scorer], spreads: Sequence[float]) -> ScorerSum:
        """Return the sum of two fitted models, whose scores have these standard deviations."""
        shares = (1 - self.weight, self.weight)
        return ScorerSum(scorers, [share / spread for share, spread in zip(shares, spreads, strict=True)])

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        return self.first.fit_bytes(events, dtype) + self.second.fit_bytes(events, dtype)


def measure_spread(scorer: Scorer, events: Interactions) -> float:
    """Return the standard deviation of the scores of a sample of users, for items they have not touched; 1 if it is 0."""
    n_users = min(SPREAD_USERS, scorer.users_per_block)
    users = np.flatnonzero(np.diff(events.matrix.indptr))
    histories = events.matrix[users[:: max(1, len(users) // n_users)][:n_users]]
    rows, count, total, squares = row_of_entry(histories), 0, 0.0, 0.0
    for first, panel in scorer.panels(histories):
        is_inside = (histories.indices >= first) & (histories.indices < first + panel.shape[1])
        is_new = np.ones(panel.shape, np.bool_)
        is_new[rows[is_inside], histories.indices[is_inside] - first] = False
        new = panel[is_new].astype(np.float64)
        count, total, squares = count + len(new), total + new.sum(), squares + (new**2).sum()
    spread = np.sqrt(max(squares / max(count, 1) - (total / max(count, 1)) ** 2, 0))
    return float(spread) or 1.0
