"""Choose hyperparameters on a validation part, without the test part.

    python benchmarks/choose.py gowalla            # or yelp2018, ...
    python benchmarks/choose.py amazon-beauty-bert4rec --last

A tenth of each user's training interactions is held out; with --last, the last item but one of each user's sequence. The
catalog is cut to its most popular items, where an inverse takes seconds, or with --cut random to any items, which keeps the
share of rare ones; recall@20 and ndcg@20 of every point go to results/choose.jsonl, and points already there are not
repeated. At one (dropout, l2) all models share one inverse.
"""

import argparse
import time

import numpy as np
from journal import append, rows

import gramian as gr
from gramian.data.ids import Index
from gramian.data.split import hashed
from gramian.linalg.inverse import invert
from gramian.models.recipe import Recipe
from gramian.recommender import Recommender

KEPT_WEIGHTS = (0.25, 0.5, 0.75, 1.5, 2.0)
METRICS = ("recall@20", "ndcg@20")


def some(events: gr.Interactions, n_items: int, how: str) -> Index:
    """A part of the catalog: its most popular items, or any."""
    order = np.argsort(-events.popularity if how == "popular" else hashed(0, np.arange(events.n_items), 0), kind="stable")
    return Index(events.items[np.sort(order[:n_items])])


def cut(split: gr.Split, items: Index) -> gr.Split:
    """The split with these items only."""
    known = [part.reindex(part.users, items) for part in (split.fold_in, split.target)]
    users = np.flatnonzero(np.all([np.diff(part.matrix.indptr) > 0 for part in known], axis=0))
    return gr.Split(split.train.reindex(split.train.users, items), *(part.take(users) for part in known))


def recipes(dropout: float, l2: float) -> list[Recipe]:
    """What one inverse gives."""
    if dropout == 0:
        return [gr.EASE(l2)]
    weighted = [gr.DEQL(dropout, b, l2) for b in KEPT_WEIGHTS]
    return [gr.DLAE(dropout, l2), gr.EDLAE(dropout, l2), *weighted]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--cut", choices=("popular", "random"), default="popular")
    parser.add_argument("--dropout", type=float, nargs="+", default=(0.0, 0.2, 0.35, 0.5, 0.65, 0.8))
    parser.add_argument("--l2", type=float, nargs="+", default=(20.0, 50.0, 100.0, 200.0, 400.0))
    given = parser.parse_args()
    if given.last:
        whole = gr.split.leave_last(gr.datasets.load(given.data)).validation
    else:
        whole = gr.split.weak(gr.split.published(given.data).train, validation=0, test=0.1)
    split = cut(whole, some(whole.train, given.items, given.cut))
    gram = gr.Gram.of(split.train)
    s = gram.matrix.diagonal()
    matrix = gram.matrix.copy()
    known = {(row["data"], row["cut"], row["items"], row["dropout"], row["l2"]) for row in rows("choose")}
    for dropout in given.dropout:
        for l2 in given.l2:
            point = {"data": given.data, "cut": given.cut, "items": given.items, "dropout": dropout, "l2": l2}
            if tuple(point.values()) in known:
                continue
            started = time.perf_counter()
            family = recipes(dropout, l2)
            matrix.buffer[:] = gram.matrix.buffer
            penalty = family[0].safe_penalty(s)
            matrix.change_diagonal(lambda diagonal, first, last, by=penalty: diagonal + by[first:last])
            invert(matrix)
            found = {}
            for recipe in family:
                model = Recommender(recipe.from_inverse(matrix, s), recipe, split.train)
                found[str(recipe)] = {name: round(v, 5) for name, v in gr.evaluate(model, split, METRICS).mean.items()}
            append("choose", point | {"metrics": found, "seconds": round(time.perf_counter() - started, 1)})
            print(point, {name: list(values.values()) for name, values in found.items()}, flush=True)


if __name__ == "__main__":
    main()
