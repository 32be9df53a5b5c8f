"""Suggestions for an id or a title that is unknown: what looks like it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from gramian.data.ids import Index

MAX_SUGGESTIONS = 3
MAX_COMPARED_TEXTS = 100_000  # texts whose spelling is compared; more would take seconds


def find_close_texts(text: str, candidates: Sequence[str]) -> list[str]:
    """Return a few candidates that contain the text or else are spelled like it, best first."""
    folded = text.casefold().strip()
    containing = [candidate for candidate in candidates if folded and folded in candidate.casefold()]
    similar = [] if containing else difflib.get_close_matches(text, candidates[:MAX_COMPARED_TEXTS], n=MAX_SUGGESTIONS)
    return list(dict.fromkeys(containing or similar))[:MAX_SUGGESTIONS]


def find_id_by_text(text: str, index: Index) -> Any:
    """Return the id of an index of integers or text that is written like this; None if there is none."""
    id_type = type(index[:1][0]) if len(index) else None
    try:
        id = {int: int, str: str}[id_type](text)  # type: ignore[index]
    except (KeyError, ValueError):
        return None
    return id if str(id) == text and index.positions([id])[0] >= 0 else None


def suggest_ids(unknown: Any, index: Index, do: str) -> str:
    """Return what to do about an unknown id: the ids that are close to it, or `do` if there are none."""
    same_text = find_id_by_text(str(unknown), index)
    if same_text is not None:
        return f"Pass {same_text!r}"
    has_texts = len(index) > 0 and isinstance(index[:1][0], str)
    close = find_close_texts(str(unknown), index.tolist()) if has_texts else []
    return f"Close: {', '.join(map(repr, close))}" if close else do
