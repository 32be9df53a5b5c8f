"""What a loss is: a function of scores that gives a value and its gradients, row by row.

A row is a user with positives, each with a weight (the weights of a row sum to 1), and with negatives:

    training on interactions   one positive, and the negatives that a sampler draws
    training on users          the whole history, and every item as a negative
    fold-in of a new user      the same, each item weighted by its sampling probability

All three are the same formula. So a loss is written once, and a new user is folded in under exactly the loss that was trained,
without PyTorch. Gradients are written out because that is faster than deriving them with autograd.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gramian.core.params import Configurable, param
from gramian.core.registry import LOSSES
from gramian.gradient.array_functions import Array, exp, logsumexp, nan_to_zero, softmax
from gramian.gradient.samplers import SAMPLERS, Everything, Uniform
from gramian.models.factors import RowLoss


class Scores(NamedTuple):
    """The input of a loss."""

    positives: Array  # rows × positives
    positive_weight: Array  # rows × positives; each row sums to 1
    negatives: Array  # rows × negatives, or rows × items where every item is a negative
    n_negatives: float  # N of the formulas: draws per positive, or the number of items if nothing is ever drawn
    negative_log_weight: Array = None  # one row for all users, or one for each; weights sum to 1; None: equal
    log_q: Array = None  # log-probability with which the sampler draws each negative
    extra_positives: Array = None  # rows × further positives of the user, for debiasing
    extra_positive_weight: Array = None
    prior: Array = None  # τ_u, the fraction of all items that the user likes, as a column
    user_bias: Array = None  # a learned number of each user, as a column: the boundary of UIB, the margin of SML
    item_bias: Array = None  # rows × positives, a learned number of each positive item: its margin in SML
    item_item: Array = None  # rows × positives × negatives: the score of each negative for each positive item
    n_items: int = 1  # the number of items, of which the negatives are a sample

    def mean_over_positives(self, values: Array) -> Array:
        return (self.positive_weight * values).sum(1)

    def negative_weight(self) -> Array:
        """The weight of each negative, or one number if they are equal."""
        return 1 / self.negatives.shape[1] if self.negative_log_weight is None else exp(self.negative_log_weight)

    def mean_over_negatives(self, values: Array) -> Array:
        return values.mean(1) if self.negative_log_weight is None else (self.negative_weight() * values).sum(1)

    def log_mean_exp(self, exponents: Array) -> tuple[Array, Array]:
        """log E_j e^{x_j} over the negatives, and its gradients, which are probabilities."""
        if self.negative_log_weight is None:
            return logsumexp(exponents) - math.log(exponents.shape[1]), softmax(exponents)
        exponents = exponents + self.negative_log_weight
        return logsumexp(exponents), nan_to_zero(softmax(exponents))  # NaN in rows whose negatives all have weight 0


class Gradients(NamedTuple):
    """The derivatives of each row's value by the scores of the same name."""

    positives: Array
    negatives: Array
    extra_positives: Array = None
    user_bias: Array = None
    item_bias: Array = None
    item_item: Array = None


def temperature_param(default: float = 1.0, tries: tuple[float, ...] = (0.1, 0.2, 0.5, 1)) -> Any:
    about = "scores are divided by this; lower concentrates on the hardest negatives; usually 0.05 to 1"
    return param(default, about, at_least=1e-3, tries=tries)


def n_negatives_param(default: int = 64) -> Any:
    return param(default, "number of negatives for each positive, usually 1 to 1000", at_least=1)


def sampler_param() -> Any:
    return param(Uniform(), "the distribution from which negatives are drawn", choices=SAMPLERS)


class Loss(Configurable, ABC):
    """A loss of the scores of positives and negatives."""

    registry = LOSSES

    needs_cosine = False  # whether scores must be cosines
    uses_distances = False  # whether scores are minus squared distances
    uses_all_items = False  # whether every item is a negative, and nothing is sampled
    masks_accidental_hits = False  # whether a negative that equals the positive is left out
    learned_biases: ClassVar[tuple[str, ...]] = ()  # which of "user_bias" and "item_bias" are learned with the vectors
    needs_item_item = False  # whether it looks at Scores.item_item
    in_unit_ball = False  # whether vectors are kept within the unit ball
    is_pairwise = False  # whether each positive is compared with each negative

    @abstractmethod
    def __call__(self, s: Scores) -> tuple[Array, Gradients]:
        """The value of each row, and its gradients."""

    @property
    def batches_by_user(self) -> bool:
        """Whether training has every item as a negative, so that a batch consists of whole users."""
        return self.uses_all_items or isinstance(self.sampler, Everything)  # type: ignore[attr-defined]

    def all_items_loss(self) -> Loss:
        """The loss that this one becomes when every item is a negative: in fold-in, and in batches of users."""
        return self

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        """log q of each item as a negative."""
        sampler = Uniform() if self.uses_all_items else self.sampler  # type: ignore[attr-defined]
        log_q: np.ndarray = sampler.log_probabilities(popularity)
        return log_q

    def row_loss(self, l2: float, n_items: int) -> RowLoss | None:
        """For squared losses of inner products: the linear system of a user's vector. Otherwise None."""
        return None

    def negative_gram(self, items: np.ndarray, popularity: np.ndarray) -> np.ndarray:
        """The matrix that all users share in that system: Σ_j q_j q_jᵀ, weighted as the loss weights its negatives."""
        return items.T @ items
