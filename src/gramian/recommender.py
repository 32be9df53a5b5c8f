"""A fitted model with its ids: what is asked for recommendations, saved, loaded and served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian import store
from gramian.data.ids import Index, ids_of
from gramian.data.interactions import Interactions, csr
from gramian.data.tables import is_number, parquet_path, series, write_parquet
from gramian.errors import InvalidInput, NotSupported, UnknownId
from gramian.linalg.memory import require
from gramian.linalg.threads import threads
from gramian.linalg.topk import Best, ranked
from gramian.progress import bar

BLOCK = 16_384  # users scored at once: large enough to share the packing, and what bounds the memory


class Scorer(Protocol):
    """The fitted arrays. Works on integers only; each kind of fitted result is one implementation in models/scorers.py."""

    name: ClassVar[str]

    @property
    def n_items(self) -> int: ...

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

    def factors(self) -> dict[str, np.ndarray]:
        """Of items: encoder and decoder, or one vector each. Whoever has them also has `users(histories)`."""
        ...

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Facts and arrays from which `load` of the same class makes it again."""
        ...


class RecipeLike(Protocol):
    """What a recommender needs to know of its recipe."""

    def to_json(self) -> dict[str, Any]: ...

    def updated(self, scorer: Any, after: Interactions, change: Interactions, sign: int) -> Scorer: ...


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


@dataclass(frozen=True)
class Hide:
    """What a list must not show: what is in the history, and the item of the same id as its user, for each who has a name."""

    seen: bool = True
    selves: Sequence[Any] | None = None

    def columns(self, histories: sp.csr_array, start: int, items: Index) -> sp.csr_array | None:
        """For some histories, the first of which is number `start`."""
        seen = histories if self.seen else None
        if self.selves is None:
            return seen
        own = items.positions(list(self.selves[start : start + histories.shape[0]]))
        rows = np.flatnonzero(own >= 0)
        links = csr(rows, own[rows], np.ones(len(rows), np.float32), histories.shape)
        return links if seen is None else (seen + links).sorted_indices()

    def others(self, columns: np.ndarray, numbers: np.ndarray, items: Index) -> np.ndarray:
        """Of a list of k + 1 columns for all, where the k are that each of these users may be shown."""
        own = np.full(len(numbers), -2) if self.selves is None else items.positions([self.selves[n] for n in numbers.tolist()])
        # −1 is the end of a short list, so an item that is not there is −2
        late = (columns[None, :-1] == np.where(own < 0, -2, own)[:, None]).cumsum(axis=1)
        return np.arange(len(columns) - 1) + late


class Recommender:
    """A scorer, the ids of its items, the users it was fitted on, and the recipe that made it."""

    def __init__(self, scorer: Scorer, recipe: RecipeLike, events: Interactions) -> None:
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

    def history(self, user: Any) -> dict[Any, float]:
        """What the model knows of one of its users: item → weight."""
        row = self.events.matrix[self._known([user])]
        return dict(zip(self.events.items[row.indices], row.data.tolist(), strict=True))

    def recommend(
        self,
        users: Iterable[Any],
        k: int = 10,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        exclude_seen: bool = True,
        exclude_self: bool = False,
        n_threads: int | None = None,
    ) -> Recommendations:
        """The k best items for known users, by id.

        `allow` keeps only these items, `deny` removes these; ids unknown there are ignored. A list is shorter than k when
        fewer items may be shown. Equal scores follow a fixed pseudo-random order of the items. Where users and items are the
        nodes of one graph, `exclude_self` links nobody to themselves.
        """
        rows = self._known(users)
        known = self.events.users[rows]
        hide = Hide(exclude_seen, known if exclude_self else None)
        return self._recommendations(self.events.matrix[rows], k, allow, deny, hide, n_threads, users=known)

    def recommend_to(
        self,
        path: str | Path,
        k: int = 10,
        *,
        users: Iterable[Any] | None = None,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        exclude_seen: bool = True,
        exclude_self: bool = False,
        n_threads: int | None = None,
    ) -> None:
        """Write the k best items for all users of the model, or for these, to a parquet file: user, rank, item, title, score.

        Nothing but a block of users is ever in memory, and the file appears only when it is whole.
        """
        file = parquet_path(path)
        rows = np.arange(self.events.n_users) if users is None else self._known(users)
        k = _checked_k(k, self.events.n_items)
        allowed = self.allowed(allow, deny)
        histories = self.events.matrix if users is None else self.events.matrix[rows]
        hide = Hide(exclude_seen, self.events.users[rows] if exclude_self else None)
        user_ids, item_ids = series("user", self.users), series("item", self.items)
        titles = None if self.events.titles is None else pl.Series("title", self.events.titles)
        if pl.Object in (user_ids.dtype, item_ids.dtype):
            raise NotSupported(
                "ids that parquet can hold (numbers, text, times)", "others", "Use recommend and write the lists"
            )

        def tables() -> Iterator[pl.DataFrame]:
            for start, columns, scores in self._blocks(histories, k, allowed, hide, n_threads):
                row, rank = np.nonzero(columns >= 0)
                item = columns[row, rank]
                named = [item_ids.gather(item)] if titles is None else [item_ids.gather(item), titles.gather(item)]
                yield pl.DataFrame(
                    [
                        user_ids.gather(rows[start + row]),
                        pl.Series("rank", (rank + 1).astype(np.int32)),
                        *named,
                        pl.Series("score", scores[row, rank].astype(np.float32)),
                    ]
                )

        write_parquet(file, tables())

    def recommend_for(
        self,
        histories: Iterable[Iterable[Any] | Mapping[Any, float]],
        k: int = 10,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        exclude_seen: bool = True,
        n_threads: int | None = None,
    ) -> Recommendations:
        """The k best items for any histories of item ids: nobody must be in the training data.

        A history is a list of items, which count 1 each, or a mapping from item to weight for a model of weighted data.
        Items the model does not know are ignored and counted in `.unknown`; a history with none known gets the
        most popular items, marked in `.fallback`.
        """
        parts = [self._history(history) for history in ids_of("histories", histories)]
        rows = np.repeat(np.arange(len(parts)), [len(columns) for columns, _, _ in parts])
        columns = np.concatenate([columns for columns, _, _ in parts] or [rows])
        values = np.concatenate([values for _, values, _ in parts] or [rows])
        matrix = csr(rows, columns, values, (len(parts), self.events.n_items))
        unknown = [unknown for _, _, unknown in parts]
        return self._recommendations(matrix, k, allow, deny, Hide(exclude_seen), n_threads, unknown=unknown)

    def similar_items(self, item: Any, k: int = 10) -> Recommendations:
        """The k items most similar to one item, in a single list."""
        column = self._column(item)
        others = np.arange(self.events.n_items) != column
        return self._named(*ranked(self.scorer.similar(column), _checked_k(k, self.events.n_items), others))

    def explain(self, history: Iterable[Any] | Mapping[Any, float], item: Any) -> Explanation:
        """Which history items carry the score of `item`, exactly: the contributions add up to it. Unknown items add nothing."""
        columns, values, _ = self._history(history)
        parts = self.scorer.contributions(columns, values, self._column(item))
        order = np.argsort(-np.abs(parts), kind="stable")
        ids = self.events.items[columns[order]]
        titles = (
            None if self.events.titles is None else {i: self.events.titles[c] for i, c in zip(ids, columns[order], strict=True)}
        )
        return Explanation(dict(zip(ids, parts[order].tolist(), strict=True)), titles)

    def add_users(self, events: Interactions, *, n_threads: int | None = None) -> Recommender:
        """A model that has learned from these users too, as if fitted again, at a fraction of the cost.

        This one stays as it is. The users must be new; items may be.
        """
        if not isinstance(events, Interactions):
            raise InvalidInput("Interactions", type(events).__name__, "Wrap it: gr.Interactions.of(...)")
        known = events.users[self.events.users.positions(events.users.tolist()) >= 0]
        if known:
            got = ", ".join(map(repr, known[:5]))
            raise InvalidInput("users the model does not know", got, "Forget them first, then add them with all their events")
        after = self.events.joined(events)
        return self._changed(after, events.reindex(events.users, after.items), 1, n_threads)

    def forget_users(self, users: Iterable[Any], *, n_threads: int | None = None) -> Recommender:
        """A model without these users, as if they had never been there. This one, and its files, stay as they are."""
        rows = np.unique(self._known(users))
        rest = np.setdiff1d(np.arange(self.events.n_users), rows)
        if len(rest) == 0:
            raise InvalidInput("someone to remember", "all users", "Delete the model")
        return self._changed(self.events.take(rest), self.events.take(rows), -1, n_threads)

    def _changed(self, after: Interactions, change: Interactions, sign: int, n_threads: int | None) -> Recommender:
        if self.events.touched is not None:
            raise NotSupported("a model that has its users", "one whose users are on a cluster", "Fit it again there")
        with threads(n_threads):
            return Recommender(self.recipe.updated(self.scorer, after, change, sign), self.recipe, after)

    def scores(self, events: Interactions, *, n_threads: int | None = None) -> np.ndarray:
        """Dense scores, users × items in the order of `model.items`, nothing masked: for small data and tests."""
        if not isinstance(events, Interactions):
            raise InvalidInput("Interactions", type(events).__name__, "Wrap it: gr.Interactions.of(...)")
        histories = events.reindex(events.users, self.events.items).matrix
        m, n = histories.shape
        require(8 * m * n, f"{m:,} × {n:,} scores", "Use recommend")
        scores = None
        with threads(n_threads):
            for first, panel in self.scorer.panels(histories):
                scores = np.empty((m, n), panel.dtype) if scores is None else scores
                scores[:, first : first + panel.shape[1]] = panel
        return np.asarray(scores)

    def weights(self) -> np.ndarray:
        """The dense n × n W of an item-item model, scores = history · W: for small catalogs and tests."""
        return self.scorer.weights()

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """The (user, item) or (encoder, decoder) factors, where the model has them."""
        first, *second = self.scorer.factors().values()
        return (first, second[0]) if second else (self._user_factors(), first)

    def _user_factors(self) -> np.ndarray:
        self.scorer.factors()  # or say that there are none
        found: np.ndarray = self.scorer.users(self.events.matrix)  # type: ignore[attr-defined]
        return found

    def factors_to(self, path: str | Path, *, of: str = "items") -> None:
        """Write the factors of items or of users for vector search, to .parquet (with ids) or to .npy (in their order).

        Of items, a low-rank model has an encoder and a decoder: the sum of the encoder rows of a history (times its weights)
        is its vector, and items score by its inner product with their decoder rows. A factor model has one vector for each.
        Of users, there is a vector for everyone the model was fitted on. More than one array is stacked in .npy.
        """
        if of not in ("items", "users"):
            raise InvalidInput("factors of 'items' or 'users'", repr(of), "Choose one of them")
        found = self.scorer.factors() if of == "items" else {"vector": self._user_factors()}
        file = Path(path)
        if file.suffix == ".npy":
            with store.appearing(file) as part, open(part, "wb") as out:
                arrays = list(found.values())
                np.save(out, np.stack(arrays) if len(arrays) > 1 else arrays[0], allow_pickle=False)
            return
        parquet_path(path)
        ids = series("user", self.users) if of == "users" else series("item", self.items)
        if ids.dtype == pl.Object:
            raise NotSupported("ids that parquet can hold (numbers, text, times)", "others", "Write .npy")
        titles = [] if self.events.titles is None or of == "users" else [pl.Series("title", self.events.titles)]
        vectors = [pl.Series(n, f.astype(np.float32), pl.Array(pl.Float32, f.shape[1])) for n, f in found.items()]
        with store.appearing(file) as part:
            pl.DataFrame([ids, *titles, *vectors]).write_parquet(part)

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
            | ({} if self.events.is_binary else {"data": matrix.data})
            | ({} if self.events.touched is None else {"touched": self.events.touched.astype(np.int64)}),
            {"users": self.users, "items": self.items}
            | ({} if self.events.titles is None else {"titles": self.events.titles})
            | ({} if self.events.tags is None else {"tags": self.events.tags}),
        )

    def top_k(
        self,
        histories: sp.csr_array,
        k: int,
        *,
        allowed: np.ndarray | None = None,
        hide: Hide | None = None,
        n_threads: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Columns and scores of the k best items for histories in the model's columns; a short list ends in −1 and −inf.

        Items of a history are left out unless `hide` says so. A history without any item is given the most popular items.
        """
        k = _checked_k(k, self.events.n_items)
        n_items = self.events.n_items
        if histories.shape[1] != n_items or histories.indices.max(initial=0) >= n_items or histories.indices.min(initial=0) < 0:
            raise InvalidInput(f"histories in the model's {n_items} columns", f"{histories.shape[1]}", "Use events.reindex")
        histories = histories if histories.has_sorted_indices else histories.sorted_indices()
        columns = np.empty((histories.shape[0], k), np.int32)
        scores = np.empty((histories.shape[0], k))
        for start, some_columns, some_scores in self._blocks(histories, k, allowed, hide or Hide(), n_threads):
            columns[start : start + BLOCK], scores[start : start + BLOCK] = some_columns, some_scores
        return columns, scores

    def _blocks(
        self, histories: sp.csr_array, k: int, allowed: np.ndarray | None, hide: Hide, n_threads: int | None
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The lists of `top_k`, a block of users at a time: (first user, columns, scores)."""
        allowed = np.ones(self.events.n_items, np.bool_) if allowed is None else allowed
        starts = range(0, max(1, histories.shape[0]), BLOCK)  # at least one, if of no users
        with bar("recommending", len(starts) * self.events.n_items) as advance:
            for start in starts:
                part = histories[start : start + BLOCK]
                best = Best(part.shape[0], k, hide.columns(part, start, self.events.items), allowed)
                with threads(n_threads):
                    for first, panel in self.scorer.panels(part):
                        best.push(panel, first)
                        advance(panel.shape[1])
                    columns, scores = best.lists()
                empty = np.flatnonzero(np.diff(part.indptr) == 0)
                if len(empty):
                    popular, counts = ranked(self.events.popularity, k + 1, allowed)
                    kept = hide.others(popular[0], start + empty, self.events.items)
                    columns[empty], scores[empty] = popular[0][kept], counts[0][kept]
                yield start, columns, scores

    def _recommendations(
        self,
        histories: sp.csr_array,
        k: int,
        allow: Iterable[Any] | None,
        deny: Iterable[Any] | None,
        hide: Hide,
        n_threads: int | None,
        users: list[Any] | None = None,
        unknown: list[int] | None = None,
    ) -> Recommendations:
        allowed = self.allowed(allow, deny)
        columns, scores = self.top_k(histories, k, allowed=allowed, hide=hide, n_threads=n_threads)
        fallback = (np.diff(histories.indptr) == 0).tolist()
        return self._named(columns, scores, users, unknown or [0] * len(columns), fallback)

    def allowed(self, allow: Iterable[Any] | None, deny: Iterable[Any] | None) -> np.ndarray:
        """Which columns may be recommended."""
        allowed = np.full(self.events.n_items, allow is None)
        for name, ids, verdict in (("items to allow", allow, True), ("items to deny", deny, False)):
            at = self.events.items.positions(ids_of(name, () if ids is None else ids))
            allowed[at[at >= 0]] = verdict
        return allowed

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

    def _history(self, history: Iterable[Any] | Mapping[Any, float]) -> tuple[np.ndarray, np.ndarray, int]:
        """The known columns of a history in order, their weights, and how many of its items are unknown."""
        columns = self.events.items.positions(ids_of("item ids", history))
        weights = list(history.values()) if isinstance(history, Mapping) else [1.0] * len(columns)
        if not all(is_number(weight) and 0 < weight < float(np.finfo(np.float32).max) for weight in weights):
            raise InvalidInput("weights above 0 and below 3e38 in a history", repr(history), "Leave out what has no weight")
        known = np.flatnonzero(columns >= 0)
        distinct, first = np.unique(columns[known], return_index=True)
        return distinct, np.array(weights, np.float32)[known][first], len(columns) - len(known)

    def _known(self, users: Iterable[Any]) -> np.ndarray:
        users = ids_of("user ids", users)
        rows = self.events.users.positions(users)
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


def _checked_k(k: int, n_items: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInput("k of at least 1", repr(k), "Pass k=10, say")
    return min(int(k), n_items)


def loaded(path: str | Path, recipes: Mapping[str, Any], scorers: Mapping[str, Any]) -> Recommender:
    """A saved model, with the tables that turn the names in it into classes.

    A folder from a stranger may hold anything under a valid checksum, and the kernels check no bounds, so all is checked here.
    """
    with store.opened(path, "model") as (facts, arrays, ids), store.damage_in(path):
        users, items, titles, tags = Index(ids["users"]), Index(ids["items"]), ids.get("titles"), ids.get("tags")
        titled = titles is None or (len(titles) == len(items) and all(isinstance(title, str) for title in titles))
        store.require(titled, "a title for every item")
        words = tags is None or all(isinstance(own, tuple) and all(isinstance(tag, str) for tag in own) for own in tags)
        store.require(words and (tags is None or len(tags) == len(items)), "tags for every item")
        indptr, columns = arrays["indptr"], arrays["indices"]
        store.require(indptr.dtype == np.int64 and columns.dtype == np.int32, "interactions by whole numbers")
        sound = len(indptr) == len(users) + 1 and indptr[0] == 0 and indptr[-1] == len(columns) and (np.diff(indptr) >= 0).all()
        store.require(bool(sound), "a row of interactions for every user")
        within = len(columns) == 0 or (columns.min() >= 0 and columns.max() < len(items))
        starts = np.zeros(len(columns) + 1, np.bool_)
        starts[indptr] = True
        falls = np.flatnonzero(columns[1:] <= columns[:-1]) + 1
        store.require(bool(within and starts[falls].all()), "each user's items in order, all of them known")
        data = arrays.get("data", np.ones(len(columns), np.float32))
        store.require(data.shape == columns.shape and bool((np.isfinite(data) & (data > 0)).all()), "weights above 0")
        touched = arrays.get("touched")
        counts = np.zeros(len(items), np.int64) if touched is None else touched
        whole = counts.shape == (len(items),) and counts.dtype == np.int64 and bool((counts >= 0).all())
        store.require(whole, "how many users touched each item")
        own = {name.removeprefix("scorer."): array for name, array in arrays.items() if name.startswith("scorer.")}
        scorer = scorers[facts["scorer"]].load(facts["scorer_facts"], own)
        store.require(scorer.n_items == len(items), "a fitted value for every item")
        recipe = recipes[facts["recipe"]["name"]](**facts["recipe"]["settings"])
        narrow = np.int32 if len(columns) < 2**31 else np.int64  # as the kernels want it
        matrix = sp.csr_array((data, columns.astype(narrow, copy=False), indptr.astype(narrow)), (len(users), len(items)))
        events = Interactions(matrix, users, items, titles=titles, tags=tags, touched=touched)
        return Recommender(scorer, recipe, events)
