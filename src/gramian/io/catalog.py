"""Catalogs in saved folders."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.data.catalog import Catalog
from gramian.data.features import KINDS, FeatureBlock, Features
from gramian.data.ids import Index
from gramian.io.damage import require_content, require_finite
from gramian.io.sparse import load_csr, save_csr

FEATURE_PREFIX = "features."


def catalog_ids(catalog: Catalog) -> dict[str, list[Any]]:
    """Return the ids, titles, tags and names of features of a catalog as the id lists of a folder."""
    described = {"items": catalog.ids.tolist(), "titles": catalog.titles, "tags": catalog.tags}
    if catalog.features is not None:
        described["features"] = catalog.features.names
        described["feature_blocks"] = [(block.name, block.kind, len(block)) for block in catalog.features.blocks]
    return {name: list(values) for name, values in described.items() if values is not None}


def feature_arrays(catalog: Catalog) -> dict[str, np.ndarray]:
    """Return the features of a catalog as arrays of a folder; none if it has none."""
    if catalog.features is None:
        return {}
    arrays = save_csr(catalog.features.matrix)
    for name in ("center", "scale"):
        arrays[name] = np.concatenate([getattr(block, name) for block in catalog.features.blocks])
    return {FEATURE_PREFIX + name: array for name, array in arrays.items()}


def read_catalog(popularity: np.ndarray, ids: dict[str, list[Any]], arrays: dict[str, np.ndarray]) -> Catalog:
    """Restore a catalog from its popularity and the id lists and arrays of a folder, after checking them."""
    items, titles, tags = Index(ids["items"]), ids.get("titles"), ids.get("tags")
    are_titles_valid = titles is None or (len(titles) == len(items) and all(isinstance(title, str) for title in titles))
    require_content(are_titles_valid, "a title for every item")
    are_tags_text = tags is None or all(isinstance(row, tuple) and all(isinstance(tag, str) for tag in row) for row in tags)
    require_content(are_tags_text and (tags is None or len(tags) == len(items)), "tags for every item")
    are_counts_valid = popularity.shape == (len(items),) and popularity.dtype == np.int64 and bool((popularity >= 0).all())
    require_content(are_counts_valid, "how many users touched each item")
    return Catalog(items, popularity, titles, tags, read_saved_features(items, ids, arrays) if "features" in ids else None)


def read_saved_features(items: Index, ids: dict[str, list[Any]], arrays: dict[str, np.ndarray]) -> Features:
    """Restore the features of a catalog from the id lists and arrays of a folder, after checking them."""
    names, rows = ids["features"], ids["feature_blocks"]
    by_name = {name.removeprefix(FEATURE_PREFIX): array for name, array in arrays.items() if name.startswith(FEATURE_PREFIX)}
    matrix = load_csr(by_name, len(names))
    center, scale = by_name["center"], by_name["scale"]
    require_finite(by_name)
    is_scaled = center.dtype == scale.dtype == np.float64 and center.shape == scale.shape == (len(names),)
    require_content(is_scaled, "the scale of every feature")
    require_content(matrix.shape[0] == len(items) and matrix.dtype == np.float32, "features of every item")
    is_named = all(isinstance(name, str) for name in names)
    are_blocks = all(
        len(row) == 3 and isinstance(row[0], str) and row[1] in KINDS and type(row[2]) is int and row[2] >= 0 for row in rows
    )
    require_content(is_named and are_blocks and sum(row[2] for row in rows) == len(names), "the blocks of features")
    blocks, start = [], 0
    for name, kind, size in rows:
        part = slice(start, start + size)
        blocks.append(FeatureBlock(name, kind, tuple(names[part]), center[part].copy(), scale[part].copy()))
        start += size
    return Features(items, matrix, tuple(blocks))
