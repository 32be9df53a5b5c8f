"""Events into a fitted model: compared with fitting again, and with the definition in loops."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.models import als, full_rank

EXACT = [
    gr.EASE(l2=5),
    gr.DLAE(dropout=0.4, l2=5),
    gr.EDLAE(dropout=0.4, l2=5),
    gr.DEQL(dropout=0.4, kept_weight=0.7, l2=5),
    gr.RDLAE(dropout=0.4, max_diagonal=0.3, l2=5),
    gr.DebiasedEASE(alpha=0.3, l2=5),
    gr.DAN(dropout=0.2, l2=5),
    gr.Popularity(),
]
over_exact = pytest.mark.parametrize("recipe", EXACT, ids=str)


def table(n_users, n_items, n_rows, seed, prefix="u"):
    rng = np.random.default_rng(seed)
    users, items = rng.integers(n_users, size=n_rows), (n_items * rng.random(n_rows) ** 2).astype(int)
    return pl.DataFrame(
        {
            "user": [f"{prefix}{user}" for user in users],
            "item": [f"i{item:03}" for item in items],
            "count": rng.integers(1, 4, n_rows),
        }
    )


OLD = table(120, 40, 1_500, 0)
NEW = pl.concat([table(8, 43, 30, 1), table(4, 43, 20, 2, prefix="new ")])  # of known and new users, on known and new items


def read(frame, weighted=False):
    return gr.Interactions.of(frame, value="count" if weighted else None)


def in_order_of(model, events):
    """The same events with the users and items of a model, in its order."""
    return events.reindex(model.histories.users, model.histories.items)


def assert_equals_refit(model, events, tolerance=1e-9):
    refit = model.recipe.fit(in_order_of(model, events), dtype="float64")
    assert set(model.users) == set(events.users.tolist())
    assert set(model.items) == set(events.items.tolist())
    for name, array in refit.scorer.save()[1].items():
        np.testing.assert_allclose(model.scorer.save()[1][name], array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("recipe", "weighted"),
    [(recipe, weighted) for recipe in EXACT for weighted in (False, True) if not (weighted and recipe.needs_binary)],
    ids=str,
)
def test_observing_equals_fitting_on_all_events(recipe, weighted, monkeypatch):
    monkeypatch.setattr(full_rank, "REFIT_SHARE", 10)  # even where refitting is cheaper
    model = recipe.fit(read(OLD, weighted), dtype="float64")
    before = {name: array.copy() for name, array in model.scorer.save()[1].items()}
    observed = model.observe(read(NEW, weighted))
    assert_equals_refit(observed, read(pl.concat([OLD, NEW]), weighted))
    assert all(np.array_equal(array, before[name]) for name, array in model.scorer.save()[1].items())
    assert observed.users[: len(model.users)] == model.users
    assert observed.items[: len(model.items)] == model.items


def test_ease_after_events_is_its_definition_in_loops(monkeypatch):
    monkeypatch.setattr(full_rank, "REFIT_SHARE", 10)
    observed = gr.EASE(l2=5).fit(read(OLD), dtype="float64").observe(read(NEW))
    pairs = set(zip(*(pl.concat([OLD, NEW])[name].to_list() for name in ("user", "item")), strict=True))
    users, items = sorted({u for u, _ in pairs}), observed.items
    gram = 5 * np.eye(len(items))
    for user in users:
        touched = [items.index(item) for other, item in pairs if other == user]
        for i in touched:
            for j in touched:
                gram[i, j] += 1
    inverse = np.linalg.inv(gram)
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(observed.weights(), expected, atol=1e-10)


@over_exact
def test_one_event_at_a_time_is_all_events_at_once(recipe, monkeypatch):
    monkeypatch.setattr(full_rank, "REFIT_SHARE", 10)
    start = recipe.fit(read(OLD), dtype="float64")
    at_once, one_by_one = start.observe(read(NEW[:8])), start
    for row in range(8):
        one_by_one = one_by_one.observe(read(NEW[row : row + 1]))
    assert_equals_refit(one_by_one, at_once.histories)


@over_exact
def test_events_that_are_known_change_nothing(recipe):
    model = recipe.fit(read(OLD), dtype="float64")
    again = model.observe(read(OLD[:50]))
    assert again.histories.fingerprint == model.histories.fingerprint
    assert all(np.array_equal(array, model.scorer.save()[1][name]) for name, array in again.scorer.save()[1].items())


def test_few_events_of_a_long_history_cost_few_rows(monkeypatch):
    ranks = []
    original = full_rank.update_inverse

    def count_rows(inverse, rows, core):
        ranks.append(rows.shape[0])
        original(inverse, rows, core)

    monkeypatch.setattr(full_rank, "update_inverse", count_rows)
    history = pl.DataFrame({"user": ["u3"] * 30, "item": [f"i{item:03}" for item in range(30)]})
    events = read(pl.concat([OLD.filter(pl.col("user") != "u3").drop("count"), history]))
    new = read(pl.DataFrame({"user": ["u3", "u3"], "item": ["i035", "i036"]}))
    for recipe in (gr.EASE(l2=5), gr.EDLAE(dropout=0.4, l2=5)):
        recipe.fit(events, dtype="float64").observe(new)
    assert ranks[0] == 2  # the old row and the new one
    assert ranks[1] <= 4  # and with dropout the two items


def test_a_large_change_is_refitted_and_says_so(monkeypatch):
    model = gr.EASE(l2=5).fit(read(OLD))
    monkeypatch.setattr(full_rank, "update_inverse", lambda *_: pytest.fail("updated"))
    with pytest.warns(gr.errors.RefitWarning, match=r"rank \d+ for 43 items. Fitting again"):
        observed = model.observe(read(NEW.vstack(table(120, 43, 200, 5))))
    assert np.array_equal(observed.weights(), gr.EASE(l2=5).fit(observed.histories).weights())


@pytest.mark.parametrize(
    "recipe", [recipe for recipe in EXACT if not recipe.needs_binary and recipe != gr.Popularity()], ids=str
)
def test_decay_equals_fitting_on_faded_weights(recipe, monkeypatch):
    monkeypatch.setattr(full_rank, "REFIT_SHARE", 10)
    model = recipe.fit(read(OLD, weighted=True), dtype="float64").observe(read(NEW, weighted=True), decay=0.8)
    model = model.observe(read(NEW[:5], weighted=True), decay=0.9)
    assert model.recipe.l2 == pytest.approx(recipe.l2 * 0.72**2)
    expected = (
        read(OLD, weighted=True).scaled(0.8).merge(read(NEW, weighted=True)).scaled(0.9).merge(read(NEW[:5], weighted=True))
    )
    assert_equals_refit(model, expected, 1e-6)  # weights are float32, and so rounded when they fade


def test_fading_alone_changes_no_list():
    model = gr.EDLAE(dropout=0.3, l2=5).fit(read(OLD, weighted=True), dtype="float64")
    faded = model.observe(read(NEW[:1], weighted=True), decay=1e-3)
    half = model.observe(read(NEW[:1], weighted=True), decay=0.5)
    np.testing.assert_allclose(model._fade(0.5).weights(), model.weights(), atol=1e-12)
    assert not np.allclose(faded.weights(), half.weights(), atol=1e-3)  # the younger event weighs more in the first


def test_rg2_after_events_has_the_residuals_of_a_fit():
    events = clustered(3_000, 1_800, 60_000)
    old, late = events.take(np.arange(2_990)), events.take(np.arange(2_960, 3_000))
    recipe = gr.RG2(rank=8, l2=0.05)
    observed, refit = recipe.fit(old).observe(late), recipe.fit(old.merge(late))
    assert observed.scorer.fixed.factors.shape == refit.scorer.fixed.factors.shape
    some = events.take(np.arange(0, 3_000, 100))
    found, expected = observed.scores(some), refit.scores(some)
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)


def test_rg2_refits_where_too_much_changes():
    with pytest.warns(gr.errors.RefitWarning, match="eigenpairs"):
        gr.RG2(rank=4, l2=0.05).fit(read(OLD)).observe(read(NEW))


@pytest.mark.parametrize("is_refreshed", [True, False])
def test_ials_solves_for_users_and_items_as_its_definition_in_loops(is_refreshed, monkeypatch):
    monkeypatch.setattr(als, "REFRESH_TOLERANCE", 0)
    monkeypatch.setattr(als, "REFRESH_SAMPLE", 3 if is_refreshed else 0)
    recipe, alpha = gr.IALS(rank=4, n_epochs=8, l2=0.02, unobserved_weight=0.2), 0.2
    old, new = read(OLD), read(NEW[:6])
    model = recipe.fit(old, dtype="float64")
    observed = model.observe(new)
    x = observed.histories.matrix.toarray()
    items = np.concatenate([model.scorer.fixed.factors, np.zeros((x.shape[1] - old.n_items, 4))])
    users = recipe.scorer_of_items(items).fixed.factors  # in the basis of the scorer
    items = users.copy()
    users = solve_rows(x, items, alpha, 0.02 * (x.sum(axis=1) + alpha * x.shape[1]))
    solved = solve_rows(x.T, users, alpha, 0.02 * (x.sum(axis=0) + alpha * x.shape[0]))
    is_changed = np.ones(len(items), bool)
    if not is_refreshed:
        before = np.zeros_like(x)
        before[: old.n_users, : old.n_items] = old.matrix.toarray()
        is_changed = x[(x != before).any(axis=1)].any(axis=0)
    items[is_changed] = solved[is_changed]
    expected = solve_rows(x, items, alpha, 0.02 * (x.sum(axis=1) + alpha * x.shape[1])) @ items.T
    np.testing.assert_allclose(observed.scores(observed.histories), expected, atol=1e-8)


def solve_rows(x, fixed, alpha, ridges):
    """Minimise every row's loss of iALS with the other side fixed."""
    vectors = []
    for row, ridge in zip(x, ridges, strict=True):
        touched = fixed[row > 0]
        system = alpha * fixed.T @ fixed + touched.T @ touched + ridge * np.eye(fixed.shape[1])
        vectors.append(np.linalg.solve(system, touched.sum(axis=0)))
    return np.array(vectors)


@pytest.mark.parametrize(
    "recipe",
    [gr.WRMF(rank=4, n_epochs=40), gr.RG2ALS(rank=4, l2=0.1, n_epochs=40), gr.DebiasedIALS(rank=4, n_epochs=40)],
    ids=str,
)
def test_alternating_models_come_close_to_a_refit(recipe):
    events = clustered(400, 60, 6_000, n_tastes=5)
    observed = recipe.fit(events.take(np.arange(395))).observe(events.take(np.arange(390, 400)))
    refit = recipe.fit(observed.histories)
    found, expected = (model.scores(observed.histories) for model in (observed, refit))
    assert np.linalg.norm(found - expected) < 0.15 * np.linalg.norm(expected)


def test_what_cannot_learn_events_is_refused_with_the_reason():
    old, new = read(OLD), read(NEW)
    with pytest.raises(gr.errors.NotSupported, match=r"full-rank autoencoder or Popularity, RG2 .*; got LRR. Fit it again"):
        gr.LRR(rank=4, l2=5).fit(old).observe(new)
    with pytest.raises(gr.errors.NotSupported, match="IALS, which learns events but cannot forget"):
        gr.IALS(rank=4, n_epochs=1).fit(old).forget_users(["u3"])
    with pytest.raises(gr.errors.NotSupported, match="histories"):
        gr.EASE(l2=5).fit_gram(gr.Gram.of(old)).observe(new)
    with pytest.raises(gr.errors.NotSupported, match="Popularity, which fading weights change"):
        gr.Popularity().fit(old).observe(new, decay=0.5)
    with pytest.raises(gr.errors.InvalidInput, match="0/1"):
        gr.DebiasedEASE(alpha=0.3, l2=5).fit(old).observe(new, decay=0.5)
    for decay in (0, -1, 1.1, float("nan"), "half"):
        with pytest.raises(gr.errors.InvalidInput, match="decay above 0"):
            gr.EASE(l2=5).fit(old).observe(new, decay=decay)
    with pytest.raises(gr.errors.InvalidInput, match="Wrap it"):
        gr.EASE(l2=5).fit(old).observe([("u3", "i000")])
    numbers = gr.Interactions.of(pl.DataFrame({"user": [1], "item": [2]}))
    with pytest.raises(gr.errors.InvalidInput, match="one type"):
        gr.EASE(l2=5).fit(old).observe(numbers)


def test_merging_adds_weights_and_keeps_the_latest_time():
    first = pl.DataFrame({"user": [1, 1, 2], "item": ["a", "b", "b"], "count": [1, 2, 3], "at": [5, 9, 7]})
    second = pl.DataFrame({"user": [3, 1, 1], "item": ["c", "b", "a"], "count": [4, 5, 6], "at": [1, 8, 6]})
    merged, at_once = (
        gr.Interactions.of(first, value="count", time="at").merge(gr.Interactions.of(second, value="count", time="at")),
        gr.Interactions.of(pl.concat([first, second]), value="count", time="at"),
    )
    assert merged.fingerprint == at_once.fingerprint
    assert merged.times.tolist() == at_once.times.tolist() == [6, 9, 7, 1]
    huge = gr.Interactions.of(pl.DataFrame({"user": [1], "item": ["a"], "count": [3e38]}), value="count")
    with pytest.raises(gr.errors.InvalidInput, match="finite"):
        huge.merge(huge)
