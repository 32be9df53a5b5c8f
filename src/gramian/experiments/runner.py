"""Run an experiment: choose parameters on the validation split, fit on the training part, test once.

The journal has a row for every fit, with its metrics and cost; a row for every cell of a table, with the chosen recipe and the
key of its fit; a row for every curve; and a row for every pair of models that were compared, user by user. Results that it has
are not computed again. Beside it are a journal of the searches and a folder with the metrics of each user.

Figures that their authors selected on test are reproduced apart from all this, and only if `run` is asked to: the recipes of
`as_published` are evaluated on the test split, a row each, and another row says which is the best of them. No cell is chosen by
these rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any

import numpy as np

from gramian.core.params import format_spec
from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender
from gramian.core.registry import MODELS
from gramian.core.scorer import SupportsFactors
from gramian.data.split import Split
from gramian.errors import DamagedFile, Inaccurate, InvalidInput, MissingFile, NotEnoughMemory, NotSupported
from gramian.evaluation.breakdown import by_activity, by_popularity
from gramian.evaluation.comparison import correct_p_values
from gramian.evaluation.metrics import largest_cutoff, parse_metrics
from gramian.evaluation.report import Comparison, Report
from gramian.evaluation.task import RankingTask
from gramian.experiments.curves import compute_curve
from gramian.experiments.experiment import (
    PAPER_UNITS,
    REFINEMENTS,
    Curve,
    Experiment,
    ExperimentData,
    ModelEntry,
    SplitPair,
)
from gramian.experiments.trial import MeasuredCost, warm_up
from gramian.gradient.gradient_recipe import GradientRecipe
from gramian.io.checkpoints import clear_checkpoints
from gramian.io.folder import read_folder, write_folder
from gramian.io.journal import Journal, damaged_line
from gramian.linalg.memory import format_bytes
from gramian.linalg.resumable import clear_scratch
from gramian.models.full_rank import LinearAutoencoder
from gramian.models.shrinkage import LRR, SingularShrinkage
from gramian.progress import format_duration
from gramian.tuning.search import score_together, search_recipes, tune
from gramian.tuning.shared_fits import SharedFit, SharedFits

MODEL_ERRORS = (InvalidInput, NotSupported, NotEnoughMemory, Inaccurate)  # fail one model, and the others still run
PROVENANCE_KEYS = {"time", "revision", "versions", "machine"}  # of every row
REQUIRED_KEYS = {  # of each kind of row
    "fit": {"key", "data", "recipe", "metrics", "stderr", "seconds", "peak_bytes"},
    "cell": {"table", "data", "model", "split"},
    "curve": {"table", "data", "key", "along", "metric", "recipe", "points"},
    "point": {"key", "data", "recipe", "metrics", "stderr"},  # a recipe on the test split, without its cost
    "as_published": {"table", "data", "model", "split", "point", "recipe", "points"},
    "comparison": {"data", "fits", "metric", "difference", "stderr", "p_value"},
}
OTHER_PARAMETERS = "with other parameters than the table asks for"  # notes of fits that the table's own search did not choose
OTHER_SEARCH = "chosen by another search than the table's"
PUBLISHED_ONLY = "published only"  # the note on a model that is not run
BREAKDOWN_CUTOFF = 20  # length of the lists that are broken down by popularity

JournalRow = Mapping[str, Any]


def fit_key(split: Split, recipe: Recipe) -> str:
    """Return a hash that is the same for recipes that are the same model on the same split."""
    return short_hash(f"{split.fingerprint} {dumps(recipe.canonical().to_json(), sort_keys=True)}")


def new_fit_row(recipe: Recipe, data: ExperimentData, split: Split) -> dict[str, Any]:
    """Return a row for the fit of a recipe, without its cost and metrics."""
    facts = {"kind": "fit", "key": fit_key(split, recipe), "data": data.name, "split": split.fingerprint}
    return facts | {"recipe": recipe.to_json()}


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits of a hash."""
    return sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """A model on a data set: the published figures beside the measured ones.

    Parameters
    ----------
    data, model
        Their names as printed.
    published
        Metric as printed → published figure.
    fit
        The journal's row of the fit; None if there is none.
    row
        The journal's row of the cell, which has the chosen recipe; None if there is none.
    note
        Why there is no fit, or what is special about it; may be empty.
    missing
        Why the data is not on this machine and how to get it; None if it is here.
    best_on_test
        The journal's row of the point that was selected on test among those of `as_published`; None if there is none. It is for
        comparison with published figures only.
    n_test_points
        Among how many points it was selected.
    """

    data: str
    model: str
    published: dict[str, float]
    fit: JournalRow | None = None
    row: JournalRow | None = None
    note: str = ""
    missing: str | None = None
    best_on_test: JournalRow | None = None
    n_test_points: int = 0

    def measured_figure(self, metric: str) -> float | None:
        """Return the measured figure of a metric or cost, by its name in this library; None if there is none."""
        if self.fit is None:
            return None
        if metric == "rank":
            return self.fit.get("rank")
        if metric == "minutes":
            return self.fit["seconds"] / 60
        if metric == "GB":
            return None if self.fit["peak_bytes"] is None else self.fit["peak_bytes"] / 1e9
        return self.fit["metrics"].get(metric)

    @property
    def is_search_result(self) -> bool:
        """Whether there is a fit by this library, with the parameters that the table's own search chose."""
        return self.fit is not None and "by" not in self.fit and self.note not in (OTHER_PARAMETERS, OTHER_SEARCH)

    @property
    def recipe(self) -> Mapping[str, Any] | None:
        """The recipe that was fitted, as JSON and by the name of this table; None if there is no fit."""
        return None if self.fit is None else (self.row or self.fit)["recipe"]

    @property
    def duration(self) -> str:
        """The time of the fit as text, with ≥ if the fit was resumed: then only the last run was measured."""
        return "" if self.fit is None else ("≥ " if "resumed" in self.fit else "") + format_duration(self.fit["seconds"])

    @property
    def memory(self) -> str:
        """The peak memory of the fit as text."""
        return "" if self.fit is None or self.fit["peak_bytes"] is None else format_bytes(self.fit["peak_bytes"])


class Benchmark:
    """Runs experiments, and keeps all results in a journal.

    Parameters
    ----------
    path
        The journal, a .jsonl file. It is created with the first result.
    log
        Called with a line of text about what is being done.
    """

    def __init__(self, path: Path, log: Callable[[str], None] = lambda line: None) -> None:
        self.path, self.log = path, log
        self.journal = Journal(path, "kind")
        self.fits: dict[str, JournalRow] = {}  # by key
        self.cells: dict[tuple[str, str, str], JournalRow] = {}  # by table, data and model; of the latest split of the data
        self.curves: dict[tuple[str, str], JournalRow] = {}  # by table and key
        self.points: dict[str, JournalRow] = {}  # by the key of a fit
        self.selected_on_test: dict[tuple[str, str, str], JournalRow] = {}  # by table, data and model
        self.comparisons: dict[tuple[str, str, str], JournalRow] = {}  # by the keys of two fits, and metric
        for number, row in enumerate(self.journal.rows, start=1):
            if not PROVENANCE_KEYS | REQUIRED_KEYS.get(row["kind"], {"no such kind"}) <= set(row):
                raise damaged_line(path, number, str(row).encode())
            self._index(row)

    def _index(self, row: JournalRow) -> None:
        if row["kind"] == "fit":
            self.fits[row["key"]] = row
        elif row["kind"] == "curve":
            self.curves[row["table"], row["key"]] = row
        elif row["kind"] == "point":
            self.points[row["key"]] = row
        elif row["kind"] == "as_published":
            self.selected_on_test[row["table"], row["data"], row["model"]] = row
        elif row["kind"] == "comparison":
            self.comparisons[*row["fits"], row["metric"]] = row
        else:
            table_data = row["table"], row["data"]
            self.cells = {
                key: cell for key, cell in self.cells.items() if key[:2] != table_data or cell["split"] == row["split"]
            }
            self.cells[*table_data, row["model"]] = row

    def _sibling(self, suffix: str) -> Path:
        """Return the path of a file or folder that belongs to the journal."""
        return self.path.with_name(self.path.name.removesuffix(".jsonl") + suffix)

    @property
    def search_path(self) -> Path:
        """The journal of the searches."""
        return self._sibling(".search.jsonl")

    def run(self, experiment: Experiment, *, as_published: bool = False, refit: bool = False) -> list[Cell]:
        """Fill every cell and compute every curve whose data is on this machine, and return all cells.

        Parameters
        ----------
        experiment
            The experiment.
        as_published
            Whether to evaluate the grids of `as_published` on the test split too, after everything else.
        refit
            Whether to fit and test the chosen recipes again that the journal has without the metrics of each user beside it,
            which paired tests need.
        """
        for data in experiment.data:
            entries = [entry for entry in experiment.models if entry.recipe and entry.covers(data.name)]
            curves = [curve for curve in experiment.curves if curve.data == data.name]
            if not (entries or curves) or data.why_missing():
                continue
            try:
                pair = data.load_splits()
            except (InvalidInput, MissingFile, DamagedFile) as error:
                if len(experiment.data) == 1:
                    raise
                self.log(f"{data.name}: skipped: {error}")
                continue
            self._search_together(experiment, entries, data, pair)
            if data.share_inverses:
                self._test_together(experiment, entries, data, pair, as_published=as_published)
            for entry in entries:
                self._fill_cell(experiment, data, entry, pair, refit=refit)
            self._compare_models(experiment, data)
            for curve in curves:
                self._compute_curve(experiment, curve, data, pair)
            if as_published:
                self._select_on_test(experiment, data, entries, pair.test)
        return self.cells_of(experiment)

    def cells_of(self, experiment: Experiment) -> list[Cell]:
        """Return the cells of a table with what the journal has of them, without running anything."""
        cells = []
        for data in experiment.data:
            missing = data.why_missing()
            for entry in (entry for entry in experiment.models if entry.covers(data.name)):
                figures = dict(zip(experiment.metrics, entry.published.get(data.name, ()), strict=False))
                published = {metric: figure for metric, figure in figures.items() if figure == figure}
                row = self.cells.get((experiment.name, data.name, entry.name))
                fit = None if row is None else self.fits.get(row.get("fit", ""))
                if row is not None and fit is not None:
                    note = describe_fit(entry, data.name, row, fit)
                elif row is not None:
                    note = row.get("failed", "its fit is not in the journal")
                else:
                    note = ("data missing" if missing else "not run") if entry.recipe else PUBLISHED_ONLY
                selected = self.selected_on_test.get((experiment.name, data.name, entry.name))
                is_current = selected is not None and (row is None or selected["split"] == row["split"])
                point = self._tested_point(selected["point"]) if selected is not None and is_current else None
                if selected is not None and point is not None:
                    point = {**point, "recipe": selected["recipe"]}  # by the name of this table
                n_points = 0 if selected is None else selected["points"]
                cells.append(Cell(data.name, entry.name, published, fit, row, note, missing, point, n_points))
        return cells

    def _search_together(
        self, experiment: Experiment, entries: list[ModelEntry], data: ExperimentData, pair: SplitPair
    ) -> None:
        """Search models of one kind together first, since they share matrix inverses or a decomposition."""
        for base_class, name in (
            (LinearAutoencoder, "linear autoencoders"),
            (SingularShrinkage, "models of one decomposition"),
        ):
            members = [entry for entry in entries if issubclass(entry.model, base_class)]
            grids = [grid for entry in members if len(grid := entry.search_points(data.name)) > 1]
            serves_test = data.share_inverses and base_class is LinearAutoencoder and pair.search.train is pair.test.train
            on_fit = self._tester(experiment, data, pair.test) if serves_test else None
            if len(grids) > 1 or on_fit is not None:
                self.log(f"{data.name}: searching {name}, {pair.search.train.n_items:,} items")
                recipes = [recipe for grid in grids for recipe in grid]
                with self._summarized_warnings(data), suppress(*MODEL_ERRORS):  # reported when each model is searched
                    score_together(recipes, pair.search, experiment.choose, self.search_path, on_fit=on_fit)

    def _test_together(
        self, experiment: Experiment, entries: list[ModelEntry], data: ExperimentData, pair: SplitPair, *, as_published: bool
    ) -> None:
        """Fit and test autoencoders that share an inverse together, for cells that are filled later."""
        recipes: list[Recipe] = []
        for entry in (entry for entry in entries if issubclass(entry.model, LinearAutoencoder)):
            with suppress(*MODEL_ERRORS):  # reported when its cell is filled
                recipes.append(self._choose_recipe(entry, data, pair.search, experiment.choose)[0])
            recipes += entry.test_points(data.name) if as_published else []
        pending = {key: recipe.canonical() for recipe in recipes if (key := fit_key(pair.test, recipe)) not in self.fits}
        if not pending:
            return
        self.log(f"{data.name}: fitting {len(pending):,} linear autoencoders, {pair.test.train.n_items:,} items")
        test = self._tester(experiment, data, pair.test)
        shared_fits = SharedFits(pair.test.train, np.float32, float("inf")).fit(list(pending.values()))
        with self._summarized_warnings(data):
            started = time.perf_counter()
            for fit in shared_fits:
                test(fit, time.perf_counter() - started)
                started = time.perf_counter()

    def _tester(self, experiment: Experiment, data: ExperimentData, split: Split) -> Callable[[SharedFit, float], None]:
        """Return what tests the recipes of a shared fit, given its seconds, and records a fit of each."""
        metrics = list(dict.fromkeys([*experiment.evaluated_metrics, *experiment.also]))
        parsed, task = parse_metrics(metrics), RankingTask.of(split.held_out, split.train.catalog)
        k = min(max(BREAKDOWN_CUTOFF, largest_cutoff(parsed)), split.train.n_items)

        def test(fit: SharedFit, seconds: float) -> None:
            columns = fit.rank(task.encode_histories(fit.encoder), task.catalog, k)
            for recipe, lists in zip(fit.recipes, columns, strict=True):
                row = new_fit_row(recipe, data, split) | {"seconds": round(seconds, 3), "peak_bytes": None}
                row |= self._report_lists(lists, task, split, metrics, row["key"])
                self._index(self.journal.add(row))

        return test

    @contextmanager
    def _summarized_warnings(self, data: ExperimentData) -> Iterator[None]:
        """Log the number of warnings and the first one, instead of one warning for each point of a search."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        if caught:
            self.log(f"{data.name}: {len(caught)} warnings, the first: {caught[0].message}")

    def _fill_cell(
        self, experiment: Experiment, data: ExperimentData, entry: ModelEntry, pair: SplitPair, *, refit: bool
    ) -> None:
        """Choose, fit and test one model on one data set, or record why it failed."""
        split = pair.test if experiment.on == "test" else pair.search
        row: dict[str, Any] = {
            "kind": "cell",
            "table": experiment.name,
            "data": data.name,
            "model": entry.name,
            "split": split.fingerprint,
        }
        recorded = self.cells.get((experiment.name, data.name, entry.name), {})
        try:
            recipe, search = self._choose_recipe(entry, data, pair.search, experiment.choose)
            if entry.refine is not None:
                recipe, search = self._refine_recipe(entry, recipe, search, pair.search, experiment.choose, recorded)
            fit = self.fit_and_test(recipe, data, split, experiment.evaluated_metrics, experiment.also, refit=refit)
            row |= {"fit": fit["key"], "recipe": recipe.to_json(), "chosen": search}
        except MODEL_ERRORS as error:
            self.log(f"{data.name}: {entry.name} failed: {error}")
            row |= {"failed": str(error)}
        if any(recorded.get(key) != value for key, value in loads(dumps(row)).items()):  # JSON has no tuples
            self._index(self.journal.add(row))

    def _choose_recipe(
        self, entry: ModelEntry, data: ExperimentData, split: Split, metric: str
    ) -> tuple[Recipe, dict[str, Any] | None]:
        """Return the best recipe on the validation split, and facts about the search; no facts about a single point."""
        points, grid = entry.search_points(data.name), entry.search_grid(data.name)
        if len(points) == 1:
            return points[0], None
        self.log(f"{data.name}: searching {entry.name}, {len(points):,} points, {split.train.n_items:,} items")
        with self._summarized_warnings(data):
            if grid is None or (isinstance(grid, Mapping) and PAPER_UNITS not in grid):
                search = tune(entry.model, split, grid, metric, extend=False, journal=self.search_path)
            else:
                search = search_recipes(points, split, metric, self.search_path)
        facts = {"objective": search.objective, "metric": metric, "value": search.value, "points": len(points)}
        return search.recipe, facts | {"items": split.train.n_items}

    def _refine_recipe(
        self, entry: ModelEntry, recipe: Recipe, search: dict[str, Any] | None, split: Split, metric: str, recorded: JournalRow
    ) -> tuple[Recipe, dict[str, Any]]:
        """Return what the entry's refinement makes of the best recipe, from the journal if it is there, and facts about it."""
        assert entry.refine is not None
        facts = (search or {}) | {"refined": entry.refine, "best": recipe.to_json()}
        if recorded.get("chosen") == facts and "recipe" in recorded:
            known: Recipe = MODELS.find(recorded["recipe"]["name"])(**recorded["recipe"]["params"])
            return known, facts
        assert isinstance(recipe, LRR)
        return REFINEMENTS[entry.refine](recipe, split, metric), facts

    def fit_and_test(
        self,
        recipe: Recipe,
        data: ExperimentData,
        split: Split,
        metrics: list[str],
        also: Sequence[str] = (),
        *,
        refit: bool = False,
    ) -> JournalRow:
        """Return the row of a fit with these metrics: from the journal if it is there, else by fitting and testing.

        A new fit is tested with the metrics of `also`, too. `refit` asks for one where the metrics of each user are missing.
        """
        key = fit_key(split, recipe)
        known = self.fits.get(key)
        if known is not None and not (refit and self.load_report(key) is None) and set(metrics) <= set(known["metrics"]):
            return known
        metrics = list(dict.fromkeys([*metrics, *also, *(known["metrics"] if known else ())]))
        estimate = recipe.estimate(split.train)
        self.log(f"{data.name}: fitting {format_spec(recipe.to_json())}, {estimate}")
        scratch = self._sibling(".scratch") / key
        is_resumed = scratch.exists()
        saves_checkpoints = is_resumed or not estimate.fits or isinstance(recipe, GradientRecipe)  # whose epochs take long
        warm_up(recipe)
        with MeasuredCost() as cost:
            model = recipe.fit(split.train, scratch=scratch if saves_checkpoints else None)
        row = new_fit_row(recipe, data, split) | {"seconds": round(cost.seconds, 3), "peak_bytes": cost.peak_bytes}
        row |= self._test(model, data, split, metrics, key)
        if is_resumed:
            row["resumed"] = True  # the cost is that of the last run only
        self._index(self.journal.add(row))
        clear_checkpoints(scratch)
        clear_scratch(scratch)
        with suppress(OSError):  # the scratch of other fits is there, or other files
            scratch.parent.rmdir()
        return self.fits[key]

    def _test(self, model: Recommender, data: ExperimentData, split: Split, metrics: list[str], key: str) -> dict[str, Any]:
        """Evaluate a model, and return the evaluation's part of the row."""
        task = RankingTask.of(split.held_out, split.train.catalog)
        k = max(BREAKDOWN_CUTOFF, largest_cutoff(parse_metrics(metrics)))
        columns = task.rank(model, k, exclude_self=data.exclude_self)
        row = self._report_lists(columns, task, split, metrics, key)
        if isinstance(model.scorer, SupportsFactors):
            row["rank"] = next(iter(model.scorer.factors().values())).shape[1]
        return row

    def _report_lists(
        self, columns: np.ndarray, task: RankingTask, split: Split, metrics: list[str], key: str
    ) -> dict[str, Any]:
        """Evaluate lists, save the metrics of each user, and return the evaluation's part of the row."""
        report = task.report(columns, parse_metrics(metrics))
        facts = {"catalog": report.catalog, "split": report.split, "metrics": metrics}
        write_folder(self.per_user_folder / key, "report", facts, report.per_user, {"users": report.users})
        return {
            "users": len(report.users),
            "items": split.train.n_items,
            "interactions": split.train.n_interactions,
            "metrics": report.mean,
            "stderr": {name: error for name, error in report.stderr.items() if error == error},  # NaN of one user is not JSON
            "activity": {name: by_activity(values, task) for name, values in report.per_user.items()},
            "popularity": by_popularity(columns[:, :BREAKDOWN_CUTOFF], task),
        }

    @property
    def per_user_folder(self) -> Path:
        """The folder with the metrics of each user under every fit."""
        return self._sibling(".users")

    def load_report(self, key: str) -> Report | None:
        """Return the metrics of each user under a fit; None if they were deleted or damaged."""
        try:
            facts, arrays, ids = read_folder(self.per_user_folder / key, "report")
        except (MissingFile, DamagedFile):
            return None
        return Report(arrays, facts["catalog"], ids["users"], facts["split"], tuple(facts["metrics"]))

    def compare_with_best(self, cells: list[Cell], metric: str) -> dict[str, Comparison]:
        """Compare every model with the best one, user by user.

        Parameters
        ----------
        cells
            Cells of one data set.
        metric
            The metric to compare.

        Returns
        -------
        dict
            Model → its paired difference from the best, as the journal has it, with p-values corrected for the number of
            models. Models that were not compared with the best one are left out.
        """
        fits = {cell.model: cell.fit for cell in cells if cell.fit is not None and metric in cell.fit["metrics"]}
        if not fits:
            return {}
        best = max(fits, key=lambda model: fits[model]["metrics"][metric])
        others = {model: self.compare(fit, fits[best], metric) for model, fit in fits.items() if model != best}
        return correct_p_values({model: comparison for model, comparison in others.items() if comparison is not None})

    def compare(self, fit: JournalRow, reference: JournalRow, metric: str) -> Comparison | None:
        """Return the paired difference of a fit from a reference, as the journal has it; None if it has none."""
        row = self.comparisons.get((fit["key"], reference["key"], metric))
        if row is None:
            return None
        p_value = float("nan") if row["p_value"] is None else row["p_value"]
        return Comparison(metric, row["difference"], row["stderr"], p_value)

    def _compare_models(self, experiment: Experiment, data: ExperimentData) -> None:
        """Record the paired differences of every model from the best, and of the pairs that claims name."""
        metric = experiment.choose
        cells = [cell for cell in self.cells_of(experiment) if cell.data == data.name]
        fits = {cell.model: cell.fit for cell in cells if cell.fit is not None and metric in cell.fit["metrics"]}
        if not fits:
            return
        best = max(fits, key=lambda model: fits[model]["metrics"][metric])
        pairs = [(model, best) for model in fits] + [claim.pair for claim in experiment.claims if claim.pair is not None]
        for model, reference in pairs:
            if model not in fits or reference not in fits or fits[model]["key"] == fits[reference]["key"]:
                continue
            keys = [fits[model]["key"], fits[reference]["key"]]
            if (*keys, metric) in self.comparisons:
                continue
            reports = [self.load_report(key) for key in keys]
            if reports[0] is not None and reports[1] is not None:
                comparison = reports[0].compare(reports[1], metric)
                p_value = None if comparison.p_value != comparison.p_value else comparison.p_value  # NaN is not JSON
                row: dict[str, Any] = {"kind": "comparison", "data": data.name, "fits": keys, "metric": metric}
                row |= {"difference": comparison.difference, "stderr": comparison.stderr, "p_value": p_value}
                self._index(self.journal.add(row))

    def _tested_point(self, key: str) -> JournalRow | None:
        """Return the row of a recipe on the test split, from a point or a fit."""
        return self.points.get(key) or self.fits.get(key)

    def _test_points(self, recipes: Sequence[Recipe], data: ExperimentData, split: Split, metrics: list[str]) -> None:
        """Evaluate recipes on the test split, those that share a fit together, unless the journal has them."""
        pending = {}
        for recipe in recipes:
            row = self._tested_point(fit_key(split, recipe))
            if row is None or not set(metrics) <= set(row["metrics"]):
                recipe.require_signals(split.train)
                recipe.require_binary(split.train.has_unit_weights)
                pending[fit_key(split, recipe)] = recipe.canonical()
        if not pending:
            return
        self.log(f"{data.name}: testing {len(pending):,} points, {split.train.n_items:,} items")
        parsed, task = parse_metrics(metrics), RankingTask.of(split.held_out, split.train.catalog)
        k = min(largest_cutoff(parsed), split.train.n_items)
        for shared in SharedFits(split.train, np.float32, len(task.users)).fit(list(pending.values())):
            for recipe, columns in zip(
                shared.recipes, shared.rank(task.encode_histories(shared.encoder), task.catalog, k), strict=True
            ):
                report = task.report(columns, parsed)
                row = {"kind": "point", "key": fit_key(split, recipe), "data": data.name, "split": split.fingerprint}
                row |= {"recipe": recipe.to_json(), "users": len(report.users), "metrics": report.mean}
                row["stderr"] = {name: error for name, error in report.stderr.items() if error == error}
                self._index(self.journal.add(row))

    def _select_on_test(self, experiment: Experiment, data: ExperimentData, entries: list[ModelEntry], split: Split) -> None:
        """Evaluate the grids of `as_published` on the test split, and record the best point of each model."""
        grids = {entry.name: entry.test_points(data.name) for entry in entries}
        with self._summarized_warnings(data):
            recipes = [recipe for grid in grids.values() for recipe in grid]
            self._test_points(recipes, data, split, experiment.evaluated_metrics)
        for model, grid in grids.items():
            tested = [(recipe, point) for recipe in grid if (point := self._tested_point(fit_key(split, recipe)))]
            if not tested:
                continue
            recipe, point = max(tested, key=lambda pair: pair[1]["metrics"][experiment.choose])
            row: dict[str, Any] = {"kind": "as_published", "selected_on": "test", "table": experiment.name, "data": data.name}
            row |= {"model": model, "split": split.fingerprint, "point": point["key"], "recipe": recipe.to_json()}
            row["points"] = len(tested)
            recorded = self.selected_on_test.get((experiment.name, data.name, model), {})
            if any(recorded.get(key) != value for key, value in row.items()):
                self._index(self.journal.add(row))

    def _compute_curve(self, experiment: Experiment, curve: Curve, data: ExperimentData, pair: SplitPair) -> None:
        """Compute the points of a curve, unless the journal has them."""
        recipe, metric = curve.build_recipe(), experiment.choose
        key = short_hash(f"{fit_key(pair.search, recipe)} {metric} {curve.axis}")
        if (experiment.name, key) in self.curves:
            return
        self.log(f"{curve.data}: {recipe} by {curve.along}")
        try:
            if curve.search is not None:
                points = self._tune_by_rank(curve, data, pair, metric)
            else:
                points = compute_curve(curve, pair.search, metric)
        except MODEL_ERRORS as error:
            self.log(f"{curve.data}: {recipe} by {curve.along} failed: {error}")
            return
        row: dict[str, Any] = {"kind": "curve", "key": key, "table": experiment.name, "data": curve.data}
        row |= {"along": curve.along, "metric": metric, "recipe": recipe.to_json(), "points": points}
        if curve.search is not None:
            row |= {"tuned": True, "name": curve.name or curve.recipe}
        elif curve.name:
            row["name"] = curve.name
        if curve.seeds > 1:
            row["seeds"] = curve.seeds
        self._index(self.journal.add(row))

    def _tune_by_rank(self, curve: Curve, data: ExperimentData, pair: SplitPair, metric: str) -> list[dict[str, Any]]:
        """Choose the parameters of each rank on the validation split, and return the test figure of each rank."""
        grids = {rank: curve.search_points(rank) for rank in curve.ranks}
        chosen: dict[int, Recipe] = {}
        with self._summarized_warnings(data):
            together = [recipe for grid in grids.values() for recipe in grid]
            score_together(together, pair.search, metric, self.search_path)  # ranks share a decomposition
            for rank, grid in grids.items():
                chosen[rank] = search_recipes(grid, pair.search, metric, self.search_path).recipe
            self._test_points(list(chosen.values()), data, pair.test, [metric])
        points = []
        for rank, recipe in chosen.items():
            point = self._tested_point(fit_key(pair.test, recipe))
            if point is not None:
                figures = {"value": point["metrics"][metric], "stderr": point["stderr"].get(metric)}
                points.append({"at": rank, **figures, "recipe": recipe.to_json()})
        return points


def compares_with_published(cells: Sequence[Cell]) -> bool:
    """Whether models that are run have published figures, so that a table compares these; if not, it ranks the models."""
    return any(cell.published for cell in cells if cell.note != PUBLISHED_ONLY) or all(cell.fit is None for cell in cells)


def describe_fit(entry: ModelEntry, data: str, row: JournalRow, fit: JournalRow) -> str:
    """Return what is special about the fit of a cell: other parameters than the table's, or another program."""
    notes = []
    points = [] if entry.recipe is None else entry.search_points(data)
    chosen = row.get("chosen") or {}
    if points and entry.refine is None and not is_point(row.get("recipe"), points):
        notes.append(OTHER_PARAMETERS)
    elif points and (chosen.get("points", 1) != len(points) or chosen.get("refined") != entry.refine):
        notes.append(OTHER_SEARCH)
    if "by" in fit:
        notes.append(f"measured by {fit['by']}")
    return "; ".join(notes)


def is_point(recorded: Mapping[str, Any] | None, points: Sequence[Recipe]) -> bool:
    """Whether a recorded recipe is one of the points. A parameter that is newer than the row has its default there."""
    if recorded is None or recorded["name"] not in MODELS:
        return False
    try:
        recipe = MODELS.find(recorded["name"])(**recorded["params"])
    except (InvalidInput, TypeError):
        return False
    return recipe in points
