"""Errors in the words of the command line: flags in place of Python arguments."""

import pytest

from gramian.cli.advice import format_error
from gramian.errors import InvalidInput

FLAGS = {"time": "--time", "min_value": "--min-value", "k": "-k", "user": "--user", "item": "--item", "dropout": "--dropout"}
FLAGS |= {"skip_nulls": "--skip-nulls", "separator": "--separator"}


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ("Pass k=10", "Pass -k 10"),
        ('Read them with time="timestamp"', "Read them with --time timestamp"),
        ('Pass min_value=("rating", 4)', "Pass --min-value rating=4"),
        ("Name yours: user=..., item=...", "Name yours: --user ..., --item ..."),
        ("Pass skip_nulls=True", "Pass --skip-nulls"),
        ('Pass separator=";"', "Pass --separator ';'"),
        ("Write it as in edlae(dropout=0.3, l2=200)", "Write it as in edlae(dropout=0.3, l2=200)"),
        ("Pass allow_leakage=True", "Pass allow_leakage=True"),
    ],
)
def test_advice_is_in_the_words_of_the_place(advice, expected):
    error = InvalidInput("a k", "k=3", advice)
    assert str(error) == f"expected a k; got k=3. {advice}."
    assert format_error(error, FLAGS) == f"expected a k; got k=3. {expected}."


def test_the_expectation_is_in_the_words_of_the_place_too():
    error = InvalidInput("k=1 or more", "0", "Raise it")
    assert format_error(error, FLAGS) == "expected -k 1 or more; got 0. Raise it."
