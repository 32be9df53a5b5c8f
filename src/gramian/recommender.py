"""A fitted model with its ids: what is asked for recommendations, saved, loaded and served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian import store
from gramian.data.ids import Index
from gramian.data.interactions import Interactions, csr
from gramian.data.tables import series
from gramian.errors import InvalidInput, UnknownId
from gramian.linalg.memory import require
from gramian.linalg.topk import Best
from gramian.progress import track

BLOCK = 16_384  # users scored at once: large enough to share the packing, and what bounds the memory


class Scorer(Protocol):
    """The fitted arrays. Works on integers only; each kind of fitted result is one implementation in models/scorers.py."""

    name: ClassVar[str]

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        """Scores of all items for these histories, a few columns at a time: (first column, users × columns)."""
        ...

    def similar(self, item: int) -> np.ndarray:
        """How similar every item is to this one."""
        ...

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        """What each history item adds to this item's score; the sum is the score."""
        ...

    def weights(self) -> np.ndarray: ...

    def factors(self) -> tuple[np.ndarray, np.ndarray]: ...

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Facts and arrays from which `load` of the same class makes it again."""
        ...


class Setting(Protocol):
    """What a recommender needs to know of its recipe."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Recommendations:
    """Lists of items, best first, one for each user or history asked for."""

    items: list[list[Any]]
    scores: list[list[float]]
    users: list[Any] | None = None  # who was asked for, where by id
    unknown: list[int] | None = None  # how many history items the model does not know and ignored
    fallback: list[bool] | None = None  # whether nothing was known, so that the list is the most popular items
    titles: list[list[str]] | None = None

    def __len__(self) -> int:
        return len(self.items)

    def frame(self) -> pl.DataFrame:
        """One row for each recommendation: user (or history number), rank, item, title where known, score."""
        keys = range(len(self)) if self.users is None else self.users
        columns = {
            "history" if self.users is None else "user": [key for key, row in zip(keys, self.items, strict=True) for _ in row],
            "rank": [rank for row in self.items for rank in range(1, len(row) + 1)],
            "item": [item for row in self.items for item in row],
        }
        if self.titles is not None:
            columns["title"] = [title for row in self.titles for title in row]
        columns["score"] = [score for row in self.scores for score in row]
        return pl.DataFrame([series(name, values) for name, values in columns.items()])


class Explanation(Mapping[Any, float]):
    """Which history items carry a score: history item → contribution. The values add up to the score."""

    def __init__(self, contributions: dict[Any, float], titles: dict[Any, str] | None = None) -> None:
        self.contributions, self.titles = contributions, titles or {}

    def __getitem__(self, item: Any) -> float:
        return self.contributions[item]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.contributions)

    def __len__(self) -> int:
        return len(self.contributions)

    def __repr__(self) -> str:
        parts = (f"{self.titles.get(item, item)}: {value:+.4f}" for item, value in self.contributions.items())
        return f"Explanation({', '.join(parts)}; score {self.score:.4f})"

    @property
    def score(self) -> float:
        return float(sum(self.contributions.values()))


class Recommender:
    """A scorer, the ids of its items, the users it was fitted on, and the recipe that made it."""

    def __init__(self, scorer: Scorer, recipe: Setting, events: Interactions) -> None:
        self.scorer, self.recipe, self.events = scorer, recipe, events

    def __repr__(self) -> str:
        return f"Recommender({self.recipe}, {self.events.n_users:,} users, {self.events.n_items:,} items)"

    @property
    def items(self) -> list[Any]:
        """Item ids in column order."""
        return self.events.items.tolist()

    @property
    def users(self) -> list[Any]:
        """The ids of the users the model was fitted on."""
        return self.events.users.tolist()

    def recommend(
        self,
        users: Sequence[Any],
        k: int = 10,
        *,
        allow: Sequence[Any] | None = None,
        deny: Sequence[Any] | None = None,
        exclude_seen: bool = True,
    ) -> Recommendations:
        """The k best items for known users, by id.

        `allow` keeps only these items, `deny` removes these; ids unknown there are ignored. A list is shorter than k when
        fewer items may be shown. Equal scores follow a fixed pseudo-random order of the items.
        """
        rows = self._known(users)
        histories = self.events.matrix[rows]
        return self._recommendations(histories, k, allow, deny, exclude_seen, users=list(users))

    def recommend_for(
        self,
        histories: Sequence[Sequence[Any]],
        k: int = 10,
        *,
        allow: Sequence[Any] | None = None,
        deny: Sequence[Any] | None = None,
        exclude_seen: bool = True,
    ) -> Recommendations:
        """The k best items for any histories of item ids: nobody must be in the training data.

        Items the model does not know are ignored and counted in `.unknown`; a history with none known gets the
        most popular items, marked in `.fallback`.
        """
        if isinstance(histories, str | bytes) or any(isinstance(h, str | bytes) for h in histories):
            raise InvalidInput("a list of histories, each a list of item ids", "a string", "Pass [[item, item, ...], ...]")
        columns = [self.events.items.positions(list(history)) for history in histories]
        known = [np.unique(c[c >= 0]) for c in columns]
        unknown = [int((c < 0).sum()) for c in columns]
        rows = np.repeat(np.arange(len(known)), [len(c) for c in known])
        matrix = csr(rows, np.concatenate([*known, rows[:0]]), np.ones(len(rows)), (len(known), self.events.n_items))
        return self._recommendations(matrix, k, allow, deny, exclude_seen, unknown=unknown)

    def similar_items(self, item: Any, k: int = 10) -> Recommendations:
        """The k items most similar to one item, in a single list."""
        column = self._column(item)
        best = Best(1, _at_least_one(k, self.events.n_items), None, np.arange(self.events.n_items) != column)
        best.push(self.scorer.similar(column)[None], 0)
        return self._named(*best.lists())

    def explain(self, history: Sequence[Any], item: Any) -> Explanation:
        """Which history items carry the score of `item`, exactly: the contributions add up to it. Unknown items add nothing."""
        columns = np.unique(self.events.items.positions(list(history)))
        columns = columns[columns >= 0]
        parts = self.scorer.contributions(columns, np.ones(len(columns), np.float32), self._column(item))
        order = np.argsort(-np.abs(parts), kind="stable")
        ids = self.events.items[columns[order]]
        titles = (
            None if self.events.titles is None else {i: self.events.titles[c] for i, c in zip(ids, columns[order], strict=True)}
        )
        return Explanation(dict(zip(ids, parts[order].tolist(), strict=True)), titles)

    def scores(self, events: Interactions) -> np.ndarray:
        """Dense scores, users × items in the order of `model.items`, nothing masked: for small data and tests."""
        histories = events.reindex(events.users, self.events.items).matrix
        require(
            histories.shape[0] * histories.shape[1] * 4,
            f"{histories.shape[0]:,} × {histories.shape[1]:,} scores",
            "Use recommend",
        )
        return np.concatenate([panel.copy() for _, panel in self.scorer.panels(histories)], axis=1)

    def weights(self) -> np.ndarray:
        """The dense n × n W of an item-item model, scores = history · W: for small catalogs and tests."""
        return self.scorer.weights()

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """The (user, item) or (encoder, decoder) factors, where the model has them."""
        return self.scorer.factors()

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of safetensors and JSON, atomically; `gr.load` reads it."""
        facts, arrays = self.scorer.save()
        matrix = self.events.matrix
        store.write(
            path,
            "model",
            {"recipe": self.recipe.to_json(), "scorer": self.scorer.name, "scorer_facts": facts},
            {f"scorer.{name}": array for name, array in arrays.items()}
            | {"indptr": matrix.indptr.astype(np.int64), "indices": matrix.indices.astype(np.int32)}
            | ({} if self.events.is_binary else {"data": matrix.data}),
            {"users": self.users, "items": self.items} | ({} if self.events.titles is None else {"titles": self.events.titles}),
        )

    def top_k(
        self, histories: sp.csr_array, k: int, *, allowed: np.ndarray | None = None, exclude_seen: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Columns and scores of the k best items for histories in the model's columns; a short list ends in −1 and −inf.

        A history without any item is given the most popular items.
        """
        k = _at_least_one(k, self.events.n_items)
        columns = np.empty((histories.shape[0], k), np.int32)
        scores = np.empty((histories.shape[0], k))
        for start in track(range(0, histories.shape[0], BLOCK), "recommending"):
            part = histories[start : start + BLOCK]
            best = Best(part.shape[0], k, part if exclude_seen else None, _mask(allowed, self.events.n_items))
            for first, panel in self.scorer.panels(part):
                best.push(panel, first)
            columns[start : start + BLOCK], scores[start : start + BLOCK] = best.lists()
        empty = np.flatnonzero(np.diff(histories.indptr) == 0)
        if len(empty):
            popular = Best(1, k, None, _mask(allowed, self.events.n_items))
            popular.push(self.events.popularity[None].astype(np.float32), 0)
            columns[empty], scores[empty] = popular.lists()
        return columns, scores

    def _recommendations(
        self,
        histories: sp.csr_array,
        k: int,
        allow: Sequence[Any] | None,
        deny: Sequence[Any] | None,
        exclude_seen: bool,
        users: list[Any] | None = None,
        unknown: list[int] | None = None,
    ) -> Recommendations:
        allowed = None
        if allow is not None or deny is not None:
            allowed = np.full(self.events.n_items, allow is None)
            for ids, verdict in ((allow, True), (deny, False)):
                at = self.events.items.positions(list(ids or ()))
                allowed[at[at >= 0]] = verdict
        columns, scores = self.top_k(histories, k, allowed=allowed, exclude_seen=exclude_seen)
        fallback = (np.diff(histories.indptr) == 0).tolist()
        return self._named(columns, scores, users, unknown or [0] * len(columns), fallback)

    def _named(
        self,
        columns: np.ndarray,
        scores: np.ndarray,
        users: list[Any] | None = None,
        unknown: list[int] | None = None,
        fallback: list[bool] | None = None,
    ) -> Recommendations:
        lists = [row[row >= 0] for row in columns]
        titles = self.events.titles
        return Recommendations(
            [self.events.items[row] for row in lists],
            [values[: len(row)].tolist() for values, row in zip(scores, lists, strict=True)],
            users,
            unknown,
            fallback,
            None if titles is None else [[titles[c] for c in row] for row in lists],
        )

    def _known(self, users: Sequence[Any]) -> np.ndarray:
        if isinstance(users, str | bytes):
            raise InvalidInput("a list of user ids", repr(users), f"Pass [{users!r}]")
        rows = self.events.users.positions(list(users))
        missing = [user for user, row in zip(users, rows, strict=True) if row < 0]
        if missing:
            raise UnknownId(
                "users the model was fitted on", ", ".join(map(repr, missing[:5])), "Use recommend_for with their histories"
            )
        return rows

    def _column(self, item: Any) -> int:
        column = int(self.events.items.positions([item])[0])
        if column < 0:
            raise UnknownId("an item the model was fitted on", repr(item), "See model.items")
        return column


def _mask(allowed: np.ndarray | None, n_items: int) -> np.ndarray:
    return np.ones(n_items, np.bool_) if allowed is None else allowed


def _at_least_one(k: int, n_items: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInput("k of at least 1", repr(k), "Pass k=10, say")
    return min(int(k), n_items)


def loaded(path: str | Path, recipes: Mapping[str, Any], scorers: Mapping[str, Any]) -> Recommender:
    """A saved model, with the tables that turn the names in it into classes."""
    facts, arrays, ids = store.read(path, "model")
    users, items = Index(ids["users"]), Index(ids["items"])
    data = arrays.get("data", np.ones(len(arrays["indices"]), np.float32))
    rows = np.repeat(np.arange(len(users)), np.diff(arrays["indptr"]))
    matrix = csr(rows, arrays["indices"], data, (len(users), len(items)))
    scorer = scorers[facts["scorer"]].load(
        facts["scorer_facts"], {name[7:]: array for name, array in arrays.items() if name.startswith("scorer.")}
    )
    recipe = recipes[facts["recipe"]["name"]](**facts["recipe"]["settings"])
    return Recommender(scorer, recipe, Interactions(matrix, users, items, titles=ids.get("titles")))
