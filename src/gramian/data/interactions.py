"""Who touched what: a frozen users × items matrix with the ids of its rows and the catalog of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from hashlib import sha256
from operator import or_
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian.data.catalog import Catalog
from gramian.data.dates import parse_times
from gramian.data.decay import compute_decay
from gramian.data.features import Features
from gramian.data.frames import render_html
from gramian.data.ids import Index, factorize, is_missing
from gramian.data.kinds import has_kind, is_target, parse_kind_column, parse_kind_weights
from gramian.data.numbers import require_finite_numbers, require_weights
from gramian.data.summary import ReadSummary
from gramian.data.tables import Columns, as_table, column_names, select_columns, to_series
from gramian.data.weights import compute_weights, warn_of_heavy_tail
from gramian.errors import InvalidInput
from gramian.linalg.finite import is_all_finite
from gramian.linalg.sparse import count_columns, csr_from_sorted, pad_shape, row_of_entry
from gramian.validation import is_number


@dataclass(frozen=True, eq=False)
class Interactions:
    """A sparse users × items matrix with user ids, an item catalog, and times where the data has them.

    Duplicate events of one user and item are merged: without values into a single 1, with values into their sum;
    the time kept is the latest. Make them with `gr.read` or `Interactions.of`.

    Parameters
    ----------
    matrix
        Users × items in CSR form: float32, sorted columns, no stored 0. Values below 0 are dislikes. With `kinds`, a value is
        the set of the kinds that occurred, as a bit set.
    users
        The ids of the rows.
    catalog
        The items of the columns. Its popularity is counted anew from the matrix.
    times
        One per stored entry, in the order of `matrix.data`.
    read_summary
        What was read and what was dropped, if these interactions come directly from a table or a file.
    kinds
        The kinds of events that are kept apart, such as ("view", "cart", "buy"), the one to predict last; None where all
        interactions are of one kind.
    """

    matrix: sp.csr_array
    users: Index
    catalog: Catalog
    times: np.ndarray | None = None
    read_summary: ReadSummary | None = None
    kinds: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        liked = self.matrix.indices[self.matrix.data > 0] if self.has_dislikes else self.matrix.indices
        counts = count_columns(liked, self.n_items)
        object.__setattr__(self, "catalog", self.catalog.with_popularity(counts))

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
        time_format: str | None = None,
        weight: str | None = None,
        kind: str | None = None,
        kinds: Iterable[Any] | None = None,
        weights: Mapping[Any, float] | None = None,
        half_life: Any = None,
        signed: bool = False,
        max_dislike: float | None = None,
        skip_nulls: bool = False,
        tag_separator: str = "|",
    ) -> Interactions:
        """Make interactions from a table or matrix in memory.

        Parameters
        ----------
        data
            A table with one event per row: polars, pandas, arrow (also a RecordBatchReader) or a DuckDB relation. Or a scipy
            sparse or numpy users × items matrix, whose entries are the weights; zeros are no interaction.
        user, item
            Columns of user and item ids. Left out, common names such as `user_id` and `item_id` are tried.
        value
            Column of weights. Without it every event counts 1.
        min_value
            `("rating", 4)` keeps the events whose rating is at least 4, each counting 1. For a matrix, a number.
        time
            Column of times: numbers, dates, date-times or text such as "2026-05-08T10:30:00+02:00"; UTC if there is no zone.
        title, tags
            Columns that describe the items. Tags are lists, or text such as "Comedy|Romance".
        time_format
            How times are written, as in `datetime.strptime`: "%d/%m/%Y". Needed only where text has more than one reading.
        weight
            "binary", "log", "bm25" or "tfidf" turn values into weights as `with_weights` does. Without `value`, the number of
            events of a user and an item is its value.
        kind
            Column of the kinds of events, such as "view" and "buy". Pass `weights` or `kinds` with it.
        kinds
            Keep these kinds apart, the one to predict last: `kinds=["view", "cart", "buy"]`, for `gr.MultiBehaviorEASE`.
        weights
            Add the kinds up, each with its weight: `weights={"view": 0.2, "cart": 0.5, "buy": 1}`. A weight of 0 drops a kind.
        half_life
            In which time the weight of an interaction halves, such as "90d"; the same as `decayed(half_life)` afterwards.
        signed
            Accept values below 0, which are dislikes.
        max_dislike
            With `min_value=("rating", 4), max_dislike=2` ratings of at most 2 are dislikes, which count −1.
        skip_nulls
            Drop rows without a user, item, value, time or kind. Otherwise they are refused.
        tag_separator
            What stands between the tags of a text.

        Returns
        -------
        Interactions
        """
        column_arguments = user or item or value or time or title or tags or time_format or skip_nulls or half_life is not None
        column_arguments = column_arguments or kind or kinds is not None or weights is not None or max_dislike is not None
        if isinstance(data, Interactions):
            if column_arguments or weight or signed or min_value is not None:
                raise InvalidInput("a table or a matrix to read columns of", "Interactions", "Use them as they are")
            return data
        if sp.issparse(data) or isinstance(data, np.ndarray):
            if column_arguments:
                raise InvalidInput("no column names with a matrix", "a column name", "Pass a table, or drop the names")
            return interactions_from_matrix(data, min_value, weight, signed)
        table = as_table(data)
        kind_column = parse_kind_column(kind, kinds, weights)
        columns = Columns.of(column_names(table), user, item, value, min_value, time, title, tags, kind_column)
        columns = columns.with_options(time_format, weight, skip_nulls, tag_separator)
        columns = columns.with_signals(half_life, signed, max_dislike)
        return interactions_from_columns(select_columns(table, columns.needed), columns)

    def __repr__(self) -> str:
        values = "" if self.is_binary else ", weighted" if self.kinds is None else f", kinds {', '.join(self.kinds)}"
        values += ", with dislikes" if self.has_dislikes else ""
        return f"Interactions({self.n_users:,} users × {self.n_items:,} items, {self.n_interactions:,} interactions{values})"

    def _repr_html_(self) -> str:
        """The sizes and the most popular items as a table, for notebooks."""
        columns = np.argsort(-self.popularity, kind="stable")[:5]
        titles = [""] * len(columns) if self.titles is None else [self.titles[column] for column in columns]
        rows = zip(self.items[columns], titles, self.popularity[columns].tolist(), strict=True)
        return render_html(repr(self), ["most popular items", "title", "users"], rows)

    @property
    def n_users(self) -> int:
        """The number of users."""
        return int(self.matrix.shape[0])

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.matrix.shape[1])

    @property
    def n_interactions(self) -> int:
        """The number of distinct (user, item) pairs."""
        return int(self.matrix.nnz)

    @property
    def items(self) -> Index:
        """Item ids in column order."""
        return self.catalog.ids

    @property
    def titles(self) -> Sequence[str] | None:
        """One title per item, where the data has them."""
        return self.catalog.titles

    @property
    def tags(self) -> Sequence[tuple[str, ...]] | None:
        """The tags of each item, where the data has them."""
        return self.catalog.tags

    @property
    def popularity(self) -> np.ndarray:
        """How many users touched each item."""
        return self.catalog.popularity

    @cached_property
    def is_binary(self) -> bool:
        """Whether every interaction counts 1."""
        return bool((self.matrix.data == 1).all())

    @cached_property
    def has_unit_weights(self) -> bool:
        """Whether every interaction counts 1, or −1 if it is a dislike."""
        return self.is_binary or bool((np.abs(self.matrix.data) == 1).all())

    @cached_property
    def has_dislikes(self) -> bool:
        """Whether some values are below 0."""
        return bool((self.matrix.data < 0).any())

    @property
    def can_be_target(self) -> np.ndarray:
        """Whether each stored entry is something to predict: no dislike and, of several kinds, the last one."""
        return is_target(self.matrix.data, self.kinds)

    @cached_property
    def rows(self) -> np.ndarray:
        """The user row of every stored entry."""
        return row_of_entry(self.matrix)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of ids and entries, the same on every machine."""
        digest = sha256()
        for ids in (self.users.values, self.items.values):
            digest.update(ids.astype("<i8").tobytes() if ids.dtype == np.int64 else repr(ids.tolist()).encode())
        for array, dtype in ((self.matrix.indptr, "<i8"), (self.matrix.indices, "<i4"), (self.matrix.data, "<f4")):
            digest.update(np.ascontiguousarray(array, dtype).data)  # not copied where it has the type already
        if self.kinds is not None:
            digest.update(repr(self.kinds).encode())
        return digest.hexdigest()

    def frame(self) -> pl.DataFrame:
        """Return the events as a table: user_id, item_id, value, and time where known. With `kinds`, one row for each kind
        that occurred, in the column kind."""
        if self.kinds is not None:
            parts = [self.of_kind(kind).frame().with_columns(kind=pl.lit(kind)).drop("value") for kind in self.kinds]
            return pl.concat(parts)
        columns: dict[str, Any] = {
            "user_id": to_series("user_id", self.users[self.rows]),
            "item_id": to_series("item_id", self.items[self.matrix.indices]),
            "value": self.matrix.data,
        }
        return pl.DataFrame(columns | ({} if self.times is None else {"time": self.times}))

    def with_titles(self, titles: Mapping[Any, str]) -> Interactions:
        """Return the same interactions with titles from {item id: title}; an item without one is shown by its id."""
        return replace(self, catalog=self.catalog.with_titles(titles))

    def with_tags(self, tags: Mapping[Any, str | Iterable[str] | None], separator: str = "|") -> Interactions:
        """Return the same interactions with tags from {item id: tags}: lists, or text with a separator between the tags."""
        return replace(self, catalog=self.catalog.with_tags(tags, separator))

    def with_features(self, features: Features) -> Interactions:
        """Return the same interactions with features of their items, made by `gr.Features.of`.

        Parameters
        ----------
        features
            Features of every item and of no other. `features.take(ids)` picks some of a larger table.
        """
        return replace(self, catalog=self.catalog.with_features(features))

    def described_by(self, *catalogs: Catalog) -> Interactions:
        """Return the same interactions with the titles, tags and features that catalogs have for these items; the last wins."""
        return replace(self, catalog=self.catalog.described_by(*catalogs))

    def with_weights(self, weight: str, reference: Interactions | None = None) -> Interactions:
        """Return the same interactions with weights made from their counts, scaled to a mean of 1.

        A history that is passed to a fitted model as a plain list, as in `model.recommend_for([["Heat", "Alien"]])`, counts 1
        for each item: as much as an average interaction of the training data.

        Parameters
        ----------
        weight
            "binary": 1 for each. "log": the logarithm of 1 + count. "tfidf": the same times the inverse frequency of the item.
            "bm25": Okapi BM25, which also takes the length of the history into account. The formulas are in
            `gramian.data.weights`.
        reference
            The counts that the mean, the frequencies of items and the mean length are taken from; by default these.
            For users who come later, pass the counts that the model was trained on:
            `model.add_users(later.with_weights("bm25", reference=counts))`.

        Returns
        -------
        Interactions
        """
        reference = self if reference is None else reference
        for events in (self, reference):
            events.require_one_kind(f"weight={weight!r}")
            events.require_no_dislikes(f"weight={weight!r}", "it is made from counts")
        items = self.items.union(reference.items)  # the columns of this matrix come first and keep their numbers
        counts, reference_counts = (events.reindex(events.users, items).matrix for events in (self, reference))
        data = compute_weights(weight, counts, reference_counts)
        return replace(self, matrix=sp.csr_array((data, self.matrix.indices, self.matrix.indptr), self.matrix.shape))

    def of_kind(self, kind: Any) -> Interactions:
        """Return the interactions of one kind, each counting 1, with the same users and items."""
        kinds = self._require_kinds()
        if str(kind) not in kinds:
            raise InvalidInput(f"one of the kinds {', '.join(kinds)}", repr(kind), "Choose one of them")
        part = self.keep(has_kind(self.matrix.data, kinds.index(str(kind))))
        ones = np.ones(part.n_interactions, np.float32)
        matrix = sp.csr_array((ones, part.matrix.indices, part.matrix.indptr), part.matrix.shape)
        return replace(part, matrix=matrix, kinds=None)

    def with_kind_weights(self, weights: Mapping[Any, float]) -> Interactions:
        """Return the kinds added up, each with its weight: {"view": 0.2, "cart": 0.5, "buy": 1}; 0 drops a kind."""
        by_kind = parse_kind_weights(weights, self._require_kinds())
        data = sum(weight * has_kind(self.matrix.data, k) for k, weight in enumerate(by_kind))
        matrix = sp.csr_array((np.asarray(data, np.float32), self.matrix.indices, self.matrix.indptr), self.matrix.shape)
        return replace(self, matrix=matrix, kinds=None).keep(matrix.data > 0)

    def decayed(self, half_life: Any, now: Any = None) -> Interactions:
        """Return the same interactions with weights that halve with every half-life of their age.

        Parameters
        ----------
        half_life
            Text with a unit, such as "90d" (s, min, h, d, w, y), a timedelta, or a number in the unit of the times. Infinity
            changes nothing.
        now
            The time at which an interaction has its full weight; the latest one if left out. Pass the end of the training
            data where weights of later data must be comparable.

        Returns
        -------
        Interactions
        """
        self.require_one_kind("half_life")
        if self.times is None:
            raise InvalidInput("interactions with times", "none", 'Read them with time="timestamp"')
        data = self.matrix.data * compute_decay(self.times, half_life, now)
        data = np.copysign(np.maximum(np.abs(data), np.finfo(np.float32).tiny), data).astype(np.float32)
        return replace(self, matrix=sp.csr_array((data, self.matrix.indices, self.matrix.indptr), self.matrix.shape))

    def require_one_kind(self, purpose: str) -> None:
        """Raise `InvalidInput` if the interactions are of several kinds that are kept apart."""
        if self.kinds is not None:
            last = self.kinds[-1]
            do = f"Add them up with events.with_kind_weights({{...}}), take events.of_kind({last!r}), or fit MultiBehaviorEASE"
            raise InvalidInput(f"interactions of one kind for {purpose}", f"the kinds {', '.join(self.kinds)}", do)

    def require_no_dislikes(self, purpose: str, reason: str) -> None:
        """Raise `InvalidInput` if some interactions are dislikes."""
        if self.has_dislikes:
            n_dislikes = int((self.matrix.data < 0).sum())
            expected = f"interactions without dislikes for {purpose}, because {reason}"
            raise InvalidInput(expected, f"{n_dislikes:,} of them", "Drop them with events.keep(events.matrix.data > 0)")

    def _require_kinds(self) -> tuple[str, ...]:
        if self.kinds is None:
            do = "Read them with kind='event_type', kinds=['view', 'buy'], say"
            raise InvalidInput("interactions of several kinds", "one kind", do)
        return self.kinds

    def k_core(self, users: int, items: int | None = None) -> Interactions:
        """Return the largest part in which every user has at least `users` items and every item at least `items` users.

        `k_core(5)` asks 5 of both. Dropping users takes users away from items and the reverse, so it repeats until stable.
        """
        min_items, min_users = users, users if items is None else items
        if not (is_number(min_items) and is_number(min_users) and min(min_items, min_users) >= 0):
            raise InvalidInput("k of at least 0", f"{min_items!r}, {min_users!r}", "Pass k_core(5), say")
        rows, columns = self.rows, self.matrix.indices
        mask = np.ones(len(columns), dtype=bool)
        while True:
            enough_items = np.bincount(rows[mask], minlength=self.n_users) >= min_items
            enough_users = np.bincount(columns[mask], minlength=self.n_items) >= min_users
            smaller = mask & enough_items[rows] & enough_users[columns]
            if smaller.sum() == mask.sum():
                break
            mask = smaller
        if not mask.any():
            raise InvalidInput(f"a ({min_items}, {min_users})-core", "nothing left", "Ask for a smaller k")
        return self.keep(mask).compact()

    def compact(self) -> Interactions:
        """Return the interactions without users and items that have none."""
        columns = np.unique(self.matrix.indices)
        active = self.take(np.flatnonzero(np.diff(self.matrix.indptr)))
        return replace(active, matrix=active.matrix[:, columns], catalog=self.catalog.take(columns))

    def keep(self, mask: np.ndarray) -> Interactions:
        """Return the same users and items with only the entries where the mask is true."""
        matrix = csr_from_sorted(self.rows[mask], self.matrix.indices[mask], self.matrix.data[mask], self.matrix.shape)
        times = None if self.times is None else self.times[mask]
        return replace(self, matrix=matrix, times=times, read_summary=None)

    def take(self, rows: np.ndarray) -> Interactions:
        """Return the users in these rows, with the same items."""
        times = None
        if self.times is not None:
            entries = np.arange(self.n_interactions)
            times = self.times[sp.csr_array((entries, self.matrix.indices, self.matrix.indptr), self.matrix.shape)[rows].data]
        return replace(self, matrix=self.matrix[rows], users=self.users.take(rows), times=times, read_summary=None)

    def reindex(self, users: Index, items: Index) -> Interactions:
        """Return the same events under other indexes; events of users or items that these do not hold are dropped."""
        if users == self.users and items == self.items:
            return self
        rows = users.positions(self.users.tolist())[self.rows]
        columns = items.positions(self.items.tolist())[self.matrix.indices]
        order = np.lexsort((columns, rows))
        order = order[(rows[order] >= 0) & (columns[order] >= 0)]
        matrix = csr_from_sorted(rows[order], columns[order], self.matrix.data[order], (len(users), len(items)))
        times = None if self.times is None else self.times[order]
        return Interactions(matrix, users, Catalog(items).described_by(self.catalog), times, kinds=self.kinds)

    def with_catalog(self, catalog: Catalog) -> Interactions:
        """Return the same interactions with more items: a catalog that begins with the items of these."""
        matrix = sp.csr_array((self.matrix.data, self.matrix.indices, self.matrix.indptr), (self.n_users, len(catalog)))
        return replace(self, matrix=matrix, catalog=catalog)

    def join(self, others: Interactions) -> Interactions:
        """Return these users followed by other, different users; items that only the others have come last."""
        if self.kinds != others.kinds:
            raise InvalidInput(f"users with the kinds {self.kinds}", f"{others.kinds}", "Read both with the same kinds")
        items = self.items.union(others.items)
        first, second = (events.reindex(events.users, items) for events in (self, others))
        matrix = csr_from_sorted(
            np.concatenate([first.rows, second.rows + self.n_users]),
            np.concatenate([first.matrix.indices, second.matrix.indices]),
            np.concatenate([first.matrix.data, second.matrix.data]),
            (self.n_users + others.n_users, len(items)),
        )
        times = None
        if first.times is not None and second.times is not None:
            times = np.concatenate([first.times, second.times])
        users = Index(self.users.tolist() + others.users.tolist())
        catalog = Catalog(items).described_by(others.catalog, self.catalog)
        return Interactions(matrix, users, catalog, times, kinds=self.kinds)

    def merge(self, events: Interactions) -> Interactions:
        """Return these interactions with further events of the same and of other users.

        Users and items keep their rows and columns; new ones come last. Weights of one user and item add up, unless both sides
        are 0/1: then they stay 1, as in a table without values. The time kept is the latest.
        """
        self.require_one_kind("merge")
        events.require_one_kind("merge")
        users, items = self.users.union(events.users), self.items.union(events.items)
        shape, added = (len(users), len(items)), events.reindex(users, items)
        matrix = sp.csr_array(pad_shape(self.matrix, shape) + added.matrix)
        if self.is_binary and events.is_binary:
            matrix.data[:] = 1
        if not is_all_finite(matrix.data):
            require_finite_numbers(pl.Series("merged weights", matrix.data))
        times = None
        if self.times is not None and added.times is not None:
            rows, columns = (
                np.concatenate(pair) for pair in ((self.rows, added.rows), (self.matrix.indices, added.matrix.indices))
            )
            by_time = np.concatenate([self.times, added.times])
            order = np.lexsort((by_time, columns, rows))
            is_last = np.append((np.diff(rows[order]) != 0) | (np.diff(columns[order]) != 0), True)
            times = by_time[order][is_last]
        return Interactions(matrix, users, Catalog(items).described_by(events.catalog, self.catalog), times)

    def scaled(self, factor: float) -> Interactions:
        """Return the same interactions with every weight times a factor; none becomes 0."""
        data = self.matrix.data * np.float32(factor)
        data = np.where(data == 0, np.copysign(np.finfo(np.float32).tiny, self.matrix.data), data)
        return replace(self, matrix=sp.csr_array((data, self.matrix.indices, self.matrix.indptr), self.matrix.shape))


def interactions_from_columns(
    table: Mapping[str, pl.Series], columns: Columns, rows: pl.Series | None = None, summary: ReadSummary | None = None
) -> Interactions:
    """Make interactions from columns of equal length.

    `rows` are the row numbers that errors name, and `summary` is what was read and dropped before.
    """
    n_rows = len(table[columns.user])
    rows = pl.int_range(1, n_rows + 1, dtype=pl.UInt32, eager=True) if rows is None else rows
    summary = ReadSummary(n_rows=n_rows) if summary is None else summary
    if columns.skip_nulls:
        has_null = reduce(or_, (is_missing(table[name]) for name in columns.required))
        table, rows = {name: column.filter(~has_null) for name, column in table.items()}, rows.filter(~has_null)
        summary = replace(summary, n_nulls=int(has_null.sum()))
    if columns.value is not None and columns.threshold is not None:
        mask = columns.keeps(require_finite_numbers(table[columns.value], rows))
        table, rows = {name: column.filter(mask) for name, column in table.items()}, rows.filter(mask)
        summary = replace(summary, n_below=summary.n_below + int((~mask).sum()))
    kinds = None
    if columns.kind is not None:
        kinds = columns.kind.codes(table[columns.kind.name], rows)
        counts = columns.kind.counts(kinds)
        table, rows = {name: column.filter(counts) for name, column in table.items()}, rows.filter(counts)
        kinds = kinds.filter(counts)
        if not counts.all():
            summary = replace(summary, notes=(*summary.notes, f"{int((~counts).sum()):,} of kinds with weight 0"))
    user_codes, users = factorize(table[columns.user])
    item_codes, items = factorize(table[columns.item])
    merged = merge_events(pl.DataFrame({"row": user_codes, "column": item_codes}), table, columns, rows, kinds)
    data = (
        require_weights(merged["value"], signed=columns.is_signed).to_numpy()
        if "value" in merged.columns
        else np.ones(len(merged))
    )
    matrix = csr_from_sorted(merged["row"].to_numpy(), merged["column"].to_numpy(), data, (len(users), len(items)))
    catalog = Catalog(items)
    if columns.title is not None:
        pairs = zip(items[item_codes], table[columns.title].to_list(), strict=True)
        catalog = catalog.with_titles({item: title for item, title in pairs if title is not None})
    if columns.tags is not None:
        pairs = zip(items[item_codes], table[columns.tags].to_list(), strict=True)
        catalog = catalog.with_tags({item: tags for item, tags in pairs if tags is not None}, columns.tag_separator)
    summary = replace(
        summary,
        n_duplicates=len(user_codes) - len(merged),
        n_interactions=len(merged),
        n_users=len(users),
        n_items=len(items),
    )
    times = merged["time"].to_numpy() if columns.time else None
    names = columns.kind.kinds if columns.kind is not None and columns.kind.weights is None else None
    events = apply_weight(require_any(Interactions(matrix, users, catalog, times, summary, names)), columns.weight)
    return events if columns.half_life is None else events.decayed(columns.half_life)


def merge_events(
    pairs: pl.DataFrame, table: Mapping[str, pl.Series], columns: Columns, rows: pl.Series, kinds: pl.Series | None
) -> pl.DataFrame:
    """Merge the events of each pair of a row and a column: row, column, and value and time where there are some."""
    events, merge = pairs, []
    if columns.value is not None and columns.threshold is None:
        events = events.with_columns(require_weights(table[columns.value], rows, columns.signed).alias("value"))
        merge.append(pl.col("value").sum())
    elif columns.value is not None and columns.max_dislike is not None:
        is_liked = table[columns.value].cast(pl.Float64) >= columns.threshold
        events = events.with_columns((2.0 * is_liked.cast(pl.Float64) - 1).alias("value"))
        merge.append(pl.col("value").sum().sign())
    elif columns.weight is not None:
        merge.append(pl.len().alias("value"))
    if columns.time is not None:
        events = events.with_columns(parse_times(table[columns.time], columns.time_format, rows).alias("time"))
        merge.append(pl.col("time").max())
    if columns.kind is not None and kinds is not None:
        merged = columns.kind.merge(events.with_columns(kinds.alias("kind")), merge)
    else:
        merged = events.group_by("row", "column").agg(merge)
    if columns.is_signed:
        merged = merged.filter(pl.col("value") != 0)  # likes and dislikes that cancel each other
    return merged.sort("row", "column")


def apply_weight(events: Interactions, weight: str | None) -> Interactions:
    """Return the interactions with these weights; without any, warn if the weights they have are heavy-tailed."""
    if weight is not None:
        return events.with_weights(weight)
    if not events.is_binary and events.kinds is None:
        warn_of_heavy_tail(np.abs(events.matrix.data))
    return events


def interactions_from_matrix(
    data: Any, min_value: tuple[str, float] | float | None, weight: str | None = None, signed: bool = False
) -> Interactions:
    """Make interactions from a scipy or numpy users × items matrix; ids are row and column numbers."""
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
    require_finite_numbers(pl.Series("the matrix", matrix.data))
    if min_value is not None:
        matrix.data = (matrix.data >= min_value).astype(np.float64)
    matrix.eliminate_zeros()
    require_weights(pl.Series("the matrix", matrix.data), signed=signed)
    matrix = csr_from_sorted(row_of_entry(matrix), matrix.indices, matrix.data, matrix.shape)
    events = Interactions(matrix, Index(range(matrix.shape[0])), Catalog(Index(range(matrix.shape[1]))))
    return apply_weight(require_any(events), weight)


def require_any(events: Interactions) -> Interactions:
    """Return the interactions if there is at least one."""
    if events.n_interactions == 0:
        raise InvalidInput("at least one interaction", "none", "Check the file, the column names and min_value")
    return events
