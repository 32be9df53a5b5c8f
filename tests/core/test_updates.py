"""Users in and out of a fitted model, exactly: always compared with fitting again."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.models import full_rank

pytestmark = pytest.mark.filterwarnings("ignore::gramian.errors.RefitWarning")  # refitting small models is cheaper
RECIPES = [
    gr.EASE(l2=5),
    gr.DLAE(dropout=0.4, l2=5),
    gr.EDLAE(dropout=0.4, l2=5),
    gr.DEQL(dropout=0.4, kept_weight=0.7, l2=5),
    gr.DEQL(dropout=0.4, kept_weight=1.8, l2=5),
    gr.RDLAE(dropout=0.4, max_diagonal=0.3, l2=5),
    gr.DebiasedEASE(alpha=0.3, l2=5),
    gr.Popularity(),
]
over = pytest.mark.parametrize("recipe", RECIPES, ids=str)


def events(n_users=120, n_items=40, n_interactions=1_500, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    table = pl.DataFrame(
        {
            "user": [f"u{u}" for u in rng.integers(n_users, size=n_interactions)],
            "item": [f"i{i:03}" for i in (n_items * rng.random(n_interactions) ** 2).astype(int)],
            "count": rng.integers(1, 4, n_interactions),
        }
    )
    return gr.Interactions.of(table, value="count" if weighted else None)


def assert_same(model, other):
    assert model.items == other.items
    assert model.users == other.users
    assert model.recipe == other.recipe
    assert model.histories.fingerprint == other.histories.fingerprint
    for name, array in other.scorer.save()[1].items():
        np.testing.assert_allclose(model.scorer.save()[1][name], array, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("recipe", "weighted"),
    [(r, w) for r in RECIPES for w in (False, True) if not (w and isinstance(r, gr.DebiasedEASE))],
    ids=str,
)
def test_forgetting_equals_fitting_without(recipe, weighted):
    everyone = events(weighted=weighted)
    model = recipe.fit(everyone, dtype="float64")
    kept = model.scorer.save()[1]
    before = {name: array.copy() for name, array in kept.items()}
    gone = ["u3", "u77", "u5"]
    rest = np.flatnonzero([user not in gone for user in everyone.users.tolist()])
    assert_same(model.forget_users(gone), recipe.fit(everyone.take(rest), dtype="float64"))
    assert all(np.array_equal(kept[name], before[name]) for name in before)
    assert model.users == everyone.users.tolist()


@over
@pytest.mark.parametrize("n_new_items", [0, 1, 700])
def test_adding_equals_fitting_with(recipe, n_new_items, monkeypatch):
    monkeypatch.setattr(full_rank, "REFIT_SHARE", 10)  # even where refitting is cheaper
    old, new = events(), events(20, 40 + n_new_items, 150 + 2 * n_new_items, seed=1)
    new = gr.Interactions.of(new.frame().with_columns(user_id="new " + pl.col("user_id")).drop("value"))
    model = recipe.fit(old, dtype="float64").add_users(new)
    assert model.histories.n_users == old.n_users + new.n_users
    assert model.items[: old.n_items] == old.items.tolist()
    assert set(model.items) == {*old.items.tolist(), *new.items.tolist()}
    assert_same(model, recipe.fit(old.join(new), dtype="float64"))


@over
def test_adding_and_forgetting_is_coming_back(recipe):
    old, new = events(), events(5, 30, 40, seed=1)
    new = gr.Interactions.of(new.frame().with_columns(user_id="new " + pl.col("user_id")).drop("value"))
    model = recipe.fit(old, dtype="float64")
    assert_same(model.add_users(new).forget_users(new.users.tolist()), model)


@pytest.mark.parametrize("recipe", RECIPES[:4], ids=str)
@pytest.mark.parametrize("batch", [1, 7, 512])
def test_batches_do_not_matter(recipe, batch, monkeypatch):
    everyone = events()
    model = recipe.fit(everyone, dtype="float64")
    monkeypatch.setattr(full_rank, "ROWS_PER_UPDATE", batch)
    monkeypatch.setattr(full_rank, "REFIT_SHARE", 1_000)
    gone = everyone.users.tolist()[:30]
    assert_same(model.forget_users(gone), recipe.fit(everyone.take(np.arange(30, everyone.n_users)), dtype="float64"))


def test_nothing_of_a_forgotten_user_is_left_on_the_disk(tmp_path):
    everyone = events()
    recipe = gr.EDLAE(dropout=0.4, l2=5)
    recipe.fit(everyone).forget_users(["u3"]).save(tmp_path / "forgotten")
    rest = np.flatnonzero([user != "u3" for user in everyone.users.tolist()])
    recipe.fit(everyone.take(rest)).save(tmp_path / "refitted")
    assert (tmp_path / "forgotten" / "ids.json").read_bytes() == (tmp_path / "refitted" / "ids.json").read_bytes()
    assert b'"u3"' not in (tmp_path / "forgotten" / "ids.json").read_bytes()
    forgotten, refitted = gr.load(tmp_path / "forgotten"), gr.load(tmp_path / "refitted")
    np.testing.assert_allclose(forgotten.weights(), refitted.weights(), atol=1e-6)
    assert forgotten.histories.fingerprint == refitted.histories.fingerprint


def test_a_loaded_model_learns_and_forgets(tmp_path):
    everyone = events()
    gr.EASE(l2=5).fit(everyone, dtype="float64").save(tmp_path / "model")
    rest = np.flatnonzero([user != "u3" for user in everyone.users.tolist()])
    model = gr.load(tmp_path / "model").forget_users(["u3"])
    assert_same(model, gr.EASE(l2=5).fit(everyone.take(rest), dtype="float64"))


@pytest.mark.parametrize("recipe", [gr.EASE(l2=5), gr.EDLAE(dropout=0.4, l2=5)], ids=str)
def test_large_changes_are_refitted(recipe, monkeypatch):
    everyone = events()
    model = recipe.fit(everyone)
    monkeypatch.setattr(full_rank, "update_inverse", lambda *_: pytest.fail("updated"))
    rest = everyone.take(np.arange(60, everyone.n_users))
    assert np.array_equal(model.forget_users(everyone.users.tolist()[:60]).weights(), recipe.fit(rest).weights())


def test_an_item_that_nobody_is_left_for_is_no_trouble_without_l2():
    table = pl.DataFrame({"user": [1, 1, 2, 2, 3, 3, 4], "item": ["a", "b", "a", "b", "b", "c", "b"]})
    everyone = gr.Interactions.of(table)
    recipe = gr.EDLAE(dropout=0.3, l2=0)
    expected = recipe.fit(everyone.take(np.array([0, 1, 3])), dtype="float64")
    assert_same(recipe.fit(everyone, dtype="float64").forget_users([3]), expected)


def test_an_update_that_drifted_is_refitted(monkeypatch):
    everyone = events()
    model = gr.EASE(l2=5).fit(everyone)
    original = full_rank.update_inverse

    def spoiled(inverse, *change):
        original(inverse, *change)
        inverse.buffer *= 1.1

    monkeypatch.setattr(full_rank, "update_inverse", spoiled)
    rest = np.flatnonzero([user != "u3" for user in everyone.users.tolist()])
    with pytest.warns(gr.errors.PrecisionWarning, match="Fitting again"):
        found = model.forget_users(["u3"])
    assert np.array_equal(found.weights(), gr.EASE(l2=5).fit(everyone.take(rest)).weights())


def test_updates_in_float32_stay_close():
    everyone = clustered(2_000, 600, 30_000)
    recipe = gr.EDLAE(dropout=0.3, l2=20)
    gone = everyone.users.tolist()[:5]
    found = recipe.fit(everyone).forget_users(gone)
    rest = recipe.fit(everyone.take(np.arange(5, everyone.n_users)))
    np.testing.assert_allclose(found.weights(), rest.weights(), atol=1e-6)


def test_bad_changes_are_refused():
    everyone = events()
    model = gr.EASE(l2=5).fit(everyone)
    with pytest.raises(gr.errors.InvalidInput, match=r"users the model does not know; got 'u0'"):
        model.add_users(everyone)
    with pytest.raises(gr.errors.InvalidInput, match="Wrap it"):
        model.add_users([("new", "i000")])
    with pytest.raises(gr.errors.UnknownId, match="nobody"):
        model.forget_users(["nobody"])
    with pytest.raises(gr.errors.InvalidInput, match="Delete the model"):
        model.forget_users(everyone.users.tolist())
    weighted = gr.Interactions.of(pl.DataFrame({"user": ["new"], "item": ["i000"], "count": [3]}), value="count")
    with pytest.raises(gr.errors.InvalidInput, match="0/1"):
        gr.DebiasedEASE(alpha=0.3, l2=5).fit(everyone).add_users(weighted)


def test_titles_and_times_come_along():
    table = pl.DataFrame({"user": [1, 2], "item": ["a", "b"], "at": [5, 6], "title": ["A", "B"]})
    more = pl.DataFrame({"user": [3], "item": ["c"], "at": [7], "title": ["C"]})
    old, new = (gr.Interactions.of(part, time="at", title="title") for part in (table, more))
    both = old.join(new)
    assert both.titles == ["A", "B", "C"]
    assert both.times.tolist() == [5, 6, 7]
    assert old.join(gr.Interactions.of(more)).titles == ["A", "B", "c"]


# Recipes that are one model


@pytest.mark.parametrize(
    ("recipe", "canonical", "factor"),
    [
        (gr.EASE(7), gr.EASE(7), 1),
        (gr.EDLAE(0, 7), gr.EASE(7), 1),
        (gr.EDLAE(0.3, 7), gr.EDLAE(0.3, 7), 1),
        (gr.DEQL(0.3, 0, 7), gr.EDLAE(0.3, 7), 1),
        (gr.DEQL(0, 0, 7), gr.EASE(7), 1),
        (gr.DEQL(0.3, 1.7, 7, zero_diagonal=True), gr.EDLAE(0.3, 7), 1),
        (gr.DEQL(0, 1.7, 7, zero_diagonal=True), gr.EASE(7), 1),
        (gr.DEQL(0.3, 1, 7), gr.DLAE(0.3, 7), 1 / 0.7),
        (gr.DEQL(0, 1.7, 7), gr.DLAE(0, 7), 1),
        (gr.RDLAE(0.3, 0, 7), gr.EDLAE(0.3, 7), 0.7),
        (gr.RDLAE(0, 0, 7), gr.EASE(7), 1),
        (gr.RDLAE(0.3, 1, 7), gr.DLAE(0.3, 7), 1),
        (gr.RDLAE(0.3, 0.5, 7), gr.RDLAE(0.3, 0.5, 7), 1),
        (gr.DebiasedEASE(0.25, 9), gr.EASE(12), 4 / 3),
        (gr.DEQL(0.3, 0.5, 7), gr.DEQL(0.3, 0.5, 7), 1),
        (gr.Popularity(), gr.Popularity(), 1),
    ],
    ids=str,
)
def test_a_canonical_recipe_is_the_same_model(recipe, canonical, factor):
    assert recipe.canonical() == canonical
    assert canonical.canonical() == canonical
    assert gr.equivalent(recipe, canonical)
    data = events()
    ours, theirs = (r.fit(data, dtype="float64").scores(data) for r in (recipe, canonical))
    np.testing.assert_allclose(ours, factor * theirs, rtol=1e-9, atol=1e-9)


def test_different_models_are_not_equivalent():
    different = [
        gr.EASE(7),
        gr.EASE(8),
        gr.EDLAE(0.3, 7),
        gr.DLAE(0.3, 7),
        gr.DLAE(0, 7),
        gr.DEQL(0.3, 0.5, 7),
        gr.Popularity(),
    ]
    for i, one in enumerate(different):
        for j, other in enumerate(different):
            assert gr.equivalent(one, other) == (i == j)
    with pytest.raises(gr.errors.InvalidInput, match="two recipes"):
        gr.equivalent(gr.EASE(7), "EASE")
