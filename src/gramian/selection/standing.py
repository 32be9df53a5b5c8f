"""What a search knows: its candidates, the state of each family, and the leaderboard."""

from __future__ import annotations

from dataclasses import dataclass, field

from gramian.core.recipe import Recipe
from gramian.selection.families import ModelFamily, Point

RANK_GROWTH = 1.5  # power of a rank or a number of neighbours with which the time of a fit grows at most


@dataclass(frozen=True)
class Candidate:
    """A recipe with its validation metric.

    Parameters
    ----------
    family
        The name of its family.
    recipe
        The recipe.
    value, stderr, n_users
        The mean of the metric over validation users, its standard error, and their number.
    seconds
        The seconds to fit and evaluate it alone.
    """

    family: str
    recipe: Recipe
    value: float
    stderr: float
    n_users: int
    seconds: float


@dataclass(frozen=True)
class Standing:
    """The leaderboard of a search under way: the best candidate of each family, best first."""

    stage: str
    candidates: list[Candidate]
    n_points: int
    seconds_left: float


@dataclass
class FamilyState:
    """What is known of a family: its points and their best recipes, where its pattern search is, and the time of a point.

    Parameters
    ----------
    family
        The family.
    seconds, single_seconds
        The seconds of its last point on one fold, and of one of the recipes there; None and 0 before the first.
    last_point
        That point.
    sampled
        The point and the recipe that were best on a sample of the data; None if there was no sample.
    bests
        Point → its best candidate.
    step
        The step of the pattern search.
    is_done
        Whether the pattern search has converged, or there is no time for another point.
    """

    family: ModelFamily
    seconds: float | None = None
    single_seconds: float = 0.0
    last_point: Point | None = None
    sampled: tuple[Point, Recipe] | None = None
    bests: dict[Point, Candidate] = field(default_factory=dict)
    step: float = 1.0
    is_done: bool = False

    @property
    def best(self) -> Candidate | None:
        """The best candidate."""
        return max(self.bests.values(), key=lambda candidate: candidate.value, default=None)

    @property
    def best_point(self) -> Point:
        """The point of the best candidate."""
        return max(self.bests, key=lambda point: self.bests[point].value)

    def growth(self, point: Point) -> float:
        """Return by how much longer a fit at a point is expected to take than at the last one: larger ranks cost more."""
        if self.last_point is None:
            return 1.0
        growth = 1.0
        for axis, before, after in zip(self.family.axes, self.last_point, point, strict=True):
            old, new = axis.value(before), axis.value(after)
            if axis.is_whole and old and new:
                growth *= (new / old) ** (RANK_GROWTH if new > old else 1.0)
        return growth
