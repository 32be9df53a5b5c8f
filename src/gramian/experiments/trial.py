"""Fit and evaluate a recipe, and measure the time and peak memory of the fit."""

from __future__ import annotations

import ctypes
import gc
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from gramian.core.params import Configurable
from gramian.core.recipe import Recipe
from gramian.data import synthetic
from gramian.data.features import Features
from gramian.data.split import Split, strong
from gramian.errors import GramianError
from gramian.evaluation.evaluate import evaluate
from gramian.evaluation.metrics import DEFAULT_METRICS
from gramian.evaluation.report import Report

Shrinkable = TypeVar("Shrinkable", bound=Any)
WARM_UP_LIMITS = {"rank": 4, "n_epochs": 1}  # the largest values of parameters in a warm-up fit


class MeasuredCost:
    """Measure time and peak memory: `with MeasuredCost() as cost: ...`, then `cost.seconds` and `cost.peak_bytes`.

    The peak is the memory beyond what the process held at the start. Linux keeps the peak of a process and can reset it. On
    other systems `tracemalloc` is used, which sees the allocations of Python and NumPy only.
    """

    def __enter__(self) -> MeasuredCost:
        gc.collect()
        self._bytes_before = read_process_bytes("VmRSS") if reset_peak_memory() else None
        if self._bytes_before is None:
            tracemalloc.start()
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        if self._bytes_before is not None:
            self.peak_bytes = max(read_process_bytes("VmHWM") - self._bytes_before, 0)
            return
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def reset_peak_memory() -> bool:
    """Return freed memory to the system and reset the peak memory of this process; False where that is not possible."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):  # no glibc, or not Linux
        return False
    return True


def read_process_bytes(field: str) -> int:
    """Return a field of /proc/self/status in bytes: VmRSS is the memory in use, VmHWM its peak."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(field + ":")[1].split()[0])


@dataclass(frozen=True)
class Trial:
    """A recipe that was fitted and evaluated, with the cost of the fit."""

    recipe: Recipe
    report: Report
    seconds: float
    peak_bytes: int

    @staticmethod
    def run(recipe: Recipe, split: Split, metrics: Sequence[str] = DEFAULT_METRICS, **options: Any) -> Trial:
        """Fit on the training part of a split and evaluate on its test users, with options of `evaluate`."""
        with MeasuredCost() as cost:
            model = recipe.fit(split.train)
        return Trial(recipe, evaluate(model, split, metrics, **options), cost.seconds, cost.peak_bytes)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe, each metric with its standard error, and the cost."""
        errors = {name: error for name, error in self.report.stderr.items() if error == error}  # NaN is not JSON
        return {
            "recipe": self.recipe.to_json(),
            "metrics": {name: {"mean": mean, "stderr": errors.get(name)} for name, mean in self.report.mean.items()},
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }


def warm_up(*recipes: Recipe) -> None:
    """Fit and evaluate small versions of these recipes, so that compiling their kernels is not measured as fitting.

    Numba caches compiled kernels on disk, so only the first call on a machine takes long. Parameters that are invalid for so
    few items are ignored here: the real fit will report them.
    """
    events = synthetic.clustered(100, 50, 1000)
    events = replace(events.with_features(Features.of(np.eye(50), items=events.items.tolist())), times=np.arange(1000))
    split = strong(events)
    for recipe in recipes:
        with suppress(GramianError):
            Trial.run(shrink_params(recipe), split)


def shrink_params(configured: Shrinkable) -> Shrinkable:
    """Return a recipe, or a nested configurable such as a backbone, with a small rank and one epoch."""
    params = configured.params
    small = {name: min(limit, params[name]) for name, limit in WARM_UP_LIMITS.items() if name in params}
    nested = {name: shrink_params(value) for name, value in params.items() if isinstance(value, Configurable)}
    return replace(configured, **small, **nested)
