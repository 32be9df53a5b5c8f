"""Histories of any users, translated to the columns of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.scorer import EncodesHistories, Scorer
from gramian.data.catalog import Catalog
from gramian.data.ids import as_id_list
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.linalg.sparse import csr_from_sorted
from gramian.validation import is_number

History = Iterable[Any] | Mapping[Any, float]  # item ids, or item id → weight
Histories = Iterable[History] | Interactions
LARGEST_WEIGHT = float(np.finfo(np.float32).max)


def encode_histories(
    histories: Histories, catalog: Catalog, scorer: Scorer, takes_dislikes: bool = False
) -> tuple[sp.csr_array, list[list[Any]]]:
    """Return histories as rows in the columns of a catalog, and for each history the items that the catalog does not have.

    The values are weights, or those of a scorer with values of its own.
    """
    if isinstance(histories, Interactions):
        return encode_interactions(encode_events(histories, scorer), catalog)
    encode = scorer.encode_history if isinstance(scorer, EncodesHistories) else history_weights
    if takes_dislikes and not isinstance(scorer, EncodesHistories):
        encode = signed_weights
    histories = as_id_list("histories", histories)
    lists = [as_id_list("item ids", history) for history in histories]
    ids, rows = list(chain.from_iterable(lists)), np.repeat(np.arange(len(lists)), [len(items) for items in lists])
    columns = catalog.ids.positions(ids)
    weights = np.fromiter(chain.from_iterable(map(encode, histories, lists)), np.float32, len(ids))
    unknown: list[list[Any]] = [[] for _ in lists]
    for position in np.flatnonzero(columns < 0):
        unknown[rows[position]].append(ids[position])
    known, n_items = np.flatnonzero(columns >= 0), len(catalog)
    latest_first = known[::-1]  # the last of repeated items counts: histories are in the order of time
    cells, first = np.unique(rows[latest_first] * n_items + columns[latest_first], return_index=True)
    shape = (len(lists), n_items)
    return csr_from_sorted(cells // n_items, cells % n_items, weights[latest_first][first], shape), unknown


def encode_events(events: Interactions, scorer: Scorer) -> Interactions:
    """Return interactions with the values that a scorer takes."""
    return scorer.encode_events(events) if isinstance(scorer, EncodesHistories) else events


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


def signed_weights(history: History, items: list[Any]) -> Iterable[float]:
    """Return the weight of each item of a history, which is below 0 for a dislike, or raise `InvalidInput`."""
    if not isinstance(history, Mapping):
        return repeat(1.0, len(items))
    if not all(is_number(weight) and 0 < abs(weight) < LARGEST_WEIGHT for weight in history.values()):
        expected = "weights between −3e38 and 3e38 and not 0 in a history"
        raise InvalidInput(expected, repr(history), "Leave out what has no weight")
    return history.values()
