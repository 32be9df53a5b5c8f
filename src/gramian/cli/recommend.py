"""`gramian recommend`, `similar`, `explain`, `missing` and `factors`: query a saved model."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gramian.cli.item_options import ItemRules, add_rule_options, parse_user, read_histories, suggest_items
from gramian.cli.options import (
    AsJson,
    ExcludeSelf,
    ListLength,
    RerankDepth,
    RerankStages,
    SavedModelFolder,
    Threads,
    refuse_options,
)
from gramian.cli.render import (
    out,
    print_explanation,
    print_json,
    print_paragraph,
    print_recommendations,
    print_text,
    recommendation_table,
)
from gramian.core.missing import DEFAULT_POOL, RANKED_OUT
from gramian.core.recommender import Recommender, load_model
from gramian.core.reranking import DEFAULT_DEPTH
from gramian.core.results import Explanation, Recommendations
from gramian.data.catalog import Catalog
from gramian.errors import InvalidInput
from gramian.io.table_file import require_table_path, write_table
from gramian.validation import require_whole_number

SHOWN_CONTRIBUTIONS = 10  # of `explain`, if -k is left out

HistoryItems = Annotated[list[str] | None, typer.Option(help="An item of a history, by id or title; repeat for more.")]


@add_rule_options
def recommend_command(
    model: SavedModelFolder,
    *,
    user: Annotated[list[str] | None, typer.Option(help="A user the model was fitted on; repeat for more.")] = None,
    history: HistoryItems = None,
    histories: Annotated[
        Path | None,
        typer.Option(help="A table of events of new users, with the columns user_id and item_id (csv, tsv, parquet, jsonl)."),
    ] = None,
    k: ListLength = 10,
    rules: ItemRules,
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Recommend the items of a history too.")] = False,
    exclude_self: ExcludeSelf = False,
    rerank: RerankStages = None,
    depth: RerankDepth = DEFAULT_DEPTH,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="Write the lists to a .parquet, .csv or .jsonl file: of all users, if none are named."),
    ] = None,
    n_threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Recommend items for users of the model, or for histories of new users; with --out, for all users."""
    sources = [name for name, value in (("--user", user), ("--history", history), ("--histories", histories)) if value]
    if len(sources) > 1:
        raise InvalidInput(f"{sources[0]} alone", f"{sources[1]} with it", "Pass one of them")
    if not (sources or out_file):
        raise InvalidInput("--user, --history, --histories or --out", "none of them", "Pass one of them")
    if history or histories:
        refuse_options(sources[0], {"--exclude-self": exclude_self})
    if out_file:
        require_table_path(out_file)
    fitted = load_model(model)
    options: dict[str, Any] = {"allow": rules.allowed_items(fitted.catalog), "exclude_seen": not include_seen}
    options |= {"rerank": rerank or (), "depth": depth, "n_threads": n_threads}
    if out_file and not (history or histories):
        users = [parse_user(fitted, text) for text in user] if user else None
        fitted.recommend_to(out_file, k, users=users, exclude_self=exclude_self, **options)
        print_export_summary(out_file, len(fitted.users if users is None else users), fitted.catalog, as_json=as_json)
        return
    if histories:
        users, items = read_histories(fitted.catalog, histories)
        result = replace(fitted.recommend_for(items, k, **options), users=users)
    elif history:
        result = fitted.recommend_for([fitted.catalog.find_items(history)], k, **options)
    else:
        result = fitted.recommend([parse_user(fitted, text) for text in user or ()], k, exclude_self=exclude_self, **options)
    if out_file:
        write_table(out_file, iter([result.frame()]))
        print_export_summary(out_file, len(result), fitted.catalog, as_json=as_json)
    elif as_json:
        print_json({"recommendations": [list_to_json(result, row) for row in range(len(result))]})
    else:
        for row in range(len(result)):
            print_recommendations(result, row, lambda name: suggest_items(fitted.catalog, name))


def print_export_summary(path: Path, n_lists: int, catalog: Catalog, *, as_json: bool) -> None:
    """Say what was written where."""
    if as_json:
        print_json({"file": str(path), "users": n_lists})
        return
    columns = "user, rank, item, score" if catalog.titles is None else "user, rank, item, title, score"
    print_text(f"Lists of {n_lists:,} users written to {path}: {columns}")


@add_rule_options
def similar_command(
    model: SavedModelFolder,
    item: Annotated[str, typer.Argument(help="Id or title of the item.")],
    *,
    k: ListLength = 10,
    rules: ItemRules,
    as_json: AsJson = False,
) -> None:
    """Show the items most similar to one item."""
    require_whole_number("k", k, example=10)
    fitted = load_model(model)
    item_id = fitted.catalog.find_item(item)
    result = fitted.similar_items(item_id, k, allow=rules.allowed_items(fitted.catalog))
    if as_json:
        facts = {"item": item_id} | ({"title": title_of(fitted, item_id)} if fitted.catalog.titles else {})
        print_json(facts | {"similar": list_to_json(result, 0)["items"]})
        return
    print_text(f"Similar to {title_of(fitted, item_id)}", style="bold")
    out.print(recommendation_table(result, 0))


def title_of(model: Recommender, item: Any) -> str:
    """Return the title of an item, or its id if there are no titles."""
    return model.catalog.title_of(model.catalog.column(item))


def explain_command(
    model: SavedModelFolder,
    item: Annotated[str, typer.Argument(help="Id or title of the item to explain.")],
    *,
    user: Annotated[str | None, typer.Option(help="A user the model was fitted on.")] = None,
    history: HistoryItems = None,
    k: Annotated[
        int | None,
        typer.Option("-k", help=f"Number of contributions; {SHOWN_CONTRIBUTIONS} by default, and all of them in JSON."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain the score of an item: how much each item of a history, and each feature of the item, adds to it."""
    if bool(user) == bool(history):
        raise InvalidInput("--user or --history", "both" if user else "neither", "Pass one of them")
    if k is not None:
        require_whole_number("k", k, example=10)
    fitted = load_model(model)
    item_id = fitted.catalog.find_item(item)
    items = fitted.history(parse_user(fitted, user)) if user else fitted.catalog.find_items(history or ())
    explanation = fitted.explain(items, item_id)
    if as_json:
        titles = explanation.titles
        rows = [
            {"item": id, **({"title": titles[id]} if id in titles else {}), "contribution": value}
            for id, value in list(explanation.items())[:k]
        ]
        others = sum(list(explanation.values())[len(rows) :])
        facts = {"item": item_id} | ({"title": title_of(fitted, item_id)} if fitted.catalog.titles else {})
        facts |= {"score": explanation.score, "contributions": rows, "others": others}
        facts |= {"features": explanation.features} if explanation.features else {}
        print_json(facts | {"unknown": explanation.unknown})
        return
    if explanation.unknown:
        print_text(f"ignored, because the model does not know them: {', '.join(map(str, explanation.unknown))}")
    print_text(f"{title_of(fitted, item_id)}: score {explanation.score:.3f}, the sum of")
    print_explanation(explanation, n=k or SHOWN_CONTRIBUTIONS)
    if explanation.features:
        print_text(f"by features of the item; from interactions {explanation.from_interactions:+.3f}")
        print_explanation(Explanation(explanation.features), n=k or SHOWN_CONTRIBUTIONS)


@add_rule_options
def missing_command(
    model: SavedModelFolder,
    item: Annotated[str, typer.Argument(help="Id or title of the item that is missing.")],
    *,
    user: Annotated[str | None, typer.Option(help="A user the model was fitted on.")] = None,
    history: HistoryItems = None,
    k: ListLength = 10,
    rules: ItemRules,
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Recommend the items of a history too.")] = False,
    pool: Annotated[int, typer.Option(help="How many items to consider for adding to the history.")] = DEFAULT_POOL,
    as_json: AsJson = False,
) -> None:
    """Say why an item is missing from a list, and which smallest change of the history would bring it in."""
    if bool(user) == bool(history):
        raise InvalidInput("--user or --history", "both" if user else "neither", "Pass one of them")
    fitted = load_model(model)
    (item_id,) = fitted.catalog.find_items([item])
    items = fitted.history(parse_user(fitted, user)) if user else fitted.catalog.find_items(history or ())
    options = rules.options(fitted.catalog) | {"exclude_seen": not include_seen, "pool": pool}
    explanation = fitted.explain_missing(items, item_id, k, **options)
    if as_json:
        print_json(asdict(explanation))
        return
    for line in str(explanation).split("; "):
        print_text(line)
    if explanation.status == RANKED_OUT:
        print_paragraph(f"Tried: {explanation.searched}.", style="dim")


def factors_command(
    model: SavedModelFolder,
    *,
    out_file: Annotated[Path, typer.Option("--out", help="A name ending in .parquet or .npy.")] = Path("factors.parquet"),
    of: Annotated[str, typer.Option(help="items or users.")] = "items",
    as_json: AsJson = False,
) -> None:
    """Write the vectors of a low-rank or factor model to a file, for vector search."""
    fitted = load_model(model)
    fitted.factors_to(out_file, of=of)
    n = len(fitted.items if of == "items" else fitted.users)
    rank = next(iter(fitted.scorer.factors().values())).shape[1]  # type: ignore[attr-defined]
    if as_json:
        print_json({"file": str(out_file), of: n, "rank": rank})
        return
    print_text(f"{n:,} {of} × {rank} factors written to {out_file}")


def list_to_json(result: Recommendations, row: int) -> dict[str, Any]:
    """Return one list as JSON."""
    items = [
        {"item": item, **({"title": result.titles[row][rank]} if result.titles else {}), "score": result.scores[row][rank]}
        for rank, item in enumerate(result.items[row])
    ]
    for item, rank in zip(items if result.trace else (), result.from_ranks(row), strict=False):
        item["from_rank"] = rank
    facts: dict[str, Any] = {"user": result.users[row]} if result.users is not None else {}
    if result.trace:
        facts["moves"] = [asdict(move) for move in result.moves(row)]
    if result.unknown is not None and result.fallback is not None:
        facts |= {"unknown": result.unknown[row], "fallback": result.fallback[row]}
    return facts | {"items": items}
