"""Why an item is missing, and the smallest change that brings it in: against a search in loops through the lists themselves."""

from itertools import combinations

import numpy as np
import pytest

import gramian as gr
from gramian.data.synthetic import clustered

RECIPES = {"ease": gr.EASE(l2=5), "edlae": gr.EDLAE(dropout=0.2, l2=5), "pca": gr.RegularizedPCA(rank=6, l2=1)}
RECIPES |= {"knn": gr.ItemKNN(), "gfcf": gr.GFCF(rank=4)}
K = 3


@pytest.fixture(scope="module")
def events():
    return clustered(60, 18, 400)


@pytest.fixture(scope="module", params=RECIPES, ids=str)
def model(request, events):
    return RECIPES[request.param].fit(events)


@pytest.fixture(scope="module")
def ease(events):
    return gr.EASE(l2=5).fit(events)


def rank_of(model, history, item, **rules):
    items = model.recommend_for([history], len(model.items), **rules).items[0]
    return items.index(item) + 1 if item in items else None


def smallest_change(model, history, item, k, *, adds, exclude_seen=True):
    """Return the size of the smallest change of one or two items, the best rank at that size, and all changes of that rank."""
    pool = [other for other in (model.items if adds else history) if other != item and (other in history) != adds]
    for size in (1, 2):
        ranks = {}
        for change in combinations(pool, size):
            changed = [*history, *change] if adds else [other for other in history if other not in change]
            if changed:
                ranks[frozenset(change)] = rank_of(model, changed, item, exclude_seen=exclude_seen)
        best = min(ranks.values(), default=k + 1)
        if best <= k:
            return size, best, {change for change, rank in ranks.items() if rank == best}
    return None


def test_the_rank_and_the_missing_score_are_those_of_the_list(model):
    for user in model.users[:2]:
        history = list(model.history(user))[:6]
        lists = model.recommend_for([history], len(model.items))
        for item in model.items:
            explanation = model.explain_missing(history, item, K, pool=1)
            if item in history:
                assert explanation.status == "seen"
                assert explanation.addition is explanation.removal is None
                continue
            position = lists.items[0].index(item)
            assert (explanation.rank, explanation.status) == (position + 1, "recommended" if position < K else "ranked out")
            assert explanation.score == pytest.approx(lists.scores[0][position], abs=1e-6)
            lacking = max(0, lists.scores[0][K - 1] - lists.scores[0][position])
            assert explanation.lacking == pytest.approx(lacking, abs=1e-6)


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_with_all_items_the_smallest_change_is_found(model, exclude_seen):
    sizes = set()
    for user in model.users[:2]:
        history = list(model.history(user))[:4]
        order = model.recommend_for([history], len(model.items), exclude_seen=exclude_seen).items[0]
        for item in (order[K + 1], order[-1]):
            explanation = model.explain_missing(history, item, K, pool=None, exclude_seen=exclude_seen)
            assert explanation.status == "ranked out"
            assert explanation.is_exhaustive
            for change, adds in ((explanation.addition, True), (explanation.removal, False)):
                expected = smallest_change(model, history, item, K, adds=adds, exclude_seen=exclude_seen)
                sizes.add((adds, expected and expected[0]))
                if expected is None:
                    assert change is None
                    continue
                size, rank, changes = expected
                assert (len(change), change.rank) == (size, rank)
                assert frozenset(change.added if adds else change.removed) in changes
    assert any(size for _, size in sizes)


def test_some_items_need_two_and_some_have_none(ease):
    found = set()
    for user in ease.users[:6]:
        history = list(ease.history(user))[:4]
        for item in ease.recommend_for([history], 30).items[0][1:]:
            explanation = ease.explain_missing(history, item, 1, pool=None)
            found |= {explanation.addition and len(explanation.addition), explanation.removal and len(explanation.removal)}
    assert found == {None, 1, 2}


def test_a_change_of_a_small_pool_is_true_and_says_what_was_tried(ease):
    history = list(ease.history(ease.users[0]))[:4]
    for item in ease.recommend_for([history], 30).items[0][K:]:
        explanation = ease.explain_missing(history, item, K, pool=4)
        assert not explanation.is_exhaustive or explanation.addition
        assert "single items to add" in explanation.searched
        change = explanation.smallest
        if change is not None:
            kept = [other for other in history if other not in change.removed]
            assert rank_of(ease, [*kept, *change.added], item) == change.rank <= K


@pytest.mark.parametrize("recipe", [gr.IALS(rank=4, n_epochs=2), gr.Popularity()], ids=str)
def test_models_that_are_no_sums_are_asked_for_new_lists(events, recipe):
    model = recipe.fit(events)
    history = list(model.history(model.users[0]))[:4]
    order = model.recommend_for([history], 30).items[0]
    for item in (order[K], order[K + 1], order[-1]):
        explanation = model.explain_missing(history, item, K)
        assert explanation.rank == order.index(item) + 1
        change = explanation.smallest
        if change is not None:
            kept = [other for other in history if other not in change.removed]
            assert rank_of(model, [*kept, *change.added], item) == change.rank <= K
    assert len(model.explain_missing(history, order[K], K).smallest) == 1


def test_rules_are_told_apart(events):
    tagged = events.with_tags({item: "War" if item % 2 else "Drama" for item in events.items.tolist()})
    model = gr.EASE(l2=5).fit(tagged)
    history = [2, 4, 6]

    def status(item, **rules):
        return model.explain_missing(history, item, K, **rules).status

    best = model.recommend_for([history], 1).items[0][0]
    assert status("nobody's") == "unknown"
    assert status(2) == "seen"
    assert status(2, exclude_seen=False) in ("recommended", "ranked out")
    assert status(best) == "recommended"
    assert status(best, deny=[best]) == status(best, deny_tags=["War", "Drama"]) == "denied"
    assert status(best, allow=[1 if best == 3 else 3]) == status(best, allow_tags=[]) == "not allowed"
    assert status(best, allow=[], deny=[best]) == "denied"
    denied = model.explain_missing(history, best, K, deny=[best])
    assert (denied.rank, denied.lacking) == (1, 0)
    unknown = model.explain_missing([*history, "?"], "nobody's", K)
    assert (unknown.rank, unknown.score, unknown.unknown) == (None, None, ("?",))


def test_a_rule_shortens_the_way(ease):
    history = list(ease.history(ease.users[1]))[:5]
    order = ease.recommend_for([history], 30).items[0]
    item = order[K + 1]
    explanation = ease.explain_missing(history, item, K, deny=order[:2])
    assert (explanation.status, explanation.rank) == ("recommended", K)


def test_without_any_known_item_the_list_is_the_most_popular(ease):
    order = ease.recommend_for([[]], 30).items[0]
    explanation = ease.explain_missing([], order[K + 2], K, pool=None)
    assert (explanation.fallback, explanation.rank, explanation.removal) == (True, K + 3, None)
    assert explanation.lacking == pytest.approx(
        ease.catalog.popularity[ease.items.index(order[K - 1])] - ease.catalog.popularity[ease.items.index(order[K + 2])]
    )
    assert rank_of(ease, explanation.addition.added, order[K + 2]) == explanation.addition.rank <= K


def test_weights_of_the_history_count(events):
    model = gr.EASE(l2=5).fit(events)
    history = {item: weight for item, weight in zip(model.items[:4], (1.0, 4.0, 0.5, 2.0), strict=True)}
    order = model.recommend_for([history], 30).items[0]
    for item in order[K:]:
        explanation = model.explain_missing(history, item, K, pool=None)
        if explanation.removal:
            kept = {other: weight for other, weight in history.items() if other not in explanation.removal.removed}
            assert rank_of(model, kept, item) == explanation.removal.rank <= K
        if explanation.addition:
            assert rank_of(model, history | dict.fromkeys(explanation.addition.added, 1.0), item) == explanation.addition.rank


def test_it_is_told_in_words(events):
    model = gr.EASE(l2=5).fit(events.with_titles({item: f"Title {item}" for item in events.items.tolist()}))
    history = list(model.history(model.users[0]))[:4]
    order = model.recommend_for([history], 30).items[0]
    explanation = model.explain_missing(history, order[K], K)
    assert str(explanation).startswith(f"Title {order[K]}: ranked out, rank {K + 1} by a score of ")
    assert "short of the list of 3" in str(explanation)
    assert "with Title" in str(explanation.addition)
    assert explanation.smallest in (explanation.addition, explanation.removal)
    assert "recommended" in str(model.explain_missing(history, order[0], K))
    assert str(model.explain_missing(history, "?", K)) == "?: unknown"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"k": 0}, "k of at least 1"), ({"pool": 0}, "pool of at least 1"), ({"deny": "abc"}, "items to deny")],
)
def test_bad_arguments_are_refused(ease, arguments, words, refused):
    with refused(gr.errors.InvalidInput, words):
        ease.explain_missing([1, 2], 3, **arguments)


def test_a_history_that_is_no_list_is_refused(ease, refused):
    with refused(gr.errors.InvalidInput, "item ids"):
        ease.explain_missing("abc", 3)
    with refused(gr.errors.InvalidInput, "weights"):
        ease.explain_missing({1: float("nan")}, 3)


def test_a_list_as_long_as_the_catalog_misses_nothing(ease):
    assert ease.explain_missing([ease.items[0]], ease.items[-1], 10**6).status == "recommended"
    assert np.isfinite(ease.explain_missing([ease.items[0]], ease.items[-1], 10**6).score)
