"""What features of the items add: genres and hashed titles, for warm and for cold items; and what they cost.

    python benchmarks/features.py quality movielens warm       # strong split: new users, known items
    python benchmarks/features.py quality ml-1m cold --coarse  # a tenth of the items is untouched in training
    python benchmarks/features.py cost                         # adding d features to the Gram matrix against its inverse

Every model is tuned on the validation part by ndcg@20, and compared with the tuned model without features, user by user on
test: the difference, its standard error and the p-value of a paired t-test. Rows go to results/features.jsonl, also where
features add nothing. The Amazon sets of this library have no features of their items.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from journal import append

import gramian as gr
from gramian.data.synthetic import clustered
from gramian.linalg.gram import add_outer_product
from gramian.linalg.inverse import invert

METRIC = "ndcg@20"
FEATURES = {
    "genres": {"tags": True, "titles": False},
    "titles": {"tags": False, "titles": True},
    "genres and titles": {"tags": True, "titles": True},
}
FACTORS = {"rank": [64], "unobserved_weight": [0.1, 0.3], "l2": [0.003, 0.01], "n_epochs": [16]}
BASELINES: dict[type, dict[str, Any]] = {gr.EASE: {"l2": [30, 100, 300, 1000]}, gr.IALS: FACTORS}
MODELS: dict[type, dict[str, Any]] = {
    gr.CEASE: {"l2": [30, 100, 300, 1000], "feature_weight": [1, 3, 10, 30, 100, 300]},
    gr.AddEASE: {"l2": [30, 100, 300, 1000], "feature_l2": [1, 10, 100]},
    gr.L3AE: {"l2": [30, 100, 300, 1000], "feature_l2": [1, 10, 100]},
    gr.FeatureIALS: FACTORS | {"feature_l2": [1, 10, 100, 1000]},
}
COARSE: dict[type, dict[str, Any]] = {  # changes of the grids for larger data
    gr.EASE: {"l2": [300, 1000]},
    gr.CEASE: {"l2": [300, 1000], "feature_weight": [10, 100]},
    gr.AddEASE: {"l2": [300], "feature_l2": [10, 100]},
    gr.L3AE: {"l2": [300, 1000], "feature_l2": [10]},
    gr.IALS: {"unobserved_weight": [0.1]},
    gr.FeatureIALS: {"unobserved_weight": [0.1], "feature_l2": [10, 100]},
}
BASELINE_OF: dict[type, type] = {gr.CEASE: gr.EASE, gr.AddEASE: gr.EASE, gr.L3AE: gr.EASE, gr.FeatureIALS: gr.IALS}


def measure_quality(name: str, kind: str, k_core: int, only: str | None, only_model: str | None, coarse: bool) -> None:
    """Tune models on a data set with each kind of features, and compare them with those without."""
    events = gr.datasets.load(name, min_value=4).k_core(k_core)
    split = gr.split.strong(events, seed=0) if kind == "warm" else gr.split.cold_items(events, seed=0)
    print(f"{name}, {kind}: {split}")
    spaces = {model: space | (COARSE[model] if coarse else {}) for model, space in (BASELINES | MODELS).items()}
    chosen = [model for model in MODELS if only_model in (None, model.__name__)]
    needed = {BASELINE_OF[model] for model in chosen}
    baselines = {model: run(split, model, spaces[model]) for model in BASELINES if model in needed}
    for model, (recipe, value, reports) in baselines.items():
        record(name, kind, "none", model.__name__, recipe, value, reports, None)
    for described, columns in FEATURES.items():
        if only is not None and only != described:
            continue
        known = attach(split, gr.Features.of_catalog(events.catalog, **columns))
        for model in chosen:
            recipe, value, reports = run(known, model, spaces[model])
            record(name, kind, described, model.__name__, recipe, value, reports, baselines[BASELINE_OF[model]][2])


def attach(split: gr.Split, features: gr.Features) -> gr.Split:
    """Return the split with features of its items; its fingerprint stays the same."""
    validation = split.validation
    assert validation is not None
    train = split.train.with_features(features)
    return gr.Split(train, split.fold_in, split.target, gr.Split(train, validation.fold_in, validation.target))


def run(split: gr.Split, model: type, space: dict[str, Any]) -> tuple[Any, float, dict[str, gr.Report]]:
    """Tune on validation, and evaluate the best recipe on test: all targets, and those of cold, tail and head items."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values at the edge of the space
        search = gr.tune(model, split.validation, space, METRIC)  # type: ignore[arg-type]
        fitted = search.recipe.fit(split.train)
    reports = {"all": gr.evaluate(fitted, split, [METRIC])} | gr.evaluate_by_popularity(fitted, split, [METRIC])
    within = gr.evaluate_by_popularity(fitted, split, [METRIC], within_group=True)
    return search.recipe, search.value, reports | {f"{group} within": report for group, report in within.items()}


def record(
    name: str, kind: str, features: str, model: str, recipe: Any, value: float, reports: dict[str, gr.Report], base: Any
) -> None:
    """Print and append one row."""
    row: dict[str, Any] = {"job": "quality", "data": name, "split": kind, "features": features, "model": model}
    row |= {"recipe": str(recipe), "metric": METRIC, "validation": value}
    row["test"] = {group: [report[METRIC], report.stderr[METRIC]] for group, report in reports.items()}
    if base is not None:
        paired = {group: report.compare(base[group], METRIC) for group, report in reports.items() if group in base}
        row["gain"] = {group: [c.difference, c.stderr, c.p_value] for group, c in paired.items()}
    text = ", ".join(f"{group} {mean:.4f}" for group, (mean, _) in row["test"].items())
    gain = "; gain " + ", ".join(f"{g} {d:+.4f} (p {p:.2g})" for g, (d, _, p) in row["gain"].items()) if base else ""
    print(f"{features:<18} {recipe}: {text}{gain}", flush=True)
    append("features", row)


def cpu_seconds(job: Callable[[], object], rounds: int = 3) -> float:
    """Return the fewest CPU seconds that a job takes, which other work on the machine changes least."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        job()
        best = min(best, time.process_time() - started)
    return best


def measure_cost(n_items: int) -> None:
    """Time adding the features to the Gram matrix against the inverse that follows, in CPU seconds."""
    gram = gr.Gram.of(clustered(4 * n_items, n_items, 100 * n_items)).matrix
    gram.change_diagonal(lambda diagonal, first, last: diagonal + 200)
    copied = cpu_seconds(gram.copy)
    inverse = cpu_seconds(lambda: invert(gram.copy())) - copied
    for n_features in (16, 64, 256, 1024):
        f = np.random.default_rng(0).standard_normal((n_items, n_features), np.float32)
        added = cpu_seconds(lambda f=f: add_outer_product(gram.copy(), f)) - copied  # type: ignore[misc]
        print(f"{n_items:,} items, {n_features:,} features: {100 * added / inverse:.1f} % of the inverse ({inverse:.1f} s)")
        row = {"job": "cost", "items": n_items, "features": n_features, "cpu_seconds": added}
        append("features", row | {"inverse_cpu_seconds": inverse, "ratio": added / inverse})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["quality", "cost"])
    parser.add_argument("data", nargs="?", default="movielens")
    parser.add_argument("split", nargs="?", default="warm", choices=["warm", "cold"])
    parser.add_argument("--k-core", type=int, default=5)
    parser.add_argument("--features", choices=list(FEATURES))
    parser.add_argument("--model", choices=[model.__name__ for model in MODELS])
    parser.add_argument("--coarse", action="store_true", help="smaller grids, for larger data")
    parser.add_argument("--items", type=int, default=6_000)
    options = parser.parse_args()
    if options.job == "cost":
        measure_cost(options.items)
    else:
        measure_quality(options.data, options.split, options.k_core, options.features, options.model, options.coarse)
