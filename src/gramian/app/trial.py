"""Fit a recipe and judge it, with its seconds and its peak memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from gramian.data import synthetic
from gramian.data.split import Split, strong
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, evaluate
from gramian.models.autoencoders import EASE
from gramian.models.recipe import Part, Recipe

P = TypeVar("P", bound=Part)


class Measured:
    """`with Measured() as cost: ...` then cost.seconds and cost.peak_bytes, the most that new arrays held at once."""

    def __enter__(self) -> Measured:
        tracemalloc.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._started
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


@dataclass(frozen=True)
class Trial:
    """A recipe fitted and judged, with the cost of fitting it."""

    recipe: Recipe
    report: Report
    seconds: float
    peak_bytes: int

    @staticmethod
    def of(recipe: Recipe, split: Split, metrics: Sequence[str] = DEFAULT_METRICS, exclude_self: bool = False) -> Trial:
        """Fit on the training part of a split and judge on the rest."""
        with Measured() as cost:
            model = recipe.fit(split.train)
        return Trial(recipe, evaluate(model, split, metrics, exclude_self=exclude_self), cost.seconds, cost.peak_bytes)

    def to_json(self) -> dict[str, Any]:
        report = self.report
        errors = {name: error for name, error in report.stderr.items() if error == error}  # NaN is no JSON
        return {
            "recipe": self.recipe.to_json(),
            "metrics": {name: {"mean": mean, "stderr": errors.get(name)} for name, mean in report.mean.items()},
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }


def warm_up(*recipes: Recipe) -> None:
    """Compile the kernels of EASE and of these (once on a machine), so that compiling is not measured as fitting."""
    split = strong(synthetic.clustered(100, 50, 1000))
    for recipe in (EASE(), *recipes):
        Trial.of(shrunk(recipe), split)


def shrunk(part: P) -> P:
    """The same, of a small rank and for one epoch."""
    small = {name: min(most, part.chosen[name]) for name, most in {"rank": 4, "n_epochs": 1}.items() if name in part.chosen}
    return replace(part, **small, **{name: shrunk(own) for name, own in part.chosen.items() if isinstance(own, Part)})
