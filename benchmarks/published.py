"""Full-size fits on a published split, judged on its test part, beside the published figures.

    python benchmarks/published.py gowalla        # after: python benchmarks/choose.py gowalla

The settings are those with the best recall@20 + ndcg@20 in results/choose.jsonl, which never saw the test part. EASE has an
inverse of its own; DLAE, EDLAE and DEQL share one. One row per model goes to results/published.jsonl.
"""

import argparse
import csv
import time
from pathlib import Path

from choose import METRICS
from journal import append, rows
from measure import peak_bytes

import gramian as gr
from gramian.app.trial import warm_up
from gramian.linalg.memory import readable
from gramian.models.autoencoders import LinearAutoencoder
from gramian.models.scorers import ItemWeights
from gramian.progress import duration
from gramian.recommender import Recommender

TABLE = Path(__file__).parents[2] / "shared" / "published" / "published_results.csv"
PRINTED = {"DEQL": "DEQL(L2)"}  # models the table calls by another name


def chosen(data: str, cut: str) -> list[list[LinearAutoencoder]]:
    """EASE at its best l2, and the others at the (dropout, l2) that is best for the three together: one inverse does."""
    best: dict[bool, tuple[float, list[LinearAutoencoder]]] = {}
    points = [row for row in rows("choose") if (row["data"], row["cut"]) == (data, cut)]
    largest = {row["dropout"] > 0: row["items"] for row in sorted(points, key=lambda row: row["items"])}
    for row in points:
        shares = row["dropout"] > 0
        if row["items"] < largest[shares]:  # scores on more items are lower, and closer to those on all
            continue
        kinds: dict[str, tuple[float, LinearAutoencoder]] = {}
        for text, metrics in row["metrics"].items():
            kind, _, settings = text.removesuffix(")").partition("(")
            values = dict(pair.split("=") for pair in settings.split(", "))
            recipe = getattr(gr, kind)(**{name: float(value) for name, value in values.items()})
            kinds[kind] = max(kinds.get(kind, (0.0, recipe)), (sum(metrics.values()), recipe), key=lambda pair: pair[0])
        found = sum(score for score, _ in kinds.values()), [recipe for _, recipe in kinds.values()]
        best[shares] = max(best.get(shares, found), found, key=lambda pair: pair[0])
    return [recipes for _, recipes in best.values()]


def printed(data: str, model: str) -> dict[str, float]:
    """The figures of the paper's table 2."""
    if not TABLE.exists():
        return {}
    with TABLE.open() as file:
        wanted = ("deql", "table2", data, PRINTED.get(model, model))
        found = (row for row in csv.DictReader(file) if (row["paper"], row["table"], row["dataset"], row["model"]) == wanted)
        return {row["metric"]: float(row["value"]) for row in found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--cut", choices=("popular", "random"), default="popular", help="which search of choose.py to trust")
    parser.add_argument("--only", choices=("EASE", "DLAE", "EDLAE", "DEQL"), help="fit only the inverse that this model needs")
    given = parser.parse_args()
    split = gr.split.published(given.data)
    print(split, flush=True)
    warm_up()
    for recipes in chosen(given.data, given.cut):
        if given.only and given.only not in (type(recipe).__name__ for recipe in recipes):
            continue
        started = time.perf_counter()
        model, peak = peak_bytes(lambda recipe=recipes[0]: recipe.fit(split.train))
        seconds = time.perf_counter() - started
        assert isinstance(model.scorer, ItemWeights)
        s = split.train.popularity.astype(float)  # the diagonal of the Gram matrix of 0/1 interactions
        for recipe in recipes:
            scorer = recipe.from_inverse(model.scorer.inverse, s)
            ours = gr.evaluate(Recommender(scorer, recipe, split.train), split, METRICS)
            theirs = printed(given.data, type(recipe).__name__)
            ratio = {name: round(ours[name] / value, 4) for name, value in theirs.items()}
            print(recipe, {n: round(v, 4) for n, v in ours.mean.items()}, "published", theirs, "ratio", ratio, flush=True)
            cost = {"fit_seconds": round(seconds, 1), "peak_bytes": peak, "inverse_of": str(recipes[0])}
            facts = {"data": given.data, "split": "published", "recipe": recipe.to_json()}
            append("published", facts | {"metrics": ours.mean, "stderr": ours.stderr, "published": theirs} | cost)
        print(f"fitted in {duration(seconds)}, peak {readable(peak)} over the interactions", flush=True)
        del model, scorer


if __name__ == "__main__":
    main()
