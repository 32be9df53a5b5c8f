"""Batch recommendation on a cluster gives the lists of one machine."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from spark_support import SPARK_MARKS

pytestmark = SPARK_MARKS


@pytest.mark.parametrize("recipe", [gr.EASE(l2=20), gr.IALS(rank=5, n_epochs=2), gr.Popularity()], ids=str)
def test_lists_for_all_are_those_of_one_machine(recipe, spark_events, local_events, tmp_path):
    model = recipe.fit(local_events)
    gr.spark.recommend(model, spark_events, 7).write.parquet(str(tmp_path / "lists"))
    model.recommend_to(tmp_path / "expected.parquet", 7)
    places = (tmp_path / "lists" / "*.parquet", tmp_path / "expected.parquet")
    actual, expected = (pl.read_parquet(place).sort("user", "rank") for place in places)
    assert actual.columns == expected.columns
    assert actual["user"].equals(expected["user"])
    assert actual["item"].equals(expected["item"])
    np.testing.assert_allclose(actual["score"], expected["score"], rtol=1e-5)


def test_lists_for_users_of_other_items_and_with_filters(spark, spark_events, local_events, table):
    some = table.filter(pl.col("item") % 3 > 0)
    model = gr.EASE(l2=20).fit(gr.Interactions.of(some, user="user", item="item").with_titles({}))
    allow, deny = model.items[:20], model.items[:2]
    lists = pl.DataFrame(gr.spark.recommend(model, spark_events, 5, allow=allow, deny=deny).toArrow())
    assert set(lists["item"]) <= set(allow) - set(deny)
    assert lists["title"].to_list() == [str(item) for item in lists["item"]]
    user = local_events.users.tolist()[7]
    history = [local_events.items.tolist()[c] for c in local_events.matrix[[7]].indices]
    expected = model.recommend_for([history], 5, allow=allow, deny=deny).items[0]
    assert lists.filter(user=user).sort("rank")["item"].to_list() == expected
    seen = pl.DataFrame(gr.spark.recommend(model, spark_events, 50, exclude_seen=False).toArrow()).filter(user=user)["item"]
    assert set(history) & set(model.items) & set(seen)
