"""Tables for other libraries: what `.frame(library)` of a result returns, and how a notebook shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

import polars as pl

from gramian.errors import InvalidInput, NotSupported

FRAME_LIBRARIES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.to_pandas(),
    "arrow": lambda frame: frame.to_arrow(),
}


def convert_frame(frame: pl.DataFrame, library: str) -> Any:
    """Return a table as the data frame of a library: "polars", "pandas" or "arrow"."""
    if library not in FRAME_LIBRARIES:
        raise InvalidInput(f"one of {', '.join(FRAME_LIBRARIES)}", repr(library), 'Pass frame("pandas"), say')
    try:
        return FRAME_LIBRARIES[library](frame)
    except ModuleNotFoundError as error:
        do = "Install pandas and pyarrow, or use the Polars table"
        raise NotSupported(f"the packages that a table of {library} needs", f"no {error.name}", do) from None


def render_html(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]], notes: Iterable[str] = ()) -> str:
    """Return a table as HTML for a notebook. All text is escaped: titles and ids come from strangers."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row)}</tr>" for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><p>{escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
