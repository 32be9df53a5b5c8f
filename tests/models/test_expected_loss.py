"""DEQL in general: recipes with a quadratic loss of their own for every item, and Theorem B.1, against naive minimisers."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import gramian as gr
import naive
from gramian.core.params import configurable, param

RNG = np.random.default_rng(0)
X = (RNG.random((40, 9)) < np.linspace(0.6, 0.2, 9)).astype(float)
EVENTS = gr.Interactions.of(X)


@configurable
class PaperDEQL(gr.DecoupledAutoencoder):
    """The DEQL paper's own systems (Lemma 3.2)."""

    a: float = param(1.0, "weight of hidden interactions")
    b: float = param(0.5, "weight of kept interactions")
    p: float = param(0.3, "dropout")
    lam: float = param(2.0, "penalty")

    def systems(self, events):
        x = events.matrix.toarray().astype(float)
        for i in range(events.n_items):
            h, v = naive.deql_system(x, self.a, self.b, self.p, i)
            yield h + self.lam * np.eye(len(h)) * (np.diag(h) > 0), v


@configurable
class ConfidentEASE(gr.DecoupledAutoencoder):
    """Σ_u (1 + confidence·x_ui)·(x_ui − x_u·w)² + l2·‖w‖² for each item i: the weights of WRMF, which no Gram matrix holds."""

    confidence: float = param(4.0, "additional weight of a touched item")
    l2: float = param(3.0, "penalty")
    zero_diagonal: bool = param(True, "force the diagonal to 0")

    def systems(self, events):
        x = events.matrix.toarray().astype(float)
        for i in range(events.n_items):
            weighted = x * (1 + self.confidence * x[:, [i]])
            h, v = x.T @ weighted + self.l2 * np.eye(events.n_items), weighted.T @ x[:, i]
            if self.zero_diagonal:
                h[i] = h[:, i] = v[i] = 0
            yield h, v


@configurable
class Denoising(gr.LowRankRegression):
    """DLAE's moments, of X̃ that is X/q with a share p of its entries hidden."""

    rank: int = param(3, "rank")
    dropout: float = param(0.3, "dropout")
    l2: float = param(2.0, "penalty")

    def moments(self, events):
        gram = (events.matrix.T @ events.matrix).toarray().astype(float)
        penalty = self.dropout / (1 - self.dropout) * np.diag(gram) + self.l2
        return gram + np.diag(penalty), gram


@configurable
class Rotated(Denoising):
    """Targets that are not the inputs: Σxy is not symmetric."""

    def moments(self, events):
        xx, xy = super().moments(events)
        return xx, xy @ np.random.default_rng(1).standard_normal(xy.shape)


@pytest.mark.parametrize(("a", "b", "p", "lam"), [(1, 0.5, 0.3, 2), (1, 2, 0.6, 1), (2, 2, 0.2, 0), (1, 0, 0.3, 2)])
def test_the_papers_systems_give_deql(a, b, p, lam):
    """b = 0 leaves the diagonal free: it is 0, as in Eq. 13 with Steck's choice."""
    general = PaperDEQL(a, b, p, lam).fit(EVENTS).weights()
    np.testing.assert_allclose(general, gr.DEQL.from_paper(a, b, p, lam).fit(EVENTS, dtype="float64").weights(), atol=1e-6)


@pytest.mark.parametrize("zero_diagonal", [False, True])
def test_any_weights_of_users_and_items_reach_the_minimum_of_their_loss(zero_diagonal):
    recipe = ConfidentEASE(zero_diagonal=zero_diagonal)
    w = recipe.fit(EVENTS).weights()
    for i in range(9):
        free = [k for k in range(9) if not (zero_diagonal and k == i)]

        def loss(values, i=i, free=free):
            errors = X[:, i] - X[:, free] @ values
            return ((1 + recipe.confidence * X[:, i]) * errors**2).sum() + recipe.l2 * (values**2).sum()

        best = minimize(loss, np.zeros(len(free)), method="BFGS")
        np.testing.assert_allclose(w[free, i], best.x, atol=1e-4)
    assert not zero_diagonal or not np.diag(w).any()


@pytest.mark.parametrize("k", [1, 3, 9])
def test_low_rank_regression_of_dlaes_moments_is_low_rank_dlae(k):
    expected = gr.LowRankDLAE(k, 0.3, 2.0).fit(EVENTS, dtype="float64").weights()
    np.testing.assert_allclose(Denoising(k).fit(EVENTS).weights(), expected, atol=1e-5)


@pytest.mark.parametrize("recipe", [Denoising(2), Rotated(2)], ids=["symmetric", "not symmetric"])
def test_theorem_b_1_is_the_optimum_of_low_rank(recipe):
    xx, xy = recipe.moments(EVENTS)

    def loss(w):
        return (w * (xx @ w)).sum() - 2 * (w * xy).sum()

    def objective(theta):
        a, b = theta[:18].reshape(9, 2), theta[18:].reshape(2, 9)
        gradient = 2 * (xx @ a @ b - xy)
        return loss(a @ b), np.concatenate([(gradient @ b.T).ravel(), (a.T @ gradient).ravel()])

    starts = np.random.default_rng(2).standard_normal((4, 36))
    best = min(minimize(objective, start, jac=True, method="BFGS").fun for start in starts)
    w = recipe.fit(EVENTS).weights()
    assert np.linalg.matrix_rank(w, tol=1e-4) == 2
    assert loss(w) == pytest.approx(best, rel=1e-5)


def test_items_that_nobody_touched_have_no_weights():
    x = X.copy()
    x[:, 4] = 0
    events = gr.Interactions.of(x)
    for recipe in (PaperDEQL(lam=0), ConfidentEASE(), Denoising()):
        w = recipe.fit(events).weights()
        np.testing.assert_allclose(w[4], 0, atol=1e-6)
        np.testing.assert_allclose(w[:, 4], 0, atol=1e-6)


def test_a_large_catalog_is_refused_with_the_memory_it_would_need(refused):
    large = gr.Interactions.of(sp.eye_array(200_000, format="csr"))
    for recipe in (ConfidentEASE(), Denoising()):
        with refused(gr.errors.NotEnoughMemory, "second moments of 200,000 items"):
            recipe.fit(large)


class Broken(gr.DecoupledAutoencoder):
    def __init__(self, systems):
        object.__setattr__(self, "made", systems)

    def systems(self, events):
        return iter(self.made)


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ([(np.eye(9), np.ones(9))] * 8, "a system for each of the 9 items"),
        ([(np.eye(8), np.ones(9))] * 9, "finite arrays of the shapes"),
        ([(np.eye(9) * np.nan, np.ones(9))] * 9, "finite arrays of the shapes"),
        ([(np.ones((9, 9)), np.ones(9))] * 9, "H of column 0 to be positive definite"),
        ([(-np.eye(9), np.ones(9))] * 9, "H of column 0 to be positive definite"),
    ],
    ids=["too few", "shape", "NaN", "singular", "indefinite"],
)
def test_wrong_systems_are_refused(systems, message, refused):
    with refused(mentioning=message):
        Broken(systems).fit_scorer(EVENTS, np.float32)


def test_a_rank_above_the_catalog_is_refused(refused):
    with refused(mentioning="a rank of at most 9"):
        Denoising(10).fit(EVENTS)
