"""Negative samplers: from which distribution q the negatives of a loss are drawn.

Negatives are drawn from all items, as in the papers; a draw may be an item that the user has interacted with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import logsumexp

from gramian.core.params import Configurable, configurable, param


def shared_param() -> Any:
    about = "whether all positives of a batch share one set of negatives: faster with many of them, and much noisier"
    return param(False, about)


class Sampler(Configurable, ABC):
    """A distribution over items."""

    @abstractmethod
    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        """log q of each item, from the number of users who interacted with it."""


@configurable
class Uniform(Sampler):
    """Every item with the same probability, q_j = 1/n: the usual sampler of BPR (Rendle et al. 2009).

    Each positive has draws of its own. Draws that a batch shares turn a step into one matrix product, but a step then sees few
    items: the gradients are noisy, and the rankings are worse at the same number of epochs (docs/gradients.md).
    """

    shared: bool = shared_param()

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        return np.full(len(popularity), -np.log(len(popularity)))


@configurable
class ByPopularity(Sampler):
    """Items in proportion to popularity^power, q_j ∝ popularity_j^power   (power ¾ in Mikolov et al. 2013).

    Popular items are harder negatives, and drawing them lowers their scores.
    """

    power: float = param(
        1.0,
        "exponent of the popularity: 0 is uniform, 1 proportional, usually 0.5 to 1",
        at_least=0,
        below=10,
        tries=(0.5, 0.75, 1),
    )
    shared: bool = shared_param()

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        unnormalized = self.power * np.log(np.maximum(popularity, 1e-9))
        log_q: np.ndarray = unnormalized - logsumexp(unnormalized)
        return log_q


@configurable
class InBatch(Sampler):
    """The other positives of the batch, at most n_negatives of them   (as in Yi et al. 2019).

    Nothing is drawn; the distribution is that of ByPopularity(power=1).
    """

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        return ByPopularity().log_probabilities(popularity)


@configurable
class Everything(Sampler):
    """Every item as a candidate, all with the same weight: nothing is drawn, and means over negatives are exact."""

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        return Uniform().log_probabilities(popularity)


SAMPLERS = (Uniform, ByPopularity, InBatch, Everything)
