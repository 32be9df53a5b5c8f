"""Fold-in: the vectors of users who were not trained, by minimising the trained loss with the item vectors fixed.

All users of a batch are minimised at once, each by gradient descent with the step lengths of Barzilai and Borwein (1988) and
backtracking, so that no accepted step increases the loss. Nothing here needs PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from gramian.gradient.backbones import backpropagate_rows, scoring_rows
from gramian.gradient.loss import Scores

if TYPE_CHECKING:
    from gramian.gradient.scorers import TrainedVectors

MAX_STEPS = 60  # gradient steps per user
GRADIENT_TOLERANCE = 1e-4  # a user has converged when the norm of the gradient falls to this fraction of its first value
PAIRWISE_CANDIDATES = 256  # negatives of a pairwise loss, which compares each of them with each positive


class UserProblem(ABC):
    """The loss of some histories, each as a function of a point: its user's vector, and whatever else is folded in."""

    @abstractmethod
    def initial_point(self) -> np.ndarray:
        """The point of each history at which the descent begins."""

    @abstractmethod
    def vectors(self, z: np.ndarray) -> np.ndarray:
        """The users' vectors at the points z."""

    @abstractmethod
    def value_and_gradient(self, z: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The loss of each of these users with the penalty, and its gradient, at the points z (one row for each)."""

    def project(self, z: np.ndarray) -> np.ndarray:
        """The nearest points that are allowed: all are."""
        return z


def pad_histories(histories: sp.csr_array, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The items of each history and their weights, which sum to 1, padded to the longest with weight 0."""
    sizes = np.diff(histories.indptr)
    row = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(histories.nnz) - histories.indptr[:-1][row]
    shape = (len(sizes), int(sizes.max()))
    weight, items = np.zeros(shape, dtype), np.zeros(shape, np.int64)
    weight[row, position] = (1 / sizes)[row]
    items[row, position] = histories.indices
    return items, weight


class FoldInProblem(UserProblem):
    """The loss of each history as a function of its user's vector, with the user's bias appended if the loss learns one."""

    def __init__(self, scorer: TrainedVectors, histories: sp.csr_array) -> None:
        self.scorer, self.loss, self.dtype = scorer, scorer.loss.all_items_loss(), scorer.items.dtype
        n_items = scorer.n_items
        sizes = np.diff(histories.indptr)
        self.positives, self.positive_weight = pad_histories(histories, self.dtype)
        self.l2 = (scorer.l2 + scorer.decay / sizes).astype(self.dtype)  # of each user
        debiased = getattr(self.loss, "debiased", None)
        self.priors = debiased.priors(np.diff(histories.indptr), n_items).astype(self.dtype)[:, None] if debiased else None
        self.candidates = np.arange(n_items)
        self.log_q = None if self.loss.uses_all_items else scorer.log_q
        if self.loss.is_pairwise and n_items > PAIRWISE_CANDIDATES:
            self.candidates = stratified_sample(scorer.log_q, PAIRWISE_CANDIDATES)
            self.log_q = None  # drawn by q, they have equal weights
        self.candidate_rows = scorer.rows[self.candidates] if len(self.candidates) < n_items else scorer.rows
        self.n_negatives = n_items if self.loss.uses_all_items else self.loss.n_negatives  # type: ignore[attr-defined]

    @cached_property
    def item_item(self) -> np.ndarray:
        """Scores of the candidates for each positive item: users × positives × candidates."""
        positives = scoring_rows(self.scorer.items[self.positives.reshape(-1)], self.scorer.geometry, "user")
        scores: np.ndarray = positives @ self.candidate_rows.T
        return scores.reshape(*self.positives.shape, -1)

    def initial_point(self) -> np.ndarray:
        """The mean vector of each history's items, and 0 for the bias."""
        normalized = self.scorer.items / np.maximum(np.linalg.norm(self.scorer.items, axis=1, keepdims=True), 1e-12)
        items = normalized if self.scorer.geometry == "cosine" else self.scorer.items
        mean = np.einsum("up,upk->uk", self.positive_weight, items[self.positives])
        bias = np.zeros((len(mean), int("user_bias" in self.loss.learned_biases)), self.dtype)
        return np.concatenate([mean, bias], axis=1)

    def vectors(self, z: np.ndarray) -> np.ndarray:
        """The users' vectors, without biases."""
        return z[:, : self.scorer.items.shape[1]]

    def project(self, z: np.ndarray) -> np.ndarray:
        """The nearest points that the loss allows."""
        if not self.loss.in_unit_ball:
            return z
        return z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1)

    def value_and_gradient(self, z: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The loss of each of these users with the penalty, and its gradient, at the points z (one row for each)."""
        scorer, vectors = self.scorer, self.vectors(z)
        user_rows = scoring_rows(vectors, scorer.geometry, "user")
        positives, weight = self.positives[users], self.positive_weight[users]
        negative_scores, positive_rows = user_rows @ self.candidate_rows.T, scorer.rows[positives]
        positive_scores = (positive_rows @ user_rows[:, :, None])[:, :, 0]
        optional: dict[str, Any] = {"negative_log_weight": self.log_q, "log_q": self.log_q}
        if self.priors is not None:
            optional |= {
                "prior": self.priors[users],
                "extra_positives": positive_scores,
                "extra_positive_weight": weight,
            }
        if "user_bias" in self.loss.learned_biases:
            optional["user_bias"] = z[:, -1:]
        if scorer.item_bias is not None:
            optional["item_bias"] = scorer.item_bias[positives, 0]
        if self.loss.needs_item_item:
            optional["item_item"] = self.item_item[users]
        optional["n_items"] = scorer.n_items
        value, gradients = self.loss(Scores(positive_scores, weight, negative_scores, self.n_negatives, **optional))
        by_positives = gradients.positives
        if gradients.extra_positives is not None:
            by_positives = by_positives + gradients.extra_positives
        by_rows = gradients.negatives @ self.candidate_rows + (by_positives[:, None, :] @ positive_rows)[:, 0]
        l2 = self.l2[users]
        by_vectors = backpropagate_rows(vectors, by_rows, scorer.geometry) + 2 * l2[:, None] * vectors
        value = value + l2 * (vectors * vectors).sum(1)
        if gradients.user_bias is None:
            return value, by_vectors
        return value, np.concatenate([by_vectors, gradients.user_bias], axis=1)


def stratified_sample(log_probabilities: np.ndarray, size: int) -> np.ndarray:
    """Items drawn by these probabilities, one from each of `size` equal strata. The seed is fixed: scores are reproducible."""
    probabilities = np.exp(log_probabilities.astype(np.float64))
    quantiles = (np.random.default_rng(0).random(size) + np.arange(size)) / size * probabilities.sum()
    return np.minimum(np.searchsorted(np.cumsum(probabilities), quantiles, side="right"), len(probabilities) - 1)


def solve_fold_in(problem: UserProblem) -> np.ndarray:
    """The user vectors of least loss."""
    z = problem.initial_point()
    value, gradient = problem.value_and_gradient(z, np.arange(len(z)))
    first_norm = np.sqrt((gradient * gradient).sum(1))
    step_length = 0.1 * (0.1 + np.sqrt((z * z).sum(1))) / np.maximum(first_norm, 1e-30)
    active = np.flatnonzero(first_norm > 0)
    for _ in range(MAX_STEPS):
        if len(active) == 0:
            break
        new_z = problem.project(z[active] - step_length[active, None] * gradient[active])
        step = new_z - z[active]
        new_value, new_gradient = problem.value_and_gradient(new_z, active)
        sufficient_decrease = 1e-4 * (step * step).sum(1) / step_length[active]  # Armijo's condition
        accepted = new_value <= value[active] - sufficient_decrease
        curvature = (step * (new_gradient - gradient[active])).sum(1)
        barzilai_borwein = (step * step).sum(1) / np.maximum(curvature, 1e-30)
        proposed = np.where(curvature > 0, barzilai_borwein, 4 * step_length[active])
        step_length[active] = np.where(accepted, np.minimum(proposed, 10 * step_length[active]), step_length[active] / 4)
        moved = active[accepted]
        z[moved], value[moved], gradient[moved] = new_z[accepted], new_value[accepted], new_gradient[accepted]
        norm = np.sqrt((gradient[active] ** 2).sum(1))
        converged = norm <= GRADIENT_TOLERANCE * first_norm[active]
        stalled = step_length[active] * norm <= 1e-7 * np.sqrt((z[active] ** 2).sum(1))
        active = active[~(converged | stalled)]
    return problem.vectors(z)
