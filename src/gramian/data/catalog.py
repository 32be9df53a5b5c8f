"""What is known of the items: ids, popularity, and titles, tags and features where the data has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.features import Features, align_features, merge_features
from gramian.data.ids import Index, as_id_list
from gramian.data.suggestions import find_close_texts, find_id_by_text, suggest_ids
from gramian.data.tags import parse_tags
from gramian.errors import InvalidInput, NotSupported, UnknownId


@dataclass(frozen=True, eq=False)
class Catalog:
    """The items of a data set or model, one per column.

    Parameters
    ----------
    ids
        Item ids in column order.
    popularity
        How many users touched each item; zeros if left out.
    titles, tags
        One title, and one tuple of tags such as genres, for each item; None where the data has none.
    features
        Features of each item, in the order of the ids; None where the data has none.
    """

    ids: Index
    popularity: np.ndarray = None  # type: ignore[assignment]
    titles: Sequence[str] | None = None
    tags: Sequence[tuple[str, ...]] | None = None
    features: Features | None = None

    def __post_init__(self) -> None:
        if self.popularity is None:
            object.__setattr__(self, "popularity", np.zeros(len(self.ids), np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        known = [name for name in ("titles", "tags", "features") if getattr(self, name) is not None]
        return f"Catalog({len(self):,} items{''.join(f', {name}' for name in known)})"

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.ids)

    def column(self, item: Any) -> int:
        """Return the column of an item, or raise `UnknownId`."""
        column = int(self.ids.positions([item])[0])
        if column < 0:
            titled = self.columns_by_title.get(item.casefold(), []) if isinstance(item, str) else []
            do = f"Pass the id {self._format_ids(titled)}" if titled else suggest_ids(item, self.ids, "See model.items")
            raise UnknownId("an item the model was fitted on", repr(item), do)
        return column

    def find_item(self, name: Any) -> Any:
        """Return the id of an item from its id, its id as text, or its title, in upper or lower case.

        Parameters
        ----------
        name
            An id or a title. Where both fit, it is an id.

        Raises
        ------
        UnknownId
            If it is neither; the message has close titles or ids.
        InvalidInput
            If several items have the title; the message has their ids.
        """
        item = self._find_item(name)
        if item is None:
            close = find_close_texts(name, self.titles or ()) if isinstance(name, str) else []
            shown = [f"{text} [{self._format_ids(self.columns_by_title[text.casefold()])}]" for text in close]
            do = f"Close: {'; '.join(shown)}" if shown else suggest_ids(name, self.ids, "See model.items")
            raise UnknownId("an item's id or title" if self.titles else "an item's id", repr(name), do)
        return item

    def find_items(self, names: Iterable[Any]) -> list[Any]:
        """Return the ids of items named as in `find_item`. A name that is unknown stays as it is, so that a model ignores it
        and returns it in `.unknown`."""
        items = [(name, self._find_item(name)) for name in names]
        return [name if item is None else item for name, item in items]

    def _find_item(self, name: Any) -> Any:
        """Return an id, or None if the name is neither an id nor a title."""
        if self.ids.positions([name])[0] >= 0:
            return name
        by_text = find_id_by_text(str(name), self.ids)
        if by_text is not None:
            return by_text
        columns = self.columns_by_title.get(name.casefold(), []) if isinstance(name, str) else []
        columns = [column for column in columns if self.titles and self.titles[column] == name] or columns
        if len(columns) > 1:
            got = f"{name!r}, the title of {len(columns)} items: {self._format_ids(columns)}"
            raise InvalidInput("a title that one item has", got, "Pass one of these ids")
        return self.ids[np.array(columns)][0] if columns else None

    def _format_ids(self, columns: list[int]) -> str:
        return ", ".join(map(repr, self.ids[np.array(columns)]))

    @cached_property
    def columns_by_title(self) -> dict[str, list[int]]:
        """The columns that have each title, which is in lower case."""
        columns: dict[str, list[int]] = {}
        for column, title in enumerate(self.titles or ()):
            columns.setdefault(title.casefold(), []).append(column)
        return columns

    def titles_of(self, columns: Iterable[int]) -> list[str] | None:
        """Return the titles of some columns; None where the catalog has no titles."""
        return None if self.titles is None else [self.titles[column] for column in columns]

    def title_of(self, column: int) -> str:
        """Return the title of a column, or its id where the catalog has no titles."""
        return str(self.ids[slice(column, column + 1)][0]) if self.titles is None else self.titles[column]

    @cached_property
    def columns_by_tag(self) -> dict[str, list[int]]:
        """The columns that have each tag."""
        columns: dict[str, list[int]] = {}
        for column, tags in enumerate(self.tags or ()):
            for tag in tags:
                columns.setdefault(tag, []).append(column)
        return columns

    @cached_property
    def tag_names(self) -> list[str]:
        """The tags that items have, sorted: the columns of `tag_shares`."""
        return sorted(self.columns_by_tag)

    @cached_property
    def tag_shares(self) -> sp.csr_array:
        """Items × tags: each item's tags with equal shares that sum to 1; an empty row for an item without tags.

        Raises `NotSupported` if the catalog has no tags at all.
        """
        if not self.columns_by_tag:
            do = "Read them with the events, gr.read(..., tags=...), or add them: events.with_tags(...)"
            raise NotSupported("items with tags", "a catalog without", do)
        columns = {tag: column for column, tag in enumerate(self.tag_names)}
        tags = self.tags or ()
        sizes = np.array([len(item_tags) for item_tags in tags], np.int64)
        indices = [column for item_tags in tags for column in sorted(columns[tag] for tag in item_tags)]
        arrays = np.repeat(1 / np.maximum(sizes, 1), sizes), np.array(indices, np.int32), np.append(0, np.cumsum(sizes))
        return sp.csr_array(arrays, (len(self), len(columns)))

    def has_tag(self, tags: Iterable[str]) -> np.ndarray:
        """Return a mask of the items that have at least one of these tags."""
        mask = np.zeros(len(self), np.bool_)
        for tag in tags:
            mask[self.columns_by_tag.get(tag, [])] = True
        return mask

    def allowed(
        self,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        allow_tags: Iterable[str] | None = None,
        deny_tags: Iterable[str] = (),
    ) -> np.ndarray | None:
        """Return a mask of the items that may be recommended; None if all may. Unknown ids and tags are ignored."""
        if allow is None and deny is None and allow_tags is None and not deny_tags:
            return None
        mask = np.full(len(self), allow is None)
        mask[self._known_columns("items to allow", allow)] = True
        if allow_tags is not None:
            mask &= self.has_tag(as_id_list("tags to allow", allow_tags))
        mask &= ~self.has_tag(as_id_list("tags to deny", deny_tags))
        mask[self._known_columns("items to deny", deny)] = False
        return mask

    def _known_columns(self, name: str, ids: Iterable[Any] | None) -> np.ndarray:
        positions = self.ids.positions(as_id_list(name, () if ids is None else ids))
        return positions[positions >= 0]

    def with_popularity(self, popularity: np.ndarray) -> Catalog:
        """Return the same items with another popularity."""
        return replace(self, popularity=popularity)

    def with_titles(self, titles: Mapping[Any, str]) -> Catalog:
        """Return the same items with titles from a mapping; an item without a title is shown by its id."""
        if not isinstance(titles, Mapping):
            raise InvalidInput("titles as a mapping from item id to title", type(titles).__name__, "Pass {id: title}")
        pairs = [(item, titles.get(item)) for item in self.ids.tolist()]
        return replace(self, titles=[str(item if title is None else title) for item, title in pairs])

    def with_tags(self, tags: Mapping[Any, str | Iterable[str] | None], separator: str = "|") -> Catalog:
        """Return the same items with tags from a mapping: lists, or text such as "Comedy|Romance" with a separator between."""
        if not isinstance(tags, Mapping):
            raise InvalidInput("tags as a mapping from item id to tags", type(tags).__name__, "Pass {id: [tag, ...]}")
        return replace(self, tags=[parse_tags(tags.get(item), separator) for item in self.ids.tolist()])

    def with_features(self, features: Features) -> Catalog:
        """Return the same items with features, which every item must have and no other item may have."""
        return replace(self, features=align_features(features, self.ids))

    def described_by(self, *others: Catalog) -> Catalog:
        """Return the same items with what other catalogs know of them: titles, tags and features. The last one wins.

        Features are kept only if they are known for every item, and encoded in the same way.
        """
        titles = [zip(other.ids.tolist(), other.titles, strict=True) for other in others if other.titles is not None]
        tags = [zip(other.ids.tolist(), other.tags, strict=True) for other in others if other.tags is not None]
        titled = self.with_titles(dict(chain(*titles))) if titles else self
        tagged = titled.with_tags(dict(chain(*tags))) if tags else titled
        features = merge_features([other.features for other in others if other.features is not None], self.ids)
        return tagged if features is None else replace(tagged, features=features)

    def take(self, columns: np.ndarray) -> Catalog:
        """Return the items at these columns."""
        titles, tags = (
            None if values is None else [values[column] for column in columns] for values in (self.titles, self.tags)
        )
        ids = self.ids.take(columns)
        features = None if self.features is None else self.features.take(ids.tolist())
        return Catalog(ids, self.popularity[columns], titles, tags, features)

    def append(self, features: Features, titles: Mapping[Any, str] | None = None) -> Catalog:
        """Return these items followed by new ones, which nobody has touched and which have features.

        Parameters
        ----------
        features
            The features of the new items, encoded as those of this catalog.
        titles
            Their titles, as {id: title}.
        """
        assert self.features is not None
        added = Catalog(features.items).with_titles({} if titles is None else titles)
        return Catalog(
            self.ids.union(features.items),
            np.concatenate([self.popularity, added.popularity]),
            None if self.titles is None else [*self.titles, *(added.titles or ())],
            None if self.tags is None else [*self.tags, *((),) * len(added)],
            self.features.join(features),
        )
