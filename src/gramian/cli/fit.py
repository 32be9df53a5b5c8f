"""`gramian fit`: fit a model and save it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gramian.cli.feature_options import FeatureSource, add_feature_options
from gramian.cli.item_options import example_item
from gramian.cli.model_options import ModelSpec, format_recipe, parse_recipes
from gramian.cli.options import (
    AsJson,
    EventSource,
    ItemTable,
    TagsColumn,
    Threads,
    TitleColumn,
    add_source_options,
    read_item_table,
    refuse_options,
)
from gramian.cli.render import announce, print_compile_footnote, print_json, print_next_command, print_text
from gramian.cli.spark_source import read_spark_events
from gramian.core.estimate import Estimate
from gramian.core.recipe import Recipe
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.experiments.trial import MeasuredCost
from gramian.io.checkpoints import clear_checkpoints
from gramian.io.folder import require_writable_folder
from gramian.linalg.memory import format_bytes
from gramian.linalg.resumable import clear_scratch
from gramian.models.sparse_edlae import SparseEDLAE

ENGINES = ("local", "spark")


@add_source_options
@add_feature_options
def fit_command(
    *,
    source: EventSource,
    feature_source: FeatureSource,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to write the model to.")] = Path("model"),
    model: ModelSpec = "edlae",
    title: TitleColumn = None,
    tags: TagsColumn = None,
    titles: ItemTable = None,
    dtype: Annotated[str, typer.Option(help="float32, or float64 for twice the memory.")] = "float32",
    scratch: Annotated[
        str | None,
        typer.Option(
            help="Keep the matrix, or the last epochs, in this folder. If the command is killed, run it again and it continues."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help=f"{' or '.join(ENGINES)}: where events are read and summed.")] = ENGINES[0],
    master: Annotated[
        str | None, typer.Option(help="Address of the Spark cluster, such as spark://host:7077 or local[4].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how much memory the fit would need.")] = False,
    n_threads: Threads = None,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Fit a model on events and save it to a folder."""
    (recipe,) = parse_recipes([model], flags)
    require_writable_folder(out_folder, "model")
    if engine not in ENGINES:
        raise InvalidInput(f"an engine among {', '.join(ENGINES)}", engine, "Choose one of them")
    if engine == "spark":
        refuse_options("--engine spark", {"--dry-run": dry_run, "--tags": None if titles else tags})
        events = read_spark_events(source, master, None if titles else title)
        events = events.described_by(read_item_table(titles, source.item, title, tags)) if titles else events
    else:
        refuse_options("--engine local", {"--master": master})
        events = source.read_events(title, tags, titles)
    features = feature_source.read_features(events, source.item, source.tag_separator)
    events = events if features is None else feature_source.attach(events, features)
    facts = {
        "recipe": recipe.to_json(),
        "users": events.n_users,
        "items": events.n_items,
        "interactions": events.n_interactions,
    }
    if dry_run:
        estimate = recipe.estimate(events, dtype=dtype, scratch=scratch)
        if as_json:
            print_json(facts | asdict(estimate) | {"fits": estimate.fits})
        else:
            print_text(f"{format_recipe(recipe)} on {events} {estimate}.")
            print_alternatives(recipe, estimate, events, scratch)
        return
    announce(f"fitting {format_recipe(recipe)}")
    with MeasuredCost() as cost:
        fitted = recipe.fit(events, dtype=dtype, scratch=scratch, n_threads=n_threads)
        fitted = fitted if features is None else feature_source.add_cold_items(fitted, features)
    fitted.save(out_folder)
    if scratch and engine == "local":
        clear_checkpoints(Path(scratch))
        clear_scratch(Path(scratch))
    if as_json:
        print_json({"model": str(out_folder)} | facts | {"seconds": cost.seconds, "peak_bytes": cost.peak_bytes})
        return
    print_text(f"{format_recipe(recipe)} on {events}: {cost.seconds:.1f} s, {format_bytes(cost.peak_bytes)}")
    print_compile_footnote()
    print_text(f"Saved to {out_folder}")
    print_next_command("recommend", out_folder, "--history", example_item(fitted.catalog))


def print_alternatives(recipe: Recipe, estimate: Estimate, events: Interactions, scratch: str | None) -> None:
    """Print what to do instead, if the fit needs more memory than is free."""
    if estimate.fits:
        return
    if "rank" in recipe.params:
        advice = "Choose a lower rank"
    elif scratch:
        advice = "Name a --scratch folder on a larger disk"
    else:
        advice = "Add --scratch FOLDER to keep the matrix in a file"
    print_text(f"{advice}, or keep fewer items with --k-core.")
    sparse = SparseEDLAE()
    if (sparse_estimate := sparse.estimate(events)).fits and recipe != sparse:
        print_text(f"Or add --model sparseedlae: {format_recipe(sparse)} {sparse_estimate}.")
