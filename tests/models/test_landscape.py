"""The lemmas of the regularization-landscape paper (2022), each against its own statement."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

import gramian as gr

RNG = np.random.default_rng(0)
X = (RNG.random((80, 24)) < RNG.random(24) ** 1.5 * 0.8 + 0.05).astype(float)
EVENTS = gr.Interactions.of(X)
S = X.T @ X
SIGMA = np.linalg.svd(X, compute_uv=False)


def weights(recipe):
    return recipe.fit(EVENTS, dtype="float64").weights()


def random_definite(rng, k):
    a = rng.standard_normal((k, k))
    return a @ a.T + 0.1 * np.eye(k)


# Lemma 1: the linear variational autoencoder


def gaussian_log_density(x, mean, covariance):
    difference = x - mean
    log_determinant = np.linalg.slogdet(2 * np.pi * covariance)[1]
    return -0.5 * (difference @ np.linalg.solve(covariance, difference) + log_determinant)


def elbo_by_quadrature(x, encoder, decoder, variances, noise):
    """E_q[log p(x|z) + log p(z) − log q(z|x)] by Gauss–Hermite quadrature, exact because every logarithm is quadratic in z."""
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(4)
    node_weights = node_weights / node_weights.sum()
    k, n, mean = len(variances), len(x), encoder @ x
    total = 0.0
    for index in product(range(4), repeat=k):
        z = mean + np.sqrt(variances) * nodes[list(index)]
        log_ratio = (
            gaussian_log_density(x, decoder @ z, noise * np.eye(n))
            + gaussian_log_density(z, np.zeros(k), np.eye(k))
            - gaussian_log_density(z, mean, np.diag(variances))
        )
        total += node_weights[list(index)].prod() * log_ratio
    return total


@pytest.mark.parametrize("seed", range(3))
def test_lemma_1_the_elbo_is_the_loss_of_vlae(seed):
    rng = np.random.default_rng(seed)
    m, n, k, noise = 5, 4, 2, 0.7
    x, v, w, d = rng.random((m, n)), rng.standard_normal((k, n)), rng.standard_normal((n, k)), rng.random(k) + 0.1
    g = -noise * m * (np.log(d).sum() - d.sum() + k - n * np.log(2 * np.pi * noise))
    loss = ((x - x @ v.T @ w.T) ** 2).sum() + m * (d[:, None] * w.T**2).sum() + noise * ((x @ v.T) ** 2).sum() + g
    elbo = sum(elbo_by_quadrature(row, v, w, d, noise) for row in x)
    assert loss == pytest.approx(-2 * noise * elbo, rel=1e-10)
    # Appendix D.3: A = σVᵀ, B = Wᵀ/σ and Λ = σ(mD)^½ leave ‖X − XAB‖² + ‖XA‖² + ‖ΛB‖²
    a, b, lam = np.sqrt(noise) * v.T, w.T / np.sqrt(noise), np.sqrt(noise * m * d)
    cleared = ((x - x @ a @ b) ** 2).sum() + ((x @ a) ** 2).sum() + ((lam[:, None] * b) ** 2).sum()
    assert cleared == pytest.approx(loss - g, rel=1e-10)


def test_vlae_minimises_the_cleared_loss():
    """Corollary 1, Eq. 10: its A and B have the product of VLAE's weights, whatever the order of Λ."""
    lam, k = np.array([3.0, 1, 2]), 3

    def objective(theta):
        a, b = theta[: 24 * k].reshape(24, k), theta[24 * k :].reshape(k, 24)
        error, code = X @ a @ b - X, X @ a
        by_a, by_b = 2 * X.T @ (error @ b.T + code), 2 * (code.T @ error + lam[:, None] ** 2 * b)
        value = (error**2).sum() + (code**2).sum() + ((lam[:, None] * b) ** 2).sum()
        return value, np.concatenate([by_a.ravel(), by_b.ravel()])

    start = np.random.default_rng(0).standard_normal(48 * k) * 0.3
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2_000, "ftol": 1e-10})
    w = weights(gr.VLAE(rank=k, scale=lam))
    ours = ((X - X @ w) ** 2).sum() + 2 * (np.sort(lam) * np.linalg.svd(X @ w, compute_uv=False)[:k]).sum()
    assert ours == pytest.approx(found.fun, rel=1e-5)


# The weights of probabilistic PCA


def ppca_by_expectation_maximisation(x, k, n_rounds):
    """W and σ² of x ~ N(0, WWᵀ + σ²I)   (Tipping and Bishop 1999, with the mean at 0)."""
    m, n = x.shape
    w, noise = np.random.default_rng(0).standard_normal((n, k)), 1.0
    covariance = x.T @ x / m
    for _ in range(n_rounds):
        inner = np.linalg.inv(w.T @ w + noise * np.eye(k))
        image = covariance @ w
        new = image @ np.linalg.inv(noise * np.eye(k) + inner @ w.T @ image)
        noise = np.trace(covariance - image @ inner @ new.T) / n
        w = new
    return w, noise


@pytest.mark.parametrize("k", [2, 5])
def test_vlae_with_the_mean_of_the_discarded_eigenvalues_is_probabilistic_pca(k):
    """D = σ²(Σ²/m)⁻¹ makes the weights λ = C/σ with C = mσ² = Σ_{j>k} σ_j²/(n − k); XW is then PPCA's posterior mean of X."""
    w, noise = ppca_by_expectation_maximisation(X, k, 20_000)
    c = (SIGMA[k:] ** 2).sum() / (24 - k)
    assert 80 * noise == pytest.approx(c, rel=1e-6)
    posterior = w @ np.linalg.solve(w.T @ w + noise * np.eye(k), w.T)
    np.testing.assert_allclose(weights(gr.VLAE(rank=k, scale=c)), posterior, atol=1e-4)


# Lemma 2: any power of the nuclear norm


def lemma_2_threshold(sigma, l2, power, factor):
    """μ of Lemma 2, literally, times `factor`: 1 as printed, power/2 as it should be."""
    mu = 0.0
    for d in range(1, len(sigma) + 1):
        total = sigma[:d].sum()
        root = brentq(lambda z, d=d, total=total: z + factor * l2 * d * z ** (power - 1) - total, 0, total)
        if sigma[d - 1] - factor * l2 * root ** (power - 1) >= 0:
            mu = factor * l2 * root ** (power - 1)
    return mu


@pytest.mark.parametrize(("power", "l2"), [(1, 4.0), (1.5, 0.8), (2, 0.1), (3, 0.004)])
def test_lemma_2_needs_the_factor_that_its_print_lacks(power, l2):
    sigma = np.arange(10.0, 0, -1)

    def loss(y):
        return ((sigma - y) ** 2).sum() + l2 * y.sum() ** power

    def at(mu):
        return loss(np.maximum(sigma - mu, 0))

    best = minimize(loss, sigma / 2, bounds=[(0, None)] * 10, method="L-BFGS-B", options={"ftol": 1e-15}).fun
    printed, corrected = at(lemma_2_threshold(sigma, l2, power, 1)), at(lemma_2_threshold(sigma, l2, power, power / 2))
    assert corrected == pytest.approx(best, rel=1e-7)
    assert (printed == pytest.approx(corrected, rel=1e-9)) == (power == 2)
    if power == 1:  # the numbers of the module header and of docs/low_rank.md
        assert (printed, corrected) == (210, 181)
    fitted = gr.NuclearNormMF(l2=l2, power=power).fit(gr.Interactions.of(np.diag(sigma)), dtype="float64")
    assert loss(np.diag(fitted.weights()) * sigma) == pytest.approx(best, rel=1e-5)


# Lemma 3: the residual of EDLAE is orthogonal to every change without a diagonal


@pytest.mark.parametrize("dropout", [0.2, 0.7])
def test_lemma_3_the_residual_is_orthogonal(dropout):
    penalty = dropout / (1 - dropout) * np.diag(S) + 3
    stacked = np.vstack([X, np.diag(np.sqrt(penalty))])
    target = np.vstack([X, np.zeros((24, 24))])
    best = weights(gr.EDLAE(dropout, 3)) * (1 - dropout)
    rng = np.random.default_rng(0)
    for _ in range(5):
        w = rng.standard_normal((24, 24))
        np.fill_diagonal(w, 0)
        residual, change = target - stacked @ best, stacked @ (best - w)
        assert abs((residual * change).sum()) < 1e-5 * np.linalg.norm(residual) * np.linalg.norm(change)
        split = (residual**2).sum() + (change**2).sum()  # Eq. 22: the loss in two parts
        assert ((target - stacked @ w) ** 2).sum() == pytest.approx(split, rel=1e-6)
    with_diagonal = stacked @ np.eye(24)
    assert abs((residual * with_diagonal).sum()) > 1e-2 * np.linalg.norm(residual)  # a diagonal is not orthogonal


# Lemmas 4 and 5: why the weights sort themselves


@pytest.mark.parametrize("k", [1, 2, 5])
def test_lemma_4_is_a_rearrangement_inequality_of_matrices(k):
    rng = np.random.default_rng(0)
    for _ in range(50):
        a, b = random_definite(rng, k), random_definite(rng, k)
        values_a, values_b = np.linalg.eigvalsh(a), np.linalg.eigvalsh(b)
        assert (values_a * values_b[::-1]).sum() <= np.trace(a @ b) * (1 + 1e-12)  # tr(B^½AB^½) = tr(AB)
        vectors = np.linalg.eigh(a)[1]
        reversed_b = (vectors * values_b[::-1]) @ vectors.T  # the same eigenvectors in reversed order: equality
        assert np.trace(a @ reversed_b) == pytest.approx((values_a * values_b[::-1]).sum(), rel=1e-9)


@pytest.mark.parametrize("lam", [(1.0, 2, 4), (4.0, 1, 2), (4.0, 2, 1)])
def test_lemma_5_has_a_symmetric_optimum(lam):
    """min ‖Λ^½Q‖² + ‖PΛ^½‖² with PQ = Σ_W: no pair is better than the best P = Qᵀ = Σ_W^½·permutation."""
    lam, sigma = np.array(lam), np.array([5.0, 3, 0.5])

    def loss(p, q):
        return (lam[:, None] * q**2).sum() + (lam * p**2).sum()

    symmetric = min(loss(p, p.T) for p in (np.sqrt(np.diag(sigma))[:, list(order)] for order in permutations(range(3))))
    assert symmetric == pytest.approx(2 * (np.sort(lam) * sigma).sum(), rel=1e-12)

    def free(theta):
        q = theta.reshape(3, 3)
        return loss(np.diag(sigma) @ np.linalg.inv(q), q)

    starts = np.random.default_rng(0).standard_normal((6, 9)) + np.eye(3).ravel()
    found = [minimize(free, start, method="BFGS").fun for start in starts]
    assert min(found) == pytest.approx(symmetric, rel=1e-4)
    assert min(found) >= symmetric * (1 - 1e-9)
