"""Quality against rank: one decomposition serves every smaller rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from gramian.data.split import Split
from gramian.data.tables import is_number
from gramian.errors import InvalidInput, NotSupported
from gramian.evaluation.evaluate import DEFAULT_METRICS, Report, evaluate, parsed_metrics
from gramian.linalg.symmetric import checked_dtype
from gramian.linalg.threads import threads
from gramian.models.low_rank import Truncated, decomposed
from gramian.models.recipe import Recipe
from gramian.progress import track
from gramian.recommender import Recommender


@dataclass(frozen=True)
class RankPath:
    """A report for each rank of one model, lowest first."""

    recipe: Recipe
    reports: dict[int, Report]

    @property
    def name(self) -> str:
        """The recipe without its rank."""
        settings = [part for part in self.recipe.settings.split(", ") if not part.startswith("rank=")]
        return f"{type(self.recipe).__name__}({', '.join(settings)})"

    def frame(self) -> pl.DataFrame:
        """One row for each rank: every metric and its standard error."""
        rows = []
        for rank, report in self.reports.items():
            errors = {f"{metric} stderr": error for metric, error in report.stderr.items()}
            rows.append({"rank": rank} | report.mean | errors)
        return pl.DataFrame(rows)


def rank_path(
    recipe: Recipe,
    ranks: Iterable[float],
    split: Split,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> RankPath:
    """Judge a low-rank recipe at many ranks, from one decomposition to the highest of them."""
    if not isinstance(recipe, Truncated):
        raise NotSupported("a recipe with a rank that one decomposition serves", str(recipe), "Pass gr.LowRankEDLAE(), say")
    if not isinstance(split, Split):
        raise InvalidInput("a Split", type(split).__name__, "Make one: gr.split.strong(events)")
    parsed_metrics(metrics)
    wanted = list(ranks) if isinstance(ranks, Iterable) else []
    if not wanted or not all(is_number(rank) for rank in wanted):
        raise InvalidInput("a list of ranks", repr(ranks), "Pass [16, 64, 256], say")
    recipes: list[Truncated] = [replace(recipe, rank=rank) for rank in sorted(set(wanted))]  # type: ignore[call-arg]
    with threads(n_threads):
        found = decomposed(recipes, split.train, checked_dtype(dtype))
        models = {r.rank: Recommender(r.truncated(found), r, split.train) for r in recipes}
        return RankPath(recipe, {rank: evaluate(models[rank], split, metrics) for rank in track(list(models), "ranks")})
