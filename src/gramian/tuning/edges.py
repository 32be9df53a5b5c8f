"""Detect a best point at the edge of its search space, and extend the space where that is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from gramian.core.epochs import EpochRecipe
from gramian.core.params import coerce, format_value
from gramian.core.recipe import Recipe
from gramian.tuning.space import Range, Space
from gramian.validation import is_number

MIN_VALUES = 3  # fewer values have no middle, so that the best one is always at an edge
MAX_ADDED = 3  # values added beyond the end of a list; each costs one fit
NEAR_END = 0.05  # share of a range that counts as its edge


@dataclass(frozen=True)
class Edge:
    """A parameter whose best value is at an end of what was tried, although values beyond it are possible.

    Parameters
    ----------
    name, value
        The parameter and its best value.
    is_highest
        Whether it is at the upper end of what was tried, not at the lower end.
    """

    name: str
    value: float
    is_highest: bool

    def __str__(self) -> str:
        end, beyond = ("upper", "higher") if self.is_highest else ("lower", "lower")
        return f"{self.name}={format_value(self.value)} is at the {end} end of what was tried: {beyond} values may be better"


def find_edges(space: Space, recipes: Sequence[Recipe], best: Sequence[Recipe]) -> tuple[Edge, ...]:
    """Return the parameters whose best value is at an edge.

    Parameters
    ----------
    space
        The space that was searched.
    recipes
        The recipes that were tried.
    best
        The best recipe, and those that are as good: a parameter is at an edge if it is there in all of them.
    """
    edges = []
    for field in space.model.param_fields():
        name, values = field.name, {recipe.params[field.name] for recipe in best}
        tried = {recipe.params[name] for recipe in recipes}
        if len(values) > 1 or len(tried) < MIN_VALUES or not all(map(is_number, tried)):
            continue
        (value,) = values
        axis = space.axes[name]
        position = axis.position(value) if isinstance(axis, Range) else None
        is_highest = value == max(tried) if position is None else position > 1 - NEAR_END
        is_lowest = value == min(tried) if position is None else position < NEAR_END
        if (is_highest and value < field.metadata["at_most"]) or (is_lowest and value > field.metadata["at_least"]):
            edges.append(Edge(name, value, is_highest))
    return tuple(edges)


def points_beyond(space: Space, edges: Sequence[Edge], recipes: Sequence[Recipe], best: Recipe) -> dict[str, list[Recipe]]:
    """Return, for each parameter at an edge, the best recipe with the next value beyond it.

    A parameter is extended only if the caller did not pass values for it, and if it is a number that does not change the cost
    of a fit. Ranks and numbers of epochs do. Models trained in epochs are never extended, because each value costs a training.
    """
    points: dict[str, list[Recipe]] = {}
    if issubclass(space.model, EpochRecipe):
        return points
    declared = {field.name: field for field in space.model.param_fields()}
    for edge in edges:
        field, tried = declared[edge.name], sorted({recipe.params[edge.name] for recipe in recipes})
        value = next_value(tried, edge.is_highest, field.metadata["below"])
        n_added = len(set(tried) - {coerce(axis_value, field) for axis_value in space.axes[edge.name]})  # type: ignore[union-attr]
        is_open = edge.name not in space.named and n_added < MAX_ADDED and isinstance(field.default, float)
        if is_open and coerce(value, field) is not None:
            points[edge.name] = list(space.vary_free(replace(best, **{edge.name: value}), edge.name))  # type: ignore[type-var]
    return points


def next_value(tried: Sequence[float], is_highest: bool, below: float = inf) -> float:
    """Return the value that continues an ascending list: halfway to an upper limit, or by the ratio of the last two."""
    last, previous = (tried[-1], tried[-2]) if is_highest else (tried[0], tried[1])
    further = last * last / previous if previous > 0 else 2 * last
    return float(f"{(last + below) / 2 if is_highest and below < inf else further:.3g}")


def describe_search_limits(edges: Sequence[Edge], added: dict[str, tuple[Any, ...]]) -> list[str]:
    """Describe what was added to a search, and where its best point is at an edge; one text each."""
    notes = [
        f"{', '.join(map(format_value, values))} added to the values of {name}, whose best was at the end of the list"
        for name, values in added.items()
    ]
    return notes + [str(edge) for edge in edges]
