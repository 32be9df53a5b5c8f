"""Hyperparameter search without repeated work: equivalent points are evaluated once, and recipes that share a fit are fitted
together.

A point is pruned, that is evaluated on no further users, when on the users so far its mean is below that of the best point by
four standard errors of the paired difference.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gramian.core.params import Configurable, format_value
from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender
from gramian.data.frames import convert_frame, render_html
from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import InvalidInput, SearchEdgeWarning
from gramian.evaluation.metrics import MetricLike
from gramian.evaluation.report import compare_values, standard_error
from gramian.linalg.symmetric import parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.progress import progress_bar
from gramian.tuning.edges import MAX_ADDED, Edge, describe_search_limits, find_edges, points_beyond
from gramian.tuning.objective import LeaveOneOutObjective, Objective, SplitObjective, warn_if_test_users
from gramian.tuning.search_journal import Outcome, SearchJournal
from gramian.tuning.shared_fits import SharedFit, SharedFits
from gramian.tuning.space import Space, create_study
from gramian.validation import require_whole_number

PRUNING_MARGIN = 4.0  # standard errors of the paired difference by which a pruned point is worse than the best
MAX_SHOWN_POINTS = 10  # in a notebook
MAX_LEADERS = 10  # points whose metric of each user is kept, to compare them with the best


@dataclass(frozen=True)
class Result:
    """A point of a search.

    Parameters
    ----------
    recipe
        The recipe.
    value, stderr
        The metric and its standard error.
    n_users
        The number of users it was evaluated on.
    p_value
        Of a paired t-test against the best point, user by user. Only the first points have one, and none whose value was read
        from a journal.
    """

    recipe: Recipe
    value: float
    stderr: float
    n_users: int
    p_value: float | None = None


@dataclass(frozen=True, repr=False)
class Search:
    """The results of a search, best first; pruned ones come last.

    Parameters
    ----------
    metric
        The metric that was maximised.
    n_users
        The number of users it was evaluated on.
    results
        All points.
    objective
        The key of the search's rows in a journal.
    edges
        The parameters whose best value is at an end of what was tried: values beyond it may be better.
    added
        Parameter → values that were tried beyond the end of its own list, because the best one was at that end.
    """

    metric: str
    n_users: int
    results: tuple[Result, ...]
    objective: str
    edges: tuple[Edge, ...] = ()
    added: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """The best recipe."""
        return self.results[0].recipe

    @property
    def best_recipes(self) -> list[Recipe]:
        """The best recipe, followed by those with exactly its value, which may be the same model."""
        best = self.results[0]
        return [r.recipe for r in self.results if (r.value, r.n_users) == (best.value, best.n_users)]

    @property
    def value(self) -> float:
        """The value of the best recipe."""
        return self.results[0].value

    @property
    def stderr(self) -> float:
        """The standard error of the best value."""
        return self.results[0].stderr

    def fit(self, events: Interactions, **options: Any) -> Recommender:
        """Fit the best recipe, with the options of `recipe.fit`."""
        return self.recipe.fit(events, **options)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *describe_search_limits(self.edges, self.added)])

    def __repr__(self) -> str:
        return f"Search({self._headline()})"

    def _headline(self) -> str:
        best = f"{type(self.recipe).__name__}({self.recipe.summary})"
        return f"{best}: {self.metric} {self.value:.4f} ± {self.stderr:.4f}, best of {len(self.results)} points"

    def _repr_html_(self) -> str:
        """The best points as a table, for notebooks."""
        heads, rows = [*self.recipe.params, self.metric], []
        for result in self.results[:MAX_SHOWN_POINTS]:
            rows.append((*map(format_value, result.recipe.params.values()), f"{result.value:.4f} ± {result.stderr:.4f}"))
        return render_html(self._headline(), heads, rows, describe_search_limits(self.edges, self.added))

    def frame(self, library: str = "polars") -> Any:
        """Return one row per point, best first: its parameters, the metric, its standard error, the number of users.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        rows = [params_as_text(r.recipe) | {self.metric: r.value, "stderr": r.stderr, "users": r.n_users} for r in self.results]
        return convert_frame(pl.DataFrame(rows), library)

    def heat_map(self, down: str, across: str) -> pl.DataFrame:
        """Return the best value of the metric at each pair of values of two parameters: one down, one across."""
        names = list(self.recipe.params)
        if down == across or not {down, across} <= set(names):
            raise InvalidInput(f"two parameters among {', '.join(names)}", f"{down}, {across}", "Name two of them")
        table = self.frame().pivot(on=across, index=down, values=self.metric, aggregate_function="max", sort_columns=True)
        return table.sort(down)


def tune(
    model: type[Recipe],
    data: Split | Interactions,
    space: Mapping[str, Any] | None = None,
    metric: MetricLike = "ndcg@20",
    *,
    trials: int | None = None,
    extend: bool = True,
    journal: str | Path | None = None,
    fold_in: float = 0.8,
    seed: int = 0,
    users: Iterable[Any] | None = None,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> Search:
    """Search the parameters of a model.

    Parameters
    ----------
    model
        The class, such as `gr.EDLAE`.
    data
        A split, best its `validation`; or interactions, to search by exact leave-one-user-out.
    space
        For each parameter a list of values or, with `trials`, a range (low, high). A parameter that is not named is searched
        over its own list.
    metric
        What to maximise.
    trials
        Let Optuna choose so many points; without it every combination is tried. Free parameters are swept at each point.
    extend
        Where the best value of a parameter that was not named is at the end of its list, try up to three values beyond it, at
        the cost of a fit each. Not with `trials`, and not for ranks, epochs and models that are trained in epochs.
    journal
        A file in which the results are kept. A search that was interrupted continues where it was.
    fold_in
        With interactions, the share of each user's items that is known.
    seed
        Seed of leave-one-user-out and of Optuna.
    users
        With interactions, a sample of the users to leave out; all if left out.
    dtype, n_threads
        As in `recipe.fit`.

    Returns
    -------
    Search
    """
    points = Space(model, space)
    if isinstance(data, Split):
        warn_if_test_users(data)
    if trials is not None:
        require_whole_number("trials", trials, example=30)
    parsed_dtype = parse_dtype(dtype)
    search = RunningSearch(make_objective(data, metric, fold_in, seed, users), journal, parsed_dtype)
    with limit_threads(n_threads):
        if trials is None:
            recipes = points.grid()
            search.evaluate(recipes)
            added = search.extend(points, recipes) if extend else {}
        else:
            recipes, added = search.evaluate_suggestions(points, trials, seed), {}
    result = search.result(recipes)
    edges = find_edges(points, recipes, result.best_recipes)
    for edge in edges:
        warnings.warn(f"{edge}.", SearchEdgeWarning, stacklevel=2)
    return replace(result, edges=edges, added=added)


def score_together(
    recipes: Sequence[Recipe],
    split: Split,
    metric: str,
    journal: str | Path,
    on_fit: Callable[[SharedFit, float], None] | None = None,
) -> None:
    """Evaluate recipes of several models with shared fits, and write the outcomes to the journal for later searches.

    No recipe is pruned: the recipe it lost to may be of another model, and so not be a point of the later search.

    Parameters
    ----------
    recipes
        The points.
    split, metric, journal
        As in `tune`.
    on_fit
        Called with every shared fit and its seconds before its outcomes are in the journal, to use the fit for more.
    """
    search = RunningSearch(SplitObjective(split, metric), journal, np.float32)
    search.pruning_margin = float("inf")
    search.evaluate(recipes, on_fit=on_fit)


def search_recipes(recipes: Sequence[Recipe], split: Split, metric: str, journal: str | Path) -> Search:
    """Search a list of recipes of one model.

    Parameters
    ----------
    recipes
        The points, which need not be the combinations of lists of values: `tune` is for those.
    split, metric, journal
        As in `tune`.

    Returns
    -------
    Search
    """
    warn_if_test_users(split)
    search = RunningSearch(SplitObjective(split, metric), journal, np.float32)
    search.evaluate(recipes)
    return search.result(recipes)


def params_as_text(recipe: Recipe) -> dict[str, Any]:
    """Return the parameters of a recipe, with nested ones as specs."""
    return {name: str(value) if isinstance(value, Configurable) else value for name, value in recipe.params.items()}


def make_objective(
    data: Split | Interactions, metric: MetricLike, fold_in: float, seed: int, users: Iterable[Any] | None
) -> Objective:
    """Return the objective of a search on a split or on interactions."""
    if isinstance(data, Split):
        return SplitObjective(data, metric)
    if isinstance(data, Interactions):
        return LeaveOneOutObjective(data, metric, fold_in, seed, users)
    raise InvalidInput("a Split, or Interactions", type(data).__name__, "Make one: gr.split.strong(events).validation")


class RunningSearch:
    """A search in progress: the outcomes so far, and the metric of each user under the best point so far."""

    def __init__(self, objective: Objective, journal: str | Path | None, dtype: type) -> None:
        self.objective, self.pruning_margin = objective, PRUNING_MARGIN
        key = f"{objective.fingerprint} {np.dtype(dtype)}"
        self.journal = SearchJournal(journal, key, str(objective.metric))
        self.fits = SharedFits(objective.train, dtype, objective.n_scored)
        self.best: np.ndarray | None = None
        self.best_key: str | None = None
        self.leaders: dict[str, np.ndarray] = {}  # the metric of each user under the best points so far
        self.keys: set[str] = set()  # of this search's points; the journal may hold others

    def key(self, recipe: Recipe) -> str:
        """Return a key that is the same for recipes that are the same model."""
        canonical = self.objective.canonical(recipe)
        values = (format(value, ".12g") if isinstance(value, float) else repr(value) for value in canonical.params.values())
        return f"{type(canonical).__name__}({', '.join(values)})"

    def evaluate(
        self,
        recipes: Sequence[Recipe],
        label: str = "tuning",
        on_fit: Callable[[SharedFit, float], None] | None = None,
    ) -> None:
        """Evaluate every recipe whose outcome is not known yet; `on_fit` is called with each shared fit and its seconds."""
        points = {self.key(recipe): self.objective.canonical(recipe) for recipe in recipes}
        self.keys |= set(points)
        pending = {key: recipe for key, recipe in points.items() if not self.is_known(key)}
        with progress_bar(label, len(pending)) as advance:
            started = time.perf_counter()
            for fit in self.fits.fit(list(pending.values())):
                if on_fit is not None:
                    on_fit(fit, time.perf_counter() - started)
                outcomes = self.outcomes(fit)
                seconds = (time.perf_counter() - started) / len(outcomes)
                for recipe, outcome in zip(fit.recipes, outcomes, strict=True):
                    self.journal.add(self.key(recipe), recipe.to_json(), outcome, seconds)
                advance(len(fit.recipes))
                started = time.perf_counter()

    def is_known(self, key: str) -> bool:
        """Whether a point is evaluated: on all users, or pruned because it lost to a point of this search."""
        outcome = self.journal.outcomes.get(key)
        return outcome is not None and (outcome.n_users == self.objective.n_users or outcome.lost_to in self.keys)

    def extend(self, points: Space, recipes: list[Recipe]) -> dict[str, tuple[float, ...]]:
        """Try values beyond the end of a parameter's own list as long as the best one is there, a few at most.

        The recipes tried are appended to `recipes`. Returns parameter → values.
        """
        added: dict[str, tuple[float, ...]] = {}
        for _ in range(MAX_ADDED):
            best = self.result(recipes).best_recipes
            beyond = points_beyond(points, find_edges(points, recipes, best), recipes, best[0])
            if not beyond:
                break
            for name, further in beyond.items():
                added[name] = (*added.get(name, ()), further[0].params[name])
                self.evaluate(further, f"trying {name}={format_value(added[name][-1])}")
                recipes += further
        return added

    def evaluate_suggestions(self, points: Space, trials: int, seed: int) -> list[Recipe]:
        """Evaluate what Optuna suggests.

        Optuna is told the outcomes in the journal without a new evaluation, so a resumed search gets the same suggestions.
        """
        tried: dict[Recipe, None] = {}
        study = create_study(seed)
        with progress_bar("tuning", trials) as advance:
            for _ in range(trials):
                trial = study.ask()
                recipes = points.suggest(trial)
                self.evaluate(recipes, "trial")
                outcomes = self.journal.outcomes
                values = [outcomes[key].value for recipe in recipes if (key := self.key(recipe)) in outcomes]
                study.tell(trial, max(values, default=float("nan")))  # Optuna takes NaN as a failure
                tried |= dict.fromkeys(recipes)
                advance(1)
        return list(tried)

    def outcomes(self, fit: SharedFit) -> list[Outcome]:
        """Evaluate a shared fit, a block of users at a time, and prune recipes that are clearly worse than the best."""
        values = np.full((len(fit.recipes), self.objective.n_users), np.nan)
        remaining, evaluated_rows = list(range(len(fit.recipes))), np.zeros(0, np.int64)
        for rows in self.objective.blocks():
            for member, block in zip(remaining, self.objective.values(fit.subset(remaining), rows), strict=True):
                values[member, rows] = block
            evaluated_rows = np.concatenate([evaluated_rows, rows])
            remaining = [m for m in remaining if not self.should_prune(values[m, evaluated_rows], evaluated_rows)]
            if not remaining:
                break
        best_before = self.best_key
        outcomes = []
        for recipe, all_values in zip(fit.recipes, values, strict=True):
            evaluated = all_values[~np.isnan(all_values)]
            is_complete = len(evaluated) == self.objective.n_users
            lost_to = None if is_complete else best_before
            outcomes.append(Outcome(float(evaluated.mean()), standard_error(evaluated), len(evaluated), lost_to))
            if is_complete and (self.best is None or evaluated.mean() > self.best.mean()):
                self.best, self.best_key = evaluated, self.key(recipe)
            if is_complete:
                self.leaders[self.key(recipe)] = evaluated
                if len(self.leaders) > MAX_LEADERS:
                    del self.leaders[min(self.leaders, key=lambda key: self.leaders[key].mean())]
        return outcomes

    def should_prune(self, values: np.ndarray, rows: np.ndarray) -> bool:
        """Whether a point is worse than the best so far by more than the pruning margin."""
        if self.best is None or len(rows) == self.objective.n_users:
            return False
        difference = values - self.best[rows]
        return bool(difference.mean() + self.pruning_margin * standard_error(difference) < 0)

    def result(self, recipes: Sequence[Recipe]) -> Search:
        """Return the results of these recipes, best first."""
        outcomes = self.journal.outcomes
        results = [
            Result(recipe, outcomes[key].value, outcomes[key].stderr, outcomes[key].n_users)
            for recipe in recipes
            if (key := self.key(recipe)) in outcomes
        ]
        if not results:
            raise InvalidInput("a point that makes sense for these interactions", "none", "Choose other values")
        results.sort(key=lambda result: (result.n_users < self.objective.n_users, -result.value))
        best = self.leaders.get(self.key(results[0].recipe))
        if best is not None:
            results[1:] = [self.compare(result, best) for result in results[1:]]
        return Search(str(self.objective.metric), self.objective.n_users, tuple(results), self.journal.objective)

    def compare(self, result: Result, best: np.ndarray) -> Result:
        """Return a result with the p-value of a paired test against the best, if the metric of each user was kept."""
        values = self.leaders.get(self.key(result.recipe))
        return result if values is None else replace(result, p_value=compare_values("", values, best).p_value)
