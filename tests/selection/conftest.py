"""Small events, and one selection that the tests share."""

import pytest

import gramian as gr
from gramian.selection import search
from gramian.selection.families import FAMILIES


@pytest.fixture(scope="session")
def events():
    """Ratings of at least 4, of active users and popular items."""
    return gr.datasets.load("movielens", min_value=4).k_core(30)


@pytest.fixture(scope="session")
def selection(events):
    """A short selection among four families."""
    names = ("popularity", "item neighbours", "shrunk singular values", "autoencoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FAMILIES", tuple(family for family in FAMILIES if family.name in names))
        return gr.auto(events, budget=25)
