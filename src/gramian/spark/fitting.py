"""Recipes fitted on a cluster: it sums the Gram or maps the row solver, and the driver does the rest, as on one machine."""

from __future__ import annotations

import warnings
from pathlib import Path

from gramian.errors import InvalidInput, NotSupported, UsersElsewhere
from gramian.linalg.symmetric import checked_dtype
from gramian.linalg.threads import threads
from gramian.models.als import Alternating
from gramian.models.popularity import Popularity
from gramian.models.recipe import OfGram, Recipe, precise
from gramian.recommender import Recommender, Scorer
from gramian.spark.als import trained
from gramian.spark.blocks import retold
from gramian.spark.events import SparkInteractions
from gramian.spark.sums import gram

KEPT = 50_000_000  # interactions that a model takes along


def fit(
    recipe: Recipe,
    events: SparkInteractions,
    *,
    dtype: str | type = "float32",
    scratch: str | Path | None = None,
    every: int = 5,
    n_threads: int | None = None,
) -> Recommender:
    """The same model that `recipe.fit` gives on one machine.

    Alternating least squares keep their epochs at `scratch`, a path that the cluster can write (a folder, hdfs://, s3a://),
    after `every` few of them, and go on from there. A model has the histories of its users with it up to 50 million
    interactions; one of more knows the items only, and `gr.spark.recommend` makes the lists of its users.
    """
    if not isinstance(events, SparkInteractions):
        raise InvalidInput("interactions on a cluster", type(events).__name__, "Use recipe.fit for what is here")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InvalidInput("every of at least 1", repr(every), "Pass every=5, say")
    if scratch is not None and not isinstance(recipe, Alternating):
        raise NotSupported("a model of alternating least squares, with scratch", type(recipe).__name__, "Leave it out")
    kind = checked_dtype(dtype)
    known = events.local() if events.n_interactions <= KEPT else events.catalog
    with retold(), threads(n_threads):
        scorer: Scorer
        if isinstance(recipe, Popularity):
            scorer = recipe.scorer(events.catalog, kind)
        elif isinstance(recipe, OfGram):
            recipe.require_binary(events.is_binary)
            normalised = recipe.normalised
            scorer = precise(lambda kind: recipe.fit_gram(gram(events, kind, normalised=normalised), overwrite=True), kind)
        elif isinstance(recipe, Alternating):
            scorer = trained(recipe, events, kind, None if scratch is None else str(scratch), every)
        else:
            wanted = "a recipe of the Gram matrix or of alternating least squares, on a cluster"
            raise NotSupported(wanted, type(recipe).__name__, "Fit it on one machine: recipe.fit(events.local())")
    if known is events.catalog:
        warnings.warn(
            f"The model of {events} knows its items only. Use gr.spark.recommend, or recommend_for with histories.",
            UsersElsewhere,
            stacklevel=2,
        )
    return Recommender(scorer, recipe, known)
