"""An experiment: the data sets, models and metrics of a published table, with the published figures. It is a TOML file:

title = "EASE under weak generalization"
metrics = {"Recall@20" = "recall@20", "NDCG@20" = "ndcg@20"}    # as printed → the metric's name in this library
choose = "ndcg@20"                                              # parameters are chosen by it, on the validation split
on = "test"                                                     # or "validation", where the published figures are from there
also = ["coverage@20"]                                          # measured too, for other tables that show the same fits

[data.gowalla]
split = "published"                                             # or strong, weak, leave-last with their `options`
search_items = 20_000                                           # parameters are searched on the most popular items only
search_users = 5_000                                            # and on a sample of the validation users
share_inverses = true                                           # autoencoders: fit those with the same inverse together

[[model]]
name = "EASE"                                                   # as printed
recipe = "EASE"                                                 # if left out, the published figures are shown but not measured
search = {l2 = [10, 100]}                                       # the values to try of each parameter, on the validation split
params = {gowalla = {l2 = 50}}                                  # values that replace those of `search` on one data set
published = {gowalla = [0.1765, 0.1467]}                        # in the order of the metrics; nan where none was printed
as_published = {gowalla = {l2 = [10, 80]}}                      # a grid whose best point on test is shown beside ours

[[model]]
name = "DEQL"
recipe = "DEQL"
search = {from_paper = {a = 1, b = [0.5, 2], p = 0.5, lam = [10, 20]}}    # in the paper's units, for `DEQL.from_paper`

[[curve]]                                                       # the quality of one recipe by rank or by epoch
data = "gowalla"
along = "epoch"
recipe = "IALS"
params = {rank = 64}
seeds = 3                                                       # mean and deviation over so many seeds
patience = 4                                                    # stop after so many epochs without improvement

[[curve]]                                                       # or along any parameter of a recipe, its loss or another part
data = "gowalla"
along = "temperature"
values = [0.1, 0.2, 0.4]
recipe = "FactorModel"
params = {loss = "mineplus(weight=1.1)"}

[[curve]]
data = "gowalla"
along = "rank"
recipe = "LRR"
search = {l2 = [100, 1000]}                                     # tuned at every rank on the validation split, then tested
ranks = [64, 256]

[[claim]]
says = "What the paper says."
verdict = "holds"                                               # or "does not hold", "cannot be tested here"
evidence = "EASE reaches {gowalla: EASE, ndcg@20}."             # figures are filled in from the journal

[[claim]]                                                       # or judged by the journal: a paired test on every data set
says = "DEQL outperforms EASE."
better = "DEQL"
than = "EASE"

A grid is a table of parameter → values, or a list of such tables. The other keys of a data set are the fields of
`ExperimentData`.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gramian.core.epochs import EpochRecipe
from gramian.core.params import Configurable
from gramian.core.recipe import Recipe
from gramian.core.registry import MODELS
from gramian.data import datasets
from gramian.data import split as splits
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import DamagedFile, InvalidInput, MissingFile, UnknownId
from gramian.evaluation.metrics import DEFAULT_METRICS, parse_metric, parse_metrics
from gramian.models.shrinkage import LRR, VLAE
from gramian.models.spectral import SpectralRecipe
from gramian.tuning.factor_weights import search_factor_weights
from gramian.tuning.space import Space
from gramian.validation import is_number

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
PAPER_UNITS = "from_paper"  # the key of a grid, and the method of a recipe class, that take a paper's own parameters
REFINEMENTS: dict[str, Callable[[LRR, Split, str], Recipe]] = {
    "one l2 per factor": search_factor_weights,
    "one l2 per factor, sorted": lambda recipe, split, metric: VLAE.from_lrr(
        search_factor_weights(recipe, split, metric), split.train
    ),
}
VERDICTS = ("holds", "does not hold", "cannot be tested here")

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def list_grid(model: type[Recipe], grid: Grid | None) -> list[Recipe]:
    """Return the recipes of a grid.

    Parameters
    ----------
    model
        The recipe class.
    grid
        Parameter → values, or {"from_paper": the paper's parameter → values}, or a list of these; None for the values that
        the model declares.
    """
    if isinstance(grid, Sequence):
        return [recipe for subgrid in grid for recipe in list_grid(model, subgrid)]
    if grid is None or PAPER_UNITS not in grid:
        return Space(model, grid).grid()
    convert, names = getattr(model, PAPER_UNITS, None), list(grid[PAPER_UNITS])
    known = [] if convert is None else list(inspect.signature(convert).parameters)
    if len(grid) > 1 or not set(names) <= set(known):
        expected = (
            f"parameters of {model.__name__}.{PAPER_UNITS} ({', '.join(known) or 'which it does not have'}), and no others"
        )
        raise InvalidInput(expected, ", ".join([*names, *(key for key in grid if key != PAPER_UNITS)]), "Correct the grid")
    values = [value if isinstance(value, list | tuple) else [value] for value in grid[PAPER_UNITS].values()]
    return [convert(**dict(zip(names, point, strict=True))) for point in product(*values)]  # type: ignore[misc]


def format_figure(value: float | None, metric: str) -> str:
    """Format a metric with four decimals, a cost with three digits; empty if there is none."""
    if value is None:
        return ""
    return f"{value:.3g}" if metric in COSTS else f"{value:.4f}"


def format_p_value(p_value: float) -> str:
    """Format a p-value with two digits; very small ones as a bound."""
    return "< 0.0001" if p_value < 1e-4 else f"{p_value:.2g}"


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


def sample_users(split: Split, n_users: int) -> Split:
    """Return a split with a fixed random sample of its test users, for a quick search."""
    users = np.sort(np.random.default_rng(0).permutation(split.target.n_users)[:n_users])
    return replace(split, fold_in=split.fold_in.take(users), target=split.target.take(users))


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
        The share of each user's items that is held out of a published training part for the search, if no validation part was
        published.
    retrain
        Whether the model to test is trained on the validation items too.
    search_items, search_users
        Search parameters on so many of the most popular items, and on a sample of so many validation users.
    share_inverses
        Fit and test full-rank autoencoders with the same inverse together, for large catalogs, where an inverse takes minutes.
        Their fits have the time of that inverse, and no memory of their own. Where the search has the training part of the
        test, as in a strong split, the inverses of the search are used.
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
    search_users: int | None = None
    share_inverses: bool = False
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
        search = search if self.search_items is None else keep_popular_items(search, self.search_items)
        return SplitPair(search if self.search_users is None else sample_users(search, self.search_users), test)

    def _load_and_split(self) -> SplitPair:
        name = self.source or self.name
        if self.split == "published":
            test = splits.published(name)
            search = test.validation or splits.weak(test.train, validation=0, test=self.validation)
            return SplitPair(search, test)
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
        The grid to try on the validation split. If left out, the values the model declares.
    published
        Data set → figures in the order of the experiment's metrics.
    params
        Data set → values that replace those of `search` there, or a list of such replacements, whose grids are all tried.
    as_published
        Data set → a grid that is evaluated on the test split too. Its best point is shown beside ours, for comparison with
        figures that their authors selected on test.
    refine
        A name in `REFINEMENTS`: what is done with the best recipe of the search.
    """

    name: str
    recipe: str | None = None
    search: Grid | None = None
    published: Mapping[str, list[float]] = field(default_factory=dict)
    params: Mapping[str, Grid] = field(default_factory=dict)
    as_published: Mapping[str, Grid] = field(default_factory=dict)
    refine: str | None = None

    @property
    def model(self) -> type[Recipe]:
        """The recipe class."""
        model: type[Recipe] = MODELS.find(self.recipe or self.name)
        return model

    def covers(self, data: str) -> bool:
        """Whether the table has a cell for this model on a data set."""
        return not self.published or data in self.published

    def search_grid(self, data: str) -> Grid | None:
        """Return the grid to try on a data set; None for the values the model declares."""
        values, search = self.params.get(data), self.search
        if values is None or not isinstance(search, Mapping) or PAPER_UNITS in search:
            return search if values is None else values
        return {**search, **values} if isinstance(values, Mapping) else [{**search, **subgrid} for subgrid in values]

    def search_points(self, data: str) -> list[Recipe]:
        """Return the recipes to try on a data set."""
        return list_grid(self.model, self.search_grid(data))

    def test_points(self, data: str) -> list[Recipe]:
        """Return the recipes that are evaluated on the test split to compare with published figures; often none."""
        return list_grid(self.model, self.as_published[data]) if data in self.as_published else []


@dataclass(frozen=True)
class Curve:
    """The quality of one recipe by rank, by epoch, or along another of its parameters.

    Parameters
    ----------
    data
        The name of a data set of the experiment.
    along
        "rank", "epoch", or the name of a parameter of the recipe or of one of its parts, such as the loss.
    recipe, params
        The model and its parameters.
    ranks
        The ranks to evaluate, if `along` is "rank".
    values
        The values to evaluate of any other parameter.
    seeds
        How many seeds to train with, from 0; a point is then their mean, with its standard deviation.
    patience
        The number of epochs without improvement on the validation split after which a training stops. A point along a parameter
        is then the best epoch. If left out, every training runs to its last epoch.
    search
        Parameter → values to try at every rank on the validation split, beside those in `params`. The best point of each rank
        is tested. If left out, nothing is tuned and the curve is one of the validation split.
    name
        The name in the legend; by default the model's.
    """

    data: str
    along: str
    recipe: str
    params: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    search: Mapping[str, Any] | None = None
    name: str | None = None
    values: tuple[Any, ...] = ()
    seeds: int = 1
    patience: int | None = None

    @property
    def axis(self) -> Any:
        """What tells curves of the same recipe apart, in the key of a journal."""
        if self.along == "rank" and not self.values:
            return [*self.ranks, *([dict(self.search)] if self.search is not None else [])]
        if self.along == "epoch" and self.seeds == 1 and self.patience is None:
            return "epochs"
        return [self.along, *self.values, self.seeds, self.patience]

    def points(self, recipe: Recipe) -> list[Recipe]:
        """Return the recipe with each of the values."""
        return [replace_param(recipe, self.along, value) for value in self.values]

    def build_recipe(self) -> Recipe:
        """Return the recipe with its parameters."""
        recipe: Recipe = MODELS.find(self.recipe)(**self.params)
        return recipe

    def search_points(self, rank: int) -> list[Recipe]:
        """Return the recipes to try at a rank."""
        defaults = {name: [value] for name, value in self.build_recipe().params.items()}
        return list_grid(MODELS.find(self.recipe), defaults | dict(self.search or {}) | {"rank": [rank]})


@dataclass(frozen=True)
class Claim:
    """What a paper says, and whether it holds here: by a verdict with its evidence, or by a comparison of two models.

    Parameters
    ----------
    says
        What the paper says.
    verdict, evidence
        One of `VERDICTS`, and why. Figures in the evidence are filled in from the journal: {data: model, metric}.
    better, than
        In place of a verdict: two models of the table. The claim holds if the first is significantly better on every data set
        on which both were measured.
    """

    says: str
    verdict: str | None = None
    evidence: str = ""
    better: str | None = None
    than: str | None = None

    @property
    def pair(self) -> tuple[str, str] | None:
        """The models to compare; None for a claim with a verdict."""
        return None if self.better is None or self.than is None else (self.better, self.than)


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
        What the paper says, and whether it holds here.
    on
        "test", or "validation" where the published figures are from the validation split.
    also
        Further metrics of the fits, for other tables that show the same fits.
    """

    name: str
    title: str
    metrics: Mapping[str, str]
    choose: str = DEFAULT_METRICS[0]
    data: tuple[ExperimentData, ...] = ()
    models: tuple[ModelEntry, ...] = ()
    curves: tuple[Curve, ...] = ()
    claims: tuple[Claim, ...] = ()
    on: str = "test"
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_metrics([*self.evaluated_metrics, *self.also])
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
        for noun, names, known in (("data set", data, self.data), ("model", models, self.models)):
            printed = [entry.name for entry in known]
            for name in names:
                if name not in printed:
                    raise UnknownId(f"a {noun} of {self.name} ({', '.join(printed)})", repr(name), "Choose one of them")
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
        "claims": tuple(parse_section(Claim, row) for row in document.pop("claim", [])),
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
                entry.search_points(data_name)  # raises InvalidInput for parameters that the model does not have
        _require_entry(experiment, entry)
    for claim in experiment.claims:
        _require_claim(claim, [entry.name for entry in experiment.models])
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


def _require_entry(experiment: Experiment, entry: ModelEntry) -> None:
    names = [data.name for data in experiment.data]
    for data_name in entry.as_published:
        if data_name not in names or experiment.on != "test" or entry.recipe is None:
            expected = "as_published for a model that is run and a data set of the file, in a table of test figures"
            raise InvalidInput(expected, f"{entry.name} on {data_name}", "Correct the file")
        entry.test_points(data_name)
    if entry.refine is not None and (entry.refine not in REFINEMENTS or entry.recipe != "LRR"):
        expected = f"a refinement of LRR among {', '.join(REFINEMENTS)}"
        raise InvalidInput(expected, f"{entry.refine} of {entry.recipe}", "Correct the file")


def _require_claim(claim: Claim, models: list[str]) -> None:
    if (claim.verdict is None) == (claim.pair is None) or claim.verdict not in (None, *VERDICTS):
        expected = f"a claim with a verdict ({', '.join(VERDICTS)}), or with two models: better and than"
        raise InvalidInput(expected, claim.says, "Correct the file")
    if claim.pair is not None and not set(claim.pair) <= set(models):
        raise InvalidInput(f"two models of the table ({', '.join(models)})", " and ".join(claim.pair), "Correct the file")


def replace_param(recipe: Recipe, name: str, value: Any) -> Recipe:
    """Return the recipe with another value of a parameter, which may be one of its parts': of a loss, or of its debiasing."""
    replaced = _replace_param(recipe, name, value)
    if replaced is None:
        raise InvalidInput(f"a parameter of {recipe} or of its parts", repr(name), "Correct its name")
    assert isinstance(replaced, Recipe)
    return replaced


def _replace_param(configurable: Configurable, name: str, value: Any) -> Configurable | None:
    if name in configurable.params:
        return replace(configurable, **{name: value})  # type: ignore[type-var]
    for key, part in configurable.params.items():
        inner = _replace_param(part, name, value) if isinstance(part, Configurable) else None
        if inner is not None:
            return replace(configurable, **{key: inner})  # type: ignore[type-var]
    return None


def _require_curve(curve: Curve, data_names: list[str]) -> None:
    recipe, recipe_class = curve.build_recipe(), CURVE_RECIPES.get(curve.along)
    if curve.seeds < 1 or (curve.patience is not None and curve.patience < 1):
        raise InvalidInput("at least one seed and a patience of at least 1", f"{curve.seeds}, {curve.patience}", "Correct it")
    if curve.seeds > 1:
        replace_param(recipe, "seed", 0)
    is_plain = curve.search is None and curve.along != "epoch" and all(is_number(value) for value in curve.values)
    if curve.values and curve.data in data_names and is_plain:
        curve.points(recipe)  # raises InvalidInput for values that the parameter cannot have
        return
    is_tuned = curve.search is not None
    has_axis = "rank" in recipe.params if is_tuned else isinstance(recipe, recipe_class or Recipe)
    if recipe_class is None or curve.data not in data_names or not has_axis or (is_tuned and curve.along != "rank"):
        expected = "a curve along the ranks of a low-rank model, the epochs of a trained one or the `values` of another "
        expected += "parameter, on a data set of the file"
        raise InvalidInput(expected, f"{curve.along} of {curve.recipe} on {curve.data}", "Correct it")
    if is_tuned:
        curve.search_points(curve.ranks[0])


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
