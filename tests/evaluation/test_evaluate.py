"""Metrics against an independent package and by hand; evaluation as a whole."""

import numpy as np
import pytest
import pytrec_eval
import scipy.sparse as sp
from scipy.stats import ttest_rel

import gramian as gr
from gramian.core.registry import METRICS
from gramian.data.ids import Index
from gramian.data.synthetic import clustered
from gramian.evaluation.metrics import RankedLists, find_hits
from gramian.models.scorers import GlobalScores

K = 10


def catalog_of(popularity):
    return gr.Catalog(Index(range(len(popularity))), np.asarray(popularity))


@pytest.fixture(scope="module")
def lists():
    rng = np.random.default_rng(0)
    columns = np.argsort(rng.random((50, 40)), axis=1)[:, :20].astype(np.int32)
    columns[3, 5:] = -1  # a short list
    liked = rng.random((50, 40)) < rng.random((50, 1)) * 0.6
    liked[:, 0] = True  # everybody has a target
    targets = sp.csr_array(liked.astype(np.float32))
    popularity = rng.integers(0, 30, 40)
    return RankedLists(
        columns, find_hits(columns, targets), np.diff(targets.indptr), catalog_of(popularity), 100, targets
    ), targets


TREC = {"precision": "P", "recall": "recall", "ndcg": "ndcg_cut", "hit_rate": "success", "map": "map_cut"}


@pytest.mark.parametrize("name", TREC)
def test_metrics_agree_with_trec(lists, name):
    lists, targets = lists
    truth = {str(u): {str(c): 1 for c in targets[[u]].indices} for u in range(50)}
    run = {str(u): {str(c): float(20 - rank) for rank, c in enumerate(row) if c >= 0} for u, row in enumerate(lists.columns)}
    found = pytrec_eval.RelevanceEvaluator(truth, {f"{TREC[name]}.{K}"}).evaluate(run)
    theirs = np.array([found[str(u)][f"{TREC[name]}_{K}"] for u in range(50)])
    ours = METRICS[name].at(K)(lists)
    if name == "map":  # trec divides by all targets, we by those that fit into the list
        theirs = theirs * lists.n_targets / np.minimum(lists.n_targets, K)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_mrr_agrees_with_trec_on_cut_lists(lists):
    lists, targets = lists
    truth = {str(u): {str(c): 1 for c in targets[[u]].indices} for u in range(50)}
    run = {str(u): {str(c): float(20 - r) for r, c in enumerate(row[:K]) if c >= 0} for u, row in enumerate(lists.columns)}
    found = pytrec_eval.RelevanceEvaluator(truth, {"recip_rank"}).evaluate(run)
    np.testing.assert_allclose(METRICS["mrr"].at(K)(lists), [found[str(u)]["recip_rank"] for u in range(50)])


def by_hand() -> RankedLists:
    columns = np.array([[4, 2, 0], [1, -1, -1]], np.int32)
    targets = sp.csr_array(np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 1]], np.float32))
    return RankedLists(columns, find_hits(columns, targets), np.array([3, 1]), catalog_of([7, 3, 1, 0, 15]), 15, targets)


@pytest.mark.parametrize(
    ("metric", "k", "expected"),
    [
        ("precision", 2, [1 / 2, 0]),
        ("precision", 3, [2 / 3, 0]),
        ("recall", 2, [1 / 3, 0]),
        ("capped_recall", 2, [1 / 2, 0]),
        ("hit_rate", 1, [0, 0]),
        ("hit_rate", 2, [1, 0]),
        ("mrr", 3, [1 / 2, 0]),
        ("map", 3, [(1 / 2 + 2 / 3) / 3, 0]),
        ("ndcg", 3, [(1 / np.log2(3) + 1 / 2) / (1 + 1 / np.log2(3) + 1 / 2), 0]),
        ("debiased_recall", 3, [(1 + 7**-1.5) / (2 + 7**-1.5), 0]),  # an item without users weighs as much as one with one
        ("debiased_recall", 2, [1 / (2 + 7**-1.5), 0]),
        ("novelty", 3, [(0 + 3 + 1) / 3, 2]),
        ("popularity", 3, [(15 + 1 + 7) / 3, 3]),
    ],
)
def test_metrics_by_hand(metric, k, expected):
    np.testing.assert_allclose(METRICS[metric].at(k)(by_hand()), expected)


def test_coverage_by_hand():
    assert METRICS["coverage"].at(3)(by_hand()) == 4 / 5
    assert METRICS["coverage"].at(1)(by_hand()) == 2 / 5


@pytest.fixture(scope="module")
def split():
    return gr.split.strong(gr.datasets.load("movielens", min_value=4).k_core(10), test_users=0.3, seed=1)


def test_report_is_the_mean_over_users_of_what_is_served(split):
    model = gr.EASE().fit(split.train)
    report = gr.evaluate(model, split, ["recall@5", "ndcg@20", "coverage@20"])
    histories = [split.fold_in.items[split.fold_in.matrix[[u]].indices] for u in range(split.fold_in.n_users)]
    served = model.recommend_for(histories, k=5).items
    for u, items in enumerate(served):
        targets = set(split.target.items[split.target.matrix[[u]].indices])
        assert report.per_user["recall@5"][u] == pytest.approx(len(targets & set(items)) / len(targets))
    assert report["recall@5"] == report.per_user["recall@5"].mean()
    assert report.stderr["recall@5"] == pytest.approx(report.per_user["recall@5"].std(ddof=1) / len(report.users) ** 0.5)
    assert set(report.stderr) == {"recall@5", "ndcg@20"}
    assert report.users == split.target.users.tolist()
    assert report.frame()["metric"].to_list() == list(report.mean)
    assert "recall@5" in str(report)


def test_models_that_learn_beat_popularity(split):
    popular = gr.evaluate(gr.Popularity().fit(split.train), split)
    for recipe in (gr.EASE(), gr.DLAE(), gr.EDLAE(), gr.DEQL(), gr.DebiasedEASE()):
        report = gr.evaluate(recipe.fit(split.train), split)
        comparison = report.compare(popular, "ndcg@20")
        assert comparison.difference > 0
        assert comparison.p_value < 0.01
        expected = ttest_rel(report.per_user["ndcg@20"], popular.per_user["ndcg@20"])
        assert comparison.p_value == pytest.approx(expected.pvalue)


def test_comparing_a_model_with_itself_finds_nothing(split):
    report = gr.evaluate(gr.Popularity().fit(split.train), split)
    assert report.compare(report, "ndcg@20").difference == 0
    assert report.compare(report, "ndcg@20").p_value == 1


def test_constant_scores_do_not_profit_from_ids_sorted_by_popularity(split):
    order = np.argsort(-split.train.popularity, kind="stable")
    items = gr.Interactions.of(np.eye(len(order))).items
    parts = [p.reindex(p.users, p.items.take(order)) for p in (split.train, split.fold_in, split.target)]
    sorted_split = gr.Split(*parts)
    assert len(items) == sorted_split.train.n_items
    model = gr.Popularity().fit(sorted_split.train)
    popular = gr.evaluate(model, sorted_split)["ndcg@20"]
    constant = gr.Recommender(GlobalScores(np.ones(len(order))), gr.Popularity(), sorted_split.train.catalog)
    assert gr.evaluate(constant, sorted_split)["ndcg@20"] < 0.2 * popular


def test_the_same_report_when_items_are_relabelled(split):
    shuffled = np.random.default_rng(0).permutation(split.train.n_items)
    parts = [p.reindex(p.users, p.items.take(shuffled)) for p in (split.train, split.fold_in, split.target)]
    one = gr.evaluate(gr.EASE().fit(split.train), split)["ndcg@20"]
    assert gr.evaluate(gr.EASE().fit(parts[0]), gr.Split(*parts))["ndcg@20"] == pytest.approx(one, rel=1e-3)
    assert gr.evaluate(gr.EASE().fit(split.train), gr.Split(*parts))["ndcg@20"] == pytest.approx(one, rel=1e-3)


def test_targets_the_model_does_not_know_are_misses():
    events = clustered(80, 30, 900)
    split = gr.split.weak(events, seed=3)
    fewer = split.train.reindex(split.train.users, split.train.items.take(np.arange(1)))
    report = gr.evaluate(gr.Popularity().fit(fewer), split, ["recall@20"])
    known = split.target.matrix[:, [0]].toarray()[:, 0] > 0
    assert (report.per_user["recall@20"][~known] == 0).all()


@pytest.mark.parametrize("metrics", ["ndcg@20", ["ndcg"], ["ndcg@0"], ["accuracy@5"], ["ndcg@2.5"], [], [5]])
def test_bad_metrics_are_refused_in_words(split, metrics):
    with pytest.raises((gr.errors.InvalidInput, gr.errors.NotRegistered), match="metric"):
        gr.evaluate(gr.Popularity().fit(split.train), split, metrics)


def test_reports_of_different_splits_are_not_compared(split):
    model = gr.Popularity().fit(split.train)
    other = gr.evaluate(model, split.validation)
    with pytest.raises(gr.errors.InvalidInput, match="same split"):
        gr.evaluate(model, split).compare(other, "ndcg@20")
    with pytest.raises(gr.errors.InvalidInput, match="mrr@5"):
        gr.evaluate(model, split).compare(gr.evaluate(model, split), "mrr@5")


def test_metrics_keep_the_order_they_were_asked_in(split):
    asked = ["coverage@5", "ndcg@10", "recall@5"]
    report = gr.evaluate(gr.Popularity().fit(split.train), split, asked)
    assert list(report.mean) == asked
    with pytest.raises(gr.errors.UnknownId, match="recall@6"):
        report["recall@6"]


def test_a_list_longer_than_the_catalog_is_the_catalog(split):
    report = gr.evaluate(gr.Popularity().fit(split.train), split, ["recall@99999999999", "ndcg@99999999999"])
    assert report["recall@99999999999"] == 1
    assert 0 < report["ndcg@99999999999"] < 1


def test_a_recipe_must_be_fitted_first(split):
    with pytest.raises(gr.errors.InvalidInput, match="Fit it first"):
        gr.evaluate(gr.EASE(), split)


def first_hit(lists, k):
    return lists.hits[:, 0].astype(float)


def test_a_function_is_a_metric(split):
    model = gr.EASE().fit(split.train)
    report = gr.evaluate(model, split, [first_hit, gr.Metric("first", first_hit, k=1), "precision@1"])
    assert list(report.mean) == ["first_hit@20", "first@1", "precision@1"]
    np.testing.assert_array_equal(report.per_user["first_hit@20"], report.per_user["precision@1"])
    np.testing.assert_array_equal(report.per_user["first@1"], report.per_user["precision@1"])
    assert gr.tune(gr.EASE, split.validation, {"l2": [50, 200]}, first_hit).metric == "first_hit@20"


def test_histories_are_not_needed_to_evaluate(split):
    fitted = gr.EASE().fit_gram(gr.Gram.of(split.train))
    assert fitted.histories is None
    assert gr.evaluate(fitted, split)["ndcg@20"] == gr.evaluate(gr.EASE().fit(split.train), split)["ndcg@20"]
    assert gr.evaluate(fitted, split.held_out)["ndcg@20"] == gr.evaluate(fitted, split)["ndcg@20"]
