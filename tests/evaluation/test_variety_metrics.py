"""Metrics of variety against their definitions in loops, by hand, and on re-ranked lists."""

from dataclasses import replace
from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.core.registry import METRICS
from gramian.data.ids import Index
from gramian.evaluation.metrics import RankedLists, find_hits, is_tail
from rerank.naive_stages import divergence, shares

TAGS = ["Comedy", "Drama", "Horror", "War", "Western"]
N_USERS, N_ITEMS, K = 40, 60, 8
VARIETY = ["intra_list_diversity", "serendipity", "gini", "calibration_error", "tail_share"]


@pytest.fixture(scope="module")
def lists():
    rng = np.random.default_rng(1)
    order = np.argsort(rng.random((N_USERS, N_ITEMS)), axis=1)
    columns = order[:, :12].astype(np.int32)
    columns[3, 5:], columns[4, 1:], columns[5] = -1, -1, -1  # a short list, one item, none
    histories = np.zeros((N_USERS, N_ITEMS))
    for user in range(N_USERS):
        histories[user, order[user, 12 : 12 + rng.integers(0, 20)]] = rng.integers(1, 4)
    targets = np.zeros((N_USERS, N_ITEMS))
    for user in range(N_USERS):
        targets[user, order[user, rng.integers(0, 12, 5)]] = 1
    targets, histories = sp.csr_array(targets), sp.csr_array(histories)
    popularity = rng.permutation(np.arange(N_ITEMS) ** 2)  # no ties
    tags = [tuple(rng.permutation(TAGS)[: rng.integers(0, 4)].tolist()) for _ in range(N_ITEMS)]
    catalog = gr.Catalog(Index(range(N_ITEMS)), popularity, tags=tags)
    n_targets = np.maximum(np.diff(targets.indptr), 1)
    return RankedLists(columns, find_hits(columns, targets), n_targets, catalog, 5_000, targets, histories)


def shown(lists, user, k=K):
    return [column for column in lists.columns[user, :k].tolist() if column >= 0]


def cosine(a, b):
    return len(set(a) & set(b)) / sqrt(len(a) * len(b)) if a and b else 0


def naive_diversity(lists, user):
    pairs = list(combinations(shown(lists, user), 2))
    return sum(1 - cosine(lists.catalog.tags[i], lists.catalog.tags[j]) for i, j in pairs) / len(pairs) if pairs else 0


def naive_serendipity(lists, user):
    seen = set(lists.histories[[user]].indices.tolist())
    unseen = [item for item in range(N_ITEMS) if item not in seen]
    obvious = set(sorted(unseen, key=lambda item: -lists.catalog.popularity[item])[:K])
    listed = lists.columns[user, :K].tolist()
    return sum(bool(lists.hits[user, rank]) and item not in obvious for rank, item in enumerate(listed)) / K


def naive_calibration(lists, user):
    row = lists.histories[[user]]
    weights = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    target = shares(weights, lists.catalog.tags, weights)
    return divergence(target, shares(shown(lists, user), lists.catalog.tags), 0.01)


def naive_tail_share(lists, user):
    popularity = lists.catalog.popularity.tolist()
    head, total = set(), 0
    for item in sorted(range(N_ITEMS), key=lambda item: -popularity[item]):
        if total >= 0.5 * sum(popularity):
            break
        head.add(item)
        total += popularity[item]
    listed = shown(lists, user)
    return sum(item not in head for item in listed) / max(len(listed), 1)


TWINS = {
    "intra_list_diversity": naive_diversity,
    "serendipity": naive_serendipity,
    "calibration_error": naive_calibration,
    "tail_share": naive_tail_share,
}


@pytest.mark.parametrize("name", TWINS)
def test_a_metric_is_its_definition(lists, name):
    expected = [TWINS[name](lists, user) for user in range(N_USERS)]
    np.testing.assert_allclose(METRICS[name].at(K)(lists), expected, atol=1e-6)
    assert len(set(expected)) > 3


def test_gini_is_half_the_relative_mean_difference(lists):
    listed = lists.columns[:, :K]
    counts = np.bincount(listed[listed >= 0], minlength=N_ITEMS)
    pairs = sum(abs(a - b) for a in counts for b in counts)
    assert METRICS["gini"].at(K)(lists) == pytest.approx(pairs / (2 * N_ITEMS**2 * counts.mean()))


def test_limits_of_gini(lists):
    everything = np.arange(N_ITEMS, dtype=np.int32)[:, None]
    assert METRICS["gini"].at(1)(replace(lists, columns=everything)) == pytest.approx(0)
    same = np.zeros((10, 1), np.int32)
    assert METRICS["gini"].at(1)(replace(lists, columns=same)) == pytest.approx(1 - 1 / N_ITEMS)
    assert METRICS["gini"].at(1)(replace(lists, columns=np.full((3, 1), -1, np.int32))) == 0


def test_a_list_with_the_shares_of_the_history_has_no_error():
    catalog = gr.Catalog(Index(range(4)), tags=[("War",), ("Drama",), ("War",), ("Drama",)])
    histories = sp.csr_array(np.array([[1.0, 1, 0, 0]]))
    hits = np.zeros((1, 2), bool)
    calibrated = RankedLists(np.array([[2, 3]], np.int32), hits, np.ones(1), catalog, 10, sp.csr_array((1, 4)), histories)
    error = METRICS["calibration_error"].at(2)
    assert error(calibrated) == pytest.approx([0])
    one_sided = replace(calibrated, columns=np.array([[2, 2]], np.int32))
    assert error(one_sided) == pytest.approx([0.5 * log(0.5 / 0.995) + 0.5 * log(0.5 / 0.005)])


def test_the_head_has_half_of_the_interactions():
    popularity = np.array([40, 1, 30, 19, 10])
    assert is_tail(popularity).tolist() == [False, True, False, True, True]
    assert is_tail(np.zeros(3, int)).tolist() == [True, True, True]


@pytest.mark.parametrize("name", VARIETY)
def test_a_metric_looks_at_the_first_k_alone(lists, name):
    columns, hits = lists.columns.copy(), lists.hits.copy()
    columns[:, K:], hits[:, K:] = -1, False
    np.testing.assert_array_equal(METRICS[name].at(K)(lists), METRICS[name].at(K)(replace(lists, columns=columns, hits=hits)))


def test_what_a_metric_lacks_is_named(lists, refused):
    bare = replace(lists, catalog=gr.Catalog(Index(range(N_ITEMS))))
    for name in ("intra_list_diversity", "calibration_error"):
        with refused(gr.errors.NotSupported, "items with tags"):
            METRICS[name].at(K)(bare)
    for name in ("serendipity", "calibration_error"):
        with refused(gr.errors.InvalidInput, f"for {name}"):
            METRICS[name].at(K)(replace(lists, histories=None))


@pytest.fixture(scope="module")
def split():
    return gr.split.strong(gr.datasets.load("movielens", min_value=4).k_core(10), test_users=0.3, seed=1)


def test_stages_raise_what_they_aim_at(split):
    model = gr.EASE(l2=200).fit(split.train)
    metrics = ["ndcg@10", *(f"{name}@10" for name in VARIETY)]
    plain = gr.evaluate(model, split, metrics)
    diverse = gr.evaluate(model, split, metrics, rerank=gr.rerank.MMR(0.5, "tags"))
    calibrated = gr.evaluate(model, split, metrics, rerank="calibration(strength=0.9)")
    tail = gr.evaluate(model, split, metrics, rerank=[gr.rerank.PopularityPenalty(0.5)], depth=200)
    assert diverse["intra_list_diversity@10"] > plain["intra_list_diversity@10"] + 0.05
    assert calibrated["calibration_error@10"] < 0.5 * plain["calibration_error@10"]
    assert tail["tail_share@10"] > plain["tail_share@10"]
    assert tail["gini@10"] < plain["gini@10"]
    for report in (diverse, calibrated, tail):
        assert report["ndcg@10"] > 0.7 * plain["ndcg@10"]


def test_reports_measure_the_lists_that_are_served(split):
    model, stages = gr.EASE(l2=200).fit(split.train), [gr.rerank.MMR(0.4), gr.rerank.MaxPerTag(3)]
    report = gr.evaluate(model, split, ["recall@5"], rerank=stages, depth=40)
    served = model.recommend_for(split.fold_in, 5, rerank=stages, depth=40)
    listed = dict(zip(served.users, served.items, strict=True))
    for row, user in enumerate(report.users[:50]):
        targets = set(split.target.items[split.target.matrix[[row]].indices])
        assert report.per_user["recall@5"][row] == pytest.approx(len(targets & set(listed[user])) / len(targets))


def test_tuning_and_leave_one_out_know_what_they_can_measure(split, refused):
    assert gr.tune(gr.EASE, split.validation, {"l2": [50, 200]}, "serendipity@10").metric == "serendipity@10"
    with refused(gr.errors.InvalidInput, "metrics of hits"):
        gr.leave_one_user_out(gr.EASE(), split.train, ["serendipity@10"])
    with refused(gr.errors.InvalidInput, "a value for each user"):
        gr.tune(gr.EASE, split.validation, {"l2": [50]}, "gini@10")
