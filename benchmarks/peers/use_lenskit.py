from pathlib import Path

import numpy as np
import pandas as pd
from epochs import epoch_job, lenskit
from lenskit.batch import recommend
from lenskit.data import Dataset, from_interactions_df
from lenskit.knn.ease import EASEScorer
from lenskit.pipeline import topn_pipeline
from lenskit.training import TrainingOptions
from worker import L2, SCORED, Job, K, main, matrix, rows


def dataset(data: Path) -> Dataset:
    train = matrix(data, "train")
    frame = pd.DataFrame({"user_id": rows(train), "item_id": train.indices})
    return from_interactions_df(frame, users=np.arange(train.shape[0]), items=np.arange(train.shape[1]))


def fit(data: Path) -> Job:
    events, train = dataset(data), matrix(data, "train")

    def run() -> EASEScorer:
        scorer = EASEScorer(regularization=L2)
        scorer.train(events)
        return scorer

    return run, lambda scorer: train[:SCORED] @ np.asarray(scorer.weights)


def top_k(data: Path) -> Job:
    """Its model with our weights, to spare the fit, in one process: its others are sent a copy of the model each."""
    events, scorer, users = dataset(data), EASEScorer(regularization=L2), np.arange(matrix(data, "sample").shape[0])
    scorer.items, scorer.weights = events.items, np.load(data / "weights.npy")
    pipeline = topn_pipeline(scorer, n=K)
    pipeline.train(events, TrainingOptions(retrain=False))

    def lists(found: object) -> np.ndarray:
        ranked = {key.user_id: items.ids() for key, items in found}  # type: ignore[attr-defined]
        return np.array([np.resize(ranked[user], K) for user in users])

    return lambda: recommend(pipeline, users.tolist(), n_jobs=1), lists


main(
    {
        "EASE fit": fit,
        "top 20": top_k,
        "WRMF epoch, exact": lambda data: epoch_job(lenskit, data, "cholesky", "wrmf"),
    }
)
