"""Factor models with their losses written out in full, on small data."""

from functools import cache

import numpy as np

import gramian as gr

rng = np.random.default_rng(7)
X = (rng.random((50, 30)) < rng.random(30) ** 1.5 * 0.7 + 0.06).astype(float)
X[X.sum(axis=1) == 0, 3] = 1
EVENTS = gr.Interactions.of(X)
WEIGHTS = X * rng.integers(1, 5, X.shape)
M, N = X.shape
SIZES, D = X.sum(axis=1), X.sum()


def squared(target, weight, p, q):
    return (weight * (target - p @ q.T) ** 2).sum()


def penalty(p, q, of_users, of_items):
    return (of_users * (p**2).sum(axis=1)).sum() + (of_items * (q**2).sum(axis=1)).sum()


def wrmf(r, x, p, q):
    return squared(x > 0, 1 + r.positive_weight * x, p, q) + r.l2 * ((p**2).sum() + (q**2).sum())


def ials_penalty(r, x, p, q):
    of_users = r.l2 * (x.sum(axis=1) + r.unobserved_weight * x.shape[1]) ** r.l2_exponent
    of_items = r.l2 * (x.sum(axis=0) + r.unobserved_weight * x.shape[0]) ** r.l2_exponent
    return penalty(p, q, of_users, of_items)


def ials(r, x, p, q):
    return squared(1, x, p, q) + r.unobserved_weight * ((p @ q.T) ** 2).sum() + ials_penalty(r, x, p, q)


def debiased(r, x, p, q):
    c = (1 + r.hidden_share + r.hidden_items / x.sum(axis=1))[:, None]
    a, scores = r.unobserved_weight, p @ q.T
    touched = (x * c * ((scores - 1) ** 2 - a * scores**2)).sum()
    return touched + a * (scores**2).sum() + ials_penalty(r, x, p, q)


def ranking(r, x, p, q):
    """RG², RG× as printed, RG× as it is."""
    s, n = x.sum(axis=1, keepdims=True), x.shape[1]
    weight = np.where(x > 0, s, s * getattr(r, "negative_weight", 1.0))
    scores = p @ q.T
    value = squared(x * n / s - 1, weight, p, q)
    if isinstance(r, gr.RGX):
        met = scores.sum(axis=1) ** 2 if r.form == "exact" else (scores**2).sum(axis=1)
        value -= (r.interaction * s[:, 0] / n * met).sum()
    return value + penalty(p, q, r.l2 * weight.sum(axis=1), r.l2 * weight.sum(axis=0))


SOLVERS = [gr.Cholesky(), gr.ConjugateGradient(), gr.ConjugateGradient(steps=5), gr.Subspace(size=3), gr.Subspace(size=50)]
CASES = [
    (gr.WRMF(rank=5, positive_weight=3, l2=2), wrmf),
    (gr.IALS(rank=5, unobserved_weight=0.2, l2=0.05), ials),
    (gr.IALS(rank=7, unobserved_weight=0.1, l2=0.5, l2_exponent=0.5), ials),
    (gr.DebiasedIALS(rank=5, unobserved_weight=0.2, l2=0.05, hidden_share=0.4, hidden_items=0), debiased),
    (gr.DebiasedIALS(rank=5, unobserved_weight=0.2, l2=0.05, hidden_share=0.1, hidden_items=6), debiased),
    (gr.RG2ALS(rank=5, l2=0.1), ranking),
    (gr.RG2ALS(rank=5, l2=0.1, negative_weight=0.3), ranking),
    (gr.RG2ALS(rank=5, l2=0.1, negative_weight=1.7), ranking),
    (gr.RG2ALS.sampled(4, N, rank=5, l2=0.1), ranking),
    (gr.RGX(rank=5, l2=0.1, interaction=4), ranking),
    (gr.RGX(rank=5, l2=0.1, negative_weight=0.4, interaction=7), ranking),
    (gr.RGX.sampled(4, N, rank=5, l2=0.1), ranking),
    (gr.RGX(rank=5, l2=0.1, form="exact"), ranking),
    (gr.RG2NewtonCG(rank=5, l2=0.1), ranking),
]
IDS = [str(recipe) for recipe, _ in CASES]


def states(recipe, n, events=EVENTS, dtype=np.float64):
    training = recipe.iterate(events, recipe.initial_state(events, dtype))
    return [next(training) for _ in range(n)]


@cache
def movie_split():
    """MovieLens, split by users."""
    return gr.split.strong(gr.datasets.load("movielens", min_value=4), seed=1)
