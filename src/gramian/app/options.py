"""Options that commands share: where events come from, models with their settings, ids typed by hand, JSON."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from gramian.app.experiment import kind_of
from gramian.app.show import status
from gramian.app.trial import warm_up
from gramian.data import datasets as registry
from gramian.data import split as splits
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.data.read import files, read
from gramian.errors import InvalidInput, MissingFile, UnknownId
from gramian.models import MODELS
from gramian.models.iterative import Iterative
from gramian.models.low_rank import Truncated
from gramian.models.recipe import Part, Recipe
from gramian.recommender import Recommendations, Recommender
from gramian.sampled import MODELS as BY_GRADIENTS

EVERY = MODELS | BY_GRADIENTS
TRAINED = [name.lower() for name, recipe in EVERY.items() if issubclass(recipe, Iterative)]
RANKED = [name.lower() for name, recipe in EVERY.items() if issubclass(recipe, Truncated)]
SETTINGS = {f.name: f for recipe in MODELS.values() for f in fields(recipe)}
SETTINGS |= {f.name: f for recipe in BY_GRADIENTS.values() for f in fields(recipe) if f.name not in SETTINGS}
SPLITS: dict[str, Callable[[Interactions, int], splits.Split]] = {
    "strong": lambda events, seed: splits.strong(events, seed=seed),
    "weak": lambda events, seed: splits.weak(events, seed=seed),
    "leave-last": lambda events, seed: splits.leave_last(events),
    "temporal": lambda events, seed: splits.temporal(events),
}
LEAVE_ONE_OUT = "leave-one-user-out"
Data = Annotated[str, typer.Argument(help="A file, glob or folder of events (csv, tsv, parquet, jsonl), or a data set's name.")]
Saved = Annotated[Path, typer.Argument(help="A model folder that `gramian fit` wrote.")]
UserColumn = Annotated[str | None, typer.Option("--user", help="Column of user ids.")]
ItemColumn = Annotated[str | None, typer.Option("--item", help="Column of item ids.")]
ValueColumn = Annotated[str | None, typer.Option("--value", help="Column of weights to keep.")]
Threads = Annotated[int | None, typer.Option("--threads", help="How many threads to use; all cores by default.")]
MinValue = Annotated[
    str | None, typer.Option("--min-value", help="Keep events with at least this value, as in rating=4; for a named set, 4.")
]
TimeColumn = Annotated[str | None, typer.Option("--time", help="Column of times.")]
KCore = Annotated[int, typer.Option(help="Keep users and items with at least this many interactions.")]
TitleColumn = Annotated[str | None, typer.Option("--title", help="Column of item titles.")]
TagsColumn = Annotated[str | None, typer.Option("--tags", help="Column of item tags, such as Comedy|Romance.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ExcludeSelf = Annotated[
    bool, typer.Option("--exclude-self", help="Users and items are nodes of one graph: link nobody to themselves.")
]
K = Annotated[int, typer.Option("-k", help="How many items.")]


@dataclass(frozen=True)
class Source:
    """Where events come from, as told on the command line."""

    data: str  # None where a command can do without
    user: str | None
    item: str | None
    value: str | None
    min_value: str | None
    time: str | None
    k_core: int

    def events(self, title: str | None = None, tags: str | None = None) -> Interactions:
        found = events_of(self.data, self.user, self.item, self.value, self.min_value, self.time, title, tags)
        return found.k_core(self.k_core) if self.k_core else found

    def split(self, name: str, seed: int) -> splits.Split:
        if name == "published":
            given = {"--min-value": self.min_value, "--value": self.value, "--k-core": self.k_core, "--seed": seed}
            refuse("--split published", given)
            return splits.published(self.data)
        return SPLITS[name](self.events(), seed)


def unfolded(
    command: Callable[..., None], name: str, parameters: list[inspect.Parameter], fold: Callable[[dict[str, Any]], Any]
) -> Callable[..., None]:
    """A command with these parameters in place of its parameter `name`, which it gets made of them."""
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def unfolding(**given: Any) -> None:
        parts = {parameter.name: given.pop(parameter.name) for parameter in parameters}
        command(**given, **{name: fold(parts)})

    at = list(own.parameters).index(name)
    kept = [parameter for parameter in own.parameters.values() if parameter.name != name]
    every = sorted([*kept[:at], *parameters, *kept[at:]], key=lambda parameter: parameter.kind)
    unfolding.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    unfolding.__annotations__ = {p.name: p.annotation for p in every}
    return unfolding


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def recipe_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every recipe setting as an option, made from the recipes' fields; it gets them as `settings`.

    An option of its own, such as the seed of a split, goes before a setting of that name.
    """
    flags = []
    for name, f in ((n, f) for n, f in SETTINGS.items() if n not in inspect.signature(command).parameters):
        users = ", ".join(model for model, recipe in EVERY.items() if name in {g.name for g in fields(recipe)})
        kind = (str if isinstance(f.metadata["like"], Part) else type(f.metadata["like"])) | None
        option = typer.Option(help=f"{f.metadata['about']} ({users})", show_default=False, rich_help_panel="Recipe settings")
        flags.append(keyword(name, Annotated[kind, option]))
    return unfolded(command, "settings", flags, lambda given: {n: v for n, v in given.items() if v is not None})


DATA = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Data)


def source_flags(command: Callable[..., None], data: inspect.Parameter = DATA) -> Callable[..., None]:
    """Give a command the options for reading events; it gets them as `source`."""
    columns = {"user": UserColumn, "item": ItemColumn, "value": ValueColumn, "min_value": MinValue, "time": TimeColumn}
    flags = [data, *(keyword(name, annotation) for name, annotation in columns.items()), keyword("k_core", KCore, 0)]
    return unfolded(command, "source", flags, lambda given: Source(**given))


def recipes_of(names: list[str], settings: dict[str, Any]) -> list[Recipe]:
    """Recipes by name, each with those of the settings it has. A setting that none of them has is an error."""
    kinds = kinds_of(names)
    own = [{f.name for f in fields(kind)} for kind in kinds]
    foreign = sorted(set(settings) - set().union(*own))
    if foreign:
        takes = ", ".join(sorted(flag(n) for n in set().union(*own))) or "none"
        chosen = ", ".join(kind.__name__ for kind in kinds)
        raise InvalidInput(f"settings of {chosen} ({takes})", flag(foreign[0]), "Leave it out")
    return [kind(**{n: v for n, v in settings.items() if n in has}) for kind, has in zip(kinds, own, strict=True)]


def kinds_of(names: list[str]) -> list[type[Recipe]]:
    return [kind_of(name) for name in names]


def axis_of(text: str) -> tuple[str, Any]:
    """What to try of one setting: l2=10,100 is a list, l2=1:1000 a range; words are taken as they are."""
    name, equals, values = text.partition("=")
    if not (equals and name and values):
        raise InvalidInput("--space setting=values", text, "Pass l2=10,100,1000 or l2=1:1000, say")
    low, colon, high = values.partition(":")
    if colon:
        return name.replace("-", "_"), (number(low), number(high))
    known = SETTINGS.get(name.replace("-", "_"))
    if known is not None and isinstance(known.metadata["like"], Part):
        return name.replace("-", "_"), values.split(";")
    texts = (word for f in SETTINGS.values() for word in f.metadata["choices"] if isinstance(word, str))
    words = {"true": True, "false": False} | {word: word for word in texts}
    return name.replace("-", "_"), [words[v.lower()] if v.lower() in words else number(v) for v in values.split(",")]


def compiled(*recipes: Recipe) -> None:
    """Compile what these need before anything is measured."""
    with status("compiling kernels (the first run on a machine only)"):
        warm_up(*recipes)


def require_split(split: str, other: str) -> None:
    known = [name for name in (*SPLITS, other) if name]
    if split not in known:
        raise InvalidInput(f"a split among {', '.join(known)}", split, "Choose one of them")


def title_of(titles: Mapping[Any, str], item: Any) -> dict[str, str]:
    return {"title": titles[item]} if item in titles else {}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def option(name: str, value: Any) -> str:
    """A setting as it is typed."""
    if isinstance(value, bool):
        return flag(name) if value else flag("no_" + name)
    if isinstance(value, Part):
        return f"{flag(name)} {shlex.quote(str(value))}"
    return f"{flag(name)} {value:g}" if isinstance(value, float) and value == float(f"{value:g}") else f"{flag(name)} {value}"


def refuse(where: str, given: dict[str, Any]) -> None:
    """Options that would be ignored are an error."""
    for name, value in given.items():
        if value:
            raise InvalidInput(f"no {name} with {where}", f"{name} {value}", "Leave it out")


def events_of(
    data: str,
    user: str | None,
    item: str | None,
    value: str | None,
    min_value: str | None,
    time: str | None,
    title: str | None,
    tags: str | None,
) -> Interactions:
    """Events from files, or a named data set where no such file exists."""
    column, equals, least = (min_value or "").rpartition("=")
    if data in registry.DATASETS and not Path(data).exists():
        refuse("a named data set", {"--user": user, "--item": item, "--time": time, "--title": title, "--tags": tags})
        known = registry.DATASETS[data].value
        foreign = {value, column} - {None, "", known}
        if foreign:
            raise InvalidInput(f"values in {known!r} of {data}", repr(foreign.pop()), "Name that column")
        return registry.load(data, min_value=number(least) if min_value else None, weights=value is not None)
    if min_value and not equals:
        raise InvalidInput("--min-value column=number", min_value, "Pass rating=4, say")
    try:
        files(data)
    except MissingFile:
        names = ", ".join(registry.DATASETS)
        raise MissingFile(f"a file, glob or folder, or one of {names}", data, "Check the path or the name") from None
    threshold = (column, number(least)) if min_value else None
    return read(data, user=user, item=item, value=value, min_value=threshold, time=time, title=title, tags=tags)


def named_items(path: Path, item: str, title: str | None, tags: str | None) -> Interactions:
    """A table of items, with their titles and tags; every row is an event of the item with itself."""
    return read(path, user=item, item=item, title=title or "title", tags=tags)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput("a number", repr(text), "Pass 4, say") from None


def id_of(index: Index, text: str) -> Any:
    """An id typed on the command line, as the type the ids have."""
    if index.values.dtype.kind == "i":
        try:
            return int(text)
        except ValueError:
            return text
    return text


def item_of(model: Recommender, text: str) -> Any:
    """An item by id or, where the model has titles, by title."""
    item = id_of(model.events.items, text)
    titles = model.events.titles or []
    if model.events.items.positions([item])[0] >= 0:
        return item
    by_title = {title.casefold(): column for column, title in enumerate(titles)}
    if text.casefold() in by_title:
        return model.items[by_title[text.casefold()]]
    inside = [title for title in titles if text.casefold() in title.casefold()]
    close = (inside or difflib.get_close_matches(text, titles, n=3, cutoff=0.5))[:3]
    raise UnknownId("an item's id or title", repr(text), f"Close: {'; '.join(close)}" if close else "See the item table")


def listed(result: Recommendations, row: int) -> dict[str, Any]:
    """One list as JSON."""
    items = [
        {"item": item, **({"title": result.titles[row][rank]} if result.titles else {}), "score": result.scores[row][rank]}
        for rank, item in enumerate(result.items[row])
    ]
    found: dict[str, Any] = {"user": result.users[row]} if result.users is not None else {}
    if result.unknown is not None and result.fallback is not None:
        found |= {"unknown": result.unknown[row], "fallback": result.fallback[row]}
    return found | {"items": items}


def show_json(value: Any) -> None:
    print(json.dumps(without_nan(value), default=str, allow_nan=False))


def without_nan(value: Any) -> Any:
    """The same with None for NaN, which is no JSON."""
    if isinstance(value, Mapping):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and value != value else value
