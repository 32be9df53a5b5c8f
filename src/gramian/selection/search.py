"""The search: successive halving across families of models, and a pattern search within those that remain.

1. Where the data is large, the starting points of all families are compared on a sample: popular items, some of the users.
2. The better half is compared on all data. This is the first leaderboard.
3. In rounds, every remaining family takes one step of a pattern search, and the better half of the families remains.
4. The two best families are blended.

Before each fit its time is predicted, from the fits of the family so far; a fit that would leave too little time for the final
test is not begun. Every outcome is written to a journal as soon as it is known, so that a killed search continues.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path

import numpy as np
from numba.core.event import install_listener

from gramian.core.recipe import Recipe
from gramian.data.split import Split
from gramian.errors import GramianError, InvalidInput, NotEnoughMemory
from gramian.evaluation.metrics import Metric
from gramian.linalg.memory import available_bytes, format_bytes
from gramian.models.blend import Blend
from gramian.selection.budget import Clock, CompileTimer
from gramian.selection.families import FAMILIES, FINEST_STEP, ModelFamily, Point
from gramian.selection.protocol import Protocol, sample_split
from gramian.selection.standing import Candidate, FamilyState, Standing
from gramian.tuning.objective import SplitObjective
from gramian.tuning.search import RunningSearch
from gramian.tuning.shared_fits import SharedFit

MIN_REMAINING = 2  # families that are never dropped by halving
MIN_STARTING = 5  # families that go from the sample to all data
MAX_SHARE = 0.4  # of the time left that the first fit of a family on all data may take
MAX_SAMPLE_SHARE = 0.3  # of the budget, for the sample, once so many families are compared there
MAX_FIRST_SHARE = 0.5  # of the budget, for the sample and for compiling on a machine where nothing is compiled yet
DEFAULT_FAMILIES = ("autoencoder", "iALS")  # they have the usual defaults, which the answer must not be worse than
DENSE_GROWTH = 2.5  # power of the number of items with which the time of dense fits grows: between products and inverses
PREDICTION_MARGIN = 1.3  # by which a predicted time is multiplied
MIN_BLEND_GAIN = 0.01  # by which a blend must be better: it costs two models
SWEEPS_PER_FOLD = 4  # points of each remaining family for which there must be time before another fold is used
MAX_FINALISTS = 6
MAX_FINAL_SHARE = 0.4  # of the budget, for the final test and the last fit


class OutOfTime(Exception):
    """There is no time for another fit."""


class FamilySearch:
    """A search over families on the folds of a protocol.

    Parameters
    ----------
    protocol
        The folds.
    metric
        What to maximise.
    clock
        The budget.
    journal
        Where outcomes are written; None for nowhere.
    report
        Called with each new leaderboard.
    """

    def __init__(
        self, protocol: Protocol, metric: Metric, clock: Clock, journal: Path | None, report: Callable[[Standing], None]
    ) -> None:
        self.protocol, self.metric, self.clock, self.journal, self.report = protocol, metric, clock, journal, report
        self.searches: dict[int, RunningSearch] = {}  # by fold; the sample is fold −1
        self.recorded: dict[int, dict[str, float]] = {}  # by fold: the seconds of the points of an earlier run
        self.sample = sample_split(protocol.folds[0])
        self.sample_ranking: list[Candidate] = []
        self.n_folds, self.n_points = 1, 0
        self.left_out: dict[str, str] = {}  # family → why
        self.states: list[FamilyState] = []
        self.blend: Candidate | None = None
        self.is_interrupted = False
        self.compiling = CompileTimer()

    def run(self) -> None:
        """Search until there is nothing left to try or no time; Ctrl-C ends the search and keeps what was found."""
        self.states = [FamilyState(family) for family in FAMILIES if self.is_feasible(family)]
        try:
            with warnings.catch_warnings(), install_listener("numba:compile", self.compiling):
                warnings.simplefilter("ignore")  # points that make no sense are simply not in the leaderboard
                self.search_sample()
                self.search_starts()
                self.search_patterns()
                self.search_blend()
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            self.is_interrupted = True
        if not self.candidates():
            raise InvalidInput(
                "time and memory to evaluate at least one model",
                f"{self.clock.elapsed:.0f} of {self.clock.budget:.0f} seconds used, {format_bytes(available_bytes())} free",
                "Raise the budget, or drop rare items: events.k_core(5)",
            )

    def is_feasible(self, family: ModelFamily) -> bool:
        """Whether a family takes these interactions, and its smallest starting point fits into memory."""
        train = self.protocol.test.train
        recipes = [recipe for point in family.starts for recipe in family.recipes(point, train)]
        if not recipes:
            reason = "has only recipes for 0/1 interactions" if not train.is_binary else "has no rank as low as this data needs"
            self.left_out[family.name] = reason
            return False
        needed = min(recipe.fit_bytes(train, np.float32) for recipe in recipes)
        if needed > available_bytes():
            self.left_out[family.name] = (
                f"needs {format_bytes(needed)} of memory, and {format_bytes(available_bytes())} is free"
            )
            return False
        return True

    def search_sample(self) -> None:
        """Compare the starting points on a sample, and keep the better half of the families."""
        if self.sample is None:
            return
        train, full = self.sample.train, self.protocol.folds[0].train
        on_sample: dict[str, Candidate] = {}
        for state in self.states:
            elapsed, budget = self.clock.elapsed, self.clock.budget
            is_enough = len(on_sample) >= MIN_STARTING and elapsed - self.compiling.seconds > MAX_SAMPLE_SHARE * budget
            if is_enough or elapsed > MAX_FIRST_SHARE * budget:
                break
            with suppress(NotEnoughMemory):
                for point in state.family.starts:
                    best = self.evaluate(state, point, [-1])
                    if best is not None and best.value > getattr(on_sample.get(state.family.name), "value", -1):
                        on_sample[state.family.name] = best
                        state.sampled = (point, best.recipe)
            if state.seconds is not None:
                growth = full.n_interactions / train.n_interactions
                in_items = (full.n_items / train.n_items) ** DENSE_GROWTH
                growth = max(growth, in_items) if state.family.is_dense else growth
                state.seconds, state.single_seconds = growth * state.seconds, growth * state.single_seconds
            self.sample_ranking = sorted(on_sample.values(), key=lambda candidate: -candidate.value)
            self.report(Standing("sample", self.sample_ranking, self.n_points, self.seconds_left))
        n_kept = max(MIN_STARTING, (len(on_sample) + 1) // 2)
        kept = {candidate.family for candidate in self.sample_ranking[:n_kept]} | set(DEFAULT_FAMILIES)
        for state in self.states:
            name = state.family.name
            if name == "popularity":
                continue
            if name not in on_sample:
                self.left_out[name] = "was not tried on a sample of the data for want of time or memory"
            elif name not in kept:
                self.left_out[name] = (
                    f"was not in the better half on {train.n_items:,} popular items and {train.n_users:,} users"
                )
            elif state.single_seconds > MAX_SHARE * self.clock.left:
                self.left_out[name] = f"would take about {state.single_seconds:.0f} s for a single fit"
        self.states = [state for state in self.states if state.family.name not in self.left_out]
        self.states.sort(key=lambda state: (state.family.name not in DEFAULT_FAMILIES, state.seconds or 0.0))

    def search_starts(self) -> None:
        """Compare the starting points on all data: after a sample the families with the defaults, then the fastest first."""
        for state in self.states:
            for point in state.family.starts:
                with suppress(OutOfTime):
                    self.visit(state, point)
            if state.best is None and state.sampled is not None:  # no time for all recipes of a point
                with suppress(OutOfTime):
                    self.visit(state, state.sampled[0], [state.sampled[1]])
            if state.best is None:
                self.left_out.setdefault(state.family.name, "was not tried on all data for want of time")
            self.report(self.standing("start"))
        self.states = [state for state in self.states if state.best is not None]

    def search_patterns(self) -> None:
        """Take steps of the pattern search in every remaining family; after each round the better half remains."""
        remaining = self.keep_better_half(self.states)
        self.choose_folds(remaining)
        while any(not state.is_done for state in remaining):
            for state in remaining:
                self.take_step(state)
                self.report(self.standing("search"))
            remaining = self.keep_better_half(remaining)

    def keep_better_half(self, states: Sequence[FamilyState]) -> list[FamilyState]:
        """Return the better half of the families that can be searched further, at least two."""
        ranked = sorted((s for s in states if s.best and s.family.axes), key=lambda s: -s.best.value if s.best else 0.0)
        return ranked[: max(MIN_REMAINING, (len(ranked) + 1) // 2)]

    def choose_folds(self, remaining: Sequence[FamilyState]) -> None:
        """Use as many folds as there is time for, and evaluate what leads on the new ones."""
        cost = sum(state.seconds or 0.0 for state in remaining)
        affordable = int((self.clock.left - self.final_seconds()) / max(SWEEPS_PER_FOLD * cost, 1e-9))
        self.n_folds = max(1, min(affordable, len(self.protocol.folds)))
        if self.n_folds > 1:
            for state in self.states:
                defaults = state.family.starts if state.family.name in DEFAULT_FAMILIES else ()
                with suppress(OutOfTime):
                    for point in dict.fromkeys([state.best_point, *defaults]):
                        self.visit(state, point)
            complete = max(best.n_users for state in self.states for best in state.bests.values())
            for state in self.states:  # a mean over fewer folds is not comparable
                state.bests = {point: best for point, best in state.bests.items() if best.n_users == complete}
            self.states = [state for state in self.states if state.best is not None]

    def take_step(self, state: FamilyState) -> None:
        """Evaluate the neighbours of a family's best point; if none is better, halve the step."""
        if state.is_done or state.best is None:
            return
        before = state.best.value
        for point in state.family.neighbours(state.best_point, state.step):
            if point not in state.bests:
                try:
                    self.visit(state, point)
                except OutOfTime:
                    state.is_done = True
                    return
        if state.best.value <= before:
            state.step /= 2
            state.is_done = state.step < FINEST_STEP

    def search_blend(self) -> None:
        """Blend the best recipes of the leading families in pairs, with all weights."""
        leaders = [state for state in self.ranked_states() if state.family.name != "popularity"][:3]
        for first, second in combinations(leaders, 2):
            if first.best is None or second.best is None:
                continue
            seconds = (first.seconds or 0.0) + (second.seconds or 0.0)
            try:
                self.require_time(seconds * self.n_folds, self.final_seconds() + 2 * seconds)
            except OutOfTime:
                return
            blend = ModelFamily("blend", (Blend,), (), ((),), {"first": (first.best.recipe,), "second": (second.best.recipe,)})
            state = FamilyState(blend)
            with suppress(NotEnoughMemory):
                self.visit(state, ())
            gain = (1 + MIN_BLEND_GAIN) * max(first.best.value, second.best.value)
            is_better = self.blend is None or (state.best is not None and state.best.value > self.blend.value)
            if state.best is not None and isinstance(state.best.recipe, Blend) and state.best.value > gain and is_better:
                self.blend = state.best
        self.report(self.standing("blend"))

    def visit(self, state: FamilyState, point: Point, recipes: Sequence[Recipe] | None = None) -> None:
        """Evaluate a point, or some of its recipes, on all folds in use, if there is time."""
        growth = state.growth(point)
        if state.seconds is None:  # a guess
            state.seconds = max((other.seconds for other in self.states if other.best and other.seconds), default=0.0)
        own_end = 0.0 if state.best else 2 * PREDICTION_MARGIN * growth * state.single_seconds  # its test and the last fit
        seconds = growth * (state.seconds if recipes is None else state.single_seconds * len(recipes))
        self.require_time(seconds * self.n_folds, self.final_seconds() + own_end)
        try:
            best = self.evaluate(state, point, list(range(self.n_folds)), recipes)
        except NotEnoughMemory as error:
            self.left_out.setdefault(state.family.name, str(error))
            return
        if best is not None:
            state.bests[point] = best

    def evaluate(
        self, state: FamilyState, point: Point, folds: Sequence[int], recipes: Sequence[Recipe] | None = None
    ) -> Candidate | None:
        """Evaluate all recipes at a point, or some of them, and return the best; None if none makes sense.

        Fits are no longer evaluated once the time for the end is reached, if there is a candidate for it.
        """
        recipes = recipes or state.family.recipes(point, self.split(folds[0]).train)
        if not recipes:
            return None
        started, compiling = time.monotonic(), self.compiling.seconds
        fit_seconds: list[float] = []

        def check_time(_: SharedFit, seconds: float) -> None:
            fit_seconds.append(seconds)
            self.require_time(0.0, self.final_seconds())
            if folds[0] < 0 < self.n_points and self.clock.elapsed > MAX_FIRST_SHARE * self.clock.budget:
                raise OutOfTime

        with suppress(OutOfTime):
            for fold in folds:
                self.open_search(fold).evaluate(recipes, f"{state.family.name} ({len(recipes)} points)", check_time)
        seconds = max(time.monotonic() - started - (self.compiling.seconds - compiling), 0.0)
        fitting = min(sum(fit_seconds), seconds)
        recorded = sum(self.recorded_seconds(fold, recipes) for fold in folds)  # what is read from the journal takes no time
        state.seconds, state.last_point = (seconds + recorded) / len(folds), point
        state.single_seconds = (recorded + fitting + (seconds - fitting) / len(recipes)) / len(folds)
        candidates = [candidate for recipe in recipes if (candidate := self.judge(state, recipe, folds)) is not None]
        self.n_points += len(candidates)
        return max(candidates, key=lambda candidate: candidate.value, default=None)

    def recorded_seconds(self, fold: int, recipes: Sequence[Recipe]) -> float:
        """Return the seconds that these recipes took in an earlier run."""
        if not self.recorded.get(fold):
            return 0.0
        recorded, search = self.recorded[fold], self.searches[fold]
        keys = set()
        for recipe in recipes:
            with suppress(GramianError):
                keys.add(search.key(recipe))
        return sum(recorded.get(key, 0.0) for key in keys)

    def judge(self, state: FamilyState, recipe: Recipe, folds: Sequence[int]) -> Candidate | None:
        """Return a recipe with its mean over the users of all folds; None if it could not be fitted on one of them."""
        outcomes = []
        for search in (self.searches[fold] for fold in folds if fold in self.searches):
            with suppress(GramianError):
                outcomes.append(search.journal.outcomes.get(search.key(recipe)))
        known = [outcome for outcome in outcomes if outcome is not None]
        if len(known) < len(folds):
            return None
        sizes = np.array([outcome.n_users for outcome in known], float)
        means, errors = np.array([outcome.value for outcome in known]), np.array([outcome.stderr for outcome in known])
        value = float((sizes * means).sum() / sizes.sum())
        error = float(np.sqrt(((sizes * errors) ** 2).sum()) / sizes.sum())  # folds have different users
        return Candidate(state.family.name, recipe, value, error, int(sizes.sum()), state.single_seconds)

    def split(self, fold: int) -> Split:
        """Return a fold, or the sample."""
        if fold >= 0:
            return self.protocol.folds[fold]
        assert self.sample is not None
        return self.sample

    def open_search(self, fold: int) -> RunningSearch:
        """Return the search of a fold. Only one fold keeps its Gram in memory."""
        for other, search in self.searches.items():
            if other != fold:
                search.fits.gram = None
        if fold not in self.searches:
            search = RunningSearch(SplitObjective(self.split(fold), self.metric), self.journal, np.float32)
            search.pruning_margin = float("inf")  # the outcomes of folds are added up, so that all users count
            rows = [row for row in search.journal.file.rows if row["objective"] == search.journal.objective]
            self.recorded[fold] = {row["key"]: float(row["seconds"]) for row in rows}
            self.clock.used += sum(self.recorded[fold].values())
            self.searches[fold] = search
        return self.searches[fold]

    def require_time(self, seconds: float, reserved: float) -> None:
        """Raise `OutOfTime` if a fit would not leave the time that is reserved for the end; something is always evaluated."""
        if PREDICTION_MARGIN * seconds + reserved > self.clock.left and any(state.best for state in self.states):
            raise OutOfTime

    def final_seconds(self, n_finalists: int = MAX_FINALISTS) -> float:
        """Return the predicted seconds of the final test, the last fit, and writing the results."""
        seconds = [candidate.seconds for candidate in self.candidates()[:n_finalists]]
        longest = max(seconds, default=0.0)
        fits = max(min(sum(seconds) + longest, MAX_FINAL_SHARE * self.clock.budget), 2 * longest)
        return PREDICTION_MARGIN * fits + self.clock.closing

    @property
    def seconds_left(self) -> float:
        """The seconds left for the search."""
        return max(self.clock.left - self.final_seconds(), 0.0)

    def ranked_states(self) -> list[FamilyState]:
        """Return the families with a candidate, best first."""
        return sorted((s for s in self.states if s.best), key=lambda s: -s.best.value if s.best else 0.0)

    def candidates(self) -> list[Candidate]:
        """Return the best candidate of each family, best first; a blend only where it is clearly better than its parts.

        Before the first fit on all data, they are those on the sample.
        """
        found = [state.best for state in self.ranked_states() if state.best] or self.sample_ranking
        return sorted([*found, *([self.blend] if self.blend else [])], key=lambda candidate: -candidate.value)

    def standing(self, stage: str) -> Standing:
        """Return the leaderboard now."""
        return Standing(stage, self.candidates(), self.n_points, self.seconds_left)
