"""An experiment: the data sets, models and metrics of a published table, with the published figures. It is a TOML file:

title = "EASE under weak generalization"
metrics = {"Recall@20" = "recall@20", "NDCG@20" = "ndcg@20"}    # as printed → the metric's name in this library
choose = "ndcg@20"                                              # parameters are chosen by it, on the validation split
on = "test"                                                     # or "validation", where the published figures are from there
claims = ["What the paper says, and what was measured here."]

[data.gowalla]
split = "published"                                             # or strong, weak, leave-last with their `options`
search_items = 20_000                                           # parameters are searched on the most popular items only

[[model]]
name = "EASE"                                                   # as printed
recipe = "EASE"                                                 # if left out, the published figures are shown but not measured
search = {l2 = [10, 100]}                                       # the values to try of each parameter
params = {gowalla = {l2 = 50}}                                  # values that replace those of `search` on one data set
published = {gowalla = [0.1765, 0.1467]}                        # in the order of the metrics; nan where none was printed

[[curve]]                                                       # the quality of one recipe by rank or by epoch
data = "gowalla"
along = "epoch"
recipe = "IALS"
params = {rank = 64}

The other keys of a data set are the fields of `ExperimentData`.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gramian.core.epochs import EpochRecipe
from gramian.core.recipe import Recipe
from gramian.core.registry import MODELS
from gramian.data import datasets
from gramian.data import split as splits
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import DamagedFile, InvalidInput, MissingFile, UnknownId
from gramian.evaluation.metrics import DEFAULT_METRICS, parse_metric, parse_metrics
from gramian.models.spectral import SpectralRecipe
from gramian.tuning.space import Space

TomlSection = TypeVar("TomlSection")
COSTS = {"minutes", "GB", "rank"}  # columns of a table that are not metrics: the cost of a fit, and the rank of the model
CHECKOUT_PAPERS = Path(__file__).parents[3] / "benchmarks" / "papers"
PAPERS_FOLDER = CHECKOUT_PAPERS if CHECKOUT_PAPERS.is_dir() else Path(__file__).parent / "papers"  # in a wheel

# Name → function, and the `validation` argument with which it makes no validation split.
EXPERIMENT_SPLITS: dict[str, tuple[Callable[..., Split], Any]] = {
    "strong": (splits.strong, None),
    "weak": (splits.weak, 0),
    "leave-last": (splits.leave_last, False),
}
CURVE_RECIPES: dict[str, type[Recipe]] = {"rank": SpectralRecipe, "epoch": EpochRecipe}  # by `Curve.along`


@dataclass(frozen=True)
class SplitPair:
    """The split on which parameters are searched, and the split on which the chosen recipe is tested."""

    search: Split
    test: Split


def make_split_pair(events: Interactions, name: str, options: Mapping[str, Any], *, retrain: bool = True) -> SplitPair:
    """Split interactions for a search and for a test.

    Parameters
    ----------
    events
        The interactions.
    name
        One of `EXPERIMENT_SPLITS`.
    options
        Keyword arguments of that split.
    retrain
        Whether the model to test is trained on the validation items too. A strong split ignores it: its validation users
        are never trained on.

    Returns
    -------
    SplitPair
    """
    if name not in EXPERIMENT_SPLITS:
        expected = f"a split with a validation split: {', '.join(EXPERIMENT_SPLITS)}"
        raise InvalidInput(expected, repr(name), "Choose one of them")
    make_split, no_validation = EXPERIMENT_SPLITS[name]
    split = make_split(events, **options)
    search = validation_of(split, name)
    if retrain and name != "strong":
        split = make_split(events, **{**options, "validation": no_validation})
    return SplitPair(search, split)


def validation_of(split: Split, name: str) -> Split:
    """Return the validation split of a split, or raise InvalidInput with the split's name."""
    if split.validation is None:
        raise InvalidInput("a split with a validation split", f"{name}, which has none", "Choose another split")
    return split.validation


def keep_popular_items(split: Split, n_items: int) -> Split:
    """Return a split with its most popular items only, for a quick search. Users who lose all items or targets are dropped."""
    order = np.argsort(-split.train.popularity, kind="stable")
    items = Index(split.train.items[np.sort(order[:n_items])])
    fold_in, target = (events.reindex(events.users, items) for events in (split.fold_in, split.target))
    users = np.flatnonzero((np.diff(fold_in.matrix.indptr) > 0) & (np.diff(target.matrix.indptr) > 0))
    if not len(users):
        raise InvalidInput("users to search on among the most popular items", f"none with {n_items} items", "Keep more items")
    return Split(split.train.reindex(split.train.users, items), fold_in.take(users), target.take(users))


@dataclass(frozen=True)
class ExperimentData:
    """A named data set, filtered and split as in a paper.

    Parameters
    ----------
    name
        The data set as printed.
    split, options
        A name in `EXPERIMENT_SPLITS` with its keyword arguments, or "published" for published train and test files.
    source
        The name in `gr.datasets`, if it differs from `name`.
    min_value
        Keep events with at least this value, such as a rating.
    k_core
        Keep users and items with at least this many interactions, repeated until nothing changes.
    items_with, users_with
        Keep items with at least so many users, then users with at least so many items, once each.
    counts
        Users, items and interactions as printed, checked after filtering.
    validation
        The share of each user's items that is held out of a published training part for the search.
    retrain
        Whether the model to test is trained on the validation items too.
    search_items
        Search parameters on so many of the most popular items.
    exclude_self
        Users and items are the nodes of one graph: neither recommend nor expect links of a node to itself.
    missing
        Why the data cannot be obtained from anywhere; None if it can.
    """

    name: str
    split: str = "published"
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    min_value: float | None = None
    k_core: int = 0
    items_with: int = 0
    users_with: int = 0
    counts: tuple[int, ...] = ()
    validation: float = 0.1
    retrain: bool = True
    search_items: int | None = None
    exclude_self: bool = False
    missing: str | None = None

    def why_missing(self) -> str | None:
        """Return why the data is not on this machine and how to get it, or None if it is here."""
        if self.missing:
            return self.missing
        try:
            dataset, folder = datasets.find_dataset(self.source or self.name)
        except MissingFile as error:
            return str(error)
        if not any(folder.iterdir()):
            expected = f"the files of {self.name} in {folder}"
            return str(MissingFile(expected, "an empty folder", f"Get them from {dataset.address}"))
        return None

    def load_splits(self) -> SplitPair:
        """Load, filter and split the data."""
        pair = self._load_and_split()
        search, test = (split.without_self_links() if self.exclude_self else split for split in (pair.search, pair.test))
        return SplitPair(search if self.search_items is None else keep_popular_items(search, self.search_items), test)

    def _load_and_split(self) -> SplitPair:
        name = self.source or self.name
        if self.split == "published":
            test = splits.published(name)
            return SplitPair(splits.weak(test.train, validation=0, test=self.validation), test)
        events = datasets.load(name, min_value=self.min_value)
        for minimums in ((self.k_core, self.k_core), (0, self.items_with), (self.users_with, 0)):
            events = events.k_core(*minimums) if any(minimums) else events
        counts = (events.n_users, events.n_items, events.n_interactions)
        if self.counts and counts != self.counts:
            expected = "{:,} users, {:,} items and {:,} interactions, as printed, in {}".format(*self.counts, self.name)
            got = "{:,}, {:,} and {:,}".format(*counts)
            raise InvalidInput(expected, got, "Check the files, or the filters in the experiment")
        return make_split_pair(events, self.split, self.options, retrain=self.retrain)


@dataclass(frozen=True)
class EventsData(ExperimentData):
    """Interactions that are not a named data set. Without events, only rows of a journal can be shown."""

    events: Interactions | None = None

    def why_missing(self) -> None:
        return None

    def _load_and_split(self) -> SplitPair:
        assert self.events is not None
        return make_split_pair(self.events, self.split, self.options, retrain=self.retrain)


@dataclass(frozen=True)
class ModelEntry:
    """A model of a table.

    Parameters
    ----------
    name
        The model as printed.
    recipe
        The name of the model in this library. If left out, the model is not run and only its published figures are shown.
    search
        Parameter → values to try. If left out, the values the model declares.
    published
        Data set → figures in the order of the experiment's metrics.
    params
        Data set → values that replace those of `search` there.
    """

    name: str
    recipe: str | None = None
    search: Mapping[str, Any] | None = None
    published: Mapping[str, list[float]] = field(default_factory=dict)
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def model(self) -> type[Recipe]:
        """The recipe class."""
        model: type[Recipe] = MODELS.find(self.recipe or self.name)
        return model

    def covers(self, data: str) -> bool:
        """Whether the table has a cell for this model on a data set."""
        return not self.published or data in self.published

    def search_values(self, data: str) -> Mapping[str, Any] | None:
        """Return parameter → values to try on a data set; None for the values the model declares."""
        values = self.params.get(data)
        return self.search if values is None else {**(self.search or {}), **values}

    def search_space(self, data: str) -> Space:
        """Return the points to try on a data set."""
        return Space(self.model, self.search_values(data))


@dataclass(frozen=True)
class Curve:
    """The quality of one recipe by rank or by epoch.

    Parameters
    ----------
    data
        The name of a data set of the experiment.
    along
        "rank" or "epoch".
    recipe, params
        The model and its parameters.
    ranks
        The ranks to evaluate, if `along` is "rank".
    """

    data: str
    along: str
    recipe: str
    params: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (8, 16, 32, 64, 128, 256)

    def build_recipe(self) -> Recipe:
        """Return the recipe with its parameters."""
        recipe: Recipe = MODELS.find(self.recipe)(**self.params)
        return recipe


@dataclass(frozen=True)
class Experiment:
    """A table of models and data sets.

    Parameters
    ----------
    name, title
        The name of the file, and a line about it.
    metrics
        Metric as printed → its name in this library, or one of `COSTS`.
    choose
        The metric by which parameters are chosen.
    data, models, curves
        The data sets, the models, and curves by rank or epoch.
    claims
        What the paper says and what was measured here, in sentences.
    on
        "test", or "validation" where the published figures are from the validation split.
    """

    name: str
    title: str
    metrics: Mapping[str, str]
    choose: str = DEFAULT_METRICS[0]
    data: tuple[ExperimentData, ...] = ()
    models: tuple[ModelEntry, ...] = ()
    curves: tuple[Curve, ...] = ()
    claims: tuple[str, ...] = ()
    on: str = "test"

    def __post_init__(self) -> None:
        parse_metrics(self.evaluated_metrics)
        if not parse_metric(self.choose).per_user:
            raise InvalidInput("to choose by a metric with a value for each user", self.choose, "Name one, such as ndcg@20")
        if self.on not in ("test", "validation"):
            raise InvalidInput("figures on test or validation", repr(self.on), "Correct the file")

    @property
    def evaluated_metrics(self) -> list[str]:
        """The metrics of an evaluation: those of the table without costs, after the one that parameters are chosen by."""
        return list(dict.fromkeys([self.choose, *(metric for metric in self.metrics.values() if metric not in COSTS)]))

    def select(self, data: list[str], models: list[str]) -> Experiment:
        """Return the experiment with these data sets and models only, by their printed names. An empty list selects all."""
        for what, names, known in (("data set", data, self.data), ("model", models, self.models)):
            printed = [entry.name for entry in known]
            for name in names:
                if name not in printed:
                    raise UnknownId(f"a {what} of {self.name} ({', '.join(printed)})", repr(name), "Choose one of them")
        return replace(
            self,
            data=tuple(d for d in self.data if not data or d.name in data),
            models=tuple(m for m in self.models if not models or m.name in models),
            curves=tuple(c for c in self.curves if not models and (not data or c.data in data)),
        )

    @staticmethod
    def read(path: Path) -> Experiment:
        """Read an experiment file, with every check that needs no data."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MissingFile(f"an experiment at {path}", "no such file", "Check the path") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DamagedFile(f"TOML in {path}", str(error), "Correct it") from None
        try:
            return parse_experiment(path.stem, document)
        except (TypeError, AttributeError, KeyError) as error:
            raise DamagedFile(f"an experiment in {path}", str(error), "See the files in benchmarks/papers") from None


def parse_experiment(name: str, document: dict[str, Any]) -> Experiment:
    """Return the experiment in a parsed TOML document, and check that its parts fit together."""
    sections = {
        "data": tuple(parse_section(ExperimentData, {"name": key, **row}) for key, row in document.pop("data", {}).items()),
        "models": tuple(parse_section(ModelEntry, row) for row in document.pop("model", [])),
        "curves": tuple(parse_section(Curve, row) for row in document.pop("curve", [])),
    }
    experiment = parse_section(Experiment, {"name": name, **sections, **document})
    names = [data.name for data in experiment.data]
    for entry in experiment.models:
        for data_name, figures in entry.published.items():
            if data_name not in names or len(figures) != len(experiment.metrics):
                expected = f"{len(experiment.metrics)} figures of {entry.name} for a data set of the table"
                raise InvalidInput(expected, f"{data_name} = {figures}", "Correct the file")
        if entry.recipe is not None:
            for data_name in filter(entry.covers, names):
                entry.search_space(data_name)  # raises InvalidInput for parameters that the model does not have
    for curve in experiment.curves:
        _require_curve(curve, names)
    for data in experiment.data:
        _require_split(data)
    return experiment


def parse_section(cls: type[TomlSection], section: Mapping[str, Any]) -> TomlSection:
    """Build a dataclass from a table of a TOML file, whose keys must be its fields."""
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(set(section) - set(names))
    if unknown:
        raise InvalidInput(f"keys among {', '.join(names)}", unknown[0], "Correct the file")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in section.items()})


def _require_curve(curve: Curve, data_names: list[str]) -> None:
    recipe_class = CURVE_RECIPES.get(curve.along)
    if recipe_class is None or curve.data not in data_names or not isinstance(curve.build_recipe(), recipe_class):
        expected = "a curve along the ranks of a low-rank model or the epochs of a trained one, on a data set of the file"
        raise InvalidInput(expected, f"{curve.along} of {curve.recipe} on {curve.data}", "Correct it")


def _require_split(data: ExperimentData) -> None:
    known = {"published": set[str]()}
    known |= {name: set(inspect.signature(function).parameters) for name, (function, _) in EXPERIMENT_SPLITS.items()}
    if data.split not in known or set(data.options) - known[data.split]:
        expected = f"a split among {', '.join((*EXPERIMENT_SPLITS, 'published'))}, with its own options"
        raise InvalidInput(expected, f"{data.split} with {', '.join(data.options) or 'no options'}", "Correct it")


def papers(folder: Path | None = None) -> dict[str, Path]:
    """Return name → path of the experiment files in a folder; by default, the tables of the papers."""
    return {path.stem: path for path in sorted((folder or PAPERS_FOLDER).glob("*.toml"))}


def find_experiment(name: str, folder: Path | None = None) -> Experiment:
    """Read an experiment by its name in a folder (by default, that of the papers), or by the path of its .toml file."""
    known = papers(folder)
    if name in known:
        return Experiment.read(known[name])
    if name.endswith(".toml"):
        return Experiment.read(Path(name))
    do = f"Pass --data {name}" if Path(name).exists() else "See `gramian benchmark`, or pass your own events as --data FILE"
    raise UnknownId(f"a table among {', '.join(known)}, or a path to a .toml file", repr(name), do)
