"""Adam on the rows of a batch, and the learning-rate schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from gramian.core.epochs import TrainingState

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam, as Kingma and Ba (2015) print them
MIN_LEARNING_RATE = 0.01  # as a fraction of the initial learning rate


class RowAdam:
    """Adam (Kingma and Ba 2015) on named tables, of which a step updates all rows or some.

    Rows that are not in a batch keep their values and their moments, as in `torch.optim.SparseAdam`. On the CPU, one kernel
    reads and writes each row once.

    Moments are saved under the names `<table>.mean` and `<table>.square`.
    """

    def __init__(self, state: TrainingState, names: tuple[str, ...], device: torch.device) -> None:
        self.tensors = {name: torch.from_numpy(array.copy()).to(device) for name, array in state.arrays.items()}
        self.names, self.steps = names, int(state.facts.get("steps", 0))
        for name in names:
            for moment in ("mean", "square"):
                self.tensors.setdefault(f"{name}.{moment}", torch.zeros_like(self.tensors[name]))

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def arrays(self) -> dict[str, np.ndarray]:
        """Copies of the tables and their moments."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.tensors.items()}

    def keep_best(self) -> None:
        """Copy the tables, for `reload_best`. The copies are saved under the names `<table>.best`."""
        self.tensors |= {f"{name}.best": self.tensors[name].clone() for name in self.names}

    def reload_best(self) -> None:
        """Restore the tables that `keep_best` copied. The moments stay, as in PyTorch when weights are loaded."""
        for name in self.names:
            self.tensors[name].copy_(self.tensors[f"{name}.best"])

    def is_finite(self) -> bool:
        return all(bool(self.tensors[name].isfinite().all()) for name in self.names)

    def update(self, name: str, rows: Tensor | None, gradient: Tensor, learning_rate: float) -> None:
        """Update these rows of a table, which must be distinct; None: all rows. Increment `steps` first."""
        table, mean, square = (self.tensors[f"{name}{suffix}"] for suffix in ("", ".mean", ".square"))
        correction = (1 - BETA2**self.steps) ** 0.5  # of the second moment's bias towards 0
        epsilon, step_size = EPSILON * correction, -learning_rate * correction / (1 - BETA1**self.steps)
        if rows is not None and table.device.type == "cpu":
            numbers = np.array([BETA1, BETA2, epsilon, step_size], table.numpy().dtype)
            update_rows(table.numpy(), mean.numpy(), square.numpy(), rows.numpy(), gradient.contiguous().numpy(), numbers)
            return
        first = mean if rows is None else mean.index_select(0, rows)
        second = square if rows is None else square.index_select(0, rows)
        first.lerp_(gradient, 1 - BETA1)
        second.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        denominator = second.sqrt().add_(epsilon)
        if rows is None:
            table.addcdiv_(first, denominator, value=step_size)
        else:
            mean.index_copy_(0, rows, first)
            square.index_copy_(0, rows, second)
            table.index_add_(0, rows, first.div_(denominator), alpha=step_size)

    def shorten(self, name: str, rows: Tensor | None, max_length: float) -> None:
        """Project these rows of a table on the ball of this radius; None: all rows."""
        table = self.tensors[name]
        vectors = table if rows is None else table.index_select(0, rows)
        vectors *= (max_length / vectors.norm(dim=1, keepdim=True).clip(min=1e-30)).clip(max=1)
        if rows is not None:
            table.index_copy_(0, rows, vectors)


@njit(parallel=True, cache=True, nogil=True, fastmath={"contract"})
def update_rows(
    table: np.ndarray, mean: np.ndarray, square: np.ndarray, rows: np.ndarray, gradient: np.ndarray, numbers: np.ndarray
) -> None:
    """Take Adam's step on these rows in one pass. `numbers` are β₁, β₂, ε and the step size, in the dtype of the table."""
    beta1, beta2, epsilon, step_size = numbers[0], numbers[1], numbers[2], numbers[3]
    one = table.dtype.type(1)
    for n in prange(len(rows)):
        row = rows[n]
        for k in range(table.shape[1]):
            g = gradient[n, k]
            first = beta1 * mean[row, k] + (one - beta1) * g
            second = beta2 * square[row, k] + (one - beta2) * g * g
            mean[row, k], square[row, k] = first, second
            table[row, k] += step_size * first / (np.sqrt(second) + epsilon)


class LearningRateSchedule:
    """Multiplies the learning rate by `factor` after `patience` epochs without improvement, down to 1/100 of the initial."""

    def __init__(self, initial: float, patience: int, facts: dict[str, Any], factor: float = 0.5) -> None:
        self.minimum, self.patience, self.factor = initial * MIN_LEARNING_RATE, patience, factor
        self.rate, self.best = facts.get("rate", initial), facts.get("best")
        self.stale_epochs = facts.get("waited", 0)
        self.by_validation = facts.get("by_verdict", False)

    def observe(self, validation_score: float | None, objective: float) -> str:
        """Take note of an epoch's validation score or, without one, of its loss. The two are never compared with each other.

        Returns "best" if the epoch is the best so far, "plateau" if the learning rate was lowered, otherwise "".
        """
        by_validation = validation_score is not None
        value = -objective if validation_score is None else float(validation_score)
        if self.best is None or by_validation != self.by_validation:
            self.best, self.by_validation, self.stale_epochs = value, by_validation, 0
            return "best"
        if value > self.best:
            self.best, self.stale_epochs = value, 0
            return "best"
        self.stale_epochs += 1
        if self.stale_epochs < self.patience:
            return ""
        self.rate, self.stale_epochs = max(self.rate * self.factor, self.minimum), 0
        return "plateau"

    def facts(self) -> dict[str, Any]:
        """The state that a checkpoint saves. Its keys are those of version 0.1, whose checkpoints can be resumed."""
        return {
            "rate": self.rate,
            "best": self.best,
            "waited": self.stale_epochs,
            "by_verdict": self.by_validation,
        }
