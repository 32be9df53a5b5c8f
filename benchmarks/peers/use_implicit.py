from pathlib import Path

import numpy as np
from epochs import epoch_job, implicit
from implicit.als import AlternatingLeastSquares
from implicit.cpu.als import AlternatingLeastSquares as Model
from implicit.evaluation import ranking_metrics_at_k
from worker import CORES, Job, K, main, matrix


def fitted(data: Path) -> Model:
    """Its model with our factors: each user is the sum of the encoded history."""
    encoder, decoder = np.load(data / "encoder.npy"), np.load(data / "decoder.npy")
    model = AlternatingLeastSquares(factors=encoder.shape[1], use_gpu=False, num_threads=CORES)
    model.user_factors, model.item_factors = matrix(data, "train") @ encoder, decoder
    return model


def top_k(data: Path) -> Job:
    model, train = fitted(data), matrix(data, "train")
    users = np.arange(train.shape[0])
    return lambda: model.recommend(users, train, N=K, filter_already_liked_items=True), lambda found: found[0]


def evaluate(data: Path) -> Job:
    model, train, target = fitted(data), matrix(data, "train"), matrix(data, "target")
    return (
        lambda: ranking_metrics_at_k(model, train, target, K=K, show_progress=False, num_threads=CORES),
        lambda score: [score["ndcg"]],  # its precision is no mean over users, and it has no recall
    )


main(
    {
        "WRMF epoch": lambda data: epoch_job(implicit, data, "cg", "wrmf"),
        "top 20, factors": top_k,
        "evaluation, factors": evaluate,
    }
)
