"""Fitted factor models: explanations, files, links of one graph, and bad input."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.data.ids import Index
from models.factor_cases import CASES, EVENTS, WEIGHTS, X, movie_split

# serving


@pytest.mark.parametrize("recipe", [gr.RG2(rank=5, l2=0.1), *(recipe for recipe, _ in CASES)], ids=str)
def test_explanations_add_up_and_models_survive_saving(recipe, tmp_path):
    model = recipe.fit(EVENTS)
    history = [item for item, weight in zip(EVENTS.items.tolist(), X[4], strict=True) if weight]
    scores = model.scores(EVENTS)[4]
    for item in (0, 7):
        why = model.explain(history, EVENTS.items[item])
        assert set(why) == set(history)
        assert why.score == pytest.approx(scores[item], abs=1e-4 * float(np.abs(scores).max()))
    assert not model.explain(["unknown"], EVENTS.items[3])
    model.save(tmp_path / "m")
    again = gr.load(tmp_path / "m")
    assert again.recipe == recipe
    assert np.array_equal(again.scores(EVENTS), model.scores(EVENTS))
    users, items = again.factors()
    np.testing.assert_allclose(users @ items.T, model.scores(EVENTS), atol=1e-5 * np.abs(scores).max())
    known, stranger = again.recommend([EVENTS.users[4]], k=4), again.recommend_for([history], k=4)
    assert known.items == stranger.items
    cosine = items @ items[2] / np.linalg.norm(items, axis=1) / np.linalg.norm(items[2])
    cosine[2] = -1
    assert again.similar_items(EVENTS.items[2], k=1).items[0] == [EVENTS.items[int(np.argmax(cosine))]]


def test_factors_go_to_files_of_items_and_of_users(tmp_path, refused):
    model = gr.RG2(rank=3, l2=0.1).fit(EVENTS)
    users, items = model.factors()
    model.factors_to(tmp_path / "items.parquet")
    model.factors_to(tmp_path / "users.parquet", of="users")
    model.factors_to(tmp_path / "users.npy", of="users")
    assert np.array_equal(np.array(pl.read_parquet(tmp_path / "items.parquet")["vector"].to_list(), np.float32), items)
    found = pl.read_parquet(tmp_path / "users.parquet")
    assert found["user"].to_list() == model.users
    assert np.array_equal(np.array(found["vector"].to_list(), np.float32), users)
    assert np.array_equal(np.load(tmp_path / "users.npy"), users)
    low = gr.LRR(rank=3).fit(EVENTS)
    low.factors_to(tmp_path / "low.npy", of="users")
    np.testing.assert_allclose(np.load(tmp_path / "low.npy"), X @ low.factors()[0], rtol=1e-5, atol=1e-6)
    with refused(mentioning="users"):
        model.factors_to(tmp_path / "x.npy", of="both")


def test_vectors_that_are_not_finite_are_not_saved(tmp_path):
    model = gr.IALS(rank=3, n_epochs=1).fit(EVENTS)
    model.scorer.fixed.factors[2, 1] = np.nan
    with pytest.raises(gr.errors.Inaccurate, match="finite"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "change", [{"shared": [1]}, {"l2": "x"}, {"pull": [0, 1, 2, float("inf")]}, {"binary": 3}, {"more": 1}]
)
def test_a_loss_that_is_not_one_is_not_loaded(change, tmp_path):
    model = gr.IALS(rank=3, n_epochs=1).fit(EVENTS)
    facts, arrays = model.scorer.save()
    model.scorer.save = lambda: ({"rule": facts["rule"] | change}, arrays)
    model.save(tmp_path / "m")
    with pytest.raises(gr.errors.DamagedFile):
        gr.load(tmp_path / "m")


def test_weights_in_a_history_count_as_one_where_the_loss_is_for_binary_data():
    model = gr.RG2ALS(rank=4, negative_weight=2, l2=0.1).fit(EVENTS)
    assert model.recommend_for([{3: 5.0, 4: 2.0}], k=3).items == model.recommend_for([[3, 4]], k=3).items
    assert model.explain({3: 5.0, 4: 2.0}, 7) == model.explain([3, 4], 7)


# links of one graph


def graph():
    near = np.abs(np.subtract.outer(np.arange(40), np.arange(40))) % 37 < 4
    links = near & (np.random.default_rng(7).random((40, 40)) < 0.8)
    left, right = np.nonzero(links)
    return gr.Interactions.of(pl.DataFrame({"user": left, "item": right}))


def test_nobody_is_linked_to_themselves(tmp_path):
    parts = gr.split.weak(graph(), seed=0)
    model = gr.RG2(rank=8, l2=0.02).fit(parts.train)
    lists = model.recommend(model.users, k=5, exclude_self=True)
    assert all(user not in row for user, row in zip(lists.users, lists.items, strict=True))
    open_lists = model.recommend(model.users, k=5)
    assert any(user in row for user, row in zip(open_lists.users, open_lists.items, strict=True))
    model.recommend_to(tmp_path / "links.parquet", k=5, exclude_self=True)
    written = pl.read_parquet(tmp_path / "links.parquet")
    assert written.filter(pl.col("user") == pl.col("item")).is_empty()
    assert written["item"].to_list() == [item for row in lists.items for item in row]


def test_map_of_links_without_self_links():
    events = graph()
    parts = gr.split.weak(events, seed=0)
    model = gr.RG2(rank=8, l2=0.02).fit(parts.train)
    report = gr.evaluate(model, parts, ["map@10", "mrr@10"], exclude_self=True)
    parts = parts.without_self_links()
    assert len(report.users) == parts.target.n_users
    for at, user in enumerate(report.users[:10]):
        known = {events.items.tolist()[c] for c in parts.fold_in.matrix[[at]].indices}
        wanted = {parts.target.items.tolist()[c] for c in parts.target.matrix[[at]].indices}
        row = parts.fold_in.take(np.array([at])).reindex(Index([user]), parts.train.items)
        scores = dict(zip(model.items, model.scores(row)[0], strict=True))
        ranked = sorted((i for i in scores if i not in known and i != user), key=lambda i: -scores[i])[:10]
        hits = [rank for rank, item in enumerate(ranked, start=1) if item in wanted]
        expected = sum((n + 1) / rank for n, rank in enumerate(hits)) / min(10, len(wanted))
        assert report.per_user["map@10"][at] == pytest.approx(expected)


def test_a_stranger_to_all_gets_popular_links_without_the_own():
    events = graph()
    (popular,) = gr.Popularity().fit(events).recommend_for([[]], k=1).items[0]
    model = gr.RG2(rank=4, l2=0.02).fit(events.reindex(Index([*events.users.tolist(), 99]), events.items))
    assert model.recommend([99], k=3, exclude_self=True).items[0][0] == popular
    alone_there = events.keep(events.rows != events.users.tolist().index(popular))
    assert popular not in gr.RG2(rank=4, l2=0.02).fit(alone_there).recommend([popular], k=3, exclude_self=True).items[0]


# bad input


def test_bad_input_names_the_parameter_and_a_value_that_works(refused):
    with refused(mentioning="Choose rank=29 or less"):
        gr.RG2(rank=30).fit(EVENTS)
    for kind in (gr.IALS, gr.WRMF, gr.DebiasedIALS, gr.RG2ALS, gr.RGX, gr.RG2NewtonCG):
        with refused(mentioning="Choose rank=29 or less"):
            kind(rank=30).fit(EVENTS)
        assert kind(rank=29, n_epochs=1).fit(EVENTS)
    with refused(mentioning="Choose at most 15"):
        gr.RGX(rank=4, negative_weight=0.5, interaction=16).fit(EVENTS)
    assert gr.RGX(rank=4, negative_weight=0.5, interaction=15).fit(EVENTS)
    with refused(mentioning="negative_weight=1"):
        gr.RGX(form="exact", negative_weight=0.5)
    with refused(mentioning="interaction of at most 1"):
        gr.RGX(form="exact", interaction=1.5)
    with refused(mentioning="same"):
        gr.RG2(rank=2).fit(gr.Interactions.of(np.ones((4, 4))))
    with refused(mentioning="rank"):
        gr.IALS(rank=300).epochs(EVENTS)  # before anything is asked of it
    with refused(mentioning="l2 of RG2"):
        gr.RG2(rank=4, l2=50).fit(EVENTS)
    for recipe in (gr.WRMF(rank=4), gr.RG2ALS(rank=4), gr.RGX(rank=4), gr.RG2NewtonCG(rank=4)):
        with refused(mentioning="weights"):
            recipe.fit(gr.Interactions.of(WEIGHTS))
    for solver in (
        "newton",
        "Cholesky(steps=3)",
        5,
        {"name": "CG"},
        "ConjugateGradient(3)",
        "Subspace(size=-)",
        "Subspace(size=open('x'))",
    ):
        with refused(mentioning="solver of IALS"):
            gr.IALS(solver=solver)
    with refused(mentioning="size of Subspace"):
        gr.IALS(solver="Subspace(size=two)")
    with refused(mentioning="steps"):
        gr.IALS(solver="ConjugateGradient(steps=0)")
    with refused(gr.errors.NotSupported, "epochs"):
        gr.epoch_path(gr.EASE(), movie_split())
    with refused(mentioning="Split"):
        gr.epoch_path(gr.IALS(), EVENTS)
    with refused(mentioning="patience"):
        gr.epoch_path(gr.IALS(), movie_split(), patience=0)
    with refused(gr.errors.NotSupported, "factor model"):
        gr.RG2(rank=3, l2=0.1).fit(EVENTS).weights()


def test_a_workable_l2_is_named(refused):
    with pytest.raises(gr.errors.InvalidInput) as caught:
        gr.RG2(rank=4, l2=50).fit(EVENTS)
    named = float(str(caught.value).split("below ")[1].rstrip("."))
    assert gr.RG2(rank=4, l2=0.95 * named).fit(EVENTS)
    with refused(mentioning="l2 of RG2"):
        gr.RG2(rank=4, l2=1.05 * named).fit(EVENTS)


def test_solvers_are_read_as_they_are_printed():
    for text, solver in (
        ("cholesky", gr.Cholesky()),
        ("ConjugateGradient(steps=7)", gr.ConjugateGradient(7)),
        ({"name": "Subspace", "params": {"size": 16}}, gr.Subspace(16)),
    ):
        recipe = gr.IALS(solver=text)
        assert recipe.solver == solver
        assert gr.IALS(solver=str(recipe.solver)) == gr.IALS(**recipe.to_json()["params"]) == recipe
    assert "solver" not in str(gr.IALS())
    assert not gr.equivalent(gr.IALS(solver=gr.ConjugateGradient(32)), gr.IALS(solver=gr.Subspace(32)))
