from pathlib import Path

import numpy as np
import scipy.sparse as sp
from cornac.data import Dataset
from cornac.eval_methods.base_method import ranking_eval
from cornac.metrics import NDCG, Recall
from cornac.models import EASE, Recommender
from worker import L2, SCORED, Job, K, main, matrix, rows


def dataset(histories: sp.csr_matrix) -> Dataset:
    ids = [{place: place for place in range(size)} for size in histories.shape]
    entries = rows(histories), histories.indices, histories.data.astype(np.float64)  # doubles, as it reads them
    ready = Dataset(*histories.shape, *ids, entries)
    assert ready.matrix.nnz == histories.nnz  # made here, before the job
    return ready


def fit(data: Path) -> Job:
    train = matrix(data, "train")
    ready = dataset(train)
    return lambda: EASE(lamb=L2, posB=False, verbose=False).fit(ready), lambda model: train[:SCORED] @ model.B


def evaluate(data: Path) -> Job:
    """Its model with our weights, to spare the fit, in the doubles that its own fit leaves."""
    train, target = (dataset(matrix(data, name)) for name in ("train", "target"))
    model = EASE(lamb=L2, posB=False, verbose=False)
    Recommender.fit(model, train)
    model.U, model.B = train.matrix, np.load(data / "weights.npy").astype(np.float64, order="C")
    k = min(K, train.num_items // 10)  # in the warm-up some have fewer than 20 items left, which it cannot rank
    return lambda: ranking_eval(model, [NDCG(k), Recall(k)], train, target), lambda found: found[0]


main({"EASE fit": fit, "evaluation": evaluate})
