"""The nonlinear autoencoders that papers compare with: CDAE, Mult-DAE and Mult-VAE."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np

from gramian.core.epochs import TrainingState
from gramian.core.params import configurable, param
from gramian.core.recipe import Counts
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.gradient.gradient_recipe import (
    GradientRecipe,
    device_param,
    halve_after_param,
    learning_rate_param,
    torch_required,
)
from gramian.gradient.initialization import initialize
from gramian.gradient.scorers import Network, history_keys
from gramian.models.parameters import epochs_param, seed_param


def code_length_param(default: int) -> Any:
    return param(default, "length of the code (the bottleneck layer), usually 50 to 600", at_least=1)


@configurable
class Autoencoder(GradientRecipe):
    """A network that encodes a history x and decodes it to a score of every item.

    During training a random part of the history is hidden: x̃ is x with `dropout`, rescaled by 1/(1 − dropout). The first layer
    has a row for each item of the history, the output layer a row for each item that is scored.
    """

    rank: int = code_length_param(200)
    dropout: float = param(
        0.5, "fraction of a history that is hidden in each step, usually 0.2 to 0.7", at_least=0, below=1, tries=(0.2, 0.5, 0.7)
    )
    n_epochs: int = epochs_param(30)
    batch_size: int = param(256, "users in one step of Adam, usually 100 to 1000", at_least=1)
    learning_rate: float = learning_rate_param()
    l2: float = param(0.0, "penalty on the squared weights and biases, usually 0 to 0.01", at_least=0)
    halve_after: int = halve_after_param()
    seed: int = seed_param()
    device: str = device_param()

    activations: ClassVar[tuple[str, ...]]  # of the layers before the output
    normalised = True  # whether a history is scaled to length 1
    needs_binary = True

    @abstractmethod
    def shapes(self, events: Counts) -> dict[str, tuple[int, ...]]:
        """The shape of each learned array by name: weights, and biases with one dimension."""

    def initial_state(self, events: Counts, dtype: type) -> TrainingState:
        """Glorot initialization: weights with variance 2/(rows + columns), biases 0."""
        rng = np.random.default_rng(self.seed)
        return TrainingState({name: initialize(rng, shape, None, dtype) for name, shape in self.shapes(events).items()})

    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        with torch_required():
            from gramian.gradient.autoencoder_training import AutoencoderTrainer  # noqa: PLC0415

        training = AutoencoderTrainer(self, events, state).epochs(state)
        del state  # the trainer has copied it
        yield from training

    def to_scorer(self, events: Interactions, state: TrainingState) -> Scorer:
        arrays = {name: state.arrays[name] for name in self.shapes(events)}
        if "users" in arrays:
            arrays["keys"] = history_keys(events.matrix)
        return Network(self.activations, 0.5 if self.normalised else 0.0, self.serving_arrays(arrays))

    def serving_arrays(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays that are needed for serving."""
        return arrays

    def require_trainable(self, counts: Counts, is_binary: bool) -> None:
        """Accept a code of any length, even above the number of items."""

    def n_weights(self, events: Interactions) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes(events).values())

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The weights with Adam's two moments, twice, the gradients, and the scores of a batch."""
        return (7 * self.n_weights(events) + 5 * self.batch_size * events.n_items) * np.dtype(dtype).itemsize

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        """On disk: the weights with Adam's two moments, in two checkpoints and a third while it is written."""
        return self.fit_bytes(events, dtype), 9 * self.n_weights(events) * np.dtype(dtype).itemsize


@configurable
class CDAE(Autoencoder):
    """Collaborative denoising autoencoder   (Wu et al. 2016): scores V·σ(Wᵀx̃ + v_u + b) + c, under binary cross-entropy.

    v_u is a learned vector of each user. A user who was not in training is scored without it.
    """

    rank: int = code_length_param(64)
    n_epochs: int = epochs_param(60)
    learning_rate: float = learning_rate_param(1e-2, (3e-3, 1e-2, 3e-2))

    activations = ("sigmoid",)
    normalised = False

    def shapes(self, events: Counts) -> dict[str, tuple[int, ...]]:
        m, n, k = events.n_users, events.n_items, self.rank
        return {"weight0": (n, k), "bias0": (k,), "users": (m, k), "output": (n, k), "output_bias": (n,)}


@configurable
class MultDAE(Autoencoder):
    """Mult-DAE   (Liang et al. 2018): scores V·tanh(Wᵀx̃ + b) + c, under the multinomial likelihood of the history.

    The loss of a user is −Σ_{i ∈ history} log softmax(scores)_i, with x̃ scaled to length 1.
    """

    activations = ("tanh",)

    def shapes(self, events: Counts) -> dict[str, tuple[int, ...]]:
        n, k = events.n_items, self.rank
        return {"weight0": (n, k), "bias0": (k,), "output": (n, k), "output_bias": (n,)}


@configurable
class MultVAE(Autoencoder):
    """Mult-VAE   (Liang et al. 2018): Mult-DAE whose code is a normal distribution N(μ, diag(σ²)) between two tanh layers.

    The loss adds divergence · KL(N(μ, diag(σ²)) ‖ N(0, I)), whose weight grows linearly over the first `warm_up` epochs.
    """

    hidden: int = param(600, "length of the hidden layers before and after the code, usually 200 to 1000", at_least=1)
    divergence: float = param(
        0.2, "weight β of the KL divergence from the standard normal, usually 0.1 to 1", at_least=0, tries=(0.1, 0.2, 0.5)
    )
    warm_up: int = param(10, "number of epochs over which the weight of the divergence grows to its value", at_least=1)

    activations = ("tanh", "none", "tanh")

    def shapes(self, events: Counts) -> dict[str, tuple[int, ...]]:
        n, k, h = events.n_items, self.rank, self.hidden
        encoder = {"weight0": (n, h), "bias0": (h,), "weight1": (h, 2 * k), "bias1": (2 * k,)}
        return encoder | {"weight2": (k, h), "bias2": (h,), "output": (n, h), "output_bias": (n,)}

    def serving_arrays(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Without the variances: serving decodes the mean of the code."""
        means = {name: np.ascontiguousarray(arrays[name][..., : self.rank]) for name in ("weight1", "bias1")}
        return arrays | means
