"""What the service tells about its models: info, model cards, leaderboard."""

import numpy as np
import pytest

import gramian as gr
from gramian.core.recommender import Recommender
from gramian.data.synthetic import clustered
from gramian.experiments.experiment import find_experiment
from gramian.experiments.runner import Benchmark
from gramian.service.app import create_app
from gramian.service.model_card import build_model_card
from gramian.service.served_model import ServedModel, fold_text
from service.helpers import expect_ok, run_app


def test_models_are_listed_with_their_facts(models, events, client):
    content = expect_ok(client.get("/models"))["models"]
    assert [row["name"] for row in content] == list(models)
    assert content[0]["recipe"] == models["edlae"].recipe.to_json()
    assert (content[0]["users"], content[0]["items"], content[0]["interactions"]) == (
        events.n_users,
        events.n_items,
        events.n_interactions,
    )
    assert content[0]["spec"] == "EDLAE(dropout=0.3, l2=50)"
    assert content[0]["tags"] == sorted({tag for tags in events.tags for tag in tags})
    assert [row["failed"] for row in content] == [None] * len(content)


@pytest.mark.parametrize("name", ["edlae", "pca", "ials", "popularity"])
def test_a_model_has_a_card(name, models, client):
    content = expect_ok(client.get(f"/models/{name}"))
    assert content["popularity"]["items"][-1] == content["popularity"]["events"][-1] == content["popularity"]["lists"][-1] == 1
    for curve in content["popularity"].values():
        assert (np.diff(curve) >= 0).all()
    if name == "pca":
        singular = np.linalg.svd(models["pca"].weights(), compute_uv=False)[:8]
        assert content["picture"]["values"] == pytest.approx(singular.tolist(), rel=1e-3)
    elif name == "ials":
        assert content["picture"]["values"] == pytest.approx(np.linalg.svd(models[name].factors()[1])[1].tolist(), rel=1e-4)
    elif name == "edlae":
        n = models["edlae"].histories.n_items
        assert sum(content["picture"]["counts"]) == 64 * (n - 1)
        assert content["picture"]["edges"][0] == -content["picture"]["edges"][-1]
    else:
        assert content["picture"] is None
    assert content["measured"] == []


def test_a_model_without_histories_has_no_curve_of_its_lists():
    fitted = gr.Popularity().fit(clustered(200, 500, 3_000))
    curve = build_model_card(ServedModel("p", Recommender(fitted.scorer, fitted.recipe, fitted.catalog, None)))["popularity"]
    assert curve["lists"] == []
    assert curve["events"][-1] == 1


def test_a_model_that_always_lists_the_same_is_the_most_popular():
    curve = build_model_card(ServedModel("p", gr.Popularity().fit(clustered(200, 500, 3_000))))["popularity"]
    assert curve["lists"][20] == 1  # nobody is shown more than the first fifth
    assert curve["events"][20] < 1


def test_the_leaderboard_is_the_journal(folders, tmp_path):
    journal = tmp_path / "own.jsonl"
    experiment = find_experiment("movielens").select([], ["Popularity"])
    Benchmark(journal).run(experiment)
    with run_app(create_app(folders[-1:], journal=journal)) as client:
        (table,) = expect_ok(client.get("/leaderboard"))["tables"]
        ((data,), (row,)) = table["data"], table["data"][0]["rows"]
        assert (table["name"], data["name"], row["model"]) == ("movielens", "movielens", "Popularity")
        fit = next(iter(Benchmark(journal).fits.values()))
        assert {name: figure["ours"] for name, figure in row["figures"].items()} == fit["metrics"]
        assert (row["seconds"], row["peak_bytes"]) == (fit["seconds"], fit["peak_bytes"])
        measured = {name: fit[name] for name in ("data", "metrics", "stderr", "users")}
        assert expect_ok(client.get("/models/popularity"))["measured"] == [measured]
        journal.write_text("")
        assert expect_ok(client.get("/leaderboard"))["tables"] == []


def test_words_are_found_without_case_and_accents():
    assert fold_text("Éowyn's STRASSE Ä") == fold_text("eowyn's straße a")


def test_expanded_weights_give_the_same_scores(models):
    stored = models["edlae"].scorer
    expanded = stored.expand()
    histories = models["edlae"].histories.matrix[:70]
    assert np.array_equal(expanded.weights(), stored.weights())
    for n in (1, 70):
        scores = np.hstack([panel.copy() for _, panel in expanded.panels(histories[:n])])
        assert np.allclose(scores, histories[:n] @ stored.weights(), atol=1e-5)
