"""Times: every unambiguous format gives back the moment that was written; ambiguous ones are refused with both readings."""

from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramian import Interactions
from gramian.data.dates import parse_times
from gramian.errors import InvalidInput

moments = st.datetimes(datetime(1980, 1, 1), datetime(2099, 12, 31)).map(lambda t: t.replace(microsecond=0))
zones = st.integers(-14 * 4, 14 * 4).map(lambda quarters: timezone(timedelta(minutes=15 * quarters)))


def parse(*texts, **options):
    return parse_times(pl.Series("when", texts), **options).to_list()


FORMATS = {
    "ISO": "%Y-%m-%dT%H:%M:%S",
    "ISO with a space": "%Y-%m-%d %H:%M:%S",
    "ISO with Z": "%Y-%m-%dT%H:%M:%SZ",
    "UTC": "%Y-%m-%d %H:%M:%S UTC",
    "slashes, year first": "%Y/%m/%d %H:%M:%S",
    "dots, year first": "%Y.%m.%d %H:%M:%S",
    "fraction": "%Y-%m-%d %H:%M:%S.%f",
    "twelve hours": "%Y-%m-%d %I:%M:%S %p",
    "month by name": "%d %b %Y %H:%M:%S",
    "month by full name": "%d %B %Y %H:%M:%S",
    "month by name, hyphens": "%d-%b-%Y %H:%M:%S",
    "American, by name": "%B %d, %Y %I:%M:%S %p",
    "RFC 2822": "%a, %d %b %Y %H:%M:%S GMT",
}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS.keys())
@settings(max_examples=30)
@given(st.lists(moments, min_size=1, max_size=4))
def test_every_unambiguous_format_round_trips(form, times):
    assert parse(*(f"{time:{form}}" for time in times)) == times


@settings(max_examples=50)
@given(st.lists(st.tuples(moments, zones), min_size=1, max_size=4), st.lists(moments, max_size=3))
def test_zones_are_converted_and_times_without_a_zone_are_utc(zoned, naive):
    texts = [time.replace(tzinfo=zone).isoformat() for time, zone in zoned] + [time.isoformat(" ") for time in naive]
    expected = [time.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None) for time, zone in zoned]
    assert parse(*texts) == expected + naive


@pytest.mark.parametrize("order", ["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%m-%d-%Y"])
@pytest.mark.parametrize("clock", ["", " %H:%M", " %I:%M:%S %p"])
@settings(max_examples=30)
@given(st.lists(moments, min_size=1, max_size=6))
def test_numeric_dates_are_read_where_a_day_tells_the_order_and_else_refused(order, clock, times):
    times = [time.replace(second=0) if clock else time.replace(hour=0, minute=0, second=0) for time in times]
    texts = [f"{time:{order}{clock}}" for time in times]
    is_certain = any(time.day > 12 for time in times) or all(time.day == time.month for time in times)
    assert parse(*texts, time_format=f"{order}{clock}") == times
    if is_certain:
        assert parse(*texts) == times
    else:
        with pytest.raises(InvalidInput, match="order of day and month is certain"):
            parse(*texts)


def test_both_readings_and_both_formats_are_shown(refused):
    with refused(mentioning="'08/05/2011' in row 1, which is May 8 or August 5, 2011"):
        parse("08/05/2011", "08/12/2011", "09/11/2011")
    with refused(mentioning="Pass time_format='%d.%m.%Y %I:%M:%S %p' or time_format='%m.%d.%Y %I:%M:%S %p'"):
        parse("01.01.2011 01:02:03 PM", "08.05.2011 01:02:03 PM")


def test_dates_of_two_orders_are_refused_with_one_of_each(refused):
    with refused(mentioning="'13/05/2011' in row 2 and '05/14/2011' in row 3"):
        parse("01/01/2011", "13/05/2011", "05/14/2011")


@given(st.lists(moments, min_size=2, max_size=6))
def test_seconds_milliseconds_and_dates_may_be_mixed(times):
    seconds = [int(time.replace(tzinfo=UTC).timestamp()) for time in times]
    mixed = [second * 1000 if n % 2 else second for n, second in enumerate(seconds)]
    assert parse(*mixed) == times
    assert parse(*map(str, mixed)) == times
    assert parse(*map(str, mixed), times[0].isoformat()) == [*times, times[0]]


@pytest.mark.parametrize("numbers", [[3, 1, 2], [1577934245, 1577934246], [1577934245000, 1577934246000], [0.5, 1.5]])
def test_numbers_of_one_unit_stay_numbers(numbers):
    assert parse(*numbers) == numbers
    assert parse(*map(str, numbers)) == numbers


@pytest.mark.parametrize(
    "text",
    [
        "noon",
        "2011-02-30",
        "2011-13-01",
        "2011-05-08 25:00",
        "2011-05-08 13:00 PM",
        "08/05/11",
        "2011-05-08 10:00 CEST",
        "2011",
    ],
)
def test_the_first_value_that_is_no_time_is_named_with_its_row(text, refused):
    with refused(mentioning=f"{text!r} in row 2"):
        parse("2011-05-08", text, "never")


def test_row_numbers_are_those_of_the_source(tmp_path, refused):
    table = pl.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3], "rating": [1, 5, 5], "at": ["?", "2020-01-01", "noon"]})
    for suffix, write in ((".csv", table.write_csv), (".parquet", table.write_parquet), (".jsonl", table.write_ndjson)):
        write(tmp_path / f"events{suffix}")
    from gramian import read  # noqa: PLC0415

    for suffix in (".csv", ".parquet", ".jsonl"):
        with refused(mentioning="'noon' in row 3"):
            read(tmp_path / f"events{suffix}", min_value=("rating", 4), time="at")


def test_a_format_settles_integers_too():
    assert parse(20110508, time_format="%Y%m%d") == [datetime(2011, 5, 8)]
    assert parse("08.05.11", time_format="%d.%m.%y") == [datetime(2011, 5, 8)]
    assert parse("08/05/2011 10:00 +0200", time_format="%d/%m/%Y %H:%M %z") == [datetime(2011, 5, 8, 8)]


def test_a_format_that_does_not_fit_is_refused_with_the_row(refused):
    with refused(mentioning="'2011-05-08' in row 2"):
        parse("08/05/2011", "2011-05-08", time_format="%d/%m/%Y")
    with refused(mentioning="%Q"):
        parse("08/05/2011", time_format="%Q")
    with refused(mentioning="time=..."):
        Interactions.of(pl.DataFrame({"user": [1], "item": [1]}), time_format="%d/%m/%Y")
