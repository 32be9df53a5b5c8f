"""The spine against its bare ingredients: Gram, inverse, fused scoring, peak memory. Ratios within one run.

    python benchmarks/spine.py                  # 8,192 items
    python benchmarks/spine.py 20000 136000 10000000

Each job is timed alternately with its rival and the best of the rounds is taken. Needs an idle machine to mean anything.
"""

import argparse
from collections.abc import Callable

import numpy as np
from measure import peak_bytes, seconds
from scipy.linalg import lapack

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.inverse import invert
from gramian.linalg.memory import format_bytes
from gramian.linalg.symmetric import stored_size


def compare_times(name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int, rival: str) -> None:
    times = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    our, their = (min(column) for column in zip(*times, strict=True))
    print(f"{name:<44}{our:9.2f} s   {rival} {their:9.2f} s   ratio {our / their:.2f}", flush=True)


def gram(events: gr.Interactions, rounds: int) -> None:
    compare_times("Gram", lambda: gr.Gram.of(events), lambda: events.matrix.T @ events.matrix, rounds, "scipy X.T @ X")


def inverse(events: gr.Interactions, rounds: int) -> None:
    source = gr.Gram.of(events).matrix
    source.change_diagonal(lambda diagonal, first, last: diagonal + 200)
    half, full = source.copy(), np.asfortranarray(source.dense())

    def ours() -> None:
        half.buffer[:] = source.buffer
        invert(half)

    def theirs() -> None:
        whole = full.copy(order="F")
        root, _ = lapack.spotrf(whole, lower=1, overwrite_a=1, clean=0)
        lapack.spotri(root, lower=1, overwrite_c=1)

    compare_times("inverse, in place, half stored, checked", ours, theirs, rounds, "spotrf + spotri")


def fit(events: gr.Interactions) -> gr.Recommender:
    model, peak = peak_bytes(lambda: gr.EASE().fit(events))
    n_bytes = 2 * events.n_items**2
    stored = stored_size(events.n_items) * 4 / n_bytes
    print(
        f"fit: peak {format_bytes(peak)} over the interactions = {peak / n_bytes:.3f} of 2n² bytes (stored half: {stored:.3f})"
    )
    return model


def scoring(model: gr.Recommender, rounds: int) -> None:
    assert model.histories is not None
    matrix = model.histories.matrix
    histories = matrix[np.flatnonzero(np.diff(matrix.indptr))[:20_000]]
    peak = peak_bytes(lambda: model.top_k(histories, 20))[1]
    print(f"top 20 of {histories.shape[0]:,} users: peak {format_bytes(peak)}")
    weights = model.weights()

    def naive() -> None:
        for start in range(0, histories.shape[0], 1_000):
            block = histories[start : start + 1_000]
            scores = block @ weights
            scores[block.nonzero()] = -np.inf
            np.argpartition(-scores, 20, axis=1)

    compare_times("scoring, mask, top 20", lambda: model.top_k(histories, 20), naive, rounds, "scipy + argpartition")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("items", 8_192), ("users", 50_000), ("interactions", 4_000_000)):
        parser.add_argument(name, type=int, nargs="?", default=default)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    gr.EASE().fit(clustered(100, 50, 1_000)).recommend([0], k=20)  # compile
    events = clustered(arguments.users, arguments.items, arguments.interactions)
    print(events)
    gram(events, arguments.rounds)
    model = fit(events)
    scoring(model, arguments.rounds)
    del model
    inverse(events, arguments.rounds)


if __name__ == "__main__":
    main()
