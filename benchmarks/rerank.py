"""What re-ranking costs, and what variety costs in accuracy.

    python benchmarks/rerank.py            # movielens (bundled) and ml-1m, two minutes; appends to results/rerank.jsonl

Cost: seconds of a batch of lists with each stage, over those of the plain lists, in one run (the best of three). Accuracy
against variety: test metrics of EASE with MMR, calibration and the popularity penalty at several strengths. Nothing is chosen
here: every strength is recorded.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from journal import append
from measure import seconds

import gramian as gr
from gramian.core.reranking import Reranking

K, DEPTH, N_USERS = 20, 100, 1_000
L2 = {"movielens": 200.0, "ml-1m": 300.0}
METRICS = ["ndcg", "recall", "intra_list_diversity", "calibration_error", "tail_share", "serendipity", "gini", "coverage"]
STAGES = {
    "MMR by the model": gr.rerank.MMR(0.3),
    "MMR by tags": gr.rerank.MMR(0.3, "tags"),
    "calibration": gr.rerank.Calibration(0.5),
    "popularity penalty": gr.rerank.PopularityPenalty(0.3),
    "at most 3 per tag": gr.rerank.MaxPerTag(3),
    "one reserved slot": gr.rerank.ReservedSlots("Drama", rank=3),
}
CURVES: dict[str, list[Any]] = {
    "MMR by the model": [gr.rerank.MMR(d) for d in (0.1, 0.3, 0.5, 0.7, 0.9)],
    "MMR by tags": [gr.rerank.MMR(d, "tags") for d in (0.1, 0.2, 0.3, 0.5, 0.7)],
    "calibration": [gr.rerank.Calibration(s) for s in (0.2, 0.5, 0.8, 0.9, 0.97)],
    "popularity penalty": [gr.rerank.PopularityPenalty(s) for s in (0.1, 0.2, 0.4, 0.7, 1.0)],
}


def measure_cost(data: str, model: gr.Recommender) -> None:
    """Record the time of re-ranked lists over that of plain ones."""
    assert model.histories is not None
    histories = model.histories.matrix[np.arange(min(N_USERS, model.histories.n_users))]
    for name, stage in STAGES.items():
        reranking = Reranking.of(stage, DEPTH)
        jobs = {
            "plain": partial(model.top_k, histories, K),
            "deep": partial(model.top_k, histories, DEPTH),
            "reranked": partial(model.top_k, histories, K, reranking=reranking),
        }
        for job in jobs.values():
            job()  # compiles
        best = {job_name: min(seconds(job) for _ in range(3)) for job_name, job in jobs.items()}
        row: dict[str, Any] = {"job": "cost", "data": data, "stage": name, "spec": str(stage), "users": histories.shape[0]}
        row |= {"items": len(model.catalog), "k": K, "depth": DEPTH, "ratio": best["reranked"] / best["plain"]} | best
        append("rerank", row)
        print(
            f"{data} {name}: {best['reranked']:.3f} s, {row['ratio']:.2f} × the plain lists ({best['plain']:.3f} s)", flush=True
        )


def measure_variety(data: str, model: gr.Recommender, split: gr.Split) -> None:
    """Record the metrics of every stage at every strength."""
    names = [f"{metric}@{K}" for metric in METRICS]
    plain = gr.evaluate(model, split, names)
    curves: dict[str, Sequence[Any]] = {"plain": [None], **CURVES}
    for curve, stages in curves.items():
        for stage in stages:
            report = plain if stage is None else gr.evaluate(model, split, names, rerank=stage, depth=DEPTH)
            row: dict[str, Any] = {"job": "variety", "data": data, "curve": curve, "spec": "" if stage is None else str(stage)}
            paired = report.compare(plain, names[0])
            row |= {"k": K, "depth": DEPTH, "metrics": report.mean, "stderr": report.stderr, "users": len(report.users)}
            row |= {"ndcg_change": paired.difference, "ndcg_p": paired.p_value}
            append("rerank", row)
            shown = ", ".join(f"{name} {value:.4f}" for name, value in report.mean.items())
            print(f"{data} {row['spec'] or 'plain'}: {shown}, p {paired.p_value:.2g}", flush=True)


def main() -> None:
    for data in sys.argv[1:] or list(L2):
        events = gr.datasets.load(data, min_value=4).k_core(10 if data == "movielens" else 5)
        split = gr.split.strong(events, test_users=0.2, seed=0)
        model = gr.EASE(l2=L2[data]).fit(split.train)
        measure_variety(data, model, split)
        measure_cost(data, model)


if __name__ == "__main__":
    main()
