"""Choose hyperparameters, knowing what is free: points that are the same model are judged once, families are fitted at once.

A point is given up early when, on the users judged so far, it is surely worse than the best one: below it by four standard
errors of the paired difference.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import InvalidInput
from gramian.linalg.symmetric import checked_dtype
from gramian.linalg.threads import threads
from gramian.models.recipe import Part, Recipe
from gramian.progress import bar
from gramian.recommender import Recommender
from gramian.tuning.family import Family, Fits
from gramian.tuning.journal import Journal, Outcome
from gramian.tuning.judge import ByLeavingOut, Judge, OnSplit
from gramian.tuning.space import Space, study

SURE = 4.0  # standard errors


@dataclass(frozen=True)
class Result:
    """A point of a search, and what it reached on how many users."""

    recipe: Recipe
    value: float
    stderr: float
    n_users: int


@dataclass(frozen=True)
class Search:
    """The results of a search, best first; those given up early come last."""

    metric: str
    n_users: int
    results: tuple[Result, ...]
    judge: str  # whose rows these are in a journal

    @property
    def recipe(self) -> Recipe:
        """The best recipe."""
        return self.results[0].recipe

    @property
    def value(self) -> float:
        return self.results[0].value

    @property
    def stderr(self) -> float:
        return self.results[0].stderr

    def fit(self, events: Interactions, **how: Any) -> Recommender:
        """Fit the best recipe."""
        return self.recipe.fit(events, **how)

    def __str__(self) -> str:
        return f"{self.recipe}: {self.metric} {self.value:.4f} ± {self.stderr:.4f}, best of {len(self.results)} points"

    def frame(self) -> pl.DataFrame:
        """One row for each point, best first: its settings, the metric, its standard error, the users it was judged on."""
        rows = [plain(r.recipe) | {self.metric: r.value, "stderr": r.stderr, "users": r.n_users} for r in self.results]
        return pl.DataFrame(rows)

    def heat_map(self, down: str, across: str) -> pl.DataFrame:
        """The best value of the metric at each pair of values of two settings: one down, one across."""
        known = list(self.recipe.chosen)
        if down == across or not {down, across} <= set(known):
            raise InvalidInput(f"two settings among {', '.join(known)}", f"{down}, {across}", "Name two of them")
        table = self.frame().pivot(on=across, index=down, values=self.metric, aggregate_function="max", sort_columns=True)
        return table.sort(down)


def tune(
    kind: type[Recipe],
    data: Split | Interactions,
    space: Mapping[str, Any] | None = None,
    metric: str = "ndcg@20",
    *,
    trials: int | None = None,
    journal: str | Path | None = None,
    fold_in: float = 0.8,
    seed: int = 0,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> Search:
    """Search the settings of a kind of recipe, on a split (best its `validation`), or by leave-one-user-out on interactions.

    `space` gives for each setting a list of values or, with `trials`, a range (low, high) too; what it does not name has its
    own list. Without `trials` every combination is tried; with it Optuna chooses so many points, and settings that are free
    are swept at each. With a `journal` file, a search that was interrupted goes on where it was.
    """
    points = Space(kind, space)
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int) or trials < 1):
        raise InvalidInput("trials of at least 1", repr(trials), "Pass trials=30, say")
    judge = judge_of(data, metric, fold_in, seed)
    search = Searching(judge, Journal(journal, f"{judge.what} {np.dtype(checked_dtype(dtype))}", metric), checked_dtype(dtype))
    with threads(n_threads):
        if trials is None:
            recipes = points.grid()
            search.judge_all(recipes)
        else:
            recipes = search.judge_suggested(points, trials, seed)
    return search.result(recipes)


def judge_together(recipes: Sequence[Recipe], split: Split, metric: str, journal: str | Path) -> None:
    """Judge recipes of several kinds, those that share a fit at its cost, for searches of each kind to find in the journal.

    None is given up early, since what beats it may not be in the search that asks.
    """
    judge = OnSplit(split, metric)
    search = Searching(judge, Journal(journal, f"{judge.what} float32", metric), np.float32)
    search.sure = float("inf")
    search.judge_all(recipes)


def plain(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe, with its parts in words."""
    return {name: str(value) if isinstance(value, Part) else value for name, value in recipe.chosen.items()}


def judge_of(data: Split | Interactions, metric: str, fold_in: float, seed: int) -> Judge:
    if isinstance(data, Split):
        return OnSplit(data, metric)
    if isinstance(data, Interactions):
        return ByLeavingOut(data, metric, fold_in, seed)
    raise InvalidInput("a Split, or Interactions", type(data).__name__, "Make one: gr.split.strong(events).validation")


class Searching:
    """A search under way: what is known, and the values of each user under the best point so far."""

    def __init__(self, judge: Judge, journal: Journal, dtype: type) -> None:
        self.judge, self.journal, self.sure = judge, journal, SURE
        self.fits = Fits(judge.train, dtype, judge.n_scored)
        self.best: np.ndarray | None = None
        self.best_key: str | None = None
        self.keys: set[str] = set()  # of this search's points; the journal may know others

    def key(self, recipe: Recipe) -> str:
        """The same for recipes that are the same model."""
        canonical = self.judge.canonical(recipe)
        parts = (format(value, ".12g") if isinstance(value, float) else repr(value) for value in canonical.chosen.values())
        return f"{type(canonical).__name__}({', '.join(parts)})"

    def judge_all(self, recipes: Sequence[Recipe], what: str = "tuning") -> None:
        """Judge every recipe that is not known yet."""
        points = {self.key(recipe): self.judge.canonical(recipe) for recipe in recipes}
        self.keys |= set(points)
        todo = {key: recipe for key, recipe in points.items() if not self.knows(key)}
        with bar(what, len(todo)) as advance:
            started = time.perf_counter()
            for family in self.fits.families(list(todo.values())):
                outcomes = self.outcomes(family)
                seconds = (time.perf_counter() - started) / len(outcomes)
                for recipe, outcome in zip(family.recipes, outcomes, strict=True):
                    self.journal.add(self.key(recipe), recipe.to_json(), outcome, seconds)
                advance(len(family.recipes))
                started = time.perf_counter()

    def knows(self, key: str) -> bool:
        """Whether a point is judged: on all users, or given up against a point of this search."""
        outcome = self.journal.outcomes.get(key)
        return outcome is not None and (outcome.n_users == self.judge.n_users or outcome.lost_to in self.keys)

    def judge_suggested(self, points: Space, trials: int, seed: int) -> list[Recipe]:
        """Judge what Optuna suggests. What the journal knows is told and not judged again, so a search repeats itself."""
        tried: dict[Recipe, None] = {}
        chooser = study(seed)
        with bar("tuning", trials) as advance:
            for _ in range(trials):
                trial = chooser.ask()
                recipes = points.suggested(trial)
                self.judge_all(recipes, "trial")
                known = self.journal.outcomes
                values = [known[key].value for recipe in recipes if (key := self.key(recipe)) in known]
                chooser.tell(trial, max(values, default=float("nan")))  # which Optuna takes as a failure
                tried |= dict.fromkeys(recipes)
                advance(1)
        return list(tried)

    def outcomes(self, family: Family) -> list[Outcome]:
        """Judge a family, a block of users at a time, giving up members that are surely worse than the best."""
        values = np.full((len(family.recipes), self.judge.n_users), np.nan)
        alive, seen = list(range(len(family.recipes))), np.zeros(0, np.int64)
        for rows in self.judge.blocks():
            for member, found in zip(alive, self.judge.values(family.only(alive), rows), strict=True):
                values[member, rows] = found
            seen = np.concatenate([seen, rows])
            alive = [member for member in alive if not self.hopeless(values[member, seen], seen)]
            if not alive:
                break
        against = self.best_key
        outcomes = []
        for recipe, own in zip(family.recipes, (own[~np.isnan(own)] for own in values), strict=True):
            complete = len(own) == self.judge.n_users
            outcomes.append(Outcome(float(own.mean()), stderr(own), len(own), None if complete else against))
            if complete and (self.best is None or own.mean() > self.best.mean()):
                self.best, self.best_key = own, self.key(recipe)
        return outcomes

    def hopeless(self, values: np.ndarray, rows: np.ndarray) -> bool:
        if self.best is None or len(rows) == self.judge.n_users:
            return False
        difference = values - self.best[rows]
        return bool(difference.mean() + self.sure * stderr(difference) < 0)

    def result(self, recipes: Sequence[Recipe]) -> Search:
        known = self.journal.outcomes
        found = [
            Result(recipe, known[key].value, known[key].stderr, known[key].n_users)
            for recipe in recipes
            if (key := self.key(recipe)) in known
        ]
        if not found:
            raise InvalidInput("a point that makes sense for these interactions", "none", "Choose other values")
        found.sort(key=lambda result: (result.n_users < self.judge.n_users, -result.value))
        return Search(self.judge.metric, self.judge.n_users, tuple(found), self.journal.judge)


def stderr(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
