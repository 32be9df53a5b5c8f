"""One penalty for each factor of low-rank ridge regression, learned from held-out items (Jin et al. 2021).

With the right singular vectors V and singular values σ of X, `LRR` with penalties λ scores a history x by

    x · V diag(f) Vᵀ,    f = σ² / (σ² + λ).

For a held-out item i of the user and any other item j, the pairwise loss log(1 + exp(−t·(score_i − score_j))) is that of a
logistic regression on the features (xV) ∘ (V_i − V_j), with the weights t·f. It is convex in f, and λ = σ²(1/f − 1). The search
is one for nearby models: penalties stay within a factor of the single l2 they start from. That factor is chosen on one half of
the users after learning from the other half, and may be 1. Without it, as many weights as factors overfit.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from gramian.core.recommender import Recommender
from gramian.data.split import Split
from gramian.errors import InvalidInput
from gramian.evaluation.evaluate import evaluate
from gramian.evaluation.metrics import MetricLike, parse_metric
from gramian.evaluation.task import RankingTask
from gramian.linalg.eigen import TopEigenpairs
from gramian.linalg.product import multiply_sparse
from gramian.linalg.sparse import row_of_entry
from gramian.models.shrinkage import LRR
from gramian.models.spectral import right_singular_vectors

RATIOS = (1.0, 1.25, 1.5, 2.0, 4.0, 10.0)  # bounds to try, of a penalty to the single l2 and of that l2 to a penalty
MAX_PAIRS = 50_000  # held-out items that the loss is summed over; n × rank features are in memory
MIN_SINGULAR_VALUE = 1e-6  # relative to the largest: smaller ones are rounding error


def search_factor_weights(recipe: LRR, split: Split, metric: MetricLike, seed: int = 0) -> LRR:
    """Return LRR with one l2 for each factor, learned from the targets of a validation split.

    Parameters
    ----------
    recipe
        LRR with a single l2.
    split
        The validation split: its training part gives the factors, its held-out items the loss.
    metric
        The metric by which the bound of the penalties is chosen.
    seed
        Seed of the items that targets are compared with.

    Returns
    -------
    LRR
        With penalties near the l2 of the recipe.
    """
    if isinstance(recipe.l2, tuple) or recipe.l2 <= 0:
        raise InvalidInput("LRR with a single l2 above 0", str(recipe), "Search a single l2 first")
    train, users = split.train, np.arange(split.target.n_users)
    pairs = right_singular_vectors(train, recipe.rank, np.float32)
    learning, choosing = (take_users(split, users[half::2]) for half in (0, 1))

    def score(ratio: float) -> float:
        candidate = learn_penalties(recipe, learning, pairs, ratio, seed)
        model = Recommender(candidate.truncate_to_scorer(pairs), candidate, train.catalog, train)
        return evaluate(model, choosing, [metric])[str(parse_metric(metric))]

    return learn_penalties(recipe, split, pairs, max(RATIOS, key=score), seed)


def take_users(split: Split, rows: np.ndarray) -> Split:
    """Return a split with some of its test users."""
    return Split(split.train, split.fold_in.take(rows), split.target.take(rows))


def learn_penalties(recipe: LRR, split: Split, pairs: TopEigenpairs, ratio: float, seed: int) -> LRR:
    """Minimise the pairwise loss over penalties within a ratio of the recipe's l2."""
    sigma, l2 = singular_values(pairs), float(np.asarray(recipe.l2))
    features = pair_features(split, pairs.vectors, seed)
    low, high = (sigma**2 / (sigma**2 + l2 * bound) for bound in (ratio, 1 / ratio))
    start = sigma**2 / (sigma**2 + l2)
    scale = 1 / max(float(np.std(features @ start.astype(features.dtype))), 1e-12)  # t: differences of scores of about 1
    solution = minimize(
        lambda f: pairwise_loss(features, f, scale), start, jac=True, method="L-BFGS-B", bounds=np.stack([low, high], axis=1)
    )
    penalties = sigma**2 * (1 / np.clip(solution.x, low, high) - 1)
    return LRR(recipe.rank, tuple(float(penalty) for penalty in penalties))


def singular_values(pairs: TopEigenpairs) -> np.ndarray:
    """Return the singular values of X from the eigenpairs of its Gram matrix, none of them 0."""
    sigma = np.sqrt(np.maximum(pairs.values, 0).astype(np.float64))
    return np.maximum(sigma, MIN_SINGULAR_VALUE * sigma[0])


def pair_features(split: Split, vectors: np.ndarray, seed: int) -> np.ndarray:
    """Return (xV) ∘ (V_i − V_j) for held-out items i, each with a random item j that the user has not touched."""
    task, rng = RankingTask.of(split.held_out, split.train.catalog), np.random.default_rng(seed)
    users, targets = row_of_entry(task.targets), task.targets.indices
    if len(users) > MAX_PAIRS:
        chosen = np.sort(rng.choice(len(users), MAX_PAIRS, replace=False))
        users, targets = users[chosen], targets[chosen]
    others = rng.integers(0, task.targets.shape[1], len(users))
    touched = (task.histories + task.targets).astype(np.bool_).tocsr()
    is_untouched = ~np.asarray(touched[users, others]).ravel()
    users, targets, others = users[is_untouched], targets[is_untouched], others[is_untouched]
    profiles = multiply_sparse(task.histories, vectors)
    features: np.ndarray = vectors[targets] - vectors[others]
    features *= profiles[users]
    return features


def pairwise_loss(features: np.ndarray, f: np.ndarray, scale: float) -> tuple[float, np.ndarray]:
    """Return the mean of log(1 + exp(−scale·(features · f))) and its gradient."""
    margins = scale * (features @ f.astype(features.dtype)).astype(np.float64)
    loss = np.logaddexp(0, -margins).mean()
    weights = -scale / (1 + np.exp(np.minimum(margins, 500))) / len(margins)
    return float(loss), (features.T @ weights.astype(features.dtype)).astype(np.float64)
