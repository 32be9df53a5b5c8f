"""A model in pictures, for its page: its spectrum or its weights, and how popular the items are that it recommends."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.app.shelf import ONE_AT_A_TIME, Served
from gramian.errors import NotSupported

SAMPLE = 64  # items whose weights are counted
BINS = 61
ASKED = 500  # users whose lists are counted
LISTED = 20
POINTS = 101  # of a curve


def portrait(served: Served) -> dict[str, Any]:
    """Facts to draw; the same for the same model."""
    with ONE_AT_A_TIME:
        return {"picture": spectrum(served) or weights(served), "popularity": popularity(served)}


def spectrum(served: Served) -> dict[str, Any] | None:
    """The singular values of W where it is of low rank, or of the items' vectors; None for others."""
    try:
        arrays = [array.astype(np.float64) for array in served.model.scorer.factors().values()]
    except NotSupported:
        return None
    first, *second = (np.linalg.qr(array)[1] for array in arrays)
    core = first @ second[0].T if second else first
    return {"kind": "spectrum", "values": np.linalg.svd(core, compute_uv=False).tolist()}


def weights(served: Served) -> dict[str, Any] | None:
    """How large the weights between items are: a histogram of a sample of the columns of W; None without such weights."""
    n = served.events.n_items
    columns = np.unique(np.linspace(0, n - 1, SAMPLE).astype(np.int64))
    every, ones = np.arange(n), np.ones(n, np.float32)
    try:
        found = [np.delete(served.model.scorer.contributions(every, ones, int(column)), column) for column in columns]
    except NotSupported:
        return None
    values = np.concatenate(found)
    edge = float(np.abs(values).max(initial=0)) or 1.0
    counts, edges = np.histogram(values, BINS, (-edge, edge))
    return {"kind": "weights", "edges": edges.tolist(), "counts": counts.tolist()}


def popularity(served: Served) -> dict[str, list[float]]:
    """The share of events, and of the items in lists for some of the users, that the most popular items have."""
    events = served.events
    users = np.unique(np.linspace(0, events.n_users - 1, ASKED).astype(np.int64))
    columns, _ = served.model.top_k(events.matrix[users], LISTED)
    shown = np.bincount(columns[columns >= 0], minlength=events.n_items)
    order = np.argsort(-events.popularity, kind="stable")
    at = np.linspace(0, 1, POINTS)
    places = np.rint(at * events.n_items).astype(np.int64)
    cumulative = (np.concatenate([[0], np.cumsum(counts[order])]) for counts in (events.popularity, shown))
    shares = [(total / max(1, total[-1]))[places].tolist() for total in cumulative]
    return {"items": at.tolist(), "events": shares[0], "lists": shares[1]}
