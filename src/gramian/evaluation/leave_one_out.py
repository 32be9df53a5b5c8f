"""Exact leave-one-user-out cross-validation: m models, each trained without one user, from a single fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from gramian.data.ids import ids_of
from gramian.data.interactions import Interactions
from gramian.data.split import targets
from gramian.errors import InvalidInput, NotSupported, UnknownId
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, parsed_metrics
from gramian.evaluation.metrics import METRICS, Lists, find_hits
from gramian.linalg.leave_out import lists_without_self
from gramian.linalg.threads import threads
from gramian.models.autoencoders import LinearAutoencoder, family, squares
from gramian.models.recipe import Recipe, require_interactions
from gramian.progress import bar

ENTRIES = 8_000_000  # of the users' own small matrices in a block: 64 MB
HIT_METRICS = sorted(set(METRICS) - {"novelty", "popularity"})


def leave_one_user_out(
    recipe: Recipe,
    events: Interactions,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    fold_in: float = 0.8,
    seed: int = 0,
    users: Iterable[Any] | None = None,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> Report:
    """The metrics of as many models as there are users, each trained without one and judged on that one, from a single fit.

    Of each user a share `fold_in` is known and the rest is to be found; users with a single item are left out. `users` takes
    a sample. The lists are exactly those of the models fitted anew.
    """
    require_interactions(events)
    canonical = recipe.canonical() if isinstance(recipe, Recipe) else recipe
    if not isinstance(canonical, LinearAutoencoder):
        raise NotSupported("a full-rank linear autoencoder", type(recipe).__name__, "Evaluate it on a split")
    parsed = parsed_metrics(metrics)
    other = [metric for metric, (name, _) in parsed.items() if name not in HIT_METRICS]
    if other:
        raise InvalidInput(f"metrics of hits ({', '.join(HIT_METRICS)})", other[0], "Evaluate it on a split")
    rows = np.flatnonzero(np.diff(events.matrix.indptr) >= 2)
    if users is not None:
        chosen = events.users.positions(ids_of("user ids", users))
        if not set(chosen.tolist()) <= set(rows.tolist()):
            raise UnknownId("users of the events with two items or more", "others", "Leave them out")
        rows = np.unique(chosen)
    if len(rows) == 0:
        raise InvalidInput("users with two items or more", "none", "Give users more items")
    part = events.take(rows)
    is_target = targets(part, rows, 1 - fold_in, seed)
    k = min(max(k for _, k in parsed.values()), events.n_items)
    with threads(n_threads):
        inverse = canonical.fit(events, dtype=dtype).scorer.inverse  # type: ignore[attr-defined]
        s, factor = squares(events), family(canonical)
        columns = np.empty((len(rows), k), np.int32)
        sizes = np.diff(part.matrix.indptr).astype(np.int64) ** 2
        with bar("leaving users out", len(rows)) as advance:
            start = 0
            while start < len(rows):
                stop = start + max(1, int(np.searchsorted(np.cumsum(sizes[start:]), ENTRIES)))
                entries = slice(part.matrix.indptr[start], part.matrix.indptr[min(stop, len(rows))])
                some = part.matrix[start:stop]
                columns[start:stop] = lists_without_self(inverse, s, factor, some, ~is_target[entries], k)
                advance(some.shape[0])
                start = stop
        target = part.keep(is_target).matrix
        found = Lists(columns, find_hits(columns, target), np.diff(target.indptr).astype(np.int64), events.popularity, 0)
        per_user = {metric: METRICS[name](found, k) for metric, (name, k) in parsed.items()}
    split = sha256(f"{events.fingerprint} leave-one-user-out {fold_in} {seed} {users is None}".encode()).hexdigest()
    return Report(per_user, {}, part.users.tolist(), split, tuple(parsed))
