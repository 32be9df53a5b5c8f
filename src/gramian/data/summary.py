"""What was read: rows, what was dropped and why, users and items."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadSummary:
    """Counts of what was read, dropped and kept; `str()` formats them as one line.

    Parameters
    ----------
    n_rows
        Rows of the source, without blank lines.
    n_below
        Rows below the threshold of `min_value`.
    n_nulls
        Rows skipped because a column that is needed has no value there.
    n_headers
        Header lines repeated inside the source.
    n_duplicates
        Rows merged into another row of the same user and item.
    n_interactions, n_users, n_items
        What is left.
    notes
        What was detected, such as the separator or the encoding.
    """

    n_rows: int = 0
    n_below: int = 0
    n_nulls: int = 0
    n_headers: int = 0
    n_duplicates: int = 0
    n_interactions: int = 0
    n_users: int = 0
    n_items: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        details = {
            "below the threshold": self.n_below,
            "with nulls skipped": self.n_nulls,
            "dropped as repeated headers": self.n_headers,
            "merged as duplicates": self.n_duplicates,
        }
        remarks = [f"{count:,} {label}" for label, count in details.items() if count] + list(self.notes)
        rows, interactions = format_count(self.n_rows, "row"), format_count(self.n_interactions, "interaction")
        users, items = format_count(self.n_users, "user"), format_count(self.n_items, "item")
        return f"read {rows}: {interactions} of {users} with {items}" + (f" ({'; '.join(remarks)})" if remarks else "")


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun, as in "1 row" and "2,000 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
