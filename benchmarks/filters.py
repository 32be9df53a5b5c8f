"""Graph filters: their cost against EASE's inverse, and when the dense form is faster. Ratios within one run.

python benchmarks/filters.py gowalla              # fits of filters against the fit of EASE, with lists of a few users
python benchmarks/filters.py dense --items 4000   # p(Q) as a matrix against products with the sparse R̃, by density
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
from gramian.data.synthetic import clustered
from gramian.linalg.eigen import ImplicitGram
from gramian.linalg.symmetric import Symmetric
from gramian.models.graph_filter import LINEAR, SYMMETRIC, filter_scorer, normalise

SERVED_USERS = 64
DENSITIES = (10, 30, 100, 300, 1_000, 3_000)  # n² / interactions


def gowalla() -> None:
    """Time fits of filters on gowalla, and the fit of EASE, which inverts a matrix of users × users there."""
    events = gr.split.published("gowalla").train
    filters = (gr.GFCF(), gr.ChebyCF(rank=512, low_pass=0.2, flatness=1.5, item_power=0.4))
    compile_kernels(gr.GFCF(rank=16), gr.ChebyCF(rank=16), gr.EASE())
    measured: dict[str, dict[str, float]] = {}
    for recipe in (*filters, gr.EASE(l2=80)):
        (model, memory), fit = timed(lambda recipe=recipe: recipe.fit(events))  # type: ignore[misc]
        scoring = seconds(lambda model=model: model.recommend(events.users[:SERVED_USERS], k=20))  # type: ignore[misc]
        measured[str(recipe)] = {"seconds": fit, "peak_bytes": memory, "users_per_second": SERVED_USERS / scoring}
        print(f"{recipe}: {fit:.1f} s, {memory / 1e6:,.0f} MB, {SERVED_USERS / scoring:.0f} users/s", flush=True)
    row: dict[str, Any] = {"job": "gowalla", "items": events.n_items, "interactions": events.n_interactions}
    append("filters", row | {"models": measured})


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
