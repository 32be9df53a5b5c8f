"""What every registered model promises. A model joins by being registered; nothing here names one."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import polars as pl
import pytest

import gramian as gr
from contracts.samples import EVENTS, fitted, models, small
from gramian.core.epochs import EpochRecipe
from gramian.core.params import describe_constraint, parse_spec
from gramian.core.recipe import GramRecipe, Recipe
from gramian.core.scorer import SupportsExplanations, SupportsFactors, SupportsSimilarity, SupportsWeights

pytestmark = pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)


def test_the_class_ladder_is_short_and_its_steps_are_abstract(model):
    ladder = [step for step in model.__mro__ if issubclass(step, Recipe)]
    assert len(ladder) <= 5, ladder  # the model, at most two families, GramRecipe or EpochRecipe, Recipe
    assert ladder[-1] is Recipe
    assert not any(step is not model and step in gr.MODELS.values() for step in ladder), "no model is the parent of another"


def test_parameters_are_declared_once_and_documented(model):
    for field in model.param_fields():
        assert field.metadata["about"]
        assert f"{field.name} : " in model.__doc__
        assert describe_constraint(field).lower() in " ".join(model.__doc__.split()).lower()
    assert model.__doc__.splitlines()[0].strip()
    with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
        model().no_such_parameter = 3


def test_a_recipe_is_its_json_and_its_spec(model):
    recipe = small(model)
    data = json.loads(json.dumps(recipe.to_json()))
    assert model(**data["params"]) == recipe
    spec = parse_spec(str(recipe))
    assert gr.MODELS.find(spec["name"].upper())(**spec["params"]) == recipe
    assert str(model()) == f"{model.__name__}()"


def test_bad_parameters_are_refused_in_words(model, refused):
    for field in model.param_fields():
        with refused(gr.errors.InvalidInput, field.name):
            model(**{field.name: object()})
        if not isinstance(field.default, bool | str):
            with refused(gr.errors.InvalidInput, field.name):
                model(**{field.name: float("nan")})
    with pytest.raises(TypeError):
        model(no_such_parameter=1)


def test_it_refuses_what_are_not_interactions(model, refused):
    with refused(gr.errors.InvalidInput, "Interactions.of"):
        small(model).fit(EVENTS.matrix)


def test_scores_are_finite_and_of_every_item(model):
    scores = fitted(model).scores(EVENTS)
    assert scores.shape == EVENTS.matrix.shape
    assert np.isfinite(scores).all()


def test_a_batch_has_the_lists_of_its_single_users(model):
    users = EVENTS.users.tolist()[:20]
    together = fitted(model).recommend(users, k=5)
    for place, user in enumerate(users):
        alone = fitted(model).recommend([user], k=5)
        assert alone.items[0] == together.items[place]
        np.testing.assert_allclose(alone.scores[0], together.scores[place], rtol=1e-4, atol=1e-5)


def test_two_threads_give_the_model_and_the_lists_of_one(model):
    """All other tests run on one thread, so this is the one that would see a race of a parallel kernel."""
    one, two = fitted(model), small(model).fit(EVENTS, n_threads=2)
    np.testing.assert_allclose(two.scores(EVENTS, n_threads=2), one.scores(EVENTS), rtol=1e-4, atol=1e-5)
    users = EVENTS.users.tolist()
    by_two, by_one = one.recommend(users, k=5, n_threads=2), one.recommend(users, k=5)
    assert by_two.items == by_one.items
    for scores, expected in zip(by_two.scores, by_one.scores, strict=True):
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)  # threads may add in another order


def test_a_history_has_the_list_of_its_user(model):
    fit = fitted(model)
    users = EVENTS.users.tolist()[:10]
    known = fit.recommend(users, k=5)
    folded_in = fit.recommend_for([fit.history(user) for user in users], k=5)
    assert folded_in.items == known.items
    assert folded_in.unknown == [[] for _ in users]


def test_seen_denied_and_unknown_items_are_not_shown(model):
    fit = fitted(model)
    history = list(fit.history(EVENTS.users.tolist()[0]))
    best = fit.recommend_for([history], k=3).items[0]
    assert not set(best) & set(history)
    assert best[0] not in fit.recommend_for([history], k=3, deny=[best[0]]).items[0]
    assert set(fit.recommend_for([history], k=60, allow=best).items[0]) == set(best)
    everything = fit.recommend_for([history], k=60, exclude_seen=False).items[0]
    assert set(everything) == set(EVENTS.items.tolist())
    fallback = fit.recommend_for([["no such item"]], k=3)
    assert (fallback.fallback, fallback.unknown) == ([True], [["no such item"]])


def test_a_saved_model_is_the_same_model(model, tmp_path):
    fit = fitted(model)
    fit.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.recipe == fit.recipe
    assert (loaded.items, loaded.users) == (fit.items, fit.users)
    assert (list(loaded.catalog.titles), list(loaded.catalog.tags)) == (list(fit.catalog.titles), list(fit.catalog.tags))
    np.testing.assert_array_equal(loaded.catalog.popularity, fit.catalog.popularity)
    assert loaded.catalog.features.is_encoded_like(fit.catalog.features)
    assert loaded.catalog.features.fingerprint == fit.catalog.features.fingerprint
    np.testing.assert_allclose(loaded.scores(EVENTS), fit.scores(EVENTS), rtol=1e-5, atol=1e-6)


def test_capabilities_are_what_it_can_do(model, refused):
    fit = fitted(model)
    item, history = fit.items[0], fit.items[1:6]
    calls = {
        SupportsExplanations: lambda: fit.explain(history, item),
        SupportsSimilarity: lambda: fit.similar_items(item, k=3),
        SupportsWeights: fit.weights,
        SupportsFactors: fit.factors,
    }
    for capability, call in calls.items():
        if capability in fit.scorer.capabilities:
            call()
        else:
            with refused(gr.errors.NotSupported, str(fit.recipe)):
                call()
    if SupportsExplanations in fit.scorer.capabilities:
        all_scores = fit.recommend_for([history], k=60, exclude_seen=False)
        scores = dict(zip(all_scores.items[0], all_scores.scores[0], strict=True))
        assert fit.explain(history, item).score == pytest.approx(scores[item], rel=1e-3, abs=1e-4)
    if SupportsSimilarity in fit.scorer.capabilities:
        similar = fit.similar_items(item, k=5)
        assert item not in similar.items[0]
        assert np.isfinite(similar.scores[0]).all()


def test_it_takes_new_items_if_it_learns_from_features_and_says_why_not_otherwise(model, refused):
    fit = fitted(model)
    new = gr.Features.of(pl.DataFrame({"item_id": [1000], "tags": [["even"]]}), like=EVENTS.catalog.features)
    if model.needs_features:
        grown = fit.add_items(new)
        assert grown.recommend_for([[0, 2, 4]], k=1, allow=[1000]).items == [[1000]]
        assert list(grown.explain([0, 2, 4], 1000).features) == ["tags: even"]
    else:
        with refused(gr.errors.NotSupported, "features"):
            fit.add_items(new)


def test_a_gram_gives_the_same_model(model):
    recipe = small(model)
    if not isinstance(recipe, GramRecipe):
        return
    gram = gr.Gram.of(EVENTS, "float64", **recipe.gram_powers._asdict())
    from_gram = recipe.fit_gram(gram)
    assert from_gram.histories is None
    assert from_gram.catalog.titles == EVENTS.titles
    np.testing.assert_allclose(from_gram.scores(EVENTS), recipe.fit(EVENTS, dtype="float64").scores(EVENTS), atol=2e-4)


def test_epochs_continue_where_a_checkpoint_ends(model, tmp_path):
    recipe = small(model)
    if not isinstance(recipe, EpochRecipe):
        return
    whole = recipe.fit(EVENTS)
    generator = recipe.epochs(EVENTS, scratch=tmp_path / "scratch")
    next(generator)
    generator.close()
    resumed = recipe.fit(EVENTS, scratch=tmp_path / "scratch")
    np.testing.assert_allclose(resumed.scores(EVENTS), whole.scores(EVENTS), rtol=1e-5, atol=1e-6)


def test_the_estimate_counts_bytes(model):
    estimate = small(model).estimate(EVENTS)
    assert estimate.peak_bytes > 0
    assert estimate.fits
    assert "free memory" in str(estimate)


def test_it_tunes(model):
    split = gr.split.strong(EVENTS, validation_users=0, test_users=20)
    recipe = small(model)
    search = gr.tune(model, split, {name: [value] for name, value in recipe.params.items()}, "ndcg@5")
    report = gr.evaluate(search.fit(split.train), split, ["ndcg@5"])
    assert search.value == pytest.approx(report["ndcg@5"], abs=0.02)


def test_it_loads_and_recommends_without_pytorch(model, tmp_path):
    if not model.__module__.startswith("gramian.gradient"):  # the others never import it
        return
    fitted(model).save(tmp_path / "model")
    code = f"""
import sys
import gramian as gr
model = gr.load({str(tmp_path / "model")!r})
print(len(model.recommend_for([model.items[:3]], k=3).items[0]), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False"]
