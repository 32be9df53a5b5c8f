"""What the tests of the Spark wing share: when they run, and how interactions are compared."""

import os
import shutil

import numpy as np
import pytest

SPARK_MARKS = [
    pytest.mark.skipif(shutil.which("java") is None and "CI" not in os.environ, reason="no Java on this machine"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets that PySpark leaves to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def assert_same_interactions(actual, expected):
    assert actual.users == expected.users
    assert actual.items == expected.items
    assert (actual.matrix != expected.matrix).nnz == 0
    assert (actual.times is None) == (expected.times is None)
    if expected.times is not None:
        np.testing.assert_array_equal(actual.times, expected.times)
    np.testing.assert_array_equal(actual.popularity, expected.popularity)
