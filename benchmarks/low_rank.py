"""The spectral engine: truncating an autoencoder against its inverse, PCA against other libraries. Ratios within one run.

    python benchmarks/low_rank.py truncate    # LowRankEDLAE, rank 1,000 of 20,000 items, against the inverse it starts from
    python benchmarks/low_rank.py pca         # rank 512 of 10 million interactions, against scikit-learn and SciPy
    python benchmarks/low_rank.py edlae       # four ways to low-rank EDLAE on ml-1m, by loss, validation ndcg@100 and seconds

A residual is the largest ‖XᵀXv − σ²v‖ / σ² of the 512; the others are run at our tolerance where they have one.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from journal import append
from measure import seconds
from scipy.sparse.linalg import svds
from sklearn.decomposition import TruncatedSVD

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.eigen import RESIDUAL_TOLERANCE, ImplicitGram, top_eigenpairs
from gramian.models.low_rank import OutputGram, apply_weights
from gramian.models.spectral import gram_diagonal, gram_operator

SLOWEST = 6  # times our seconds: a slower run is not repeated with more iterations


def truncate(n_items: int, rank: int) -> None:
    """Time the decomposition of LowRankEDLAE against the full-rank fit it starts from."""
    events, recipe = clustered(136_000, n_items, 10_000_000), gr.LowRankEDLAE(rank)
    gr.LowRankEDLAE(8).fit(clustered(500, 300, 5_000))  # compiles
    models: list[gr.Recommender] = []
    inverse = seconds(lambda: models.append(recipe.full_rank.fit(events)))
    weights = models[0].scorer
    penalty = recipe.full_rank.coefficients.penalty(gram_diagonal(events))
    operator = OutputGram(weights, gram_operator(events, np.float32), penalty)  # type: ignore[arg-type]
    ours = seconds(lambda: apply_weights(weights, top_eigenpairs(operator, rank).vectors))  # type: ignore[arg-type]
    row = {
        "job": "truncate",
        "items": n_items,
        "rank": rank,
        "seconds": ours,
        "inverse_seconds": inverse,
        "ratio": ours / inverse,
    }
    print(
        f"rank {rank:,} of {n_items:,} items: {ours:.1f} s, the fit it starts from {inverse:.1f} s, ratio {ours / inverse:.2f}"
    )
    append("low_rank", row)


def pca(n_items: int, rank: int) -> None:
    """Time the top eigenpairs against SciPy and scikit-learn."""
    events = clustered(136_000, n_items, 15_500_000)
    print(f"{events}, rank {rank}")
    x = sp.csr_matrix(events.matrix)
    gram = ImplicitGram(events.matrix, np.float32)
    gram @ np.ones((n_items, 16), np.float32)  # compiles

    def residual(vectors: np.ndarray) -> float:
        image = gram @ np.ascontiguousarray(vectors, dtype=np.float32)
        values = np.einsum("ik,ik->k", image, vectors)
        return float((np.linalg.norm(image - vectors * values, axis=0) / values).max())

    def measure(name: str, fit: Callable[[], np.ndarray]) -> float:
        vectors: list[np.ndarray] = []
        elapsed = seconds(lambda: vectors.append(fit()))
        error = residual(vectors[0])
        print(f"{name:<44}{elapsed:8.1f} s   residual {error:.1e}", flush=True)
        append("low_rank", {"job": "pca", "rank": rank, "how": name, "seconds": elapsed, "residual": error, **size})
        return elapsed

    size = {"users": events.n_users, "items": events.n_items, "interactions": events.n_interactions}
    ours = measure("gramian", lambda: top_eigenpairs(gram, rank).vectors)
    measure(f"scipy svds, tol {RESIDUAL_TOLERANCE:g}", lambda: svds(x, rank, tol=RESIDUAL_TOLERANCE, random_state=0)[2].T)
    arpack = TruncatedSVD(rank, algorithm="arpack", tol=RESIDUAL_TOLERANCE, random_state=0)
    measure(f"scikit-learn arpack, tol {RESIDUAL_TOLERANCE:g}", lambda: arpack.fit(x).components_.T)
    for n_iter in (5, 10, 20, 40):
        randomized = TruncatedSVD(rank, n_iter=n_iter, random_state=0)
        fit = lambda model=randomized: model.fit(x).components_.T  # noqa: E731
        if measure(f"scikit-learn randomized, {n_iter} iterations", fit) > SLOWEST * ours:
            break


def edlae(ranks: list[int]) -> None:
    """Compare the ways to low-rank EDLAE on ml-1m: loss, validation ndcg@100 and seconds."""
    split = gr.split.strong(gr.datasets.load("ml-1m", min_value=4).k_core(5, 0), validation_users=600, test_users=600, seed=0)
    assert split.validation is not None
    shared: dict[str, Any] = {"dropout": 0.33, "l2": 400.0}
    dense = split.train.matrix.toarray()
    penalty = (0.33 / 0.67 * (dense**2).sum(axis=0) + 400)[:, None]

    def loss(recipe: object, model: gr.Recommender) -> float:
        w = model.weights() * (1 - 0.33 if isinstance(recipe, gr.LowRankEDLAE) else 1)
        np.fill_diagonal(w, 0)
        return float(((dense - dense @ w) ** 2).sum() + (penalty * w**2).sum())

    for rank in ranks:
        for recipe in (
            gr.LowRankEDLAE(rank, **shared),
            gr.ADMMEDLAE(rank, **shared),
            gr.ADMMEDLAE(rank, **shared, updates=gr.PrintedUpdates()),
            gr.ALSEDLAE(rank, **shared),
        ):
            fitted: list[gr.Recommender] = []
            try:
                elapsed = seconds(lambda recipe=recipe, fitted=fitted: fitted.append(recipe.fit(split.train)))  # type: ignore[misc]
            except gr.errors.Diverged as error:
                print(f"{recipe}: {error}")
                continue
            ndcg = gr.evaluate(fitted[0], split.validation, ["ndcg@100"])["ndcg@100"]
            row = {"job": "edlae", "recipe": str(recipe), "loss": loss(recipe, fitted[0]), "ndcg@100": ndcg, "seconds": elapsed}
            print(f"{recipe!s:80} loss {row['loss']:10,.0f}   ndcg@100 {ndcg:.4f}   {elapsed:5.1f} s", flush=True)
            append("low_rank", row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["truncate", "pca", "edlae"])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--rank", type=int)
    arguments = parser.parse_args()
    if arguments.job == "truncate":
        truncate(arguments.items, arguments.rank or 1_000)
    elif arguments.job == "edlae":
        edlae([arguments.rank] if arguments.rank else [64, 256])
    else:
        pca(arguments.items, arguments.rank or 512)
