"""Grams and models of a cluster are those of one machine."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.errors import Inaccurate, NoHistoriesWarning, NotSupported
from gramian.gradient import FactorModel
from spark_support import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.fixture(scope="module")
def wide():
    """More items than fit in one block column."""
    return clustered(200, 1_100, 9_000).compact()


@pytest.fixture(scope="module")
def wide_spark(spark, wide):
    return gr.spark.interactions(spark.createDataFrame(wide.frame().to_arrow()))


@pytest.mark.parametrize("powers", [(0, 0), (0.5, 0), (0.25, 0.75)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gram_is_that_of_one_machine(wide, wide_spark, powers, dtype):
    actual = gr.spark.gram(wide_spark, dtype, user_power=powers[0], item_power=powers[1])
    expected = gr.Gram.of(wide, dtype, user_power=powers[0], item_power=powers[1])
    np.testing.assert_allclose(actual.matrix.dense(), expected.matrix.dense(), rtol=1e-6)
    assert actual.items == expected.items
    np.testing.assert_array_equal(actual.catalog.popularity, expected.catalog.popularity)
    assert (actual.n_users, actual.is_binary, actual.powers) == (wide.n_users, True, powers)
    if not any(powers):
        dense = wide.matrix.toarray()
        np.testing.assert_array_equal(actual.matrix.dense(), dense.T @ dense)


def test_the_normalised_gram_of_one_machine_is_its_definition(local_events, refused):
    x = local_events.matrix.toarray().astype(np.float64)
    expected = x.T @ (x / x.sum(axis=1)[:, None])
    gram = gr.Gram.of(local_events, "float64", user_power=0.5)
    np.testing.assert_allclose(gram.matrix.dense(), expected, rtol=1e-6)
    with refused(mentioning="user_power=0.5"):
        gr.EASE().fit_gram(gram)
    with refused(mentioning="user_power=0.5"):
        gr.RG2().fit_gram(gr.Gram.of(local_events))
    with refused(mentioning="user_power=0.5"):
        gr.Gram.of(local_events, "float64") + gram


def test_items_without_interactions_have_an_empty_gram(spark, wide):
    few = wide.keep(wide.matrix.indices < 40)
    events = gr.spark.interactions(spark.createDataFrame(few.frame().to_arrow()))
    empty = replace(events, block_format=events.block_format._replace(n_items=1_100), catalog=wide.catalog)
    dense = gr.spark.gram(empty).matrix.dense()
    assert dense[:40, :40].any()
    assert not dense[40:].any()


CLOSED = [
    gr.Popularity(),
    gr.EASE(l2=20),
    gr.DEQL(dropout=0.4, kept_weight=0.7, l2=5),
    gr.SLIM(l1=1, l2=5),
    gr.LRR(rank=10, l2=5),
    gr.DropoutMF(keep=0.9),
    gr.LowRankDLAE(rank=10, dropout=0.3, l2=5),
    gr.LowRankEDLAE(rank=10, dropout=0.3, l2=5, truncate="weights"),
    gr.ADMMEDLAE(rank=5, n_epochs=3),
    gr.RG2(rank=10, l2=0.05),
]
ALTERNATING = [
    gr.RG2ALS(rank=6, l2=0.1, n_epochs=3),
    gr.RG2ALS(rank=6, l2=0.1, n_epochs=3, negative_weight=0.5),
    gr.RGX(rank=6, l2=0.1, n_epochs=3, form="exact"),
    gr.IALS(rank=6, n_epochs=3),
    gr.IALS(rank=6, n_epochs=2, solver=gr.Cholesky()),
    gr.IALS(rank=6, n_epochs=2, solver=gr.Subspace(size=4)),
    gr.WRMF(rank=6, n_epochs=2, l2=3),
    gr.DebiasedIALS(rank=6, n_epochs=2),
]


@pytest.mark.parametrize("recipe", CLOSED + ALTERNATING, ids=str)
def test_models_are_those_of_one_machine(recipe, spark_events, local_events):
    actual, expected = (recipe.fit(events, dtype="float64") for events in (spark_events, local_events))
    scores = expected.scores(local_events)
    np.testing.assert_allclose(actual.scores(local_events), scores, atol=1e-6 * np.abs(scores).max())
    assert actual.items == expected.items
    assert actual.users == expected.users
    assert actual.recommend(local_events.users[:3], k=5).items == expected.recommend(local_events.users[:3], k=5).items


@pytest.mark.parametrize("recipe", [r for r in CLOSED if not isinstance(r, gr.Popularity)], ids=str)
def test_spectral_and_closed_forms_need_the_gram_only(recipe, local_events):
    """A cluster gives the Gram in place of the interactions."""
    gram = gr.Gram.of(local_events, "float64", **recipe.gram_powers._asdict())
    before = gram.matrix.buffer.copy()
    histories = local_events.matrix[:20].astype(np.float64)
    expected = recipe.fit(local_events, dtype="float64").scorer
    scores = [np.hstack([panel.copy() for _, panel in s.panels(histories)]) for s in (recipe.fit_gram(gram).scorer, expected)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6 * np.abs(scores[1]).max())
    np.testing.assert_array_equal(gram.matrix.buffer, before)


def test_weighted_models_are_those_of_one_machine(frame, table, refused):
    spark_events = gr.spark.interactions(frame, user="user", item="item", value="stars")
    local_events = gr.Interactions.of(table, user="user", item="item", value="stars")
    for recipe in (gr.EASE(l2=20), gr.RG2(rank=5, l2=0.05), gr.IALS(rank=5, n_epochs=2)):
        scores = recipe.fit(local_events, dtype="float64").scores(local_events)
        np.testing.assert_allclose(
            recipe.fit(spark_events, dtype="float64").scores(local_events), scores, atol=1e-6 * np.abs(scores).max()
        )
    for recipe in (gr.WRMF(rank=5), gr.DebiasedEASE()):
        with refused(mentioning="0/1"):
            recipe.fit(spark_events)


def test_a_model_of_too_many_interactions_has_no_histories(spark_events, local_events, tmp_path, monkeypatch, refused):
    monkeypatch.setattr("gramian.spark.fitting.MAX_HISTORIES", 10)
    with pytest.warns(NoHistoriesWarning, match="recommend_for"):
        model = gr.EASE(l2=20).fit(spark_events)
    expected = gr.EASE(l2=20).fit(local_events)
    assert model.users == []
    history = [local_events.items.tolist()[c] for c in local_events.matrix[[7]].indices]
    for actual in (model, (model.save(tmp_path / "model"), gr.load(tmp_path / "model"))[1]):
        assert actual.recommend_for([history, []], 5).items == expected.recommend_for([history, []], 5).items
        with refused(NotSupported, mentioning="cluster"):
            actual.add_users(gr.Interactions.of(pl.DataFrame({"user": ["new"], "item": [1]})))


def test_what_a_cluster_cannot_do_is_refused(spark_events, local_events, tmp_path, refused):
    for recipe in (gr.RG2NewtonCG(rank=4), FactorModel()):
        with refused(NotSupported, mentioning="one machine"):
            recipe.fit(spark_events)
    with refused(NotSupported, mentioning="scratch"):
        gr.EASE().fit(spark_events, scratch=tmp_path)
    with refused(mentioning="a rank of at most"):
        gr.IALS(rank=500).fit(spark_events)
    with refused(mentioning="every of at least 1"):
        gr.spark.fit(gr.IALS(rank=4), spark_events, every=0)
    with refused(mentioning="Use recipe.fit"):
        gr.spark.fit(gr.EASE(), local_events)
    with refused(mentioning="gr.spark.interactions"):
        gr.spark.gram(local_events)
    model = gr.Popularity().fit(local_events)
    with refused(mentioning="recommend_to"):
        gr.spark.recommend(model, local_events)
    with refused(mentioning="a fitted model"):
        gr.spark.recommend(gr.EASE(), spark_events)
    with refused(mentioning="k of at least 1"):
        gr.spark.recommend(model, spark_events, 0)


@pytest.mark.parametrize("recipe", [gr.RG2ALS(rank=8, n_epochs=3), gr.IALS(rank=8, n_epochs=3)])
def test_the_objective_is_that_of_one_machine_and_is_watched(recipe, spark_events, local_events, monkeypatch):
    objectives = []
    monkeypatch.setattr("gramian.spark.als.require_convergence", lambda objective, *_: objectives.append(objective))
    gr.spark.fit(recipe, spark_events)
    np.testing.assert_allclose(objectives, [epoch.objective for epoch in recipe.epochs(local_events)], rtol=1e-4)


def test_errors_of_tasks_are_raised_as_themselves(spark_events, refused):
    with refused(Inaccurate, mentioning="positive definite"):
        gr.RGX(rank=20, l2=0, interaction=spark_events.n_items, n_epochs=2).fit(spark_events)
