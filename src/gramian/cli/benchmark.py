"""`gramian benchmark` and `gramian report`: published tables, and the same comparison on your own data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from gramian.cli.leaderboards import benchmark_leaderboard, merge_notes, published_table
from gramian.cli.model_options import parse_model, split_specs
from gramian.cli.options import AsJson, EventSource, Threads, add_source_options, keyword_option, refuse_options
from gramian.cli.render import note, out, print_json, print_next_command, print_text
from gramian.core.params import format_spec
from gramian.errors import InvalidInput, MissingFile
from gramian.evaluation.metrics import DEFAULT_METRICS
from gramian.experiments import report as reports
from gramian.experiments.experiment import EXPERIMENT_SPLITS, EventsData, Experiment, ModelEntry, find_experiment, papers
from gramian.experiments.markdown import fill_template
from gramian.experiments.runner import Benchmark, Cell, compares_with_published
from gramian.linalg.threads import limit_threads

COMPARED_MODELS = ["popularity", "ease", "edlae", "ials", "rg2"]  # on your own data, if --models is left out
OwnData = Annotated[
    str | None,
    typer.Option(
        help="Your own events: a file, glob or folder, or the name of a data set. With a table: which of its data sets to run."
    ),
]


@partial(add_source_options, data=keyword_option("data", OwnData))
def benchmark_command(
    table: Annotated[
        str | None, typer.Argument(help="The name of a table, or the path of a .toml file. Without one, the tables are listed.")
    ] = None,
    *,
    source: EventSource,
    models: Annotated[
        list[str] | None,
        typer.Option(
            help='Models to compare, such as ease,edlae or "ease(l2=300)", which keeps l2 fixed; with a table, models of it. '
            "Repeat, or separate by commas."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of own data: strong (the default), weak or leave-last.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Metric on own data; the first is maximised. Repeat.")] = None,
    search_items: Annotated[
        int | None, typer.Option(help="On own data, search parameters on this many of the most popular items.", min=1)
    ] = None,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="Evaluate the table's published grids on the test split too, in a column of their own, for comparison only.",
        ),
    ] = False,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            help="Fit and test again what the journal has without the metrics of each user, which paired tests need.",
        ),
    ] = False,
    journal: Annotated[
        Path, typer.Option(help="Write results to this file. If the command is killed, run it again and it continues.")
    ] = (Path("benchmark.jsonl")),
    seed: Annotated[int | None, typer.Option(help="Seed of the split of own data.", min=0)] = None,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a published table, or compare models on your own data: parameters are chosen on a validation part."""
    specs = [spec for text in models or () for spec in split_specs(text)]
    own_data_options: dict[str, Any] = {
        "--user": source.user,
        "--item": source.item,
        "--value": source.value,
        "--time": source.time,
        "--split": split,
        "--min-value": source.min_value,
        "--k-core": source.k_core,
        "--metric": metric,
        "--search-items": search_items,
        "--seed": seed,
    }
    if table is None:
        refuse_options("own data", {"--as-published": as_published})
    if table is None and source.data is None:
        if models or any(own_data_options.values()):
            raise InvalidInput("a table, or own data", "neither", "Name a table, or add --data FILE")
        list_tables(as_json=as_json)
        return
    if table is not None:
        refuse_options("a table", own_data_options)
        experiment = find_experiment(table).select([] if source.data is None else source.data.split(","), specs)
    else:
        experiment = plan_experiment(source, specs or COMPARED_MODELS, split or "strong", metric, search_items, seed)
    with limit_threads(n_threads):
        benchmark = Benchmark(journal) if as_json else Benchmark(journal, log=note)
        cells = benchmark.run(experiment, as_published=as_published, refit=refit)
    if as_json:
        rows = [cell_to_json(benchmark, experiment, cell) for cell in cells]
        print_json({"table": experiment.name, "journal": str(journal), "cells": rows})
        return
    print_benchmark(benchmark, experiment, cells)
    if journal.exists():
        print_text(f"Results are in {journal}")
        print_next_command("report", "--journal", journal)


def plan_experiment(
    source: EventSource, specs: list[str], split: str, metric: list[str] | None, search_items: int | None, seed: int | None
) -> Experiment:
    """Return the experiment that compares models on own data."""
    entries = tuple(plan_entry(spec) for spec in specs)
    if split not in EXPERIMENT_SPLITS:
        raise InvalidInput(f"a split among {', '.join(EXPERIMENT_SPLITS)}", split, "Choose one of them")
    if split == "leave-last":
        refuse_options("--split leave-last", {"--seed": seed})
    events, metrics = source.read_events(), {name: name for name in metric or DEFAULT_METRICS}
    options = {} if seed is None else {"seed": seed}
    data = EventsData(Path(source.data).resolve().name, split, options, search_items=search_items, events=events)
    name = f"{data.name}, {split} split"  # which no published table is called
    return Experiment(name, name, metrics, next(iter(metrics)), (data,), entries)


def plan_entry(spec: str) -> ModelEntry:
    """Return a model of the experiment: parameters in the spec are fixed, all others are searched."""
    model, params = parse_model(spec)
    checked = model(**params)
    fixed = {name: [checked.params[name]] for name in params}
    name = format_spec({"name": model.__name__, "params": params}) if params else model.__name__
    return ModelEntry(name, model.__name__, fixed or None)


def print_benchmark(benchmark: Benchmark, experiment: Experiment, cells: list[Cell]) -> None:
    """Print a table for each data set, with notes, and where to get data sets that are missing."""
    for data in experiment.data:
        data_cells = [cell for cell in cells if cell.data == data.name]
        if data_cells:
            if compares_with_published(data_cells):
                out.print(published_table(experiment, data_cells))
                if any(cell.best_on_test for cell in data_cells):
                    print_text(reports.EXPLANATION_OF_AS_PUBLISHED)
            else:
                comparisons = benchmark.compare_with_best(data_cells, experiment.choose)
                out.print(benchmark_leaderboard(experiment, data_cells, comparisons))
            for text in merge_notes(data_cells):
                print_text(text)
        reason_missing = data.why_missing()
        if reason_missing:
            print_text(f"{data.name} is not here: {reason_missing}\n")


def report_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Your own experiment files, beside the published tables.")] = None,
    *,
    journal: Annotated[Path, typer.Option(help="The journal that `gramian benchmark` wrote.")] = Path("benchmark.jsonl"),
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to write index.html and the pictures to.")] = Path("report"),
    template: Annotated[
        Path | None,
        typer.Option(
            help="Fill this Markdown template (NAME.md.j2) with tables in place of a page, and write NAME.md beside it."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an HTML page with the tables and pictures of a benchmark's journal, and the pictures as files."""
    if template is not None:
        refuse_options("--template", {"--json": as_json})
    if not journal.exists():
        raise MissingFile(f"a benchmark's journal at {journal}", "no such file", "Run `gramian benchmark movielens` first")
    experiments = [Experiment.read(path) for path in papers().values()] + [find_experiment(name) for name in tables or ()]
    if template is not None:
        print_text(f"Written to {fill_template(Benchmark(journal), experiments, template)}")
        return
    page = reports.write_report(Benchmark(journal), experiments, out_folder)
    if as_json:
        print_json({"page": str(page), "pictures": sorted(path.name for path in out_folder.glob("*.png"))})
        return
    print_text(f"Written to {page}, which any browser opens")


def list_tables(*, as_json: bool) -> None:
    """Print the tables that can be reproduced, and which of their data sets are here."""
    experiments = [Experiment.read(path) for path in papers().values()]
    if as_json:
        rows = [
            {"table": e.name, "title": e.title, "data": {data.name: data.why_missing() or "here" for data in e.data}}
            for e in experiments
        ]
        print_json({"tables": rows})
        return
    for experiment in experiments:
        out.print(Text.assemble((experiment.name, "bold"), f"  {experiment.title}"), soft_wrap=True)
        here = [data.name for data in experiment.data if not data.why_missing()]
        missing = [data.name for data in experiment.data if data.why_missing()]
        words = f"here: {', '.join(here) or 'none'}" + (f"; missing: {', '.join(missing)}" if missing else "")
        out.print(f"  {words}", markup=False, highlight=False)
    print_text("\nRun a table to see where to get the data it misses. Try first one that needs no download.")
    print_next_command("benchmark", "movielens")


def cell_to_json(benchmark: Benchmark, experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """Return a cell of a table as JSON."""
    figures: dict[str, dict[str, Any]] = {
        name: {"published": cell.published.get(name), "ours": cell.measured_figure(metric)}
        for name, metric in experiment.metrics.items()
    }
    if cell.best_on_test is not None:
        for name, metric in experiment.metrics.items():
            figures[name]["selected on test"] = cell.best_on_test["metrics"].get(metric)
    fit = cell.fit or {}
    data_cells = [other for other in benchmark.cells_of(experiment) if other.data == cell.data]
    comparison = benchmark.compare_with_best(data_cells, experiment.choose).get(cell.model)
    return {
        "data": cell.data,
        "model": cell.model,
        "figures": figures,
        "note": cell.missing or cell.note,
        "recipe": fit.get("recipe"),
        "seconds": fit.get("seconds"),
        "peak_bytes": fit.get("peak_bytes"),
        "selected_on_test": cell.best_on_test and {"recipe": cell.best_on_test["recipe"], "points": cell.n_test_points},
        "against_best": comparison and vars(comparison),
    }
