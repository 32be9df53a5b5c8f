"""What is no table or matrix of interactions is refused with the reason."""

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from gramian import Interactions
from gramian.data.ids import Index

# bad input


def table(**columns):
    return pl.DataFrame({"user": ["a", "b"], "item": [1, 2]} | columns, strict=False)


def objects(*values):
    return pl.Series(values, dtype=pl.Object)


VALUES, THRESHOLD, TIME = {"value": "x"}, {"min_value": ("x", 2)}, {"time": "x"}
BAD_TABLES = {
    "null id": (table(user=["a", None]), {}),
    "null item": (table(item=[1, None]), {}),
    "null id, lazy": (table(user=["a", None]).lazy(), {}),
    "null id, pandas": (pd.DataFrame({"user": ["a", None], "item": [1, 2]}), {}),
    "null id, pandas Int64": (pd.DataFrame({"user": pd.array([1, None], dtype="Int64"), "item": [1, 2]}), {}),
    "null id, arrow": (pa.table({"user": ["a", None], "item": [1, 2]}), {}),
    "None among objects": (table(user=objects(("a",), None)), {}),
    "only nulls": (table(user=[None, None]), {}),
    "NaN id": (table(user=[1.0, float("nan")]), {}),
    "NaN id, pandas": (pd.DataFrame({"user": [1.0, float("nan")], "item": [1, 2]}), {}),
    "NaN id, arrow": (pa.table({"user": [1.0, float("nan")], "item": [1, 2]}), {}),
    "mixed ids": (table(user=objects("a", 1)), {}),
    "mixed ids, pandas": (pd.DataFrame({"user": ["a", 1], "item": [1, 2]}), {}),
    "int and float ids, pandas": (pd.DataFrame({"user": pd.Series([1, 2.5], dtype=object), "item": [1, 2]}), {}),
    "True among ints": (pd.DataFrame({"user": pd.Series([True, 2], dtype=object), "item": [1, 2]}), {}),
    "dict ids": (table(user=objects({"a": 1}, {"b": 2})), {}),
    "set ids, pandas": (pd.DataFrame({"user": [{1}, {2}], "item": [1, 2]}), {}),
    "array ids, pandas": (pd.DataFrame({"user": [np.array([1, 2]), np.array([3, 4])], "item": [1, 2]}), {}),
    "no user column": (pl.DataFrame({"who": [1], "item": [1]}), {}),
    "no item column": (pl.DataFrame({"user": [1], "what": [1]}), {}),
    "no columns": (pl.DataFrame(), {}),
    "unknown user name": (table(), {"user": "nobody"}),
    "unknown value name": (table(), {"value": "rating"}),
    "unknown threshold name": (table(), {"min_value": ("rating", 4)}),
    "unknown time name": (table(), {"time": "when"}),
    "unknown title name": (table(), {"title": "name"}),
    "two columns of one name, pandas": (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), {}),
    "two columns of one name, arrow": (pa.table([[1], [2], [3]], names=["user", "user", "item"]), {}),
    "NaN weight": (table(x=[1.0, float("nan")]), VALUES),
    "infinite weight": (table(x=[1.0, float("inf")]), VALUES),
    "null weight": (table(x=[1, None]), VALUES),
    "negative weight": (table(x=[1, -1]), VALUES),
    "zero weight": (table(x=[1, 0]), VALUES),
    "weight beyond float32": (table(x=[1.0, 1e300]), VALUES),
    "weights whose sum is beyond float32": (pl.DataFrame({"user": [1, 1], "item": [1, 1], "x": [3e38, 3e38]}), VALUES),
    "weight that float32 rounds to zero": (table(x=[1.0, 1e-300]), VALUES),
    "text weight": (table(x=["much", "little"]), VALUES),
    "number and word as weights": (pd.DataFrame({"user": [1, 2], "item": [1, 2], "x": [1, "much"]}), VALUES),
    "NaN rating": (table(x=[5.0, float("nan")]), THRESHOLD),
    "infinite rating": (table(x=[5.0, float("-inf")]), THRESHOLD),
    "null rating": (table(x=[5, None]), THRESHOLD),
    "null rating, pandas": (pd.DataFrame({"user": [1, 2], "item": [1, 2], "x": [5, None]}), THRESHOLD),
    "text rating": (table(x=["5", "4"]), THRESHOLD),
    "nothing above the threshold": (table(x=[1, 1]), THRESHOLD),
    "value together with min_value": (table(x=[1, 2]), VALUES | THRESHOLD),
    "threshold without a column": (table(x=[1, 2]), {"min_value": 4}),
    "threshold without a number": (table(x=[1, 2]), {"min_value": ("x", None)}),
    "threshold in words": (table(x=[1, 5]), {"min_value": ("x", "4")}),
    "NaN threshold": (table(x=[1, 5]), {"min_value": ("x", float("nan"))}),
    "null time": (table(x=[1, None]), TIME),
    "NaN time": (table(x=[1.0, float("nan")]), TIME),
    "text time": (table(x=["noon", "night"]), TIME),
    "duration as time": (table(x=[timedelta(1), timedelta(2)]), TIME),
    "number and word as times": (pd.DataFrame({"user": [1, 2], "item": [1, 2], "x": [1, "noon"]}), TIME),
    "no rows": (pl.DataFrame({"user": [], "item": []}), {}),
    "no rows, pandas": (pd.DataFrame({"user": [], "item": []}), {}),
    "no rows, arrow": (pa.table({"user": pa.array([], pa.string()), "item": pa.array([], pa.int64())}), {}),
    "no rows, weights": (pl.DataFrame({"user": [], "item": [], "x": []}), VALUES),
}
BAD_MATRICES = {
    "one dimension": (np.ones(3), {}),
    "three dimensions": (np.ones((2, 2, 2)), {}),
    "one sparse dimension": (sp.coo_array(np.ones(3)), {}),
    "all zeros": (np.zeros((2, 2)), {}),
    "no rows": (np.zeros((0, 3)), {}),
    "no stored entries": (sp.csr_array((2, 2)), {}),
    "NaN": (np.array([[1, float("nan")]]), {}),
    "infinity": (sp.csr_array(np.array([[1, float("inf")]])), {}),
    "NaN under a threshold": (np.array([[5, float("nan")]]), {"min_value": 4}),
    "negative": (np.array([[1, -1]]), {}),
    "beyond float32": (np.array([[1, 1e300]]), {}),
    "text": (np.array([["a", "b"]]), {}),
    "complex": (np.array([[1 + 1j]]), {}),
    "threshold with a column": (np.eye(2), {"min_value": ("rating", 4)}),
    "threshold in words": (np.eye(2), {"min_value": "4"}),
    "threshold above all": (np.eye(2), {"min_value": 4}),
    "column name": (np.eye(2), {"user": "user"}),
}
NO_DATA = {
    "None": None,
    "number": 5,
    "path": "events.csv",
    "list of pairs": [("a", 1)],
    "dict of columns": {"user": ["a"], "item": [1]},
    "polars series": pl.Series([1, 2]),
    "pandas series": pd.Series([1, 2]),
}


@pytest.mark.parametrize(("data", "options"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_a_bad_table_is_refused(data, options, refused):
    with refused():
        Interactions.of(data, **options)


@pytest.mark.parametrize(("data", "options"), BAD_MATRICES.values(), ids=BAD_MATRICES.keys())
def test_a_bad_matrix_is_refused(data, options, refused):
    with refused():
        Interactions.of(data, **options)


@pytest.mark.parametrize("data", NO_DATA.values(), ids=NO_DATA.keys())
def test_what_is_no_table_or_matrix_is_refused(data, refused):
    with refused(mentioning=type(data).__name__):
        Interactions.of(data)


def test_the_complaint_names_the_column_and_the_columns_there_are(refused):
    with refused(mentioning="1 nulls"):
        Interactions.of(table(user=["a", None]))
    with refused(mentioning="'rating'"):
        Interactions.of(table(rating=[1, None]), value="rating")
    with refused(mentioning="columns user, item, stars"):
        Interactions.of(table(stars=[1, 2]), value="rating")


def test_an_unused_column_may_hold_anything():
    Interactions.of(table(x=[None, float("nan")], y=["", None]))


def test_a_core_too_large_or_below_zero_is_refused(events, refused):
    with refused():
        events.k_core(6)
    with refused():
        events.k_core(-1)


def test_an_index_holds_distinct_ids_of_one_type(refused):
    with refused():
        Index(["a", "a"])
    with refused():
        Index(["a", 1])
    with refused():
        Index(["a", None])
    with refused():
        Index(["a"]).positions([["a"]])


def test_an_index_finds_its_ids_and_extends_by_new_ones():
    index = Index(["b", "a"])
    assert index.positions(["a", "x", "b"]).tolist() == [1, -1, 0]
    assert index.union(Index(["c", "a"])).tolist() == ["b", "a", "c"]
    assert index.union(Index(["a"])) is index


def test_masked_entries_of_a_matrix_are_no_interactions():
    matrix = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[True, False], [False, False]])
    assert Interactions.of(matrix).matrix.toarray().tolist() == [[0, 2], [3, 4]]
