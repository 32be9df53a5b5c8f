"""A look at a table of events before any model is fitted: its columns, its size, its distributions, and what looks wrong.

Roles of columns that the caller does not name are guessed by their names. A profile says what was guessed, what it found, what
is done about each finding, and how to change that. `Profile.events` are the interactions after all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian.data.dates import MILLISECONDS, SECONDS
from gramian.data.frames import render_html
from gramian.data.interactions import Interactions, interactions_from_matrix
from gramian.data.kinds import parse_kind_column
from gramian.data.numbers import infer_type, parse_floats
from gramian.data.read import EventTable, read_table
from gramian.data.summary import format_count
from gramian.data.tables import (
    ITEM_NAMES,
    USER_NAMES,
    Columns,
    as_table,
    column_names,
    guess_name,
    select_columns,
    simplify_name,
)
from gramian.errors import InvalidInput

# Names that are tried in this order where the caller names no column, beside those that `gr.read` tries.
MORE_USER_NAMES = (
    *("customer_id", "customer", "visitor_id", "visitor", "member_id", "account_id", "client_id", "person_id", "reviewer_id"),
    *("profile_id", "session_id", "username", "user_name"),
)
MORE_ITEM_NAMES = (
    *(
        "movie_id",
        "movie",
        "product_id",
        "product",
        "asin",
        "parent_asin",
        "sku",
        "article_id",
        "article",
        "track_id",
        "song_id",
    ),
    *("artist_id", "artist", "book_id", "isbn", "business_id", "venue_id", "location_id", "content_id", "stock_code"),
)
TIME_NAMES = (
    *("timestamp", "time", "datetime", "date", "ts", "event_time", "created_at", "unix_review_time", "event_timestamp"),
    *("rated_at", "purchase_date", "order_date", "invoice_date", "visited_at", "day"),
)
VALUE_NAMES = (
    *("rating", "value", "score", "stars", "overall", "weight", "count", "plays", "play_count", "listens", "quantity"),
    *("clicks", "views"),
)
TITLE_NAMES = ("title", "item_title", "movie_title", "product_title", "item_name", "product_name")
ROLES = ("user", "item", "time", "value", "title")

MAX_RATING, MAX_RATING_LEVELS = 10, 20  # a column of ratings has at most these: 1 to 10 in halves
LIKED_SHARE = 0.8  # of the best rating: 4 of 5 stars count as liked, the usual convention
MAX_USER_SHARE = 0.1  # of all events that one person may have in a table of at least MIN_CROWD users
MIN_CROWD = 20
MAX_CATALOG_SHARE, MIN_CATALOG = 0.5, 1000  # a user of more than half of at least 1,000 items is taken for a bot
MAX_MISDATED_SHARE = 0.05  # of the events; if more have impossible dates, the column is not used
QUANTILES = {"min": 0.0, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95, "max": 1.0}


@dataclass(frozen=True)
class Finding:
    """Something that looks wrong or matters for the choice of a model, and what is done about it."""

    problem: str
    action: str

    def __str__(self) -> str:
        return f"{self.problem}. {self.action}."


@dataclass(frozen=True)
class ValueProfile:
    """A column of values: what it looks like, its range, and how it is used."""

    column: str
    kind: str
    lowest: float
    highest: float
    n_levels: int
    use: str


@dataclass(frozen=True)
class TimeProfile:
    """A column of times: the first and the last, as dates where the numbers are dates, and how many are distinct."""

    first: str
    last: str
    n_distinct: int


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """What a table of events looks like.

    Parameters
    ----------
    columns
        Role → the column that has it. Empty for interactions, which have no columns any more.
    unused
        The columns without a role.
    n_rows, n_users, n_items, n_interactions, n_duplicates
        Counts of the table before any finding was acted upon. Rows of one user and one item are one interaction.
    history_lengths, popularity
        Quantiles of the items of a user, and of the users of an item.
    values, times
        The columns of values and times, if there are any.
    findings
        What looks wrong, and what was done about it.
    events
        The interactions after that.
    """

    columns: dict[str, str]
    unused: tuple[str, ...]
    n_rows: int
    n_users: int
    n_items: int
    n_interactions: int
    n_duplicates: int
    history_lengths: dict[str, int]
    popularity: dict[str, int]
    values: ValueProfile | None
    times: TimeProfile | None
    findings: tuple[Finding, ...]
    events: Interactions = field(compare=False)

    @property
    def density(self) -> float:
        """The share of all pairs of a user and an item that interacted."""
        return self.n_interactions / (self.n_users * self.n_items)

    def __repr__(self) -> str:
        return f"Profile({self.headline}, {format_count(len(self.findings), 'finding')})"

    @property
    def headline(self) -> str:
        """The counts as one line."""
        sizes = f"{format_count(self.n_users, 'user')} × {format_count(self.n_items, 'item')}"
        return f"{sizes}, {format_count(self.n_interactions, 'interaction')}, density {self.density:.3%}"

    def facts(self) -> list[tuple[str, str]]:
        """Return what is known as pairs of a name and a text."""
        rows = [("size", f"{self.headline}, from {format_count(self.n_rows, 'row')}")]
        if self.n_duplicates:
            rows.append(("duplicates", f"{format_count(self.n_duplicates, 'row')} of a user and an item seen before: merged"))
        for role, name in self.columns.items():
            rows.append((f"column {name}", f"taken for the {role}; another one: {role}=NAME"))
        if self.unused:
            rows.append(("columns not used", ", ".join(self.unused)))
        if self.values is not None:
            v = self.values
            rows.append((f"{v.column} holds", f"{v.kind} from {v.lowest:g} to {v.highest:g}, {v.n_levels:,} distinct; {v.use}"))
        if self.times is not None:
            rows.append(("times", f"from {self.times.first} to {self.times.last}, {self.times.n_distinct:,} distinct"))
        rows.append(("items of a user", format_quantiles(self.history_lengths)))
        rows.append(("users of an item", format_quantiles(self.popularity)))
        return rows

    def __str__(self) -> str:
        rows = self.facts()
        width = max(len(name) for name, _ in rows)
        return "\n".join([*(f"{name:<{width}}  {text}" for name, text in rows), *(f"! {finding}" for finding in self.findings)])

    def _repr_html_(self) -> str:
        """The facts as a table, for notebooks."""
        return render_html(self.headline, ["", ""], self.facts(), [str(finding) for finding in self.findings])

    def to_json(self) -> dict[str, Any]:
        """Return everything but the interactions, for JSON."""
        return {
            "columns": self.columns,
            "unused": list(self.unused),
            "rows": self.n_rows,
            "users": self.n_users,
            "items": self.n_items,
            "interactions": self.n_interactions,
            "duplicates": self.n_duplicates,
            "density": self.density,
            "history_lengths": self.history_lengths,
            "popularity": self.popularity,
            "values": None if self.values is None else vars(self.values),
            "times": None if self.times is None else vars(self.times),
            "findings": [{"problem": finding.problem, "action": finding.action} for finding in self.findings],
        }


def describe(data: Any, *, keep_suspicious: bool = False, **reading: Any) -> Profile:
    """Look at a table of events: what its columns are, how much there is, and what looks wrong.

    Parameters
    ----------
    data
        A source as in `gr.read`, a table or matrix as in `Interactions.of`, or interactions.
    keep_suspicious
        Keep users and events that would be left out, such as bots and events of the future. They are still reported.
    reading
        The options of `gr.read` or `Interactions.of`. A column that is not named is guessed by the names of the columns.

    Returns
    -------
    Profile
        `print` it; `.events` are the interactions with every finding acted upon.
    """
    if isinstance(data, Interactions):
        if reading:
            raise InvalidInput("no options of reading with interactions", next(iter(reading)), "Leave it out")
        return _profile_interactions(data, keep_suspicious)
    if sp.issparse(data) or isinstance(data, np.ndarray):
        events = interactions_from_matrix(data, reading.get("min_value"), reading.get("weight"))
        return _profile_interactions(events, keep_suspicious)
    reading = dict(reading)
    text_options = {name: reading.pop(name) for name in ("separator", "encoding", "columns", "connection") if name in reading}
    names: list[str] = []

    def choose(all_names: list[str]) -> Columns:
        names[:] = all_names
        return guess_columns(all_names, reading)

    if isinstance(data, str | Path):
        table = read_table(data, choose, **text_options)
    else:
        in_memory = as_table(data)
        columns = choose(column_names(in_memory))
        table = EventTable(select_columns(in_memory, columns.needed), columns)
    return _profile_table(table, names, reading, keep_suspicious)


def guess_columns(names: list[str], reading: Mapping[str, Any]) -> Columns:
    """Return the roles of columns: those the caller named, and for the others the first usual name that the table has."""
    user = reading.get("user") or guess_name(names, (*USER_NAMES, *MORE_USER_NAMES))
    item = reading.get("item") or guess_name(names, (*ITEM_NAMES, *MORE_ITEM_NAMES))
    guesses = {"time": TIME_NAMES, "title": TITLE_NAMES}
    if reading.get("value") is None and reading.get("min_value") is None and reading.get("kind") is None:
        guesses["value"] = VALUE_NAMES
    roles = {role: reading.get(role) for role in ("value", "time", "title")}
    free = [name for name in names if name not in (user, item)]
    for role, usual in guesses.items():
        simplified = {simplify_name(name) for name in usual}
        if roles[role] is None and any(simplify_name(name) in simplified for name in free):
            roles[role] = guess_name(free, usual)
    kind = parse_kind_column(reading.get("kind"), reading.get("kinds"), reading.get("weights"))
    columns = Columns.of(
        names, user, item, roles["value"], reading.get("min_value"), roles["time"], roles["title"], reading.get("tags"), kind
    )
    time_format = reading.get("time_format") if columns.time else None
    columns = columns.with_options(
        time_format, reading.get("weight"), reading.get("skip_nulls", False), reading.get("tag_separator", "|")
    )
    return columns.with_signals(reading.get("half_life"), reading.get("signed", False), reading.get("max_dislike"))


def _profile_table(table: EventTable, names: Sequence[str], reading: Mapping[str, Any], keep_suspicious: bool) -> Profile:
    """Decide what the values are used for, make interactions, and profile them."""
    findings = list(_find_row_numbers(table))
    values = None
    if table.columns.value is not None and not (reading.get("value") or reading.get("min_value")):
        values, threshold = profile_values(table.series[table.columns.value])
        kept = table.columns.value if threshold is not None else None
        table = replace(table, columns=replace(table.columns, value=kept, threshold=threshold))
    elif table.columns.value is not None:
        values, _ = profile_values(table.series[table.columns.value])
        threshold = table.columns.threshold
        use = "used as weights" if threshold is None else f"rows of at least {threshold:g} are kept"
        values = None if values is None else replace(values, use=use)
    try:
        events = table.to_interactions()
    except InvalidInput as error:
        if table.columns.time is None or reading.get("time"):
            raise
        problem = f"the column {table.columns.time} looks like times but cannot be read as such ({error.got})"
        findings.append(Finding(problem, "It is not used; pass time=NAME and time_format=FORMAT to use it"))
        table = replace(table, columns=replace(table.columns, time=None, time_format=None))
        events = table.to_interactions()
    roles = {role: name for role in ROLES if (name := getattr(table.columns, role)) is not None}
    taken = {*roles.values(), table.columns.tags, values.column if values else None}
    profile = _profile_interactions(events, keep_suspicious)
    return replace(
        profile,
        columns=roles,
        unused=tuple(name for name in names if name not in taken),
        values=values,
        findings=(*findings, *profile.findings),
    )


def profile_values(column: pl.Series) -> tuple[ValueProfile | None, float | None]:
    """Return what a column of values looks like, and the threshold at which a rating counts as liked, if it holds ratings."""
    numbers = parse_floats(infer_type(column))
    if not numbers.dtype.is_numeric() or numbers.is_null().any() or len(numbers) == 0:
        return None, None
    lowest, highest, n_levels = float(numbers.min()), float(numbers.max()), numbers.n_unique()  # type: ignore[arg-type]

    def profile(kind: str, use: str) -> ValueProfile:
        return ValueProfile(column.name, kind, lowest, highest, n_levels, use)

    if n_levels == 1:
        return profile("one value", "every event counts 1"), None
    is_rating = 0 <= lowest < highest <= MAX_RATING and n_levels <= MAX_RATING_LEVELS
    if is_rating and float(numbers.median()) >= (lowest + highest) / 2:  # type: ignore[arg-type]
        threshold = LIKED_SHARE * highest
        use = f"ratings of at least {threshold:g} count as liked; min_value=({column.name!r}, ...) sets another threshold"
        return profile("ratings", use), threshold
    kind = "counts" if lowest >= 0 and bool((numbers == numbers.round()).all()) else "numbers"
    use = f'every event counts 1; value={column.name!r} uses them as weights, best with weight="log"'
    return profile(kind, use), None


def _find_row_numbers(table: EventTable) -> list[Finding]:
    """Return a finding for each id column that numbers the rows."""
    findings = []
    for role, other in (("user", "item"), ("item", "user")):
        name = getattr(table.columns, role)
        ids = table.series[name]
        action = f"It says nothing about {role}s; name the right column with {role}=NAME"
        is_consecutive = ids.dtype.is_integer() and len(ids) > 2 and bool((ids.diff().drop_nulls() == 1).all())
        if is_consecutive and ids.null_count() == 0:
            problem = f"the column {name}, taken for the {role}, numbers the rows from {ids[0]} to {ids[-1]}"
            findings.append(Finding(problem, action))
        elif (
            len(ids) >= MIN_CROWD and ids.n_unique() == len(ids) and table.series[getattr(table.columns, other)].n_unique() > 1
        ):
            problem = f"the column {name}, taken for the {role}, is different in every row, as the number of an order is"
            findings.append(Finding(problem, action))
    return findings


def _profile_interactions(events: Interactions, keep_suspicious: bool) -> Profile:
    """Profile interactions, and act upon what is found."""
    summary, lengths = events.read_summary, np.diff(events.matrix.indptr)
    n_duplicates = 0 if summary is None else summary.n_duplicates
    cleaned, findings, times = events, [], None
    if events.times is not None:
        times = profile_times(events.times)
        cleaned, dated = _check_times(cleaned, keep_suspicious)
        findings += dated
    cleaned, crowded = _check_users(cleaned, keep_suspicious)
    findings += crowded
    n_single_users, n_single_items = int((np.diff(cleaned.matrix.indptr) == 1).sum()), int((cleaned.popularity == 1).sum())
    if n_single_users > cleaned.n_users / 2:
        problem = f"{n_single_users:,} of {format_count(cleaned.n_users, 'user')} have a single item"
        findings.append(Finding(problem, "They add to popularity, but cannot be tested, and no model learns from them"))
    if n_single_items > cleaned.n_items / 2:
        problem = f"{n_single_items:,} of {format_count(cleaned.n_items, 'item')} have a single user"
        findings.append(
            Finding(problem, "They stay in the catalog, but will hardly be recommended; events.k_core(2) drops them")
        )
    return Profile(
        columns={},
        unused=(),
        n_rows=events.n_interactions if summary is None else summary.n_rows,
        n_users=events.n_users,
        n_items=events.n_items,
        n_interactions=events.n_interactions,
        n_duplicates=n_duplicates,
        history_lengths=measure_quantiles(lengths),
        popularity=measure_quantiles(events.popularity),
        values=None,
        times=times,
        findings=tuple(findings),
        events=cleaned,
    )


def _check_users(events: Interactions, keep_suspicious: bool) -> tuple[Interactions, list[Finding]]:
    """Find users who cannot be people, and leave them out."""
    lengths, findings = np.diff(events.matrix.indptr), []
    is_heavy = (lengths > MAX_USER_SHARE * events.n_interactions) & (events.n_users >= MIN_CROWD)
    is_bot = (lengths > MAX_CATALOG_SHARE * events.n_items) & (events.n_items >= MIN_CATALOG)
    done = "Kept, as asked" if keep_suspicious else "Left out of training and testing; keep_suspicious=True keeps such users"
    for row in np.flatnonzero(is_heavy | is_bot):
        share, of_catalog = lengths[row] / events.n_interactions, lengths[row] / events.n_items
        problem = (
            f"user {events.users.tolist()[row]!r} has {share:.0%} of all interactions and touched {of_catalog:.0%} of the items"
        )
        findings.append(Finding(f"{problem}: a bot, a test account or a shared id", done))
    is_left_out = is_heavy | is_bot
    if keep_suspicious or not is_left_out.any() or is_left_out.all():
        return events, findings
    return replace(events.take(np.flatnonzero(~is_left_out)).compact(), read_summary=events.read_summary), findings


def _check_times(events: Interactions, keep_suspicious: bool) -> tuple[Interactions, list[Finding]]:
    """Find dates that cannot be: in the future, or at the start of computer time, which stands for a missing date."""
    assert events.times is not None
    if len(np.unique(events.times)) == 1:
        finding = Finding("all events have the same time", "The times are not used")
        return replace(events, times=None), [finding]
    dates = as_dates(events.times)
    if dates is None:
        if not _is_order_of_user(events):
            return events, []
        problem = "the times only number the events of each user, and do not say which events of two users came first"
        return replace(events, times=None), [Finding(problem, "They are not used; pass time=NAME for a column of dates")]
    now = np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us")
    checks = {
        "in the future": dates > now + np.timedelta64(1, "D"),
        "on 1 January 1970, which stands for a missing date": dates < np.datetime64("1970-01-02"),
    }
    findings, is_misdated = [], np.zeros(events.n_interactions, np.bool_)
    for words, mask in checks.items():
        if not mask.any():
            continue
        is_misdated |= mask
        problem = f"{format_count(int(mask.sum()), 'event')} {'is' if mask.sum() == 1 else 'are'} dated {words}"
        if keep_suspicious:
            action = "Kept, as asked"
        elif is_misdated.mean() > MAX_MISDATED_SHARE:
            action = "So many dates are wrong that the times are not used"
        else:
            action = "Left out: a split by time would test on them; keep_suspicious=True keeps such events"
        findings.append(Finding(problem, action))
    if keep_suspicious or not is_misdated.any():
        return events, findings
    if is_misdated.mean() > MAX_MISDATED_SHARE:
        return replace(events, times=None), findings
    return replace(events.keep(~is_misdated).compact(), read_summary=events.read_summary), findings


def _is_order_of_user(events: Interactions) -> bool:
    """Whether the times of (nearly) every user are the numbers from 0 or from 1 on."""
    assert events.times is not None
    starts = events.matrix.indptr[:-1][np.diff(events.matrix.indptr) > 0]
    lengths = np.diff(np.append(starts, events.n_interactions))
    first, last = np.minimum.reduceat(events.times, starts), np.maximum.reduceat(events.times, starts)
    is_counter = np.isin(first, (0, 1)) & (last - first == lengths - 1)
    return bool(is_counter.mean() > 1 - MAX_MISDATED_SHARE)


def profile_times(times: np.ndarray) -> TimeProfile:
    """Return the first and the last time as text."""
    dates = as_dates(times)
    shown = times if dates is None else np.datetime_as_string(dates, unit="D")
    return TimeProfile(str(shown[np.argmin(times)]), str(shown[np.argmax(times)]), len(np.unique(times)))


def as_dates(times: np.ndarray) -> np.ndarray | None:
    """Return times as dates: numbers where most of them are seconds or milliseconds since 1970; None for other numbers."""
    if times.dtype.kind == "M":
        return times.astype("datetime64[us]")
    for (low, high), per_second in ((SECONDS, 1), (MILLISECONDS, 1000)):
        if np.mean((times >= low) & (times <= high)) > 0.5:
            seconds = np.clip(times.astype(np.float64) / per_second, -SECONDS[1], 2 * SECONDS[1])
            return (seconds * 1e6).astype(np.int64).astype("datetime64[us]")
    return None


def measure_quantiles(counts: np.ndarray) -> dict[str, int]:
    """Return quantiles of counts, from the minimum to the maximum."""
    values = np.quantile(counts, list(QUANTILES.values()), method="inverted_cdf")
    return dict(zip(QUANTILES, map(int, values), strict=True))


def format_quantiles(quantiles: Mapping[str, int]) -> str:
    """Format quantiles as in "min 1, median 5, max 20"."""
    return ", ".join(f"{name} {value:,}" for name, value in quantiles.items())
