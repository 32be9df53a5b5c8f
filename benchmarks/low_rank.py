"""The spectral engine: truncating an autoencoder against its inverse, PCA against other libraries. Ratios within one run.

    python benchmarks/low_rank.py truncate    # LowRankEDLAE, rank 1,000 of 20,000 items, against the inverse it starts from
    python benchmarks/low_rank.py pca         # rank 512 of 10 million interactions, against scikit-learn and SciPy

A residual is the largest ‖XᵀXv − σ²v‖ / σ² of the 512; theirs are asked for the accuracy that ours has, where they can be.
"""

import argparse
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from journal import append
from measure import seconds
from scipy.sparse.linalg import svds
from sklearn.decomposition import TruncatedSVD

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.spectral import ACCURACY, GramOf, top
from gramian.models.autoencoders import squares
from gramian.models.low_rank import Output, encoded

SLOWEST = 6  # times our seconds, after which a rival is not asked for more accuracy


def truncate(n_items: int, rank: int) -> None:
    events, recipe = clustered(136_000, n_items, 10_000_000), gr.LowRankEDLAE(rank)
    gr.LowRankEDLAE(8).fit(clustered(500, 300, 5_000))  # compiles
    found: list[gr.Recommender] = []
    inverse = seconds(lambda: found.append(recipe.full.fit(events)))
    weights = found[0].scorer
    operator = Output(weights, events.matrix, recipe.full.safe_penalty(squares(events)))  # type: ignore[arg-type]
    ours = seconds(lambda: encoded(weights, top(operator, rank).vectors))  # type: ignore[arg-type]
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
    events = clustered(136_000, n_items, 15_500_000)
    print(f"{events}, rank {rank}")
    x = sp.csr_matrix(events.matrix)
    gram = GramOf(events.matrix, np.float32)
    gram @ np.ones((n_items, 16), np.float32)  # compiles

    def residual(vectors: np.ndarray) -> float:
        image = gram @ np.ascontiguousarray(vectors, dtype=np.float32)
        values = np.einsum("ik,ik->k", image, vectors)
        return float((np.linalg.norm(image - vectors * values, axis=0) / values).max())

    def measured(name: str, fit: Callable[[], np.ndarray]) -> float:
        found: list[np.ndarray] = []
        elapsed = seconds(lambda: found.append(fit()))
        off = residual(found[0])
        print(f"{name:<44}{elapsed:8.1f} s   residual {off:.1e}", flush=True)
        append("low_rank", {"job": "pca", "rank": rank, "how": name, "seconds": elapsed, "residual": off, **size})
        return elapsed

    size = {"users": events.n_users, "items": events.n_items, "interactions": events.n_interactions}
    ours = measured("gramian", lambda: top(gram, rank).vectors)
    measured(f"scipy svds, tol {ACCURACY:g}", lambda: svds(x, rank, tol=ACCURACY, random_state=0)[2].T)
    arpack = TruncatedSVD(rank, algorithm="arpack", tol=ACCURACY, random_state=0)
    measured(f"scikit-learn arpack, tol {ACCURACY:g}", lambda: arpack.fit(x).components_.T)
    for n_iter in (5, 10, 20, 40):
        randomized = TruncatedSVD(rank, n_iter=n_iter, random_state=0)
        fit = lambda model=randomized: model.fit(x).components_.T  # noqa: E731
        if measured(f"scikit-learn randomized, {n_iter} iterations", fit) > SLOWEST * ours:
            break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["truncate", "pca"])
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--rank", type=int)
    given = parser.parse_args()
    if given.job == "truncate":
        truncate(given.items, given.rank or 1_000)
    else:
        pca(given.items, given.rank or 512)
