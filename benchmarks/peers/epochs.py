"""Epochs of alternating least squares by one library: `epochs.py <side> <folder> <rank> <solver> <n_epochs>`.

Prints, as JSON, the seconds and CPU seconds of each epoch and the objective after the last. Needs NumPy, SciPy and that library
only. The loss is that of iALS (2022) for irspack, and of WRMF for implicit and LensKit, which have no other; gramian has both,
and RG2ALS.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import wall_and_cpu_seconds
from worker import CORES, RANK, Job, matrix

UNOBSERVED, POSITIVE, RIDGE, PLAIN = 0.1, 10.0, 0.01, 100.0
COMPARED = 5  # epochs after which losses are compared
Training = tuple[
    Callable[[], object], Callable[[], tuple[np.ndarray, np.ndarray]]
]  # runs one more epoch; returns the user and item vectors


def irspack(x: sp.csr_matrix, rank: int, solver: str) -> Training:
    from irspack.recommenders.ials import IALSTrainer, LossType, SolverType  # noqa: PLC0415

    kind, loss = getattr(SolverType, solver.upper()), LossType.IALSPP
    trainer = IALSTrainer(x, rank, UNOBSERVED, RIDGE, 1.0, 0.1, kind, 3, 32, loss, 42, CORES, 5, 7)
    return trainer.run_epoch, lambda: (trainer.core_trainer.user, trainer.core_trainer.item)


def implicit(x: sp.csr_matrix, rank: int, solver: str) -> Training:
    from implicit.cpu.als import AlternatingLeastSquares  # noqa: PLC0415

    params = {"regularization": PLAIN, "alpha": 1.0, "num_threads": CORES, "random_state": 42}
    model = AlternatingLeastSquares(factors=rank, iterations=0, use_cg=solver == "cg", **params)
    weighted = x.astype(np.float32)
    weighted.data[:] = 1 + POSITIVE  # of a positive; unobserved items weigh 1
    model.fit(weighted, show_progress=False)  # no epochs: only initialises the vectors
    by_item = weighted.T.tocsr()

    def epoch() -> None:
        """Run one epoch, as `fit` does in a loop."""
        users, items = model.user_factors, model.item_factors
        model.solver(weighted, users, items, PLAIN, num_threads=CORES)
        model.solver(by_item, items, users, PLAIN, num_threads=CORES)

    return epoch, lambda: (model.user_factors, model.item_factors)


def lenskit(x: sp.csr_matrix, rank: int, solver: str) -> Training:
    """Train as LensKit does in a loop; it has Cholesky only."""
    from lenskit.als import ImplicitMFScorer  # noqa: PLC0415
    from lenskit.data import from_interactions_df  # noqa: PLC0415
    from lenskit.training import TrainingOptions  # noqa: PLC0415
    from pandas import DataFrame  # noqa: PLC0415

    assert solver == "cholesky"
    frame = DataFrame({"user_id": np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), "item_id": x.indices})
    events = from_interactions_df(frame, users=np.arange(x.shape[0]), items=np.arange(x.shape[1]))
    scorer = ImplicitMFScorer(embedding_size=rank, weight=POSITIVE, regularization=PLAIN)
    trainer = scorer.create_trainer(events, TrainingOptions(rng=42))
    return trainer.train_epoch, lambda: (scorer.user_embeddings, scorer.item_embeddings)


def best(folder: Path, rank: int, n_epochs: int) -> None:
    """Print implicit's seconds and validation ndcg@10 after each epoch. Its own evaluation is not timed."""
    from implicit.cpu.als import AlternatingLeastSquares  # noqa: PLC0415
    from implicit.evaluation import ranking_metrics_at_k  # noqa: PLC0415

    x, target = matrix(folder, "train"), matrix(folder, "target")
    params = {"regularization": PLAIN, "alpha": 1.0, "num_threads": CORES, "random_state": 42}
    model = AlternatingLeastSquares(factors=rank, iterations=n_epochs, use_cg=True, **params)
    x.data[:] = 1 + POSITIVE
    seconds, cpu_seconds, values = [], [], []

    def evaluate(epoch: int, elapsed: float, loss: float) -> None:
        seconds.append(elapsed)
        cpu_seconds.append(time.process_time() - cpu_started[-1])
        values.append(ranking_metrics_at_k(model, x, target, K=10, show_progress=False, num_threads=CORES)["ndcg"])

        cpu_started.append(time.process_time())

    cpu_started = [time.process_time()]
    model.fit(x, show_progress=False, callback=evaluate)
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "ndcg": values, "version": version("implicit")}))


def gramian(x: sp.csr_matrix, rank: int, solver: str) -> Training:
    import gramian as gr  # noqa: PLC0415

    loss, _, solver_name = solver.partition(" ")
    solver_object = {"cg": gr.ConjugateGradient(), "cholesky": gr.Cholesky(), "subspace": gr.Subspace(), "": gr.Cholesky()}[
        solver_name
    ]
    shared: dict[str, Any] = {"rank": rank, "solver": solver_object}
    recipe: Any = {
        "ials": lambda: gr.IALS(unobserved_weight=UNOBSERVED, l2=RIDGE, **shared),
        "wrmf": lambda: gr.WRMF(positive_weight=POSITIVE, l2=PLAIN, **shared),
        "rg2": lambda: gr.RG2ALS(l2=0.1, **shared),
    }[loss]()
    events, last = gr.Interactions.of(x), list[Any]()
    training = recipe.iterate(events, recipe.initial_state(events, np.float32))

    def epoch() -> None:
        last.clear()
        last.append(next(training))

    return epoch, lambda: (last[0].users, last[0].items)


def epoch_job(train: Callable[[sp.csr_matrix, int, str], Training], data: Path, solver: str, loss: str) -> Job:
    """Time the second epoch: the first also prepares. Initial vectors differ, so losses are compared a few epochs later."""
    x = matrix(data, "train")
    epoch, vectors = train(x, min(RANK, *x.shape), solver)
    epoch()

    def answer(_: object) -> float:
        for _ in range(COMPARED - 2):
            epoch()
        return objective(x, *vectors(), loss)

    return epoch, answer


def objective(x: sp.csr_matrix, p: np.ndarray, q: np.ndarray, loss: str) -> float:
    """Return the loss with its penalties, in float64."""
    p, q = p.astype(np.float64), q.astype(np.float64)
    rows, total = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), np.vdot(p.T @ p, q.T @ q)
    scores = np.concatenate([np.einsum("ek,ek->e", p[r], q[c]) for r, c in split_pairs(rows, x.indices)])
    user_norms, item_norms = (p**2).sum(axis=1), (q**2).sum(axis=1)
    if loss == "wrmf":
        positive = (1 + POSITIVE) * ((1 - scores) ** 2).sum() - (scores**2).sum()
        return float(positive + total + PLAIN * (user_norms.sum() + item_norms.sum()))
    ridges = np.diff(x.indptr) + UNOBSERVED * x.shape[1], np.bincount(x.indices, minlength=x.shape[1]) + UNOBSERVED * x.shape[0]
    penalty = RIDGE * (ridges[0] @ user_norms + ridges[1] @ item_norms)
    return float(((1 - scores) ** 2).sum() + UNOBSERVED * total + penalty)


def split_pairs(rows: np.ndarray, columns: np.ndarray, size: int = 1_000_000) -> Any:
    return ((rows[at : at + size], columns[at : at + size]) for at in range(0, len(rows), size))


def main() -> None:
    side, folder, rank, solver, n_epochs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    if solver == "best":
        best(folder, rank, n_epochs)
        return
    train = {"irspack": irspack, "implicit": implicit, "gramian": gramian}[side]
    train(matrix(folder, "tiny"), 8, solver)[0]()  # compile, start the threads
    x = matrix(folder, "train")
    epoch, vectors = train(x, rank, solver)
    seconds, cpu_seconds = zip(*(wall_and_cpu_seconds(epoch) for _ in range(n_epochs)), strict=True)
    loss = {"irspack": "ials", "implicit": "wrmf"}.get(side, solver.split()[0])
    value = None if loss == "rg2" else objective(x, *vectors(), loss)
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "objective": value, "version": version(side)}))


if __name__ == "__main__":
    main()
