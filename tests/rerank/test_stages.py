"""Each stage against its definition in loops, its limits, and its promises."""

import numpy as np
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.core.ranking import rank_blocks
from gramian.core.registry import RERANKERS
from gramian.core.reranking import Reranking, relevance_of_ranks
from gramian.data.synthetic import clustered
from rerank import naive_stages as naive

K, DEPTH = 6, 25
TAGS = ["Comedy", "Drama", "Horror", "War"]
MODELS = {"ease": gr.EASE(l2=5), "pca": gr.RegularizedPCA(rank=6, l2=1), "ials": gr.IALS(rank=4, n_epochs=2)}
MODELS |= {"knn": gr.ItemKNN(), "edlae": gr.EDLAE(dropout=0.2, l2=5)}
R = gr.rerank


def tag_events(events, seed=0):
    rng = np.random.default_rng(seed)
    chosen = {item: rng.permutation(TAGS)[: rng.integers(0, 4)].tolist() for item in events.items.tolist()}
    return events.with_tags(chosen)


@pytest.fixture(scope="module")
def events():
    return tag_events(clustered(60, 40, 600))


@pytest.fixture(scope="module", params=MODELS, ids=str)
def model(request, events):
    return MODELS[request.param].fit(events)


@pytest.fixture(scope="module")
def ease(events):
    return gr.EASE(l2=5).fit(events)


def candidates_of(model):
    """Return each user's candidates as lists, with the relevance of their ranks."""
    ((_, columns, scores),) = rank_blocks(model.scorer, model.catalog, model.histories.matrix, DEPTH)
    relevance = relevance_of_ranks(scores)
    lists = [row[row >= 0].tolist() for row in columns]
    return [(row, values[: len(row)].tolist()) for row, values in zip(lists, relevance, strict=True)]


def reranked(model, *stages, k=K, depth=DEPTH):
    columns, _ = model.top_k(model.histories.matrix, k, reranking=Reranking.of(stages, depth))
    return [row[row >= 0].tolist() for row in columns]


@pytest.mark.parametrize("diversity", [0, 0.3, 0.8, 1])
def test_mmr_by_the_model_is_its_definition(model, diversity):
    similarity = np.array([model.scorer.similar(item) for item in range(len(model.catalog))])
    expected = [naive.mmr(row, values, K, similarity, diversity)[:K] for row, values in candidates_of(model)]
    assert reranked(model, R.MMR(diversity)) == expected


def tag_cosines(catalog):
    has = np.array([[tag in tags for tag in TAGS] for tags in catalog.tags], float)
    length = np.maximum(np.sqrt(has.sum(axis=1)), 1e-9)
    return has @ has.T / length[:, None] / length


@pytest.mark.parametrize("diversity", [0.2, 0.7])
def test_mmr_by_tags_is_its_definition(ease, diversity):
    similarity = tag_cosines(ease.catalog)
    expected = [naive.mmr(row, values, K, similarity, diversity) for row, values in candidates_of(ease)]
    assert reranked(ease, R.MMR(diversity, "tags"), k=K) == [row[:K] for row in expected]


def test_mmr_by_features_is_its_definition(events):
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((events.n_items, 5))
    model = gr.EASE(l2=5).fit(events.with_features(gr.Features.of(vectors, items=events.items.tolist())))
    length = np.linalg.norm(vectors, axis=1)
    similarity = vectors @ vectors.T / length[:, None] / length
    expected = [naive.mmr(row, values, K, similarity, 0.6)[:K] for row, values in candidates_of(model)]
    assert reranked(model, R.MMR(0.6, "features")) == expected


@pytest.mark.parametrize(("strength", "smoothing"), [(0, 0.01), (0.4, 0.01), (0.9, 0.2), (1, 0.05)])
def test_calibration_is_its_definition(ease, strength, smoothing):
    tags, histories = ease.catalog.tags, ease.histories.matrix
    lists = reranked(ease, R.Calibration(strength, smoothing))
    for user, (row, values) in enumerate(candidates_of(ease)):
        seen = histories[[user]]
        weights = dict(zip(seen.indices.tolist(), seen.data.tolist(), strict=True))
        target, picked = naive.shares(weights, tags, weights), []
        assert len(lists[user]) == min(K, len(row))
        for item in lists[user]:  # the best at its time; equal up to rounding where several have the same tags
            facts = row, values, tags, target, strength, smoothing
            best = max(naive.calibration_value([*picked, other], *facts) for other in row if other not in picked)
            assert item in row
            assert item not in picked
            picked.append(item)
            assert naive.calibration_value(picked, *facts) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("strength", [0, 0.3, 2])
def test_the_popularity_penalty_is_its_definition(ease, strength):
    popularity = ease.catalog.popularity.tolist()
    expected = [naive.popularity_penalty(row, values, popularity, strength)[:K] for row, values in candidates_of(ease)]
    assert reranked(ease, R.PopularityPenalty(strength)) == expected


@pytest.mark.parametrize(("limit", "fill"), [(1, True), (2, True), (1, False), (100, False)])
def test_the_limit_per_tag_is_its_definition(ease, limit, fill):
    tags = ease.catalog.tags
    lists = [row for row, _ in candidates_of(ease)]
    assert reranked(ease, R.MaxPerTag(limit, fill=fill)) == [naive.max_per_tag(row, tags, limit, fill)[:K] for row in lists]
    first = [item_tags[:1] for item_tags in tags]
    by_group = [naive.max_per_tag(row, first, limit, fill)[:K] for row in lists]
    assert reranked(ease, R.MaxPerTag(limit, tags="first", fill=fill)) == by_group


@pytest.mark.parametrize(("slots", "rank"), [(1, 1), (2, 3), (3, 6), (30, 1), (1, 99)])
def test_reserved_slots_are_their_definition(ease, slots, rank):
    tags = ease.catalog.tags
    expected = [naive.reserved_slots(row, tags, "War", slots, rank)[:K] for row, _ in candidates_of(ease)]
    assert reranked(ease, R.ReservedSlots("War", slots, rank)) == expected


KEEP = [R.MMR(0), R.Calibration(0), R.PopularityPenalty(0), R.MaxPerTag(1000), R.ReservedSlots("War", rank=1000)]


@pytest.mark.parametrize("stage", KEEP, ids=str)
def test_at_its_neutral_value_a_stage_keeps_the_list(ease, stage):
    assert reranked(ease, stage) == [row[:K] for row, _ in candidates_of(ease)]


STAGES = [
    R.MMR(0.6),
    R.MMR(0.4, "tags"),
    R.Calibration(0.8),
    R.PopularityPenalty(0.5),
    R.MaxPerTag(2),
    R.ReservedSlots("War", 2, 2),
]
STAGES += [R.MaxPerTag(1, fill=False)]


def test_every_registered_stage_is_tested():
    assert {type(stage) for stage in STAGES} == set(RERANKERS.values())


@pytest.mark.parametrize("stage", STAGES, ids=str)
def test_a_list_does_not_depend_on_the_others_in_the_batch(ease, stage):
    users = ease.users
    together = ease.recommend(users, K, rerank=[stage], depth=DEPTH)
    for user, items in list(zip(users, together.items, strict=True))[::7]:
        assert ease.recommend([user], K, rerank=[stage], depth=DEPTH).items == [items]
    assert ease.recommend(users, K, rerank=[stage], depth=DEPTH).items == together.items


@pytest.mark.parametrize("stage", STAGES, ids=str)
def test_moves_lead_from_the_list_of_the_model_to_the_one_shown(ease, stage):
    plain = ease.recommend(ease.users, DEPTH)
    lists = ease.recommend(ease.users, K, rerank=stage, depth=DEPTH)
    n_moved = 0
    for row in range(len(lists)):
        before, after = plain.items[row], lists.items[row]
        assert [before[rank - 1] for rank in lists.from_ranks(row)] == after
        assert lists.scores[row] == [plain.scores[row][rank - 1] for rank in lists.from_ranks(row)]
        moves = lists.moves(row)
        n_moved += len(moves)
        moved = {move.item: (move.from_rank, move.to_rank) for move in moves}
        assert all(move.stage == str(stage) and move.reason for move in moves)
        for rank, item in enumerate(after, start=1):
            assert moved.get(item, (rank, rank)) == (before.index(item) + 1, rank)
        for item in set(before[:K]) - set(after):
            assert moved[item][0] == before.index(item) + 1
            assert moved[item][1] is None or moved[item][1] > K
    assert n_moved > 0


def test_a_reason_is_told_in_words(ease):
    def reasons(stage):
        lists = ease.recommend(ease.users, K, rerank=stage, depth=DEPTH)
        return " | ".join(move.reason for row in range(len(lists)) for move in lists.moves(row))

    assert "similar to" in reasons(R.MMR(0.6))
    assert "those of the history" in reasons(R.Calibration(0.8))
    assert "users, a penalty of" in reasons(R.PopularityPenalty(0.5))
    assert "1 of War above it" in reasons(R.MaxPerTag(1))
    assert "ranks 2 to 3 are reserved for War" in reasons(R.ReservedSlots("War", 2, 2))


def test_stages_apply_in_their_order_to_the_list_before(ease):
    tags, lists = ease.catalog.tags, candidates_of(ease)
    similarity = tag_cosines(ease.catalog)
    expected = []
    for row, values in lists:
        diverse = naive.mmr(row, values, K, similarity, 0.5)
        expected.append(naive.popularity_penalty(diverse, values, ease.catalog.popularity.tolist(), 0.3))
    stages = [R.MMR(0.5, "tags"), R.PopularityPenalty(0.3)]
    assert reranked(ease, *stages) == [row[:K] for row in expected]
    limited = [naive.max_per_tag(row, tags, 1)[:K] for row in expected]
    assert reranked(ease, *stages, R.MaxPerTag(1)) == limited
    assert reranked(ease, *map(str, stages), "maxpertag(limit=1)") == limited
    assert reranked(ease, *(stage.to_json() for stage in stages), R.MaxPerTag(1)) == limited


def test_explanations_still_add_up_to_the_scores(ease):
    user = ease.users[0]
    lists = ease.recommend([user], K, rerank=[R.MMR(0.9), R.Calibration(0.9)], depth=DEPTH)
    for item, score in zip(lists.items[0], lists.scores[0], strict=True):
        assert ease.explain(ease.history(user), item).score == pytest.approx(score, abs=1e-5)


def test_variety_grows_with_its_weight(ease):
    similarity = tag_cosines(ease.catalog)

    def alike(diversity):
        lists = [row for row in reranked(ease, R.MMR(diversity, "tags")) if len(row) == K]
        return np.mean([similarity[np.ix_(row, row)].sum() - K for row in lists])

    assert alike(0) > alike(0.5) > alike(0.9)


def test_rules_of_the_request_come_first(ease):
    lists = ease.recommend(ease.users, K, deny_tags=["War"], rerank=R.Calibration(1.0))
    tags = dict(zip(ease.items, ease.catalog.tags, strict=True))
    assert not any("War" in tags[item] for items in lists.items for item in items)
    for user, items in zip(ease.users, lists.items, strict=True):
        assert not set(items) & set(ease.history(user))


def test_files_and_blocks_have_the_same_lists(ease, tmp_path, monkeypatch):
    expected = ease.recommend(ease.users, K, rerank=STAGES[:3])
    monkeypatch.setattr("gramian.core.scorer.USERS_PER_BLOCK", 7)
    monkeypatch.setattr("gramian.rerank.diversity.SIMILARITIES_AT_ONCE", 2_000)
    again = ease.recommend(ease.users, K, rerank=STAGES[:3])
    assert again.items == expected.items
    assert [again.moves(row) for row in range(len(again))] == [expected.moves(row) for row in range(len(expected))]
    ease.recommend_to(tmp_path / "lists.csv", K, rerank=STAGES[:3])
    assert (tmp_path / "lists.csv").read_text().count("\n") == 1 + sum(map(len, expected.items))


def test_an_empty_history_and_a_short_catalog(ease):
    lists = ease.recommend_for([[], [ease.items[0]]], 10, rerank=[R.Calibration(0.9), R.MMR(0.5)], depth=30)
    assert lists.fallback == [True, False]
    assert [len(items) for items in lists.items] == [10, 10]
    few = ease.recommend_for([ease.items[:3]], 10, allow=ease.items[:5], rerank=STAGES[:5])
    assert set(few.items[0]) == set(ease.items[3:5])
    assert ease.recommend_for([ease.items[:3]], 10, allow=[], rerank=STAGES[:5]).items == [[]]
    assert ease.recommend([], 10, rerank=STAGES[:5]).items == []


def test_the_frame_has_the_rank_before(ease):
    lists = ease.recommend(ease.users[:2], 3, rerank=R.MMR(0.9))
    assert lists.frame()["from_rank"].to_list() == lists.from_ranks(0) + lists.from_ranks(1)
    assert "from_rank" in lists._repr_html_()
    plain = ease.recommend(ease.users[:2], 3)
    assert "from_rank" not in plain.frame().columns
    assert plain.moves() == []
    assert plain.from_ranks(1) == [1, 2, 3]


BAD = {
    "range": (lambda: R.MMR(1.5), gr.errors.InvalidInput, "at most 1"),
    "not a number": (lambda: R.Calibration(float("nan")), gr.errors.InvalidInput, "strength"),
    "no smoothing": (lambda: R.Calibration(0.5, 0), gr.errors.InvalidInput, "smoothing"),
    "similarity": (lambda: R.MMR(0.5, "genre"), gr.errors.InvalidInput, "'model' or 'tags' or 'features'"),
    "no tag": (R.ReservedSlots, gr.errors.InvalidInput, "a tag"),
    "empty tag": (lambda: R.ReservedSlots(""), gr.errors.InvalidInput, "1 to 200 characters"),
    "limit": (lambda: R.MaxPerTag(0), gr.errors.InvalidInput, "at least 1"),
    "penalty": (lambda: R.PopularityPenalty(-1), gr.errors.InvalidInput, "at least 0"),
}


@pytest.mark.parametrize(("make", "error", "words"), BAD.values(), ids=BAD)
def test_bad_parameters_are_refused(make, error, words, refused):
    with refused(error, words):
        make()


BAD_REQUESTS = {
    "unknown name": (["shuffle"], 100, gr.errors.NotRegistered, "re-ranker among mmr"),
    "unknown parameter": (["mmr(strength=1)"], 100, gr.errors.InvalidInput, "diversity, similarity"),
    "not a stage": ([gr.EASE()], 100, gr.errors.InvalidInput, "a re-ranker"),
    "not a list": (3, 100, gr.errors.InvalidInput, "a list of re-rankers"),
    "no depth": ([R.MMR()], 0, gr.errors.InvalidInput, "depth of at least 1"),
    "endless depth": ([R.MMR()], 10**6, gr.errors.InvalidInput, "depth of at most"),
    "unknown tag": ([R.ReservedSlots("Wat")], 100, gr.errors.UnknownId, "Close: War"),
}


@pytest.mark.parametrize(("rerank", "depth", "error", "words"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_bad_requests_are_refused(ease, rerank, depth, error, words, refused):
    with refused(error, words):
        ease.recommend(ease.users[:1], rerank=rerank, depth=depth)


def test_what_a_model_cannot_do_is_refused(events, refused):
    untagged = gr.EASE(l2=5).fit(clustered(60, 40, 600))
    for stage in (R.MMR(similarity="tags"), R.Calibration(), R.MaxPerTag()):
        with refused(gr.errors.NotSupported, "items with tags"):
            untagged.recommend(untagged.users[:1], rerank=stage)
    with refused(gr.errors.NotSupported, "items with features"):
        untagged.recommend(untagged.users[:1], rerank=R.MMR(similarity="features"))
    popular = gr.Popularity().fit(events)
    with refused(gr.errors.NotSupported, "relates items"):
        popular.recommend(popular.users[:1], rerank=R.MMR())
    assert popular.recommend(popular.users[:1], rerank=R.MMR(similarity="tags")).items[0]


def test_similarities_of_lists_are_those_of_similar(model):
    from gramian.core.scorer import compare_items  # noqa: PLC0415

    lists = np.array([[3, 1, 0, 7], [2, 9, -1, -1]], np.int32)
    compared = compare_items(model.scorer, lists)
    for row, columns in enumerate(lists):
        for p, i in enumerate(columns):
            for q, j in enumerate(columns):
                if min(i, j) >= 0 and i != j:
                    assert compared[row, p, q] == pytest.approx(model.scorer.similar(int(i))[j], abs=1e-6)


def test_a_stage_of_your_own(ease):
    from gramian.core.params import configurable, param  # noqa: PLC0415
    from gramian.core.reranking import Reordering  # noqa: PLC0415

    @configurable
    class Reverse(R.Reranker):
        """The list from its end."""

        first: int = param(3, "how many", at_least=1)

        def reorder(self, candidates):
            result = Reordering(candidates.columns)
            result.order[:] = np.arange(candidates.columns.shape[1])
            result.order[:, : self.first] = np.arange(self.first)[::-1]
            return result

        def describe_cause(self, cause, amount, catalog):
            return "reversed"

    lists = ease.recommend(ease.users[:1], 3, rerank=Reverse())
    assert lists.items[0] == ease.recommend(ease.users[:1], 3).items[0][::-1]
    gr.register(Reverse)
    try:
        assert ease.recommend(ease.users[:1], 3, rerank="reverse").items == lists.items
    finally:
        del RERANKERS._entries["Reverse"]


def test_only_positive_weights_count_in_the_shares_of_a_history():
    from gramian.linalg.sparse import mean_shares  # noqa: PLC0415

    shares = sp.csr_array(np.array([[1.0, 0], [0.5, 0.5], [0, 0]]))
    histories = sp.csr_array(np.array([[2.0, 2.0, 1.0], [-1.0, 2.0, 0], [0, 0, 3.0]]))
    np.testing.assert_allclose(mean_shares(histories, shares).toarray(), [[0.75, 0.25], [0.5, 0.5], [0, 0]])
