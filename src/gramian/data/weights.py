"""Weights of interactions made from counts.

With c the count (or summed value) of a user and an item, N users, n the users who touched the item, L the sum of the user's
counts, and L̄ its mean over the users:

- binary: 1
- log:    log(1 + c)
- tfidf:  log(1 + c) · (1 + log((1 + N) / (1 + n)))
- bm25:   c (k₁ + 1) / (c + k₁ (1 − b + b L / L̄)) · log(1 + (N − n + ½) / (n + ½)), with k₁ = 1.2 and b = 0.75

Each of them is divided by its mean, so that an average interaction weighs 1: as much as an item of a history that is passed to
a fitted model as a plain list. BM25 is that of Robertson and Zaragoza (2009), with users as documents and items as terms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from gramian.errors import HeavyTailWarning, InvalidInput
from gramian.linalg.sparse import row_of_entry

K1, B = 1.2, 0.75  # the usual values in the literature
MIN_EFFECTIVE_SHARE = 0.2  # 0.9 for ratings from 1 to 5, 0.5 for exponential weights, 0.02 for play counts of last.fm
MIN_INTERACTIONS = 100  # fewer say nothing about a tail


def weigh_binary(counts: sp.csr_array, reference: sp.csr_array) -> np.ndarray:
    """Return 1 for every entry."""
    return np.ones(counts.nnz)


def weigh_log(counts: sp.csr_array, reference: sp.csr_array) -> np.ndarray:
    """Return log(1 + c) for every entry."""
    return np.log1p(counts.data.astype(np.float64))


def weigh_tfidf(counts: sp.csr_array, reference: sp.csr_array) -> np.ndarray:
    """Return log(1 + c) times the smoothed inverse frequency of the item."""
    n_users, popularity = reference.shape[0], count_users_per_item(reference)
    return weigh_log(counts, reference) * (1 + np.log((1 + n_users) / (1 + popularity)))[counts.indices]


def weigh_bm25(counts: sp.csr_array, reference: sp.csr_array) -> np.ndarray:
    """Return the Okapi BM25 weight of every entry."""
    n_users, popularity, c = reference.shape[0], count_users_per_item(reference), counts.data.astype(np.float64)
    lengths = counts.sum(axis=1, dtype=np.float64) / reference.sum(axis=1, dtype=np.float64).mean()
    saturation = c * (K1 + 1) / (c + K1 * (1 - B + B * lengths[row_of_entry(counts)]))
    return saturation * np.log1p((n_users - popularity + 0.5) / (popularity + 0.5))[counts.indices]


WEIGHTINGS: dict[str, Callable[[sp.csr_array, sp.csr_array], np.ndarray]] = {
    "binary": weigh_binary,
    "log": weigh_log,
    "bm25": weigh_bm25,
    "tfidf": weigh_tfidf,
}


def compute_weights(weight: str, counts: sp.csr_array, reference: sp.csr_array) -> np.ndarray:
    """Return the weight of every stored entry of `counts`, with mean and statistics of the items from `reference`."""
    weigh = WEIGHTINGS[require_weighting(weight)]
    smallest, mean = float(np.finfo(np.float32).tiny), weigh(reference, reference).mean()
    weights: np.ndarray = np.maximum(weigh(counts, reference) / mean, smallest).astype(np.float32)
    return weights


def require_weighting(weight: str) -> str:
    """Return the name of a weighting, or raise `InvalidInput`."""
    if weight not in WEIGHTINGS:
        raise InvalidInput(f"a weight among {', '.join(WEIGHTINGS)}", repr(weight), "Choose one of them")
    return weight


def count_users_per_item(matrix: sp.csr_array) -> np.ndarray:
    """Return the number of stored entries of every column."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1])


def warn_of_heavy_tail(weights: np.ndarray) -> None:
    """Warn if a few large weights outweigh all others: if Kish's effective sample size (Σw)² / Σw² is a small share."""
    w = weights.astype(np.float64)
    if len(w) < MIN_INTERACTIONS:
        return
    w /= w.max()  # squares of 1e38 are still finite
    share = w.sum() ** 2 / (w**2).sum() / len(w)
    if share < MIN_EFFECTIVE_SHARE:
        warnings.warn(
            f"the weights are heavy-tailed: {len(w):,} interactions count as much as {share * len(w):,.0f} of equal weight. "
            "Pass weight='log' or weight='binary': models are usually far more accurate with it",
            HeavyTailWarning,
            stacklevel=2,
        )
