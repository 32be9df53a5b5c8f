"""What a recommender returns: lists of items, and explanations of a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import polars as pl

from gramian.core.reranking import Move, RerankTrace
from gramian.data.frames import convert_frame, render_html
from gramian.data.tables import to_series

MAX_SHOWN_LISTS = 5  # in a notebook
MAX_SHOWN_CONTRIBUTIONS = 5  # in a repr
MAX_SHOWN_UNKNOWN = 5  # unknown items of one history, in a notebook


@dataclass(frozen=True, repr=False)
class Recommendations:
    """Lists of items, best first, one for each user or history.

    Parameters
    ----------
    items, scores
        The items of each list and their scores.
    users
        The users asked for, where they were asked for by id.
    unknown
        For each list the history items that the model does not know and ignored.
    fallback
        For each list whether nothing was known of the history, so that it shows the most popular items.
    titles
        The titles of the items, where the model has them.
    trace
        What re-ranking moved, where lists were re-ranked. `scores` are then still those of the model, and not in order.
    """

    items: list[list[Any]]
    scores: list[list[float]]
    users: list[Any] | None = None
    unknown: list[list[Any]] | None = None
    fallback: list[bool] | None = None
    titles: list[list[str]] | None = None
    trace: RerankTrace | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        lists = "1 list" if len(self) == 1 else f"{len(self):,} lists"
        return f"Recommendations({lists} of up to {max(map(len, self.items), default=0):,} items)"

    def moves(self, row: int = 0) -> list[Move]:
        """Return what re-ranking moved within a list, into it or out of it, stage by stage; nothing if it was not re-ranked.

        Parameters
        ----------
        row
            The number of the list.
        """
        return [] if self.trace is None else self.trace.moves(row)

    def from_ranks(self, row: int = 0) -> list[int]:
        """Return the rank, from 1, that the model itself gave to each item of a list.

        Parameters
        ----------
        row
            The number of the list.
        """
        return list(range(1, len(self.items[row]) + 1)) if self.trace is None else self.trace.from_ranks(row)

    def frame(self, library: str = "polars") -> Any:
        """Return one row per recommendation: user (or number of the history), rank, item, title where known, score.

        Lists that were re-ranked have the model's own rank in `from_rank`.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        columns = {
            self._key_name: [key for key, row in zip(self._keys, self.items, strict=True) for _ in row],
            "rank": [rank for row in self.items for rank in range(1, len(row) + 1)],
            "item": [item for row in self.items for item in row],
        }
        if self.titles is not None:
            columns["title"] = [title for row in self.titles for title in row]
        if self.trace is not None:
            columns["from_rank"] = [rank for row in range(len(self)) for rank in self.from_ranks(row)]
        columns["score"] = [score for row in self.scores for score in row]
        return convert_frame(pl.DataFrame([to_series(name, values) for name, values in columns.items()]), library)

    @property
    def _keys(self) -> Sequence[Any]:
        return range(len(self)) if self.users is None else self.users

    @property
    def _key_name(self) -> str:
        return "history" if self.users is None else "user"

    def _repr_html_(self) -> str:
        """The first lists as a table, for notebooks."""
        first = {field.name: getattr(self, field.name) for field in fields(self)}
        first = {name: lists if name == "trace" or lists is None else lists[:MAX_SHOWN_LISTS] for name, lists in first.items()}
        shown = Recommendations(**first)
        table = shown.frame()
        rows = [(*row[:-1], f"{row[-1]:.4f}") for row in table.rows()]
        notes = [f"The first {len(shown)} of {len(self):,} lists."] if len(shown) < len(self) else []
        for key, unknown in zip(shown._keys, shown.unknown or (), strict=False):
            if unknown:
                notes.append(f"{self._key_name} {key}: ignored, because the model does not know them: {format_some(unknown)}")
        for key, is_fallback in zip(shown._keys, shown.fallback or (), strict=False):
            if is_fallback:
                notes.append(f"{self._key_name} {key}: no item that the model knows, so these are the most popular items")
        return render_html(repr(self), table.columns, rows, notes)


def format_some(ids: Sequence[Any]) -> str:
    """Format the first few ids of a list, and say how many more there are."""
    more = f" and {len(ids) - MAX_SHOWN_UNKNOWN:,} more" if len(ids) > MAX_SHOWN_UNKNOWN else ""
    return ", ".join(map(str, ids[:MAX_SHOWN_UNKNOWN])) + more


class Explanation(Mapping[Any, float]):
    """The contribution of each history item to a score, strongest first. The values add up to the score.

    Parameters
    ----------
    contributions
        History item → contribution.
    titles
        Item → title, where the model has titles.
    unknown
        The history items that the model does not know, which add nothing.
    features
        Feature of the explained item → contribution, strongest first, where the model learns from features. This is the same
        score taken apart in another way: `features` and `from_interactions` add up to it, too.
    by_kind
        History item → kind of event → contribution, where the model has several kinds. They add up to the item's.
    """

    def __init__(
        self,
        contributions: dict[Any, float],
        titles: dict[Any, str] | None = None,
        unknown: Sequence[Any] = (),
        features: dict[str, float] | None = None,
        by_kind: dict[Any, dict[str, float]] | None = None,
    ) -> None:
        self.contributions, self.titles, self.unknown = contributions, titles or {}, list(unknown)
        self.features, self.by_kind = features or {}, by_kind or {}

    def __getitem__(self, item: Any) -> float:
        return self.contributions[item]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.contributions)

    def __len__(self) -> int:
        return len(self.contributions)

    def __repr__(self) -> str:
        strongest = list(self.contributions.items())[:MAX_SHOWN_CONTRIBUTIONS]
        texts = [f"{self.titles.get(item, item)}{self._format_kinds(item)}: {value:+.4f}" for item, value in strongest]
        if len(self) > len(strongest):
            texts.append(f"{len(self) - len(strongest):,} others: {self.score - sum(v for _, v in strongest):+.4f}")
        strongest_features = list(self.features.items())[:MAX_SHOWN_CONTRIBUTIONS]
        by_feature = ", ".join(f"{name} {value:+.4f}" for name, value in strongest_features)
        features = f"; by features {by_feature}" if by_feature else ""
        return f"Explanation({', '.join(texts)}{features}; score {self.score:.4f})"

    def _format_kinds(self, item: Any) -> str:
        """Format the kinds of events of an item, as in ' (view, buy)'."""
        return f" ({', '.join(self.by_kind[item])})" if item in self.by_kind else ""

    @property
    def score(self) -> float:
        """The score that the contributions add up to."""
        return float(sum(self.contributions.values()))

    @property
    def from_interactions(self) -> float:
        """The part of the score that is not due to features of the item, but to users who touched it."""
        return self.score - float(sum(self.features.values()))

    def frame(self, library: str = "polars") -> Any:
        """Return one row per history item, strongest first: item, title where known, contribution, and that of each kind.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        columns = {"item": list(self), "contribution": list(self.values())}
        if self.titles:
            columns = {"item": columns["item"], "title": [self.titles[item] for item in self], **columns}
        kinds = dict.fromkeys(kind for parts in self.by_kind.values() for kind in parts)
        for kind in kinds:
            columns[f"by {kind}"] = [self.by_kind[item].get(kind, 0.0) for item in self]
        return convert_frame(pl.DataFrame([to_series(name, values) for name, values in columns.items()]), library)

    def _repr_html_(self) -> str:
        """The contributions as a table, for notebooks."""
        rows = [(item, self.titles.get(item, ""), f"{value:+.4f}") for item, value in self.items()]
        notes = [f"Ignored, because the model does not know them: {format_some(self.unknown)}"] if self.unknown else []
        if self.features:
            by_feature = ", ".join(
                f"{name} {value:+.4f}" for name, value in list(self.features.items())[:MAX_SHOWN_CONTRIBUTIONS]
            )
            notes.append(f"By features of the item: {by_feature}; from interactions {self.from_interactions:+.4f}")
        return render_html(f"Score {self.score:.4f}, the sum of", ["item", "title", "contribution"], rows, notes)


@dataclass(frozen=True)
class Influence:
    """Which training users and events carry a score: how much of it would be lost without each of them.

    Parameters
    ----------
    score
        The score.
    users
        User → score minus the score of a model fitted without the user, largest in size first.
    events
        (User, item) → the same without this one event of the user.
    """

    score: float
    users: dict[Any, float]
    events: dict[tuple[Any, Any], float]

    def frame(self, library: str = "polars") -> Any:
        """Return one row per event, strongest first: user, item, influence.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        columns = {
            "user": to_series("user", [user for user, _ in self.events]),
            "item": to_series("item", [item for _, item in self.events]),
            "influence": list(self.events.values()),
        }
        return convert_frame(pl.DataFrame(columns), library)
