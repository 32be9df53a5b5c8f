"""Tune implicit's ALS or RecTools' EASE by Optuna within a budget of seconds, in the peer's own environment.

    tune_with_optuna.py PEER FOLDER SECONDS TRIALS

The folder has train, fold_in and target (to choose), test_train and test_fold_in (for the test) as npz files. The lists of the
test users are written to lists.npy; the last line printed is JSON with the trials, the seconds and the best parameters.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import scipy.sparse as sp

K = 20
STARTED = time.perf_counter()
Lists = Callable[[sp.csr_matrix], np.ndarray]


def fit_implicit(train: sp.csr_matrix, params: dict[str, Any]) -> Lists:
    from implicit.als import AlternatingLeastSquares  # noqa: PLC0415

    model = AlternatingLeastSquares(**params, use_gpu=False, random_state=0)
    model.fit(train, show_progress=False)

    def rank(histories: sp.csr_matrix) -> np.ndarray:
        users = np.arange(histories.shape[0])
        ids, _ = model.recommend(users, histories, N=K, filter_already_liked_items=True, recalculate_user=True)
        return np.asarray(ids)

    return rank


def fit_rectools(train: sp.csr_matrix, params: dict[str, Any]) -> Lists:
    import pandas as pd  # noqa: PLC0415
    from rectools import Columns  # noqa: PLC0415
    from rectools.dataset import Dataset, IdMap, Interactions  # noqa: PLC0415
    from rectools.models import EASEModel  # noqa: PLC0415

    entries = train.tocoo()
    columns = {Columns.User: entries.row, Columns.Item: entries.col, Columns.Weight: entries.data}
    frame = pd.DataFrame(columns | {Columns.Datetime: pd.Timestamp("2026-01-01")})
    data = Dataset(*(IdMap(np.arange(size)) for size in train.shape), Interactions(frame))
    weights = EASEModel(**params).fit(data).weight  # it recommends with their transpose, so that we score with them ourselves
    n_items = len(weights)

    def rank(histories: sp.csr_matrix) -> np.ndarray:
        scores = np.full(histories.shape, -np.inf, np.float32)
        scores[:, :n_items] = histories[:, :n_items] @ weights
        scores[histories.nonzero()] = -np.inf
        return np.argsort(-scores, axis=1, kind="stable")[:, :K]

    return rank


def suggest_implicit(trial: optuna.Trial) -> dict[str, Any]:
    return {
        "factors": trial.suggest_int("factors", 16, 256, log=True),
        "regularization": trial.suggest_float("regularization", 1e-3, 10, log=True),
        "alpha": trial.suggest_float("alpha", 0.3, 100, log=True),
        "iterations": trial.suggest_int("iterations", 5, 30),
    }


def suggest_rectools(trial: optuna.Trial) -> dict[str, Any]:
    return {"regularization": trial.suggest_float("regularization", 1, 10_000, log=True)}


PEERS = {"implicit": (fit_implicit, suggest_implicit), "rectools": (fit_rectools, suggest_rectools)}


def ndcg(lists: np.ndarray, target: sp.csr_matrix) -> float:
    """Return the mean ndcg, as gramian defines it."""
    discount = 1 / np.log2(np.arange(2, K + 2))
    values = []
    for row, listed in enumerate(lists):
        targets = target.indices[target.indptr[row] : target.indptr[row + 1]]
        values.append(discount[np.isin(listed, targets)].sum() / discount[: len(targets)].sum())
    return float(np.mean(values))


def main() -> None:
    peer, folder, budget, trials = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    fit, suggest = PEERS[peer]
    names = ("train", "fold_in", "target", "test_train", "test_fold_in")
    train, fold_in, target, test_train, test_fold_in = (sp.load_npz(folder / f"{name}.npz").tocsr() for name in names)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    longest = 0.0
    for _ in range(trials):
        if time.perf_counter() - STARTED + 2.5 * longest > budget:  # a trial, and the last fit
            break
        began = time.perf_counter()
        trial = study.ask()
        study.tell(trial, ndcg(fit(train, suggest(trial))(fold_in), target))
        longest = max(longest, time.perf_counter() - began)
    best = dict(study.best_params)
    np.save(folder / "lists.npy", fit(test_train, best)(test_fold_in))
    facts = {
        "trials": len(study.trials),
        "seconds": time.perf_counter() - STARTED,
        "params": best,
        "validation": study.best_value,
    }
    print(json.dumps(facts))


main()
