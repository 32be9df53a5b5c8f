"""Graph filters: their cost against EASE's inverse, and when the dense form is faster. Ratios within one run.

    python benchmarks/filters.py gowalla              # fit of ChebyCF, rank 512, against the inverse of EASE
    python benchmarks/filters.py dense --items 4000   # p(Q) as a matrix against products with the sparse R̃, by density

The inverse of gowalla's 40,981 items takes eight minutes on two idle cores. It is timed on the most popular 10,000 items, in
the same run, and multiplied by (40,981/10,000)³; its memory is the estimate that a fit checks before it starts.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from journal import append
from measure import peak_bytes, seconds
from numpy.polynomial import Chebyshev

import gramian as gr
from gramian.core.gram import Gram
from gramian.core.recipe import Recipe
from gramian.data.ids import Index
from gramian.data.synthetic import clustered
from gramian.linalg.eigen import ImplicitGram
from gramian.linalg.symmetric import Symmetric
from gramian.models.graph_filter import LINEAR, SYMMETRIC, filter_scorer, normalise

INVERTED_ITEMS = 10_000
SERVED_USERS = 64
DENSITIES = (10, 30, 100, 300, 1_000, 3_000)  # n² / interactions


def gowalla() -> None:
    """Time a fit on gowalla, and a fit of EASE on its most popular items."""
    events, recipe = gr.split.published("gowalla").train, gr.ChebyCF(rank=512, low_pass=0.2, flatness=1.5, item_power=0.4)
    order = np.argsort(-events.popularity, kind="stable")[:INVERTED_ITEMS]
    popular = events.reindex(events.users, Index(events.items[np.sort(order)]))
    compile_kernels(gr.ChebyCF(rank=16), gr.EASE())
    (model, memory), fit = timed(lambda: recipe.fit(events))
    inverse = seconds(lambda: gr.EASE(l2=80).fit(popular))
    scaled = inverse * (events.n_items / INVERTED_ITEMS) ** 3
    scoring = seconds(lambda: model.recommend(events.users[:SERVED_USERS], k=20))
    row: dict[str, Any] = {
        "job": "gowalla",
        "recipe": recipe.to_json(),
        "items": events.n_items,
        "interactions": events.n_interactions,
    }
    row |= {"seconds": fit, "peak_bytes": memory, "users_per_second": SERVED_USERS / scoring}
    row |= {"inverse_items": INVERTED_ITEMS, "inverse_seconds": inverse, "scaled_inverse_seconds": scaled}
    inverse_bytes = gr.EASE(l2=80).estimate(events).peak_bytes
    row |= {"inverse_bytes": inverse_bytes, "ratio": fit / scaled}
    append("filters", row)
    print(f"{recipe} on {events.n_items:,} items: {fit:.1f} s, {memory / 1e6:,.0f} MB, {SERVED_USERS / scoring:.0f} users/s")
    print(f"EASE on {INVERTED_ITEMS:,} items: {inverse:.1f} s, so {scaled:.0f} s on all, {inverse_bytes / 1e6:,.0f} MB")
    print(f"ratio {fit / scaled:.3f} in time, {memory / inverse_bytes:.2f} in memory")


def dense(n_items: int) -> None:
    """Time p(Q) as a matrix against products with the sparse R̃, each with scoring as many histories as there are items."""
    for transfer in (LINEAR, gr.ChebyCF().transfer):
        for density in DENSITIES:
            events = clustered(n_items, n_items, n_items**2 // density)
            score_all(events, transfer, is_dense=True)  # compiles
            as_matrix = seconds(partial(score_all, events, transfer, is_dense=True))
            as_products = seconds(partial(score_all, events, transfer, is_dense=False))
            row = {"job": "dense", "items": n_items, "interactions": events.n_interactions, "degree": transfer.degree()}
            append("filters", row | {"dense_seconds": as_matrix, "sparse_seconds": as_products})
            entries, ratio = n_items**2 / events.n_interactions, as_matrix / as_products
            print(f"degree {transfer.degree()}, n²/interactions {entries:6.0f}: {as_matrix:6.2f} s dense, ratio {ratio:.2f}")


def score_all(events: gr.Interactions, transfer: Chebyshev, is_dense: bool) -> None:
    """Compute a filter, and score every user."""
    operator: Symmetric | ImplicitGram = (
        Gram.of(events, **SYMMETRIC._asdict()).matrix
        if is_dense
        else ImplicitGram(normalise(events, SYMMETRIC, np.float32), np.float32)
    )
    scorer = filter_scorer(operator, transfer)
    for first in range(0, events.n_users, scorer.users_per_block):
        for _ in scorer.panels(events.matrix[first : first + scorer.users_per_block]):
            pass


def compile_kernels(*recipes: Recipe) -> None:
    """Fit and serve small models, so that compilation is not measured."""
    events = clustered(2_000, 1_600, 20_000)
    for recipe in recipes:
        recipe.fit(events).recommend(events.users[:SERVED_USERS])


def timed(fit: Callable[[], gr.Recommender]) -> tuple[tuple[gr.Recommender, int], float]:
    """Return the model of a fit with its peak memory, and its seconds."""
    results: list[tuple[gr.Recommender, int]] = []
    elapsed = seconds(lambda: results.append(peak_bytes(fit)))
    return results[0], elapsed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["gowalla", "dense"])
    parser.add_argument("--items", type=int)
    arguments = parser.parse_args()
    if arguments.job == "gowalla":
        gowalla()
    else:
        dense(arguments.items or 4_000)
