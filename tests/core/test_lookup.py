"""Items by id or title: what is ambiguous is refused, what is unknown is reported, and close matches are shown."""

import polars as pl
import pytest

import gramian as gr
from gramian.data import suggestions
from gramian.errors import InvalidInput, UnknownId


def make_model(items, titles=None):
    table = pl.DataFrame({"user": [n % 3 for n in range(2 * len(items))], "item": items * 2})
    events = gr.Interactions.of(table)
    return gr.EASE().fit(events if titles is None else events.with_titles(dict(zip(items, titles, strict=True))))


NUMBERED = make_model([7, 8, 9, 10], ["Heat (1995)", "Chasing Amy (1997)", "Chasing Amy (1997)", "9"])
NAMED = make_model(["heat", "heathers", "alien"])


@pytest.mark.parametrize(
    ("name", "expected"), [(7, 7), ("7", 7), ("Heat (1995)", 7), ("hEAT (1995)", 7), ("9", 9), (9, 9), ("10", 10)]
)
def test_an_item_is_found_by_id_or_title(name, expected):
    assert NUMBERED.catalog.find_item(name) == expected


def test_a_title_of_two_items_is_refused_with_their_ids(refused):
    for find in (NUMBERED.catalog.find_item, lambda name: NUMBERED.catalog.find_items([7, name])):
        with refused(InvalidInput, "'chasing amy (1997)', the title of 2 items: 8, 9. Pass one of these ids"):
            find("chasing amy (1997)")


def test_titles_that_differ_in_case_alone_are_told_apart_by_it(refused):
    catalog = make_model([1, 2], ["Us", "US"]).catalog
    assert (catalog.find_item("Us"), catalog.find_item("US")) == (1, 2)
    with refused(InvalidInput, "the title of 2 items: 1, 2"):
        catalog.find_item("us")


def test_the_bundled_data_has_such_titles(refused):
    catalog = gr.datasets.load("movielens").catalog
    with refused(InvalidInput, "34048, 64997"):
        catalog.find_item("War of the Worlds (2005)")
    assert catalog.find_item("64997") == 64997


@pytest.mark.parametrize(
    ("model", "name", "close"),
    [
        (NUMBERED, "Heat", "Close: Heat (1995) [7]."),
        (NUMBERED, "Chasing", "Close: Chasing Amy (1997) [8, 9]."),
        (NUMBERED, "Haet (1995)", "Close: Heat (1995) [7]."),
        (NUMBERED, "zzzzz", "See model.items"),
        (NUMBERED, 99, "See model.items"),
        (NAMED, "heath", "Close: 'heathers'."),
        (NAMED, "alein", "Close: 'alien'."),
        (NAMED, "", "See model.items"),
    ],
)
def test_an_unknown_name_shows_what_is_close(model, name, close, refused):
    with refused(UnknownId, close):
        model.catalog.find_item(name)


def test_unknown_names_of_a_history_stay_and_are_ignored_by_the_model():
    names = NUMBERED.catalog.find_items(["Heat (1995)", "Heat", 8, 99])
    assert names == [7, "Heat", 8, 99]
    lists = NUMBERED.recommend_for([names])
    assert lists.unknown == [["Heat", 99]]
    assert NUMBERED.explain(names, 9).unknown == ["Heat", 99]


@pytest.mark.parametrize(
    ("item", "advice"), [("Heat (1995)", "Pass the id 7"), ("7", "Pass 7"), ("Chasing Amy (1997)", "Pass the id 8, 9")]
)
def test_a_title_in_place_of_an_id_is_answered_with_the_id(item, advice, refused):
    with refused(UnknownId, advice):
        NUMBERED.similar_items(item)


def test_close_user_ids_are_shown(refused):
    events = gr.Interactions.of(pl.DataFrame({"user": ["alice", "bob"], "item": [1, 2]}))
    model = gr.Popularity().fit(events)
    with refused(UnknownId, "Close: 'alice'."):
        model.recommend(["alcie"])
    with refused(UnknownId, "Use recommend_for with their histories"):
        model.recommend(["zzz"])
    with refused(UnknownId, "Pass 1"):
        NUMBERED.recommend(["1"])


def test_only_so_many_spellings_are_compared(monkeypatch):
    monkeypatch.setattr(suggestions, "MAX_COMPARED_TEXTS", 1)
    assert suggestions.find_close_texts("alein", ["heat", "alien"]) == []
    assert suggestions.find_close_texts("ALI", ["heat", "alien"]) == ["alien"]


@pytest.mark.parametrize("error", [InvalidInput, UnknownId, gr.errors.MissingFile, gr.errors.LeakedEvaluation])
def test_the_fragments_of_a_message_are_kept_for_the_command_line(error):
    raised = error("a cat", "a dog", "Pass k=10")
    assert (raised.expected, raised.got, raised.do) == ("a cat", "a dog", "Pass k=10")
    assert str(raised) == "expected a cat; got a dog. Pass k=10."
