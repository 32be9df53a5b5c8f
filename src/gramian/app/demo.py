"""The main job on the bundled data: train, compare, recommend with reasons, and say how to do it with one's own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text

from gramian.app.show import leaderboard, out, reasons, status
from gramian.app.trial import Trial, warm_up
from gramian.data import datasets, split
from gramian.data.interactions import Interactions
from gramian.evaluation.evaluate import DEFAULT_METRICS
from gramian.models.autoencoders import DEQL, DLAE, EASE, EDLAE
from gramian.models.popularity import Popularity
from gramian.models.recipe import Recipe

METRIC = DEFAULT_METRICS[0]
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


def demo(*, as_json: bool = False) -> dict[str, Any]:
    """Run the demo; what it found is printed, or only returned with `as_json`."""
    say: Callable[..., None] = out.print if not as_json else lambda *_, **__: None
    events = datasets.load("movielens", min_value=4)
    data = split.strong(events, validation_users=0, test_users=0.2)
    say("[bold]Gramian[/bold]: one Gram matrix, every linear recommender\n")
    say(f"MovieLens, ratings of 4 and more: {_size(events)}")
    say(f"Trained on {data.train.n_users} users, judged on the hidden fifth of {data.target.n_users} others.\n")
    with status("compiling kernels (the first run on a machine only)"):
        warm_up()
    trials = []
    for recipe in RECIPES:
        with status(f"fitting {recipe}"):
            trials.append(Trial.of(recipe, data))
    say(leaderboard(trials))
    best = max(trials, key=lambda t: t.report[METRIC])
    gain = best.report.compare(trials[0].report, METRIC)
    say(f"\n{type(best.recipe).__name__} against Popularity on the same users:")
    say(f"{METRIC} {gain.difference:+.4f} ±{gain.stderr:.4f} (paired, p = {gain.p_value:.1g})\n")
    with status("fitting on everybody"):
        model = best.recipe.fit(events)
    titles = dict(zip(model.items, events.titles or [], strict=True))
    say("[bold]Someone who liked[/bold] " + "; ".join(titles[i] for i in HISTORY))
    found = model.recommend_for([HISTORY], k=5)
    for rank, item in enumerate(found.items[0], start=1):
        say(Text(f"  {rank}. {titles[item]}", style="bold"), Text(f"score {found.scores[0][rank - 1]:.3f}, because of"))
        say(reasons(model.explain(HISTORY, item)), end="", no_wrap=True, overflow="ellipsis")
    say(YOURS)
    return {"models": [t.to_json() for t in trials], "history": HISTORY, "recommendations": found.frame().to_dicts()}


def _size(events: Interactions) -> str:
    return f"{events.n_users:,} users, {events.n_items:,} movies, {events.n_interactions:,} likes"
