"""A loaded model under its name: answers requests in JSON ids."""

from __future__ import annotations

import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numba import threading_layer  # type: ignore[attr-defined]

from gramian.core.missing import UNKNOWN, HistoryChange
from gramian.core.ranking import Exclusions
from gramian.core.recommender import Recommender
from gramian.core.reranking import Move, Reranker, Reranking
from gramian.core.results import Recommendations
from gramian.core.scorer import ExplainsKinds, SupportsSimilarity
from gramian.data.ids import Index
from gramian.errors import InvalidInput
from gramian.linalg.memory import available_bytes
from gramian.models.scorers import InverseWeights
from gramian.rerank import MMR, Calibration, MaxPerTag, PopularityPenalty, ReservedSlots
from gramian.service.json_ids import JsonId, JsonIds

if TYPE_CHECKING:  # models are loaded while Pydantic and FastAPI are still being imported
    from gramian.service.schemas import (
        BatchRequest,
        ExplainMissingRequest,
        ExplainRequest,
        HistoryRequest,
        InfluenceRequest,
        ItemRulesRequest,
        ListOptions,
        RecommendRequest,
        UserHistory,
    )

SCORING_LOCK = threading.Lock()  # of work that uses every core: two of them at once would be slower than one after the other
SCORES_PER_SLICE = 1_280_000  # of a batch: about 10 ms on two cores; smaller slices cost up to half of the throughput
MAX_USERS_PER_SLICE = 64  # each user takes time in Python, too


class ServedModel:
    """A model under its name. It translates JSON ids; the recommender does the rest.

    Parameters
    ----------
    name
        The name that requests use.
    model
        The loaded model.
    """

    def __init__(self, name: str, model: Recommender) -> None:
        self.name, self.model, self.catalog = name, model, model.catalog
        self.loaded, self.is_broken = datetime.now(UTC), False
        users = Index(()) if model.histories is None else model.histories.users
        self.items = JsonIds(self.catalog.ids, f"an item that {name} was fitted on", "Look it up with GET /items")
        self.users = JsonIds(users, f"a user that {name} was fitted on", "Send the history instead")
        title_counts = Counter(self.catalog.titles or ())
        self.shared_titles = {title for title, count in title_counts.items() if count > 1}

    def recommend(self, request: RecommendRequest) -> dict[str, Any]:
        """Return the list of a user, of a history, or of a user with further items."""
        return self.recommend_together([request])[0]

    def group(self, request: RecommendRequest) -> str | None:
        """Return a text that is the same for requests whose lists can be made in one call; None if this one's must be alone.

        The full matrix of an item-item model gives lists of the same bits in either case. A product of factors does not, and
        a list must not depend on the load.
        """
        scorer = self.model.scorer
        if type(scorer) is not InverseWeights or not scorer.inverse.is_full or request.rerank:
            return None
        return request.model_dump_json(exclude={"user", "history"})

    def recommend_together(self, requests: Sequence[RecommendRequest]) -> list[dict[str, Any]]:
        """Return the lists of requests that differ in nothing but user and history."""
        histories, unknown = self._encode(requests)
        first = requests[0]
        allowed, reranking = self._allowed(first), self._reranking(first)
        options = first.k, allowed, first.exclude_seen, reranking
        ranked = self._recommend_rows(histories, unknown, *options, one_core_lock())
        lists = [{"model": self.name, **listed} for listed in self._lists_json(ranked)]
        for number, listed in enumerate(lists if reranking is not None else ()):
            listed["moves"] = [self._move_json(move) for move in ranked.moves(number)]
        return lists

    def _encode(self, requests: Sequence[RecommendRequest]) -> tuple[sp.csr_array, list[list[Any]] | None]:
        """Return histories in the columns of the model, and their unknown items. Users who send none are rows of the model."""
        users = [self.users.find(request.user) for request in requests if request.user is not None and not request.history]
        if len(users) < len(requests):
            return self.model.encode_histories([self._history(request) for request in requests])
        rows = self.users.index.positions(users)
        return self.model.histories.matrix[rows], None  # type: ignore[union-attr]  # a known user has a history

    def recommend_batch(self, request: BatchRequest) -> Iterator[list[dict[str, Any]]]:
        """Yield the lists of users, then those of histories, a slice at a time. An unknown user gets an empty list.

        The scoring lock is free between two slices, so that single requests are answered while a large batch is made.
        """
        allowed, size, reranking = self._allowed(request), users_per_slice(len(self.catalog)), self._reranking(request)
        for start in range(0, len(request.users), size):
            yield self._rank_users(request.users[start : start + size], request, allowed, reranking)
        for start in range(0, len(request.histories), size):
            ids = map(self.items.decode, request.histories[start : start + size])
            yield self._rank(*self.model.encode_histories(ids), request.k, allowed, request.exclude_seen, reranking)

    def unknown_users(self, users: Sequence[JsonId]) -> list[JsonId]:
        """Return those of the users that the model was not fitted on."""
        rows = self.users.index.positions(self.users.decode(users))
        return [user for user, row in zip(users, rows, strict=True) if row < 0]

    def _rank_users(
        self, users: Sequence[JsonId], options: ListOptions, allowed: np.ndarray | None, reranking: Reranking | None
    ) -> list[dict[str, Any]]:
        rows = self.users.index.positions(self.users.decode(users))
        lists: list[dict[str, Any]] = [{"user": user, "items": [], "unknown": [], "fallback": False} for user in users]
        known = np.flatnonzero(rows >= 0)
        if len(known):
            matrix = self.model.histories.matrix[rows[known]]  # type: ignore[union-attr]  # a known user has a history
            ranked_lists = self._rank(matrix, None, options.k, allowed, options.exclude_seen, reranking)
            for position, ranked in zip(known, ranked_lists, strict=True):
                lists[position] |= ranked
        return lists

    def _allowed(self, options: ListOptions) -> np.ndarray | None:
        """Return a mask of the items that a request allows; None if it allows all."""
        return self.catalog.allowed(**self._rules(options))

    def _rules(self, options: ItemRulesRequest) -> dict[str, Any]:
        """Return which items a request allows, in the ids of the model."""
        allow = None if options.allow is None else self.items.decode(options.allow)
        deny = self.items.decode(options.deny) if options.deny else None
        return {"allow": allow, "deny": deny, "allow_tags": options.allow_tags, "deny_tags": options.deny_tags}

    def _reranking(self, options: ListOptions) -> Reranking | None:
        """Return the re-ranking stages of a request; None if it has none."""
        return Reranking.of([stage.model_dump() for stage in options.rerank], options.depth)

    def _recommend_rows(
        self,
        histories: sp.csr_array,
        unknown: list[list[Any]] | None,
        k: int,
        allowed: np.ndarray | None,
        exclude_seen: bool,
        reranking: Reranking | None,
        lock: AbstractContextManager[Any],
    ) -> Recommendations:
        exclusions = Exclusions(exclude_seen)
        with lock, np.errstate(over="ignore", invalid="ignore"):  # of enormous weights; see encode_json
            return self.model.recommend_rows(histories, k, allowed, exclusions, unknown=unknown, reranking=reranking)

    def _rank(
        self,
        histories: sp.csr_array,
        unknown: list[list[Any]] | None,
        k: int = 10,
        allowed: np.ndarray | None = None,
        exclude_seen: bool = True,
        reranking: Reranking | None = None,
    ) -> list[dict[str, Any]]:
        return self._lists_json(self._recommend_rows(histories, unknown, k, allowed, exclude_seen, reranking, SCORING_LOCK))

    def _lists_json(self, ranked: Recommendations) -> list[dict[str, Any]]:
        """Return lists as JSON; those that were re-ranked with the model's own ranks."""
        all_titles = ranked.titles or repeat(None, len(ranked))
        rows = zip(ranked.items, all_titles, ranked.scores, ranked.unknown or (), ranked.fallback or (), strict=True)
        lists: list[dict[str, Any]] = [
            {"items": self._items_json(ids, titles, scores), "unknown": unknown, "fallback": fallback}
            for ids, titles, scores, unknown, fallback in rows
        ]
        for number, listed in enumerate(lists if ranked.trace else ()):
            for item, rank in zip(listed["items"], ranked.from_ranks(number), strict=True):
                item["from_rank"] = rank
        return lists

    def _move_json(self, move: Move) -> dict[str, Any]:
        """Return what a stage did to an item as JSON."""
        (item,) = self._items_json([move.item], None if move.title is None else [move.title], [move.from_rank], "from_rank")
        return item | {"to_rank": move.to_rank, "stage": move.stage, "reason": move.reason}

    def _history(self, request: UserHistory) -> list[Any] | dict[Any, float]:
        """Return the history of a request: a list of ids, or {id: weight} if a user is named or items have weights."""
        plain = [entry for entry in request.history if isinstance(entry, int | str)]
        if request.user is None and len(plain) == len(request.history):
            return self.items.decode(plain)
        history = {} if request.user is None else self.model.history(self.users.find(request.user))
        entries = [
            (entry, self._value(None, 1.0))
            if isinstance(entry, int | str)
            else (entry.item, self._value(entry.kinds, entry.weight))
            for entry in request.history
        ]
        for id, (_, weight) in zip(self.items.decode([item for item, _ in entries]), entries, strict=True):
            history.setdefault(id, weight)  # the weight in the model, or else the first one sent, takes precedence
        return history

    @property
    def _kinds(self) -> tuple[str, ...] | None:
        """The kinds of events that the model keeps apart."""
        return self.model.scorer.kinds if isinstance(self.model.scorer, ExplainsKinds) else None

    def _value(self, kinds: list[str] | None, weight: float) -> Any:
        """Return the value of a history item: its kinds of events, the last kind by default, or its weight."""
        if self._kinds is None and kinds is not None:
            do = "Leave kinds out"
            raise InvalidInput(f"no kinds of events for {self.name}, which has one kind", ", ".join(kinds), do)
        return weight if self._kinds is None else kinds or self._kinds[-1]

    def _items_json(
        self, ids: list[Any], titles: Sequence[str] | None, values: Sequence[float], key: str = "score"
    ) -> list[dict[str, Any]]:
        """Return items with a number each, and with their titles where the model has titles; a shared title is marked."""
        ids = self.items.encode(ids)
        if titles is None:
            return [{"item": id, key: value} for id, value in zip(ids, values, strict=True)]
        rows = [{"item": id, "title": title, key: value} for id, title, value in zip(ids, titles, values, strict=True)]
        for row in rows if self.shared_titles else ():
            if row["title"] in self.shared_titles:
                row["shares_title"] = True
        return rows

    def user_history(self, request: HistoryRequest) -> dict[str, Any]:
        """Return the items of a user the model was fitted on: the largest weights first, then the most popular items."""
        history = self.model.history(self.users.find(request.user))
        columns = self.catalog.ids.positions(list(history))
        kinds = None if self._kinds is None else list(history.values())
        weights = np.array(list(history.values())) if kinds is None else np.ones(len(history))
        order = np.lexsort((-self.catalog.popularity[columns], -weights))[: request.k]
        best = columns[order]
        items = self._items_json(self.catalog.ids[best], self.catalog.titles_of(best), weights[order].tolist(), "weight")
        if kinds is not None:
            items = [item | {"kinds": list(kinds[place])} for item, place in zip(items, order, strict=True)]
        return {"model": self.name, "user": request.user, "items": items, "total": len(history)}

    def similar(self, item: JsonId, k: int) -> dict[str, Any]:
        """Return the k items most similar to an item."""
        id = self.items.find(item)
        with one_core_lock():
            ranked = self.model.similar_items(id, k)
        similar = self._items_json(ranked.items[0], ranked.titles[0] if ranked.titles else None, ranked.scores[0])
        return {"model": self.name, "item": self.items.encode([id])[0], "items": similar}

    def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Return what each history item adds to the score of an item, strongest first."""
        item, history = self.items.find(request.item), self._history(request)
        with one_core_lock():
            explanation = self.model.explain(history, item)
        ids, titles = list(explanation), explanation.titles
        contributions = self._items_json(
            ids, [titles[id] for id in ids] if titles else None, list(explanation.values()), "value"
        )
        if explanation.by_kind:
            contributions = [row | {"by_kind": explanation.by_kind[id]} for row, id in zip(contributions, ids, strict=True)]
        (explained,) = self._items_json([item], self.catalog.titles_of([self.catalog.column(item)]), [explanation.score])
        unknown = [id for id in history if id not in explanation]
        by_feature = explanation.features
        return {"model": self.name, **explained, "contributions": contributions, "features": by_feature, "unknown": unknown}

    def influence(self, request: InfluenceRequest) -> dict[str, Any]:
        """Return the training users and events that carry the score of an item."""
        item, history = self.items.find(request.item), self._history(request)
        with one_core_lock():
            found = self.model.influence(history, item, request.limit)
        users = [{"user": self.users.encode([user])[0], "value": value} for user, value in found.users.items()]
        events = [
            {"user": self.users.encode([user])[0], "item": self.items.encode([other])[0], "value": value}
            for (user, other), value in found.events.items()
        ]
        return {"model": self.name, "item": request.item, "score": found.score, "users": users, "events": events}

    def explain_missing(self, request: ExplainMissingRequest) -> dict[str, Any]:
        """Return why an item is missing from a list, and the smallest changes of the history that would bring it in."""
        (item,), history = self.items.decode([request.item]), self._history(request)
        options = self._rules(request) | {"exclude_seen": request.exclude_seen, "pool": request.pool, "n_threads": 1}
        with one_core_lock(), np.errstate(over="ignore", invalid="ignore"):
            explanation = self.model.explain_missing(history, item, request.k, **options)
        facts = {name: getattr(explanation, name) for name in ("status", "k", "rank", "score", "lacking", "searched")}
        facts |= {name: getattr(explanation, name) for name in ("is_exhaustive", "fallback")}
        known = explanation.status != UNKNOWN
        facts |= {"model": self.name, "item": self.items.encode([item])[0] if known else request.item}
        facts |= {} if explanation.title is None else {"title": explanation.title}
        changes = {"addition": explanation.addition, "removal": explanation.removal}
        facts |= {name: None if change is None else self._change_json(change) for name, change in changes.items()}
        return facts | {"unknown": list(explanation.unknown)}

    def _change_json(self, change: HistoryChange) -> dict[str, Any]:
        """Return a change of a history as JSON."""

        def name_items(ids: list[Any]) -> list[dict[str, Any]]:
            named = zip(ids, self.items.encode(ids), strict=True)
            return [{"item": sent} | ({"title": change.titles[id]} if id in change.titles else {}) for id, sent in named]

        return {"added": name_items(change.added), "removed": name_items(change.removed), "rank": change.rank}

    def look_up(self, ids: Sequence[JsonId]) -> dict[str, Any]:
        """Return what is known of items, and which of the ids are unknown."""
        columns = self.catalog.ids.positions(self.items.decode(ids))
        unknown = [id for id, column in zip(ids, columns, strict=True) if column < 0]
        return {"items": self._describe(columns[columns >= 0]), "unknown": unknown}

    def search(self, query: str, limit: int) -> dict[str, Any]:
        """Return items whose title, or id where there are no titles, contains the query.

        Titles that begin with it come first, then those with a word that does; the most popular first among equals.
        """
        words = fold_text(query).strip()
        starts = np.array([text.find(words) for text in self._search_texts])
        columns = np.flatnonzero(starts >= 0)
        is_later = starts[columns] > 0
        is_within_word = [starts[column] > 0 and self._search_texts[column][starts[column] - 1].isalnum() for column in columns]
        order = np.lexsort((-self.catalog.popularity[columns], np.array(is_within_word, np.bool_), is_later))
        return {"items": self._describe(columns[order][:limit]), "unknown": []}

    @cached_property
    def _search_texts(self) -> list[str]:
        return [fold_text(str(text)) for text in self.catalog.titles or self.items.encode(self.catalog.ids.tolist())]

    def _describe(self, columns: np.ndarray) -> list[dict[str, Any]]:
        """Return id, title, tags and number of users of the items in some columns."""
        catalog = self.catalog
        popularity = catalog.popularity[columns].tolist()
        items = self._items_json(catalog.ids[columns], catalog.titles_of(columns), popularity, "users")
        tags = [[] if catalog.tags is None else list(catalog.tags[column]) for column in columns]
        return [item | {"tags": item_tags} for item, item_tags in zip(items, tags, strict=True)]

    def info(self) -> dict[str, Any]:
        """Return the recipe, the sizes of the data, the tags, and when the model was loaded."""
        histories, recipe = self.model.histories, self.model.recipe
        return {
            "name": self.name,
            "recipe": recipe.to_json(),
            "spec": f"{type(recipe).__name__}({recipe.summary})",  # with the defaults: people compare models by it
            "users": 0 if histories is None else histories.n_users,
            "items": len(self.catalog),
            "interactions": 0 if histories is None else histories.n_interactions,
            "titles": self.catalog.titles is not None,
            "tags": sorted(self.catalog.columns_by_tag),
            "loaded": self.loaded.isoformat(timespec="seconds"),
            "log_position": self.model.log_position,
        }

    def warm_up(self, n_users: int = 1) -> None:
        """Load the kernels that rank items for n users at once, or compile them. A broken model fails here."""
        histories = [[], *[self.catalog.ids[:1]] * n_users]
        for exclude_seen in (True, False):
            self._rank(*self.model.encode_histories(histories), exclude_seen=exclude_seen)
        if self.model.histories is not None:
            self._rank(self.model.histories.matrix[np.zeros(n_users, np.int64)], None)  # the types of its indices may differ

    def warm_up_reranking(self) -> None:
        """Load the kernels of the re-ranking stages that the model can apply, and of explaining a missing item."""
        stages: list[Reranker] = [PopularityPenalty()]
        if SupportsSimilarity in self.model.scorer.capabilities:
            stages.append(MMR())
        if self.catalog.columns_by_tag:
            stages += [MMR(similarity="tags"), Calibration(), MaxPerTag(), ReservedSlots(self.catalog.tag_names[0])]
        histories, unknown = self.model.encode_histories([self.catalog.ids[:2]])
        self._rank(histories, unknown, reranking=Reranking(tuple(stages)))
        self.model.explain_missing(self.catalog.ids[:2], self.catalog.ids[-1:][0], 1, pool=3, n_threads=1)

    def warm_up_batch(self) -> None:
        """Do the same for a slice of a batch."""
        self.warm_up(users_per_slice(len(self.catalog)))

    def expand_weights(self, n_threads: int = 1) -> None:
        """Hold the full matrix of an item-item model where memory allows it: its stored half is slow for single users."""
        scorer = self.model.scorer
        if type(scorer) is InverseWeights and not scorer.inverse.is_full and scorer.full_bytes <= available_bytes() / 2:
            self.model = self.model.with_scorer(scorer.expand(n_threads))


def one_core_lock() -> AbstractContextManager[Any]:
    """Return what work on one core must hold: nothing, unless Numba's threads serve one caller at a time."""
    try:
        return SCORING_LOCK if threading_layer() == "workqueue" else nullcontext()
    except ValueError:  # no kernel has run yet
        return SCORING_LOCK


def users_per_slice(n_items: int) -> int:
    """Return how many users of a batch are ranked at once.

    It depends on the model only: sums in another order may differ in the last digit, and a batch must not depend on the load.
    """
    return max(1, min(MAX_USERS_PER_SLICE, SCORES_PER_SLICE // n_items))


def fold_text(text: str) -> str:
    """Return text without case and accents, for searching."""
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
