"""Who touched what: a frozen users × items matrix with the ids of its rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian.data.ids import Index, factorize
from gramian.data.tables import Columns, columns_of, is_number, names_of, numbers, series, times, weights
from gramian.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Interactions:
    """A sparse users × items matrix with ids; times, titles and tags where the data has them.

    Duplicate events of one user and item are merged: without values into a single 1, with values into their sum;
    the time kept is the latest.
    """

    matrix: sp.csr_array  # users × items, float32, sorted indices, every stored value above 0
    users: Index
    items: Index
    times: np.ndarray | None = None  # one per stored entry, in the order of matrix.data
    titles: list[str] | None = None  # one per item
    tags: list[tuple[str, ...]] | None = None  # of each item, such as its genres
    touched: np.ndarray | None = None  # how many users touched each item, where the users are elsewhere: on a cluster

    @staticmethod
    def of(
        data: Any,
        *,
        user: str | None = None,
        item: str | None = None,
        value: str | None = None,
        min_value: tuple[str, float] | float | None = None,
        time: str | None = None,
        title: str | None = None,
        tags: str | None = None,
    ) -> Interactions:
        """Interactions from a polars, pandas or arrow table, or from a scipy sparse or numpy users × items matrix.

        A table's events count once each unless `value` names a column of weights; `min_value=("rating", 4)` keeps the
        events whose rating is at least 4. A matrix's entries are its weights, zeros are no interaction,
        and `min_value=4` keeps the entries of at least 4 and counts each once. A column of tags holds lists, or text such as
        "Comedy|Romance".
        """
        if isinstance(data, Interactions):
            if user or item or value or min_value is not None or time or title or tags:
                raise InvalidInput("a table or a matrix to read columns of", "Interactions", "Use them as they are")
            return data
        if sp.issparse(data) or isinstance(data, np.ndarray):
            if user or item or value or time or title or tags:
                raise InvalidInput("no column names with a matrix", "a column name", "Pass a table, or drop the names")
            return from_matrix(data, min_value)
        columns = Columns.of(names_of(data), user, item, value, min_value, time, title, tags)
        return from_columns(columns_of(data, columns.needed), columns)

    def __repr__(self) -> str:
        kind = "" if self.is_binary else ", weighted"
        return f"Interactions({self.n_users:,} users × {self.n_items:,} items, {self.n_interactions:,} interactions{kind})"

    @property
    def n_users(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def n_items(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def n_interactions(self) -> int:
        return int(self.matrix.nnz)

    @cached_property
    def is_binary(self) -> bool:
        return bool((self.matrix.data == 1).all())

    @cached_property
    def popularity(self) -> np.ndarray:
        """How many users touched each item."""
        return np.bincount(self.matrix.indices, minlength=self.n_items) if self.touched is None else self.touched

    @cached_property
    def rows(self) -> np.ndarray:
        """The user row of every stored entry."""
        return np.repeat(np.arange(self.n_users), np.diff(self.matrix.indptr))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of ids and entries, the same on every machine."""
        digest = sha256()
        for ids in (self.users.values, self.items.values):
            digest.update(ids.astype("<i8").tobytes() if ids.dtype == np.int64 else repr(ids.tolist()).encode())
        for array, dtype in ((self.matrix.indptr, "<i8"), (self.matrix.indices, "<i4"), (self.matrix.data, "<f4")):
            digest.update(array.astype(dtype).tobytes())
        return digest.hexdigest()

    def frame(self) -> pl.DataFrame:
        """The events as a table again: user_id, item_id, value, and time where known."""
        columns: dict[str, Any] = {
            "user_id": series("user_id", self.users[self.rows]),
            "item_id": series("item_id", self.items[self.matrix.indices]),
            "value": self.matrix.data,
        }
        return pl.DataFrame(columns | ({} if self.times is None else {"time": self.times}))

    def with_titles(self, titles: Mapping[Any, str]) -> Interactions:
        """The same interactions with a title for each item; an item without one is shown by its id."""
        if not isinstance(titles, Mapping):
            raise InvalidInput("titles as a mapping from item id to title", type(titles).__name__, "Pass {id: title}")
        named = [(item, titles.get(item)) for item in self.items.tolist()]
        return replace(self, titles=[str(item if title is None else title) for item, title in named])

    def with_tags(self, tags: Mapping[Any, str | Iterable[str] | None]) -> Interactions:
        """The same interactions with the tags of each item: lists, or text such as "Comedy|Romance"."""
        if not isinstance(tags, Mapping):
            raise InvalidInput("tags as a mapping from item id to tags", type(tags).__name__, "Pass {id: [tag, ...]}")
        return replace(self, tags=[tags_of(tags.get(item)) for item in self.items.tolist()])

    def k_core(self, users: int, items: int | None = None) -> Interactions:
        """The largest part in which every user has at least `users` items and every item at least `items` users.

        `k_core(5)` asks 5 of both. Dropping users takes users away from items and the reverse, so it repeats until stable.
        """
        floor_users, floor_items = users, users if items is None else items
        if not (is_number(floor_users) and is_number(floor_items) and min(floor_users, floor_items) >= 0):
            raise InvalidInput("k of at least 0", f"{floor_users!r}, {floor_items!r}", "Pass k_core(5), say")
        rows, columns = self.rows, self.matrix.indices
        keep = np.ones(len(columns), dtype=bool)
        while True:
            enough_items = np.bincount(rows[keep], minlength=self.n_users) >= floor_users
            enough_users = np.bincount(columns[keep], minlength=self.n_items) >= floor_items
            smaller = keep & enough_items[rows] & enough_users[columns]
            if smaller.sum() == keep.sum():
                break
            keep = smaller
        if not keep.any():
            raise InvalidInput(f"a ({floor_users}, {floor_items})-core", "nothing left", "Ask for a smaller k")
        return self.keep(keep).compact()

    def compact(self) -> Interactions:
        """Without the users and items that have no interaction."""
        kept = np.flatnonzero(self.popularity)
        part = self.take(np.flatnonzero(np.diff(self.matrix.indptr)))
        titles, tags = (None if own is None else [own[column] for column in kept] for own in (self.titles, self.tags))
        return replace(part, matrix=part.matrix[:, kept], items=self.items.take(kept), titles=titles, tags=tags)  # type: ignore[arg-type]

    def keep(self, entries: np.ndarray) -> Interactions:
        """The same users and items with only the entries where the mask is true."""
        matrix = csr(self.rows[entries], self.matrix.indices[entries], self.matrix.data[entries], self.matrix.shape)
        return replace(self, matrix=matrix, times=None if self.times is None else self.times[entries])

    def take(self, rows: np.ndarray) -> Interactions:
        """The users in these rows, with the same items."""
        times = None
        if self.times is not None:
            numbers = np.arange(self.n_interactions)
            times = self.times[sp.csr_array((numbers, self.matrix.indices, self.matrix.indptr), self.matrix.shape)[rows].data]
        return replace(self, matrix=self.matrix[rows], users=self.users.take(rows), times=times)

    def reindex(self, users: Index, items: Index) -> Interactions:
        """The same events under other indexes; events of users or items these do not hold are dropped."""
        if users == self.users and items == self.items:
            return self
        rows = users.positions(self.users.tolist())[self.rows]
        columns = items.positions(self.items.tolist())[self.matrix.indices]
        order = np.lexsort((columns, rows))
        order = order[(rows[order] >= 0) & (columns[order] >= 0)]
        matrix = csr(rows[order], columns[order], self.matrix.data[order], (len(users), len(items)))
        times = None if self.times is None else self.times[order]
        return Interactions(matrix, users, items, times).named_like(self)

    def joined(self, others: Interactions) -> Interactions:
        """These users and then others, none of them the same; items that only the others have come last."""
        items = self.items.union(others.items)
        parts = [part.reindex(part.users, items) for part in (self, others)]
        matrix = csr(
            np.concatenate([parts[0].rows, parts[1].rows + self.n_users]),
            np.concatenate([part.matrix.indices for part in parts]),
            np.concatenate([part.matrix.data for part in parts]),
            (self.n_users + others.n_users, len(items)),
        )
        times = None
        if self.times is not None and others.times is not None:
            times = np.concatenate([part.times for part in parts])
        both = Interactions(matrix, Index(self.users.tolist() + others.users.tolist()), items, times)
        return both.named_like(others, self)

    def named_like(self, *others: Interactions) -> Interactions:
        """The same with the titles and tags that others have for these items; the last who has one says it."""
        titles = [zip(other.items.tolist(), other.titles, strict=True) for other in others if other.titles is not None]
        tags = [zip(other.items.tolist(), other.tags, strict=True) for other in others if other.tags is not None]
        named = self.with_titles(dict(chain(*titles))) if titles else self
        return named.with_tags(dict(chain(*tags))) if tags else named


def csr(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """A sparse matrix from entries sorted by row and column, with 32-bit indices wherever they suffice: the kernels' form."""
    index = np.int32 if len(rows) < 2**31 else np.int64
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))]).astype(index)
    return sp.csr_array((values.astype(np.float32), columns.astype(index), indptr), shape=shape)


def from_columns(table: Mapping[str, pl.Series], columns: Columns) -> Interactions:
    """Interactions from columns of equal length."""
    if columns.value is not None and columns.threshold is not None:
        keep = numbers(table[columns.value]) >= columns.threshold
        table = {name: column.filter(keep) for name, column in table.items()}
    rows, users = factorize(table[columns.user])
    cols, items = factorize(table[columns.item])
    events = pl.DataFrame({"row": rows, "column": cols})
    merge = []
    if columns.value is not None and columns.threshold is None:
        events = events.with_columns(weights(table[columns.value]).alias("value"))
        merge.append(pl.col("value").sum())
    if columns.time is not None:
        events = events.with_columns(times(table[columns.time]).alias("time"))
        merge.append(pl.col("time").max())
    merged = events.group_by("row", "column").agg(merge).sort("row", "column")
    data = weights(merged["value"]).to_numpy() if "value" in merged.columns else np.ones(len(merged))
    matrix = csr(merged["row"].to_numpy(), merged["column"].to_numpy(), data, (len(users), len(items)))
    titles = None
    if columns.title is not None:
        named = zip(cols.tolist(), table[columns.title].to_list(), strict=True)
        by_column = {column: str(title) for column, title in named if title is not None}
        titles = [by_column.get(column, str(item)) for column, item in enumerate(items.tolist())]
    found = not_empty(Interactions(matrix, users, items, merged["time"].to_numpy() if columns.time else None, titles))
    if columns.tags is None:
        return found
    return found.with_tags(dict(zip(table[columns.item].to_list(), table[columns.tags].to_list(), strict=True)))


def tags_of(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Distinct tags in order, of a list or of text with bars between them."""
    every = given.split("|") if isinstance(given, str) else given or ()
    return tuple(dict.fromkeys(str(tag).strip() for tag in every if str(tag).strip()))


def from_matrix(data: Any, min_value: tuple[str, float] | float | None) -> Interactions:
    if isinstance(min_value, tuple):
        raise InvalidInput("min_value=number with a matrix", repr(min_value), f"Pass min_value={min_value[1]}")
    if data.ndim != 2:
        raise InvalidInput("a users × items matrix", f"{data.ndim} dimensions", "Reshape it to two")
    data = data.filled(0) if isinstance(data, np.ma.MaskedArray) else data
    if data.dtype.kind not in "biuf":
        raise InvalidInput("a matrix of real numbers", f"{data.dtype}", "Convert it first")
    if min_value is not None and not is_number(min_value):
        raise InvalidInput("min_value=number with a matrix", repr(min_value), "Pass min_value=4, say")
    matrix = sp.csr_array(data, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    numbers(pl.Series("the matrix", matrix.data))
    if min_value is not None:
        matrix.data = (matrix.data >= min_value).astype(np.float64)
    matrix.eliminate_zeros()
    weights(pl.Series("the matrix", matrix.data))
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    matrix = csr(rows, matrix.indices, matrix.data, matrix.shape)
    return not_empty(Interactions(matrix, Index(range(matrix.shape[0])), Index(range(matrix.shape[1]))))


def not_empty(events: Interactions) -> Interactions:
    if events.n_interactions == 0:
        raise InvalidInput("at least one interaction", "none", "Check the file, the column names and min_value")
    return events
