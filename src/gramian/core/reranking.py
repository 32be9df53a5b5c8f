"""Re-ranking: stages that reorder a model's best items before the list is cut, and a record of what they moved.

The model ranks `depth` candidates for each user. Each stage then reorders the list that the stage before left, and the first k
are shown. An item's relevance is that of its current rank: the scores of the candidates, mapped to [0, 1] list by list (1 the
first, 0 the last; 1 for all if they are equal), belong to the ranks and not to the items. So every stage weighs its aim against
the order before it, whatever made that order. The scores that are returned stay those of the model: `explain` adds up to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from gramian.core.params import Configurable, params_of_json, parse_spec
from gramian.core.ranking import EXCLUDE_SEEN, Exclusions, rank_blocks
from gramian.core.registry import RERANKERS, Registry
from gramian.core.scorer import Scorer
from gramian.data.catalog import Catalog
from gramian.errors import InvalidInput
from gramian.linalg.threads import limit_threads
from gramian.validation import require_whole_number

DEFAULT_DEPTH = 100  # candidates: five lists of 20
MAX_CANDIDATES = 2_000  # candidates; MMR compares all pairs of a user's, 16 MB


@dataclass(frozen=True)
class Candidates:
    """The best items of some users, as a stage receives them.

    Parameters
    ----------
    columns
        Users × depth, best first, −1 where a list has ended.
    relevance
        Users × depth, from 1 to 0: the relevance of each rank.
    k
        The length of the lists that will be shown.
    histories
        The users' histories.
    catalog
        The items.
    scorer
        The fitted model, for stages that compare items by it.
    """

    columns: np.ndarray
    relevance: np.ndarray
    k: int
    histories: sp.csr_array
    catalog: Catalog
    scorer: Scorer

    def take(self, rows: slice) -> Candidates:
        """Return the candidates of some users."""
        histories = self.histories[rows]
        return replace(self, columns=self.columns[rows], relevance=self.relevance[rows], histories=histories)


class Reordering:
    """What a stage did to the lists. A stage fills the arrays.

    `order`, users × depth, has the position before of what is now at each rank, and −1 beyond the end. `cause` and `amount` say
    why an item moved, by its position before, in units of the stage's own; a cause of −1 is none.
    """

    def __init__(self, columns: np.ndarray) -> None:
        self.order = np.full(columns.shape, -1, np.int32)
        self.cause = np.full(columns.shape, -1, np.int32)
        self.amount = np.zeros(columns.shape, np.float32)


class Reranker(Configurable, ABC):
    """A re-ranking stage. A subclass is `@configurable`, like a recipe, and is found by its name once it is registered."""

    registry: ClassVar[Registry[Any]] = RERANKERS

    @abstractmethod
    def reorder(self, candidates: Candidates) -> Reordering:
        """Return a new order of each list. It must depend on the list alone, and not on the other users in the batch."""

    @abstractmethod
    def describe_cause(self, cause: int, amount: float, catalog: Catalog) -> str:
        """Say why an item moved, in a phrase."""


RerankerLike = Reranker | str | Mapping[str, Any]  # an object, a spec such as "mmr(diversity=0.5)", or its JSON


def parse_reranker(stage: RerankerLike) -> Reranker:
    """Return a stage from an instance, a spec such as "mmr(diversity=0.5)", or its JSON."""
    if isinstance(stage, Reranker):
        return stage
    data = parse_spec(stage) if isinstance(stage, str) else stage
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise InvalidInput("a re-ranker", repr(stage), "Pass gr.rerank.MMR(), say")
    cls, params = RERANKERS.find(data["name"]), params_of_json(data)
    names = [field.name for field in cls.param_fields()]
    unknown = [name for name in params if name not in names]
    if unknown:
        expected = f"parameters of {cls.__name__} ({', '.join(names) or 'none'})"
        raise InvalidInput(expected, repr(unknown[0]), "Leave it out")
    parsed: Reranker = cls(**params)
    return parsed


@dataclass(frozen=True)
class Reranking:
    """The stages that reorder lists, in their order, and how many candidates the first one receives."""

    stages: tuple[Reranker, ...]
    depth: int = DEFAULT_DEPTH

    @staticmethod
    def of(rerank: RerankerLike | Iterable[RerankerLike], depth: int = DEFAULT_DEPTH) -> Reranking | None:
        """Parse one or several stages; None if there are none."""
        depth = require_whole_number("depth", depth, example=DEFAULT_DEPTH)
        if depth > MAX_CANDIDATES:
            raise InvalidInput(f"depth of at most {MAX_CANDIDATES:,}", f"{depth:,}", f"Pass depth={DEFAULT_DEPTH}")
        if isinstance(rerank, Reranker | str | Mapping):
            rerank = [rerank]
        if not isinstance(rerank, Iterable):
            raise InvalidInput("a list of re-rankers", repr(rerank), "Pass rerank=[gr.rerank.MMR()], say")
        stages = tuple(map(parse_reranker, rerank))
        return Reranking(stages, depth) if stages else None

    def apply(self, candidates: Candidates, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, RerankTrace]:
        """Return the columns and scores of the lists of k, and the record of every stage."""
        depth, k = candidates.columns.shape[1], candidates.k
        position = np.broadcast_to(np.arange(depth, dtype=np.int32), candidates.columns.shape)
        steps = []
        for stage in self.stages:
            reordering = stage.reorder(candidates)
            steps.append(TraceStep(stage, candidates.columns, reordering))
            position = take_ranks(position, reordering.order, -1)
            candidates = replace(candidates, columns=take_ranks(candidates.columns, reordering.order, -1))
        shown = position[:, :k]
        trace = RerankTrace(steps, np.where(candidates.columns[:, :k] >= 0, shown, -1), k, candidates.catalog)
        return candidates.columns[:, :k], take_ranks(scores, shown, -np.inf), trace


def take_ranks(values: np.ndarray, order: np.ndarray, missing: float) -> np.ndarray:
    """Return each row's values in a new order; `missing` where the order is −1."""
    return np.where(order >= 0, np.take_along_axis(values, np.maximum(order, 0), axis=1), values.dtype.type(missing))


def relevance_of_ranks(scores: np.ndarray) -> np.ndarray:
    """Map the scores of each list, best first and −inf at its end, to [0, 1]; 1 if all are equal."""
    is_item = np.isfinite(scores)
    lowest = np.min(scores, axis=1, where=is_item, initial=np.inf, keepdims=True)
    lowest = np.where(np.isfinite(lowest), lowest, 0)  # of an empty list
    span = np.where(is_item[:, :1], scores[:, :1], lowest) - lowest
    relative = np.where(is_item, scores, lowest) - lowest
    return np.where(span > 0, relative / np.where(span > 0, span, 1), 1)


def rank_and_rerank(
    scorer: Scorer,
    catalog: Catalog,
    histories: sp.csr_array,
    k: int,
    reranking: Reranking | None,
    *,
    allowed: np.ndarray | None = None,
    exclusions: Exclusions = EXCLUDE_SEEN,
    n_threads: int | None = None,
) -> Iterator[tuple[int, np.ndarray, np.ndarray, RerankTrace | None]]:
    """Yield lists for a block of users at a time: (first user, columns, scores, what was moved), as `rank_blocks` does."""
    depth = k if reranking is None else min(max(k, reranking.depth), len(catalog))
    ranked = rank_blocks(scorer, catalog, histories, depth, allowed=allowed, exclusions=exclusions, n_threads=n_threads)
    for start, columns, scores in ranked:
        if reranking is None:
            yield start, columns, scores, None
            continue
        block = histories[start : start + len(columns)]
        candidates = Candidates(columns, relevance_of_ranks(scores), k, block, catalog, scorer)
        with limit_threads(n_threads):
            yield start, *reranking.apply(candidates, scores)


@dataclass(frozen=True)
class Move:
    """What one stage did to one item of a list.

    Parameters
    ----------
    item, title
        The item; its title is None where the model has no titles.
    from_rank, to_rank
        The ranks before and after the stage, from 1; `to_rank` is None if the stage left the item out.
    stage
        The stage as a spec, such as "MMR(diversity=0.5)".
    reason
        Why, in a phrase.
    """

    item: Any
    title: str | None
    from_rank: int
    to_rank: int | None
    stage: str
    reason: str


@dataclass(frozen=True)
class TraceStep:
    """One stage, the lists that it received, and what it did to them."""

    stage: Reranker
    columns: np.ndarray
    reordering: Reordering


@dataclass(frozen=True)
class RerankTrace:
    """What the stages moved, for some lists. It is kept as arrays, and told for a list at a time.

    Parameters
    ----------
    steps
        The stages, in their order.
    positions
        Lists × k, the position of each shown item in the model's own list, from 0; −1 where a list has ended.
    k
        The length of the lists.
    catalog
        The items.
    """

    steps: list[TraceStep]
    positions: np.ndarray
    k: int
    catalog: Catalog

    def from_ranks(self, row: int) -> list[int]:
        """Return the rank in the model's own list, from 1, of each item of a list."""
        positions = self.positions[row]
        return [position + 1 for position in positions[positions >= 0].tolist()]

    def moves(self, row: int) -> list[Move]:
        """Return what every stage moved within a list, into it or out of it: stage by stage, in the order before."""
        return [move for step in self.steps for move in self._step_moves(step, row)]

    def _step_moves(self, step: TraceStep, row: int) -> Iterator[Move]:
        order, columns = step.reordering.order[row], step.columns[row]
        to_rank = {int(position): rank for rank, position in enumerate(order) if position >= 0}
        for position, column in enumerate(columns.tolist()):
            rank = to_rank.get(position)
            if column < 0 or rank == position or min(position, position if rank is None else rank) >= self.k:
                continue
            cause, amount = int(step.reordering.cause[row, position]), float(step.reordering.amount[row, position])
            reason = "other items moved" if cause < 0 else step.stage.describe_cause(cause, amount, self.catalog)
            (item,), titles = self.catalog.ids[np.array([column])], self.catalog.titles_of([column])
            shown_rank = None if rank is None else rank + 1
            yield Move(item, titles[0] if titles else None, position + 1, shown_rank, str(step.stage), reason)

    @staticmethod
    def join(traces: list[RerankTrace]) -> RerankTrace:
        """Return the record of several blocks of users as one."""
        if len(traces) == 1:
            return traces[0]
        steps = []
        for parts in zip(*(trace.steps for trace in traces), strict=True):
            joined = Reordering(np.empty((0, 0)))
            for name in ("order", "cause", "amount"):
                setattr(joined, name, np.concatenate([getattr(part.reordering, name) for part in parts]))
            steps.append(TraceStep(parts[0].stage, np.concatenate([part.columns for part in parts]), joined))
        return RerankTrace(steps, np.concatenate([trace.positions for trace in traces]), traces[0].k, traces[0].catalog)
