"""The commands around the papers' tables: `gramian benchmark` and `gramian report`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gramian.app import report as reports
from gramian.app.benchmark import Benchmark, Cell
from gramian.app.experiment import KINDS, SPLITS, Entry, Experiment, Given, find, papers
from gramian.app.options import AsJson, Source, Threads, keyword, kinds_of, refuse, show_json, source_flags
from gramian.app.show import note, notes, out, table_of
from gramian.errors import InvalidInput, MissingFile
from gramian.evaluation.evaluate import DEFAULT_METRICS
from gramian.linalg.threads import threads

COMPARED = ["popularity", "ease", "edlae", "ials", "rg2"]  # on own data, unless told otherwise
COMMA = re.compile(r",(?![^(]*\))")  # not within parentheses
OwnData = Annotated[
    str | None,
    typer.Option(help="Your own events: a file, glob or folder, or a data set's name. With a table, one of its data sets."),
]


@partial(source_flags, data=keyword("data", OwnData))
def benchmark(
    table: Annotated[str | None, typer.Argument(help="A table by name (none lists them), or a path to a .toml file.")] = None,
    *,
    source: Source,
    models: Annotated[
        list[str] | None,
        typer.Option(help=f"Models to compare: of the table, or of {', '.join(KINDS)}. Repeat, or use commas."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of own data: strong (the default), weak or leave-last.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Of own data; the first is what is maximised.")] = None,
    search_items: Annotated[
        int | None, typer.Option(help="Of own data: search settings on so many of the most popular items.", min=1)
    ] = None,
    journal: Annotated[
        Path, typer.Option(help="Results are kept here. After a kill, the same command goes on where it was.")
    ] = (Path("benchmark.jsonl")),
    seed: Annotated[int | None, typer.Option(help="Seed of the split of own data.", min=0)] = None,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a published table, or compare models on your own data: choose settings on a validation part, then test once."""
    chosen = [name for words in models or () for name in COMMA.split(words)]
    own: dict[str, Any] = {
        "--user": source.user,
        "--item": source.item,
        "--value": source.value,
        "--time": source.time,
        "--split": split,
    }
    own |= {"--min-value": source.min_value, "--k-core": source.k_core, "--metric": metric, "--search-items": search_items}
    own["--seed"] = seed
    if table is None and source.data is None:
        if models or any(own.values()):
            raise InvalidInput("a table, or own data", "neither", "Name a table, or add --data FILE")
        list_tables(as_json=as_json)
        return
    if table is not None:
        refuse("a table", own)
        experiment = find(table).only([] if source.data is None else source.data.split(","), chosen)
    else:
        kinds, how = kinds_of(chosen or COMPARED), split or "strong"
        if how not in SPLITS:
            raise InvalidInput(f"a split among {', '.join(SPLITS)}", how, "Choose one of them")
        if how == "leave-last":
            refuse("--split leave-last", {"--seed": seed})
        events, metrics = source.events(), {name: name for name in metric or DEFAULT_METRICS}
        options = {} if seed is None else {"seed": seed}
        given = Given(Path(str(source.data)).resolve().name, how, options, search_items=search_items, events=events)
        entries = tuple(Entry(kind.__name__, kind.__name__) for kind in kinds)
        name = f"{given.name}, {how} split"  # which is no paper's table
        experiment = Experiment(name, name, metrics, next(iter(metrics)), (given,), entries)
    with threads(n_threads):
        bench = Benchmark(journal) if as_json else Benchmark(journal, say=note)
        cells = bench.run(experiment)
    if as_json:
        show_json(
            {"table": experiment.name, "journal": str(journal), "cells": [cell_json(bench, experiment, c) for c in cells]}
        )
        return
    for data in experiment.data:
        own_cells = [cell for cell in cells if cell.data == data.name]
        if own_cells:
            out.print(table_of(experiment, own_cells, bench.against_best(own_cells, experiment.choose)))
            for words in notes(own_cells):
                out.print(words, markup=False, highlight=False)
        absent = data.absent()
        if absent:
            out.print(f"{data.name} is not here: {absent}\n", markup=False)
    if journal.exists():
        out.print(f"Kept in {journal}. Next: gramian report --journal {journal}", markup=False)


def report(
    tables: Annotated[list[str] | None, typer.Argument(help="Your own experiment files, beside the papers'.")] = None,
    *,
    journal: Annotated[Path, typer.Option(help="What `gramian benchmark` wrote.")] = Path("benchmark.jsonl"),
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to write index.html and the pictures to.")] = Path("report"),
    as_json: AsJson = False,
) -> None:
    """Write a page with the tables and pictures of a benchmark journal, which needs no network, and the pictures as files."""
    if not journal.exists():
        raise MissingFile(f"a benchmark's journal at {journal}", "no such file", "Run `gramian benchmark movielens` first")
    known = [Experiment.read(path) for path in papers().values()] + [find(name) for name in tables or ()]
    page = reports.write(Benchmark(journal), known, out_folder)
    if as_json:
        show_json({"page": str(page), "pictures": sorted(path.name for path in out_folder.glob("*.png"))})
        return
    out.print(f"Written to {page}", markup=False)


def list_tables(*, as_json: bool) -> None:
    """The tables that can be reproduced, and for which of their data sets."""
    found = [Experiment.read(path) for path in papers().values()]
    rows = [{"table": e.name, "title": e.title, "data": {data.name: data.absent() or "here" for data in e.data}} for e in found]
    if as_json:
        show_json({"tables": rows})
        return
    for e in found:
        out.print(f"[bold]{e.name}[/bold]  {e.title}")
        here = [data.name for data in e.data if not data.absent()]
        missing = [data.name for data in e.data if data.absent()]
        out.print(f"  here: {', '.join(here) or 'none'}" + (f"; missing: {', '.join(missing)}" if missing else ""))
    out.print("\nA table says where to get what it misses. Try first: gramian benchmark movielens")


def cell_json(bench: Benchmark, experiment: Experiment, cell: Cell) -> dict[str, Any]:
    figures = {
        name: {"published": cell.published.get(name), "ours": cell.ours(here)} for name, here in experiment.metrics.items()
    }
    fit = cell.fit or {}
    others = [other for other in bench.shown(experiment) if other.data == cell.data]
    pair = bench.against_best(others, experiment.choose).get(cell.model)
    found = {
        "data": cell.data,
        "model": cell.model,
        "figures": figures,
        "note": cell.absent or cell.note,
        "recipe": fit.get("recipe"),
    }
    return found | {"seconds": fit.get("seconds"), "peak_bytes": fit.get("peak_bytes"), "against_best": pair and vars(pair)}
