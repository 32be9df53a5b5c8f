"""`gramian describe` and `gramian auto`: a look at a table of events, and from there to the best model within a budget."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Group
from rich.text import Text

from gramian.cli.advice import translate
from gramian.cli.item_options import example_item
from gramian.cli.leaderboards import format_mean, format_p, leaderboard
from gramian.cli.options import (
    AsJson,
    EventSource,
    ItemTable,
    SplitSeed,
    TagsColumn,
    Threads,
    TitleColumn,
    add_source_options,
    format_flag,
)
from gramian.cli.render import note, out, plain_table, print_json, print_next_command, print_paragraph, print_text, replace_nan
from gramian.core.recommender import load_model
from gramian.data.profile import Profile
from gramian.data.summary import format_count
from gramian.errors import GramianError, NotSupported
from gramian.evaluation.comparison import SIGNIFICANCE
from gramian.evaluation.metrics import parse_metric
from gramian.io.atomic import atomic_file
from gramian.io.folder import require_writable_folder
from gramian.io.manifest import MANIFEST
from gramian.linalg.memory import format_bytes
from gramian.progress import STDERR, format_duration
from gramian.selection.auto import Selection, auto
from gramian.selection.budget import parse_budget, parse_size
from gramian.selection.page import write_selection_page
from gramian.selection.protocol import choose_protocol
from gramian.selection.retraining import retrain
from gramian.selection.standing import Standing

NOT_REPLACED = 3  # exit code of --like if the old model is kept
STANDING_SECONDS = 15.0  # between two leaderboards of a search under way
MIN_SHOWN_FAMILIES = 2  # in the first of them

FLAGS = {  # of the options that a profile names
    name: format_flag(name)
    for name in ("user", "item", "time", "value", "title", "min_value", "weight", "time_format", "keep_suspicious")
}

KeepSuspicious = Annotated[
    bool, typer.Option("--keep-suspicious", help="Keep bots and events of the future, which are left out otherwise.")
]


@add_source_options
def describe_command(*, source: EventSource, keep_suspicious: KeepSuspicious = False, as_json: AsJson = False) -> None:
    """Look at a table of events: columns, sizes, distributions, what looks wrong, and what `gramian auto` would do about it.

    Of a model folder, print the model card.
    """
    if not source.is_named_dataset and (Path(source.data) / MANIFEST).exists():
        print_card(load_model(source.data).card, as_json)
        return
    profile = source.describe_events(keep_suspicious)
    try:
        protocol, problem = str(choose_protocol(profile.events)), None
    except GramianError as error:
        protocol, problem = None, error
    if as_json:
        print_json(profile.to_json() | {"protocol": protocol})
        return
    print_profile(profile)
    print_paragraph(f"Protocol of gramian auto: {protocol}." if protocol else f"gramian auto would refuse this: {problem}")


@add_source_options
def auto_command(
    *,
    source: EventSource,
    budget: Annotated[str, typer.Option(help="Time for everything, from the start of the command: 90s, 30m, 2h.")] = "10m",
    memory: Annotated[str | None, typer.Option(help="Memory that fits may use, such as 4GB; all that is free.")] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to write the model to. Results and report are written beside it.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Retrain this model on the events, and replace it only if the new one is no worse. Exit code 3: kept."
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric to maximise, such as ndcg@20.")] = "ndcg@20",
    title: TitleColumn = None,
    tags: TagsColumn = None,
    titles: ItemTable = None,
    keep_suspicious: KeepSuspicious = False,
    seed: SplitSeed = 0,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Find the best model for a table of events within a budget, and leave a model that can be served.

    Interrupted with Ctrl-C, it goes on with the best model so far. Killed and run again, it continues.
    """
    folder = require_writable_folder(out_folder or like or Path("model"), "model")
    parse_budget(budget)
    parse_size(memory)
    parse_metric(metric)
    profile = source.describe_events(keep_suspicious, title, tags, titles)
    if like is not None:
        retrain_model(like, folder, profile, metric, seed, n_threads, as_json)
        return
    if not as_json:
        print_profile(profile)
    folder.parent.mkdir(parents=True, exist_ok=True)
    files = {kind: folder.with_name(f"{folder.name}.{kind}") for kind in ("journal.jsonl", "json", "html")}
    selection = auto(
        profile,
        budget,
        memory=memory,
        metric=metric,
        journal=files["journal.jsonl"],
        seed=seed,
        n_threads=n_threads,
        on_progress=StandingPrinter(),
        elapsed=max(0.0, time.time() - psutil.Process().create_time()),
    )
    selection.save(folder)
    facts = replace_nan(selection.to_json())
    with atomic_file(files["json"]) as temporary:
        temporary.write_text(json.dumps(facts, indent=2, default=str), encoding="utf-8")
    has_page = write_page_if_possible(selection, files["html"])
    if as_json:
        print_json({"model": str(folder)} | facts)
        return
    print_text("")
    print_paragraph(f"{selection.protocol}.")
    out.print(selection_leaderboard(selection))
    print_paragraph(selection.recommendation, style="bold")
    used = f"{selection.n_points:,} recipes in {format_duration(selection.seconds)} of {format_duration(selection.budget)}"
    print_text(f"{used}{', interrupted' if selection.is_interrupted else ''}")
    print_text(
        f"Saved to {out_folder or Path('model')}, with {files['json'].name}"
        + (f" and {files['html'].name}" if has_page else "")
    )
    print_next_command("recommend", out_folder or Path("model"), "--history", example_item(selection.model.catalog))


def retrain_model(
    like: Path, folder: Path, profile: Profile, metric: str, seed: int, n_threads: int | None, as_json: bool
) -> None:
    """Retrain a model, replace it if the new one is no worse, and exit with `NOT_REPLACED` if it is kept."""
    result = retrain(load_model(like, private=True), profile.events, metric=metric, seed=seed, n_threads=n_threads)
    if result.is_replaced:
        result.model.save(folder)
    if as_json:
        print_json({"model": str(folder)} | result.to_json())
    else:
        print_text(f"{'Replaced' if result.is_replaced else 'Kept'}: {result.reason}.")
    if not result.is_replaced:
        raise typer.Exit(NOT_REPLACED)


def write_page_if_possible(selection: Selection, path: Path) -> bool:
    """Write the report page; say so and return False where the packages for it are not installed."""
    try:
        write_selection_page(selection, path)
    except NotSupported as error:
        note(f"no report page: {error}")
        return False
    return True


class StandingPrinter:
    """Prints the leaderboard of a search under way to stderr: the first as soon as it is useful, then now and then."""

    def __init__(self) -> None:
        self.last, self.leader = 0.0, ""

    def __call__(self, standing: Standing) -> None:
        """Print a leaderboard if it is time for one."""
        if len(standing.candidates) < MIN_SHOWN_FAMILIES:
            return
        now, leader = time.monotonic(), f"{standing.stage} {standing.candidates[0].recipe}"
        if self.last and (
            now - self.last < STANDING_SECONDS or (leader == self.leader and now - self.last < 4 * STANDING_SECONDS)
        ):
            return
        self.last, self.leader = now, leader
        where = "on a sample of the data" if standing.stage == "sample" else "on validation users"
        left = f"{format_duration(standing.seconds_left) if standing.seconds_left >= 1 else 'no time'} left for the search"
        note(f"best so far {where}, of {standing.n_points:,} recipes; {left}")
        table = plain_table()
        for head in ("model", "validation"):
            table.add_column(head, justify="left" if head == "model" else "right", no_wrap=head != "model")
        for candidate in standing.candidates[:5]:
            table.add_row(Text(str(candidate.recipe)), format_mean(candidate.value, candidate.stderr))
        STDERR.print(table, style="dim")


def print_profile(profile: Profile) -> None:
    """Print what a table of events looks like, and the findings."""
    table = plain_table()
    table.add_column("")
    table.add_column("")
    for name, text in profile.facts():
        table.add_row(Text(name, style="bold"), Text(translate(text, FLAGS)))
    table.show_header = False
    out.print(table)
    for finding in profile.findings:
        print_paragraph(f"! {translate(str(finding), FLAGS)}", style="yellow")


def print_card(card: dict[str, Any] | None, as_json: bool) -> None:
    """Print the model card of a saved model."""
    if as_json:
        print_json({"card": card})
    elif card is None:
        print_text("The model has no card: `gramian auto` writes one.")
    else:
        out.print_json(json.dumps(card))


def selection_leaderboard(selection: Selection) -> Group:
    """Return the finalists, best first on the test users, with tests, quality by items, and costs."""
    metric, *others = selection.finalists[0].report.metrics
    rows = []
    for finalist in selection.ranked:
        report, errors = finalist.report, finalist.report.stderr
        row = {"model": Text(finalist.name + (" (chosen)" if finalist is selection.finalists[0] else ""))}
        row |= {name: format_mean(report[name], errors.get(name) if name == metric else None) for name in (metric, *others)}
        row["p"] = format_p(getattr(selection.comparison.behind.get(finalist.name), "p_value", None))
        row |= {f"{name}\nfound": format_share(group["found"]) for name, group in finalist.groups.items()}
        row |= {"fit": Text(f"{finalist.fit_seconds:.2f} s"), "memory\npeak": Text(format_bytes(finalist.peak_bytes))}
        row |= {"size": Text(format_bytes(finalist.model_bytes)), "ms\nper list": Text(f"{finalist.list_milliseconds:.2g}")}
        rows.append(row)
    drop = [
        "ms\nper list",
        "memory\npeak",
        "tail\nfound",
        "head\nfound",
        "cold\nfound",
        *reversed(others),
        "size",
        "fit",
    ]
    table = leaderboard(rows, drop, highlight=selection.comparison.winner is not None)
    tied = selection.comparison.tied
    hint = f"p: paired t-test on {metric} against the best, corrected for {format_count(len(rows) - 1, 'comparison')} (Holm). "
    hint += (
        f"Statistically tied (p ≥ {SIGNIFICANCE}): {', '.join(tied)}." if len(tied) > 1 else "The best is significantly better."
    )
    if len(rows) == 1:
        hint = "The budget left no time to test another model."
    return Group(table, Text(hint, style="dim"))


def format_share(share: float | None) -> Text:
    """Format a share in per cent; a dash where there is none."""
    return Text("–" if share is None else f"{share:.1%}")
