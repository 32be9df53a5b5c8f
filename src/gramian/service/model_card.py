"""Charts of a model for its page: its spectrum or its weights, and how popular the items are that it recommends."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramian.core.scorer import SupportsExplanations, SupportsFactors
from gramian.service.served_model import SCORING_LOCK, ServedModel, users_per_slice

# Samples keep a card under a second for 20,000 items; they are evenly spaced, so that a model always has the same card.
SAMPLED_COLUMNS = 64  # of W, for the histogram of weights
HISTOGRAM_BINS = 61
SAMPLED_USERS = 500  # whose lists are counted
SAMPLED_LIST_LENGTH = 20
CURVE_POINTS = 101


def build_model_card(served: ServedModel) -> dict[str, Any]:
    """Return the numbers of the charts as JSON."""
    return {"picture": spectrum(served) or weight_histogram(served), "popularity": popularity_curves(served)}


def spectrum(served: ServedModel) -> dict[str, Any] | None:
    """Return the singular values of a low-rank W, or of the item vectors; None for other models."""
    if not isinstance(served.model.scorer, SupportsFactors):
        return None
    arrays = [array.astype(np.float64) for array in served.model.scorer.factors().values()]
    first, *second = (np.linalg.qr(array)[1] for array in arrays)
    core = first @ second[0].T if second else first
    return {"kind": "spectrum", "values": np.linalg.svd(core, compute_uv=False).tolist()}


def weight_histogram(served: ServedModel) -> dict[str, Any] | None:
    """Return a histogram of the off-diagonal weights in a sample of the columns of W; None for models without weights."""
    scorer, n_items = served.model.scorer, len(served.catalog)
    if not isinstance(scorer, SupportsExplanations):
        return None
    columns = np.unique(np.linspace(0, n_items - 1, SAMPLED_COLUMNS).astype(np.int64))
    items, ones = np.arange(n_items), np.ones(n_items, np.float32)
    sample = []
    for column in columns:
        with SCORING_LOCK:  # for one column at a time: requests are answered in between
            sample.append(np.delete(scorer.contributions(items, ones, int(column)), column))
    weights = np.concatenate(sample)
    limit = float(np.abs(weights).max(initial=0)) or 1.0
    counts, edges = np.histogram(weights, HISTOGRAM_BINS, (-limit, limit))
    return {"kind": "weights", "edges": edges.tolist(), "counts": counts.tolist()}


def popularity_curves(served: ServedModel) -> dict[str, list[float]]:
    """Return the share of the events, and of the items in a sample of lists, that the most popular items account for.

    A model without its users' histories has no lists to sample: the curve of the lists is empty.
    """
    histories, catalog = served.model.histories, served.catalog
    order = np.argsort(-catalog.popularity, kind="stable")
    item_shares = np.linspace(0, 1, CURVE_POINTS)
    n_first = np.rint(item_shares * len(catalog)).astype(np.int64)

    def cumulative_shares(counts: np.ndarray) -> list[float]:
        totals = np.concatenate([[0], np.cumsum(counts[order])])
        shares: list[float] = (totals / max(1, totals[-1]))[n_first].tolist()
        return shares

    lists: list[float] = []
    if histories is not None:
        users = np.unique(np.linspace(0, histories.n_users - 1, SAMPLED_USERS).astype(np.int64))
        counts, size = np.zeros(len(catalog), np.int64), users_per_slice(len(catalog))
        for start in range(0, len(users), size):
            with SCORING_LOCK:
                columns, _ = served.model.top_k(histories.matrix[users[start : start + size]], SAMPLED_LIST_LENGTH)
            counts += np.bincount(columns[columns >= 0], minlength=len(catalog))
        lists = cumulative_shares(counts)
    return {"items": item_shares.tolist(), "events": cumulative_shares(catalog.popularity), "lists": lists}
