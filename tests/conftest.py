"""Fixtures that several test files use, and one thread for each worker.

pytest-xdist runs a worker on each core (`make test`). If each ran parallel kernels on all cores, the threads would wait for
each other at every barrier: a fit of a toy matrix took six times the CPU time. So kernels and BLAS run on one thread here. A
test of threads asks for two, by `limit_threads(2)`, `n_threads=2` or the fixture `two_threads`.
"""

import os
import re
from contextlib import contextmanager
from pathlib import Path

# Set before Numba and OpenMP are loaded, and inherited by processes that tests start.
os.environ |= {"NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and the console of the command line would keep that width

import numba
import polars as pl
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

import gramian as gr

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LETTER = re.compile(r"expected .+; got .*\. [A-Z].+\.")  # one line: expected, got, do

settings.register_profile("gramian", deadline=None)
settings.load_profile("gramian")

numba.set_num_threads(1)
threadpool_limits(1)  # plugins of pytest may have loaded BLAS before


@pytest.fixture
def two_threads():
    """Numba and BLAS on two threads, for tests of threads."""
    numba.set_num_threads(2)
    with threadpool_limits(2):
        yield
    numba.set_num_threads(1)


@pytest.fixture
def shared_data(monkeypatch):
    """The folder of public data sets beside the repository, named by GRAMIAN_DATA for the time of the test."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the public data sets are not here: no folder {SHARED_DATA}")
    monkeypatch.setenv("GRAMIAN_DATA", str(SHARED_DATA))
    return SHARED_DATA


@pytest.fixture(scope="session")
def refused():
    """A context that demands exactly this error, with a message in the three parts the library promises."""

    @contextmanager
    def demand(error=gr.errors.InvalidInput, mentioning=""):
        with pytest.raises(error) as caught:
            yield
        message = str(caught.value)
        assert type(caught.value) is error
        assert LETTER.fullmatch(message), message
        assert mentioning in message

    return demand


@pytest.fixture(scope="session")
def events():
    """Six users, five movies, with times and titles. Frank saw a single one."""
    seen = {
        "ann": ["Alien", "Brazil", "Casino"],
        "bob": ["Alien", "Brazil", "Dune", "Eraserhead"],
        "cyd": ["Brazil", "Casino", "Dune"],
        "dan": ["Alien", "Casino", "Dune"],
        "eve": ["Alien", "Brazil", "Casino", "Dune", "Eraserhead"],
        "frank": ["Dune"],
    }
    rows = [(user, title) for user, titles in seen.items() for title in titles]
    table = pl.DataFrame(
        {
            "user": [user for user, _ in rows],
            "item": [title[0] for _, title in rows],
            "title": [title for _, title in rows],
            "time": [(7 * n) % len(rows) for n in range(len(rows))],
        }
    )
    return gr.Interactions.of(table, time="time", title="title")
