"""Histories of any users, translated to the columns of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.data.catalog import Catalog
from gramian.data.ids import as_id_list
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.sparse import csr_from_sorted
from gramian.validation import is_number

History = Iterable[Any] | Mapping[Any, float]  # item ids, or item id → weight
Histories = Iterable[History] | Interactions
LARGEST_WEIGHT = float(np.finfo(np.float32).max)


def encode_histories(histories: Histories, catalog: Catalog) -> tuple[sp.csr_array, list[list[Any]]]:
    """Return histories as rows in the columns of a catalog, and for each history the items that the catalog does not have."""
    if isinstance(histories, Interactions):
        return encode_interactions(histories, catalog)
    histories = as_id_list("histories", histories)
    lists = [as_id_list("item ids", history) for history in histories]
    ids, rows = list(chain.from_iterable(lists)), np.repeat(np.arange(len(lists)), [len(items) for items in lists])
    columns = catalog.ids.positions(ids)
    weights = np.fromiter(chain.from_iterable(map(history_weights, histories, lists)), np.float32, len(ids))
    unknown: list[list[Any]] = [[] for _ in lists]
    for position in np.flatnonzero(columns < 0):
        unknown[rows[position]].append(ids[position])
    known, n_items = np.flatnonzero(columns >= 0), len(catalog)
    cells, first = np.unique(rows[known] * n_items + columns[known], return_index=True)  # the first of repeated items counts
    shape = (len(lists), n_items)
    return csr_from_sorted(cells // n_items, cells % n_items, weights[known][first], shape), unknown


def encode_interactions(events: Interactions, catalog: Catalog) -> tuple[sp.csr_array, list[list[Any]]]:
    """Return each user's interactions as a history."""
    unknown: list[list[Any]] = [[] for _ in range(events.n_users)]
    is_unknown = catalog.ids.positions(events.items.tolist()) < 0
    entries = np.flatnonzero(is_unknown[events.matrix.indices])
    for row, item in zip(events.rows[entries], events.items[events.matrix.indices[entries]], strict=True):
        unknown[row].append(item)
    return events.reindex(events.users, catalog.ids).matrix, unknown


def history_weights(history: History, items: list[Any]) -> Iterable[float]:
    """Return the weight of each item of a history, 1 where it has none, or raise `InvalidInput`."""
    if not isinstance(history, Mapping):
        return repeat(1.0, len(items))
    if not all(is_number(weight) and 0 < weight < LARGEST_WEIGHT for weight in history.values()):
        raise InvalidInput("weights above 0 and below 3e38 in a history", repr(history), "Leave out what has no weight")
    return history.values()
