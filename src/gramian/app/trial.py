"""Fit a recipe and judge it, with its seconds and its peak memory."""

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

from gramian.data import synthetic
from gramian.data.split import Split, strong
from gramian.errors import GramianError
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, evaluate
from gramian.models.autoencoders import EASE
from gramian.models.recipe import Part, Recipe

P = TypeVar("P", bound=Part)


class Measured:
    """`with Measured() as cost: ...` then cost.seconds and cost.peak_bytes, the most it held beyond what was held before.

    Linux keeps a process's peak and can be told to forget it. Elsewhere only what Python and NumPy allocate is seen.
    """

    def __enter__(self) -> Measured:
        gc.collect()
        self._before = resident("VmRSS") if forgotten_peak() else None
        if self._before is None:
            tracemalloc.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._started
        if self._before is not None:
            self.peak_bytes = max(resident("VmHWM") - self._before, 0)
            return
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def forgotten_peak() -> bool:
    """Whether this process's peak was set back to what it holds now, once what it does not use was given back."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):  # no glibc, no Linux
        return False
    return True


def resident(line: str) -> int:
    """VmRSS, or VmHWM (the peak), of this process in bytes; Linux."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(line + ":")[1].split()[0])


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
    """Compile the kernels of EASE and of these (once on a machine), so that compiling is not measured as fitting.

    Settings that make no sense for so few items are no error here.
    """
    split = strong(synthetic.clustered(100, 50, 1000))
    for recipe in (EASE(), *recipes):
        with suppress(GramianError):
            Trial.of(shrunk(recipe), split)


def shrunk(part: P) -> P:
    """The same, of a small rank and for one epoch."""
    small = {name: min(most, part.chosen[name]) for name, most in {"rank": 4, "n_epochs": 1}.items() if name in part.chosen}
    return replace(part, **small, **{name: shrunk(own) for name, own in part.chosen.items() if isinstance(own, Part)})
