"""Neural matrix factorization   (He et al. 2017): a score that is no inner product, served by a small network in NumPy."""

from __future__ import annotations

import math
from collections.abc import Generator

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
from gramian.gradient.initialization import VECTOR_TABLES, initialize
from gramian.gradient.loss import n_negatives_param
from gramian.gradient.neumf_scorer import NeuralFactors
from gramian.gradient.scorers import history_keys
from gramian.models.parameters import epochs_param, seed_param


@configurable
class NeuMF(GradientRecipe):
    """Neural matrix factorization (He et al. 2017): score h · [p_u ⊙ q_i, tower([p′_u, q′_i])], under binary cross-entropy.

    The tower is a perceptron of ReLU layers; the first has length `rank`, each next one half of it. p and p′ are different
    vectors of length `rank`. The loss of an interaction is −log σ(y_i) − Σ_j log(1 − σ(y_j)) with draws j of its own, plus
    l2 · (‖p_u‖² + ‖q_i‖² + mean_j ‖q_j‖²) over both kinds of vectors. A score is no inner product, so every pair of a user and
    an item goes through the tower. A new user gets the vectors of least loss, with everything else fixed.
    """

    rank: int = param(
        32, "length of each of the two vectors of a user or item, usually 8 to 64", at_least=2, tries=(16, 32, 64)
    )
    n_layers: int = param(2, "number of layers of the tower, usually 1 to 4", at_least=1, below=10, tries=(1, 2, 3))
    n_negatives: int = n_negatives_param(4)
    n_epochs: int = epochs_param(30)
    batch_size: int = param(1024, "interactions in one step of Adam, usually 256 to 8192", at_least=1)
    learning_rate: float = learning_rate_param()
    l2: float = param(
        1e-3, "penalty on the squared length of the vectors, usually 0 to 0.01", at_least=0, tries=(0, 1e-4, 1e-3, 1e-2)
    )
    halve_after: int = halve_after_param()
    seed: int = seed_param()
    device: str = device_param()

    needs_binary = True

    @property
    def layer_sizes(self) -> list[int]:
        """The length of each layer of the tower."""
        return [max(1, self.rank >> layer) for layer in range(self.n_layers)]

    def shapes(self, events: Counts) -> dict[str, tuple[int, ...]]:
        """The shape of each learned array by name."""
        k, sizes = self.rank, self.layer_sizes
        shapes: dict[str, tuple[int, ...]] = {"users": (events.n_users, 2 * k), "items": (events.n_items, 2 * k)}
        for layer, (width, size) in enumerate(zip([2 * k, *sizes], sizes, strict=False)):
            shapes |= {f"weight{layer}": (width, size), f"bias{layer}": (size,)}
        return shapes | {"output": (k + sizes[-1], 1)}

    def initial_state(self, events: Counts, dtype: type) -> TrainingState:
        """Random vectors of length about 0.1·√2, weights by Glorot's rule, biases 0."""
        rng = np.random.default_rng(self.seed)
        scale = 0.1 / np.sqrt(self.rank)
        shapes = self.shapes(events).items()
        return TrainingState(
            {name: initialize(rng, shape, scale if name in VECTOR_TABLES else None, dtype) for name, shape in shapes}
        )

    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        with torch_required():
            from gramian.gradient.neumf_training import NeuMFTrainer  # noqa: PLC0415

        training = NeuMFTrainer(self, events, state).epochs(state)
        del state  # the trainer has copied it
        yield from training

    def to_scorer(self, events: Interactions, state: TrainingState) -> Scorer:
        arrays = {name: state.arrays[name] for name in self.shapes(events)}
        return NeuralFactors(self.n_negatives, self.l2, arrays | {"keys": history_keys(events.matrix)})

    def n_weights(self, events: Interactions) -> int:
        """The number of learned values."""
        return sum(math.prod(shape) for shape in self.shapes(events).values())

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The arrays with Adam's two moments, twice, the interactions, and the layers of a batch with their gradients."""
        pairs = min(self.batch_size, events.n_interactions) * (1 + self.n_negatives)
        step = pairs * (10 * self.rank + 4 * sum(self.layer_sizes))
        return (7 * self.n_weights(events) + step) * np.dtype(dtype).itemsize + 36 * events.n_interactions

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        """On disk: the arrays with Adam's two moments, in two checkpoints and a third while it is written."""
        return self.fit_bytes(events, dtype), 9 * self.n_weights(events) * np.dtype(dtype).itemsize
