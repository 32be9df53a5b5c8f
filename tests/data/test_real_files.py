"""Files as shops, spreadsheets and databases export them, each with the expected reading or the expected refusal."""

import gzip
from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pytest

import gramian as gr

RATED = {"value": "rating"}
TIMED = {"time": "time"}


def days(*times):
    return [datetime.fromisoformat(time) for time in times]


# name: (file name, content, options, expected reading)
# A reading is {(user, item): value}; "times", "titles", "tags" and "notes" are checked where they are named.
READ = {
    "Excel in Europe: BOM, semicolons, decimal commas, CRLF": (
        "export.csv",
        "\ufeffUser;Item;rating\r\n1;Käse;4,5\r\n2;Wein;3\r\n".encode(),
        RATED | {"user": "User", "item": "Item"},
        {"values": {(1, "Käse"): 4.5, (2, "Wein"): 3}, "notes": ("separated by semicolons",)},
    ),
    "Excel's line that names the separator": (
        "export.csv",
        "sep=;\r\nuser;item\r\n1;2\r\n",
        {},
        {"values": {(1, 2): 1}, "notes": ("separated by semicolons",)},
    ),
    "an unusual separator, named by its first line": (
        "export.csv",
        "sep=~\nuser~item\n1~2\n",
        {},
        {"values": {(1, 2): 1}, "notes": ("separated by '~'",)},
    ),
    "fractions that are times and values": (
        "log.csv",
        "user,item,time\n1,2,1.5\n",
        TIMED | {"value": "time"},
        {"values": {(1, 2): 1.5}, "times": [1.5]},
    ),
    "Excel as Unicode text: UTF-16 and tabs": (
        "export.txt",
        "user\titem\r\nJosé\tCafé\r\n".encode("utf-16"),
        {},
        {"values": {("José", "Café"): 1}, "notes": ("encoded in UTF-16", "separated by tabs")},
    ),
    "Latin-1 titles, encoding passed": (
        "films.csv",
        "user,item,title\n1,2,Amélie\n".encode("latin-1"),
        {"title": "title", "encoding": "latin-1"},
        {"values": {(1, 2): 1}, "titles": ["Amélie"]},
    ),
    "Windows quotes, encoding passed": (
        "films.csv",
        "user,item,title\n1,2,“Heroes”\n".encode("cp1252"),
        {"title": "title", "encoding": "cp1252"},
        {"values": {(1, 2): 1}, "titles": ["“Heroes”"]},
    ),
    "tabs in a csv": ("log.csv", "user\titem\n1\t2\n", {}, {"values": {(1, 2): 1}, "notes": ("separated by tabs",)}),
    "commas in a tsv": ("log.tsv", "user,item\n1,2\n", {}, {"values": {(1, 2): 1}, "notes": ("separated by commas",)}),
    "pipes": ("log.csv", "user|item\n1|2\n", {}, {"values": {(1, 2): 1}, "notes": ("separated by pipes",)}),
    "commas in quoted titles beside semicolons": (
        "log.csv",
        'user;item;title\n1;2;"Good, Bad, Ugly"\n3;4;Alien\n',
        {"title": "title"},
        {"values": {(1, 2): 1, (3, 4): 1}, "titles": ["Good, Bad, Ugly", "Alien"]},
    ),
    "an unusual separator, passed": ("log.csv", "user~item\n1~2\n", {"separator": "~"}, {"values": {(1, 2): 1}}),
    "an unknown suffix with a separator": ("u.data", "user\titem\n1\t2\n", {"separator": "\t"}, {"values": {(1, 2): 1}}),
    "MovieLens 100k: no header": (
        "u.data",
        "196\t242\t3\t881250949\n186\t302\t4\t891717742\n",
        {"separator": "\t", "columns": ["user", "item", "rating", "time"]} | RATED | TIMED,
        {"values": {(196, 242): 3, (186, 302): 4}, "times": [891717742, 881250949]},
    ),
    "quoted newlines, quotes and commas": (
        "reviews.csv",
        'user,item,review\n1,2,"Great!\nReally, ""great""."\n3,4,fine\n',
        {},
        {"values": {(1, 2): 1, (3, 4): 1}},
    ),
    "inch marks in titles that are read": (
        "tapes.csv",
        'user,item,title\n1,2,3" reel\n3,4,12" vinyl\n',
        {"title": "title"},
        {"values": {(1, 2): 1, (3, 4): 1}, "titles": ['3" reel', '12" vinyl']},
    ),
    "trailing commas in the data": ("log.csv", "user,item\n1,2,\n3,4,,\n", {}, {"values": {(1, 2): 1, (3, 4): 1}}),
    "trailing commas everywhere": ("log.csv", "user,item,,\n1,2,,\n,,,\n", {}, {"values": {(1, 2): 1}}),
    "concatenated exports repeat the header": (
        "log.csv",
        "user,item\n1,2\nuser,item\n3,4\n",
        {},
        {"values": {(1, 2): 1, (3, 4): 1}, "headers": 1},
    ),
    "spaces in and around header names": (
        "log.csv",
        "User ID, Item ID, My rating\n1,2,5\n",
        {"value": "My rating"},
        {"values": {(1, 2): 5}},
    ),
    "blank lines at both ends": ("log.csv", "\n\nuser,item\n1,2\n\n\n", {}, {"values": {(1, 2): 1}}),
    "nulls skipped": (
        "log.csv",
        "user,item,rating\n1,2,5\n,2,5\n1,,5\n3,4,\n",
        RATED | {"skip_nulls": True},
        {"values": {(1, 2): 5}, "nulls": 3},
    ),
    "ids of several forms stay text": (
        "log.csv",
        "user,item\n1,A-1\n02,7\nx,7\n",
        {},
        {"values": {("1", "A-1"): 1, ("02", "7"): 1, ("x", "7"): 1}},
    ),
    "times of several zones": (
        "log.csv",
        "user,item,time\n1,1,2020-01-01T12:00:00Z\n1,2,2020-01-01T12:00:00+02:00\n1,3,2020-01-01 12:00:00\n",
        TIMED,
        {
            "values": {(1, 1): 1, (1, 2): 1, (1, 3): 1},
            "times": days("2020-01-01T12:00", "2020-01-01T10:00", "2020-01-01T12:00"),
        },
    ),
    "milliseconds since 1970": (
        "log.csv",
        "user,item,time\n1,1,1577836800000\n",
        TIMED,
        {"values": {(1, 1): 1}, "times": [1577836800000]},
    ),
    "US dates with a day above 12": (
        "log.csv",
        "user,item,time\n1,1,12/31/2019\n1,2,01/02/2020\n",
        TIMED,
        {"values": {(1, 1): 1, (1, 2): 1}, "times": days("2019-12-31", "2020-01-02")},
    ),
    "US dates, format passed": (
        "log.csv",
        "user,item,time\n1,1,01/02/2020\n",
        TIMED | {"time_format": "%m/%d/%Y"},
        {"values": {(1, 1): 1}, "times": days("2020-01-02")},
    ),
    "tags with a separator of their own": (
        "log.csv",
        "user,item,genres\n1,1,Comedy/Drama\n",
        {"tags": "genres", "tag_separator": "/"},
        {"values": {(1, 1): 1}, "tags": [("Comedy", "Drama")]},
    ),
    "gzip": ("log.csv.gz", gzip.compress(b"user,item\n1,2\n"), {}, {"values": {(1, 2): 1}}),
    "JSON lines with missing keys and nested values": (
        "log.jsonl",
        '{"user": 1, "item": 2, "rating": 3, "extra": {"a": [1, 2]}}\n\n{"item": 5, "user": 4, "rating": 2.5}\n',
        RATED,
        {"values": {(1, 2): 3, (4, 5): 2.5}},
    ),
    "JSON lines with a byte order mark": ("log.jsonl", '\ufeff{"user": 1, "item": 2}\n', {}, {"values": {(1, 2): 1}}),
    "JSON ids beyond 64 bits": (
        "log.jsonl",
        '{"user": 18446744073709551617, "item": 2}\n{"user": 18446744073709551616, "item": 2}\n',
        {},
        {"values": {(2**64 + 1, 2): 1, (2**64, 2): 1}},
    ),
    "parquet: categories, decimals, dates, lists": (
        "log.parquet",
        pl.DataFrame(
            {
                "user": pl.Series(["b", "a"], dtype=pl.Categorical),
                "item": [7, 8],
                "rating": [Decimal("4.5"), Decimal("3.0")],
                "time": [date(2020, 1, 1), date(2021, 1, 1)],
                "genres": [["Comedy", "Drama"], None],
            }
        ),
        RATED | TIMED | {"tags": "genres"},
        {
            "values": {("a", 8): 3.0, ("b", 7): 4.5},
            "times": days("2021-01-01", "2020-01-01"),
            "tags": [("Comedy", "Drama"), ()],
        },
    ),
    "parquet: integer tags": (
        "log.parquet",
        pl.DataFrame({"user": [1, 2], "item": [1, 2], "genre": [10, None]}),
        {"tags": "genre"},
        {"values": {(1, 1): 1, (2, 2): 1}, "tags": [("10",), ()]},
    ),
    "parquet: a threshold on decimals": (
        "log.parquet",
        pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [Decimal("4.5"), Decimal("3.0")]}),
        {"min_value": ("rating", 4)},
        {"values": {(1, 1): 1}, "below": 1},
    ),
}

# name: (file name, content, options, a part of the message)
REFUSED = {
    "empty": ("log.csv", "", {}, "an empty file"),
    "blank lines only": ("log.csv", "\n\n", {}, "an empty file"),
    "header only": ("log.csv", "user,item\n", {}, "at least one row"),
    "one column": ("log.csv", "user\n1\n", {}, "at least two columns"),
    "two separators fit": ("log.csv", "user,id;item\n1,2;3\n", {}, "commas or semicolons may be it. Pass separator="),
    "ragged lines": ("log.csv", "user,item\n1,2\n3,4,5\n", {}, "3 on line 3"),
    "no header": ("log.csv", "1,2,5\n3,4,5\n", {}, "columns=['user', 'item', ...]"),
    "columns that are not all": ("log.csv", "1,2,5\n", {"columns": ["user", "item"]}, "3 on line 1"),
    "Latin-1": (
        "log.csv",
        "user,item\nJosé,1\n".encode("latin-1"),
        {},
        "byte 0xe9 on line 2, 'José,1' in Latin-1. Pass encoding=",
    ),
    "Latin-1 in a column that is not read": (
        "log.csv",
        "user,item,title\n1,2,Léon\n".encode("latin-1"),
        {},
        "byte 0xe9 on line 2",
    ),
    "UTF-16 without a mark": ("log.csv", "user,item\n1,2\n".encode("utf-16-le"), {}, "encoding='utf-16-le'"),
    "a wrong encoding": ("log.csv", "user,item\né,2\n".encode("latin-1"), {"encoding": "utf-16"}, "a byte order mark"),
    "an unknown encoding": ("log.csv", "user,item\n1,2\n", {"encoding": "klingon"}, "'klingon'"),
    "a codec that is no encoding": ("log.csv", "user,item\n1,2\n", {"encoding": "hex"}, "'hex'"),
    "two characters as separator": ("log.csv", "user::item\n1::2\n", {"separator": "::"}, "one ASCII character"),
    "old Mac line ends": ("log.csv", "user,item\r1,2\r3,4\r", {}, "a header line that ends in a line feed"),
    "old Mac line end in the header only": ("log.csv", "user,item\r1,2\n3,4\n", {}, "a header line that ends in a line feed"),
    "thousands or decimals": ("log.csv", "user;item;rating\n1;2;1,500\n", RATED, "1500 or 1.500"),
    "nulls": ("log.csv", "user,item\n1,2\n,2\n,3\n", {}, "2 nulls. Pass skip_nulls=True"),
    "a word among ratings": ("log.csv", "user,item,rating\n1,2,5\n1,3,good\n", RATED, "'good' in row 2"),
    "ambiguous dates": ("log.csv", "user,item,time\n1,2,08/05/2011\n", TIMED, "May 8 or August 5"),
    "a date that is none": ("log.csv", "user,item,time\n1,2,2020-01-01\n1,3,soon\n", TIMED, "'soon' in row 2"),
    "JSON: true and text": (
        "log.jsonl",
        '{"user": true, "item": 1}\n{"user": "true", "item": 1}\n',
        {},
        "text and true or false",
    ),
    "JSON: 1 and text": ("log.jsonl", '{"user": 1, "item": 1}\n{"user": "1", "item": 1}\n', {}, "text and numbers"),
    "JSON: integers that floats merge": (
        "log.jsonl",
        '{"user": 9007199254740993, "item": 1}\n{"user": 9007199254740992.0, "item": 1}\n',
        {},
        "ids that a float can tell apart",
    ),
    "a separator for parquet": ("log.parquet", pl.DataFrame({"user": [1], "item": [1]}), {"separator": ","}, "no separator"),
    "two objects on a JSON line": ("log.jsonl", '{"user": 1, "item": 2} {"user": 3, "item": 4}\n', {}, "log.jsonl"),
    "a cut gzip": ("log.csv.gz", gzip.compress(b"user,item\n" + b"1,2\n" * 999)[:-9], {}, "log.csv.gz"),
    "no gzip": ("log.csv.gz", b"user,item\n1,2\n", {}, "log.csv.gz"),
}


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        if isinstance(content, pl.DataFrame):
            content.write_parquet(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(("name", "content", "options", "expected"), READ.values(), ids=READ.keys())
def test_a_real_file_is_read_as_it_was_meant(name, content, options, expected, put):
    events = gr.read(put(name, content), **options)
    pairs = zip(events.users[events.rows], events.items[events.matrix.indices], strict=True)
    assert dict(zip(pairs, events.matrix.data.tolist(), strict=True)) == expected["values"]
    summary = events.read_summary
    assert summary.n_headers == expected.get("headers", 0)
    assert summary.n_nulls == expected.get("nulls", 0)
    assert summary.n_below == expected.get("below", 0)
    assert summary.notes == expected.get("notes", summary.notes)
    if "times" in expected:
        assert events.times.tolist() == expected["times"]
    if "titles" in expected:
        assert events.titles == expected["titles"]
    if "tags" in expected:
        assert events.tags == expected["tags"]


@pytest.mark.parametrize(("name", "content", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_of_more_than_one_reading_is_refused_with_the_fix(name, content, options, message, put, refused):
    path = put(name, content)
    with refused(mentioning=message):
        gr.read(path, **options)


def test_zstandard_is_read(tmp_path):
    path = tmp_path / "log.csv.zst"
    pl.DataFrame({"user": [1, 3], "item": [2, 4], "title": ["two\nlines", 'a "b"']}).write_csv(path, compression="zstd")
    assert gr.read(path, title="title").titles == ["two\nlines", 'a "b"']


def test_all_files_of_a_folder_may_repeat_their_header_and_separator(tmp_path):
    for n in range(3):
        (tmp_path / f"{n}.csv").write_text(f"user;item\n{n};1\n")
    events = gr.read(tmp_path)
    assert events.users.tolist() == [0, 1, 2]
    assert events.read_summary.notes == ("separated by semicolons",)
    assert str(events.read_summary) == "read 3 rows: 3 interactions of 3 users with 1 item (separated by semicolons)"


def test_the_summary_says_what_was_dropped_and_why(put):
    text = "user,item,rating\n1,2,5\n1,2,4\n1,3,1\n,3,5\nuser,item,rating\n7,3,5\n"
    events = gr.read(put("log.csv", text), min_value=("rating", 4), skip_nulls=True)
    assert str(events.read_summary) == (
        "read 5 rows: 2 interactions of 2 users with 2 items "
        "(1 below the threshold; 1 with nulls skipped; 1 dropped as repeated headers; 1 merged as duplicates)"
    )
    assert events.with_titles({2: "x"}).read_summary == events.read_summary
    assert events.k_core(1).read_summary is None


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b.csv", ""], ids=["too long", "null byte", "empty"])
def test_a_path_that_cannot_be_is_refused(path, refused):
    with refused():
        gr.read(path)
