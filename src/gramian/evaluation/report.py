"""The result of an evaluation: metrics per user, their means and standard errors, and paired comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtr

from gramian.data.frames import convert_frame, render_html
from gramian.errors import InvalidInput, UnknownId


@dataclass(frozen=True)
class Comparison:
    """Two models on the same users: the mean difference, its standard error, and the p-value of a paired t-test."""

    metric: str
    difference: float
    stderr: float
    p_value: float


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Metrics of one model on one split.

    Parameters
    ----------
    per_user
        Metric → one value per user.
    catalog
        Metrics of all lists together, such as coverage.
    users
        The ids of the test users.
    split
        The fingerprint of the split.
    metrics
        The names of all metrics in the order they were asked for.
    n_leaked
        How many targets the model was fitted on: 0 unless the evaluation allowed it. None where this could not be checked,
        because the model was fitted on a cluster or from a Gram and does not have its users' histories.
    """

    per_user: dict[str, np.ndarray]
    catalog: dict[str, float]
    users: list[Any]
    split: str
    metrics: tuple[str, ...]
    n_leaked: int | None = 0

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {figure}" for name, figure in self._figures().items())
        return f"Report({figures}, {len(self.users):,} users)"

    def __getitem__(self, metric: str) -> float:
        if metric not in self.metrics:
            raise UnknownId(f"a metric of the report ({', '.join(self.metrics)})", repr(metric), "Evaluate it")
        return self.mean[metric]

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each metric over users."""
        means = {name: float(values.mean()) for name, values in self.per_user.items()} | self.catalog
        return {name: means[name] for name in self.metrics}

    @property
    def stderr(self) -> dict[str, float]:
        """The standard error of each mean over users; catalog metrics have none."""
        return {name: standard_error(values) for name, values in self.per_user.items()}

    def frame(self, library: str = "polars") -> Any:
        """Return one row per metric: mean and standard error.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        rows = [(name, mean, self.stderr.get(name)) for name, mean in self.mean.items()]
        schema = {"metric": pl.String, "mean": pl.Float64, "stderr": pl.Float64}
        return convert_frame(pl.DataFrame(rows, schema=schema, orient="row"), library)

    def __str__(self) -> str:
        lines = (f"{name:<18}{figure}" for name, figure in self._figures().items())
        return "\n".join([*lines, f"{len(self.users):,} users", *self._notes()])

    def _repr_html_(self) -> str:
        """The means and standard errors as a table, for notebooks."""
        return render_html(f"{len(self.users):,} users", ["metric", "mean"], self._figures().items(), self._notes())

    def _figures(self) -> dict[str, str]:
        """Metric → its mean and standard error as text."""
        errors = self.stderr
        return {n: f"{mean:.4f}" + (f" ± {errors[n]:.4f}" if n in errors else "") for n, mean in self.mean.items()}

    def _notes(self) -> list[str]:
        """What a reader must know to trust the figures."""
        if self.n_leaked is None:
            return ["The model has no histories, so it was not checked whether it was fitted on the targets."]
        return [f"Too high: the model was fitted on {self.n_leaked:,} of the targets."] if self.n_leaked else []

    def compare(self, other: Report, metric: str) -> Comparison:
        """Compare this report with another on the same split, user by user: this minus the other."""
        if self.split != other.split or self.users != other.users:
            raise InvalidInput("two reports on the same split", "different splits", "Evaluate both models on one split")
        if metric not in self.per_user or metric not in other.per_user:
            raise InvalidInput(f"a metric in both reports ({', '.join(self.per_user)})", metric, "Evaluate it for both")
        return compare_values(metric, self.per_user[metric], other.per_user[metric])


def compare_values(metric: str, values: np.ndarray, others: np.ndarray) -> Comparison:
    """Compare a metric of the same users under two models by a paired t-test: values minus others."""
    difference = values - others
    if not difference.any():
        return Comparison(metric, 0.0, 0.0, 1.0)
    mean, error = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))
    p_value = 2 * stdtr(len(difference) - 1, -abs(mean / error)) if error else 0.0  # Student's t of paired values
    return Comparison(metric, mean, error, float(p_value))


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a mean; NaN for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
