"""Vectors of users and items, trained by gradients under any of the losses."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from numba import get_num_threads

from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput, NotSupported
from gramian.linalg.speed import inverse_rate
from gramian.models.factors import Factors
from gramian.models.iterative import Iterative, State, epochs_setting, seed_setting
from gramian.models.recipe import setting
from gramian.recommender import Scorer
from gramian.sampled.backbones import BACKBONES, MF, Backbone, geometry
from gramian.sampled.losses import LOSSES, InfoNCE, Loss, SampledSoftmax
from gramian.sampled.negatives import InBatch
from gramian.sampled.scorers import TrainedVectors


def training() -> ModuleType:
    """The part of this wing that needs PyTorch."""
    try:
        from gramian.sampled import training as found  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NotSupported("PyTorch, to train by gradients", "no such package", "Install gramian[torch]") from None
    return found


def halving_setting() -> Any:
    return setting(3, "epochs without progress before the learning rate is halved", at_least=1)


def device_setting() -> Any:
    return setting("auto", "auto is a GPU where there is one", choices=("auto", "cpu", "cuda"))


class ByGradients(Iterative):
    """What all models trained in PyTorch have."""

    batch_size: int
    learning_rate: float
    halve_after: int
    device: str


@dataclass(frozen=True)
class FactorModel(ByGradients):
    """Matrix factorization or LightGCN under one of the losses of losses.py, by Adam over batches of interactions.

    Where nothing is drawn (Softmax, Sparsemax, RG2Loss, or the sampler Everything), a batch is of whole users.
    The penalty is l2 · (‖p_u‖² + ‖q_i‖² + mean ‖q_j‖²) for each interaction and the negatives j that are drawn for it.
    """

    backbone: Backbone = setting(MF(cosine=True), "what gives vectors", choices=BACKBONES)
    loss: Loss = setting(SampledSoftmax(temperature=0.1), "what is minimised", choices=LOSSES)
    n_epochs: int = epochs_setting(30)
    batch_size: int = setting(2048, "interactions of one step", at_least=1)
    learning_rate: float = setting(1e-3, "of Adam", at_least=0, tries=(3e-4, 1e-3, 3e-3))
    l2: float = setting(0.0, "penalty on the vectors", at_least=0, tries=(0, 1e-5, 1e-4, 1e-3))
    halve_after: int = halving_setting()
    seed: int = seed_setting()
    device: str = device_setting()

    needs_binary = True

    def __post_init__(self) -> None:
        super().__post_init__()
        cosine: bool = self.backbone.cosine  # type: ignore[attr-defined]
        floored = isinstance(self.loss, InfoNCE) and self.loss.debiased is not None
        kind = type(self.loss).__name__
        if (self.loss.needs_cosine or floored) and not cosine:
            what = f"debiased {kind}" if floored else kind
            raise InvalidInput(f"a backbone with cosine=True for {what}", str(self.backbone), "Pass MF(cosine=True), say")
        if self.loss.of_distances and cosine:
            raise InvalidInput(f"a backbone with cosine=False for {kind}", str(self.backbone), "Its scores are distances")
        if self.loss.pairs and self.loss.by_users:
            do = "Pass sampler=Uniform(), say: each of its positives meets each candidate"
            raise InvalidInput(f"a sampler that draws for {kind}", "Everything()", do)

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.backbone.rank  # type: ignore[attr-defined]

    @property
    def tables(self) -> tuple[str, ...]:
        """What is learned."""
        return ("users", "items", *self.loss.owns)

    def first(self, events: Interactions, dtype: type) -> State:
        """Vectors at random, about 0.1 long."""
        rng = np.random.default_rng(self.seed)
        shapes = {"users": (events.n_users, self.rank), "items": (events.n_items, self.rank)}
        scale = np.float32(0.1 / np.sqrt(self.rank))
        arrays: dict[str, np.ndarray] = {
            name: (rng.standard_normal(shape, np.float32) * scale).astype(dtype) for name, shape in shapes.items()
        }
        own = {"own": events.n_users, "item_own": events.n_items}
        return State(arrays | {name: np.zeros((own[name], 1), dtype) for name in self.loss.owns})

    def improved(self, events: Interactions, state: State) -> Generator[State, float | None, None]:
        yield from training().Training(self, events, state).epochs(state)

    def fitted(self, events: Interactions, state: State) -> Scorer:
        vectors = training().vectors(self, events, state)
        kind = geometry(self.backbone, self.loss.of_distances)
        rule = self.loss.rule(self.l2, events.n_items) if kind == "product" else None
        if rule is not None:
            q = vectors["items"]
            return Factors.of(q, self.loss.gram(q, events.popularity), rule)
        loss = self.loss
        if isinstance(getattr(loss, "sampler", None), InBatch):
            loss = replace(loss, n_negatives=min(loss.n_negatives, self.batch_size))  # type: ignore[attr-defined, call-arg]
        return TrainedVectors.of(loss, kind, self.l2, vectors, state.arrays.get("item_own"), events)

    def copies(self) -> int:
        return 12 if self.backbone.n_layers else 7  # the tables with two moments, twice, and the slopes

    def users_at_once(self, events: Interactions) -> int:
        """At most, in a step by users: if those who touched least come together."""
        least = np.cumsum(np.sort(np.diff(events.matrix.indptr)))
        return int(np.searchsorted(least, self.batch_size) - np.searchsorted(least, 1)) + 1

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The tables, the interactions, the graph and what a step makes, of the batch and its candidates."""
        loss: Any = self.loss
        if loss.by_users:
            step = self.users_at_once(events) * 6 * events.n_items + 8 * (events.n_users + events.n_items) * self.rank
        else:
            wide = 6 * loss.n_negatives + 8 * self.rank
            if not getattr(loss.sampler, "shared", True):
                wide += 3 * loss.n_negatives * self.rank  # gathered for each
            if getattr(loss, "debiased", None):
                wide += 3 * loss.debiased.positives * self.rank
            step = min(self.batch_size, events.n_interactions) * wide
        graph = 60 * events.n_interactions if self.backbone.n_layers else 0
        return super().fit_bytes(events, dtype) + 24 * events.n_interactions + graph + step * np.dtype(dtype).itemsize

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        """On the disk, tables with two moments, three times."""
        numbers = (events.n_users + events.n_items) * (self.rank + len(self.loss.owns))
        return self.fit_bytes(events, dtype), 9 * numbers * np.dtype(dtype).itemsize

    def passes(self) -> float:
        """A step is a product of the batch with its candidates, thrice."""
        return 4 + self.loss.n_negatives / 16  # type: ignore[attr-defined]

    def fit_seconds(self, events: Interactions, dtype: type) -> float:
        """By users, three products with all items, and as long for what is done with the scores and all vectors."""
        if not self.loss.by_users:
            return super().fit_seconds(events, dtype)
        operations = 12 * events.n_users * events.n_items * self.rank
        return self.n_epochs * operations / inverse_rate(np.dtype(dtype), get_num_threads())
