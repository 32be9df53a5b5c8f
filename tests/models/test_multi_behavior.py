"""One kind of events predicted from all kinds, against n separate least-squares problems."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
import naive
from gramian.models.multi_behavior import DualWeights, KindWeights
from gramian.models.scorers import SymmetricWeights

KINDS = ("view", "cart", "buy")
SIZES = {"primal": (90, 12), "dual": (20, 12)}


def make_events(n_users=90, n_items=12, seed=0, kinds=KINDS):
    """Kinds that go together: purchases are mostly of carted items, and those of viewed ones."""
    rng = np.random.default_rng(seed)
    taste = rng.random((n_users, 2)) @ rng.random((2, n_items))
    parts = [rng.random((n_users, n_items)) < share * taste for share in np.linspace(0.8, 0.3, len(kinds))]
    rows = [
        pl.DataFrame({"user": u, "item": i}).with_columns(kind=pl.lit(kind))
        for kind, (u, i) in zip(kinds, (np.nonzero(part) for part in parts), strict=True)
    ]
    return gr.Interactions.of(pl.concat(rows), kind="kind", kinds=kinds)


def blocks(events):
    return [events.of_kind(kind).matrix.toarray().astype(float) for kind in events.kinds]


@pytest.mark.parametrize("form", SIZES)
@pytest.mark.parametrize("zero_diagonal_of", ["all", "target"])
@pytest.mark.parametrize(("l2", "other_l2", "other_target"), [(3.0, 7.0, 0), (0.5, 0.5, 0), (20.0, 1e6, 0), (3.0, 7.0, 0.4)])
def test_weights_are_those_of_separate_regressions(form, zero_diagonal_of, l2, other_l2, other_target):
    events = make_events(*SIZES[form])
    recipe = gr.MultiBehaviorEASE(l2=l2, other_l2=other_l2, zero_diagonal_of=zero_diagonal_of, other_target=other_target)
    model = recipe.fit(events, dtype="float64")
    assert type(model.scorer.inner) is {"primal": SymmetricWeights, "dual": DualWeights}[form]
    parts = blocks(events)
    w = naive.multi_behavior_ease(parts, l2, other_l2, zero_diagonal_of == "all", other_target)
    np.testing.assert_allclose(model.scores(events), np.hstack(parts) @ w, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", SIZES)
def test_one_kind_is_ease(form):
    events = make_events(*SIZES[form])
    buys = events.of_kind("buy").compact()
    expected = gr.EASE(l2=4).fit(buys, dtype="float64").scores(buys)
    for one in (buys, gr.Interactions.of(buys.frame().with_columns(kind=pl.lit("buy")), kind="kind", kinds=["buy"])):
        model = gr.MultiBehaviorEASE(l2=4).fit(one, dtype="float64")
        np.testing.assert_allclose(model.scores(one.reindex(buys.users, buys.items)), expected, rtol=1e-8, atol=1e-10)


def test_an_infinite_penalty_on_other_kinds_is_ease_of_the_target():
    events = make_events()
    model = gr.MultiBehaviorEASE(l2=4, other_l2=1e12).fit(events, dtype="float64")
    buys = events.of_kind("buy")
    np.testing.assert_allclose(model.scores(events), gr.EASE(l2=4).fit(buys, dtype="float64").scores(buys), atol=1e-8)


def test_both_forms_are_the_same_model():
    """20 users make the dual form; the same users five times over, with a penalty five times as high, the primal one."""
    events = make_events(*SIZES["dual"])
    copies = events
    for number in range(1, 5):
        table = events.frame().with_columns(user_id=pl.col("user_id") + 100 * number)
        copies = copies.join(gr.Interactions.of(table, kind="kind", kinds=KINDS))
    dual = gr.MultiBehaviorEASE(l2=2, other_l2=3).fit(events, dtype="float64")
    primal = gr.MultiBehaviorEASE(l2=10, other_l2=15).fit(copies, dtype="float64")
    assert (type(dual.scorer.inner), type(primal.scorer.inner)) == (DualWeights, SymmetricWeights)
    np.testing.assert_allclose(primal.scores(events), dual.scores(events.reindex(events.users, primal.catalog.ids)), atol=1e-9)


@pytest.mark.parametrize("form", SIZES)
def test_it_recommends_explains_saves_and_loads(form, tmp_path):
    events = make_events(*SIZES[form])
    model = gr.MultiBehaviorEASE(l2=2, other_l2=5).fit(events)
    user = events.users.tolist()[0]
    history = model.history(user)
    assert all(set(kinds) <= set(KINDS) for kinds in history.values())
    lists = model.recommend([user], k=4)
    assert model.recommend_for([history], k=4).items == lists.items
    assert not set(lists.items[0]) & set(history)
    item, score = lists.items[0][0], lists.scores[0][0]
    why = model.explain(history, item)
    assert why.score == pytest.approx(score, rel=1e-4, abs=1e-5)
    for seen, value in why.items():
        assert sum(why.by_kind[seen].values()) == pytest.approx(value, abs=1e-6)
        assert tuple(why.by_kind[seen]) == history[seen]
    assert {f"by {kind}" for kinds in history.values() for kind in kinds} <= set(why.frame().columns)
    assert str(history[next(iter(why))][0]) in repr(why)
    model.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert (loaded.recommend([user], k=4).items, loaded.history(user)) == (lists.items, history)
    assert loaded.histories.kinds == KINDS
    assert loaded.scorer.kinds == KINDS


def test_a_history_names_kinds_and_a_plain_list_is_of_the_target_kind():
    model = gr.MultiBehaviorEASE(l2=2).fit(make_events())
    items = model.items[:3]
    plain, named = model.recommend_for([items]), model.recommend_for([dict.fromkeys(items, "buy")])
    assert plain.scores == named.scores
    several = model.recommend_for([{items[0]: ["view", "buy"], items[1]: "cart"}])
    assert several.scores != plain.scores
    bought = gr.Interactions.of(pl.DataFrame({"user": ["new"] * 3, "item": items}))
    assert model.recommend_for(bought).scores == plain.scores


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
def test_it_evaluates_and_tunes_with_kinds():
    events = make_events(200, 20)
    split = gr.split.strong(events, test_users=40, validation_users=40)
    search = gr.tune(gr.MultiBehaviorEASE, split.validation, {"l2": [1, 10], "other_l2": [1, 10, 1e9]}, "ndcg@5")
    report = gr.evaluate(search.fit(split.train), split, ["ndcg@5"])
    assert 0 < report["ndcg@5"] <= 1


def test_bad_kinds_of_a_history_are_refused(refused):
    model = gr.MultiBehaviorEASE(l2=2).fit(make_events())
    item = model.items[0]
    for kinds in ("sell", [], 3, None, ["view", "sell"], 1.0):
        with refused(mentioning="view, cart, buy"):
            model.recommend_for([{item: kinds}])
    other = make_events(kinds=("look", "cart", "buy"))
    with refused(mentioning="same kinds"):
        model.recommend_for(other)
    with refused(mentioning="dislikes"):
        gr.MultiBehaviorEASE().fit(gr.Interactions.of(np.array([[1, -1]]), signed=True))


def test_a_damaged_scorer_is_refused():
    for size in SIZES.values():
        facts, arrays = gr.MultiBehaviorEASE(l2=2).fit(make_events(*size)).scorer.save()
        for damaged in ({"kinds": "view"}, {"kinds": []}, {"kinds": ["view"] * 5}, {"scorer": "sum"}):
            with pytest.raises(gr.errors.DamagedFile):
                KindWeights.load(facts | damaged, arrays)
