"""Options that several commands share: where events come from, how they are split, titles of items, threads, JSON."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from gramian.cli.render import note
from gramian.core.registry import RERANKERS
from gramian.data import datasets
from gramian.data import split as splits
from gramian.data.catalog import Catalog
from gramian.data.interactions import Interactions
from gramian.data.profile import Finding, Profile, describe, profile_values
from gramian.data.read import read, read_items
from gramian.data.sources import STANDARD_INPUT, find_event_files, is_address
from gramian.data.weights import WEIGHTINGS
from gramian.errors import InvalidInput, MissingFile

SPLITS: dict[str, Callable[[Interactions, int], splits.Split]] = {
    "strong": lambda events, seed: splits.strong(events, seed=seed),
    "weak": lambda events, seed: splits.weak(events, seed=seed),
    "leave-last": lambda events, seed: splits.leave_last(events),
    "temporal": lambda events, seed: splits.temporal(events),
}
PUBLISHED, LEAVE_ONE_OUT = "published", "leave-one-user-out"  # accepted by some commands in place of a split

DataArgument = Annotated[
    str,
    typer.Argument(
        help="A file, glob, folder or address of events (csv, tsv, parquet, jsonl), - for standard input, "
        "the name of a data set, or, with --connection, an SQL query."
    ),
]
SavedModelFolder = Annotated[Path, typer.Argument(help="A model folder that `gramian fit` wrote.")]
UserColumn = Annotated[str | None, typer.Option("--user", help="Column of user ids.")]
ItemColumn = Annotated[str | None, typer.Option("--item", help="Column of item ids.")]
ValueColumn = Annotated[str | None, typer.Option("--value", help="Column of weights.")]
MinValue = Annotated[
    str | None,
    typer.Option("--min-value", help="Keep events with at least this value, as in rating=4; for a named data set, 4."),
]
TimeColumn = Annotated[str | None, typer.Option("--time", help="Column of times.")]
TimeFormat = Annotated[
    str | None, typer.Option("--time-format", help="How times are written, such as %d/%m/%Y; needed only for ambiguous dates.")
]
WeightChoice = Annotated[
    str | None,
    typer.Option(
        "--weight", help=f"{', '.join(WEIGHTINGS)}: how counts or values become weights. By default they are not changed."
    ),
]
KindColumnName = Annotated[str | None, typer.Option("--kind", help="Column of kinds of events, such as view and buy.")]
KindNames = Annotated[
    str | None,
    typer.Option("--kinds", help="Keep these kinds apart, the one to predict last: view,cart,buy (for MultiBehaviorEASE)."),
]
KindWeightsOption = Annotated[
    str | None, typer.Option("--weights", help="Add the kinds up with these weights: view=0.2,cart=0.5,buy=1.")
]
HalfLife = Annotated[
    str | None, typer.Option("--half-life", help="Time in which the weight of an interaction halves: 90d, 12h, 2w.")
]
Signed = Annotated[bool, typer.Option("--signed", help="Values below 0 are dislikes.")]
MaxDislike = Annotated[
    float | None, typer.Option("--max-dislike", help="With --min-value: events with at most this value are dislikes.")
]
SkipNulls = Annotated[bool, typer.Option("--skip-nulls", help="Drop rows without a user, item, value, time or kind.")]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Character between fields, or tab; detected where it is certain.")
]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Encoding of text files, such as latin-1.")]
ColumnNames = Annotated[
    str | None, typer.Option("--columns", help="Names of all columns of a file without a header: user,item,rating.")
]
TagSeparator = Annotated[str, typer.Option("--tag-separator", help="Text between two tags.")]
Connection = Annotated[
    str | None,
    typer.Option("--connection", help="Database of the SQL query: duckdb:///events.duckdb, postgresql://user@host/name, ..."),
]
KCore = Annotated[int, typer.Option(help="Keep users and items with at least this many interactions.")]
TitleColumn = Annotated[str | None, typer.Option("--title", help="Column of item titles.")]
TagsColumn = Annotated[str | None, typer.Option("--tags", help="Column of item tags, such as Comedy|Romance.")]
ItemTable = Annotated[
    Path | None,
    typer.Option("--titles", help="A table of items with their titles; --item, --title and --tags name its columns."),
]
SplitSeed = Annotated[int, typer.Option(help="Seed of the split.", min=0)]
Threads = Annotated[int | None, typer.Option("--threads", help="Number of threads; all cores by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ExcludeSelf = Annotated[
    bool, typer.Option("--exclude-self", help="Users and items are nodes of one graph: never recommend a node to itself.")
]
ListLength = Annotated[int, typer.Option("-k", help="Number of items.")]
RerankStages = Annotated[
    list[str] | None,
    typer.Option(
        help=f'Reorder the lists by a stage, such as "mmr(diversity=0.3)", of {", ".join(RERANKERS).lower()}; '
        "repeat for more, which apply in this order."
    ),
]
RerankDepth = Annotated[int, typer.Option("--depth", help="How many of the best items --rerank chooses from.")]


@dataclass(frozen=True)
class EventSource:
    """Where events come from, as the command line says it."""

    data: str  # None if it was left out, which only `gramian benchmark` allows
    user: str | None
    item: str | None
    value: str | None
    min_value: str | None
    time: str | None
    time_format: str | None
    weight: str | None
    kind: str | None
    kinds: str | None
    weights: str | None
    half_life: str | None
    max_dislike: float | None
    signed: bool
    skip_nulls: bool
    separator: str | None
    encoding: str | None
    columns: str | None
    tag_separator: str
    connection: str | None
    k_core: int

    @property
    def is_named_dataset(self) -> bool:
        """Whether the data is a named data set; a file of that name takes precedence."""
        return self.data in datasets.DATASETS and not Path(self.data).exists()

    @property
    def threshold(self) -> tuple[str, float] | None:
        """The column and the number of --min-value."""
        if not self.min_value:
            return None
        column, equals, least = self.min_value.rpartition("=")
        if not equals and not self.is_named_dataset:
            raise InvalidInput("--min-value column=number", self.min_value, "Pass rating=4, say")
        return column, parse_number(least)

    def read_events(self, title: str | None = None, tags: str | None = None, titles: Path | None = None) -> Interactions:
        """Read the events, with titles and tags from their own columns or from a table of items."""
        described: dict[str, Any] = {} if titles else {"title": title, "tags": tags}
        events = self._read_dataset(described) if self.is_named_dataset else self._read_source(described)
        note(str(events.read_summary))
        events = events.k_core(self.k_core) if self.k_core else events
        if not titles:
            return events
        return events.described_by(read_items(titles, self.item, title, tags, self.tag_separator, self.encoding))

    def refuse_local_options(self, context: str) -> None:
        """Raise an error for an option that only `gr.read` understands."""
        names = ["time_format", "weight", "skip_nulls", "separator", "encoding", "columns", "connection"]
        names += ["kind", "kinds", "weights", "half_life", "max_dislike", "signed"]
        refuse_options(context, {format_flag(name): getattr(self, name) for name in names})

    def _read_dataset(self, described: dict[str, Any]) -> Interactions:
        names = ["user", "item", "time", "time_format", "skip_nulls", "separator", "encoding", "columns"]
        names += ["kind", "kinds", "weights", "signed"]
        options = {name: getattr(self, name) for name in names} | described
        refuse_options("a named data set", {format_flag(name): value for name, value in options.items()})
        column, least = self.threshold or ("", None)
        known = datasets.DATASETS[self.data].value
        unknown = {self.value, column} - {None, "", known}
        if unknown:
            raise InvalidInput(f"values in {known!r} of {self.data}", repr(unknown.pop()), "Name that column")
        weighted, dislike = self.value is not None, self.max_dislike
        events = datasets.load(self.data, min_value=least, weights=weighted, weight=self.weight, max_dislike=dislike)
        return events if self.half_life is None else events.decayed(parse_half_life_text(self.half_life))

    def _read_source(self, described: dict[str, Any]) -> Interactions:
        return read(self.data, **(self._reading_options() | described))

    def _reading_options(self) -> dict[str, Any]:
        """Return the options of `gr.read`, after checking that the files exist."""
        if not self.connection and self.data != STANDARD_INPUT and not is_address(self.data):
            self._require_files()
        return {
            "user": self.user,
            "item": self.item,
            "value": self.value,
            "min_value": self.threshold,
            "time": self.time,
            "time_format": self.time_format,
            "weight": self.weight,
            "kind": self.kind,
            "kinds": self.kinds.split(",") if self.kinds else None,
            "weights": parse_weights(self.weights) if self.weights else None,
            "half_life": None if self.half_life is None else parse_half_life_text(self.half_life),
            "max_dislike": self.max_dislike,
            "signed": self.signed,
            "skip_nulls": self.skip_nulls,
            "tag_separator": self.tag_separator,
            "separator": "\t" if self.separator in ("tab", r"\t") else self.separator,
            "encoding": self.encoding,
            "columns": self.columns.split(",") if self.columns else None,
            "connection": self.connection,
        }

    def describe_events(
        self, keep_suspicious: bool, title: str | None = None, tags: str | None = None, titles: Path | None = None
    ) -> Profile:
        """Read and describe the events; columns without an option are guessed, and ratings are thresholded."""
        described: dict[str, Any] = {} if titles else {"title": title, "tags": tags}
        if self.is_named_dataset:
            profile = self._describe_dataset(described, keep_suspicious)
        else:
            profile = describe(self.data, keep_suspicious=keep_suspicious, **self._reading_options(), **described)
        events = profile.events
        if self.k_core:
            events = events.k_core(self.k_core)
            dropped = Finding(
                f"users and items with fewer than {self.k_core} interactions are dropped, as asked", f"Left: {events}"
            )
            profile = replace(profile, findings=(*profile.findings, dropped))
        if titles:
            events = events.described_by(read_items(titles, self.item, title, tags, self.tag_separator, self.encoding))
        return replace(profile, events=events)

    def _describe_dataset(self, described: dict[str, Any], keep_suspicious: bool) -> Profile:
        column = datasets.DATASETS[self.data].value
        if column is None or self.min_value or self.value:
            return describe(self._read_dataset(described), keep_suspicious=keep_suspicious)
        values, threshold = profile_values(pl.Series(column, datasets.load(self.data, weights=True).matrix.data))
        thresholded = self if threshold is None else replace(self, min_value=str(threshold))
        profile = describe(thresholded._read_dataset(described), keep_suspicious=keep_suspicious)
        return replace(profile, values=values)

    def _require_files(self) -> None:
        try:
            find_event_files(self.data, self.separator)
        except MissingFile:
            names = ", ".join(datasets.DATASETS)
            raise MissingFile(f"a file, glob or folder, or one of {names}", self.data, "Check the path or the name") from None

    def read_split(self, name: str, seed: int) -> splits.Split:
        """Read the events and split them, or read the split that a data set was published with."""
        if name == PUBLISHED:
            options = {"--min-value": self.min_value, "--value": self.value, "--k-core": self.k_core, "--seed": seed}
            refuse_options("--split published", options)
            return splits.published(self.data)
        return SPLITS[name](self.read_events(), seed)


def read_item_table(path: Path, item: str | None, title: str | None, tags: str | None) -> Catalog:
    """Read a table with one item per row: its id, its title, and its tags if a column of tags is named."""
    return read_items(path, item, title, tags)


DATA = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=DataArgument)


def add_source_options(command: Callable[..., None], data: inspect.Parameter = DATA) -> Callable[..., None]:
    """Give a command the options for reading events; it receives them as one argument, `source`."""
    columns = {"user": UserColumn, "item": ItemColumn, "value": ValueColumn, "min_value": MinValue, "time": TimeColumn}
    texts = {
        "time_format": TimeFormat,
        "weight": WeightChoice,
        "kind": KindColumnName,
        "kinds": KindNames,
        "weights": KindWeightsOption,
        "half_life": HalfLife,
        "max_dislike": MaxDislike,
        "separator": Separator,
        "encoding": Encoding,
        "columns": ColumnNames,
        "connection": Connection,
    }
    options = [keyword_option(name, annotation) for name, annotation in (columns | texts).items()]
    options.append(keyword_option("signed", Signed, False))
    options.append(keyword_option("skip_nulls", SkipNulls, False))
    options.append(keyword_option("tag_separator", TagSeparator, "|"))
    options.append(keyword_option("k_core", KCore, 0))
    return expand_argument(command, "source", [data, *options], lambda values: EventSource(**values))


def keyword_option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Return the declaration of an option."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def expand_argument(
    command: Callable[..., None], name: str, options: list[inspect.Parameter], combine: Callable[[dict[str, Any]], Any]
) -> Callable[..., None]:
    """Return a command that takes these options and passes `combine(options)` to the original as its argument `name`."""
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run_expanded(**values: Any) -> None:
        option_values = {option.name: values.pop(option.name) for option in options}
        command(**values, **{name: combine(option_values)})

    position = list(signature.parameters).index(name)
    others = [parameter for parameter in signature.parameters.values() if parameter.name != name]
    parameters = sorted([*others[:position], *options, *others[position:]], key=lambda parameter: parameter.kind)
    run_expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run_expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run_expanded


def refuse_options(context: str, options: dict[str, Any]) -> None:
    """Raise an error for an option that would be ignored in this context."""
    for name, value in options.items():
        if value:
            raise InvalidInput(f"no {name} with {context}", f"{name} {value}", "Leave it out")


def complete_split(incomplete: str) -> list[str]:
    """Return the splits that begin like this, for the shell."""
    return [name for name in SPLITS if name.startswith(incomplete)]


def require_split(name: str, *others: str) -> None:
    """Raise an error unless it is the name of a split, or one of the others that the command accepts."""
    if name not in (*SPLITS, *others):
        raise InvalidInput(f"a split among {', '.join((*SPLITS, *others))}", name, "Choose one of them")


def parse_number(text: str) -> float:
    """Parse a number, or raise `InvalidInput`."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInput("a number", repr(text), "Pass 4, say") from None


def parse_weights(text: str) -> dict[str, float]:
    """Parse weights of kinds, as in view=0.2,buy=1."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(kind and equals for kind, equals, _ in pairs):
        raise InvalidInput("--weights of kinds, each with a number", repr(text), "Pass view=0.2,buy=1, say")
    return {kind.strip(): parse_number(weight) for kind, _, weight in pairs}


def parse_half_life_text(text: str) -> str | float:
    """Return a half-life with a unit as it is, and a plain number, in the unit of the times, as a number."""
    try:
        return float(text)
    except ValueError:
        return text


def source_words(source: EventSource) -> list[str]:
    """Return a source of events as it is typed on the command line."""
    words = [source.data]
    for option in fields(source)[1:]:
        value, flag = getattr(source, option.name), format_flag(option.name)
        if value is True:
            words.append(flag)
        elif value and (option.name, value) != ("tag_separator", "|"):  # its default
            words += [flag, str(value)]
    return words


def format_flag(name: str) -> str:
    """Return a parameter's name as it is typed, as in --kept-weight."""
    return "--" + name.replace("_", "-")
