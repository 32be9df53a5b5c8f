"""The main job on the bundled data: train, compare, recommend with reasons, and say how to do it with one's own data."""

from __future__ import annotations

from rich.text import Text

from gramian.app.measure import Measured
from gramian.app.show import Trial, leaderboard, out, reasons
from gramian.data import datasets, split, synthetic
from gramian.data.interactions import Interactions
from gramian.data.split import Split
from gramian.evaluation.evaluate import evaluate
from gramian.models.autoencoders import DEQL, DLAE, EASE, EDLAE
from gramian.models.popularity import Popularity
from gramian.models.recipe import Recipe

METRICS = ("ndcg@20", "recall@20")
RECIPES: tuple[Recipe, ...] = (Popularity(), EASE(), DLAE(), EDLAE(), DEQL())
HISTORY = (260, 1196, 1240)  # Star Wars IV and V, The Terminator

YOURS = """
[bold]Now your own data[/bold]: csv, tsv, parquet or json lines, one row per event, with the
columns user_id and item_id (or name yours with --user and --item).

    gramian evaluate events.csv --model ease --model edlae
    gramian fit events.csv --model edlae --out my-model
    gramian recommend my-model --history ITEM --history ITEM

In this clone the command is .venv/bin/gramian. Or in Python:

    import gramian as gr
    events = gr.read("events.csv", user="user_id", item="item_id")
    model = gr.EDLAE(dropout=0.3, l2=200).fit(events)
    model.recommend_for([["one item", "another"]], k=10).items
"""


def trial(recipe: Recipe, data: Split, metrics: tuple[str, ...]) -> Trial:
    """Fit on the training part and judge on the rest."""
    with Measured() as cost:
        model = recipe.fit(data.train)
    return Trial(recipe, evaluate(model, data, metrics), cost.seconds, cost.peak_bytes)


def warm_up(metrics: tuple[str, ...]) -> None:
    """Compile the kernels (once on a machine), so that compiling is not measured as fitting."""
    trial(EASE(), split.strong(synthetic.clustered(100, 50, 1000)), metrics)


def demo() -> None:
    events = datasets.load("movielens", min_value=4)
    data = split.strong(events, validation_users=0, test_users=0.2)
    out.print("[bold]Gramian[/bold]: one Gram matrix, every linear recommender\n")
    out.print(f"MovieLens latest-small, ratings of 4 and more: {_size(events)}")
    out.print(f"Trained on {data.train.n_users} users, judged on the hidden fifth of {data.target.n_users} others.\n")
    with out.status("compiling kernels (the first run on a machine only)"):
        warm_up(METRICS)
    trials = []
    for recipe in RECIPES:
        with out.status(f"fitting {recipe}"):
            trials.append(trial(recipe, data, METRICS))
    out.print(leaderboard(trials))
    best = max(trials, key=lambda t: t.report[METRICS[0]])
    popular = next(t for t in trials if isinstance(t.recipe, Popularity))
    gain = best.report.compare(popular.report, METRICS[0])
    out.print(
        f"\n{type(best.recipe).__name__} against Popularity on the same users: "
        f"{METRICS[0]} {gain.difference:+.4f} ±{gain.stderr:.4f} (paired, p = {gain.p_value:.1g})\n"
    )
    with out.status("fitting on everybody"):
        model = best.recipe.fit(events)
    titles = dict(zip(model.items, events.titles or [], strict=True))
    out.print("[bold]Someone who liked[/bold] " + "; ".join(titles[i] for i in HISTORY))
    found = model.recommend_for([HISTORY], k=5)
    for rank, item in enumerate(found.items[0], start=1):
        out.print(Text(f"  {rank}. {titles[item]}", style="bold"), Text(f"score {found.scores[0][rank - 1]:.3f}, because of"))
        out.print(reasons(model, list(HISTORY), item), end="")
    out.print(YOURS)


def _size(events: Interactions) -> str:
    return f"{events.n_users:,} users, {events.n_items:,} movies, {events.n_interactions:,} likes"
