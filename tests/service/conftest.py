"""Five models of MovieLens behind one server, and interactions to follow through files."""

import numpy as np
import polars as pl
import pytest

import gramian as gr
from gramian.service.app import create_app
from service.helpers import run_app


@pytest.fixture(scope="session")
def events():
    movies = gr.datasets.load("movielens", min_value=4).k_core(25)
    return movies.with_titles(dict(zip(movies.items.tolist(), movies.titles, strict=True)) | {1: "Amélie <b>of</b> Montmartre"})


@pytest.fixture(scope="session")
def texts():
    """Interactions with ids that are easy to find in a file."""
    rng = np.random.default_rng(0)
    rows = [(f"person-{u:03}", f"item-{i:02}") for u in range(90) for i in rng.choice(30, 6, replace=False)]
    return gr.Interactions.of(pl.DataFrame({"user": [u for u, _ in rows], "item": [i for _, i in rows]}))


@pytest.fixture(scope="session")
def models(events):
    recipes = {"edlae": gr.EDLAE(dropout=0.3, l2=50), "ease": gr.EASE(l2=50), "pca": gr.RegularizedPCA(rank=8, l2=10)}
    recipes |= {"ials": gr.IALS(rank=8, n_epochs=2), "popularity": gr.Popularity()}
    return {name: recipe.fit(events) for name, recipe in recipes.items()}


@pytest.fixture(scope="session")
def folders(models, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(root / name)
    return [root / name for name in models]


@pytest.fixture(scope="session")
def client(folders):
    with run_app(create_app(folders)) as http_client:
        yield http_client
