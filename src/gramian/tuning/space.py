"""The points of a search: values of a recipe's parameters in lists, or in ranges (low, high) for Optuna to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gramian.core.params import Configurable, coerce, describe_constraint
from gramian.core.recipe import Recipe
from gramian.errors import InvalidInput, NotSupported
from gramian.validation import format_install_advice, is_number

SWEEP_POINTS = 16  # values tried of a free parameter that has a range
LOG_SPAN = 10  # a range whose ends differ by this factor is searched on a log scale


@dataclass(frozen=True)
class Range:
    """A range of a parameter."""

    low: float
    high: float

    @property
    def is_log(self) -> bool:
        """Whether it is searched on a log scale."""
        return 0 < self.low * LOG_SPAN <= self.high

    def position(self, value: float) -> float:
        """Return where in the range a value is, from 0 to 1, on the scale that is searched."""
        low, high, at = np.log([self.low, self.high, value]) if self.is_log else (self.low, self.high, value)
        return float((at - low) / (high - low))

    def points(self) -> list[float]:
        """Return evenly spaced points, for a free parameter."""
        space = np.geomspace if self.is_log else np.linspace
        return [float(x) for x in space(self.low, self.high, SWEEP_POINTS)]


class Space:
    """The points to try of one model.

    Parameters
    ----------
    model
        The recipe class.
    values
        Parameter → list of values, or range (low, high). The others are searched over the values they declare.
    """

    def __init__(self, model: type[Recipe], values: Mapping[str, Any] | None) -> None:
        if not (isinstance(model, type) and issubclass(model, Recipe)):
            raise InvalidInput("a model class", repr(model), "Pass gr.EDLAE, say, without parentheses")
        declared = {f.name: f for f in model.param_fields()}
        values = {} if values is None else values
        unknown = sorted(set(values) - set(declared))
        if unknown:
            names = ", ".join(declared) or "none"
            raise InvalidInput(f"parameters of {model.__name__} ({names})", unknown[0], "Leave it out")
        self.model, self.named = model, set(values)
        self.axes = {name: parse_axis(name, values.get(name, list(f.metadata["tries"]))) for name, f in declared.items()}
        for name, axis in self.axes.items():
            for value in [axis.low, axis.high] if isinstance(axis, Range) else axis:
                if coerce(value, declared[name]) is None and not (value is None and declared[name].default is None):
                    expected = f"{name} of {model.__name__} to be {describe_constraint(declared[name])}"
                    raise InvalidInput(expected, repr(value), "Leave it out")

    def grid(self) -> list[Recipe]:
        """Return every combination."""
        ranges = [name for name, axis in self.axes.items() if isinstance(axis, Range)]
        if ranges:
            raise InvalidInput(f"a list of values for {ranges[0]}", "a range", "Pass a list, or trials=30 to search a range")
        return list(self.combinations(self.axes))

    def combinations(self, axes: Mapping[str, Any]) -> Iterator[Recipe]:
        """Yield every combination of lists of values."""
        for values in product(*axes.values()):
            yield self.model(**dict(zip(axes, values, strict=True)))

    def vary_free(self, recipe: Recipe, fixed: str) -> Iterator[Recipe]:
        """Yield a recipe with all values of its free parameters, except one that is fixed: they share its fit."""
        free = {f.name: self.axes[f.name] for f in self.model.param_fields() if f.metadata["free"] and f.name != fixed}
        yield from self.combinations({name: [value] for name, value in recipe.params.items()} | free)

    def suggest(self, trial: Any) -> list[Recipe]:
        """Return the points of an Optuna trial: what Optuna chooses, with all values of free parameters."""
        axes: dict[str, Any] = {}
        for f in self.model.param_fields():
            name, axis = f.name, self.axes[f.name]
            if f.metadata["free"]:
                axes[name] = axis.points() if isinstance(axis, Range) else axis
            elif isinstance(axis, Range) and isinstance(f.default, int):
                axes[name] = [trial.suggest_int(name, int(axis.low), int(axis.high), log=axis.is_log)]
            elif isinstance(axis, Range):
                axes[name] = [trial.suggest_float(name, axis.low, axis.high, log=axis.is_log)]
            elif len(axis) == 1:
                axes[name] = axis
            else:
                choices = [str(value) if isinstance(value, Configurable) else value for value in axis]
                axes[name] = [trial.suggest_categorical(name, choices)]
        return list(self.combinations(axes))


def parse_axis(name: str, values: Any) -> Range | list[Any]:
    """Return the values of one parameter from a single value, a list, or a range (low, high)."""
    if isinstance(values, bool | str | Configurable) or is_number(values):
        return [values]
    if isinstance(values, tuple) and len(values) == 2 and all(is_number(v) for v in values):
        if not values[0] < values[1] < float("inf"):
            raise InvalidInput(f"a range (low, high) for {name}", repr(values), "Put the lower end first")
        return Range(*map(float, values))
    if isinstance(values, Mapping) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"a list of values for {name}, or a range (low, high)", repr(values), "Pass [10, 100], say")
    choices = [v.item() if isinstance(v, np.generic) else v for v in values]
    if not choices:
        raise InvalidInput(f"at least one value for {name}", "none", "Pass [10, 100], say")
    return choices


def create_study(seed: int) -> Any:
    """Return an Optuna study that suggests the same points for the same seed and the same values told."""
    try:
        import optuna  # noqa: PLC0415
    except ImportError:
        raise NotSupported(
            "Optuna, for trials", "no such package", f"{format_install_advice('tune')}, or search a grid of lists"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
