"""Tags of an item, from lists or from text."""

from __future__ import annotations

from collections.abc import Iterable


def parse_tags(tags: str | Iterable[str] | None, separator: str = "|") -> tuple[str, ...]:
    """Return distinct tags in order, from a list or from text such as "Comedy|Romance"; a single number is a tag, too."""
    words = tags.split(separator) if isinstance(tags, str) else tags if isinstance(tags, Iterable) else (tags,)
    return tuple(dict.fromkeys(str(tag).strip() for tag in words if tag is not None and str(tag).strip()))
