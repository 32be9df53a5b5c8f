"""The fitted model that callers use: it takes and returns ids, recommends, explains, updates, saves and loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from gramian.core.histories import Histories, History, encode_events, encode_histories
from gramian.core.missing import (
    DEFAULT_POOL,
    DENIED,
    NOT_ALLOWED,
    SEEN,
    UNKNOWN,
    MissingExplanation,
    MissingItem,
    explain_missing_item,
)
from gramian.core.params import format_value, params_of_json
from gramian.core.ranking import EXCLUDE_SEEN, Exclusions, finite_panels
from gramian.core.registry import MODELS, SCORERS
from gramian.core.reranking import DEFAULT_DEPTH, RerankerLike, Reranking, RerankTrace, rank_and_rerank
from gramian.core.results import Explanation, Influence, Recommendations
from gramian.core.scorer import (
    EncodesHistories,
    ExplainsKinds,
    Scorer,
    SupportsExplanations,
    SupportsFactors,
    SupportsSimilarity,
    SupportsWeights,
    require_capability,
)
from gramian.core.updates import (
    RowChange,
    SupportsDecay,
    SupportsInfluence,
    SupportsItemFeatures,
    SupportsRefinement,
    SupportsUpdates,
)
from gramian.data.catalog import Catalog
from gramian.data.features import Features
from gramian.data.frames import render_html
from gramian.data.ids import as_id_list
from gramian.data.interactions import Interactions
from gramian.data.suggestions import suggest_ids
from gramian.errors import DamagedFile, InvalidInput, NotSupported, RefitWarning, UnknownId
from gramian.io.damage import require_content
from gramian.io.export import write_factors, write_lists
from gramian.io.model_folder import SavedModel, open_model_folder, save_model_folder
from gramian.linalg.memory import require_memory
from gramian.linalg.threads import limit_threads
from gramian.linalg.topk import rank_values
from gramian.validation import is_number, require_instance, require_whole_number

if TYPE_CHECKING:
    from gramian.core.recipe import Recipe

CANDIDATES_PER_USER = 4  # users whose influence is computed, for each that is returned


class Recommender:
    """A fitted model: a scorer, the catalog of its items, the recipe that made it, and its users' histories if it has them.

    Parameters
    ----------
    scorer
        The fitted arrays.
    recipe
        The recipe they were fitted with.
    catalog
        The items, in the scorer's columns.
    histories
        The interactions the model was fitted on; None where the users are elsewhere, as on a cluster.
    card
        The model card: how the model was chosen and how good it is, as JSON. `gr.auto` writes one; it is saved with the model.
    log_position
        The number of the last record of an event log that the model has learned.
    """

    def __init__(
        self,
        scorer: Scorer,
        recipe: Recipe,
        catalog: Catalog,
        histories: Interactions | None = None,
        card: dict[str, Any] | None = None,
        log_position: int = 0,
    ) -> None:
        self.scorer, self.recipe, self.catalog, self.histories, self.card = scorer, recipe, catalog, histories, card
        self.log_position = log_position

    def __repr__(self) -> str:
        users = "" if self.histories is None else f"{self.histories.n_users:,} users, "
        return f"Recommender({self.recipe}, {users}{len(self.catalog):,} items)"

    def _repr_html_(self) -> str:
        """The recipe and the sizes of the data as a table, for notebooks."""
        rows = [(f.name, f.metadata["about"], format_value(getattr(self.recipe, f.name))) for f in self.recipe.param_fields()]
        return render_html(repr(self), ["parameter", "", "value"], rows)

    @property
    def items(self) -> list[Any]:
        """Item ids in column order."""
        return self.catalog.ids.tolist()

    @property
    def users(self) -> list[Any]:
        """The ids of the users whose histories the model has."""
        return [] if self.histories is None else self.histories.users.tolist()

    def history(self, user: Any) -> dict[Any, Any]:
        """Return what a user of the model has touched: item → weight, or item → kinds of events."""
        row = self._require_histories().matrix[self._rows([user])]
        return dict(zip(self.catalog.ids[row.indices], self.history_values(row.data), strict=True))

    def recommend(
        self,
        users: Iterable[Any],
        k: int = 10,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        allow_tags: Iterable[str] | None = None,
        deny_tags: Iterable[str] = (),
        exclude_seen: bool = True,
        exclude_self: bool = False,
        rerank: RerankerLike | Iterable[RerankerLike] = (),
        depth: int = DEFAULT_DEPTH,
        n_threads: int | None = None,
    ) -> Recommendations:
        """Return the k best items for users the model was fitted on.

        Parameters
        ----------
        users
            User ids.
        k
            The length of a list. It is shorter when fewer items may be shown.
        allow, deny
            Recommend only these items, or none of these. Unknown ids are ignored.
        allow_tags, deny_tags
            Recommend only items with one of these tags, or none with any of these. Unknown tags are ignored.
        exclude_seen
            Leave out the items of the user's history.
        exclude_self
            Leave out the item with the user's own id, where users and items are the nodes of one graph.
        rerank
            Stages that reorder the list, in this order: `gr.rerank.MMR(0.3)`, or a spec such as "mmr(diversity=0.3)". They
            see `depth` candidates, and `.moves()` of the result says what they moved. Scores stay those of the model.
        depth
            How many of the best items the stages choose from.
        n_threads
            How many threads to use; all cores if left out.

        Returns
        -------
        Recommendations
            Equal scores are ordered by a fixed pseudo-random order of the items.
        """
        rows = self._rows(users)
        histories = self._require_histories()
        known = histories.users[rows]
        exclusions = Exclusions(exclude_seen, known if exclude_self else None)
        allowed = self.catalog.allowed(allow, deny, allow_tags, deny_tags)
        reranking = Reranking.of(rerank, depth)
        matrix = histories.matrix[rows]
        return self.recommend_rows(matrix, k, allowed, exclusions, users=known, reranking=reranking, n_threads=n_threads)

    def recommend_for(
        self,
        histories: Histories,
        k: int = 10,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        allow_tags: Iterable[str] | None = None,
        deny_tags: Iterable[str] = (),
        exclude_seen: bool = True,
        rerank: RerankerLike | Iterable[RerankerLike] = (),
        depth: int = DEFAULT_DEPTH,
        n_threads: int | None = None,
    ) -> Recommendations:
        """Return the k best items for any histories; users need not appear in the training data.

        Parameters
        ----------
        histories
            For each list the item ids of a history, which count 1 each, or a mapping from item id to weight for a model of
            weighted data, or to a kind of event or a list of kinds for a model of several kinds. A model of sequences takes a
            list as oldest first. Items the model does not know are ignored and returned in `.unknown`; a history with no known
            item gets the most popular items, marked in `.fallback`. Interactions of new users, such as `gr.read` returns, give
            a list for each of their users.
        k, allow, deny, allow_tags, deny_tags, exclude_seen, rerank, depth, n_threads
            As in `recommend`.
        """
        matrix, unknown = self.encode_histories(histories)
        users = histories.users.tolist() if isinstance(histories, Interactions) else None
        allowed, exclusions = self.catalog.allowed(allow, deny, allow_tags, deny_tags), Exclusions(exclude_seen)
        options: dict[str, Any] = {"reranking": Reranking.of(rerank, depth), "n_threads": n_threads}
        return self.recommend_rows(matrix, k, allowed, exclusions, users=users, unknown=unknown, **options)

    def encode_histories(self, histories: Histories) -> tuple[sp.csr_array, list[list[Any]]]:
        """Return histories as rows in the model's columns, and for each history the items that the model does not know."""
        return encode_histories(histories, self.catalog, self.scorer, self.recipe.takes_dislikes)

    def recommend_rows(
        self,
        histories: sp.csr_array,
        k: int,
        allowed: np.ndarray | None,
        exclusions: Exclusions,
        *,
        users: list[Any] | None = None,
        unknown: list[list[Any]] | None = None,
        reranking: Reranking | None = None,
        n_threads: int | None = None,
    ) -> Recommendations:
        """Return lists for histories in the model's columns, as ids and titles. `recommend` and `recommend_for` call it."""
        ranked = self._rank(histories, k, allowed, exclusions, reranking, n_threads)
        fallback = (np.diff(histories.indptr) == 0).tolist()
        return self._name_lists(*ranked[:2], users, unknown or [[] for _ in fallback], fallback, ranked[2])

    def recommend_to(
        self,
        path: str | Path,
        k: int = 10,
        *,
        users: Iterable[Any] | None = None,
        histories: Interactions | None = None,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        allow_tags: Iterable[str] | None = None,
        deny_tags: Iterable[str] = (),
        exclude_seen: bool = True,
        exclude_self: bool = False,
        rerank: RerankerLike | Iterable[RerankerLike] = (),
        depth: int = DEFAULT_DEPTH,
        n_threads: int | None = None,
    ) -> None:
        """Write the k best items of many users to a file: user, rank, item, title, score.

        Only one block of users is in memory at a time, and the file appears only when it is complete.

        Parameters
        ----------
        path
            A file name ending in .parquet, .csv or .jsonl.
        users
            Users of the model; all of them if left out.
        histories
            The interactions of new users, to write their lists instead. Items that the model does not know are ignored.
        k, allow, deny, allow_tags, deny_tags, exclude_seen, exclude_self, rerank, depth, n_threads
            As in `recommend`.
        """
        if histories is not None:
            if users is not None:
                raise InvalidInput("users=... of the model or histories=... of new users", "both", "Pass one of them")
            require_instance(histories, Interactions, "Wrap it: gr.Interactions.of(...)")
            matrix, user_ids = self.encode_histories(histories)[0], histories.users.tolist()
        else:
            rows = None if users is None else self._rows(users)
            known = self._require_histories()
            matrix = known.matrix if rows is None else known.matrix[rows]
            user_ids = known.users.tolist() if rows is None else known.users[rows]
        exclusions = Exclusions(exclude_seen, user_ids if exclude_self else None)
        k = min(require_whole_number("k", k, example=10), len(self.catalog))
        allowed, reranking = self.catalog.allowed(allow, deny, allow_tags, deny_tags), Reranking.of(rerank, depth)

        def blocks() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            options: dict[str, Any] = {"allowed": allowed, "exclusions": exclusions, "n_threads": n_threads}
            for start, columns, scores, _ in rank_and_rerank(self.scorer, self.catalog, matrix, k, reranking, **options):
                yield np.arange(start, start + len(columns)), columns, scores

        write_lists(path, user_ids, self.catalog, blocks())

    def similar_items(
        self,
        item: Any,
        k: int = 10,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        allow_tags: Iterable[str] | None = None,
        deny_tags: Iterable[str] = (),
    ) -> Recommendations:
        """Return the k items most similar to one item, as a single list. The rules are those of `recommend`."""
        column = self.catalog.column(item)
        allowed = self.catalog.allowed(allow, deny, allow_tags, deny_tags)
        is_shown = np.ones(len(self.catalog), np.bool_) if allowed is None else allowed
        is_shown[column] = False
        similarity = require_capability(self.scorer, SupportsSimilarity, self.recipe).similar(column)
        k = min(require_whole_number("k", k, example=10), len(self.catalog))
        return self._name_lists(*rank_values(similarity, k, is_shown))

    def explain(self, history: History, item: Any) -> Explanation:
        """Return the contribution of each history item to the score of `item`, which is their sum.

        Items that the model does not know add nothing and are returned in `.unknown`. A model that learns from features of the
        items also says in `.features` what each feature of `item` adds, and a model of several kinds of events in `.by_kind`
        what each kind adds.
        """
        row, (unknown,) = self.encode_histories([history])
        columns, column = row.indices, self.catalog.column(item)
        explainer = require_capability(self.scorer, SupportsExplanations, self.recipe)
        contributions = explainer.contributions(columns, row.data, column)
        order = np.argsort(-np.abs(contributions), kind="stable")
        ids, titles = self.catalog.ids[columns[order]], self.catalog.titles_of(columns[order])
        return Explanation(
            dict(zip(ids, contributions[order].tolist(), strict=True)),
            None if titles is None else dict(zip(ids, titles, strict=True)),
            unknown,
            self._explain_features(columns, row.data, column),
            self._explain_kinds(row, column, ids, order),
        )

    def influence(self, history: History, item: Any, limit: int = 10) -> Influence:
        """Return the training users and events that carry the score of `item` for a history, by leaving each of them out.

        The scores without a user or an event are exact: those of a model fitted without it. The candidates are the users who
        are most strongly tied to both the history and the item, to first order; four times as many as asked for are computed.

        Parameters
        ----------
        history
            Item ids, or a mapping from item id to weight.
        item
            The item.
        limit
            How many users, and how many events, to return at most.

        Returns
        -------
        Influence
        """
        histories = self._require_histories()
        limit = require_whole_number("limit", limit, example=10)
        if not isinstance(self.recipe, SupportsInfluence):
            raise NotSupported("a full-rank autoencoder", type(self.recipe).__name__, "Fit EASE or EDLAE, say")
        row, _ = self.encode_histories([history])
        score = self.recipe.item_score(self.scorer, histories, row.indices, row.data, self.catalog.column(item))
        strength = np.abs(score.first_order(histories.matrix))
        candidates = np.argsort(-strength, kind="stable")[: CANDIDATES_PER_USER * limit]
        users: dict[Any, float] = {}
        events: dict[tuple[Any, Any], float] = {}
        for candidate in candidates[strength[candidates] > 0]:
            (user,), trained = histories.users[candidate : candidate + 1], histories.matrix[[candidate]]
            without_user, without_event = score.without_user(trained.indices, trained.data)
            users[user] = score.value - without_user
            items = self.catalog.ids[trained.indices]
            events |= {(user, other): score.value - left for other, left in zip(items, without_event.tolist(), strict=True)}
        strongest_users = sorted(users, key=lambda user: -abs(users[user]))[:limit]
        strongest_events = sorted(events, key=lambda event: -abs(events[event]))[:limit]
        return Influence(
            score.value, {user: users[user] for user in strongest_users}, {event: events[event] for event in strongest_events}
        )

    def _explain_features(self, history: np.ndarray, values: np.ndarray, item: int) -> dict[str, float] | None:
        """Return what each feature of an item adds to its score, strongest first; None where no features are used."""
        features = self.catalog.features
        if features is None or not isinstance(self.recipe, SupportsItemFeatures):
            return None
        contributions = self.recipe.feature_contributions(self.scorer, features, history, values, item)
        order = np.argsort(-np.abs(contributions), kind="stable")
        return {features.names[at]: float(contributions[at]) for at in order if contributions[at]}

    def add_items(
        self,
        features: Any,
        *,
        items: Iterable[Any] | None = None,
        item: str | None = None,
        titles: Mapping[Any, str] | None = None,
        n_threads: int | None = None,
    ) -> Recommender:
        """Return a model that also recommends new items, which nobody has touched, from their features.

        It equals a new fit with these items in the catalog, without a new inverse. This model stays as it is.

        Parameters
        ----------
        features
            The features of the new items: a table or an array like the one that the model's features were made from, or
            `Features` that were encoded together with these.
        items, item
            The ids of the rows of an array, and the column of ids of a table, as in `gr.Features.of`.
        titles
            Titles of the new items, as {id: title}.
        n_threads
            How many threads to use; all cores if left out.
        """
        known = self.catalog.features
        if known is None or not isinstance(self.recipe, SupportsItemFeatures):
            got = f"{self.recipe}, which knows an item only by the users who touched it"
            raise NotSupported("a model that learns from features of the items", got, "Fit CEASE, AddEASE, L3AE or FeatureIALS")
        added = Features.of(features, items=items, item=item, like=known)
        repeated = added.items[self.catalog.ids.positions(added.items.tolist()) >= 0]
        if repeated:
            got = ", ".join(map(repr, repeated[:5]))
            raise InvalidInput("items the model does not know", got, "Leave them out: features.take(new_items)")
        featureless = added.items[np.diff(added.matrix.indptr) == 0]
        if featureless:
            got = f"none of {', '.join(map(repr, featureless[:5]))}"
            raise InvalidInput("a feature that the model knows for every new item", got, "Leave these items out")
        catalog = self.catalog.append(added, titles)
        with limit_threads(n_threads):
            scorer = self.recipe.add_items(self.scorer, known, known.join(added))
        histories = None if self.histories is None else self.histories.with_catalog(catalog)
        return Recommender(scorer, self.recipe, catalog, histories, log_position=self.log_position)

    def _explain_kinds(self, row: sp.csr_array, column: int, ids: list[Any], order: np.ndarray) -> dict[Any, dict[str, float]]:
        """Return what each kind of event of each history item adds, where the model has several kinds."""
        if not isinstance(self.scorer, ExplainsKinds) or self.scorer.kinds is None:
            return {}
        parts, occurred = self.scorer.contributions_by_kind(row.indices, row.data, column), self.history_values(row.data)
        names = self.scorer.kinds
        return {
            id: {kind: float(parts[place, names.index(kind)]) for kind in occurred[place]}
            for id, place in zip(ids, order.tolist(), strict=True)
        }

    def history_values(self, values: np.ndarray) -> list[Any]:
        """Return values of histories as weights, or as kinds of events where the model has several."""
        encoder = self.scorer
        return encoder.decode_values(values) if isinstance(encoder, EncodesHistories) else values.tolist()

    def explain_missing(
        self,
        history: History,
        item: Any,
        k: int = 10,
        *,
        allow: Iterable[Any] | None = None,
        deny: Iterable[Any] | None = None,
        allow_tags: Iterable[str] | None = None,
        deny_tags: Iterable[str] = (),
        exclude_seen: bool = True,
        pool: int | None = DEFAULT_POOL,
        n_threads: int | None = None,
    ) -> MissingExplanation:
        """Say why an item is missing from the list of a history, and which smallest change of the history would bring it in.

        Parameters
        ----------
        history
            Item ids, or item id → weight, as in `recommend_for`.
        item
            The item in question. It may be unknown to the model.
        k, allow, deny, allow_tags, deny_tags, exclude_seen, n_threads
            As in `recommend_for`: they make the list that the item is missing from. Re-ranking is not considered.
        pool
            How many items to consider for adding: those that raise the item's score most, and those now in the list. None
            considers all, so that the smallest change of one or two items is found if there is one; that takes memory and
            time of the order of the squared number of items.

        Returns
        -------
        MissingExplanation
            Its `status`, `rank` and the score it is `lacking`; if it is ranked out, the smallest `addition` to the history
            and the smallest `removal`, and what was `searched`.
        """
        row, (unknown,) = self.encode_histories([history])
        k = min(require_whole_number("k", k, example=10), len(self.catalog))
        if pool is not None:
            require_whole_number("pool", pool, example=DEFAULT_POOL)
        column = int(self.catalog.ids.positions([item])[0])
        if column < 0:
            return MissingExplanation(item, None, UNKNOWN, k, unknown=tuple(unknown), fallback=row.nnz == 0)
        everything = np.ones(len(self.catalog), np.bool_)
        not_denied, permitted = (
            everything if mask is None else mask
            for mask in (
                self.catalog.allowed(deny=deny, deny_tags=deny_tags),
                self.catalog.allowed(allow, deny, allow_tags, deny_tags),
            )
        )
        status = ""
        if exclude_seen and column in row.indices:
            status = SEEN
        elif not permitted[column]:
            status = NOT_ALLOWED if not_denied[column] else DENIED
        question = MissingItem(self.scorer, self.catalog, row, column, k, permitted, exclude_seen)
        with limit_threads(n_threads):
            return explain_missing_item(question, status, pool, unknown)

    def add_users(self, events: Interactions, *, n_threads: int | None = None) -> Recommender:
        """Return a model that has also learned from these new users, equal to a new fit at a fraction of its cost.

        This model stays as it is. The users must be new; items may be new.
        """
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        histories = self._require_histories()
        known = events.users[histories.users.positions(events.users.tolist()) >= 0]
        if known:
            got = ", ".join(map(repr, known[:5]))
            raise InvalidInput("users the model does not know", got, "Forget them first, then add them with all their events")
        after = histories.join(events)
        added = events.reindex(events.users, after.items).matrix
        return self._update(after, RowChange(added, np.ones(events.n_users)), n_threads)

    def forget_users(self, users: Iterable[Any], *, n_threads: int | None = None) -> Recommender:
        """Return a model without these users, equal to a new fit without them. This model and its files stay as they are."""
        rows, histories = np.unique(self._rows(users)), self._require_histories()
        remaining = np.setdiff1d(np.arange(histories.n_users), rows)
        if len(remaining) == 0:
            raise InvalidInput("at least one user to keep", "all users", "Delete the model")
        removed = RowChange(histories.matrix[rows], -np.ones(len(rows)))
        return self._update(histories.take(remaining), removed, n_threads)

    def observe(self, events: Interactions, *, decay: float = 1.0, n_threads: int | None = None) -> Recommender:
        """Return a model that has also learned from these events, of known and of new users and items.

        Full-rank autoencoders and Popularity equal a new fit on all events. Where that is cheaper than the update, they are
        fitted again, with a `RefitWarning`. RG2 has the accuracy of a new fit: its eigenpairs have residuals below 0.1 %. iALS
        and the other models of alternating least squares solve for all users and for the items of the events; they solve for
        all items where a sample of the others would move by more than 5 %. This model stays as it is.

        Parameters
        ----------
        events
            The events. A weight of a user and an item adds to the weight they have; between 0/1 interactions nothing adds up.
        decay
            What the weights of all earlier interactions are multiplied by, above 0 and up to 1: 0.5 ** (days / half_life).
            Full-rank autoencoders can do this exactly, since the penalty fades with the weights: the recipe of the returned
            model has l2 · decay². Fit again with the original l2 now and then.
        n_threads
            How many threads to use; all cores if left out.

        Returns
        -------
        Recommender
            Its users and items keep their places; new ones come last.
        """
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        if not (is_number(decay) and 0 < decay <= 1):
            raise InvalidInput("decay above 0 and at most 1", repr(decay), "Pass decay=0.5 ** (days / half_life)")
        faded = self if decay == 1 else self._fade(float(decay))
        before = faded._require_histories()
        after = before.merge(events)
        change = RowChange.between(before, after, after.users.positions(events.users.tolist()))
        return faded._update(after, change, n_threads, is_approximation_allowed=True)

    def _fade(self, factor: float) -> Recommender:
        histories = self._require_histories()
        if not isinstance(self.recipe, SupportsDecay):
            reason = f"{type(self.recipe).__name__}, which fading weights change by more than a scale"
            raise NotSupported("a full-rank autoencoder of weights for decay", reason, "Leave decay out, or fit it again")
        after = histories.scaled(factor)
        recipe, scorer = self.recipe.fade(self.scorer, after, factor)
        return Recommender(scorer, recipe, after.catalog, after, log_position=self.log_position)

    def _update(
        self, after: Interactions, change: RowChange, n_threads: int | None, *, is_approximation_allowed: bool = False
    ) -> Recommender:
        can_update, can_refine = isinstance(self.recipe, SupportsUpdates), isinstance(self.recipe, SupportsRefinement)
        if not can_update and not (can_refine and is_approximation_allowed):
            name = type(self.recipe).__name__
            expected = "a full-rank autoencoder or Popularity" + ", RG2 or alternating least squares" * is_approximation_allowed
            got = f"{name}, which learns events but cannot forget or add exactly" if can_refine else name
            raise NotSupported(expected, got, "Fit it again")
        if change.rows.shape[0] == 0 and len(after.items) == self.scorer.n_items:
            return Recommender(self.scorer, self.recipe, after.catalog, after, log_position=self.log_position)
        with limit_threads(n_threads):
            update = self.recipe.update if isinstance(self.recipe, SupportsUpdates) else self.recipe.refine  # type: ignore[attr-defined]
            scorer = update(self.scorer, after, change)
        return Recommender(scorer, self.recipe, after.catalog, after, log_position=self.log_position)

    def scores(self, events: Interactions, *, n_threads: int | None = None) -> np.ndarray:
        """Return dense scores, users × items in the order of `model.items`, nothing masked: for small data and tests."""
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        histories = encode_events(events, self.scorer).reindex(events.users, self.catalog.ids).matrix
        n_users, n_items = histories.shape
        require_memory(8 * n_users * n_items, f"{n_users:,} × {n_items:,} scores", "Use recommend")
        scores = None
        with limit_threads(n_threads):
            for first, panel in finite_panels(self.scorer.panels, histories):
                scores = np.empty((n_users, n_items), panel.dtype) if scores is None else scores
                scores[:, first : first + panel.shape[1]] = panel
        return np.asarray(scores)

    def weights(self) -> np.ndarray:
        """Return the dense n × n W of an item-item model, scores = history · W: for small catalogs and tests."""
        return require_capability(self.scorer, SupportsWeights, self.recipe).weights()

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the (user, item) vectors of a factor model, or the (encoder, decoder) of a low-rank model."""
        first, *second = require_capability(self.scorer, SupportsFactors, self.recipe).factors().values()
        return (first, second[0]) if second else (self._user_vectors(), first)

    def _user_vectors(self) -> np.ndarray:
        histories = self._require_histories()
        return require_capability(self.scorer, SupportsFactors, self.recipe).user_vectors(histories.matrix)

    def factors_to(self, path: str | Path, *, of: str = "items") -> None:
        """Write the vectors of items or users for vector search, to .parquet (with ids) or to .npy (in their order).

        Parameters
        ----------
        path
            A file name ending in .parquet or .npy. Several arrays are stacked in .npy.
        of
            "items": a factor model has one vector per item. A low-rank model has an encoder and a decoder: the sum of the
            encoder rows of a history (times its weights) is its vector, and items score by the inner product with their
            decoder rows. "users": a vector for every user the model was fitted on.
        """
        if of not in ("items", "users"):
            raise InvalidInput("factors of 'items' or 'users'", repr(of), "Choose one of them")
        if of == "items":
            vectors = require_capability(self.scorer, SupportsFactors, self.recipe).factors()
            write_factors(path, "item", self.items, vectors, self.catalog.titles)
        else:
            write_factors(path, "user", self.users, {"vector": self._user_vectors()})

    def top_k(
        self,
        histories: sp.csr_array,
        k: int,
        *,
        allowed: np.ndarray | None = None,
        exclusions: Exclusions = EXCLUDE_SEEN,
        reranking: Reranking | None = None,
        n_threads: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns and scores of the k best items for histories in the model's columns.

        A short list ends in column −1 and score −inf. Items of a history are excluded unless `exclusions` says otherwise.
        A history without any item gets the most popular items.
        """
        return self._rank(histories, k, allowed, exclusions, reranking, n_threads)[:2]

    def _rank(
        self,
        histories: sp.csr_array,
        k: int,
        allowed: np.ndarray | None,
        exclusions: Exclusions,
        reranking: Reranking | None,
        n_threads: int | None,
    ) -> tuple[np.ndarray, np.ndarray, RerankTrace | None]:
        """Return columns, scores and what re-ranking moved."""
        n_items = len(self.catalog)
        k = min(require_whole_number("k", k, example=10), n_items)
        if histories.shape[1] != n_items or histories.indices.max(initial=0) >= n_items or histories.indices.min(initial=0) < 0:
            raise InvalidInput(f"histories in the model's {n_items} columns", f"{histories.shape[1]}", "Use events.reindex")
        histories = histories if histories.has_sorted_indices else histories.sorted_indices()
        columns = np.empty((histories.shape[0], k), np.int32)
        scores = np.empty((histories.shape[0], k))
        options: dict[str, Any] = {"allowed": allowed, "exclusions": exclusions, "n_threads": n_threads}
        traces = []
        ranked = rank_and_rerank(self.scorer, self.catalog, histories, k, reranking, **options)
        for start, block_columns, block_scores, trace in ranked:
            rows = slice(start, start + len(block_columns))
            columns[rows], scores[rows] = block_columns, block_scores
            traces += [] if trace is None else [trace]
        return columns, scores, RerankTrace.join(traces) if traces else None

    def _name_lists(
        self,
        columns: np.ndarray,
        scores: np.ndarray,
        users: list[Any] | None = None,
        unknown: list[list[Any]] | None = None,
        fallback: list[bool] | None = None,
        trace: RerankTrace | None = None,
    ) -> Recommendations:
        """Turn columns into ids and titles."""
        lists = [row[row >= 0] for row in columns]
        return Recommendations(
            [self.catalog.ids[row] for row in lists],
            [values[: len(row)].tolist() for values, row in zip(scores, lists, strict=True)],
            users,
            unknown,
            fallback,
            None if self.catalog.titles is None else [self.catalog.titles_of(row) or [] for row in lists],
            trace,
        )

    def _require_histories(self) -> Interactions:
        if self.histories is None:
            do = "Use recommend_for with histories, or gr.spark.recommend on a cluster"
            raise NotSupported("a model with its users' histories", "one fitted from a Gram or on a cluster", do)
        return self.histories

    def _rows(self, users: Iterable[Any]) -> np.ndarray:
        """Return the rows of users, or raise `UnknownId`."""
        users = as_id_list("user ids", users)
        rows = self._require_histories().users.positions(users)
        missing = [user for user, row in zip(users, rows, strict=True) if row < 0]
        if missing:
            do = suggest_ids(missing[0], self._require_histories().users, "Use recommend_for with their histories")
            raise UnknownId("users the model was fitted on", ", ".join(map(repr, missing[:5])), do)
        return rows

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of safetensors and JSON, atomically; `gr.load` reads it."""
        save_model_folder(path, self.compact().take_apart())

    def compact(self) -> Recommender:
        """Return this model with its scorer in the form that is saved."""
        return self.with_scorer(self.scorer.compact())

    def with_scorer(self, scorer: Scorer) -> Recommender:
        """Return this model with another form of its scorer."""
        return Recommender(scorer, self.recipe, self.catalog, self.histories, self.card, self.log_position)

    def take_apart(self) -> SavedModel:
        """Return the parts of the model that are saved; `assemble_model` makes a model of them."""
        facts, arrays = self.scorer.save()
        return SavedModel(
            self.recipe.to_json(),
            self.scorer.name,
            facts,
            arrays,
            self.catalog,
            self.histories,
            self.card,
            self.log_position,
        )


def load_model(path: str | Path, *, private: bool = False) -> Recommender:
    """Load a model that `model.save` wrote, after verifying its checksums. Nothing in the folder can run.

    Parameters
    ----------
    path
        The model's folder, or a symbolic link to it. Models and scorers in it must be registered; see `gramian.register`.
    private
        Copy the arrays into the memory of this process. Otherwise their file is mapped, which is faster and shares memory with
        other processes, but a program that overwrites the file in place, as `cp new/* model/` does, changes the loaded model or
        kills the process. A copy takes the size of the arrays in memory.
    """
    with open_model_folder(path, private=private) as saved:
        return assemble_model(saved)


def assemble_model(saved: SavedModel) -> Recommender:
    """Return the model of saved parts, which need not be trusted."""
    require_content(isinstance(saved.recipe["name"], str), "the name of a recipe")
    recipe = MODELS.find(saved.recipe["name"])(**params_of_json(saved.recipe))
    scorer = fit_saved(recipe, saved) if saved.scorer is None else load_scorer(saved)
    require_content(scorer.n_items == len(saved.catalog), "a fitted value for every item")
    return Recommender(scorer, recipe, saved.catalog, saved.histories, saved.card, saved.log_position)


def load_scorer(saved: SavedModel) -> Scorer:
    """Return the scorer of saved parts."""
    if not isinstance(saved.scorer, str):
        raise DamagedFile("the name of a scorer", "something else", "Save it again")
    scorer: Scorer = SCORERS.find(saved.scorer).load(saved.scorer_facts, saved.scorer_arrays)
    return scorer


def fit_saved(recipe: Recipe, saved: SavedModel) -> Scorer:
    """Return the scorer of a model that was saved without it, when a user was forgotten."""
    if saved.histories is None:
        raise DamagedFile("the histories of a model that is yet to be fitted", "none", "Save it again")
    warnings.warn("The model was saved without its fitted arrays. Fitting again.", RefitWarning, stacklevel=2)
    return recipe.fit(saved.histories, dtype=saved.scorer_facts["dtype"]).scorer
