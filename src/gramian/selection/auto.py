"""From events to the best model within a budget: profile, protocol, search, final test, recommendation, last fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender
from gramian.data.frames import convert_frame, render_html
from gramian.data.profile import Profile, describe
from gramian.evaluation.comparison import ModelComparison, compare
from gramian.evaluation.metrics import MetricLike, parse_metric
from gramian.io.journal import provenance
from gramian.linalg.memory import format_bytes, limit_memory
from gramian.linalg.threads import limit_threads
from gramian.progress import format_duration
from gramian.selection.budget import Clock, parse_budget, parse_size
from gramian.selection.finals import Finalist, recommend_finalist, run_final_test
from gramian.selection.protocol import Protocol, choose_protocol
from gramian.selection.search import MAX_FINALISTS, FamilySearch
from gramian.selection.standing import Candidate, Standing


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """The result of `gr.auto`.

    Parameters
    ----------
    profile
        What the data looks like.
    protocol
        How the models were chosen and tested.
    finalists
        The tested models. The first is the one that was chosen on the validation users.
    comparison
        The finalists on the test users, each with the best, by paired tests.
    recommendation
        Which model to use and why, in a sentence.
    model
        The chosen recipe, fitted on all events, with its model card.
    left_out
        Family of models → why it was not searched further.
    n_points
        How many recipes were evaluated.
    seconds, budget
        The seconds that were used, and those that were allowed.
    is_interrupted
        Whether Ctrl-C ended the search.
    """

    profile: Profile
    protocol: Protocol
    finalists: tuple[Finalist, ...]
    comparison: ModelComparison
    recommendation: str
    model: Recommender
    left_out: dict[str, str]
    n_points: int
    seconds: float
    budget: float
    is_interrupted: bool

    @property
    def recipe(self) -> Recipe:
        """The chosen recipe."""
        return self.finalists[0].recipe

    @property
    def ranked(self) -> list[Finalist]:
        """The finalists in the order of the test metric, best first."""
        by_name = {finalist.name: finalist for finalist in self.finalists}
        return [by_name[name] for name in self.comparison.reports]

    def frame(self, library: str = "polars") -> Any:
        """Return one row per finalist, best first on the test users: metrics, tests, quality by items, and costs.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        rows = []
        for finalist in self.ranked:
            errors = finalist.report.stderr
            row: dict[str, Any] = {"model": finalist.name, "chosen": finalist is self.finalists[0]}
            row |= {"validation": finalist.candidate.value, "validation stderr": finalist.candidate.stderr}
            for name, mean in finalist.report.mean.items():
                row |= {name: mean} | ({f"{name} stderr": errors[name]} if name in errors else {})
            row["p"] = getattr(self.comparison.behind.get(finalist.name), "p_value", None)
            row |= {f"found of {name}": group["found"] for name, group in finalist.groups.items()}
            row |= {"fit seconds": finalist.fit_seconds, "peak bytes": finalist.peak_bytes}
            rows.append(row | {"model bytes": finalist.model_bytes, "ms per list": finalist.list_milliseconds})
        return convert_frame(pl.DataFrame(rows, infer_schema_length=None), library)

    def __repr__(self) -> str:
        return f"Selection({self.recipe}, best of {self.n_points:,} recipes in {format_duration(self.seconds)})"

    def __str__(self) -> str:
        return f"{self.comparison}\n{self.recommendation}"

    def _repr_html_(self) -> str:
        """The finalists as a table, for notebooks."""
        heads = ["model", self.comparison.metric, "fit", "size"]
        rows = []
        for f in self.ranked:
            figure = f"{f.report[self.comparison.metric]:.4f} ± {f.report.stderr[self.comparison.metric]:.4f}"
            rows.append((f.name, figure, format_duration(f.fit_seconds), format_bytes(f.model_bytes)))
        return render_html(self.recommendation, heads, rows)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the fitted model, for JSON."""
        rows = []
        for finalist in self.ranked:
            paired = self.comparison.behind.get(finalist.name)
            row = finalist.to_json() | {
                "is_chosen": finalist is self.finalists[0],
                "is_tied": finalist.name in self.comparison.tied,
            }
            row["behind_best"] = None if paired is None else -paired.difference
            row["p_value"] = None if paired is None else paired.p_value
            rows.append(row)
        return {
            "recommendation": self.recommendation,
            "recipe": self.recipe.to_json(),
            "metric": self.comparison.metric,
            "protocol": {"name": self.protocol.name, "about": str(self.protocol)},
            "leaderboard": rows,
            "left_out": self.left_out,
            "points": self.n_points,
            "seconds": self.seconds,
            "budget": self.budget,
            "is_interrupted": self.is_interrupted,
            "data": self.profile.to_json(),
            "card": self.model.card,
        }

    def save(self, path: str | Path) -> None:
        """Write the model with its card to a folder; `gr.load` and the service read it."""
        self.model.save(path)


def auto(
    data: Any,
    budget: str | float = "10m",
    *,
    memory: str | float | None = None,
    metric: MetricLike = "ndcg@20",
    journal: str | Path | None = None,
    seed: int = 0,
    n_threads: int | None = None,
    on_progress: Callable[[Standing], None] | None = None,
    elapsed: float = 0.0,
    **reading: Any,
) -> Selection:
    """Find the best model for a table of events within a budget, and fit it on everything.

    The data is described, a protocol chosen, every family of models that fits into memory searched on validation users by
    successive halving, the best recipe of each family tested once on test users, and the chosen one fitted on all events.

    Parameters
    ----------
    data
        What `gr.describe` takes, or a `Profile` that it returned.
    budget
        The time for everything: seconds, or text such as "90s", "30m" or "2h".
    memory
        The memory that fits may use, such as "4GB"; all that is free if left out.
    metric
        What to maximise.
    journal
        A file in which the outcomes are kept. If the process is killed, the same call continues, with the time that is left.
    seed
        Seed of the splits.
    n_threads
        How many threads to use; all cores if left out.
    on_progress
        Called with a `Standing`, the leaderboard so far, whenever there is a new one.
    elapsed
        Seconds of the budget that have passed before this call.
    reading
        The options of `gr.describe`.

    Returns
    -------
    Selection
        Ctrl-C during the search ends it; the best so far is tested and fitted. A second Ctrl-C ends that, too.
    """
    clock = Clock(parse_budget(budget), elapsed)
    memory_limit, parsed = parse_size(memory), parse_metric(metric)
    profile = data if isinstance(data, Profile) else describe(data, **reading)
    protocol = choose_protocol(profile.events, seed)
    with limit_threads(n_threads), limit_memory(memory_limit):
        search = FamilySearch(
            protocol, parsed, clock, None if journal is None else Path(journal), on_progress or ignore_standing
        )
        search.run()
        search.searches.clear()  # their Gram matrices
        finalists = run_final_test(choose_finalists(search), protocol.test, parsed, clock)
        comparison = compare({finalist.name: finalist.report for finalist in finalists}, str(parsed))
        sentence = recommend_finalist(finalists, comparison, len(search.left_out))
        model = finalists[0].recipe.fit(profile.events)
    model.card = build_card(profile, protocol, finalists, comparison, sentence)
    return Selection(
        profile,
        protocol,
        tuple(finalists),
        comparison,
        sentence,
        model,
        search.left_out,
        search.n_points,
        clock.elapsed,
        clock.budget,
        search.is_interrupted,
    )


def ignore_standing(standing: Standing) -> None:
    """Do nothing with a leaderboard."""


def choose_finalists(search: FamilySearch) -> list[Candidate]:
    """Return the best candidate of each of the best families, best first, and Popularity, which everything must beat."""
    ranked = search.candidates()
    finalists = ranked[:MAX_FINALISTS]
    return finalists + [candidate for candidate in ranked[MAX_FINALISTS:] if candidate.family == "popularity"]


def build_card(
    profile: Profile, protocol: Protocol, finalists: list[Finalist], comparison: ModelComparison, sentence: str
) -> dict[str, Any]:
    """Return the model card of the chosen model: data, protocol, figures, parameters, versions and date, as JSON."""
    chosen, metric = finalists[0], comparison.metric
    others = [
        {"model": f.name, metric: f.report[metric], "p_value": getattr(comparison.behind.get(f.name), "p_value", None)}
        for f in finalists[1:]
    ]
    card = {
        "model": chosen.name,
        "recipe": chosen.recipe.to_json(),
        "recommendation": sentence,
        "metric": comparison.metric,
        "figures": chosen.to_json(),
        "compared_with": others,
        "protocol": str(protocol),
        "data": describe_data(profile),
    }
    plain: dict[str, Any] = json.loads(json.dumps(card | provenance()))  # tuples as lists, as it is read back
    return plain


def describe_data(profile: Profile) -> dict[str, Any]:
    """Return the fingerprint, sizes and dates of the events that a model was fitted on."""
    events = profile.events
    facts: dict[str, Any] = {"fingerprint": events.fingerprint, "users": events.n_users, "items": events.n_items}
    facts |= {"interactions": events.n_interactions, "columns": profile.columns}
    if profile.times is not None:
        facts |= {"first": profile.times.first, "last": profile.times.last}
    return facts
