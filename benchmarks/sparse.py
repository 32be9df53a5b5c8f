"""SparseEDLAE against EDLAE with the same dropout and l2: quality on the test users, memory of the model, seconds of the fit.

    python benchmarks/sparse.py gowalla --dropout 0.8 --l2 40 --neighbours 100 400
    python benchmarks/sparse.py amazon-beauty-m1 --dropout 0.2 --l2 100

Nothing is chosen here: the parameters are those of EDLAE. Its metrics are taken from the journal of the papers' tables if they
are there; otherwise it is fitted in the same run, up to 10,000 items, since larger inverses take minutes. Its memory is that of
the stored half. Rows go to results/sparse.jsonl; without figures of EDLAE they have no ratios.
"""

import argparse
from typing import Any

from journal import append, rows
from measure import seconds

import gramian as gr
from gramian.core.recipe import Recipe
from gramian.data.synthetic import clustered
from gramian.linalg.symmetric import stored_size
from gramian.models.scorers import SparseWeights

METRICS = ["recall@20", "ndcg@20"]
FITTED_ITEMS = 10_000  # up to which EDLAE is fitted here


def measure_exact(name: str, recipe: gr.EDLAE, split: gr.Split) -> dict[str, Any]:
    """Return the metrics of EDLAE, with the revision that measured them if they are from the journal; nothing if unknown."""
    for row in reversed(rows("papers")):
        is_same = row.get("kind") == "fit" and row["data"] == name and row["split"] == split.fingerprint
        if is_same and row["recipe"] == recipe.to_json():
            return {"metrics": {metric: row["metrics"][metric] for metric in METRICS}, "journal_revision": row["revision"]}
    if split.train.n_items > FITTED_ITEMS:
        return {}
    model, elapsed = fit(recipe, split)
    return {"metrics": gr.evaluate(model, split, METRICS).mean, "seconds": elapsed}


def fit(recipe: Recipe, split: gr.Split) -> tuple[gr.Recommender, float]:
    """Return the fitted model, and the seconds of the fit."""
    models: list[gr.Recommender] = []
    elapsed = seconds(lambda: models.append(recipe.fit(split.train)))
    return models[0], elapsed


def run(name: str, dropout: float, l2: float, neighbours: list[int]) -> None:
    """Measure one data set."""
    split = gr.split.published(name)
    exact = measure_exact(name, gr.EDLAE(dropout=dropout, l2=l2), split)
    dense_bytes = 4 * stored_size(split.train.n_items)
    print(f"{name}: EDLAE {exact.get('metrics', 'not measured')}, {dense_bytes / 1e6:,.0f} MB", flush=True)
    for k in neighbours:
        recipe = gr.SparseEDLAE(dropout, l2, k)
        model, elapsed = fit(recipe, split)
        assert isinstance(model.scorer, SparseWeights)
        metrics, matrix = gr.evaluate(model, split, METRICS).mean, model.scorer.matrix
        n_bytes = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        ratios = {metric: metrics[metric] / value for metric, value in exact.get("metrics", {}).items()}
        row = {"data": name, "recipe": recipe.to_json(), "seconds": elapsed, "metrics": metrics, "model_bytes": n_bytes}
        append("sparse", row | {"exact": exact, "ratios": ratios, "memory_ratio": n_bytes / dense_bytes})
        share = n_bytes / dense_bytes
        print(f"  {k} neighbours: {metrics}, × exact {ratios}, {share:.3f} of the memory, {elapsed:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a data set with a published split")
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--l2", type=float, default=100.0)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[50, 100, 200])
    options = parser.parse_args()
    gr.SparseEDLAE(neighbours=5).fit(clustered(200, 100, 2_000)).recommend([0], k=5)  # compile
    run(options.data, options.dropout, options.l2, options.neighbours)
