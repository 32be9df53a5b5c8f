"""An experiment: which data, split how, which models searched over what, beside which published figures. A TOML file says it.

title = "EASE and its like under weak generalization"
metrics = {"recall@20" = "recall@20", "ndcg@20" = "ndcg@20"}    # as printed → as here
choose = "ndcg@20"                                              # by which settings are chosen, on a validation part

[data.gowalla]
split = "published"
search_items = 20_000                                           # settings are searched on the most popular items

[[model]]
name = "EASE"                                                   # as printed
recipe = "EASE"                                                 # without one, the figures are shown but not reached for
search = {l2 = [10, 100]}
published = {gowalla = [0.1765, 0.1467]}                        # in the order of the metrics

[[curve]]                                                       # quality along the ranks or epochs of one model
data = "gowalla"
along = "epoch"
recipe = "IALS"
settings = {rank = 64}
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gramian.data import datasets
from gramian.data import split as splits
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.errors import DamagedFile, InvalidInput, MissingFile, UnknownId
from gramian.evaluation.evaluate import DEFAULT_METRICS, parsed_metrics
from gramian.evaluation.metrics import METRICS
from gramian.models import MODELS
from gramian.models.iterative import Iterative
from gramian.models.low_rank import Truncated
from gramian.models.recipe import Recipe
from gramian.sampled import MODELS as BY_GRADIENTS
from gramian.tuning.space import Space

T = TypeVar("T")
KINDS: dict[str, type[Recipe]] = {name.lower(): kind for name, kind in (MODELS | BY_GRADIENTS).items()}
COSTS = {"minutes", "GB", "rank"}  # figures that are not metrics: the cost of a fit, and the rank of what it found
CHECKOUT = Path(__file__).parents[3] / "benchmarks" / "papers"
PAPERS = CHECKOUT if CHECKOUT.is_dir() else Path(__file__).parent / "papers"  # a wheel has them beside this file


SPLITS: dict[str, tuple[Callable[..., Split], Any]] = {  # and what asks for no validation part
    "strong": (splits.strong, None),
    "weak": (splits.weak, 0),
    "leave-last": (splits.leave_last, False),
}


@dataclass(frozen=True)
class Parts:
    """Where settings are chosen, and where what was chosen is tested."""

    search: Split
    test: Split


def parts_of(events: Interactions, how: str, options: Mapping[str, Any], *, retrain: bool = True) -> Parts:
    """Cut events in two steps. A validation part that is cut from every user's items goes back into the last training part."""
    if how not in SPLITS:
        raise InvalidInput("a split with a validation part: strong, weak or leave-last", repr(how), "Choose one of them")
    split, without = SPLITS[how]
    parts = split(events, **options)
    put_back = retrain and how != "strong"
    return Parts(validation_of(parts, how), split(events, **{**options, "validation": without}) if put_back else parts)


def validation_of(parts: Split, how: str) -> Split:
    if parts.validation is None:
        raise InvalidInput("a split with a validation part", f"{how}, which has none", "Choose another split")
    return parts.validation


def most_popular(split: Split, n_items: int) -> Split:
    """The split with its most popular items only, where fits are quick."""
    order = np.argsort(-split.train.popularity, kind="stable")
    items = Index(split.train.items[np.sort(order[:n_items])])
    known = [part.reindex(part.users, items) for part in (split.fold_in, split.target)]
    users = np.flatnonzero(np.all([np.diff(part.matrix.indptr) > 0 for part in known], axis=0))
    if not len(users):
        raise InvalidInput("users to search on among the most popular items", f"none with {n_items} items", "Keep more items")
    fold_in, target = (part.take(users) for part in known)
    return Split(split.train.reindex(split.train.users, items), fold_in, target)


@dataclass(frozen=True)
class Data:
    """A data set, cleaned and split as a paper has it."""

    name: str  # as printed
    split: str = "published"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the split
    source: str | None = None  # its name in the registry, where that is another
    min_value: float | None = None
    k_core: int = 0  # keep users and items with at least so many interactions, again and again
    items_with: int = 0  # keep items with at least so many users, once
    users_with: int = 0  # and then users with at least so many items, once
    counts: tuple[int, ...] = ()  # of users, items and interactions, as printed, after that
    validation: float = 0.1  # of a published training part, to choose settings on
    retrain: bool = True  # whether a validation part cut from every user's items goes back into the training part for the test
    search_items: int | None = None
    exclude_self: bool = False
    missing: str | None = None  # why it cannot be had at all

    def absent(self) -> str | None:
        """Why it is not at hand, and what to do; None where it is."""
        if self.missing:
            return self.missing
        try:
            dataset, folder = datasets.find(self.source or self.name)
        except MissingFile as error:
            return str(error)
        if not any(folder.iterdir()):
            return str(
                MissingFile(f"the files of {self.name} in {folder}", "an empty folder", f"Get them from {dataset.address}")
            )
        return None

    def parts(self) -> Parts:
        return self.prepared(self.cut())

    def cut(self) -> Parts:
        name = self.source or self.name
        if self.split == "published":
            test = splits.published(name)
            return Parts(splits.weak(test.train, validation=0, test=self.validation), test)
        events = datasets.load(name, min_value=self.min_value)
        for least in ((self.k_core, self.k_core), (0, self.items_with), (self.users_with, 0)):
            events = events.k_core(*least) if any(least) else events
        found = (events.n_users, events.n_items, events.n_interactions)
        if self.counts and found != self.counts:
            wanted = "{:,} users, {:,} items and {:,} interactions, as printed, in {}".format(*self.counts, self.name)
            raise InvalidInput(
                wanted, "{:,}, {:,} and {:,}".format(*found), "Check the files, or the cleaning in the experiment"
            )
        return parts_of(events, self.split, self.options, retrain=self.retrain)

    def prepared(self, parts: Parts) -> Parts:
        """Without what the test does not ask for, and with a search that is quick."""
        search, test = (part.without_self_links() if self.exclude_self else part for part in (parts.search, parts.test))
        return Parts(search if self.search_items is None else most_popular(search, self.search_items), test)


@dataclass(frozen=True)
class Given(Data):
    """Events that are no named data set."""

    events: Interactions | None = None

    def absent(self) -> None:
        return None

    def parts(self) -> Parts:
        assert self.events is not None
        return self.prepared(parts_of(self.events, self.split, self.options))


@dataclass(frozen=True)
class Entry:
    """A model of a table: how it is printed, and what it is here."""

    name: str
    recipe: str | None = None
    search: Mapping[str, Any] | None = None
    published: Mapping[str, list[float]] = field(default_factory=dict)  # data → figures, in the order of the metrics
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # data → those that are not searched there

    @property
    def kind(self) -> type[Recipe]:
        return kind_of(self.recipe or self.name)

    def covers(self, data: str) -> bool:
        """Whether the table has a cell for it on a data set."""
        return not self.published or data in self.published

    def space(self, data: str) -> Mapping[str, Any] | None:
        """What is searched on a data set; None for the model's own lists."""
        own = self.settings.get(data)
        return self.search if own is None else {**(self.search or {}), **own}


@dataclass(frozen=True)
class Curve:
    """One model along its ranks or epochs."""

    data: str
    along: str
    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (8, 16, 32, 64, 128, 256)

    @property
    def made(self) -> Recipe:
        return kind_of(self.recipe)(**self.settings)


@dataclass(frozen=True)
class Experiment:
    """A table of models and data sets."""

    name: str
    title: str
    metrics: Mapping[str, str]  # as printed → as here
    choose: str = DEFAULT_METRICS[0]
    data: tuple[Data, ...] = ()
    models: tuple[Entry, ...] = ()
    curves: tuple[Curve, ...] = ()
    claims: tuple[str, ...] = ()  # what the paper says and what was found, in words
    on: str = "test"  # or validation, where the paper's figures are from there

    def __post_init__(self) -> None:
        name, _ = parsed_metrics(self.measured)[self.choose]
        if name not in METRICS:
            raise InvalidInput(
                f"to choose by a metric with a value for each user ({', '.join(METRICS)})", self.choose, "Name one"
            )
        if self.on not in ("test", "validation"):
            raise InvalidInput("figures on test or validation", repr(self.on), "Correct the file")

    @property
    def measured(self) -> list[str]:
        """The metrics that an evaluation gives, the one that chooses first."""
        return list(dict.fromkeys([self.choose, *(metric for metric in self.metrics.values() if metric not in COSTS)]))

    def only(self, data: list[str], models: list[str]) -> Experiment:
        """The same with these data sets and models only, by their printed names."""
        known = {"data set": [d.name for d in self.data], "model": [m.name for m in self.models]}
        for what, names in (("data set", data), ("model", models)):
            for name in names:
                if name not in known[what]:
                    raise UnknownId(f"a {what} of {self.name} ({', '.join(known[what])})", repr(name), "Choose one of them")
        return Experiment(
            self.name,
            self.title,
            self.metrics,
            self.choose,
            tuple(d for d in self.data if not data or d.name in data),
            tuple(m for m in self.models if not models or m.name in models),
            tuple(c for c in self.curves if not models and (not data or c.data in data)),
            self.claims,
            self.on,
        )

    @staticmethod
    def read(path: Path) -> Experiment:
        """An experiment from its file, after every check that needs no data."""
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MissingFile(f"an experiment at {path}", "no such file", "Check the path") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DamagedFile(f"TOML in {path}", str(error), "Correct it") from None
        try:
            return made(path.stem, given)
        except (TypeError, AttributeError, KeyError) as error:
            raise DamagedFile(f"an experiment in {path}", str(error), "See the others in benchmarks/papers") from None


def made(name: str, given: dict[str, Any]) -> Experiment:
    data = tuple(of(Data, {"name": own, **facts}) for own, facts in given.pop("data", {}).items())
    models = tuple(of(Entry, facts) for facts in given.pop("model", []))
    curves = tuple(of(Curve, facts) for facts in given.pop("curve", []))
    found: Experiment = of(Experiment, {"name": name, "data": data, "models": models, "curves": curves, **given})
    for entry in found.models:
        for where, figures in entry.published.items():
            if where not in {d.name for d in data} or len(figures) != len(found.metrics):
                wanted = f"{len(found.metrics)} figures of {entry.name} for a data set of the table"
                raise InvalidInput(wanted, f"{where} = {figures}", "Correct the file")
        for where in (d.name for d in data if entry.recipe is not None and entry.covers(d.name)):
            Space(entry.kind, entry.space(where))
    for curve in found.curves:
        able: type[Recipe] | None = {"rank": Truncated, "epoch": Iterative}.get(curve.along)
        if able is None or curve.data not in {d.name for d in data} or not isinstance(curve.made, able):
            what = "a curve along the ranks of a low-rank model or the epochs of a trained one, on a data set of the file"
            raise InvalidInput(what, f"{curve.along} of {curve.recipe} on {curve.data}", "Correct it")
    for own in data:
        known = inspect.signature(SPLITS[own.split][0]).parameters if own.split in SPLITS else {}
        if own.split not in (*SPLITS, "published") or set(own.options) - set(known):
            got = f"{own.split} with {', '.join(own.options) or 'no options'}"
            raise InvalidInput(f"a split among {', '.join((*SPLITS, 'published'))}, with its own options", got, "Correct it")
    return found


def of(kind: type[T], facts: Mapping[str, Any]) -> T:
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    foreign = sorted(set(facts) - set(known))
    if foreign:
        raise InvalidInput(f"keys among {', '.join(known)}", foreign[0], "Correct the file")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()})


def kind_of(name: str) -> type[Recipe]:
    if name.lower() not in KINDS:
        raise InvalidInput(f"a model among {', '.join(KINDS)}", repr(name), "Choose one of them")
    return KINDS[name.lower()]


def papers(folder: Path | None = None) -> dict[str, Path]:
    """The experiment files of a folder by name: those of the papers, unless another one is named."""
    return {path.stem: path for path in sorted((folder or PAPERS).glob("*.toml"))}


def find(name: str, folder: Path | None = None) -> Experiment:
    """An experiment by its name in the folder, or by its path."""
    known = papers(folder)
    if name in known:
        return Experiment.read(known[name])
    if name.endswith(".toml"):
        return Experiment.read(Path(name))
    do = f"Pass --data {name}" if Path(name).exists() else "See `gramian benchmark`, or pass your own events as --data FILE"
    raise UnknownId(f"a table among {', '.join(known)}, or a path to a .toml file", repr(name), do)
