"""Quality against rank: one decomposition serves every smaller rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from gramian.core.recipe import Recipe
from gramian.core.recommender import Recommender
from gramian.data.frames import convert_frame
from gramian.data.split import Split
from gramian.errors import InvalidInput, NotSupported
from gramian.evaluation.evaluate import evaluate
from gramian.evaluation.metrics import DEFAULT_METRICS, MetricLike, parse_metrics
from gramian.evaluation.report import Report
from gramian.linalg.symmetric import parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.models.spectral import SpectralRecipe, decompose_shared
from gramian.progress import track
from gramian.validation import is_number, require_instance


@dataclass(frozen=True, repr=False)
class RankPath:
    """Quality against rank: the `recipe`, and `reports` by rank, lowest first."""

    recipe: Recipe
    reports: dict[int, Report]

    @property
    def name(self) -> str:
        """The recipe without its rank."""
        params = [text for text in self.recipe.summary.split(", ") if not text.startswith("rank=")]
        return f"{type(self.recipe).__name__}({', '.join(params)})"

    def __repr__(self) -> str:
        return f"RankPath({self.name} at ranks {', '.join(map(str, self.reports))})"

    def frame(self, library: str = "polars") -> Any:
        """Return one row per rank: every metric and its standard error.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        return convert_frame(reports_frame("rank", self.reports), library)


def reports_frame(key: str, reports: dict[int, Report]) -> pl.DataFrame:
    """Return one row per report: its key, every metric and its standard error."""
    rows = []
    for number, report in reports.items():
        errors = {f"{metric} stderr": error for metric, error in report.stderr.items()}
        rows.append({key: number} | report.mean | errors)
    return pl.DataFrame(rows)


def rank_path(
    recipe: Recipe,
    ranks: Iterable[float],
    split: Split,
    metrics: Iterable[MetricLike] = DEFAULT_METRICS,
    *,
    dtype: str | type = "float32",
    n_threads: int | None = None,
) -> RankPath:
    """Evaluate a low-rank recipe at many ranks, from one decomposition of the highest.

    Parameters
    ----------
    recipe
        A low-rank recipe, such as `gr.LowRankEDLAE()`; its own rank does not matter.
    ranks
        The ranks.
    split, metrics
        As in `gr.evaluate`.
    dtype, n_threads
        As in `recipe.fit`.

    Returns
    -------
    RankPath
    """
    if not isinstance(recipe, SpectralRecipe):
        raise NotSupported("a recipe with a rank that one decomposition serves", str(recipe), "Pass gr.LowRankEDLAE(), say")
    require_instance(split, Split, "Make one: gr.split.strong(events)")
    parsed = parse_metrics(metrics)
    distinct = list(ranks) if isinstance(ranks, Iterable) else []
    if not distinct or not all(is_number(rank) for rank in distinct):
        raise InvalidInput("a list of ranks", repr(ranks), "Pass [16, 64, 256], say")
    recipes: list[SpectralRecipe] = [replace(recipe, rank=rank) for rank in sorted(set(distinct))]  # type: ignore[type-var]
    train = split.train
    with limit_threads(n_threads):
        decomposition = decompose_shared(recipes, train, parse_dtype(dtype))
        models = {r.rank: Recommender(r.truncate_to_scorer(decomposition), r, train.catalog, train) for r in recipes}
        return RankPath(recipe, {rank: evaluate(models[rank], split, parsed) for rank in track(list(models), "ranks")})
