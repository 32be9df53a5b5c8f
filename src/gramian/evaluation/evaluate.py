"""Evaluate a model on a split: rank all items for every test user, and measure the lists."""

from __future__ import annotations

from collections.abc import Iterable

from gramian.core.recommender import Recommender
from gramian.core.reranking import DEFAULT_DEPTH, RerankerLike, Reranking
from gramian.data.split import HeldOutUsers, Split
from gramian.errors import InvalidInput
from gramian.evaluation.metrics import DEFAULT_METRICS, MetricLike, largest_cutoff, parse_metrics
from gramian.evaluation.report import Report
from gramian.evaluation.task import RankingTask
from gramian.linalg.threads import limit_threads


def evaluate(
    model: Recommender,
    split: Split | HeldOutUsers,
    metrics: Iterable[MetricLike] = DEFAULT_METRICS,
    *,
    exclude_self: bool = False,
    allow_leakage: bool = False,
    rerank: RerankerLike | Iterable[RerankerLike] = (),
    depth: int = DEFAULT_DEPTH,
    n_threads: int | None = None,
) -> Report:
    """Rank all items for every test user, without the known ones, and compare the lists with the targets.

    Parameters
    ----------
    model
        A model fitted on `split.train`. One that was fitted on targets of the split is refused.
    split
        A split, or the test users of one.
    metrics
        Names such as "ndcg@20", `Metric` objects, or functions of `RankedLists` and k.
    exclude_self
        Where users and items are the nodes of one graph, neither recommend nor expect links of a node to itself.
    allow_leakage
        Evaluate a model that was fitted on targets nevertheless; the report has their number in `.n_leaked`.
    rerank, depth
        Stages that reorder the lists before they are measured, and how many candidates they choose from, as in
        `model.recommend`.
    n_threads
        How many threads to use; all cores if left out.

    Returns
    -------
    Report
        An item that the model does not know is never recommended, and counts as a miss where it is a target.

    Raises
    ------
    LeakedEvaluation
        If targets are among the interactions that the model was fitted on.
    """
    if not isinstance(model, Recommender):
        raise InvalidInput("a fitted model", type(model).__name__, "Fit it first: recipe.fit(split.train)")
    if not isinstance(split, Split | HeldOutUsers):
        raise InvalidInput("a Split", type(split).__name__, "Make one: gr.split.strong(events)")
    parsed, reranking = parse_metrics(metrics), Reranking.of(rerank, depth)
    held_out = split.held_out if isinstance(split, Split) else split
    task = RankingTask.of(held_out.without_self_links() if exclude_self else held_out, model.catalog)
    n_leaked = None if model.histories is None else task.require_no_leakage(model.histories, allow_leakage)
    with limit_threads(n_threads):
        columns = task.rank(model, largest_cutoff(parsed), exclude_self=exclude_self, reranking=reranking)
        return task.report(columns, parsed, n_leaked)
