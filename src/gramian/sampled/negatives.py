"""Where negatives come from: what is drawn, and with which probability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from gramian.models.recipe import Part, setting


def shared_setting() -> Any:
    return setting(True, "whether all positives of a batch share the draws: as good, and far faster")


@dataclass(frozen=True)
class Sampler(Part, ABC):
    """A distribution of items."""

    @abstractmethod
    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        """Of each item, by how many users touched it."""


@dataclass(frozen=True)
class Uniform(Sampler):
    """All items alike."""

    shared: bool = shared_setting()

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        return np.full(len(popularity), -np.log(len(popularity)))


@dataclass(frozen=True)
class ByPopularity(Sampler):
    """In proportion to popularity^power."""

    power: float = setting(1.0, "0 is uniform, 1 in proportion", at_least=0, below=10, tries=(0.5, 0.75, 1))
    shared: bool = shared_setting()

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        logs = self.power * np.log(np.maximum(popularity, 1e-9))
        found: np.ndarray = logs - logsumexp(logs)
        return found


@dataclass(frozen=True)
class InBatch(Sampler):
    """The positives of the rest of the batch, at most n_negatives: in proportion to popularity, and nothing is drawn."""

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        return ByPopularity().log_probabilities(popularity)


@dataclass(frozen=True)
class Everything(Sampler):
    """Every item, all alike, and nothing is drawn: means over negatives are exact."""

    def log_probabilities(self, popularity: np.ndarray) -> np.ndarray:
        return Uniform().log_probabilities(popularity)


SAMPLERS = (Uniform, ByPopularity, InBatch, Everything)
