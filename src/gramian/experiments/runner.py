"""Run an experiment: choose parameters on the validation split, fit on the training part, test once.

The journal has a row for every fit, with its metrics and cost; a row for every cell of a table, with the chosen recipe and the
key of its fit; and a row for every curve. Results that it has are not computed again. Beside it are a journal of the searches
and a folder with the metrics of each user, from which models are compared pairwise.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any

from gramian.core.epochs import EpochRecipe
from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender
from gramian.core.scorer import SupportsFactors
from gramian.data.split import Split
from gramian.errors import DamagedFile, Inaccurate, InvalidInput, MissingFile, NotEnoughMemory, NotSupported
from gramian.evaluation.breakdown import by_activity, by_popularity
from gramian.evaluation.metrics import largest_cutoff, parse_metrics
from gramian.evaluation.report import Comparison, Report
from gramian.evaluation.task import RankingTask
from gramian.experiments.experiment import Curve, Experiment, ExperimentData, ModelEntry, SplitPair
from gramian.experiments.trial import MeasuredCost, warm_up
from gramian.gradient.gradient_recipe import GradientRecipe
from gramian.io.checkpoints import clear_checkpoints
from gramian.io.folder import read_folder, write_folder
from gramian.io.journal import Journal, damaged_line
from gramian.linalg.memory import format_bytes
from gramian.linalg.resumable import clear_scratch
from gramian.models.full_rank import LinearAutoencoder
from gramian.progress import format_duration
from gramian.tuning.rank_path import rank_path
from gramian.tuning.search import score_together, tune

MODEL_ERRORS = (InvalidInput, NotSupported, NotEnoughMemory, Inaccurate)  # fail one model, and the others still run
PROVENANCE_KEYS = {"time", "revision", "versions", "machine"}  # of every row
REQUIRED_KEYS = {  # of each kind of row
    "fit": {"key", "data", "recipe", "metrics", "stderr", "seconds", "peak_bytes"},
    "cell": {"table", "data", "model", "split"},
    "curve": {"table", "data", "key", "along", "metric", "recipe", "points"},
}
BREAKDOWN_CUTOFF = 20  # length of the lists that are broken down by popularity

JournalRow = Mapping[str, Any]


def fit_key(split: Split, recipe: Recipe) -> str:
    """Return a hash that is the same for recipes that are the same model on the same split."""
    return short_hash(f"{split.fingerprint} {dumps(recipe.canonical().to_json(), sort_keys=True)}")


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
    """

    data: str
    model: str
    published: dict[str, float]
    fit: JournalRow | None = None
    row: JournalRow | None = None
    note: str = ""
    missing: str | None = None

    def measured(self, metric: str) -> float | None:
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
        for number, row in enumerate(self.journal.rows, start=1):
            if not PROVENANCE_KEYS | REQUIRED_KEYS.get(row["kind"], {"no such kind"}) <= set(row):
                raise damaged_line(path, number, str(row).encode())
            self._index(row)

    def _index(self, row: JournalRow) -> None:
        if row["kind"] == "fit":
            self.fits[row["key"]] = row
        elif row["kind"] == "curve":
            self.curves[row["table"], row["key"]] = row
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

    def run(self, experiment: Experiment) -> list[Cell]:
        """Fill every cell and compute every curve whose data is on this machine, and return all cells."""
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
            self._search_linear_autoencoders(entries, data, pair, experiment.choose)
            for entry in entries:
                self._fill_cell(experiment, data, entry, pair)
            for curve in curves:
                self._compute_curve(experiment, curve, pair.search)
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
                    note = ("data missing" if missing else "not run") if entry.recipe else "published only"
                cells.append(Cell(data.name, entry.name, published, fit, row, note, missing))
        return cells

    def _search_linear_autoencoders(
        self, entries: list[ModelEntry], data: ExperimentData, pair: SplitPair, metric: str
    ) -> None:
        """Search the linear autoencoders together first, since different models share the same matrix inverses."""
        linear = [entry for entry in entries if issubclass(entry.model, LinearAutoencoder)]
        grids = [grid for entry in linear if len(grid := entry.search_space(data.name).grid()) > 1]
        if len(grids) > 1:
            self.log(f"{data.name}: searching linear autoencoders, {pair.search.train.n_items:,} items")
            with self._summarized_warnings(data), suppress(*MODEL_ERRORS):  # reported when each model is searched
                score_together([recipe for grid in grids for recipe in grid], pair.search, metric, self.search_path)

    @contextmanager
    def _summarized_warnings(self, data: ExperimentData) -> Iterator[None]:
        """Log the number of warnings and the first one, instead of one warning for each point of a search."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        if caught:
            self.log(f"{data.name}: {len(caught)} warnings, the first: {caught[0].message}")

    def _fill_cell(self, experiment: Experiment, data: ExperimentData, entry: ModelEntry, pair: SplitPair) -> None:
        """Choose, fit and test one model on one data set, or record why it failed."""
        split = pair.test if experiment.on == "test" else pair.search
        row: dict[str, Any] = {
            "kind": "cell",
            "table": experiment.name,
            "data": data.name,
            "model": entry.name,
            "split": split.fingerprint,
        }
        try:
            recipe, search = self._choose_recipe(entry, data, pair.search, experiment.choose)
            fit = self.fit_and_test(recipe, data, split, experiment.evaluated_metrics)
            row |= {"fit": fit["key"], "recipe": recipe.to_json(), "chosen": search}
        except MODEL_ERRORS as error:
            self.log(f"{data.name}: {entry.name} failed: {error}")
            row |= {"failed": str(error)}
        recorded = self.cells.get((experiment.name, data.name, entry.name), {})
        if any(recorded.get(key) != value for key, value in row.items()):
            self._index(self.journal.add(row))

    def _choose_recipe(
        self, entry: ModelEntry, data: ExperimentData, split: Split, metric: str
    ) -> tuple[Recipe, dict[str, Any] | None]:
        """Return the best recipe on the validation split and facts about the search, which are None for a single point."""
        points = entry.search_space(data.name).grid()
        if len(points) == 1:
            return points[0], None
        self.log(f"{data.name}: searching {entry.name}, {len(points):,} points, {split.train.n_items:,} items")
        with self._summarized_warnings(data):
            values = entry.search_values(data.name)
            search = tune(entry.model, split, values, metric, extend=False, journal=self.search_path)
        facts = {"objective": search.objective, "metric": metric, "value": search.value, "points": len(points)}
        return search.recipe, facts | {"items": split.train.n_items}

    def fit_and_test(self, recipe: Recipe, data: ExperimentData, split: Split, metrics: list[str]) -> JournalRow:
        """Return the row of a fit with these metrics: from the journal if it is there, else by fitting and testing."""
        key = fit_key(split, recipe)
        known = self.fits.get(key)
        if known is not None and set(metrics) <= set(known["metrics"]):
            return known
        metrics = list(dict.fromkeys([*metrics, *(known["metrics"] if known else ())]))
        estimate = recipe.estimate(split.train)
        self.log(f"{data.name}: fitting {recipe}, {estimate}")
        scratch = self._sibling(".scratch") / key
        is_resumed = scratch.exists()
        saves_checkpoints = is_resumed or not estimate.fits or isinstance(recipe, GradientRecipe)  # whose epochs take long
        warm_up(recipe)
        with MeasuredCost() as cost:
            model = recipe.fit(split.train, scratch=scratch if saves_checkpoints else None)
        row: dict[str, Any] = {
            "kind": "fit",
            "key": key,
            "data": data.name,
            "split": split.fingerprint,
            "recipe": recipe.to_json(),
        }
        row |= {"seconds": round(cost.seconds, 3), "peak_bytes": cost.peak_bytes}
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
        """Evaluate a model, save the metrics of each user, and return the evaluation's part of the row."""
        parsed = parse_metrics(metrics)
        task = RankingTask.of(split.held_out, split.train.catalog)
        columns = task.rank(model, max(BREAKDOWN_CUTOFF, largest_cutoff(parsed)), exclude_self=data.exclude_self)
        report = task.report(columns, parsed)
        facts = {"catalog": report.catalog, "split": report.split, "metrics": metrics}
        write_folder(self.per_user_folder / key, "report", facts, report.per_user, {"users": report.users})
        row = {
            "users": len(report.users),
            "items": split.train.n_items,
            "interactions": split.train.n_interactions,
            "metrics": report.mean,
            "stderr": {name: error for name, error in report.stderr.items() if error == error},  # NaN of one user is not JSON
            "activity": {name: by_activity(values, task) for name, values in report.per_user.items()},
            "popularity": by_popularity(columns[:, :BREAKDOWN_CUTOFF], task),
        }
        if isinstance(model.scorer, SupportsFactors):
            row["rank"] = next(iter(model.scorer.factors().values())).shape[1]
        return row

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
            Model → its paired difference from the best. Models whose per-user metrics are gone are left out.
        """
        fits = {cell.model: cell.fit for cell in cells if cell.fit is not None and metric in cell.fit["metrics"]}
        if not fits:
            return {}
        best = max(fits, key=lambda model: fits[model]["metrics"][metric])
        reports = {model: self.load_report(fit["key"]) for model, fit in fits.items()}
        best_report = reports.pop(best)
        if best_report is None:
            return {}
        return {model: report.compare(best_report, metric) for model, report in reports.items() if report is not None}

    def _compute_curve(self, experiment: Experiment, curve: Curve, split: Split) -> None:
        """Compute the points of a curve on the validation split, unless the journal has them."""
        recipe, metric = curve.build_recipe(), experiment.choose
        key = short_hash(f"{fit_key(split, recipe)} {metric} {list(curve.ranks) if curve.along == 'rank' else 'epochs'}")
        if (experiment.name, key) in self.curves:
            return
        self.log(f"{curve.data}: {recipe} by {curve.along}")
        try:
            if curve.along == "rank":
                points = compute_rank_curve(recipe, curve.ranks, split, metric)
            else:
                points = compute_epoch_curve(recipe, split, metric)
        except MODEL_ERRORS as error:
            self.log(f"{curve.data}: {recipe} by {curve.along} failed: {error}")
            return
        row = {"kind": "curve", "key": key, "table": experiment.name, "data": curve.data, "along": curve.along}
        self._index(self.journal.add(row | {"metric": metric, "recipe": recipe.to_json(), "points": points}))


def describe_fit(entry: ModelEntry, data: str, row: JournalRow, fit: JournalRow) -> str:
    """Return what is special about the fit of a cell: other parameters than the table's, or another program."""
    notes = []
    if entry.recipe is not None and all(recipe.to_json() != row.get("recipe") for recipe in entry.search_space(data).grid()):
        notes.append("with other parameters than the table asks for")
    if "by" in fit:
        notes.append(f"measured by {fit['by']}")
    return "; ".join(notes)


def compute_rank_curve(recipe: Recipe, ranks: Sequence[int], split: Split, metric: str) -> list[dict[str, Any]]:
    """Return the metric at each rank, with its standard error."""
    reports = rank_path(recipe, ranks, split, [metric]).reports
    return [{"at": rank, "value": report[metric], "stderr": report.stderr[metric]} for rank, report in reports.items()]


def compute_epoch_curve(recipe: Recipe, split: Split, metric: str) -> list[dict[str, Any]]:
    """Return the metric after each epoch, with its standard error and the seconds of training so far, without evaluation."""
    assert isinstance(recipe, EpochRecipe)
    warm_up(recipe)
    parsed, points, seconds = parse_metrics([metric]), [], 0.0
    task = RankingTask.of(split.held_out, split.train.catalog)
    started = time.perf_counter()
    for epoch in recipe.epochs(split.train):
        seconds += time.perf_counter() - started
        report = task.report(task.rank(epoch.model, parsed[0].k), parsed)
        point = {"at": epoch.number, "seconds": round(seconds, 3), "value": report[metric], "stderr": report.stderr[metric]}
        points.append(point)
        started = time.perf_counter()
    return points
