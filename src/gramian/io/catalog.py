"""Catalogs in saved folders."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.data.catalog import Catalog
from gramian.data.ids import Index
from gramian.io.damage import require_content


def catalog_ids(catalog: Catalog) -> dict[str, list[Any]]:
    """Return the ids, titles and tags of a catalog as the id lists of a folder."""
    described = {"items": catalog.ids.tolist(), "titles": catalog.titles, "tags": catalog.tags}
    return {name: list(values) for name, values in described.items() if values is not None}


def read_catalog(popularity: np.ndarray, ids: dict[str, list[Any]]) -> Catalog:
    """Restore a catalog from its popularity and the id lists of a folder, after checking them."""
    items, titles, tags = Index(ids["items"]), ids.get("titles"), ids.get("tags")
    are_titles_valid = titles is None or (len(titles) == len(items) and all(isinstance(title, str) for title in titles))
    require_content(are_titles_valid, "a title for every item")
    are_tags_text = tags is None or all(isinstance(row, tuple) and all(isinstance(tag, str) for tag in row) for row in tags)
    require_content(are_tags_text and (tags is None or len(tags) == len(items)), "tags for every item")
    are_counts_valid = popularity.shape == (len(items),) and popularity.dtype == np.int64 and bool((popularity >= 0).all())
    require_content(are_counts_valid, "how many users touched each item")
    return Catalog(items, popularity, titles, tags)
