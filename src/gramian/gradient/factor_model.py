"""FactorModel: vectors of users and items, trained by gradients under any of the losses."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np

from gramian.core.epochs import TrainingState
from gramian.core.params import configurable, param
from gramian.core.recipe import Counts
from gramian.core.registry import LOSSES
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.gradient.backbones import BACKBONES, MF, Backbone, score_geometry
from gramian.gradient.gradient_recipe import (
    GradientRecipe,
    Training,
    device_param,
    halve_after_param,
    learning_rate_param,
    torch_required,
)
from gramian.gradient.history_network import history_network
from gramian.gradient.initialization import VECTOR_TABLES, initialize
from gramian.gradient.loss import Loss
from gramian.gradient.losses import InfoNCE, SampledSoftmax
from gramian.gradient.samplers import InBatch
from gramian.gradient.scorers import BIAS_ARRAYS, TrainedVectors
from gramian.models.factors import Factors, SizePolynomial
from gramian.models.parameters import epochs_param, seed_param


@configurable
class FactorModel(GradientRecipe):
    """Vectors of users and items from one of the backbones, trained by Adam under one of the losses of `gramian.gradient`.

    Minimises the mean over interactions (u, i) of loss + l2 · (‖p_u‖² + ‖q_i‖² + mean_j ‖q_j‖²) with their negatives j, plus
    ½ · weight_decay · (‖P‖² + ‖Q‖²). The first penalty is on the vectors of a batch, and Adam updates these alone; the second
    is on all of them, and Adam updates all. A batch consists of interactions, or of whole users if every item is a negative
    (Softmax, Sparsemax, RG2Loss, or the sampler Everything).
    """

    backbone: Backbone = param(
        MF(cosine=True), "where the vectors of users and items come from, and how they are scored", choices=BACKBONES
    )
    loss: Loss = param(SampledSoftmax(temperature=0.1), "the loss that is minimised", choices=LOSSES)
    n_epochs: int = epochs_param(30)
    batch_size: int = param(2048, "interactions in one step of Adam, usually 512 to 8192", at_least=1)
    learning_rate: float = learning_rate_param()
    l2: float = param(
        0.0, "penalty on the squared length of the vectors, usually 0 to 0.001", at_least=0, tries=(0, 1e-5, 1e-4, 1e-3)
    )
    halve_after: int = halve_after_param()
    seed: int = seed_param()
    device: str = device_param()
    weight_decay: float = param(
        0.0,
        "penalty ½ · weight_decay · ‖·‖² on all vectors at every step, as in PyTorch's Adam, usually 0 to 0.00001",
        at_least=0,
    )
    training: Training = param(Training(), "initial vectors, dropout, clipping and plateaus", choices=(Training,))

    needs_binary = True

    def __post_init__(self) -> None:
        super().__post_init__()
        cosine = self.backbone.cosine
        has_lower_bound = isinstance(self.loss, InfoNCE) and self.loss.debiased is not None
        name = type(self.loss).__name__
        if (self.loss.needs_cosine or has_lower_bound) and not cosine:
            loss_name = f"debiased {name}" if has_lower_bound else name
            raise InvalidInput(f"a backbone with cosine=True for {loss_name}", str(self.backbone), "Pass MF(cosine=True), say")
        if self.loss.uses_distances and cosine:
            raise InvalidInput(f"a backbone with cosine=False for {name}", str(self.backbone), "Its scores are distances")
        if self.loss.uses_distances and self.backbone.encodes_histories:
            do = "Pass MF(), say: the vector of a new user is that of the history, not the one of least loss"
            raise InvalidInput(f"a backbone with a vector of each user for {name}", str(self.backbone), do)
        if self.loss.is_pairwise and self.loss.batches_by_user:
            do = "Pass sampler=Uniform(), say: the loss compares each positive with each negative"
            raise InvalidInput(f"a sampler that draws for {name}", "Everything()", do)

    @property
    def rank(self) -> int:  # type: ignore[override]
        """The length of the vectors."""
        return self.backbone.rank

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the learned arrays in a training state."""
        return (*self.backbone.tables, *(BIAS_ARRAYS[bias] for bias in self.loss.learned_biases))

    def initial_state(self, events: Counts, dtype: type) -> TrainingState:
        """Random vectors, of length about 0.1 if the recipe does not say; weights by Glorot's rule, biases 0."""
        rng = np.random.default_rng(self.seed)
        shapes, sd = self.backbone.shapes(events.n_users, events.n_items), self.training.initial_sd
        vector_scale = 0.1 / np.sqrt(self.rank) if sd is None else sd
        arrays: dict[str, np.ndarray] = {
            name: initialize(rng, shape, vector_scale if name in VECTOR_TABLES else None, dtype)
            for name, shape in shapes.items()
        }
        n_rows = {"user_bias": events.n_users, "item_bias": events.n_items}
        biases: dict[str, np.ndarray] = {
            BIAS_ARRAYS[bias]: np.zeros((n_rows[bias], 1), dtype) for bias in self.loss.learned_biases
        }
        return TrainingState(arrays | biases)

    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        with torch_required():
            from gramian.gradient.factor_training import FactorTrainer  # noqa: PLC0415

        training = FactorTrainer(self, events, state).epochs(state)
        del state  # the trainer has copied it
        yield from training

    def to_scorer(self, events: Interactions, state: TrainingState) -> Scorer:
        if self.backbone.encodes_histories:
            return history_network(self.backbone, state.arrays, events)
        vectors = self.scoring_vectors(events, state)
        geometry = score_geometry(self.backbone, self.loss.uses_distances)
        decay = self.weight_decay / 2 * events.n_interactions  # of a user's vector, beside the sum over their interactions
        row_loss = self.loss.row_loss(1.0, events.n_items) if geometry == "product" else None
        if row_loss is not None:
            row_loss = replace(row_loss, ridge=SizePolynomial(constant=decay, linear=self.l2))
            items = vectors["items"]
            return Factors.of(items, self.loss.negative_gram(items, events.popularity), row_loss)
        loss = self.loss
        if isinstance(getattr(loss, "sampler", None), InBatch):
            loss = replace(loss, n_negatives=min(loss.n_negatives, self.batch_size))  # type: ignore[attr-defined, type-var]
        item_bias = state.arrays.get(BIAS_ARRAYS["item_bias"])
        return TrainedVectors.of(loss, geometry, (self.l2, decay), vectors, item_bias, events)

    def scoring_vectors(self, events: Interactions, state: TrainingState) -> dict[str, np.ndarray]:
        """The vectors of users and items that are scored: the learned ones, encoded by the backbone."""
        if isinstance(self.backbone, MF):
            return {"users": state.users, "items": state.items}
        with torch_required():
            from gramian.gradient.encoders import encode_arrays  # noqa: PLC0415

        return encode_arrays(self.backbone, events.matrix, state.arrays)

    def n_copies(self) -> int:
        n_best = 2 if self.training.reload_best else 0
        n_dense = 1 if self.weight_decay else 0  # gradients by whole tables
        return n_best + n_dense + 7  # the tables with Adam's two moments, twice, and the gradients

    def max_users_per_batch(self, events: Interactions) -> int:
        """The largest possible number of users in a batch, reached if those with the shortest histories share one."""
        cumulative_sizes = np.cumsum(np.sort(np.diff(events.matrix.indptr)))
        return int(np.searchsorted(cumulative_sizes, self.batch_size) - np.searchsorted(cumulative_sizes, 1)) + 1

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The tables, the interactions, the graph, and the temporary arrays of one step."""
        loss: Any = self.loss
        if loss.batches_by_user:
            step = self.max_users_per_batch(events) * 6 * events.n_items + 8 * (events.n_users + events.n_items) * self.rank
        else:
            per_interaction = 6 * loss.n_negatives + 8 * self.rank
            n_own = 1 + (loss.debiased.positives if getattr(loss, "debiased", None) else 0)
            if not getattr(loss.sampler, "shared", True):
                n_own += loss.n_negatives
            per_interaction += 12 * n_own  # their numbers, as draws and as positions, in 64 bits
            step = min(self.batch_size, events.n_interactions) * per_interaction
        step += self.backbone.step_floats(events.n_users, events.n_items, events.n_interactions)
        return super().fit_bytes(events, dtype) + 24 * events.n_interactions + step * np.dtype(dtype).itemsize

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        """On disk: the tables with Adam's two moments, in two checkpoints and a third while it is written."""
        shapes = self.backbone.shapes(events.n_users, events.n_items).values()
        n_values = sum(math.prod(shape) for shape in shapes)
        n_values += (events.n_users + events.n_items) * len(self.loss.learned_biases)
        n_arrays = 4 if self.training.reload_best else 3  # of each table: itself, its moments, and its best values
        return self.fit_bytes(events, dtype), 3 * n_arrays * n_values * np.dtype(dtype).itemsize
