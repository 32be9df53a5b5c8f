"""Influence: every leave-one-out score equals that of a model fitted without the user or the event."""

import numpy as np
import pytest

import gramian as gr

RECIPES = [
    gr.EASE(l2=5),
    gr.DLAE(dropout=0.3, l2=5),
    gr.EDLAE(dropout=0.3, l2=5),
    gr.DEQL(dropout=0.3, kept_weight=0.7, l2=5),
    gr.RDLAE(dropout=0.3, max_diagonal=0.3, l2=5),
]
RNG = np.random.default_rng(0)
X = (RNG.random((40, 15)) < 0.3) * RNG.integers(1, 3, (40, 15)).astype(float)
HISTORY, ITEM = {1: 1.0, 4: 2.0, 7: 1.0}, 9


def score(recipe, x, history=HISTORY):
    row = np.zeros((1, x.shape[1]))
    row[0, list(history)] = list(history.values())
    model = recipe.fit(gr.Interactions.of(x), dtype="float64")
    return float(model.scores(gr.Interactions.of(row))[0, ITEM])


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
@pytest.mark.parametrize("history", [HISTORY, HISTORY | {ITEM: 1.0}], ids=["without the item", "with it"])
def test_influence_is_the_difference_from_a_refit(recipe, history):
    found = recipe.fit(gr.Interactions.of(X), dtype="float64").influence(history, ITEM, limit=40)
    assert found.score == pytest.approx(score(recipe, X, history), abs=1e-9)
    for user, value in list(found.users.items())[:8]:
        without = X.copy()
        without[user] = 0
        assert value == pytest.approx(found.score - score(recipe, without, history), abs=1e-9)
    for (user, item), value in list(found.events.items())[:8]:
        without = X.copy()
        without[user, item] = 0
        assert value == pytest.approx(found.score - score(recipe, without, history), abs=1e-9)


def test_the_strongest_users_come_first_and_as_many_as_asked_for():
    model = gr.EASE(l2=5).fit(gr.Interactions.of(X), dtype="float64")
    everybody = model.influence(HISTORY, ITEM, limit=40)
    values = [abs(value) for value in everybody.users.values()]
    assert values == sorted(values, reverse=True)
    few = model.influence(HISTORY, ITEM, limit=3)
    assert list(few.users) == list(everybody.users)[:3]
    assert len(few.events) == 3
    assert few.frame().columns == ["user", "item", "influence"]


def test_what_has_no_influence_is_refused():
    events = gr.Interactions.of(X)
    with pytest.raises(gr.errors.NotSupported, match="full-rank autoencoder; got IALS"):
        gr.IALS(rank=3, n_epochs=1).fit(events).influence(HISTORY, ITEM)
    with pytest.raises(gr.errors.NotSupported, match="histories"):
        gr.EASE(l2=5).fit_gram(gr.Gram.of(events)).influence(HISTORY, ITEM)
    with pytest.raises(gr.errors.InvalidInput, match="limit"):
        gr.EASE(l2=5).fit(events).influence(HISTORY, ITEM, limit=0)
    with pytest.raises(gr.errors.UnknownId):
        gr.EASE(l2=5).fit(events).influence(HISTORY, 99)
    assert gr.EASE(l2=5).fit(events).influence([], ITEM).users == {}
