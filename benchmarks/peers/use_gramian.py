from pathlib import Path

import numpy as np
from epochs import epoch_job, gramian
from worker import L1, L2, SCORED, Job, K, main, matrix

import gramian as gr
from gramian.core.recommender import Recommender
from gramian.evaluation.metrics import RankedLists, find_hits, parse_metrics
from gramian.models.scorers import LowRankWeights


def events(data: Path, name: str) -> gr.Interactions:
    return gr.Interactions.of(matrix(data, name))


def factor_model(data: Path) -> Recommender:
    scorer = LowRankWeights(np.load(data / "encoder.npy"), np.load(data / "decoder.npy"))
    train = events(data, "train")
    return Recommender(scorer, gr.EASE(L2), train.catalog, train)


def fit(recipe: gr.EASE | gr.SLIM, data: Path) -> Job:
    train = events(data, "train")
    return lambda: recipe.fit(train), lambda model: model.scores(train.take(np.arange(SCORED)))


def fit_lists(data: Path) -> Job:
    train = events(data, "train")
    return lambda: gr.EASE(L2).fit(train), lambda model: model.top_k(train.matrix[:SCORED], K)[0]


def top_k(model: Recommender) -> Job:
    return lambda: model.top_k(model.histories.matrix, K), lambda ranked: ranked[0]


def metrics(data: Path) -> Job:
    columns, train, target = np.load(data / "lists.npy"), events(data, "train"), events(data, "target")
    parsed = parse_metrics([f"ndcg@{K}", f"recall@{K}"])

    def run() -> list[float]:
        n_targets = np.diff(target.matrix.indptr).astype(np.int64)
        lists = RankedLists(columns, find_hits(columns, target.matrix), n_targets, train.catalog, train.n_users, target.matrix)
        return [metric(lists).mean() for metric in parsed]

    return run, lambda values: values


def evaluate(model: Recommender, data: Path) -> Job:
    target = events(data, "target")

    def run() -> gr.Report:
        split = gr.Split(model.histories, model.histories, target)
        return gr.evaluate(model, split, (f"ndcg@{K}", f"recall@{K}"))

    return run, lambda report: list(report.mean.values())


main(
    {
        "EASE fit": lambda data: fit(gr.EASE(L2), data),
        "EASE fit, approximate": fit_lists,  # ours is exact
        "SLIM fit": lambda data: fit(gr.SLIM(L1, L2), data),
        "top 20": lambda data: top_k(gr.load(data / "model")),
        "top 20, approximate": lambda data: top_k(gr.load(data / "model")),
        "iALS epoch": lambda data: epoch_job(gramian, data, "ials cg", "ials"),
        "WRMF epoch": lambda data: epoch_job(gramian, data, "wrmf cg", "wrmf"),
        "WRMF epoch, exact": lambda data: epoch_job(gramian, data, "wrmf cholesky", "wrmf"),
        "top 20, factors": lambda data: top_k(factor_model(data)),
        "metrics": metrics,
        "frames + metrics": metrics,  # no frames are needed
        "evaluation": lambda data: evaluate(gr.load(data / "model"), data),
        "evaluation, factors": lambda data: evaluate(factor_model(data), data),
    }
)
