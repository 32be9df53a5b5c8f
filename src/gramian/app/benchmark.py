"""Run an experiment: choose settings on the validation part, fit on the training part, test once. Nothing is done twice.

The journal has a row for every fit, with its cost; one for every cell of a table, which says what was chosen and names its
fit; and one for every curve. Searches are in a journal beside it, the values of each user in a folder beside it, from which
models are compared in pairs.
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
from shutil import rmtree
from typing import Any

from gramian import store
from gramian.app.experiment import Curve, Data, Entry, Experiment, Parts
from gramian.app.trial import Measured, warm_up
from gramian.data.split import Split
from gramian.errors import DamagedFile, Inaccurate, InvalidInput, MissingFile, NotEnoughMemory, NotSupported
from gramian.evaluation.breakdown import by_activity, by_popularity
from gramian.evaluation.evaluate import Comparison, Report, judged, parsed_metrics
from gramian.journal import Journal, damaged
from gramian.linalg.memory import readable
from gramian.models.autoencoders import LinearAutoencoder
from gramian.models.iterative import Iterative
from gramian.models.recipe import Recipe
from gramian.progress import duration
from gramian.recommender import Hide
from gramian.sampled import MODELS as BY_GRADIENTS
from gramian.tuning.rank_path import rank_path
from gramian.tuning.search import judge_together, tune
from gramian.tuning.space import Space

IMPOSSIBLE = (InvalidInput, NotSupported, NotEnoughMemory, Inaccurate)  # what a model may be here, without the others being so
MADE = {"time", "revision", "versions", "machine"}  # what every row has
HAS = {  # and what rows of each kind have at least
    "fit": {"key", "data", "recipe", "metrics", "stderr", "seconds", "peak_bytes"},
    "cell": {"table", "data", "model", "split"},
    "curve": {"table", "data", "key", "along", "metric", "recipe", "points"},
}
LISTED = 20  # items of a list that are broken down by popularity

Row = Mapping[str, Any]


def key_of(split: Split, recipe: Recipe) -> str:
    """The same for recipes that are the same model on the same split."""
    return sha256(f"{split.fingerprint} {dumps(recipe.canonical().to_json(), sort_keys=True)}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """A model on a data set: what was printed, what was found, and why nothing was."""

    data: str
    model: str
    published: dict[str, float]
    fit: Row | None = None
    chosen: Row | None = None
    note: str = ""  # in a word or a sentence
    absent: str | None = None  # why the data is not here, and where to get it

    def ours(self, metric: str) -> float | None:
        """A figure by its name here."""
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
    def time(self) -> str:
        """The seconds of the fit in words: at least those, where it went on after a kill."""
        return "" if self.fit is None else ("≥ " if "resumed" in self.fit else "") + duration(self.fit["seconds"])

    @property
    def memory(self) -> str:
        """The peak of the fit in words."""
        return "" if self.fit is None or self.fit["peak_bytes"] is None else readable(self.fit["peak_bytes"])


class Benchmark:
    """The journal of all that was run, and what runs more."""

    def __init__(self, path: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.path, self.say = path, say
        self.journal = Journal(path, "kind")
        self.fits: dict[str, Row] = {}
        self.cells: dict[tuple[str, str, str], Row] = {}  # by table, data and model; those of an earlier split are forgotten
        self.curves: dict[tuple[str, str], Row] = {}  # by table and key
        for number, row in enumerate(self.journal.rows, start=1):
            if not MADE | HAS.get(row["kind"], {"no such kind"}) <= set(row):
                raise damaged(path, number, str(row).encode())
            self.note(row)

    def note(self, row: Row) -> None:
        if row["kind"] == "fit":
            self.fits[row["key"]] = row
        elif row["kind"] == "curve":
            self.curves[row["table"], row["key"]] = row
        else:
            where = row["table"], row["data"]
            self.cells = {at: own for at, own in self.cells.items() if at[:2] != where or own["split"] == row["split"]}
            self.cells[*where, row["model"]] = row

    def beside(self, ending: str) -> Path:
        """A file or folder that belongs to the journal."""
        return self.path.with_name(self.path.name.removesuffix(".jsonl") + ending)

    @property
    def search_path(self) -> Path:
        return self.beside(".search.jsonl")

    def run(self, experiment: Experiment) -> list[Cell]:
        """Fill every cell that can be filled here, and draw every curve's points."""
        for data in experiment.data:
            entries = [entry for entry in experiment.models if entry.recipe and entry.covers(data.name)]
            curves = [curve for curve in experiment.curves if curve.data == data.name]
            if (entries or curves) and not data.absent():
                try:
                    parts = data.parts()
                except (InvalidInput, MissingFile, DamagedFile) as error:
                    if len(experiment.data) == 1:
                        raise
                    self.say(f"{data.name} cannot be used: {error}")
                    continue
                self.search_together(entries, data, parts, experiment.choose)
                for entry in entries:
                    self.fill(experiment, data, entry, parts)
                for curve in curves:
                    self.draw(experiment, data, curve, parts)
        return self.shown(experiment)

    def search_together(self, entries: list[Entry], data: Data, parts: Parts, metric: str) -> None:
        """Linear autoencoders of several kinds share their inverses: judge all their points before any is searched alone."""
        linear = [entry for entry in entries if issubclass(entry.kind, LinearAutoencoder)]
        grids = [grid for entry in linear if len(grid := Space(entry.kind, entry.space(data.name)).grid()) > 1]
        if len(grids) > 1:
            self.say(f"{data.name}: searching linear autoencoders, {parts.search.train.n_items:,} items")
            with self.counted(data), suppress(*IMPOSSIBLE):  # of which each model will speak for itself
                judge_together([recipe for grid in grids for recipe in grid], parts.search, metric, self.search_path)

    @contextmanager
    def counted(self, data: Data) -> Iterator[None]:
        """Say once of all points that are left out how many there are, and why the first is."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            yield
        if told:
            self.say(f"{data.name}: {len(told)} notes, the first: {told[0].message}")

    def shown(self, experiment: Experiment) -> list[Cell]:
        """The cells of a table as the journal has them."""
        cells = []
        for data in experiment.data:
            absent = data.absent()
            for entry in (entry for entry in experiment.models if entry.covers(data.name)):
                figures = dict(zip(experiment.metrics, entry.published.get(data.name, ()), strict=False))
                published = {metric: figure for metric, figure in figures.items() if figure == figure}
                row = self.cells.get((experiment.name, data.name, entry.name))
                fit = None if row is None else self.fits.get(row.get("fit", ""))
                if row is not None and fit is None:
                    note = row.get("failed", "its fit is not in the journal")
                elif row is not None and fit is not None:
                    other = entry.recipe is not None and not asked(entry, data, row)
                    by = [f"measured by {fit['by']}"] if "by" in fit else []
                    note = "; ".join(["with other settings than the table asks for"] * other + by)
                else:
                    note = ("data missing" if absent else "not run") if entry.recipe else "published only"
                cells.append(Cell(data.name, entry.name, published, fit, row, note, absent))
        return cells

    def fill(self, experiment: Experiment, data: Data, entry: Entry, parts: Parts) -> None:
        """Choose, fit and test one model on one data set, or say why it cannot be."""
        split = parts.test if experiment.on == "test" else parts.search
        where = {"kind": "cell", "table": experiment.name, "data": data.name, "model": entry.name, "split": split.fingerprint}
        try:
            recipe, chosen = self.choose(entry, data, parts, experiment.choose)
            fit = self.tested(recipe, data, split, experiment.measured)
            row = where | {"fit": fit["key"], "recipe": recipe.to_json(), "chosen": chosen}
        except IMPOSSIBLE as error:
            self.say(f"{data.name}: {entry.name} failed: {error}")
            row = where | {"failed": str(error)}
        known = self.cells.get((experiment.name, data.name, entry.name), {})
        if any(known.get(name) != value for name, value in row.items()):
            self.note(self.journal.add(row))

    def choose(self, entry: Entry, data: Data, parts: Parts, metric: str) -> tuple[Recipe, Row | None]:
        """The best settings on the validation part, and how they were found; None where there is no choice."""
        space = entry.space(data.name)
        points = Space(entry.kind, space).grid()
        if len(points) == 1:
            return points[0], None
        self.say(f"{data.name}: searching {entry.name}, {len(points):,} points, {parts.search.train.n_items:,} items")
        with self.counted(data):
            found = tune(entry.kind, parts.search, space, metric, journal=self.search_path)
        facts = {"judge": found.judge, "metric": metric, "value": found.value, "points": len(points)}
        return found.recipe, facts | {"items": parts.search.train.n_items}

    def tested(self, recipe: Recipe, data: Data, split: Split, metrics: list[str]) -> Row:
        """The row of a fit, from the journal where it is there with these metrics."""
        key = key_of(split, recipe)
        known = self.fits.get(key)
        if known is not None and set(metrics) <= set(known["metrics"]):
            return known
        metrics = list(dict.fromkeys([*metrics, *(known["metrics"] if known else ())]))
        estimate = recipe.estimate(split.train)
        self.say(f"{data.name}: fitting {recipe}, {estimate}")
        scratch = self.beside(".scratch") / key
        resumes, trained = scratch.exists(), type(recipe).__name__ in BY_GRADIENTS  # whose epochs dwarf keeping them
        warm_up(recipe)
        with Measured() as cost:
            model = recipe.fit(split.train, scratch=scratch if resumes or trained or not estimate.fits else None)
        parsed = parsed_metrics(metrics)
        histories = split.fold_in.reindex(split.target.users, split.train.items).matrix
        hide = Hide(selves=split.target.users.tolist() if data.exclude_self else None)
        columns, _ = model.top_k(histories, max(LISTED, *(k for _, k in parsed.values())), hide=hide)
        report = judged(columns, split.train, split, parsed)
        row = {
            "kind": "fit",
            "key": key,
            "data": data.name,
            "split": split.fingerprint,
            "users": len(report.users),
            "items": split.train.n_items,
            "interactions": split.train.n_interactions,
            "recipe": recipe.to_json(),
            "metrics": report.mean,
            "stderr": {name: error for name, error in report.stderr.items() if error == error},  # NaN, of one user, is no JSON
            "seconds": round(cost.seconds, 3),
            "peak_bytes": cost.peak_bytes,
            "activity": {name: by_activity(values, split) for name, values in report.per_user.items()},
            "popularity": by_popularity(columns[:, :LISTED], split.train, split),
        }
        with suppress(NotSupported):  # of models that have no rank
            row["rank"] = next(iter(model.scorer.factors().values())).shape[1]
        if resumes:
            row["resumed"] = True  # the cost is that of the last run only
        facts = {"catalog": report.catalog, "split": report.split, "metrics": metrics}
        store.write(self.reports / key, "report", facts, report.per_user, {"users": report.users})
        self.note(self.journal.add(row))
        rmtree(self.beside(".scratch"), ignore_errors=True)
        return self.fits[key]

    @property
    def reports(self) -> Path:
        return self.beside(".users")

    def report(self, key: str) -> Report | None:
        """The values of each user under a fit; None where the folder has gone or was damaged."""
        try:
            facts, arrays, ids = store.read(self.reports / key, "report")
        except (MissingFile, DamagedFile):
            return None
        return Report(arrays, facts["catalog"], ids["users"], facts["split"], tuple(facts["metrics"]))

    def against_best(self, cells: list[Cell], metric: str) -> dict[str, Comparison]:
        """By model, the paired difference from the best of the cells of one data set; none where its users' values are gone."""
        filled = {cell.model: cell.fit for cell in cells if cell.fit is not None and metric in cell.fit["metrics"]}
        if not filled:
            return {}
        best = max(filled, key=lambda model: filled[model]["metrics"][metric])
        reports = {model: self.report(fit["key"]) for model, fit in filled.items()}
        first = reports.pop(best)
        others = {model: report for model, report in reports.items() if report is not None}
        return {} if first is None else {model: report.compare(first, metric) for model, report in others.items()}

    def draw(self, experiment: Experiment, data: Data, curve: Curve, parts: Parts) -> None:
        """The points of a curve, on the validation part: quality at each rank, or at each epoch with its seconds."""
        recipe, metric = curve.made, experiment.choose
        at = list(curve.ranks) if curve.along == "rank" else "epochs"
        key = sha256(f"{key_of(parts.search, recipe)} {metric} {at}".encode()).hexdigest()[:16]
        if (experiment.name, key) in self.curves:
            return
        self.say(f"{data.name}: {recipe} along its {curve.along}s")
        try:
            points = (
                along_ranks(recipe, curve.ranks, parts.search, metric)
                if curve.along == "rank"
                else along_epochs(recipe, parts.search, metric)
            )
        except IMPOSSIBLE as error:
            self.say(f"{data.name}: {recipe} cannot be drawn along its {curve.along}s: {error}")
            return
        row = {"kind": "curve", "key": key, "table": experiment.name, "data": data.name, "along": curve.along, "metric": metric}
        self.note(self.journal.add(row | {"recipe": recipe.to_json(), "points": points}))


def asked(entry: Entry, data: Data, row: Row) -> bool:
    """Whether a cell's recipe is among those that its entry asks for."""
    return any(recipe.to_json() == row.get("recipe") for recipe in Space(entry.kind, entry.space(data.name)).grid())


def along_ranks(recipe: Recipe, ranks: Sequence[int], split: Split, metric: str) -> list[dict[str, Any]]:
    """Quality at each rank."""
    reports = rank_path(recipe, ranks, split, [metric]).reports
    return [{"at": rank, "value": report[metric], "stderr": report.stderr[metric]} for rank, report in reports.items()]


def along_epochs(recipe: Recipe, split: Split, metric: str) -> list[dict[str, Any]]:
    """Quality after each epoch, and the seconds of training until then, in which judging does not count."""
    assert isinstance(recipe, Iterative)
    warm_up(recipe)
    parsed, points, seconds = parsed_metrics([metric]), [], 0.0
    histories = split.fold_in.reindex(split.target.users, split.train.items).matrix
    started = time.perf_counter()
    for epoch in recipe.epochs(split.train):
        seconds += time.perf_counter() - started
        columns, _ = epoch.model.top_k(histories, next(iter(parsed.values()))[1])
        report = judged(columns, split.train, split, parsed)
        points.append(
            {"at": epoch.number, "seconds": round(seconds, 3), "value": report[metric], "stderr": report.stderr[metric]}
        )
        started = time.perf_counter()
    return points
