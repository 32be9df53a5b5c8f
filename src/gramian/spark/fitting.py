"""Fit recipes on a cluster: it sums the Gram matrix or maps the row solver, and the driver does the rest, as on one machine."""

from __future__ import annotations

import warnings
from pathlib import Path

from gramian.core.fit_check import require_finite_scorer
from gramian.core.recipe import GramRecipe, Recipe, retry_in_float64
from gramian.core.recommender import Recommender
from gramian.core.scorer import Scorer
from gramian.errors import InvalidInput, NoHistoriesWarning, NotSupported
from gramian.linalg.symmetric import parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.models.als import AlternatingRecipe
from gramian.models.popularity import Popularity
from gramian.models.scorers import GlobalScores
from gramian.spark.als import train_als
from gramian.spark.blocks import reraise_task_errors
from gramian.spark.events import SparkInteractions
from gramian.spark.gram_sums import gram
from gramian.validation import require_whole_number

MAX_HISTORIES = 50_000_000  # interactions that a model keeps: about 1 GB on the driver


def fit(
    recipe: Recipe,
    events: SparkInteractions,
    *,
    dtype: str | type = "float32",
    scratch: str | Path | None = None,
    every: int = 5,
    n_threads: int | None = None,
) -> Recommender:
    """Fit a recipe on a cluster: the same model that `recipe.fit` gives on one machine.

    Parameters
    ----------
    recipe
        Any recipe of the Gram matrix or of alternating least squares (but FeatureIALS), or Popularity.
    events
        The interactions, from `gr.spark.interactions`.
    dtype
        "float32", or "float64" for twice the memory.
    scratch
        A path that the cluster can write (a folder, hdfs://, s3a://) for the checkpoints of alternating least squares. A
        training that was killed continues after the last checkpoint when it is started again, on a cluster of any size.
    every
        How many epochs from one checkpoint to the next.
    n_threads
        How many threads the driver uses; all cores if left out.

    Returns
    -------
    Recommender
        With its users' histories up to 50 million interactions. A larger one warns and has none: `gr.spark.recommend` makes
        the lists of its users.
    """
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Use recipe.fit for data on this machine")
    require_whole_number("every", every, example=5)
    if scratch is not None and not isinstance(recipe, AlternatingRecipe):
        raise NotSupported("alternating least squares, for scratch on a cluster", type(recipe).__name__, "Leave scratch out")
    parsed_dtype = parse_dtype(dtype)
    histories = events.local() if events.n_interactions <= MAX_HISTORIES else None
    with reraise_task_errors(), limit_threads(n_threads):
        scorer: Scorer
        if isinstance(recipe, Popularity):
            scorer = GlobalScores(events.popularity)
        elif isinstance(recipe, GramRecipe):
            scorer = fit_gram_recipe(recipe, events, parsed_dtype)
        elif isinstance(recipe, AlternatingRecipe) and not recipe.needs_features:
            scorer = train_als(recipe, events, parsed_dtype, None if scratch is None else str(scratch), every)
        else:
            expected = "a recipe of the Gram matrix or of alternating least squares, on a cluster"
            raise NotSupported(expected, type(recipe).__name__, "Fit it on one machine: recipe.fit(events.local())")
    if histories is None:
        warnings.warn(
            f"The model of {events} has no users' histories. Use gr.spark.recommend, or recommend_for with histories.",
            NoHistoriesWarning,
            stacklevel=2,
        )
    return Recommender(require_finite_scorer(scorer, recipe), recipe, events.catalog, histories)


def fit_gram_recipe(recipe: GramRecipe, events: SparkInteractions, dtype: type) -> Scorer:
    """Sum the Gram on the cluster, and solve on the driver in its memory."""
    recipe.require_binary(events.is_binary)  # before the cluster starts to work

    def solve(dtype: type) -> Scorer:
        return recipe.solve_gram(gram(events, dtype, **recipe.gram_powers._asdict()), overwrite=True)

    return retry_in_float64(solve, dtype)
