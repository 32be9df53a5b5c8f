"""Leave-one-user-out from one fit, against as many fits as there are users."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.split import mark_targets
from gramian.data.synthetic import clustered
from gramian.evaluation import leave_one_user_out as leave_one_out
from gramian.linalg import leave_one_out as leave_out

RECIPES = [
    gr.EASE(l2=3),
    gr.DLAE(dropout=0.4, l2=3),
    gr.DLAE(dropout=0, l2=3),
    gr.EDLAE(dropout=0.4, l2=3),
    gr.EDLAE(dropout=0.8, l2=0.5),
    gr.DEQL(dropout=0.4, kept_weight=0.3, l2=3),
    gr.DEQL(dropout=0.6, kept_weight=1.9, l2=3),
    gr.DEQL(dropout=0.6, kept_weight=1.9, l2=3, zero_diagonal=True),
    gr.RDLAE(dropout=0.4, max_diagonal=0.4, l2=3),
    gr.RDLAE(dropout=0, max_diagonal=0.2, l2=3),
    gr.DebiasedEASE(alpha=0.3, l2=3),
]
METRICS = ("ndcg@5", "recall@20", "map@7", "mrr@3", "precision@2", "hit_rate@1", "capped_recall@10")


def refitted(recipe, events, fold_in=0.8, seed=0):
    """A fit and an evaluation for every user."""
    found = {metric: [] for metric in METRICS}
    for row in np.flatnonzero(np.diff(events.matrix.indptr) >= 2):
        user = events.take(np.array([row]))
        is_target = mark_targets(user.matrix, np.array([row]), 1 - fold_in, seed)
        train = events.take(np.setdiff1d(np.arange(events.n_users), [row]))
        split = gr.Split(train, user.keep(~is_target), user.keep(is_target))
        for metric, mean in gr.evaluate(recipe.fit(train, dtype="float64"), split, METRICS).mean.items():
            found[metric].append(mean)
    return found


def data(weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    x = (rng.random((40, 45)) < rng.random(45) ** 2) * (rng.integers(1, 4, (40, 45)) if weighted else 1)
    x[:, 44] = 0
    x[3, 44] = 1  # an item only one user has
    return gr.Interactions.of(x)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_equals_a_fit_for_every_user(recipe):
    events = data()
    report = gr.leave_one_user_out(recipe, events, METRICS, dtype="float64")
    for metric, values in refitted(recipe, events).items():
        np.testing.assert_allclose(report.per_user[metric], values, atol=1e-6)
    assert report.users == [u for u, n in enumerate(np.diff(events.matrix.indptr)) if n >= 2]


@pytest.mark.parametrize("recipe", RECIPES[:-1], ids=str)
def test_equals_a_fit_for_every_user_of_weighted_data(recipe):
    events = data(weighted=True)
    report = gr.leave_one_user_out(recipe, events, METRICS, dtype="float64", fold_in=0.5, seed=3)
    for metric, values in refitted(recipe, events, 0.5, 3).items():
        np.testing.assert_allclose(report.per_user[metric], values, atol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_the_best_few_are_certified_or_more_are_worked_out(recipe, monkeypatch):
    """Started with no spare candidates, it must still find the exact lists."""
    events = data()
    expected = gr.leave_one_user_out(recipe, events, ["ndcg@3"], dtype="float64").per_user["ndcg@3"]
    calls = []
    original = leave_out.rank_candidates

    def watched(inverse, s, has_one_user, families, users, known, k, n_candidates):
        n_candidates = k if not calls else n_candidates
        calls.append(n_candidates)
        return original(inverse, s, has_one_user, families, users, known, k, n_candidates)

    monkeypatch.setattr(leave_out, "rank_candidates", watched)
    found = gr.leave_one_user_out(recipe, events, ["ndcg@3"], dtype="float64").per_user["ndcg@3"]
    np.testing.assert_array_equal(found, expected)


def test_blocks_samples_and_threads_do_not_matter(two_threads, monkeypatch):
    events, recipe = clustered(300, 80, 4_000), gr.EDLAE(dropout=0.3, l2=10)
    whole = gr.leave_one_user_out(recipe, events)
    monkeypatch.setattr(leave_one_out, "LEFT_OUT_PER_BLOCK", 37)
    blocks = gr.leave_one_user_out(recipe, events, n_threads=1)
    assert blocks.users == whole.users
    sample = whole.users[5:25]
    some = gr.leave_one_user_out(recipe, events, users=sample)
    assert some.users == sample
    for metric in whole.metrics:
        np.testing.assert_array_equal(blocks.per_user[metric], whole.per_user[metric])
        np.testing.assert_array_equal(some.per_user[metric], whole.per_user[metric][5:25])


def test_two_recipes_can_be_compared():
    events = clustered(300, 80, 4_000)
    one, other = (gr.leave_one_user_out(recipe, events) for recipe in (gr.EASE(l2=10), gr.EASE(l2=1_000)))
    assert one.compare(other, "ndcg@20").metric == "ndcg@20"
    with pytest.raises(gr.errors.InvalidInput, match="same split"):
        one.compare(gr.leave_one_user_out(gr.EASE(l2=10), events, seed=1), "ndcg@20")


def test_bad_requests_are_refused():
    events = data()
    with pytest.raises(gr.errors.NotSupported, match="full-rank"):
        gr.leave_one_user_out(gr.Popularity(), events)
    with pytest.raises(gr.errors.InvalidInput, match="metrics of hits"):
        gr.leave_one_user_out(gr.EASE(), events, ["ndcg@10", "coverage@10"])
    with pytest.raises(gr.errors.InvalidInput, match="list of metrics"):
        gr.leave_one_user_out(gr.EASE(), events, "ndcg@10")
    with pytest.raises(gr.errors.InvalidInput, match="between 0 and 1"):
        gr.leave_one_user_out(gr.EASE(), events, fold_in=1.5)
    with pytest.raises(gr.errors.UnknownId, match="two items or more"):
        gr.leave_one_user_out(gr.EASE(), events, users=["nobody"])
    with pytest.raises(gr.errors.InvalidInput, match="Wrap it"):
        gr.leave_one_user_out(gr.EASE(), events.frame())
    with pytest.raises(gr.errors.InvalidInput, match="two items"):
        gr.leave_one_user_out(gr.EASE(), gr.Interactions.of(np.eye(3)))


@pytest.mark.parametrize("dropout", [0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_a_user_who_outweighs_all_others_is_left_out_exactly(dropout, seed):
    """Then the series does not converge, the bound is of no use, and candidates at the end of the list matter."""
    rng = np.random.default_rng(seed)
    x = (rng.random((60, 50)) < 0.15) * rng.integers(1, 3, (60, 50)).astype(float)
    x[7] = (rng.random(50) < 0.6) * rng.integers(2, 32, 50)
    x[:3, 49] = 1
    x[7, 49] = 30_000 if seed == 0 else 5  # others have it too, however little
    events = gr.Interactions.of(x)
    recipe = gr.EDLAE(dropout=dropout, l2=1)
    user = events.take(np.array([7]))
    is_target = mark_targets(user.matrix, np.array([7]), 0.6, 0)
    train = events.take(np.setdiff1d(np.arange(60), [7]))
    split = gr.Split(train, user.keep(~is_target), user.keep(is_target))
    metrics = ["recall@2", "ndcg@3", "ndcg@20"]
    expected = gr.evaluate(recipe.fit(train, dtype="float64"), split, metrics).mean
    found = gr.leave_one_user_out(recipe, events, metrics, fold_in=0.4, users=[7], dtype="float64")
    assert found.mean == pytest.approx(expected, abs=1e-6)


def test_what_nothing_would_hold_is_refused():
    with pytest.raises(gr.errors.InvalidInput, match="l2 above 0"):
        gr.leave_one_user_out(gr.EASE(l2=0), data())
    weighted = gr.Interactions.of(data().matrix * np.float32(2))
    with pytest.raises(gr.errors.InvalidInput, match="0/1 interactions"):
        gr.leave_one_user_out(gr.DebiasedEASE(), weighted)
