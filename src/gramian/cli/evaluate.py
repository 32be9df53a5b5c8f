"""`gramian evaluate`, `tune`, `ranks` and `epochs`: how good models are, and with which parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gramian.cli.item_options import example_item
from gramian.cli.leaderboards import heat_maps, path_tables, point_leaderboard, trial_leaderboard
from gramian.cli.model_options import ModelSpecs, complete_model, format_recipe, parse_model, parse_recipes, parse_space
from gramian.cli.options import (
    LEAVE_ONE_OUT,
    PUBLISHED,
    SPLITS,
    AsJson,
    EventSource,
    ExcludeSelf,
    ItemTable,
    RerankDepth,
    RerankStages,
    SplitSeed,
    TagsColumn,
    Threads,
    TitleColumn,
    add_source_options,
    complete_split,
    parse_number,
    refuse_options,
    require_split,
    source_words,
)
from gramian.cli.render import (
    announce,
    out,
    print_compile_footnote,
    print_json,
    print_next_command,
    print_paragraph,
    print_text,
)
from gramian.core.epochs import EpochRecipe
from gramian.core.registry import MODELS
from gramian.core.reranking import DEFAULT_DEPTH, parse_reranker
from gramian.errors import InvalidInput
from gramian.evaluation.metrics import DEFAULT_METRICS, parse_metrics
from gramian.experiments.experiment import validation_of
from gramian.experiments.plots import rank_plotter
from gramian.experiments.trial import Trial
from gramian.io.checkpoints import clear_checkpoints
from gramian.io.folder import require_writable_folder
from gramian.linalg.resumable import clear_scratch
from gramian.linalg.threads import limit_threads
from gramian.tuning.epoch_path import epoch_path
from gramian.tuning.rank_path import rank_path
from gramian.tuning.search import tune

DEFAULT_MODELS = ["popularity", "ease", "edlae"]
REFIT_FOLDER = "gramian-refit"  # in the scratch folder of `epochs`
MaximisedMetric = Annotated[str, typer.Option(help="Metric to maximise, such as ndcg@20.")]


@add_source_options
def evaluate_command(
    *,
    source: EventSource,
    model: ModelSpecs = None,
    split: Annotated[
        str, typer.Option(help=f"{', '.join(SPLITS)}, or published for data sets that have one.", autocompletion=complete_split)
    ] = "strong",
    metric: Annotated[list[str] | None, typer.Option(help="Such as ndcg@20, recall@20, coverage@20; repeat for more.")] = None,
    exclude_self: ExcludeSelf = False,
    rerank: RerankStages = None,
    depth: RerankDepth = DEFAULT_DEPTH,
    seed: SplitSeed = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Fit models on one part of the events and evaluate them on the rest."""
    recipes = parse_recipes(model or DEFAULT_MODELS, flags)
    metrics = [str(name) for name in parse_metrics(metric or DEFAULT_METRICS)]  # checked before any model is fitted
    require_split(split, PUBLISHED)
    stages = [parse_reranker(stage) for stage in rerank or ()]  # checked before any model is fitted
    parts = source.read_split(split, seed)
    trials = []
    with limit_threads(n_threads):
        for recipe in recipes:
            announce(f"fitting {format_recipe(recipe)}")
            trials.append(Trial.run(recipe, parts, metrics, exclude_self=exclude_self, rerank=stages, depth=depth))
    if as_json:
        rows = [trial.to_json() for trial in trials]
        print_json({"split": parts.fingerprint, "test_users": parts.target.n_users, "models": rows})
        return
    print_text(f"{split} split, {parts.target.n_users:,} test users")
    out.print(trial_leaderboard(trials))
    print_compile_footnote()


@add_source_options
def tune_command(
    *,
    source: EventSource,
    model: Annotated[
        str, typer.Option(help="Name of a model; `gramian models` lists them all.", autocompletion=complete_model)
    ] = "edlae",
    space: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to try of a parameter: l2=10,100,1000 or, with --trials, a range l2=1:1000. Repeat for more."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Number of points that Optuna chooses; every combination without it.")
    ] = None,
    split: Annotated[
        str, typer.Option(help=f"{', '.join(SPLITS)}, or {LEAVE_ONE_OUT}.", autocompletion=complete_split)
    ] = "strong",
    metric: MaximisedMetric = DEFAULT_METRICS[0],
    journal: Annotated[
        Path | None, typer.Option(help="Write results to this file. If the command is killed, run it again and it continues.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of Optuna.", min=0)] = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Search the parameters of a model on the validation part of a split, or by leaving out every user in turn."""
    require_split(split, LEAVE_ONE_OUT)
    recipe_class, params = parse_model(model)
    if params:
        name, value = next(iter(params.items()))
        raise InvalidInput("the name of a model alone", model, f"Fix a parameter with --space {name}={value}")
    values = dict(parse_space(recipe_class, text) for text in space or ())
    events = source.read_events()
    parts = None if split == LEAVE_ONE_OUT else SPLITS[split](events, seed)
    objective_data = events if parts is None else validation_of(parts, split)
    search = tune(recipe_class, objective_data, values, metric, trials=trials, journal=journal, seed=seed, n_threads=n_threads)
    with limit_threads(n_threads):
        test = None if parts is None else Trial.run(search.recipe, parts, (metric,)).report
    if as_json:
        rows = [
            r.recipe.to_json() | {"value": r.value, "stderr": r.stderr, "p_value": r.p_value, "users": r.n_users}
            for r in search.results
        ]
        tested = None if test is None else {"value": test[metric], "stderr": test.stderr[metric]}
        print_json({"metric": metric, "users": search.n_users, "points": rows, "test": tested})
        return
    where = "every user left out" if parts is None else "validation"
    print_text(f"{len(search.results):,} points by {metric}, {where}, {search.n_users:,} users. Best first:")
    out.print(point_leaderboard(search))
    for heat_map in heat_maps(search):
        out.print(heat_map)
    if test is not None:
        print_text(f"\nThe best on the test part: {metric} {test[metric]:.4f} ±{test.stderr[metric]:.4f}")
    print_next_command("fit", *source_words(source), "--model", format_recipe(search.recipe), "--out", "my-model")


@add_source_options
def ranks_command(
    *,
    source: EventSource,
    model: ModelSpecs = None,
    ranks: Annotated[str, typer.Option(help="The ranks to evaluate.")] = "8,16,32,64,128,256",
    metric: Annotated[str, typer.Option(help="Metric to show, such as ndcg@20.")] = DEFAULT_METRICS[0],
    split: Annotated[str, typer.Option(help=f"One of {', '.join(SPLITS)}.", autocompletion=complete_split)] = "strong",
    out_file: Annotated[Path | None, typer.Option("--out", help="Draw the curve to this file (.svg, .png, .pdf).")] = None,
    seed: SplitSeed = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Show quality against rank for low-rank models, from one decomposition for each model."""
    specs = model or ["lowrankedlae"]
    for spec in specs:
        refuse_options("--ranks", {"rank": parse_model(spec)[1].get("rank"), "--rank": flags.get("rank")})
    recipes = parse_recipes(specs, flags)
    values = [parse_number(rank) for rank in ranks.split(",")]
    require_split(split)
    draw = None if out_file is None else rank_plotter(out_file)
    parts = source.read_split(split, seed)
    paths = [rank_path(recipe, values, parts, [metric], n_threads=n_threads) for recipe in recipes]
    if draw:
        draw(paths, metric)
    if as_json:
        print_json({"metric": metric, "models": [p.recipe.to_json() | {"ranks": p.frame().to_dicts()} for p in paths]})
        return
    for table in path_tables(paths, metric):
        out.print(table)
    if out_file:
        print_text(f"Drawn to {out_file}")


@add_source_options
def epochs_command(
    *,
    source: EventSource,
    model: Annotated[
        str,
        typer.Option(
            help='A model that is trained in epochs, such as ials or "ials(rank=64, l2=0.003)".', autocompletion=complete_model
        ),
    ] = "ials",
    title: TitleColumn = None,
    tags: TagsColumn = None,
    titles: ItemTable = None,
    metric: MaximisedMetric = DEFAULT_METRICS[0],
    patience: Annotated[int, typer.Option(help="Stop when the metric has not risen for so many epochs.", min=1)] = 3,
    split: Annotated[
        str, typer.Option(help=f"One of {', '.join(SPLITS)}; its validation part decides.", autocompletion=complete_split)
    ] = "strong",
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Fit the best number of epochs on all events, and write the model here.")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Keep the last epochs in this folder. If the command is killed, run it again and it continues."),
    ] = None,
    seed: SplitSeed = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Find the best number of epochs on the validation part; with --out, fit on all events for so many epochs."""
    (recipe,) = parse_recipes([model], flags)
    if not isinstance(recipe, EpochRecipe):
        names = ", ".join(name.lower() for name, model_class in MODELS.items() if issubclass(model_class, EpochRecipe))
        raise InvalidInput(f"a model trained in epochs ({names})", repr(model), "Choose one of them")
    require_split(split)
    if out_folder:
        require_writable_folder(out_folder, "model")
    events = source.read_events(title, tags, titles)
    parts = validation_of(SPLITS[split](events, seed), split)
    path = epoch_path(recipe, parts, [metric], patience=patience, scratch=scratch, n_threads=n_threads)
    if out_folder:
        announce(f"fitting {format_recipe(path.recipe)} on all events")
        refit_scratch = None if scratch is None else scratch / REFIT_FOLDER
        path.recipe.fit(events, scratch=refit_scratch, n_threads=n_threads).save(out_folder)
    for folder in (scratch / REFIT_FOLDER, scratch) if scratch else ():
        clear_checkpoints(folder)
        clear_scratch(folder)
    if as_json:
        facts: dict[str, Any] = {"metric": metric, "recipe": path.recipe.to_json(), "epochs": path.frame().to_dicts()}
        print_json(facts | ({"model": str(out_folder)} if out_folder else {}))
        return
    for table in path_tables([path], metric):
        out.print(table)
    n_left_out = events.n_interactions - parts.train.n_interactions
    print_paragraph(
        f"Trained on {parts.train.n_interactions:,} of {events.n_interactions:,} interactions. The other {n_left_out:,} are "
        "left out: the validation part, on which the epochs are compared, and the test part, which is not used."
    )
    if out_folder:
        print_text(f"Saved to {out_folder}, fitted on all {events.n_interactions:,} interactions: {format_recipe(path.recipe)}")
        print_next_command("recommend", out_folder, "--history", example_item(events.catalog))
    else:
        described = {"--title": title, "--tags": tags, "--titles": titles}
        options = [word for flag, value in described.items() if value for word in (flag, value)]
        print_next_command("fit", *source_words(source), *options, "--model", format_recipe(path.recipe), "--out", "my-model")
