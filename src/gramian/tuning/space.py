"""What a search tries: values of the settings of a recipe, in lists, or in ranges (low, high) for Optuna to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from gramian.data.tables import is_number
from gramian.errors import InvalidInput, NotSupported
from gramian.models.recipe import Part, Recipe, checked, wanted

SWEEP = 16  # points of a free range
LOG = 10  # a range that spans this factor is searched on a log scale


@dataclass(frozen=True)
class Range:
    low: float
    high: float

    @property
    def log(self) -> bool:
        return 0 < self.low * LOG <= self.high

    def points(self) -> list[float]:
        space = np.geomspace if self.log else np.linspace
        return [float(x) for x in space(self.low, self.high, SWEEP)]


class Space:
    """The points to try of one kind of recipe."""

    def __init__(self, kind: type[Recipe], given: Mapping[str, Any] | None) -> None:
        if not (isinstance(kind, type) and issubclass(kind, Recipe)):
            raise InvalidInput("a kind of recipe", repr(kind), "Pass gr.EDLAE, say, without parentheses")
        own = {f.name: f for f in fields(kind)}
        given = {} if given is None else given
        foreign = sorted(set(given) - set(own))
        if foreign:
            raise InvalidInput(f"settings of {kind.__name__} ({', '.join(own) or 'none'})", foreign[0], "Leave it out")
        self.kind = kind
        self.axes = {name: axis(name, given.get(name, list(f.metadata["tries"]))) for name, f in own.items()}
        for name, values in self.axes.items():
            for value in [values.low, values.high] if isinstance(values, Range) else values:
                if checked(value, own[name].metadata["like"], own[name].metadata) is None:
                    what = wanted(own[name].metadata["like"], own[name].metadata)
                    raise InvalidInput(f"{name} of {kind.__name__} to be {what}", repr(value), "Leave it out")

    def grid(self) -> list[Recipe]:
        """Every combination."""
        ranges = [name for name, values in self.axes.items() if isinstance(values, Range)]
        if ranges:
            raise InvalidInput(f"a list of values for {ranges[0]}", "a range", "Pass a list, or trials=30 to search a range")
        return list(self.combinations(self.axes))

    def combinations(self, axes: Mapping[str, Any]) -> Iterator[Recipe]:
        for values in product(*axes.values()):
            yield self.kind(**dict(zip(axes, values, strict=True)))

    def suggested(self, trial: Any) -> list[Recipe]:
        """The points of one Optuna trial: what Optuna chooses, with all values of what is free."""
        free = {f.name for f in fields(self.kind) if f.metadata["free"]}
        axes: dict[str, Any] = {}
        for name, values in self.axes.items():
            default = getattr(self.kind, name)
            if name in free:
                axes[name] = values.points() if isinstance(values, Range) else values
            elif isinstance(values, Range) and isinstance(default, int):
                axes[name] = [trial.suggest_int(name, int(values.low), int(values.high), log=values.log)]
            elif isinstance(values, Range):
                axes[name] = [trial.suggest_float(name, values.low, values.high, log=values.log)]
            elif len(values) == 1:
                axes[name] = values
            else:
                axes[name] = [trial.suggest_categorical(name, [str(v) if isinstance(v, Part) else v for v in values])]
        return list(self.combinations(axes))


def axis(name: str, values: Any) -> Range | list[Any]:
    """One setting's values: a number, a list of them, or a range (low, high)."""
    if isinstance(values, bool | str | Part) or is_number(values):
        return [values]
    if isinstance(values, tuple) and len(values) == 2 and all(is_number(v) for v in values):
        if not values[0] < values[1] < float("inf"):
            raise InvalidInput(f"a range (low, high) for {name}", repr(values), "Put the lower end first")
        return Range(*map(float, values))
    if isinstance(values, Mapping) or not hasattr(values, "__iter__"):
        raise InvalidInput(f"a list of values for {name}, or a range (low, high)", repr(values), "Pass [10, 100], say")
    found = [v.item() if isinstance(v, np.generic) else v for v in values]
    if not found:
        raise InvalidInput(f"at least one value for {name}", "none", "Pass [10, 100], say")
    return found


def study(seed: int) -> Any:
    """An Optuna study that gives the same points for the same seed and the same values told."""
    try:
        import optuna  # noqa: PLC0415
    except ImportError:
        raise NotSupported(
            "Optuna, for trials", "no such package", "Install gramian[tune], or search a grid of lists"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
