"""A file of ratings and a fitted model, which the tests of the commands share."""

import polars as pl
import pytest

import gramian as gr
from command_line import ok


@pytest.fixture(scope="session")
def csv(tmp_path_factory):
    """Ratings with titles, as a file."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    events = gr.datasets.load("movielens", weights=True).k_core(40)
    table = events.frame().rename({"value": "rating"})
    titles = dict(zip(events.items.tolist(), events.titles, strict=True))
    table.with_columns(title=pl.col("item_id").replace_strict(titles)).write_csv(path)
    return path


@pytest.fixture(scope="session")
def model(csv, tmp_path_factory):
    """The folder of a fitted EDLAE with titles."""
    folder = tmp_path_factory.mktemp("models") / "edlae"
    params = ("--dropout", 0.4, "--l2", 50)
    ok("fit", csv, "--min-value", "rating=4", "--title", "title", "--model", "edlae", *params, "--out", folder)
    return folder
