"""Dislikes: interactions below 0."""

import numpy as np
import polars as pl
import pytest

import gramian as gr

RATINGS = pl.DataFrame({"user": [1, 1, 1, 2, 2, 3], "item": [1, 2, 3, 1, 2, 2], "rating": [5, 3, 1, 4, 2, 5]})
SIGNED = np.array([[1, -1, 0, 1], [0, 1, -1, 1], [1, 0, 1, -1], [1, 1, 0, 0]])


def test_low_ratings_are_dislikes(tmp_path):
    events = gr.Interactions.of(RATINGS, min_value=("rating", 4), max_dislike=2)
    assert events.matrix.toarray().tolist() == [[1, 0, -1], [1, -1, 0], [0, 1, 0]]  # the 3 says nothing
    assert events.items.tolist() == [1, 2, 3]
    assert events.has_dislikes
    assert "with dislikes" in repr(events)
    assert events.popularity.tolist() == [2, 1, 0]  # those who liked it
    RATINGS.write_csv(tmp_path / "ratings.csv")
    RATINGS.write_parquet(tmp_path / "ratings.parquet")
    for suffix in ("csv", "parquet"):
        read = gr.read(tmp_path / f"ratings.{suffix}", min_value=("rating", 4), max_dislike=2)
        assert read.fingerprint == events.fingerprint


def test_signed_values_and_matrices():
    thumbs = RATINGS.with_columns(thumb=pl.col("rating") - 2.5)
    events = gr.Interactions.of(thumbs, value="thumb", signed=True)
    assert events.matrix.data.tolist() == [2.5, 0.5, -1.5, 1.5, -0.5, 2.5]
    matrix = gr.Interactions.of(SIGNED, signed=True)
    assert matrix.matrix.toarray().tolist() == SIGNED.tolist()


def test_likes_and_dislikes_of_one_pair_cancel():
    table = pl.DataFrame({"user": [1, 1, 2], "item": [1, 1, 1], "x": [1.0, -1.0, 1.0]})
    assert gr.Interactions.of(table, value="x", signed=True).n_interactions == 1
    twice = pl.DataFrame({"user": [1, 1, 1], "item": [1, 1, 2], "rating": [5, 4, 1]})
    assert gr.Interactions.of(twice, min_value=("rating", 4), max_dislike=2).matrix.data.tolist() == [1, -1]


def test_an_item_that_is_only_disliked_stays():
    events = gr.Interactions.of(np.array([[1, -1], [1, -1]]), signed=True)
    assert events.compact().n_items == 2
    assert events.k_core(2).n_interactions == 4


def test_a_dislike_is_never_a_target():
    rng = np.random.default_rng(0)
    events = gr.Interactions.of(rng.choice([-1, 0, 1], (80, 30), p=[0.2, 0.5, 0.3]), signed=True)
    for split in (gr.split.strong(events), gr.split.weak(events)):
        assert (split.target.matrix.data > 0).all()
        assert (split.fold_in.matrix.data < 0).any()


BAD = {
    "without min_value": {"max_dislike": 2},
    "above min_value": {"min_value": ("rating", 4), "max_dislike": 4},
    "text": {"min_value": ("rating", 4), "max_dislike": "2"},
    "NaN": {"min_value": ("rating", 4), "max_dislike": float("nan")},
    "signed without values": {"signed": True},
    "signed threshold": {"signed": True, "min_value": ("rating", 4)},
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD.keys())
def test_bad_dislikes_are_refused(options, refused):
    with refused():
        gr.Interactions.of(RATINGS, **options)


def test_negative_values_without_signed_are_refused_with_the_way_out(refused):
    with refused(mentioning="signed=True"):
        gr.Interactions.of(SIGNED)
    with refused(mentioning="not 0"):
        gr.Interactions.of(RATINGS.with_columns(x=pl.Series([0, 1, 1, 1, 1, 1])), value="x", signed=True)
    with refused(mentioning="made from counts"):
        gr.Interactions.of(SIGNED, signed=True).with_weights("log")


def test_models_without_a_use_for_dislikes_refuse_them_with_the_reason(refused):
    events = gr.Interactions.of(SIGNED, signed=True)
    for model in gr.MODELS.values():
        recipe = model()
        if not recipe.takes_dislikes and not isinstance(recipe, gr.Blend):
            with refused(mentioning="dislikes"):
                recipe.fit(events)
