"""Low rank and nuclear norm: closed forms against dense twins and numerical optimisers, and the paper's theory."""

from itertools import islice

import numpy as np
import pytest
from scipy.optimize import minimize

import gramian as gr
from gramian.models.low_rank_edlae import solve_decoder

rng = np.random.default_rng(0)
X = (rng.random((80, 24)) < rng.random(24) ** 1.5 * 0.8 + 0.05).astype(float)
EVENTS = gr.Interactions.of(X)
U, SIGMA, VT = np.linalg.svd(X, full_matrices=False)
S = X.T @ X


def weights(recipe, events=EVENTS):
    return recipe.fit(events, dtype="float64").weights()


def keeping_vectors(f):
    return (VT.T[:, : len(f)] * f) @ VT[: len(f)]


TWINS = [
    (gr.LRR(rank=6, l2=20), SIGMA[:6] ** 2 / (SIGMA[:6] ** 2 + 20)),
    (gr.LRR(rank=3, l2=[5, 0, 30]), SIGMA[:3] ** 2 / (SIGMA[:3] ** 2 + [5, 0, 30])),
    (gr.RegularizedPCA(rank=8, l2=3), np.maximum(SIGMA[:8] - 3, 0) / SIGMA[:8]),
    (gr.RegularizedPCA(rank=24, l2=0), np.ones(24)),
    (gr.WLAE(rank=8, l2=10), np.maximum(1 - 10 / SIGMA[:8] ** 2, 0)),
    (gr.VLAE(rank=8, scale=12), np.maximum(1 - 12 / SIGMA[:8] ** 2, 0)),
    (gr.VLAE(rank=3, scale=(3, 1, 2)), 1 - np.array([1, 2, 3]) / SIGMA[:3]),
    (gr.WLAE(rank=3, l2=(9, 4, 6)), 1 - np.array([4, 6, 9]) / SIGMA[:3] ** 2),
]


@pytest.mark.parametrize(("recipe", "f"), TWINS, ids=[str(t[0]) for t in TWINS])
def test_singular_vectors_are_kept_and_shrunk(recipe, f):
    np.testing.assert_allclose(weights(recipe), keeping_vectors(f), atol=2e-6)


@pytest.mark.parametrize(
    "recipe",
    [gr.RegularizedPCA(rank=24, l2=3), gr.DropoutMF(keep=0.9), gr.NuclearNormMF(l2=4), gr.VLAE(rank=24, scale=9)],
    ids=str,
)
def test_the_fold_in_of_a_training_user_is_the_fitted_row(recipe):
    model = recipe.fit(EVENTS, dtype="float64")
    sigma = np.linalg.norm(model.factors()[0], axis=0) * SIGMA[: model.factors()[0].shape[1]]
    np.testing.assert_allclose(model.scores(EVENTS), (U[:, : len(sigma)] * sigma) @ VT[: len(sigma)], atol=1e-5)


def flat(*parts):
    return np.concatenate([p.ravel() for p in parts])


def optimum(objective, *shapes, seed=0):
    """What a long numerical optimisation with numerical gradients of a small problem reaches."""
    sizes = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]

    def value_and_gradient(theta):
        value, gradients = objective(*(p.reshape(s) for p, s in zip(np.split(theta, sizes), shapes, strict=True)))
        return value, flat(*gradients)

    start = np.random.default_rng(seed).standard_normal(int(sum(np.prod(s) for s in shapes))) * 0.3
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 5_000, "maxfun": 10_000}).fun


def test_regularized_pca_is_the_optimum():
    l2, k = 3.0, 5

    def objective(p, q):
        error = p @ q - X
        gradients = 2 * error @ q.T + 2 * l2 * p, 2 * p.T @ error + 2 * l2 * q
        return (error**2).sum() + l2 * ((p**2).sum() + (q**2).sum()), gradients

    fitted = np.maximum(SIGMA[:k] - l2, 0)
    ours = ((X - X @ weights(gr.RegularizedPCA(rank=k, l2=l2))) ** 2).sum() + 2 * l2 * fitted.sum()
    assert ours == pytest.approx(optimum(objective, (80, k), (k, 24)), rel=1e-5)


def test_wlae_is_the_optimum():
    l2, k = 10.0, 4

    def objective(a, b):
        error = X @ a @ b - X
        gradients = 2 * X.T @ error @ b.T + 2 * l2 * a, 2 * (X @ a).T @ error + 2 * l2 * b
        return (error**2).sum() + l2 * ((a**2).sum() + (b**2).sum()), gradients

    w = weights(gr.WLAE(rank=k, l2=l2))
    ours = ((X - X @ w) ** 2).sum() + 2 * l2 * np.linalg.svd(w, compute_uv=False).sum()
    assert ours == pytest.approx(optimum(objective, (24, k), (k, 24)), rel=1e-5)


def autoencoder_loss(w, penalty):
    return ((X - X @ w) ** 2).sum() + (penalty[:, None] * w**2).sum()


@pytest.mark.parametrize("recipe", [gr.LRR(rank=4, l2=15), gr.LowRankDLAE(rank=4, dropout=0.4, l2=5)], ids=str)
def test_a_low_rank_autoencoder_is_the_optimum(recipe):
    p = getattr(recipe, "dropout", 0)
    penalty = p / (1 - p) * np.diag(S) + recipe.l2

    def objective(a, b):
        w = a @ b
        slope = 2 * (S @ w - S + penalty[:, None] * w)
        return autoencoder_loss(w, penalty), (slope @ b.T, a.T @ slope)

    ours = autoencoder_loss(weights(recipe), penalty)
    assert ours == pytest.approx(optimum(objective, (24, 4), (4, 24)), rel=1e-5)


@pytest.mark.parametrize("power", [1, 1.5, 2, 3])
def test_nuclear_norm_to_any_power_is_stationary_and_best(power):
    """The loss of singular values y: Σ(σ − y)² + l2·(Σy)^power, which is convex."""
    l2 = {1: 4.0, 1.5: 0.4, 2: 0.05, 3: 0.002}[power]
    model = gr.NuclearNormMF(l2=l2, power=power).fit(EVENTS, dtype="float64")
    rank = model.factors()[0].shape[1]
    y = np.zeros(24)
    y[:rank] = np.linalg.norm(model.factors()[0], axis=0) * SIGMA[:rank]

    def loss(y):
        return ((SIGMA - y) ** 2).sum() + l2 * y.sum() ** power

    found = minimize(loss, y * 0 + 0.5, bounds=[(0, None)] * 24, method="L-BFGS-B", options={"ftol": 1e-15, "maxiter": 9_999})
    assert loss(y) <= found.fun * (1 + 1e-9)
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert loss(y) <= loss(np.maximum(y + rng.standard_normal(24) * 0.05, 0))
    assert 0 < rank < 24
    lowered = SIGMA[:rank] - y[:rank]
    np.testing.assert_allclose(lowered, lowered[0], atol=1e-4)  # Lemma 2: by one number, whatever the power
    assert (SIGMA[rank:] <= lowered[0] + 1e-4).all()


@pytest.mark.parametrize("keep", [0.5, 0.8, 0.95])
def test_dropping_factors_out_is_the_squared_nuclear_norm(keep):
    dropout, norm = gr.DropoutMF(keep=keep), gr.NuclearNormMF(l2=(1 - keep) / keep, power=2)
    assert gr.equivalent(dropout, norm)
    np.testing.assert_allclose(weights(dropout), weights(norm), atol=1e-6)
    sums = np.cumsum(SIGMA)
    d = np.arange(1, 25)
    mu = (1 - keep) / (keep + (1 - keep) * d) * sums
    assert dropout.fit(EVENTS).factors()[0].shape[1] == np.flatnonzero(mu < SIGMA)[-1] + 1  # the induced rank


def test_identities_between_the_models():
    assert gr.equivalent(gr.VLAE(rank=8, scale=12), gr.WLAE(rank=8, l2=12))
    assert not gr.equivalent(gr.VLAE(rank=3, scale=(1, 2, 3)), gr.WLAE(rank=3, l2=(1, 2, 3)))
    np.testing.assert_allclose(weights(gr.VLAE(rank=8, scale=12)), weights(gr.WLAE(rank=8, l2=12)), atol=1e-7)
    assert gr.equivalent(gr.VLAE(rank=3, scale=(2, 2, 2)), gr.RegularizedPCA(rank=3, l2=2))
    np.testing.assert_allclose(weights(gr.VLAE(rank=3, scale=(2, 2, 2))), weights(gr.RegularizedPCA(rank=3, l2=2)), atol=1e-7)
    for model, name in ((gr.LRR, "l2"), (gr.WLAE, "l2")):
        assert gr.equivalent(model(rank=3, **{name: (5, 5, 5)}), model(rank=3, **{name: 5}))
    for model, name in ((gr.VLAE, "scale"), (gr.WLAE, "l2")):
        assert gr.equivalent(model(rank=3, **{name: (1, 3, 2)}), model(rank=3, **{name: (3, 2, 1)}))
    assert not gr.equivalent(gr.LRR(rank=3, l2=(1, 3, 2)), gr.LRR(rank=3, l2=(3, 2, 1)))


FULL_RANK = [
    (gr.RegularizedPCA(rank=24, l2=3), gr.NuclearNormMF(l2=6, power=1)),
    (gr.VLAE(rank=24, scale=(3.0,) * 24), gr.NuclearNormMF(l2=6, power=1)),
    (gr.LRR(rank=24, l2=7), gr.DLAE(dropout=0, l2=7)),
    (gr.LowRankDLAE(rank=24, dropout=0.3, l2=7), gr.DLAE(dropout=0.3, l2=7)),
    (gr.LowRankEDLAE(rank=24, dropout=0.3, l2=7), gr.EDLAE(dropout=0.3, l2=7)),
    (gr.LowRankEDLAE(rank=24, dropout=0.0, l2=7, truncate="weights"), gr.EASE(l2=7)),
]


@pytest.mark.parametrize(("recipe", "full"), FULL_RANK, ids=[str(pair[0]) for pair in FULL_RANK])
def test_a_rank_as_high_as_the_data_allow_is_no_constraint(recipe, full):
    few_users = gr.Interactions.of(X[:10])
    assert not gr.equivalent(recipe, full)  # on other data the rank counts
    assert gr.equivalent(recipe, full, EVENTS)
    assert gr.equivalent(full, recipe, gr.Gram.of(EVENTS))
    np.testing.assert_allclose(weights(recipe), weights(full), atol=2e-6)
    larger = gr.Interactions.of(np.hstack([X, X[:, :1]]))
    assert not gr.equivalent(recipe, full, larger)
    if isinstance(recipe, gr.RegularizedPCA):  # ten users have ten singular values
        lower = gr.RegularizedPCA(rank=10, l2=1)
        assert gr.equivalent(lower, gr.NuclearNormMF(l2=2, power=1), few_users)
        np.testing.assert_allclose(weights(lower, few_users), weights(gr.NuclearNormMF(2, 1), few_users), atol=1e-6)
    if isinstance(recipe, gr.LowRankEDLAE):  # whose full rank is that of the catalog
        assert not gr.equivalent(gr.LowRankEDLAE(10, 0.3, 7), gr.EDLAE(0.3, 7), few_users)


def test_weights_sort_themselves():
    scale, rng = np.array([0.5, 3, 1.5, 2]), np.random.default_rng(0)
    for recipe in (gr.VLAE, gr.WLAE):
        name = "scale" if recipe is gr.VLAE else "l2"
        expected = weights(recipe(rank=4, **{name: scale}))
        for _ in range(5):
            np.testing.assert_array_equal(weights(recipe(rank=4, **{name: rng.permutation(scale)})), expected)


def test_no_order_of_the_weights_is_better_than_the_sorted_one():
    """OPT1 of Proposition 2 at a fixed product PQ = W is 2·Σ σ_i(W)·λ_i with the smallest λ at the largest σ."""
    lam, k = np.array([3.0, 1, 2]), 3

    def objective(p, q):
        error = p @ q - X
        gradients = 2 * error @ q.T + 2 * p * lam, 2 * p.T @ error + 2 * lam[:, None] * q
        return (error**2).sum() + (lam * (p**2).sum(axis=0)).sum() + (lam[:, None] * q**2).sum(), gradients

    y = SIGMA[:k] - np.sort(lam)
    ours = ((X - X @ weights(gr.VLAE(rank=k, scale=lam))) ** 2).sum() + 2 * (np.sort(lam) * y).sum()
    assert ours == pytest.approx(optimum(objective, (80, k), (k, 24)), rel=1e-5)


def test_a_weighted_nuclear_norm_is_a_frobenius_norm_of_one_l2_for_each_factor():
    """Proposition 1: σ²/(σ² + l2) = (σ − λ)/σ at l2 = σ³/(σ − λ) − σ²."""
    lam = np.array([0.5, 1, 1.5, 2])
    sigma = SIGMA[:4]
    l2 = sigma**3 / (sigma - lam) - sigma**2
    np.testing.assert_allclose(weights(gr.LRR(rank=4, l2=l2)), weights(gr.VLAE(rank=4, scale=lam)), atol=1e-6)


def test_the_weights_of_lrr_mapped_to_vlae_are_sorted():
    """Table 3 of the paper: the weighted LRR, and VLAE with its weights sorted."""
    ascending = gr.LRR(rank=4, l2=[1, 2, 6, 8])  # whose λ = σ·l2/(σ² + l2) ascend too
    mapped = gr.VLAE.from_lrr(ascending, EVENTS)
    np.testing.assert_allclose(mapped.scale, SIGMA[:4] * ascending.l2 / (SIGMA[:4] ** 2 + ascending.l2), rtol=1e-5)
    assert list(mapped.scale) == sorted(mapped.scale)
    np.testing.assert_allclose(weights(mapped), weights(ascending), atol=1e-5)
    assert mapped.scale == pytest.approx(gr.VLAE.from_lrr(ascending, gr.Gram.of(EVENTS)).scale, rel=1e-5)
    descending = gr.LRR(rank=4, l2=[200, 20, 2, 1])
    lam = SIGMA[:4] * descending.l2 / (SIGMA[:4] ** 2 + descending.l2)
    f = np.maximum(1 - np.sort(lam) / SIGMA[:4], 0)
    np.testing.assert_allclose(weights(gr.VLAE.from_lrr(descending, EVENTS)), keeping_vectors(f), atol=1e-5)
    assert np.abs(weights(descending) - keeping_vectors(f)).max() > 0.01
    assert gr.VLAE.from_lrr(gr.LRR(rank=4, l2=0), EVENTS).scale == (0, 0, 0, 0)


def full(recipe):
    return recipe.fit(EVENTS, dtype="float64").weights()


def top_vectors(a, k):
    return np.linalg.eigh(a)[1][:, ::-1][:, :k]


@pytest.mark.parametrize("l2", [0.5, 20])
@pytest.mark.parametrize("k", [1, 5, 24])
def test_truncations_are_those_of_the_dense_matrices(k, l2):
    dropout = 0.3
    c = S + dropout / (1 - dropout) * np.diag(np.diag(S)) + l2 * np.eye(24)
    for recipe, whole in [
        (gr.LowRankDLAE(rank=k, dropout=dropout, l2=l2), gr.DLAE(dropout, l2)),
        (gr.LowRankEDLAE(rank=k, dropout=dropout, l2=l2), gr.EDLAE(dropout, l2)),
        (gr.LowRankEDLAE(rank=k, dropout=dropout, l2=l2, truncate="weights"), gr.EDLAE(dropout, l2)),
    ]:
        w = full(whole)
        q = top_vectors(w.T @ c @ w if getattr(recipe, "truncate", "output") == "output" else w.T @ w, k)
        np.testing.assert_allclose(weights(recipe), w @ q @ q.T, atol=2e-6)
        if k == 24:
            np.testing.assert_allclose(weights(recipe), w, atol=2e-6)  # the full rank is the whole model


def test_low_rank_deql_with_a_equal_to_b_is_low_rank_dlae():
    """Paper 000, appendix B: W = Σxx^{−½}[Σxx^{−½}Σxy]_k."""
    p, l2, k = 0.4, 3.0, 5
    q = 1 - p
    xx = q * q * S + q * p * np.diag(np.diag(S)) + q * q * l2 * np.eye(24)  # E X̃ᵀX̃ and E X̃ᵀX for X̃ with a share p hidden
    values, vectors = np.linalg.eigh(xx)
    root = (vectors / np.sqrt(values)) @ vectors.T
    u, s, vt = np.linalg.svd(root @ (q * S))
    expected = root @ (u[:, :k] * s[:k]) @ vt[:k]
    np.testing.assert_allclose(weights(gr.LowRankDLAE(rank=k, dropout=p, l2=l2)) / q, expected, atol=2e-6)


def edlae_loss(u, v, penalty):
    """EDLAE's loss of UVᵀ with its diagonal taken out."""
    w = u @ v.T
    return autoencoder_loss(w - np.diag(np.diag(w)), penalty)


def naive_printed_updates(p, l2, k, omega, n_epochs):
    """The printed updates, dense."""
    lam = np.diag(p / (1 - p) * np.diag(S) + l2)
    om = lam + omega * np.eye(24)
    v = VT.T[:, :k]
    beta = gamma = np.zeros(24)
    for _ in range(n_epochs):
        r = S @ np.diag(1 + beta) + om @ np.diag(beta - gamma)
        u = np.linalg.inv(S + lam + om) @ r @ v @ np.linalg.inv(v.T @ v)
        v = (np.linalg.inv(u.T @ (S + lam + om) @ u) @ u.T @ r).T
        w = u @ v.T
        beta = (np.diag(S @ w) - np.diag(S) + np.diag(om) * (np.diag(w) + gamma)) / (np.diag(S) + omega)
        gamma = gamma + np.diag(w) - beta
        yield u, v


def naive_steck_updates(p, l2, k, omega, n_epochs):
    """The updates of Steck's public code, dense."""
    lam = np.diag(p / (1 - p) * np.diag(S) + l2)
    om = lam + omega * np.eye(24)
    u = np.random.default_rng(0).standard_normal((24, k), np.float32).astype(float)
    beta = gamma = np.zeros(24)
    for _ in range(n_epochs):
        r = S @ np.diag(1 + beta) + om @ np.diag(beta - gamma)
        v = (np.linalg.inv(u.T @ (S + lam + om) @ u) @ u.T @ r).T
        u = np.linalg.inv(S + lam) @ r @ v @ np.linalg.inv(v.T @ v)
        w = u @ v.T
        beta = (np.diag(S @ w) - np.diag(S) + np.diag(om) * (np.diag(w) + gamma)) / (np.diag(S) + omega)
        beta = np.maximum(beta, 0)
        gamma = gamma + np.diag(w) - beta
        yield u, v


@pytest.mark.parametrize(
    ("updates", "naive"),
    [(gr.PrintedUpdates(), naive_printed_updates), (gr.SteckUpdates(), naive_steck_updates)],
    ids=["printed", "steck"],
)
def test_admm_is_its_updates_and_returns_the_round_with_the_lowest_loss(updates, naive):
    penalty = 0.3 / 0.7 * np.diag(S) + 4
    recipe = gr.ADMMEDLAE(rank=5, dropout=0.3, l2=4, omega=50, n_epochs=7, updates=updates)
    expected = list(naive(0.3, 4, 5, 50, 7))
    for (u, v, _), (naive_u, naive_v) in zip(recipe.rounds(EVENTS, np.float64), expected, strict=False):
        np.testing.assert_allclose(u @ v.T, naive_u @ naive_v.T, rtol=1e-5, atol=1e-8)
    u, v = min(expected, key=lambda round: edlae_loss(*round, penalty))
    np.testing.assert_allclose(weights(recipe), u @ v.T, atol=1e-5)


def test_printed_updates_settle_near_the_optimum():
    recipe = gr.ADMMEDLAE(rank=6, dropout=0.4, l2=5, omega=30, updates=gr.PrintedUpdates())
    penalty = 0.4 / 0.6 * np.diag(S) + 5
    values = []
    for u, v, loss in islice(recipe.rounds(EVENTS, np.float64), 200):
        values.append(loss)
        assert loss == pytest.approx(edlae_loss(u, v, penalty), rel=1e-9)
    assert values[-1] < values[0]
    assert values[-1] == pytest.approx(values[-2], rel=1e-4)
    closed = full(gr.LowRankEDLAE(rank=6, dropout=0.4, l2=5)) * 0.6
    assert values[-1] == pytest.approx(autoencoder_loss(closed - np.diag(np.diag(closed)), penalty), rel=0.05)


def edlae_optimum(k, penalty):
    c = S + np.diag(penalty)

    def objective(u, v):
        m = u @ v.T
        m -= np.diag(np.diag(m))
        gradient = 2 * (c @ m - S)
        gradient -= np.diag(np.diag(gradient))
        return autoencoder_loss(m, penalty), (gradient @ v, gradient.T @ u)

    return min(optimum(objective, (24, k), (24, k), seed=seed) for seed in range(4))


def test_als_lowers_the_loss_in_every_round_to_its_optimum():
    p, l2, k = 0.3, 4.0, 5
    penalty = p / (1 - p) * np.diag(S) + l2
    recipe = gr.ALSEDLAE(rank=k, dropout=p, l2=l2)
    losses = [loss for _, _, loss in islice(recipe.rounds(EVENTS, np.float64), 300)]
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()
    truncated = full(gr.LowRankEDLAE(rank=k, dropout=p, l2=l2)) * (1 - p)
    assert losses[0] < autoencoder_loss(truncated - np.diag(np.diag(truncated)), penalty)
    assert losses[-1] == pytest.approx(edlae_optimum(k, penalty), rel=1e-3)


def test_als_solves_for_the_decoder_exactly():
    """Item by item: v_i is the ridge regression of item i on the factors of all others."""
    rng = np.random.default_rng(0)
    penalty = rng.random(24) * 10 + 1
    u = rng.standard_normal((24, 5))
    c = S + np.diag(penalty)
    expected = []
    for i in range(24):
        others = u.copy()
        others[i] = 0
        expected.append(np.linalg.solve(others.T @ c @ others, others.T @ S[:, i]))
    np.testing.assert_allclose(solve_decoder(u, c @ u, np.diag(c)[:, None]), expected, rtol=1e-8)


def test_als_of_full_rank_is_edlae():
    recipe = gr.ALSEDLAE(rank=24, dropout=0.3, l2=4, n_epochs=3)
    w = weights(recipe)
    np.testing.assert_allclose(w - np.diag(np.diag(w)), full(gr.EDLAE(0.3, 4)) * 0.7, atol=1e-5)


@pytest.mark.parametrize("updates", [gr.SteckUpdates(), gr.PrintedUpdates()], ids=str)
def test_admm_on_identical_users_is_finite(updates):
    same = gr.Interactions.of(np.tile(X[:1], (30, 1)))
    assert np.isfinite(gr.ADMMEDLAE(rank=4, updates=updates).fit(same).scores(same)).all()


def test_an_admm_that_diverges_keeps_an_earlier_round_or_refuses(refused, monkeypatch):
    diverging = gr.ADMMEDLAE(rank=5, dropout=0.1, l2=1, omega=500, n_epochs=50)
    losses = [loss for _, _, loss in islice(diverging.rounds(EVENTS, np.float64), 12)]
    assert losses[-1] > 1e3 * losses[0]
    w = weights(diverging)
    assert autoencoder_loss(w - np.diag(np.diag(w)), 0.1 / 0.9 * np.diag(S) + 1) == pytest.approx(min(losses), rel=1e-3)
    rounds = gr.ADMMEDLAE.rounds
    monkeypatch.setattr(gr.ADMMEDLAE, "rounds", lambda *a: islice(rounds(*a), 10, None))  # only rounds that have diverged
    with refused(gr.errors.Diverged, "predicting nothing"):
        diverging.fit(EVENTS)


def test_low_rank_edlae_on_real_data():
    """ADMM once returned garbage at its defaults (ndcg@20 .0018), which small random data did not show."""
    split = gr.split.strong(gr.datasets.load("movielens", min_value=4).k_core(10), seed=0)
    dense, p, l2 = split.train.matrix.toarray().astype(float), 0.3, 200.0
    penalty = p / (1 - p) * (dense**2).sum(axis=0) + l2
    values, losses = {}, {}
    for recipe in (gr.LowRankEDLAE(64, p, l2), gr.ADMMEDLAE(64, p, l2), gr.ALSEDLAE(64, p, l2)):
        model = recipe.fit(split.train)
        w = model.weights() * (1 - p if isinstance(recipe, gr.LowRankEDLAE) else 1)
        np.fill_diagonal(w, 0)
        losses[type(recipe)] = ((dense - dense @ w) ** 2).sum() + (penalty[:, None] * w**2).sum()
        values[type(recipe)] = gr.evaluate(model, split, ["ndcg@20"])["ndcg@20"]
    assert losses[gr.ALSEDLAE] < losses[gr.LowRankEDLAE] < losses[gr.ADMMEDLAE] < 1.05 * losses[gr.ALSEDLAE]
    assert min(values.values()) > 0.97 * max(values.values())


@pytest.mark.parametrize("l2", [1.0, 3e3, 1e5])
@pytest.mark.parametrize("kind", [gr.LowRankDLAE, gr.LowRankEDLAE])
def test_float32_suffices_for_any_l2(kind, l2):
    events = gr.Interactions.of((np.random.default_rng(0).random((400, 200)) < 0.05).astype(float))
    recipe = kind(rank=32, dropout=0.3, l2=l2)
    exact = recipe.fit(events, dtype="float64").weights()
    assert np.linalg.norm(recipe.fit(events).weights() - exact) < 2e-2 * np.linalg.norm(exact)


# bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gr.LRR(rank=25).fit(EVENTS), "a rank of at most 24"),
        (lambda: gr.LowRankEDLAE(rank=1_000).fit(EVENTS), "a rank of at most 24"),
        (lambda: gr.ADMMEDLAE(rank=25).fit(EVENTS), "a rank of at most 24"),
        (lambda: gr.ALSEDLAE(rank=25).fit(EVENTS), "a rank of at most 24"),
        (lambda: gr.VLAE.from_lrr(gr.LRR(rank=25), EVENTS), "a rank of at most 24"),
        (lambda: gr.ADMMEDLAE(omega=0), "omega of ADMMEDLAE to be a number of at least 1e-09"),
        (lambda: gr.ADMMEDLAE(omega=-1), "omega of ADMMEDLAE to be a number of at least 1e-09"),
        (lambda: gr.WLAE(rank=3, l2=(1, 1, 1, 1)), "one l2 for each of the 3 factors"),
        (lambda: gr.LRR(rank=0), "a whole number of at least 1"),
        (lambda: gr.LRR(rank=2.5), "a whole number of at least 1"),
        (lambda: gr.LRR(rank=True), "a whole number of at least 1"),
        (lambda: gr.VLAE(rank=2, scale=(1, -1)), "at least 0, or a list with one for each factor"),
        (lambda: gr.VLAE(rank=2, scale=()), "a list with one for each factor"),
        (lambda: gr.LRR(rank=2, l2=[[1, 2], [3, 4]]), "a list with one for each factor"),
        (lambda: gr.VLAE(rank=3, scale=(1, 1)), "one scale for each of the 3 factors"),
        (lambda: gr.LRR(rank=3, l2=(1, 1)), "one l2 for each of the 3 factors"),
        (lambda: gr.RegularizedPCA(rank=3, l2=(1, 1, 1)), "l2 of RegularizedPCA to be a number"),
        (lambda: gr.NuclearNormMF(power=0.9), "power of NuclearNormMF to be a number of at least 1"),
        (lambda: gr.DropoutMF(keep=0), "at least 1e-09"),
        (lambda: gr.DropoutMF(keep=1), "below 1"),
        (lambda: gr.RegularizedPCA(rank=4, l2=1_000).fit(EVENTS), "the largest singular value is"),
        (lambda: gr.VLAE(rank=4, scale=1e6).fit(EVENTS), "scale of VLAE to leave a factor"),
        (lambda: gr.WLAE(rank=2, l2=(1e6, 1e6)).fit(EVENTS), "l2 of WLAE to leave a factor"),
        (lambda: gr.NuclearNormMF(l2=1e6).fit(EVENTS), "all shrunk to 0"),
        (lambda: gr.LowRankEDLAE(truncate="both"), "'output' or 'weights'"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(gr.errors.InvalidInput, match=message):
        make()


LOW_RANK = [
    gr.LRR(4), gr.LowRankDLAE(4), gr.LowRankEDLAE(4), gr.LowRankEDLAE(4, truncate="weights"), gr.ADMMEDLAE(4),
    gr.RegularizedPCA(4, 1), gr.DropoutMF(), gr.WLAE(4, 1), gr.VLAE(4, 1), gr.NuclearNormMF(3), gr.LRR(2, l2=(3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("recipe", LOW_RANK, ids=str)
def test_low_rank_models_are_saved_loaded_asked_and_explained(recipe, tmp_path):
    model = recipe.fit(EVENTS)
    model.save(tmp_path / "model")
    again = gr.load(tmp_path / "model")
    assert again.recipe == recipe
    assert again.recommend_for([[0, 3, 5]], k=5) == model.recommend_for([[0, 3, 5]], k=5)
    encoder, decoder = model.factors()
    assert encoder.dtype == decoder.dtype == np.float32
    assert encoder.shape == decoder.shape == (24, encoder.shape[1])
    row = gr.Interactions.of(np.eye(24)[[0]] + np.eye(24)[[3]])
    reasons = model.explain([0, 3], 7)
    assert reasons.score == pytest.approx(float(model.scores(row)[0, 7]), abs=1e-5)


def test_interactions_nobody_has_are_no_problem():
    x = X.copy()
    x[:, 5] = 0
    events = gr.Interactions.of(x)
    for recipe in (*LOW_RANK, gr.LRR(4, l2=0), gr.LowRankDLAE(4, l2=0), gr.RegularizedPCA(24, l2=0)):
        assert np.isfinite(recipe.fit(events).weights()).all()
