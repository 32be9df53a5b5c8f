"""GF-CF against a dense twin, and the published order of models that it should keep."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered

EVENTS = clustered(150, 40, 1_500)
X = EVENTS.matrix.toarray().astype(np.float64)


def naive_scores(x, rank, low_pass):
    """The filter of Shen et al. (2021), from its definition."""
    users, items = np.maximum(x.sum(axis=1), 1), np.maximum(x.sum(axis=0), 1)
    normalised = x / np.sqrt(users)[:, None] / np.sqrt(items)
    _, _, vt = np.linalg.svd(normalised, full_matrices=False)
    v = vt[:rank].T
    linear = x @ normalised.T @ normalised
    ideal = x @ np.diag(items**-0.5) @ v @ v.T @ np.diag(items**0.5)
    return linear + low_pass * ideal


@pytest.mark.parametrize(("rank", "low_pass"), [(1, 0.3), (8, 0.3), (20, 2.0), (8, 0.0)])
def test_scores_are_those_of_the_dense_filter(rank, low_pass):
    model = gr.GFCF(rank=rank, low_pass=low_pass).fit(EVENTS, dtype="float64")
    np.testing.assert_allclose(model.scores(EVENTS), naive_scores(X, rank, low_pass), rtol=1e-5, atol=1e-5)


def test_without_the_low_pass_the_rank_does_not_matter():
    one, other = (gr.GFCF(rank=rank, low_pass=0).fit(EVENTS).scores(EVENTS) for rank in (1, 20))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_similar_items_of_the_normalised_gram_are_cosines():
    """The nearest neighbour of an item is one with the same users, not whichever item is rare."""
    x = np.zeros((30, 4))
    x[:20, 0] = x[:20, 1] = 1  # items 0 and 1 have the same users
    x[15:, 2] = 1
    x[0, 3] = 1  # a rare item
    model = gr.GFCF(rank=2, low_pass=0.3).fit(gr.Interactions.of(x))
    similar = model.similar_items(0, k=3)
    assert similar.items[0][0] == 1
    assert all(-1.001 <= score <= 1.001 for score in similar.scores[0])


def test_contributions_add_up_over_both_filters():
    model = gr.GFCF(rank=8).fit(EVENTS)
    history = model.items[3:9]
    scores = model.recommend_for([history], k=40, exclude_seen=False)
    by_item = dict(zip(scores.items[0], scores.scores[0], strict=True))
    for item in model.items[:10]:
        assert model.explain(history, item).score == pytest.approx(by_item[item], rel=1e-4)


def test_it_beats_popularity_on_real_data():
    split = gr.split.strong(gr.datasets.load("movielens", min_value=4).k_core(10), test_users=0.2, seed=1)
    popular, filtered = (gr.evaluate(r.fit(split.train), split) for r in (gr.Popularity(), gr.GFCF(rank=64)))
    assert filtered.compare(popular, "ndcg@20").difference > 0.05


def test_weights_and_ranks_beyond_the_data_are_refused(refused):
    with refused(gr.errors.InvalidInput, "0/1 interactions"):
        gr.GFCF(rank=2).fit(gr.Interactions.of(X * 2))
    with refused(gr.errors.InvalidInput, "rank"):
        gr.GFCF(rank=41).fit(EVENTS)
