"""The nonlinear autoencoders that papers compare with: CDAE, Mult-DAE and Mult-VAE."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gramian.data.interactions import Interactions
from gramian.models.iterative import State, epochs_setting, seed_setting
from gramian.models.recipe import setting
from gramian.recommender import Scorer
from gramian.sampled.factor_model import ByGradients, device_setting, halving_setting, training
from gramian.sampled.scorers import Network, keys


def code_setting(default: int) -> Any:
    return setting(default, "length of the code of a history", at_least=1)


@dataclass(frozen=True)
class Autoencoder(ByGradients):
    """A history goes through layers and gives a score for every item.

    Layer 0 has a row for each item of the history, the output a row for each item that is scored.
    """

    rank: int = code_setting(200)
    dropout: float = setting(0.5, "part of a history that is hidden", at_least=0, below=1, tries=(0.2, 0.5, 0.7))
    n_epochs: int = epochs_setting(30)
    batch_size: int = setting(256, "users of one step", at_least=1)
    learning_rate: float = setting(1e-3, "of Adam", at_least=0, tries=(3e-4, 1e-3, 3e-3))
    l2: float = setting(0.0, "penalty on the weights", at_least=0)
    halve_after: int = halving_setting()
    seed: int = seed_setting()
    device: str = device_setting()

    activations: ClassVar[tuple[str, ...]]  # of the layers before the output
    normalised = True  # whether a history is taken at length 1
    needs_binary = True

    @abstractmethod
    def shapes(self, events: Interactions) -> dict[str, tuple[int, ...]]:
        """Of what is learned: weights, and biases of one dimension."""

    def first(self, events: Interactions, dtype: type) -> State:
        """Weights at random by the size of their layers, biases at 0."""
        rng = np.random.default_rng(self.seed)

        def drawn(shape: tuple[int, ...]) -> np.ndarray:
            if len(shape) == 1:
                return np.zeros(shape, dtype)
            return (rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / sum(shape)))).astype(dtype)

        return State({name: drawn(shape) for name, shape in self.shapes(events).items()})

    def improved(self, events: Interactions, state: State) -> Generator[State, float | None, None]:
        yield from training().AutoencoderTraining(self, events, state).epochs(state)

    def fitted(self, events: Interactions, state: State) -> Scorer:
        own = {name: state.arrays[name] for name in self.shapes(events)}
        if "users" in own:
            own["keys"] = keys(events.matrix)
        return Network(self.activations, self.normalised, self.served(own))

    def served(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What serving needs."""
        return arrays

    def require_possible(self, events: Interactions) -> None:
        """A code may have any length."""

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        numbers = sum(int(np.prod(shape)) for shape in self.shapes(events).values())
        return (7 * numbers + 5 * self.batch_size * events.n_items) * np.dtype(dtype).itemsize

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        numbers = sum(int(np.prod(shape)) for shape in self.shapes(events).values())
        return self.fit_bytes(events, dtype), 9 * numbers * np.dtype(dtype).itemsize

    def passes(self) -> float:
        return 64.0  # a step is dense in the items


@dataclass(frozen=True)
class CDAE(Autoencoder):
    """σ(W·x̃ + v_u + b), and a logistic regression of every item on that   (Wu et al. 2016).

    Someone who was not trained has no vector v_u, and does without.
    """

    rank: int = code_setting(64)
    n_epochs: int = epochs_setting(60)
    learning_rate: float = setting(1e-2, "of Adam", at_least=0, tries=(3e-3, 1e-2, 3e-2))

    activations = ("sigmoid",)
    normalised = False

    def shapes(self, events: Interactions) -> dict[str, tuple[int, ...]]:
        m, n, k = events.n_users, events.n_items, self.rank
        return {"weight0": (n, k), "bias0": (k,), "users": (m, k), "output": (n, k), "output_bias": (n,)}


@dataclass(frozen=True)
class MultDAE(Autoencoder):
    """softmax(V·tanh(W·x̃ + b) + c), under the multinomial likelihood of the history   (Liang et al. 2018)."""

    activations = ("tanh",)

    def shapes(self, events: Interactions) -> dict[str, tuple[int, ...]]:
        n, k = events.n_items, self.rank
        return {"weight0": (n, k), "bias0": (k,), "output": (n, k), "output_bias": (n,)}


@dataclass(frozen=True)
class MultVAE(Autoencoder):
    """Mult-DAE with a normal distribution as the code, and a layer on either side   (Liang et al. 2018).

    The divergence from the standard normal weighs a little more in each of the first `warm_up` epochs.
    """

    hidden: int = setting(600, "length of the layers on either side", at_least=1)
    divergence: float = setting(0.2, "weight of the divergence", at_least=0, tries=(0.1, 0.2, 0.5))
    warm_up: int = setting(10, "epochs until the divergence has its weight", at_least=1)

    activations = ("tanh", "none", "tanh")

    def shapes(self, events: Interactions) -> dict[str, tuple[int, ...]]:
        n, k, h = events.n_items, self.rank, self.hidden
        into = {"weight0": (n, h), "bias0": (h,), "weight1": (h, 2 * k), "bias1": (2 * k,)}
        return into | {"weight2": (k, h), "bias2": (h,), "output": (n, h), "output_bias": (n,)}

    def served(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The mean of the code stands for it."""
        means = {name: np.ascontiguousarray(arrays[name][..., : self.rank]) for name in ("weight1", "bias1")}
        return arrays | means
