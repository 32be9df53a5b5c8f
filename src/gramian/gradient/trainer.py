"""What trainers share: the device, the random numbers, the histories as tensors, and the loop over epochs.

The random numbers of an epoch depend on the seed and the epoch's number alone. So a training that is resumed from a checkpoint
ends at the same bits as one that was never interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from gramian.core.epochs import TrainingState
from gramian.data.interactions import Interactions
from gramian.errors import Diverged, NotSupported
from gramian.gradient.gradient_recipe import GradientRecipe
from gramian.gradient.optimizer import LearningRateSchedule, RowAdam


def select_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise NotSupported("a GPU for device='cuda'", "none that PyTorch can use", "Pass device='auto'")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")


def seed_generator(device: torch.device, *numbers: int) -> torch.Generator:
    """A random number generator that is determined by these numbers."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
    return torch.Generator(device).manual_seed(seed)


class Trainer(ABC):
    """A model in training: the learned tables under Adam, and the histories they are trained on."""

    def __init__(self, recipe: GradientRecipe, events: Interactions, state: TrainingState, names: tuple[str, ...]) -> None:
        self.recipe, self.device = recipe, select_device(recipe.device)
        self.tables = RowAdam(state, names, self.device)
        self.indptr, self.columns = (self.to_tensor(array) for array in (events.matrix.indptr, events.matrix.indices))
        self.sizes = self.indptr.diff()

    def to_tensor(self, integers: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(integers, np.int64)).to(self.device)

    @abstractmethod
    def train_epoch(self, number: int, learning_rate: float) -> float:
        """Train epoch `number`, counted from 0, and return the mean loss with penalties."""

    def epochs(self, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        """Yield the state after each further epoch, without end, and receive its validation score through `send()`."""
        number = int(state.facts.get("number", 0))
        recipe, training = self.recipe, self.recipe.training
        schedule = LearningRateSchedule(recipe.learning_rate, recipe.halve_after, state.facts, training.plateau_factor)
        validation_score, objective = state.validation_score, state.objective
        del state
        while True:
            if number:
                verdict = schedule.observe(validation_score, objective)
                if training.reload_best and verdict == "best":
                    self.tables.keep_best()
                if training.reload_best and verdict == "plateau":
                    self.tables.reload_best()
            torch.set_num_threads(get_num_threads())
            objective = self.train_epoch(number, schedule.rate)
            if not (np.isfinite(objective) and self.tables.is_finite()):
                do = "Lower the learning rate, or raise l2"
                raise Diverged("a finite loss", f"{objective} in epoch {number + 1}", do)
            number += 1
            facts = {"number": number, "steps": self.tables.steps, **schedule.facts()}
            validation_score = yield TrainingState(self.tables.arrays(), objective, facts)

    def user_rows(self, users: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The histories of these users, one after the other.

        Returns the size of each history and, for each of its items, the row of its user in `users`, its position in the
        history, and its number.
        """
        sizes = self.indptr[users + 1] - self.indptr[users]
        row = torch.repeat_interleave(sizes)
        position = torch.arange(len(row), device=row.device) - (sizes.cumsum(0) - sizes)[row]
        return sizes, row, position, self.columns[self.indptr[users][row] + position]


def gradient_of(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad
