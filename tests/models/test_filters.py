"""Normalised Grams, graph filters, neighbourhood models and blends against dense twins of their definitions."""

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.models import graph_filter
from gramian.models.graph_filter import PolynomialFilter
from gramian.models.scorers import ScorerSum

EVENTS = clustered(150, 40, 1_500)
EVENTS = EVENTS.take(np.flatnonzero(np.diff(EVENTS.matrix.indptr)))  # a twin divides by the degrees of all users
X = EVENTS.matrix.toarray().astype(np.float64)
USERS, ITEMS = X.sum(axis=1), X.sum(axis=0)


def normalised(user_power, item_power, x=X, offset=0.0):
    users, items = x.sum(axis=1) + offset, np.maximum(x.sum(axis=0) + offset, 1)
    return x * (users**-user_power)[:, None] * items**-item_power


def dense_parts(rank, x=X):
    """Q, V and s^½ of the symmetric normalisation."""
    r = normalised(0.5, 0.5, x)
    _, _, vt = np.linalg.svd(r, full_matrices=False)
    return r.T @ r, vt[:rank].T, np.sqrt(np.maximum(x.sum(axis=0), 1))


@pytest.fixture(params=["dense", "implicit"])
def storage(request, monkeypatch):
    """Filters as a dense matrix, and as products with the sparse interactions."""
    monkeypatch.setattr(graph_filter, "DENSE_ENTRIES", 50 if request.param == "dense" else 0)
    return request.param


def assert_scores(recipe, expected, tolerance=1e-5):
    model = recipe.fit(EVENTS, dtype="float64")
    np.testing.assert_allclose(model.scores(EVENTS), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    return model


# normalised Grams


@pytest.mark.parametrize("powers", [(0, 0), (0.5, 0), (0, 0.5), (0.25, 0.75)])
def test_a_normalised_gram_is_its_definition(powers):
    gram = gr.Gram.of(EVENTS, "float64", user_power=powers[0], item_power=powers[1])
    r = normalised(*powers)
    np.testing.assert_allclose(gram.matrix.dense(), r.T @ r, rtol=1e-6, atol=1e-12)
    assert gram.powers == powers


@pytest.mark.parametrize("powers", [(0, 0), (0.5, 0), (0.3, 0.5)])
def test_shards_add_up_whatever_the_powers(powers):
    options = {"user_power": powers[0], "item_power": powers[1]}
    rows = np.array_split(np.arange(EVENTS.n_users), [20, 95])
    first, *others = (gr.Gram.of(EVENTS.take(part), "float64", **options) for part in rows)
    total = sum(others, first)
    np.testing.assert_allclose(total.matrix.dense(), gr.Gram.of(EVENTS, "float64", **options).matrix.dense(), rtol=1e-6)
    np.testing.assert_array_equal(total.catalog.popularity, EVENTS.popularity)


def test_grams_of_other_powers_do_not_add_and_fit_no_model_that_needs_others(refused):
    half, plain = gr.Gram.of(EVENTS, user_power=0.5), gr.Gram.of(EVENTS)
    with refused(mentioning="user_power=0.5"):
        half + plain
    with refused(mentioning="user_power=0.5, item_power=0.5"):
        gr.GFCF(rank=4).fit_gram(half)
    with refused(mentioning="item_power"):
        gr.Gram.of(EVENTS, item_power=1.5)
    with refused(mentioning="user_power"):
        gr.Gram.of(EVENTS, user_power="half")


def test_a_gram_keeps_its_powers_in_a_folder(tmp_path):
    gram = gr.Gram.of(EVENTS, user_power=0.5, item_power=0.25)
    gram.save(tmp_path / "gram")
    loaded = gr.Gram.load(tmp_path / "gram")
    assert loaded.powers == (0.5, 0.25)
    assert "user_power=0.5" in repr(loaded)
    np.testing.assert_array_equal(loaded.matrix.buffer, gram.matrix.buffer)


# filters


@pytest.mark.parametrize(("rank", "low_pass"), [(1, 0.3), (8, 2.0)])
def test_gfcf(storage, rank, low_pass):
    q, v, root = dense_parts(rank)
    assert_scores(gr.GFCF(rank, low_pass), X @ (q + low_pass * (v / root[:, None]) @ (v.T * root)))


@pytest.mark.parametrize(("degree", "flatness", "power"), [(1, 1.0, 0.0), (4, 1.5, 0.4), (8, 10.0, 0.5)])
def test_chebycf_is_interpolation_in_loops(storage, degree, flatness, power):
    """Chebyshev polynomials of I − 2Q by their recurrence, and coefficients by the sum over nodes."""
    q, v, root = dense_parts(6)
    target = []
    for place in range(degree + 1):
        t = round(np.cos((degree - place) / degree * np.pi), 3)
        target.append(round(0.5 + 0.5 * (-t) ** flatness if t < 0 else 0.5 - 0.5 * t**flatness, 3))
    laplacian = np.eye(40) - 2 * q
    terms = [np.eye(40), laplacian]
    while len(terms) < degree + 1:
        terms.append(2 * laplacian @ terms[-1] - terms[-2])
    filtered = np.zeros((40, 40))
    for k in range(degree + 1):
        nodes = [np.cos((degree + 0.5 - place) / (degree + 1) * np.pi) for place in range(degree + 1)]
        c = sum(np.cos(k * np.arccos(node)) * value for node, value in zip(nodes, target, strict=True)) * 2 / (degree + 1)
        filtered += (c / 2 if k == 0 else c) * terms[k]
    scale = root ** (2 * power)
    weights = (filtered + 0.2 * v @ v.T) / scale[:, None] * scale
    assert_scores(gr.ChebyCF(rank=6, low_pass=0.2, flatness=flatness, item_power=power, degree=degree), X @ weights)


def runge_kutta(y, q, step):
    """A step of dy/dt = −y·Q by the classic formula."""
    k1 = -y @ q
    k2 = -(y + step / 2 * k1) @ q
    k3 = -(y + step / 2 * k2) @ q
    k4 = -(y + step * k3) @ q
    return y + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


@pytest.mark.parametrize("merge", ["early", "late"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("solver", "n_steps"), [("euler", 1), ("euler", 3), ("rk4", 1), ("rk4", 2)])
def test_bspm_solves_its_equations(storage, merge, average, solver, n_steps):
    q, v, root = dense_parts(5)
    blurred, ideal = X @ q, 0.3 * X @ (v / root[:, None]) @ (v.T * root)
    y = blurred + ideal if merge == "early" else blurred
    points = [blurred]
    for _ in range(n_steps):
        y = runge_kutta(y, q, 2.5 / n_steps) if solver == "rk4" else y - 2.5 / n_steps * y @ q
        points.append(y)
    scores = np.mean(points, axis=0) if average else y
    scores = scores if merge == "early" else scores + ideal
    recipe = gr.BSPM(5, 0.3, sharpening=2.5, solver=solver, n_steps=n_steps, merge=merge, average=average)
    assert_scores(recipe, scores, 1e-4)


@pytest.mark.parametrize("power", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_turbocf(storage, power, order):
    r = normalised(0.6, 0.4)
    p = (r.T @ r) ** power
    filters = {1: p, 2: 2 * p - p @ p, 3: p + 0.01 * (-p @ p @ p + 10 * p @ p - 29 * p)}
    assert_scores(gr.TurboCF(0.6, power, order), X @ filters[order])


@pytest.mark.parametrize(("power", "offset"), [(0.5, 0), (0.34, 0), (0.5, 4.8)])
def test_sgfcf_is_the_paper_s_formula_of_training_users(power, offset):
    r = normalised(power, power, offset=offset)
    u, sigma, vt = np.linalg.svd(r, full_matrices=False)
    sigma = sigma / sigma[0]
    spectral = u[:, :6] * sigma[:6] ** 3.0 @ vt[:6]
    cubic = r @ r.T @ r
    expected = spectral / spectral.sum(axis=1)[:, None] + 1.6 * cubic / cubic.sum(axis=1)[:, None]
    assert_scores(gr.SGFCF(rank=6, sharpness=1.5, high_pass=1.6, power=power, offset=offset), expected, 1e-4)


@pytest.mark.parametrize("rank", [1, 7, 40])
def test_svdae_is_the_pseudo_inverse_up_to_a_factor_of_each_user(rank):
    r = normalised(0.5, 0.5)
    u, sigma, vt = np.linalg.svd(r, full_matrices=False)
    weights = vt[:rank].T @ np.diag(1 / sigma[:rank]) @ u[:, :rank].T @ X
    assert_scores(gr.SVDAE(rank), np.sqrt(USERS)[:, None] * (r @ weights), 1e-4)


def test_a_filter_of_many_items_needs_no_matrix():
    """Twenty thousand items in a fraction of the memory of half a matrix, which is 800 MB."""
    events = clustered(2_000, 20_000, 30_000)
    for recipe in (gr.GFCF(rank=8), gr.ChebyCF(rank=8), gr.BSPM(rank=8), gr.TurboCF(), gr.SGFCF(rank=8), gr.SVDAE(rank=8)):
        assert recipe.estimate(events).peak_bytes < 100e6, recipe
    scorer = gr.ChebyCF(rank=8).fit(events).scorer
    assert isinstance(scorer, ScorerSum)
    assert isinstance(scorer.scorers[0], PolynomialFilter)
    assert sum(array.nbytes for array in scorer.save()[1].values()) < 10e6


def test_a_filter_explains_its_scores_and_compares_items(storage):
    model = gr.ChebyCF(rank=6).fit(EVENTS, dtype="float64")
    history = model.items[3:9]
    scores = model.recommend_for([history], k=40, exclude_seen=False)
    by_item = dict(zip(scores.items[0], scores.scores[0], strict=True))
    for item in model.items[:10]:
        assert model.explain(history, item).score == pytest.approx(by_item[item], rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(X @ model.weights(), model.scores(EVENTS), rtol=1e-4, atol=1e-5)
    assert len(model.similar_items(model.items[0], k=5).items[0]) == 5


def test_implicit_filters_are_scored_in_blocks_of_few_users(monkeypatch):
    monkeypatch.setattr(graph_filter, "DENSE_ENTRIES", 0)
    model = gr.GFCF(rank=4).fit(EVENTS)
    expected = model.recommend(EVENTS.users.tolist(), k=5)
    monkeypatch.setattr(graph_filter, "MAX_SCORES", 40 * 20)
    monkeypatch.setattr(graph_filter, "MAX_BLOCK", 40 * 3)
    assert model.scorer.users_per_block == 20
    assert model.recommend(EVENTS.users.tolist(), k=5).items == expected.items


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("coefficients", np.zeros(1)),
        ("coefficients", np.zeros((2, 2))),
        ("coefficients", np.zeros(3, np.float32)),
        ("coefficients", np.zeros(5_000)),
        ("indices", np.full(EVENTS.n_interactions, 40, np.int32)),
        ("indptr", np.array([0, 5], np.int64)),
        ("data", np.zeros(3, np.float32)),
    ],
)
def test_a_hostile_filter_is_refused(name, value, monkeypatch):
    monkeypatch.setattr(graph_filter, "DENSE_ENTRIES", 0)
    facts, arrays = gr.GFCF(rank=4).fit(EVENTS).scorer.scorers[0].save()
    PolynomialFilter.load(facts, arrays)
    with pytest.raises(gr.errors.DamagedFile):
        PolynomialFilter.load(facts, arrays | {name: value})
    with pytest.raises(gr.errors.DamagedFile):
        PolynomialFilter.load({"n_items": 0}, arrays)


# DAN


def naive_dan(x, recipe):
    users, s = x.sum(axis=1), x.sum(axis=0)
    penalty = recipe.dropout / (1 - recipe.dropout) * s + recipe.l2
    p = np.linalg.inv(x.T @ np.diag(users ** (-2 * recipe.user_power)) @ x + np.diag(penalty))
    n = len(p)
    weights = np.zeros((n, n))
    for j in range(n):  # the column of RLAE: its diagonal is at most max_diagonal
        bound = max(0.0, (1 - recipe.max_diagonal) / p[j, j] - penalty[j])
        weights[:, j] = -p[:, j] * (penalty[j] + bound)
        weights[j, j] += 1
    return weights * (s[:, None] / s) ** recipe.item_power


DANS = [
    gr.DAN(0.3, 0.0, 20, user_power=0.2, item_power=0.3),
    gr.DAN(0.0, 1.0, 20, user_power=0.5, item_power=0.0),
    gr.DAN(0.5, 0.2, 5, user_power=0.0, item_power=0.5),
]


@pytest.mark.parametrize("recipe", DANS, ids=str)
def test_dan_is_its_definition(recipe):
    model = recipe.fit(EVENTS, dtype="float64")
    np.testing.assert_allclose(model.weights(), naive_dan(X, recipe), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("recipe", DANS, ids=str)
def test_dan_adds_and_forgets_users_exactly(recipe):
    rows = np.arange(EVENTS.n_users)
    model = recipe.fit(EVENTS, dtype="float64")
    smaller = model.forget_users(EVENTS.users[[3, 77]])
    expected = recipe.fit(EVENTS.take(np.delete(rows, [3, 77])), dtype="float64")
    np.testing.assert_allclose(smaller.weights(), expected.weights(), rtol=1e-4, atol=1e-6)
    again = smaller.add_users(EVENTS.take(np.array([3, 77])))
    np.testing.assert_allclose(again.weights(), model.weights(), rtol=1e-4, atol=1e-6)


def test_dan_without_normalisation_is_rdlae():
    plain = gr.DAN(dropout=0.3, max_diagonal=0.4, l2=10, user_power=0, item_power=0)
    assert gr.equivalent(plain, gr.RDLAE(dropout=0.3, max_diagonal=0.4, l2=10))
    np.testing.assert_allclose(plain.fit(EVENTS).weights(), gr.RDLAE(0.3, 0.4, 10).fit(EVENTS).weights(), atol=1e-5)


# neighbours


def keep_largest(weights, k):
    np.fill_diagonal(weights, 0)
    for row in weights:
        row[np.argsort(-row, kind="stable")[k:]] = 0
    return weights


@pytest.mark.parametrize("neighbours", [3, 100])
def test_item_knn_by_cosine(neighbours):
    weights = np.zeros((40, 40))
    for i in range(40):
        for j in range(40):
            weights[i, j] = X[:, i] @ X[:, j] / (np.linalg.norm(X[:, i]) * np.linalg.norm(X[:, j]) + 5)
    model = gr.ItemKNN(neighbours, "cosine", shrinkage=5).fit(EVENTS)
    np.testing.assert_allclose(model.weights(), keep_largest(weights, neighbours), rtol=1e-5)


def test_item_knn_by_bm25():
    y = EVENTS.with_weights("bm25").matrix.toarray().astype(np.float64)
    model = gr.ItemKNN(5, "bm25").fit(EVENTS)
    np.testing.assert_allclose(model.weights(), keep_largest(y.T @ y, 5), rtol=1e-5)


@pytest.mark.parametrize("neighbours", [4, 100])
def test_rp3beta_is_a_random_walk(neighbours):
    to_users, to_items = (X / ITEMS).T ** 0.8, (X / USERS[:, None]) ** 0.8
    weights = keep_largest(to_users @ to_items / ITEMS**0.6, neighbours)
    model = gr.RP3beta(neighbours, alpha=0.8, beta=0.6).fit(EVENTS)
    np.testing.assert_allclose(model.weights(), weights, rtol=1e-5)


# blends


def test_a_blend_is_the_sum_of_its_models_on_their_scales():
    first, second = gr.EASE(l2=10), gr.GFCF(rank=4)
    model = gr.Blend(first, second, weight=0.3).fit(EVENTS)
    parts = []
    for member in (first, second):
        scores = member.fit(EVENTS).scores(EVENTS)
        parts.append(scores / scores[X == 0].std())
    np.testing.assert_allclose(model.scores(EVENTS), 0.7 * parts[0] + 0.3 * parts[1], rtol=1e-3, atol=1e-3)


def test_a_blend_of_blends_is_saved_and_explained(tmp_path):
    recipe = gr.Blend(gr.Blend(gr.EASE(l2=10), gr.DAN()), gr.SGFCF(rank=4), weight=0.2)
    model = recipe.fit(EVENTS)
    model.save(tmp_path / "model")
    loaded = gr.load(tmp_path / "model")
    assert loaded.recipe == recipe
    np.testing.assert_allclose(loaded.scores(EVENTS), model.scores(EVENTS), rtol=1e-5, atol=1e-6)
    history = model.items[3:9]
    scores = model.recommend_for([history], k=40, exclude_seen=False)
    by_item = dict(zip(scores.items[0], scores.scores[0], strict=True))
    assert model.explain(history, model.items[1]).score == pytest.approx(by_item[model.items[1]], rel=1e-3)


def test_a_blend_is_written_as_a_spec():
    recipe = gr.Blend(gr.EDLAE(l2=500), gr.ChebyCF(rank=64), weight=0.3)
    assert str(recipe) == "Blend(first=EDLAE(l2=500), second=ChebyCF(rank=64), weight=0.3)"
    assert gr.Blend(first="EDLAE(l2=500)", second="chebycf(rank=64)", weight=0.3) == recipe


# free axes


@pytest.mark.filterwarnings("ignore::gramian.errors.SearchEdgeWarning")
@pytest.mark.parametrize(
    ("model", "space"),
    [
        (gr.DAN, {"l2": [10], "dropout": [0.3], "user_power": [0.2], "max_diagonal": [0, 0.5], "item_power": [0, 0.3]}),
        (gr.GFCF, {"rank": [4, 6], "low_pass": [0, 0.3, 2]}),
        (gr.BSPM, {"rank": [4], "low_pass": [0.1, 1], "sharpening": [0.5, 1.5]}),
        (gr.ChebyCF, {"rank": [4], "low_pass": [0.1, 1], "flatness": [1, 3], "item_power": [0, 0.4]}),
        (gr.SGFCF, {"rank": [4], "sharpness": [1, 2], "high_pass": [0, 0.5, 1.5], "power": [0.4], "offset": [5]}),
        (gr.Blend, {"first": [gr.EASE(l2=10)], "second": [gr.GFCF(rank=4)], "weight": [0.1, 0.3, 1]}),
    ],
)
def test_free_axes_have_the_values_of_separate_fits(storage, model, space):
    split = gr.split.strong(EVENTS, validation_users=0, test_users=60)
    search = gr.tune(model, split, space, "ndcg@5", extend=False)
    for result in search.results:
        expected = gr.evaluate(result.recipe.fit(split.train), split, ["ndcg@5"])["ndcg@5"]
        assert result.n_users < 60 or result.value == pytest.approx(expected, abs=1e-3), result.recipe
