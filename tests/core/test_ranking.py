"""Top-k, masks, ties and the fused product, against naive sorting."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg import product
from gramian.linalg.product import (
    DENSE_PANEL,
    FEW_USERS,
    dense_panels,
    inverse_panels,
    multiply_sparse,
    visit_inverse_panels,
)
from gramian.linalg.sparse import compact_columns
from gramian.linalg.topk import ScaledTopK, TopK


def tie_rank(column: int) -> int:
    x = ((column ^ column >> 16) * 0x7FEB352D) % 2**32
    x = ((x ^ x >> 15) * 0x846CA68B) % 2**32
    return x ^ x >> 16


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_best_k_equals_sorting(data):
    n_users, n_items = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 30))
    k = data.draw(st.integers(1, n_items))
    values = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.5])  # few values: many ties
    scores = np.array(data.draw(st.lists(values, min_size=n_users * n_items, max_size=n_users * n_items)))
    scores = scores.reshape(n_users, n_items)
    hidden = np.array(data.draw(st.lists(st.booleans(), min_size=scores.size, max_size=scores.size))).reshape(scores.shape)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=n_items, max_size=n_items)))
    width = data.draw(st.integers(1, n_items))

    best = TopK(n_users, k, sp.csr_array(hidden.astype(np.float32)), allowed)
    for first in range(0, n_items, width):
        best.push(scores[:, first : first + width].copy(), first)
    columns, kept = best.lists()

    ties = np.array([tie_rank(c) for c in range(n_items)])
    for u in range(n_users):
        candidates = [c for c in range(n_items) if allowed[c] and not hidden[u, c]]
        expected = sorted(candidates, key=lambda c: (-scores[u, c], ties[c]))[:k]
        assert columns[u].tolist() == expected + [-1] * (k - len(expected))
        assert kept[u, : len(expected)].tolist() == [scores[u, c] for c in expected]


def test_tie_order_is_a_permutation_unlike_the_column_order():
    ranks = np.array([tie_rank(c) for c in range(5_000)])
    assert len(np.unique(ranks)) == 5_000
    assert abs(np.corrcoef(ranks, np.arange(5_000))[0, 1]) < 0.05


@pytest.mark.parametrize("n_users", [1, FEW_USERS, FEW_USERS + 1, 90])
@pytest.mark.parametrize("n_items", [3, 64, 65, 1_100])
def test_fused_product_equals_dense_product(n_items, n_users):
    events = clustered(90, n_items, 900)
    gram = gr.Gram.of(events).matrix
    factor, diagonal = np.random.default_rng(0).standard_normal((2, n_items)).astype(np.float32)
    histories = events.matrix[:n_users]
    product = np.concatenate([panel.copy() for _, panel in inverse_panels(histories, gram, factor, diagonal)], axis=1)
    np.testing.assert_allclose(product, histories @ (gram.dense() * factor + np.diag(diagonal)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_users", [0, 1, 50, 90])
@pytest.mark.parametrize("n_items", [520, 700])
def test_visited_panels_are_those_of_the_product_to_the_bit(n_items, n_users, two_threads, monkeypatch):
    monkeypatch.setattr(product, "USER_RANGE", 7)  # which divides no number of users
    events = clustered(90, n_items, 900)
    weights = gr.Gram.of(events).matrix, *np.random.default_rng(0).standard_normal((2, n_items)).astype(np.float32)
    histories = events.matrix[:n_users]
    visits, scores = np.zeros((n_users, n_items), int), np.empty((n_users, n_items), np.float32)

    def visit(panel, first, start):
        place = slice(start, start + panel.shape[0]), slice(first, first + panel.shape[1])
        visits[place] += 1
        scores[place] = panel

    visit_inverse_panels(histories, *weights, visit)
    assert (visits == 1).all()
    for first, panel in inverse_panels(histories, *weights):
        assert np.array_equal(panel, scores[:, first : first + panel.shape[1]])


def test_compact_columns_are_those_of_unique():
    x = sp.csr_array(np.random.default_rng(0).random((20, 40)) < 0.05)
    columns, places = compact_columns(x)
    expected_columns, expected_places = np.unique(x.indices, return_inverse=True)
    assert np.array_equal(columns, expected_columns)
    assert np.array_equal(places, expected_places)


@pytest.mark.parametrize("n_users", [1, 60])
def test_scores_that_are_not_finite_are_refused_on_any_thread(n_users, two_threads):
    model = gr.EASE(l2=0.1).fit(clustered(300, 700, 9_000))
    huge = dict.fromkeys(model.items, 3.4e38)
    with pytest.raises(gr.errors.InvalidInput, match="Lower the weights"):
        model.recommend_for([[5]] * n_users + [huge], k=3)


@pytest.mark.parametrize("n_items", [1, DENSE_PANEL - 1, DENSE_PANEL, 2 * DENSE_PANEL + 7])
def test_dense_panels_are_the_product_of_the_factors(n_items):
    left, right = (np.random.default_rng(0).standard_normal((m, 5)).astype(np.float32) for m in (30, n_items))
    starts, parts = zip(*((first, panel.copy()) for first, panel in dense_panels(left, right)), strict=True)
    assert starts == tuple(range(0, n_items, DENSE_PANEL))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), left @ right.T, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def model():
    return gr.EDLAE(dropout=0.3, l2=10).fit(clustered(300, 700, 9_000))


def test_batch_equals_single_to_the_bit(model):
    users = model.users[:40]
    together = model.recommend(users, k=7)
    alone = [model.recommend([user], k=7) for user in users]
    assert together.items == [single.items[0] for single in alone]
    assert together.scores == [single.scores[0] for single in alone]


def test_lists_are_the_best_unseen_items_by_dense_scores(model):
    dense = model.scores(model.histories)
    dense[model.histories.matrix.nonzero()] = -np.inf
    found = model.recommend(model.users, k=10)
    for row in np.flatnonzero(~np.array(found.fallback)):
        items = found.items[row]
        np.testing.assert_allclose(found.scores[row], -np.sort(-dense[row])[:10], rtol=1e-4)
        np.testing.assert_allclose(dense[row, items], found.scores[row], rtol=1e-4)


def test_seen_and_denied_items_never_return(model):
    deny = model.items[::2]
    allow = model.items[::3]
    found = model.recommend(model.users, k=700, deny=deny, allow=allow)
    for user, items in zip(found.users, found.items, strict=True):
        seen = set(model.histories.matrix[[user]].indices.tolist())
        assert set(items) == set(allow) - set(deny) - seen


def test_seen_items_return_when_asked_for(model):
    user = model.users[0]
    found = model.recommend([user], k=700, exclude_seen=False)
    assert sorted(found.items[0]) == model.items
    np.testing.assert_allclose(found.scores[0], -np.sort(-model.scores(model.histories)[0]), rtol=1e-4, atol=1e-7)


def test_lists_are_short_rather_than_padded(model):
    found = model.recommend_for([[0, 1]], k=5, allow=[0, 1, 2])
    assert found.items == [[2]]
    assert model.recommend_for([[0]], k=5, allow=[]).items == [[]]
    assert len(model.recommend([0], k=10**6).items[0]) == 700 - len(model.histories.matrix[[0]].indices)


def test_a_history_is_a_set_of_known_items(model):
    plain = model.recommend_for([[5, 9]], k=5)
    noisy = model.recommend_for([[9, "no such item", 5, 5, -1]], k=5)
    assert noisy.items == plain.items
    assert (plain.unknown, noisy.unknown) == ([[]], [["no such item", -1]])


@pytest.mark.parametrize("history", [[], ["nothing", "known"]])
def test_unknown_history_falls_back_to_popularity_and_says_so(model, history):
    found = model.recommend_for([history, [5]], k=4)
    assert found.fallback == [True, False]
    assert found.items[0] == gr.Popularity().fit(model.histories).recommend_for([[]], k=4).items[0]
    counts = model.catalog.popularity
    assert found.scores[0] == sorted(counts, reverse=True)[:4]


def test_a_user_without_items_gets_the_popular_ones():
    x = (np.random.default_rng(0).random((30, 12)) < 0.3).astype(float)
    x[4] = 0
    model = gr.EASE(l2=1).fit(gr.Interactions.of(x))
    found = model.recommend([3, 4], k=12)
    assert found.fallback == [False, True]
    assert len(found.items[1]) == 12


def test_reasons_add_up_to_the_score(model):
    history = model.histories.matrix[[7]].indices.tolist()
    found = model.recommend([7], k=5)
    for item, score in zip(found.items[0], found.scores[0], strict=True):
        explanation = model.explain(history, item)
        assert set(explanation) == set(history)
        assert sum(explanation.values()) == pytest.approx(score, rel=1e-4)
        assert explanation.score == sum(explanation.values())
    weights = model.weights()
    assert model.explain([3, 8, "unknown"], 11)[3] == pytest.approx(weights[3, 11], rel=1e-4)
    assert model.explain([3, 8], 3)[3] == pytest.approx(weights[3, 3], abs=1e-6)


def test_similarity_is_symmetric_and_leaves_the_item_out(model):
    found = model.similar_items(5, k=699)
    assert 5 not in found.items[0]
    other, score = found.items[0][0], found.scores[0][0]
    back = model.similar_items(other, k=699)
    assert back.scores[0][back.items[0].index(5)] == pytest.approx(score, rel=1e-5)
    assert -1 <= min(found.scores[0]) <= max(found.scores[0]) <= 1


def test_recommendations_as_a_table(model):
    frame = model.recommend([3, 4], k=2).frame()
    assert frame.columns == ["user", "rank", "item", "score"]
    assert frame["user"].to_list() == [3, 3, 4, 4]
    titled = model.histories.with_titles({i: f"title {i}" for i in model.items})
    found = gr.Popularity().fit(titled).recommend_for([[1]], k=2)
    assert found.titles == [[f"title {i}" for i in found.items[0]]]
    assert found.frame().columns == ["history", "rank", "item", "title", "score"]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.recommend([0], k=0), gr.errors.InvalidInput, "k of at least 1"),
        (lambda m: m.recommend([0], k=2.5), gr.errors.InvalidInput, "k of at least 1"),
        (lambda m: m.recommend([0], k=True), gr.errors.InvalidInput, "k of at least 1"),
        (lambda m: m.recommend("0"), gr.errors.InvalidInput, "list of user ids"),
        (lambda m: m.recommend([0, "nobody"]), gr.errors.UnknownId, "'nobody'.*recommend_for"),
        (lambda m: m.recommend_for("Heat"), gr.errors.InvalidInput, "list of histories"),
        (lambda m: m.recommend_for(["Heat"]), gr.errors.InvalidInput, "list of item ids"),
        (lambda m: m.recommend_for([5, 6]), gr.errors.InvalidInput, "list of item ids"),
        (lambda m: m.recommend_for([None]), gr.errors.InvalidInput, "list of item ids"),
        (lambda m: m.recommend_for([{5: 0.0}]), gr.errors.InvalidInput, "not 0"),
        (lambda m: m.recommend(5), gr.errors.InvalidInput, "list of user ids"),
        (lambda m: m.recommend([0], deny="Heat"), gr.errors.InvalidInput, "list of items to deny"),
        (lambda m: m.recommend([0], allow=5), gr.errors.InvalidInput, "list of items to allow"),
        (lambda m: m.explain("Heat", 2), gr.errors.InvalidInput, "list of item ids"),
        (lambda m: m.scores(m.histories.frame()), gr.errors.InvalidInput, "Interactions.of"),
        (lambda m: gr.EASE().fit(m.histories, dtype="foo"), gr.errors.InvalidInput, "float64"),
        (lambda m: gr.EASE().fit(m.histories, dtype=None), gr.errors.InvalidInput, "float64"),
        (lambda m: gr.Gram.of(m.histories, "int64"), gr.errors.InvalidInput, "float64"),
        (lambda m: gr.Gram.of(m.histories.frame()), gr.errors.InvalidInput, "Interactions.of"),
        (lambda m: m.recommend_for([[[1]]]), gr.errors.InvalidInput, "flat list"),
        (lambda m: m.similar_items("nothing"), gr.errors.UnknownId, "'nothing'"),
        (lambda m: m.explain([1], "nothing"), gr.errors.UnknownId, "'nothing'"),
        (lambda m: m.factors(), gr.errors.NotSupported, "low-rank"),
        (lambda m: gr.Popularity().fit(m.histories).similar_items(1), gr.errors.NotSupported, "relates items"),
        (lambda m: gr.Popularity().fit(m.histories).explain([1], 2), gr.errors.NotSupported, "sums over the history"),
        (lambda m: gr.Popularity().fit(m.histories).weights(), gr.errors.NotSupported, "item-item"),
        (lambda m: gr.EASE().fit(m.histories.matrix), gr.errors.InvalidInput, "Interactions.of"),
        (lambda m: gr.EASE().fit(m.histories, dtype="float16"), gr.errors.InvalidInput, "float64"),
    ],
)
def test_bad_requests_are_answered_in_words(model, call, error, words):
    with pytest.raises(error, match=words):
        call(model)


def test_an_empty_request_gets_an_empty_answer(model):
    assert model.recommend([], k=3).items == []
    assert model.recommend_for([], k=3).frame().is_empty()


def test_ids_may_come_from_any_iterable(model):
    expected = model.recommend([3, 4], k=3, deny=[1])
    found = model.recommend(np.array([3, 4]), k=3, deny=(i for i in [1, 1]))
    assert found == expected
    assert [type(user) for user in found.users] == [int, int]
    assert model.recommend_for((h for h in [[5], (9,)]), k=3).items == model.recommend_for([{5}, {9: 1}], k=3).items


def test_weighted_histories_explain_what_known_users_are_shown():
    x = np.array([[5, 3, 0, 1], [1, 0, 2, 4], [0, 2, 3, 0], [4, 0, 1, 1]], float)
    model = gr.EASE(l2=1).fit(gr.Interactions.of(x))
    shown = model.recommend([1], k=1)
    history = {0: 1, 2: 2, 3: 4, "unknown": 7}
    assert model.recommend_for([history], k=1).scores == shown.scores
    assert model.explain(history, shown.items[0][0]).score == pytest.approx(shown.scores[0][0], rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_of_many_models_are_those_of_each(dtype):
    """Models that differ by a factor per column, some of them 0 or negative, with ties and hidden columns."""
    rng = np.random.default_rng(0)
    scores = rng.integers(-3, 4, (50, 200)).astype(dtype)
    factors = rng.integers(-1, 3, (5, 200)).astype(dtype)
    hidden = sp.csr_array((rng.random(scores.shape) < 0.3).astype(np.float32))
    many = ScaledTopK(50, 7, hidden, factors)
    for first in range(0, 200, 64):
        many.push(scores[:, first : first + 64].copy(), first)
    lists = many.lists()
    for r, factor in enumerate(factors):
        one = TopK(50, 7, hidden, np.ones(200, np.bool_))
        one.push(scores * factor + dtype(0), 0)
        np.testing.assert_array_equal(lists[:, r], one.lists()[0])


@pytest.mark.parametrize("width", [1, 7, 256, 300])
def test_sparse_times_dense(width):
    rng = np.random.default_rng(0)
    left = sp.random_array((40, 60), density=0.2, rng=rng, format="csr", dtype=np.float32)
    right = rng.standard_normal((60, width)).astype(np.float32)
    np.testing.assert_allclose(multiply_sparse(left, right), left @ right, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(multiply_sparse(left, np.asfortranarray(right)), left @ right, rtol=1e-5, atol=1e-6)
