"""The demo: compare models on bundled data, recommend with reasons, and print the next steps for your own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gramian.cli.leaderboards import trial_leaderboard
from gramian.cli.render import announce, out, print_explanation, print_text, program_name
from gramian.core.recipe import Recipe
from gramian.data import datasets, split
from gramian.evaluation.metrics import DEFAULT_METRICS
from gramian.experiments.trial import Trial, warm_up
from gramian.models.autoencoders import DEQL, DLAE, EASE, EDLAE
from gramian.models.popularity import Popularity

DEMO_METRIC = DEFAULT_METRICS[0]
DEMO_RECIPES: tuple[Recipe, ...] = (Popularity(), EASE(), DLAE(), EDLAE(), DEQL())
DEMO_HISTORY = (260, 1196, 1240)  # Star Wars IV and V, The Terminator

NEXT_STEPS = """
Next, a model of your own, first on the same data:

    {program} fit movielens --min-value 4 --model edlae --out my-model
    {program} recommend my-model --history "Heat (1995)" --history 260

Then write events.csv in place of movielens: csv, tsv, parquet or json lines, one
row per event, with the columns user_id and item_id (or name yours with --user
and --item), and --min-value rating=4 if there are ratings. Or in Python:

    import gramian as gr
    events = gr.datasets.load("movielens", min_value=4)  # or gr.read("events.csv")
    model = gr.EDLAE(dropout=0.3, l2=200).fit(events)
    model.recommend_for([[6, 260]], k=10).titles
"""


def run_demo(*, as_json: bool = False) -> dict[str, Any]:
    """Run the demo and return its results as JSON. They are printed too, unless `as_json`."""
    say: Callable[..., None] = print_text if not as_json else lambda *_, **__: None
    events = datasets.load("movielens", min_value=4)
    parts = split.strong(events, validation_users=0, test_users=0.2)
    say("Gramian: one Gram matrix, every linear recommender\n", style="bold")
    counts = f"{events.n_users:,} users, {events.n_items:,} movies, {events.n_interactions:,} likes"
    say(f"MovieLens, ratings of 4 and more: {counts}")
    say(f"Fitted on {parts.train.n_users} users, evaluated on hidden likes of {parts.target.n_users} other users.\n")
    warm_up(*DEMO_RECIPES)  # the table below measures fits, not compilation
    trials = []
    for recipe in DEMO_RECIPES:
        announce(f"fitting {type(recipe).__name__}")
        trials.append(Trial.run(recipe, parts))
    best = max(trials, key=lambda trial: trial.report[DEMO_METRIC])
    gain = best.report.compare(trials[0].report, DEMO_METRIC)
    model = best.recipe.fit(events)
    result = model.recommend_for([DEMO_HISTORY], k=5)
    titles = result.titles or [[]]
    if not as_json:
        out.print(trial_leaderboard(trials))
        say(f"\n{type(best.recipe).__name__} against Popularity on the same users:")
        say(f"{DEMO_METRIC} {gain.difference:+.4f} ±{gain.stderr:.4f} (paired, p = {gain.p_value:.1g})\n")
        liked = "; ".join(model.catalog.title_of(model.catalog.column(item)) for item in DEMO_HISTORY)
        say(f"Someone who liked {liked}", style="bold")
        for rank, (item, title, score) in enumerate(zip(result.items[0], titles[0], result.scores[0], strict=True), start=1):
            say(f"  {rank}. {title}: score {score:.3f}, because of")
            print_explanation(model.explain(DEMO_HISTORY, item))
        say(NEXT_STEPS.format(program=program_name()))
    trial_rows = [trial.to_json() for trial in trials]
    return {"models": trial_rows, "history": DEMO_HISTORY, "recommendations": result.frame().to_dicts()}
