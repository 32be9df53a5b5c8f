from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from rectools import Columns
from rectools.dataset import Dataset, IdMap, Interactions
from rectools.metrics import NDCG, Recall, calc_metrics
from rectools.models import EASEModel
from worker import L2, SCORED, Job, K, main, matrix, rows


def dataset(histories: sp.csr_matrix) -> Dataset:
    columns = {Columns.User: rows(histories), Columns.Item: histories.indices, Columns.Weight: histories.data}
    frame = pd.DataFrame(columns | {Columns.Datetime: pd.Timestamp("2026-01-01")})
    return Dataset(*(IdMap(np.arange(size)) for size in histories.shape), Interactions(frame))


def fit(data: Path) -> Job:
    train = matrix(data, "train")
    ready = dataset(train)
    # its weights are right, but it recommends with their transpose: so we score with them
    return lambda: EASEModel(L2).fit(ready), lambda model: train[:SCORED, : len(model.weight)] @ model.weight


def top_k(data: Path) -> Job:
    sample = matrix(data, "sample")
    n_users, n_items = sample.shape[0], sample.indices.max() + 1  # its matrix ends with the last item anyone has
    ready, model = dataset(sample), EASEModel(L2)
    model.weight = np.ascontiguousarray(np.load(data / "weights.npy").T[:n_items, :n_items])  # transposed, for right lists
    model.is_fitted = True

    def lists(found: pd.DataFrame) -> np.ndarray:
        columns = np.full((n_users, K), -1)
        columns[found[Columns.User], found[Columns.Rank] - 1] = found[Columns.Item]
        return columns

    return lambda: model.recommend(np.arange(n_users), ready, k=K, filter_viewed=True), lists


def frames(columns: np.ndarray, target: sp.csr_matrix) -> tuple[pd.DataFrame, pd.DataFrame]:
    users, ranks = np.indices(columns.shape)
    shown = pd.DataFrame({Columns.User: users.ravel(), Columns.Item: columns.ravel(), Columns.Rank: ranks.ravel() + 1})
    return shown, pd.DataFrame({Columns.User: rows(target), Columns.Item: target.indices})


def metrics(data: Path, build: bool) -> Job:
    """With the frames built as a part of the job, or before it."""
    arrays = np.load(data / "lists.npy"), matrix(data, "target")
    built = None if build else frames(*arrays)
    chosen = {"ndcg": NDCG(K, divide_by_achievable=True), "recall": Recall(K)}
    return lambda: calc_metrics(chosen, *(built or frames(*arrays))), lambda values: [values["ndcg"], values["recall"]]


main(
    {
        "EASE fit": fit,
        "top 20": top_k,
        "metrics": lambda data: metrics(data, build=False),
        "frames + metrics": lambda data: metrics(data, build=True),
    }
)
