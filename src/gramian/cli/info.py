"""`gramian demo`, `gramian models` and `gramian datasets`: a first look, and lists of what is available."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from gramian.cli.demo import run_demo
from gramian.cli.model_options import complete_model
from gramian.cli.options import AsJson
from gramian.cli.render import out, plain_table, print_json, print_next_command, print_text
from gramian.core.params import describe_constraint, document
from gramian.core.recipe import Recipe
from gramian.core.registry import MODELS
from gramian.data.datasets import DATA_VARIABLE, DATASETS, find_dataset
from gramian.errors import MissingFile


def demo_command(*, as_json: AsJson = False) -> None:
    """Fit five models on bundled MovieLens data, compare them, and recommend with reasons."""
    results = run_demo(as_json=as_json)
    if as_json:
        print_json(results)


def models_command(
    name: Annotated[
        str | None, typer.Argument(help="A model to explain, with its parameters.", autocompletion=complete_model)
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the models, or explain one with its parameters."""
    models = MODELS if name is None else {name: MODELS.find(name)}
    if as_json:
        print_json({"models": [model_to_json(model) for model in models.values()]})
        return
    if name is not None:
        print_text(document(models[name]).strip())
        return
    table = plain_table()
    table.add_column("model", no_wrap=True)
    table.add_column("")
    for known, model in models.items():
        table.add_row(Text(known.lower()), Text(first_line(model)))
    out.print(table)
    print_next_command("models", "edlae")


def model_to_json(model: type[Recipe]) -> dict[str, object]:
    """Return a model's name, its summary and its parameters as JSON."""
    defaults = model().to_json()["params"]
    params = {
        field.name: {"about": field.metadata["about"], "accepts": describe_constraint(field), "default": defaults[field.name]}
        for field in model.param_fields()
    }
    return {"name": model.__name__, "about": first_line(model), "params": params}


def first_line(model: type[Recipe]) -> str:
    """Return the first line of a model's docstring."""
    return document(model).strip().partition("\n")[0]


def datasets_command(*, as_json: AsJson = False) -> None:
    """List the named data sets, and where to get those that are not bundled."""
    rows = []
    for name, dataset in DATASETS.items():
        try:
            find_dataset(name)
            is_here = True
        except MissingFile:
            is_here = False
        rows.append({"name": name, "here": is_here, "about": dataset.about, "users": dataset.n_users, "items": dataset.n_items,
                     "interactions": dataset.n_interactions, "address": dataset.address, "terms": dataset.terms})  # fmt: skip
    if as_json:
        print_json({"datasets": rows})
        return
    for row in rows:
        print_text(f"{row['name']}{'' if row['here'] else '  (not here)'}", style="bold")
        print_text(f"  {row['about']}\n  {row['users']:,} users, {row['items']:,} items, {row['interactions']:,} interactions")
        print_text(f"  from {row['address']}\n  {row['terms']}")
    print_text(f"\nPut a data set's files into a folder of its name, and set {DATA_VARIABLE} to the folder above it.")
