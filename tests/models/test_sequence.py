"""SLIST and TALE, against regressions on explicit source and target rows."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import gramian as gr
import naive
from gramian.data.synthetic import clustered

RECIPES = [
    gr.SLIST(similarity_share=0.5, decay=2, l2=3),
    gr.SLIST(similarity_share=0, decay=7, l2=3),
    gr.SLIST(similarity_share=1, decay=7, l2=3),
    gr.TALE(time_scale=4, floor=0.3, l2=3),
    gr.TALE(time_scale=9, floor=0, l2=3),
    gr.TALE(time_scale=1e-3, floor=0.5, l2=3),
]


def make_events(weighted=False, seed=0):
    """25 users, 12 items, some equal times."""
    rng = np.random.default_rng(seed)
    x = (rng.random((25, 12)) < 0.4) * (rng.integers(1, 5, (25, 12)) / 2 if weighted else 1)
    x[:, 0] = 1
    events = gr.Interactions.of(x)
    return replace(events, times=rng.integers(0, 20, events.n_interactions))


def twin(recipe, events):
    if isinstance(recipe, gr.SLIST):
        return naive.slist(events, recipe.similarity_share, recipe.decay, recipe.l2)
    return naive.tale(events, recipe.time_scale, recipe.floor, recipe.l2)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_are_those_of_explicit_rows(recipe, weighted):
    events = make_events(weighted)
    np.testing.assert_allclose(recipe.fit(events, dtype="float64").weights(), twin(recipe, events), rtol=1e-7, atol=1e-9)


def test_similarity_alone_is_a_ridge_regression_of_each_history_on_itself():
    events = make_events()
    np.testing.assert_allclose(
        gr.SLIST(similarity_share=1, l2=3).fit(events, dtype="float64").weights(),
        gr.DLAE(dropout=0, l2=3).fit(events, dtype="float64").weights(),
        atol=1e-9,
    )


def test_an_endless_time_scale_or_a_floor_of_1_forgets_the_gaps():
    events = make_events()
    far = replace(events, times=events.times**2)
    for recipe in (gr.TALE(time_scale=1e12, l2=3), gr.TALE(floor=1 - 1e-12, l2=3)):
        near_weights, far_weights = (recipe.fit(e, dtype="float64").weights() for e in (events, far))
        np.testing.assert_allclose(near_weights, far_weights, atol=1e-8)


def test_order_matters_and_the_unit_of_time_does_not():
    events = make_events()
    seconds = replace(events, times=1_700_000_000 + 86_400 * events.times)
    dates = replace(events, times=seconds.times.astype("datetime64[s]"))
    recipe = gr.TALE(time_scale=4, l2=3)
    for other in (seconds, dates):
        np.testing.assert_allclose(recipe.fit(other).weights(), recipe.fit(events).weights(), atol=1e-6)
    backwards = replace(events, times=-events.times)
    assert not np.allclose(recipe.fit(backwards).weights(), recipe.fit(events).weights(), atol=1e-3)


def chain(n_users=30, n_items=8):
    """Every user walks from a random item to the next ones, one a day."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, n_items, n_users)
    rows = [(u, (s + day) % n_items, day) for u, s in enumerate(starts) for day in range(4)]
    return gr.Interactions.of(pl.DataFrame(rows, schema=["user", "item", "day"], orient="row"), time="day")


@pytest.mark.parametrize(
    "recipe", [gr.SLIST(decay=1, recency=1, similarity_share=0, l2=1), gr.TALE(time_scale=1, recency=1, l2=1)]
)
def test_the_next_item_of_a_chain_is_recommended(recipe, tmp_path):
    model = recipe.fit(chain())
    assert model.recommend_for([[2, 3]], k=1).items == [[4]]
    assert model.recommend_for([[4, 3]], k=5).items != model.recommend_for([[3, 4]], k=5).items
    model.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.recommend_for([[2, 3]], k=1).items == [[4]]
    user = model.users[0]
    assert loaded.recommend([user], k=2).items == model.recommend([user], k=2).items


def test_recency_weighs_histories_by_steps_back():
    events = chain()
    model = gr.TALE(recency=2, l2=1).fit(events)
    weights = list(model.history(model.users[0]).values())
    np.testing.assert_allclose(sorted(weights), np.exp(-np.arange(4)[::-1] / 2), rtol=1e-6)
    history = [5, 6, 7]
    by_list = model.recommend_for([history], k=3)
    by_weight = model.recommend_for([dict(zip(history, np.exp(-np.array([2, 1, 0]) / 2).tolist(), strict=True))], k=3)
    np.testing.assert_allclose(by_list.scores, by_weight.scores, rtol=1e-5)
    assert model.explain(history, by_list.items[0][0]).score == pytest.approx(by_list.scores[0][0], rel=1e-4)
    repeated = model.recommend_for([[7, 5, 6, 7]], k=3)
    np.testing.assert_allclose(repeated.scores, by_list.scores, rtol=1e-5)  # the last one counts


def test_evaluation_and_search_weigh_the_known_items_by_recency():
    made = clustered(80, 25, 900)
    events = replace(made, times=np.random.default_rng(0).permutation(made.n_interactions))
    split = gr.split.leave_last(events)
    recipe = gr.TALE(l2=5, recency=1.0)
    model = recipe.fit(split.train)
    value = gr.evaluate(model, split.validation, ["ndcg@5"])["ndcg@5"]
    search = gr.tune(gr.TALE, split.validation, {name: [v] for name, v in recipe.params.items()}, "ndcg@5")
    assert search.value == pytest.approx(value, abs=1e-9)
    steady = replace(recipe, recency=1e6)
    assert gr.evaluate(steady.fit(split.train), split.validation, ["ndcg@5"])["ndcg@5"] != value


def test_times_are_needed(refused):
    events = replace(make_events(), times=None)
    for recipe in (gr.SLIST(), gr.TALE()):
        with refused(mentioning="with times"):
            recipe.fit(events)
    with refused(mentioning="recency"):
        gr.TALE(recency=0)
    with refused(mentioning="decay"):
        gr.SLIST(decay=-1)
