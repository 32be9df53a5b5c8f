"""What further signals add to a recommender: kinds of events, time, weights and dislikes.

python benchmarks/signals.py kinds      # retail-rocket: purchases from views, carts and purchases; published test part
python benchmarks/signals.py time       # movielens, or --data ml-1m: decay, SLIST, TALE; temporal, or --last items
python benchmarks/signals.py weights    # lastfm-2k: play counts as weights
python benchmarks/signals.py dislikes   # movielens, ml-1m: low ratings as dislikes
python benchmarks/signals.py --table    # the recorded figures

GRAMIAN_DATA names the folder of the data sets. Every variant has its parameters chosen on validation users or events, one
parameter after the other, from the values listed here; it is then fitted again, tested once, and compared with the first
variant of its task by a paired t-test over the test users. Variants that add nothing are recorded too. Rows are appended to
results/signals.jsonl.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import journal
import numpy as np
import polars as pl

import gramian as gr

Space = Mapping[str, Sequence[Any]]
KINDS = ("view", "cart", "buy")
ONLY = ""  # of the variants, by --only


class Variant(NamedTuple):
    """A way to use a signal: how the data is prepared, which recipe is fitted, and what is tried."""

    name: str
    recipe: Any
    space: Space
    prepare: Callable[[gr.Split, Mapping[str, Any]], gr.Split] = lambda split, options: split
    options: Space = MappingProxyType({})  # what `prepare` is passed, chosen with the parameters


def evaluate(variant: Variant, split: gr.Split, params: Mapping[str, Any], metrics: list[str]) -> gr.Report:
    """Fit and evaluate a variant with these parameters and options."""
    options = {name: value for name, value in params.items() if name in variant.options}
    recipe = replace(variant.recipe, **{name: value for name, value in params.items() if name not in options})
    prepared = variant.prepare(split, options)
    report = gr.evaluate(recipe.fit(prepared.train), prepared, metrics)
    return replace(report, split=split.fingerprint)  # the users and targets are the same, whatever was prepared


def choose(variant: Variant, split: gr.Split, metric: str) -> dict[str, Any]:
    """Choose parameters on a validation split, one after the other, from the middle of what is tried."""
    space = {**variant.options, **variant.space}
    best = {name: values[len(values) // 2] for name, values in space.items()}
    scores: dict[str, float] = {}
    for name, values in space.items():
        for value in values:
            point = best | {name: value}
            if str(point) not in scores:
                scores[str(point)] = evaluate(variant, split, point, [metric])[metric]
        best[name] = max(values, key=lambda value: scores[str(best | {name: value})])
    return best


def run(task: str, data: str, split: gr.Split, variants: Sequence[Variant], metrics: list[str]) -> None:
    """Choose, test, compare and record."""
    assert split.validation is not None
    print(f"{task}, {data}: {split}", flush=True)
    first = None
    for variant in (variants[0], *(other for other in variants[1:] if ONLY in other.name)):
        started = time.perf_counter()
        params = choose(variant, split.validation, metrics[0])
        report = evaluate(variant, split, params, metrics)
        first = report if first is None else first
        paired = report.compare(first, metrics[0])
        row: dict[str, Any] = {"task": task, "data": data, "variant": variant.name, "params": params, "metrics": report.mean}
        row |= {"stderr": report.stderr, "users": len(report.users), "seconds": round(time.perf_counter() - started, 1)}
        if report is not first:
            row |= {"difference": paired.difference, "difference_stderr": paired.stderr, "p": paired.p_value}
        if report is not first or not ONLY:
            journal.append("signals", row)
        print(format_row(row), flush=True)


def format_row(row: Mapping[str, Any]) -> str:
    """Return a row of the table."""
    figures = "  ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())
    change = f"  {row['difference']:+.4f} (p {row['p']:.2g})" if "difference" in row else ""
    return f"{row['data']:14} {row['variant']:34} {figures}{change}  {row['params']}"


def read_retail_rocket() -> gr.Split:
    """The published split, with one purchase of each user who has two for validation, and its views and carts with it."""
    folder = Path(os.environ["GRAMIAN_DATA"]) / "retail-rocket"
    parts = [pl.read_parquet(folder / f"train_{kind}.parquet").with_columns(kind=pl.lit(kind)) for kind in KINDS]
    train = gr.Interactions.of(pl.concat(parts), kind="kind", kinds=KINDS)
    split = gr.split.published(train, gr.Interactions.of(pl.read_parquet(folder / "test.parquet")))
    rest = gr.split.weak(split.train, validation=0, test=0.1, seed=0)
    return replace(split, validation=rest)


def of_kind(kind: str) -> Callable[[gr.Split, Mapping[str, Any]], gr.Split]:
    """Return a preparation that keeps one kind."""
    return lambda split, options: map_split(split, lambda events: events.of_kind(kind))


def map_split(split: gr.Split, change: Callable[[gr.Interactions], gr.Interactions]) -> gr.Split:
    """Return the split with other values of what is known; targets stay."""
    return gr.Split(change(split.train), change(split.fold_in), split.target)


def compare_kinds() -> None:
    """Purchases alone, kinds added up, and kinds kept apart. One kind of `MultiBehaviorEASE` is EASE, in its dual form."""
    l2 = (10, 100, 1000)

    def add_up(weights: Sequence[float]) -> Callable[[gr.Split, Mapping[str, Any]], gr.Split]:
        by_kind = dict(zip(KINDS, weights, strict=True))
        return lambda split, options: map_split(split, lambda events: events.with_kind_weights(by_kind))

    apart: Space = {"other_l2": (10, 100, 1000), "l2": l2}
    variants = [
        Variant("EASE on purchases", gr.MultiBehaviorEASE(), {"l2": l2}, of_kind("buy")),
        Variant("EASE on views", gr.MultiBehaviorEASE(), {"l2": l2}, of_kind("view")),
        Variant("EASE, all kinds 1", gr.MultiBehaviorEASE(), {"l2": l2}, add_up((1, 1, 1))),
        Variant("EASE, view .2 cart .5 buy 1", gr.MultiBehaviorEASE(), {"l2": l2}, add_up((0.2, 0.5, 1))),
        Variant("MultiBehaviorEASE, target", gr.MultiBehaviorEASE(zero_diagonal_of="target"), apart),
        Variant("MultiBehaviorEASE, all", gr.MultiBehaviorEASE(zero_diagonal_of="all"), apart),
        Variant("MultiBehaviorEASE, all as target", gr.MultiBehaviorEASE(), {"other_target": (0.1, 0.3, 1), **apart}),
    ]
    run("kinds", "retail-rocket", read_retail_rocket(), variants, ["ndcg@10", "recall@10"])


def compare_time(data: str, last: bool) -> None:
    """No time, decay by age, and models of sequences. The test part is the last tenth of all events, or the last items."""
    events = gr.datasets.load(data, min_value=4).k_core(10)
    times = np.sort(np.asarray(events.times)).tolist()
    starts = {"validation_from": times[int(0.8 * len(times))], "test_from": times[int(0.9 * len(times))]}
    split = gr.split.leave_last(events) if last else gr.split.temporal(events, **starts)

    def decay(part: gr.Split, options: Mapping[str, Any]) -> gr.Split:
        now = np.asarray(part.fold_in.times).max()
        return map_split(part, lambda known: known.decayed(options["half_life"], now=now))

    l2 = (100, 300)
    half_lives = ("30d", "180d", "2y", float("inf"))
    recency = {"recency": (5, 20, 100)}
    variants = [
        Variant("EASE", gr.EASE(), {"l2": l2}),
        Variant("EASE, decayed", gr.EASE(), {"l2": l2}, decay, {"half_life": half_lives}),
        Variant("SLIST", gr.SLIST(), {**recency, "similarity_share": (0, 0.2, 0.6), "decay": (5, 20), "l2": l2}),
        Variant("TALE", gr.TALE(), {**recency, "time_scale": (1, 30), "floor": (0.1, 0.5), "l2": l2}),
    ]
    run("time, last item" if last else "time", data, split, variants, ["ndcg@20", "recall@20"])


def compare_weights() -> None:
    """Play counts of last.fm as weights."""
    counts = gr.datasets.load("lastfm-2k", weights=True, weight="binary").k_core(5)
    raw = gr.datasets.load("lastfm-2k", weights=True).reindex(counts.users, counts.items)
    split = gr.split.strong(counts, seed=0)

    def weigh(weight: str) -> Callable[[gr.Split, Mapping[str, Any]], gr.Split]:
        def prepare(part: gr.Split, options: Mapping[str, Any]) -> gr.Split:
            train = pick(raw, part.train)
            return gr.Split(
                train.with_weights(weight), pick(raw, part.fold_in).with_weights(weight, reference=train), part.target
            )

        return prepare

    space = {"l2": (100, 300, 1000)}
    variants = [Variant("EASE, binary", gr.EASE(), space)]
    variants += [Variant(f"EASE, {weight}", gr.EASE(), space, weigh(weight)) for weight in ("log", "bm25", "tfidf")]
    run("weights", "lastfm-2k", split, variants, ["ndcg@20", "recall@20"])


def pick(values: gr.Interactions, pattern: gr.Interactions) -> gr.Interactions:
    """Return the entries of a pattern with the values that they have elsewhere."""
    found = values.reindex(pattern.users, pattern.items).matrix.multiply(pattern.matrix.astype(bool)).tocsr()
    found.sort_indices()
    return replace(pattern, matrix=found.astype("float32"))


def compare_dislikes(data: str) -> None:
    """Ratings of at least 4 as likes, with and without ratings of at most 2 as dislikes, on a strong split."""
    events = gr.datasets.load(data, min_value=4, max_dislike=2).k_core(10)
    split = gr.split.strong(events, seed=0)

    def drop(part: gr.Split, options: Mapping[str, Any]) -> gr.Split:
        return map_split(part, lambda known: known.keep(known.matrix.data > 0))

    def soften(part: gr.Split, options: Mapping[str, Any]) -> gr.Split:
        weight = options["dislike"]

        def change(known: gr.Interactions) -> gr.Interactions:
            matrix = known.matrix.copy()
            matrix.data[matrix.data < 0] *= weight
            return replace(known, matrix=matrix)

        return map_split(part, change)

    ease: Space = {"l2": (100, 300)}
    factors: Space = {"unobserved_weight": (0.1, 0.3), "l2": (0.003, 0.01)}
    weights: Space = {"dislike": (0.1, 0.3, 1.0)}
    ials = gr.IALS(rank=32, n_epochs=10)
    variants = [
        Variant("EASE, likes alone", gr.EASE(), ease, drop),
        Variant("EASE, dislikes negative", gr.EASE(), ease, soften, weights),
        Variant("IALS, likes alone", ials, factors, drop),
        Variant("IALS, dislikes with target 0", ials, factors, soften, weights),
    ]
    run("dislikes", data, split, variants, ["ndcg@20", "recall@20"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", choices=("kinds", "time", "weights", "dislikes"))
    parser.add_argument("--data", default="movielens", help="movielens or ml-1m, for time and dislikes")
    parser.add_argument("--last", action="store_true", help="for time: hold out the last item of every user")
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    parser.add_argument("--only", default="", help="only the variants whose names contain this, and the first, to compare with")
    arguments = parser.parse_args()
    global ONLY  # noqa: PLW0603
    ONLY = arguments.only
    if arguments.table:
        for row in journal.rows("signals"):
            print(f"{row['task']:9}", format_row(row))
    elif arguments.task == "time":
        compare_time(arguments.data, arguments.last)
    elif arguments.task == "dislikes":
        compare_dislikes(arguments.data)
    else:
        {"kinds": compare_kinds, "weights": compare_weights}[arguments.task or "kinds"]()


if __name__ == "__main__":
    main()
