"""Items and users on the command line: by id or title, by tag, one at a time or from a file."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gramian.cli.options import expand_argument, keyword_option
from gramian.cli.render import note
from gramian.core.recommender import Recommender
from gramian.data.catalog import Catalog
from gramian.data.read import read
from gramian.data.suggestions import MAX_SUGGESTIONS, find_close_texts, find_id_by_text
from gramian.errors import InvalidInput, UnknownId

MAX_NAMED_ITEMS = 5  # unknown items of a file that a message names

RULE_OPTIONS = {
    "allow": Annotated[list[str] | None, typer.Option(help="Recommend only this item, by id or title; repeat for more.")],
    "deny": Annotated[list[str] | None, typer.Option(help="Do not recommend this item, by id or title; repeat for more.")],
    "allow_tag": Annotated[list[str] | None, typer.Option(help="Recommend only items with this tag; repeat for more.")],
    "deny_tag": Annotated[list[str] | None, typer.Option(help="Do not recommend items with this tag; repeat for more.")],
    "allow_file": Annotated[Path | None, typer.Option(help="Recommend only the items in this file: a line for each.")],
    "deny_file": Annotated[Path | None, typer.Option(help="Do not recommend the items in this file: a line for each.")],
}


@dataclass(frozen=True)
class ItemRules:
    """Which items may be recommended, as the command line says it."""

    allow: list[str] | None
    deny: list[str] | None
    allow_tag: list[str] | None
    deny_tag: list[str] | None
    allow_file: Path | None
    deny_file: Path | None

    def options(self, catalog: Catalog) -> dict[str, Any]:
        """Return the rules as arguments of `recommend_for`, with ids in place of names."""
        allowed, denied = (
            [*(catalog.find_item(text) for text in texts or ()), *([] if path is None else read_item_file(catalog, path))]
            for texts, path in ((self.allow, self.allow_file), (self.deny, self.deny_file))
        )
        for tag in (*(self.allow_tag or ()), *(self.deny_tag or ())):
            require_tag(catalog, tag)
        only = None if self.allow is None and self.allow_file is None else allowed
        return {"allow": only, "deny": denied or None, "allow_tags": self.allow_tag, "deny_tags": self.deny_tag or ()}

    def allowed_items(self, catalog: Catalog) -> list[Any] | None:
        """Return the ids of the items that may be recommended; None if all may."""
        mask = catalog.allowed(**self.options(catalog))
        return None if mask is None else catalog.ids[np.flatnonzero(mask)]


def add_rule_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options for what may be recommended; it receives them as one argument, `rules`."""
    options: list[inspect.Parameter] = [keyword_option(name, annotation) for name, annotation in RULE_OPTIONS.items()]
    return expand_argument(command, "rules", options, lambda values: ItemRules(**values))


def parse_user(model: Recommender, text: str) -> Any:
    """Return a user id in the type of the model's ids. The model itself refuses an id it does not know."""
    user = None if model.histories is None else find_id_by_text(text, model.histories.users)
    return text if user is None else user


def example_item(catalog: Catalog) -> Any:
    """Return the most popular item as it can be typed: by its title, or by its id if it has none or shares its title."""
    column = int(np.argmax(catalog.popularity))
    (item,), title = catalog.ids[np.array([column])], catalog.title_of(column)
    try:
        return title if catalog.find_item(title) == item else item
    except InvalidInput:
        return item


def suggest_items(catalog: Catalog, name: Any) -> list[str]:
    """Return titles, or else ids, that are close to an unknown name."""
    return find_close_texts(str(name), catalog.titles or list(map(str, catalog.ids.tolist())))


def require_tag(catalog: Catalog, tag: str) -> None:
    """Raise an error unless an item has the tag."""
    if catalog.tags is None:
        raise InvalidInput("a model of items with tags", "one without", "Fit it again with --tags")
    if tag not in catalog.columns_by_tag:
        close = difflib.get_close_matches(tag, catalog.columns_by_tag, n=MAX_SUGGESTIONS, cutoff=0.5)
        known = close or sorted(catalog.columns_by_tag)[:10]
        raise UnknownId("a tag of an item", repr(tag), f"{'Close' if close else 'Such as'}: {', '.join(known)}")


def read_item_file(catalog: Catalog, path: Path) -> list[Any]:
    """Read a file with an item on each line, by id or title. Unknown items are left out, and a note says so."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidInput(f"a text file in UTF-8 at {path}", "other bytes", "Write one item on each line") from None
    names = [line.strip() for line in lines if line.strip()]
    items = catalog.find_items(dict.fromkeys(names))
    unknown = [item for item, column in zip(items, catalog.ids.positions(items), strict=True) if column < 0]
    if unknown:
        few = ", ".join(unknown[:MAX_NAMED_ITEMS]) + (", ..." if len(unknown) > MAX_NAMED_ITEMS else "")
        note(f"{len(unknown):,} of {len(items):,} items in {path} are ignored, because the model does not know them: {few}")
    return items


def read_histories(catalog: Catalog, path: Path) -> tuple[list[Any], list[list[Any]]]:
    """Read the histories of new users from a table of events: their ids, and the items of each."""
    events = read(path)
    items = catalog.find_items(events.items.tolist())
    rows = np.split(events.matrix.indices, events.matrix.indptr[1:-1])
    return events.users.tolist(), [[items[column] for column in row] for row in rows]
