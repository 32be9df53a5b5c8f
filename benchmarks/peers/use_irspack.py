from pathlib import Path

import numpy as np
from epochs import epoch_job, irspack
from irspack.evaluation import Evaluator
from irspack.recommenders import DenseSLIMRecommender, SLIMRecommender
from irspack.utils import IDMapper
from worker import L1, L2, SCORED, Job, K, main, matrix


def fitted(data: Path, name: str) -> DenseSLIMRecommender:
    """Its model with our weights, to spare the fit, in the order in memory that its own fit leaves."""
    model = DenseSLIMRecommender(matrix(data, name), reg=L2)
    model._W = np.asfortranarray(np.load(data / "weights.npy"))
    return model


def fit(data: Path) -> Job:
    train = matrix(data, "train")
    return lambda: DenseSLIMRecommender(train, reg=L2).learn(), lambda model: model.get_score(np.arange(SCORED))


def slim(data: Path) -> Job:
    """Its penalties are shares of a sum, and multiplied by the number of users."""
    train = matrix(data, "train")
    how = {"alpha": (L1 + L2) / train.shape[0], "l1_ratio": L1 / (L1 + L2), "positive_only": True}
    return lambda: SLIMRecommender(train, **how).learn(), lambda model: model.get_score(np.arange(SCORED))


def top_k(data: Path) -> Job:
    model = fitted(data, "sample")
    users = list(range(model.n_users))
    ids = IDMapper(users, list(range(model.n_items)))
    return (
        lambda: ids.recommend_for_known_user_batch(model, users, cutoff=K),
        lambda found: [[item for item, _ in row] for row in found],
    )


def evaluate(data: Path) -> Job:
    model, target = fitted(data, "train"), matrix(data, "target")
    block = 1_024  # as documented; its default is 128, which is slower
    return (
        lambda: Evaluator(target, cutoff=K, mb_size=block).get_score(model),
        lambda score: [score["ndcg"], score["recall"]],
    )


main(
    {
        "EASE fit": fit,
        "SLIM fit": slim,
        "iALS epoch": lambda data: epoch_job(irspack, data, "cg", "ials"),
        "top 20": top_k,
        "evaluation": evaluate,
    }
)
