"""Features of items: what each kind of column becomes, what is refused, and that they stay with their items."""

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

import gramian as gr
from gramian.data.features import WORD
from gramian.data.read import read_features

TABLE = pl.DataFrame(
    {
        "item_id": ["a", "b", "c", "d"],
        "genres": ["Comedy|Drama", "Drama", None, "War"],
        "kinds": [["x"], ["x", "y"], [], ["y"]],
        "year": [1990, 1995, 2000, 1990],
        "title": ["Heat of the night", "The heat", "Alien", "Aliens: the night"],
        "embedding": [[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [0.0, 0.0]],
    }
)
EVENTS = gr.Interactions.of(pl.DataFrame({"user_id": [1, 1, 2, 2, 3, 3], "item_id": ["a", "b", "b", "c", "a", "d"]}))


def dense(features):
    return features.matrix.toarray()


def test_tags_are_indicators_of_length_one():
    features = gr.Features.of(TABLE, tags="genres")
    assert features.names == ["genres: Comedy", "genres: Drama", "genres: War"]
    expected = np.array([[0.5**0.5, 0.5**0.5, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(dense(features), expected, atol=1e-7)
    np.testing.assert_allclose(dense(gr.Features.of(TABLE, tags="kinds"))[1], [0.5**0.5, 0.5**0.5], atol=1e-7)


def test_numbers_are_standardised():
    (values,) = dense(gr.Features.of(TABLE, numbers="year")).T
    years = TABLE["year"].to_numpy()
    np.testing.assert_allclose(values, (years - years.mean()) / years.std(), atol=1e-6)


def test_a_constant_number_is_no_feature():
    np.testing.assert_array_equal(dense(gr.Features.of(TABLE.with_columns(year=pl.lit(7)), numbers="year")), 0)


def test_vectors_have_length_one_whatever_their_scale():
    vectors = np.array(TABLE["embedding"].to_list())
    expected = np.array([[1, 0], [0.6, 0.8], [0, 1], [0, 0]])
    for scale in (1, 1e-200, 1e200):
        scaled = TABLE.with_columns(embedding=pl.Series((vectors * scale).tolist()))
        np.testing.assert_allclose(dense(gr.Features.of(scaled, vectors="embedding")), expected, atol=1e-7)
        for array in (vectors * scale, sp.csr_array(vectors * scale)):
            np.testing.assert_allclose(dense(gr.Features.of(array, items=list("abcd"))), expected, atol=1e-7)


def test_words_are_hashed_and_weighted_by_their_rarity():
    """With enough buckets the cosines are those of words counted one by one."""
    features = gr.Features.of(TABLE, text="title", n_buckets=2**16)
    rows = [WORD.findall(title.lower()) for title in TABLE["title"]]
    words = sorted({word for row in rows for word in row})
    counts = np.array([[row.count(word) for word in words] for row in rows])
    weighted = counts * (np.log(5 / (1 + (counts > 0).sum(axis=0))) + 1)
    weighted = weighted / np.linalg.norm(weighted, axis=1, keepdims=True)
    np.testing.assert_allclose(dense(features) @ dense(features).T, weighted @ weighted.T, atol=1e-6)
    named = [features.names[at] for at in features.matrix[[2]].indices]
    assert named == ["title: alien"]


def test_few_buckets_keep_all_words():
    features = gr.Features.of(TABLE, text="title", n_buckets=2)
    assert features.n_features == 2
    np.testing.assert_allclose(np.linalg.norm(dense(features), axis=1), 1, atol=1e-6)


def test_blocks_lie_side_by_side_and_weights_scale_them():
    features = gr.Features.of(TABLE, tags=["genres", "kinds"], numbers="year")
    parts = [gr.Features.of(TABLE, tags="genres"), gr.Features.of(TABLE, tags="kinds"), gr.Features.of(TABLE, numbers="year")]
    np.testing.assert_array_equal(dense(features), np.hstack([dense(part) for part in parts]))
    scaled = features.scaled((4, 0, 1), np.float64)
    np.testing.assert_allclose(scaled, np.hstack([2 * dense(parts[0]), 0 * dense(parts[1]), dense(parts[2])]))
    assert "genres (3 tags)" in repr(features)


def test_later_items_are_encoded_in_the_same_way():
    columns = {"tags": "genres", "numbers": "year", "text": "title", "vectors": "embedding"}
    features = gr.Features.of(TABLE, **columns)
    again = gr.Features.of(TABLE.tail(2), like=features)
    np.testing.assert_array_equal(dense(again), dense(features)[2:])
    assert again.is_encoded_like(features)
    unknown = TABLE.head(1).with_columns(item_id=pl.lit("e"), genres=pl.lit("Comedy|Western"))
    tags = dense(gr.Features.of(unknown, like=features))[0, :3]
    np.testing.assert_allclose(tags, [1, 0, 0])  # a tag that the model has never seen says nothing


def test_a_catalog_has_features_in_its_tags_and_titles():
    events = EVENTS.with_tags(dict(TABLE.select("item_id", "genres").iter_rows())).with_titles({"a": "Heat"})
    features = gr.Features.of_catalog(events.catalog, titles=True)
    assert [block.kind for block in features.blocks] == ["tags", "text"]
    assert features.items == events.items
    np.testing.assert_allclose(dense(features)[:, :3], dense(gr.Features.of(TABLE, tags="genres")), atol=1e-7)


def test_features_stay_with_their_items():
    events = EVENTS.with_features(gr.Features.of(TABLE, numbers="year"))
    for part in (
        events.keep(np.arange(6) < 4).compact(),
        events.take(np.array([0])),
        events.reindex(events.users, events.items),
    ):
        years = dict(zip(part.items.tolist(), dense(part.catalog.features)[:, 0], strict=True))
        assert years == {item: dense(events.catalog.features)["abcd".index(item), 0] for item in part.items.tolist()}
    assert "features" in repr(events.catalog)


def test_joined_interactions_keep_features_that_both_have():
    features = gr.Features.of(TABLE, numbers="year")
    known = EVENTS.keep(EVENTS.matrix.indices < 3).compact().with_features(features.take(["a", "b", "c"]))
    later = gr.Interactions.of(pl.DataFrame({"user_id": [8, 8], "item_id": ["a", "d"]}))
    both = known.join(later.with_features(features.take(["a", "d"])))
    np.testing.assert_array_equal(dense(both.catalog.features), dense(features))
    assert known.join(later).catalog.features is None  # d has none
    other = later.with_features(gr.Features.of(TABLE, tags="genres").take(["a", "d"]))
    assert known.join(other).catalog.features is None


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_file_gives_the_features_of_its_table(suffix, tmp_path):
    table = TABLE.select("item_id", "genres", "year", "title")
    path = tmp_path / f"items.{suffix}"
    {"csv": table.write_csv, "parquet": table.write_parquet, "jsonl": table.write_ndjson}[suffix](path)
    read = read_features(path, tags=["genres"], numbers=["year"], text=["title"])
    expected = gr.Features.of(table, tags="genres", numbers="year", text="title")
    assert read.fingerprint == expected.fingerprint


def test_features_are_saved_with_the_model(tmp_path):
    events = EVENTS.with_features(gr.Features.of(TABLE, tags="genres", numbers="year", text="title", vectors="embedding"))
    gr.CEASE(l2=1).fit(events).save(tmp_path / "model")
    gr.Gram.of(events).save(tmp_path / "gram")
    for catalog in (gr.load(tmp_path / "model").catalog, gr.Gram.load(tmp_path / "gram").catalog):
        assert catalog.features.is_encoded_like(events.catalog.features)
        assert catalog.features.fingerprint == events.catalog.features.fingerprint
    new = TABLE.head(1).with_columns(item_id=pl.lit("e"))
    assert "e" in gr.load(tmp_path / "model").add_items(new).items


BAD_TABLES = {
    "nothing named": (TABLE, {}, "none named"),
    "one column in two roles": (TABLE, {"tags": "title", "text": "title"}, "twice"),
    "no such column": (TABLE, {"tags": "mood"}, "mood"),
    "no ids": (TABLE.drop("item_id"), {"tags": "genres"}, "item_id"),
    "a null id": (TABLE.with_columns(item_id=pl.Series(["a", None, "c", "d"])), {"tags": "genres"}, "nulls"),
    "a repeated item": (TABLE.with_columns(item_id=pl.lit("a")), {"tags": "genres"}, "repeated"),
    "a missing number": (TABLE.with_columns(year=pl.Series([1, None, 3, 4])), {"numbers": "year"}, "1 nulls"),
    "NaN": (TABLE.with_columns(year=pl.Series([1.0, float("nan"), 3.0, 4.0])), {"numbers": "year"}, "finite"),
    "text as a number": (TABLE, {"numbers": "title"}, "Heat"),
    "a missing vector": (
        TABLE.with_columns(embedding=pl.Series([[1.0], None, [2.0], [3.0]])),
        {"vectors": "embedding"},
        "without",
    ),
    "vectors of two lengths": (
        TABLE.with_columns(embedding=pl.Series([[1.0], [1.0, 2.0], [2.0], [3.0]])),
        {"vectors": "embedding"},
        "[1, 2]",
    ),
    "NaN in a vector": (
        TABLE.with_columns(embedding=pl.Series([[1.0], [float("nan")], [2.0], [3.0]])),
        {"vectors": "embedding"},
        "NaN",
    ),
    "text as a vector": (TABLE, {"vectors": "title"}, "without"),
    "no buckets": (TABLE, {"text": "title", "n_buckets": 0}, "n_buckets"),
    "an array without ids": (np.ones((4, 2)), {}, "items="),
    "an array of another length": (np.ones((3, 2)), {"items": list("abcd")}, "(3, 2)"),
    "NaN in an array": (np.array([[1, np.nan]]), {"items": ["a"]}, "1 that are NaN"),
    "ids with a table": (TABLE, {"items": list("abcd"), "tags": "genres"}, "table"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_features_are_refused(case, refused):
    data, options, mentioned = BAD_TABLES[case]
    with refused(gr.errors.InvalidInput, mentioned):
        gr.Features.of(data, **options)


def test_features_of_other_items_are_refused(refused):
    features = gr.Features.of(TABLE, tags="genres")
    few = EVENTS.keep(EVENTS.matrix.indices < 2).compact()
    with refused(gr.errors.UnknownId, "add_items"):
        few.with_features(features)
    with refused(gr.errors.UnknownId, "'d'"):
        EVENTS.with_features(features.take(["a", "b", "c"]))
    with refused(gr.errors.UnknownId, "'z'"):
        features.take(["a", "z"])
    with refused(gr.errors.InvalidInput, "Features.of"):
        EVENTS.with_features(TABLE)
    with refused(gr.errors.InvalidInput, "tags"):
        gr.Features.of_catalog(EVENTS.catalog)


def test_later_items_need_the_same_columns(refused):
    features = gr.Features.of(np.eye(4), items=list("abcd"))
    with refused(gr.errors.InvalidInput, "3 features"):
        gr.Features.of(np.ones((1, 3)), items=["e"], like=features)
    with refused(gr.errors.InvalidInput, "genres"):
        gr.Features.of(TABLE.drop("genres"), like=gr.Features.of(TABLE, tags="genres"))
