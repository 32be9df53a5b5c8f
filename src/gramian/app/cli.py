"""The command line: thin, and in the words of the library. Errors are one line on stderr and exit code 2."""

from __future__ import annotations

import gc
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from gramian.app import demo as demonstration
from gramian.app.cluster import events_on_cluster
from gramian.app.experiment import KINDS, validation_of
from gramian.app.options import (
    LEAVE_ONE_OUT,
    RANKED,
    SPLITS,
    TRAINED,
    AsJson,
    ExcludeSelf,
    K,
    Saved,
    Source,
    TagsColumn,
    Threads,
    TitleColumn,
    axis_of,
    compiled,
    id_of,
    item_of,
    kinds_of,
    listed,
    named_items,
    number,
    option,
    recipe_flags,
    recipes_of,
    refuse,
    require_split,
    show_json,
    source_flags,
    title_of,
)
from gramian.app.plots import plots
from gramian.app.shelf import Shelf, read_kernels
from gramian.app.show import curve, heat_maps, leaderboard, out, points, reasons, recommendations
from gramian.app.tables import benchmark, report
from gramian.app.trial import Measured, Trial
from gramian.data import datasets as registry
from gramian.errors import GramianError, InvalidInput, MissingFile, NotSupported
from gramian.evaluation.evaluate import DEFAULT_METRICS
from gramian.linalg.memory import readable
from gramian.linalg.scratch import clear
from gramian.linalg.threads import threads
from gramian.models import load
from gramian.models.iterative import clear_checkpoints
from gramian.store import place
from gramian.tuning.epoch_path import epoch_path
from gramian.tuning.rank_path import rank_path
from gramian.tuning.search import tune as search

app = typer.Typer(
    help="Recommendations from implicit feedback: one Gram matrix, every linear recommender.",
    epilog="Try first: gramian demo",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

INTERRUPTED = 130
ENGINES = ("local", "spark")


@app.callback()
def main(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        out.print(package_version("gramian"), highlight=False)
    elif context.invoked_subcommand is None:
        out.print(context.get_help(), markup=False)


@app.command(epilog="Example: gramian demo")
def demo(*, as_json: AsJson = False) -> None:
    """Train five models on the bundled MovieLens data, compare them, and recommend with reasons."""
    found = demonstration.demo(as_json=as_json)
    if as_json:
        show_json(found)


@app.command(epilog="Example: gramian fit ratings.csv --min-value rating=4 --model edlae --dropout 0.3 --l2 200 --out my-model")
@recipe_flags
@source_flags
def fit(
    *,
    source: Source,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to write the model to.")] = Path("model"),
    model: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")] = "edlae",
    title: TitleColumn = None,
    tags: TagsColumn = None,
    titles: Annotated[
        Path | None, typer.Option(help="A table of items with their titles (columns as --item, --title, --tags).")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, or float64 for twice the memory.")] = "float32",
    scratch: Annotated[
        str | None,
        typer.Option(
            help="Keep the matrix, or the last epochs, in this folder. After a kill, the same command goes on where it was."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help=f"{' or '.join(ENGINES)}: where events are read and summed.")] = ENGINES[0],
    master: Annotated[str | None, typer.Option(help="Of a Spark cluster, such as spark://host:7077 or local[4].")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what time and memory it would take.")] = False,
    n_threads: Threads = None,
    as_json: AsJson = False,
    settings: dict[str, Any],
) -> None:
    """Fit a model on events and save it to a folder."""
    (recipe,) = recipes_of([model], settings)
    place(out_folder, "model")
    if engine not in ENGINES:
        raise InvalidInput(f"an engine among {', '.join(ENGINES)}", engine, "Choose one of them")
    if engine == "spark":
        refuse("--engine spark", {"--dry-run": dry_run, "--tags": None if titles else tags})
        events = events_on_cluster(source, master, None if titles else title)
    else:
        refuse("--engine local", {"--master": master})
        events = source.events() if titles else source.events(title, tags)
    if titles:
        events = events.named_like(named_items(titles, source.item or "item_id", title, tags))
    compiled(recipe)
    facts = {"users": events.n_users, "items": events.n_items, "interactions": events.n_interactions}
    if dry_run:
        estimate = recipe.estimate(events, dtype=dtype, scratch=scratch, n_threads=n_threads)
        if as_json:
            show_json({"recipe": recipe.to_json(), **facts, **asdict(estimate), "fits": estimate.fits})
            return
        out.print(f"{recipe} on {events}: {estimate}.", markup=False)
        if not estimate.fits:
            file = (
                "Name a --scratch folder on a larger disk" if scratch else "Add --scratch FOLDER to keep the matrix in a file"
            )
            way = "Choose a lower --rank" if "rank" in recipe.chosen else file
            out.print(f"{way}, or keep fewer items with --k-core.")
        return
    with Measured() as cost:
        fitted = recipe.fit(events, dtype=dtype, scratch=scratch, n_threads=n_threads)
    fitted.save(out_folder)
    if scratch and engine == "local":
        clear_checkpoints(Path(scratch))
        clear(Path(scratch))
    if as_json:
        show_json(
            {
                "model": str(out_folder),
                "recipe": recipe.to_json(),
                **facts,
                "seconds": cost.seconds,
                "peak_bytes": cost.peak_bytes,
            }
        )
        return
    out.print(f"{recipe} on {events}: {cost.seconds:.1f} s, {readable(cost.peak_bytes)}", markup=False)
    out.print(f"Saved to {out_folder}. Next: gramian recommend {out_folder} --history ITEM", markup=False)


@app.command(epilog='Example: gramian recommend my-model --history "Heat (1995)" --history 260 -k 5')
def recommend(
    model: Saved,
    *,
    user: Annotated[list[str] | None, typer.Option(help="A user the model was fitted on; repeat for more.")] = None,
    history: Annotated[list[str] | None, typer.Option(help="An item of one history, by id or title; repeat for more.")] = None,
    k: K = 10,
    allow: Annotated[list[str] | None, typer.Option(help="Only these items; repeat for more.")] = None,
    deny: Annotated[list[str] | None, typer.Option(help="None of these items; repeat for more.")] = None,
    exclude_self: ExcludeSelf = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Write the lists of these users, or of all, to a parquet file.")
    ] = None,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items for known users, or for a history of items; for all users with --out."""
    if history and (user or out_file):
        raise InvalidInput("--history alone", f"{'--user' if user else '--out'} with it", "Pass one of them")
    if not (user or history or out_file):
        raise InvalidInput("--user, --history or --out", "none of them", "Pass one of them")
    fitted = load(model)
    users = [id_of(fitted.events.users, u) for u in user] if user else None
    allowed, denied = ([item_of(fitted, i) for i in ids] if ids else None for ids in (allow, deny))
    if out_file:
        which: dict[str, Any] = {"allow": allowed, "deny": denied, "exclude_self": exclude_self}
        fitted.recommend_to(out_file, k, users=users, **which, n_threads=n_threads)
        n_users = fitted.events.n_users if users is None else len(users)
        if as_json:
            show_json({"file": str(out_file), "users": n_users})
            return
        out.print(f"{n_users:,} users written to {out_file}: user, rank, item, score", markup=False)
        return
    if users:
        result = fitted.recommend(users, k, allow=allowed, deny=denied, exclude_self=exclude_self, n_threads=n_threads)
    else:
        known = [item_of(fitted, i) for i in history or ()]
        result = fitted.recommend_for([known], k, allow=allowed, deny=denied, n_threads=n_threads)
    if as_json:
        show_json({"recommendations": [listed(result, row) for row in range(len(result))]})
        return
    for row in range(len(result)):
        if result.users is not None:
            out.print(f"user {result.users[row]}", style="bold", markup=False)
        if result.fallback and result.fallback[row]:
            out.print("nothing known of this history: the most popular items")
        out.print(recommendations(result, row))


@app.command(epilog='Example: gramian similar my-model "Heat (1995)" -k 5')
def similar(
    model: Saved, item: Annotated[str, typer.Argument(help="Id or title.")], *, k: K = 10, as_json: AsJson = False
) -> None:
    """The items most similar to one item."""
    fitted = load(model)
    result = fitted.similar_items(item_of(fitted, item), k)
    if as_json:
        show_json({"item": item, "similar": listed(result, 0)["items"]})
        return
    out.print(recommendations(result, 0))


@app.command(epilog='Example: gramian explain my-model "Heat (1995)" --history "Casino (1995)" --history 260')
def explain(
    model: Saved,
    item: Annotated[str, typer.Argument(help="The item to be explained, by id or title.")],
    *,
    user: Annotated[str | None, typer.Option(help="A user the model was fitted on.")] = None,
    history: Annotated[list[str] | None, typer.Option(help="An item of one history, by id or title; repeat for more.")] = None,
    k: K = 10,
    as_json: AsJson = False,
) -> None:
    """Why an item is recommended: what each item of a history adds to its score."""
    if bool(user) == bool(history):
        raise InvalidInput("--user or --history", "both" if user else "neither", "Pass one of them")
    if k < 1:
        raise InvalidInput("k of at least 1", f"{k}", "Pass -k 10, say")
    fitted = load(model)
    asked = item_of(fitted, item)
    known = fitted.history(id_of(fitted.events.users, user)) if user else [item_of(fitted, i) for i in history or ()]
    found = fitted.explain(known, asked)
    if as_json:
        parts = [{"item": i, "contribution": value} | title_of(found.titles, i) for i, value in found.items()]
        show_json({"item": asked, "score": found.score, "contributions": parts})
        return
    name = fitted.events.titles[fitted.items.index(asked)] if fitted.events.titles else asked
    out.print(f"{name}: score {found.score:.3f}, of which", markup=False)
    out.print(reasons(found, n=k), end="", no_wrap=True, overflow="ellipsis")


@app.command(
    epilog="Example: gramian evaluate movielens --min-value 4 --model popularity --model ease --model edlae --dropout 0.3"
)
@recipe_flags
@source_flags
def evaluate(
    *,
    source: Source,
    model: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(KINDS)}; repeat for more.")] = None,
    split: Annotated[str, typer.Option(help=f"{', '.join(SPLITS)}, or published for data sets that have one.")] = "strong",
    metric: Annotated[list[str] | None, typer.Option(help="Such as ndcg@20, recall@20, coverage@20; repeat for more.")] = None,
    exclude_self: ExcludeSelf = False,
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
    settings: dict[str, Any],
) -> None:
    """Fit models on a part of the events and judge them on the rest."""
    recipes = recipes_of(model or ["popularity", "ease", "edlae"], settings)
    require_split(split, "published")
    parts = source.split(split, seed)
    compiled(*recipes)
    with threads(n_threads):
        trials = [Trial.of(recipe, parts, tuple(metric or DEFAULT_METRICS), exclude_self) for recipe in recipes]
    if as_json:
        rows = [trial.to_json() for trial in trials]
        show_json({"split": parts.fingerprint, "test_users": parts.target.n_users, "models": rows})
        return
    out.print(f"{split} split, {parts.target.n_users:,} test users")
    out.print(leaderboard(trials))


@app.command(epilog="Example: gramian tune movielens --min-value 4 --model deql --space l2=30,100,300 --journal deql.jsonl")
@source_flags
def tune(
    *,
    source: Source,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")] = "edlae",
    space: Annotated[
        list[str] | None,
        typer.Option(help="What to try of a setting: l2=10,100,1000 or, with --trials, a range l2=1:1000. Repeat for more."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Let Optuna choose so many points; else every combination.")] = None,
    split: Annotated[str, typer.Option(help=f"{', '.join(SPLITS)}, or {LEAVE_ONE_OUT}.")] = "strong",
    metric: Annotated[str, typer.Option(help="What to maximise.")] = DEFAULT_METRICS[0],
    journal: Annotated[
        Path | None, typer.Option(help="Keep results in this file. After a kill, the same command goes on where it was.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of Optuna.", min=0)] = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Search the settings of a model: on the validation part of a split, or leaving out every user in turn."""
    require_split(split, LEAVE_ONE_OUT)
    (kind,) = kinds_of([model])
    axes = dict(axis_of(text) for text in space or ())
    events = source.events()
    parts = None if split == LEAVE_ONE_OUT else SPLITS[split](events, seed)
    judged = events if parts is None else validation_of(parts, split)
    compiled(kind())
    how: dict[str, Any] = {"trials": trials, "journal": journal, "seed": seed, "n_threads": n_threads}
    found = search(kind, judged, axes, metric, **how)
    with threads(n_threads):
        tested = None if parts is None else Trial.of(found.recipe, parts, (metric,)).report
    if as_json:
        rows = [r.recipe.to_json() | {"value": r.value, "stderr": r.stderr, "users": r.n_users} for r in found.results]
        test = None if tested is None else {"value": tested[metric], "stderr": tested.stderr[metric]}
        show_json({"metric": metric, "users": found.n_users, "points": rows, "test": test})
        return
    where = "every user left out" if parts is None else "validation"
    out.print(f"{len(found.results):,} points by {metric}, {where}, {found.n_users:,} users. Best first:")
    out.print(points(found))
    for picture in heat_maps(found):
        out.print(picture)
    if tested is not None:
        out.print(f"\nThe best on the test part: {metric} {tested[metric]:.4f} ±{tested.stderr[metric]:.4f}")
    chosen = " ".join(option(name, value) for name, value in found.recipe.chosen.items())
    out.print(f"Next, with the same columns: gramian fit {source.data} --model {model} {chosen}", markup=False, soft_wrap=True)


@app.command(epilog="Example: gramian ranks movielens --min-value 4 --model lowrankedlae --ranks 8,32,128 --out ranks.svg")
@recipe_flags
@source_flags
def ranks(
    *,
    source: Source,
    model: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(RANKED)}; repeat for more.")] = None,
    at: Annotated[str, typer.Option("--ranks", help="The ranks to try.")] = "8,16,32,64,128,256",
    metric: Annotated[str, typer.Option(help="What to show.")] = DEFAULT_METRICS[0],
    split: Annotated[str, typer.Option(help=f"One of {', '.join(SPLITS)}.")] = "strong",
    out_file: Annotated[Path | None, typer.Option("--out", help="Draw the curve to this file (.svg, .png, .pdf).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
    settings: dict[str, Any],
) -> None:
    """Quality against rank, from one decomposition for each model."""
    refuse("--ranks", {"--rank": settings.get("rank")})
    recipes = recipes_of(model or ["lowrankedlae"], settings)
    wanted = [number(rank) for rank in at.split(",")]
    require_split(split, "")
    drawing = None if out_file is None else plots(out_file)
    parts = source.split(split, seed)
    compiled(*recipes)
    paths = [rank_path(recipe, wanted, parts, [metric], n_threads=n_threads) for recipe in recipes]
    if drawing:
        drawing(paths, metric)
    if as_json:
        show_json({"metric": metric, "models": [p.recipe.to_json() | {"ranks": p.frame().to_dicts()} for p in paths]})
        return
    for found in paths:
        out.print(curve(found, metric, found.name))
    if out_file:
        out.print(f"Drawn to {out_file}", markup=False)


@app.command(epilog="Example: gramian epochs movielens --min-value 4 --model ials --rank 64 --metric ndcg@20 --out my-model")
@recipe_flags
@source_flags
def epochs(
    *,
    source: Source,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(TRAINED)}.")] = "ials",
    metric: Annotated[str, typer.Option(help="What to watch.")] = DEFAULT_METRICS[0],
    patience: Annotated[int, typer.Option(help="Stop when it has not risen for so many epochs.", min=1)] = 3,
    split: Annotated[str, typer.Option(help=f"One of {', '.join(SPLITS)}; its validation part is watched.")] = "strong",
    out_folder: Annotated[Path | None, typer.Option("--out", help="Folder to write the best model to.")] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(help="Keep the last epochs in this folder. After a kill, the same command goes on where it was."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
    settings: dict[str, Any],
) -> None:
    """Train a model epoch by epoch, and stop where it is best on the validation part."""
    if model.lower() not in TRAINED:
        raise InvalidInput(f"a model trained in epochs ({', '.join(TRAINED)})", repr(model), "Choose one of them")
    (recipe,) = recipes_of([model], settings)
    require_split(split, "")
    if out_folder:
        place(out_folder, "model")
    parts = validation_of(source.split(split, seed), split)
    compiled(recipe)
    found = epoch_path(recipe, parts, [metric], patience=patience, scratch=scratch, n_threads=n_threads)
    if out_folder:
        found.model.save(out_folder)
    if scratch:
        clear_checkpoints(scratch)
    if as_json:
        show_json({"metric": metric, "recipe": found.recipe.to_json(), "epochs": found.frame().to_dicts()})
        return
    out.print(curve(found, metric, str(found.recipe)))
    if out_folder:
        out.print(f"The best, fitted without the validation and test parts, is saved to {out_folder}", markup=False)


app.command(
    epilog="Example: gramian benchmark movielens, then gramian report. On your own data: "
    "gramian benchmark --data ratings.csv --min-value rating=4 --models ease,edlae,ials"
)(benchmark)
app.command(epilog="Example: gramian report --journal benchmark.jsonl --out report")(report)


@app.command(epilog="Example: gramian serve my-model my-other-model --port 8000, then open http://127.0.0.1:8000")
def serve(
    models: Annotated[
        list[Path], typer.Argument(help="Model folders that `gramian fit` wrote; each is served by its folder's name.")
    ],
    *,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.", min=1, max=65_535)] = 8000,
    journal: Annotated[Path | None, typer.Option(help="A benchmark's journal, for the leaderboard of the page.")] = None,
    read_token: Annotated[
        Path | None, typer.Option(help="A file with the token to ask with; or set GRAMIAN_READ_TOKEN.", show_default=False)
    ] = None,
    admin_token: Annotated[
        Path | None, typer.Option(help="A file with the token to reload with; or set GRAMIAN_ADMIN_TOKEN.", show_default=False)
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name this service is asked for by, as behind a proxy; repeat for more.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A site whose pages may ask, as https://example.org; repeat for more.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log no requests.")] = False,
) -> None:
    """Serve models over HTTP, and a page where people see what they recommend and why."""
    gc.disable()  # until all is there: nothing that is made before then is ever garbage
    with ThreadPoolExecutor(1) as aside:
        loading = aside.submit(Shelf, models)  # while what serves is imported
        try:
            from gramian.app import service  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise NotSupported("FastAPI and Uvicorn, to serve", f"no {error.name}", "Install gramian[serve]") from None
        read_kernels()
    service.run(
        loading.result(),
        host=host,
        port=port,
        journal=journal,
        tokens=(read_token, admin_token),
        hosts=allow_host or [],
        origins=allow_origin or [],
        quiet=quiet,
    )


@app.command(epilog="Example: gramian factors my-model --out items.parquet")
def factors(
    model: Saved,
    *,
    out_file: Annotated[Path, typer.Option("--out", help="A name ending in .parquet or .npy.")] = Path("factors.parquet"),
    of: Annotated[str, typer.Option(help="items or users.")] = "items",
    as_json: AsJson = False,
) -> None:
    """Write the factors of a low-rank or factor model, for vector search."""
    fitted = load(model)
    fitted.factors_to(out_file, of=of)
    n = fitted.events.n_items if of == "items" else fitted.events.n_users
    rank = next(iter(fitted.scorer.factors().values())).shape[1]
    if as_json:
        show_json({"file": str(out_file), of: n, "rank": rank})
        return
    out.print(f"{n:,} {of} × {rank} factors written to {out_file}", markup=False)


@app.command(epilog="Example: gramian datasets")
def datasets(*, as_json: AsJson = False) -> None:
    """The named data sets, and where to get those that are not bundled."""
    rows = []
    for name, dataset in registry.DATASETS.items():
        try:
            registry.find(name)
            here = True
        except MissingFile:
            here = False
        rows.append({"name": name, "here": here, "about": dataset.about, "users": dataset.n_users, "items": dataset.n_items,
                     "interactions": dataset.n_interactions, "address": dataset.address, "terms": dataset.terms})  # fmt: skip
    if as_json:
        show_json({"datasets": rows})
        return
    for row in rows:
        out.print(f"[bold]{row['name']}[/bold]{'' if row['here'] else '  (not here)'}")
        out.print(f"  {row['about']}\n  {row['users']:,} users, {row['items']:,} items, {row['interactions']:,} interactions")
        out.print(f"  from {row['address']}; {row['terms']}")
    out.print(f"\nPut a data set's files into a folder of its name, and set {registry.FOLDER} to the folder above it.")


def run() -> None:
    """The entry point: every error of ours or of the usage is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: print(f"gramian: note: {message}", file=sys.stderr)
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # which Typer makes of Ctrl-C
            resumable = {"--scratch", "--journal", "benchmark"} & {word.partition("=")[0] for word in sys.argv}
            again = "; run the same command again to go on" if resumable else ""
            print(f"gramian: interrupted{again}", file=sys.stderr)
        sys.exit(code)
    except GramianError as error:
        problem = str(error)
    except TyperException as error:
        problem = error.format_message()
    except OSError as error:
        problem = f"{error.filename or ''} {error.strerror or error}".strip()
    print("gramian: " + " ".join(problem.split()), file=sys.stderr)
    sys.exit(2)
