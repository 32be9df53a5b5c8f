"""A million items, twenty million interactions: fit, evaluation, saving, loading and serving of models without an n × n matrix.

    python benchmarks/million.py
    python benchmarks/million.py --models gfcf --items 100000 --interactions 2000000

Synthetic interactions of as many users as items. Some users are held out, with a fifth of their items as targets. Rows go to
results/million.jsonl. For EDLAE, which does not fit into memory, the row holds its estimate and the refusal.
"""

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from journal import append
from measure import peak_bytes, seconds, wall_and_cpu_seconds

import gramian as gr
from gramian.core.recipe import Recipe
from gramian.data.synthetic import clustered

METRICS = ["ndcg@20", "recall@20"]
BATCH = 64  # users of a large request


def make_recipes(neighbours: int, rank: int) -> dict[str, Recipe]:
    """Return the models by name; nothing is tuned."""
    sparse, gfcf, chebycf = gr.SparseEDLAE(neighbours=neighbours), gr.GFCF(rank=rank), gr.ChebyCF(rank=rank)
    return {"popularity": gr.Popularity(), "sparse": sparse, "gfcf": gfcf, "chebycf": chebycf, "edlae": gr.EDLAE()}


def measure(recipe: Recipe, split: gr.Split) -> dict[str, Any]:
    """Fit, evaluate, save, load and serve one model; or return why it cannot be fitted."""
    train, estimated = split.train, recipe.estimate(split.train).peak_bytes
    models: list[tuple[gr.Recommender, int]] = []
    try:
        if isinstance(recipe, gr.EDLAE) and recipe.estimate(train).fits:
            return {"estimated_bytes": estimated, "fits": True}  # large.py measures that
        wall, cpu = wall_and_cpu_seconds(lambda: models.append(peak_bytes(lambda: recipe.fit(train))))
    except gr.errors.NotEnoughMemory as error:
        return {"estimated_bytes": estimated, "refused": str(error)}
    model, peak = models[0]
    row: dict[str, Any] = {"fit_seconds": wall, "fit_cpu_seconds": cpu, "peak_bytes": peak, "estimated_bytes": estimated}
    started = time.perf_counter()
    report = gr.evaluate(model, split, METRICS)
    row |= {"evaluate_seconds": time.perf_counter() - started, "metrics": report.mean, "tested": split.target.n_users}
    with tempfile.TemporaryDirectory() as folder:
        row["save_seconds"] = seconds(partial(model.save, Path(folder) / "model"))
        started = time.perf_counter()
        loaded = gr.load(Path(folder) / "model")
        row["load_seconds"] = time.perf_counter() - started
    loaded.recommend(train.users[:1], k=20)  # maps the files
    one, batch = (seconds(partial(loaded.recommend, train.users[:n], k=20)) for n in (1, BATCH))
    return row | {"one_user_seconds": one, "batch_seconds": batch, "batch": BATCH}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=make_recipes(1, 1))
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--interactions", type=int, default=23_000_000, help="drawn; repeated ones merge")
    parser.add_argument("--tested", type=int, default=128, help="users held out")
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--rank", type=int, default=32)
    options = parser.parse_args()
    for recipe in make_recipes(5, 8).values():
        measure(recipe, gr.split.strong(clustered(2_000, 1_600, 20_000), validation_users=0, test_users=BATCH))  # compiles
    events = clustered(options.items, options.items, options.interactions, n_tastes=500)
    split = gr.split.strong(events, validation_users=0, test_users=options.tested)
    facts = {"items": events.n_items, "users": events.n_users, "interactions": events.n_interactions}
    print(events, flush=True)
    del events
    recipes = make_recipes(options.neighbours, options.rank)
    for name in options.models or recipes:
        row = measure(recipes[name], split)
        append("million", {"recipe": recipes[name].to_json(), **facts, **row, "load_average": os.getloadavg()[0]})
        print(recipes[name], *(f"\n  {key}: {value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
