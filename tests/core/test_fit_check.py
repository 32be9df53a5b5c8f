"""No fit returns garbage: objectives that grow, numbers that are not finite, and models worse than Popularity."""

import numpy as np
import pytest

import gramian as gr
from gramian.core.epochs import EpochRecipe, TrainingState
from gramian.core.fit_check import DIVERGED_GROWTH
from gramian.core.params import configurable, param
from gramian.core.recipe import Recipe
from gramian.data.synthetic import clustered
from gramian.models.scorers import GlobalScores

EVENTS = clustered(120, 60, 2_400, n_tastes=5)
OBJECTIVES = {
    "falls": [9.0, 5, 4],
    "fluctuates": [9.0, 12, 8],
    "negative": [-9.0, -12, -11],
    "grows": [9.0, 40, 9 * (2 + DIVERGED_GROWTH)],
    "grows from below 0": [-9.0, -1, 9 * DIVERGED_GROWTH],
    "NaN at once": [np.nan, 1, 1],
    "NaN later": [9.0, np.nan, 1],
    "infinite": [9.0, np.inf, 1],
}


@configurable
class Scripted(EpochRecipe):
    """A training whose objective is told."""

    objectives: str = param("falls", "which objectives", choices=tuple(OBJECTIVES))
    rank: int = param(2, "rank")
    n_epochs: int = param(3, "epochs")
    seed: int = param(0, "seed")

    def iterate(self, events, state):
        for value in OBJECTIVES[self.objectives]:
            yield TrainingState.of(state.users, state.items, value)

    def to_scorer(self, events, state):
        return GlobalScores(events.popularity)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_training_whose_objective_grows_is_refused(name, refused):
    if name in ("falls", "fluctuates", "negative"):
        Scripted(name).fit(EVENTS)
        return
    with refused(gr.errors.Diverged, "that falls"):
        Scripted(name).fit(EVENTS)


@configurable
class Unpopular(Recipe):
    """The least popular items first: a model that learned the opposite."""

    weight: float = param(-1.0, "weight of popularity")

    def fit_scorer(self, events, dtype):
        return GlobalScores(self.weight * events.popularity)


def test_a_model_worse_than_popularity_warns_and_a_good_one_does_not():
    with pytest.warns(gr.errors.PoorFitWarning, match="worse than Popularity"):
        Unpopular().fit(EVENTS)
    Unpopular(1.0).fit(EVENTS)  # warnings are errors here
    gr.EASE(l2=10).fit(EVENTS)


def test_a_fit_with_infinite_numbers_is_refused(refused):
    with refused(gr.errors.Inaccurate, "finite numbers"), pytest.warns(gr.errors.PrecisionWarning):
        Unpopular(1e300).fit(EVENTS)


MONOTONE = [
    gr.IALS(rank=6, n_epochs=8),
    gr.WRMF(rank=6, n_epochs=8),
    gr.DebiasedIALS(rank=6, n_epochs=8),
    gr.RG2ALS(rank=6, n_epochs=8, l2=0.05),
    gr.RGX(rank=6, n_epochs=8, l2=0.05),
    gr.RG2NewtonCG(rank=6, n_epochs=8, l2=0.05),
]


@pytest.mark.parametrize("recipe", MONOTONE, ids=lambda recipe: type(recipe).__name__)
def test_the_objective_that_is_watched_falls_in_every_epoch(recipe):
    objectives = [epoch.objective for epoch in recipe.epochs(EVENTS, dtype="float64")]
    assert np.isfinite(objectives).all()
    assert (np.diff(objectives) <= 1e-9 * abs(objectives[0])).all()


@pytest.mark.parametrize("recipe", [gr.ADMMEDLAE(rank=6, l2=20), gr.ALSEDLAE(rank=6, l2=20)], ids=lambda r: type(r).__name__)
def test_low_rank_edlae_watches_its_loss(recipe, refused, monkeypatch):
    rounds = list(zip(range(recipe.n_epochs), recipe.rounds(EVENTS, np.float64), strict=False))
    u, v, _ = min((r for _, r in rounds), key=lambda r: r[2])
    np.testing.assert_allclose(recipe.fit(EVENTS, dtype="float64").weights(), u @ v.T, atol=1e-5)
    monkeypatch.setattr(type(recipe), "rounds", lambda self, source, dtype: iter([(u, v, 1e9)] * 99))
    with refused(gr.errors.Diverged, "predicting nothing"):
        recipe.fit(EVENTS)
