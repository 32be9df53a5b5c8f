"""gr.read: every format gives the same events, ids keep their type, and a broken file gets the library's own error."""

import gzip
import json
import tempfile
from datetime import date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gramian as gr
from gramian.errors import MissingFile

TABLE = pl.DataFrame(
    {
        "user": ["ann", "ann", "bob", "cyd"],
        "item": [10, 20, 10, 30],
        "rating": [5.0, 3.5, 4.0, 1.0],
        "time": [100, 300, 200, 50],
        "title": ["Alien", "Brazil", "Alien", "Casino, the film"],
    }
)


def write_csv(table, path, separator=","):
    path.write_text(table.write_csv(separator=separator), encoding="utf-8", newline="")


def write_tsv(table, path):
    write_csv(table, path, "\t")


def write_jsonl(table, path):
    path.write_text(table.write_ndjson(), encoding="utf-8", newline="")


def zipped(write):
    def write_zipped(table, path):
        write(table, path)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return write_zipped


WRITERS = {
    ".csv": write_csv,
    ".CSV": write_csv,
    ".tsv": write_tsv,
    ".tab": write_tsv,
    ".parquet": pl.DataFrame.write_parquet,
    ".pq": pl.DataFrame.write_parquet,
    ".jsonl": write_jsonl,
    ".ndjson": write_jsonl,
    ".csv.gz": zipped(write_csv),
    ".tsv.gz": zipped(write_tsv),
    ".jsonl.gz": zipped(write_jsonl),
}
TEXT = {".csv": ",", ".tsv": "\t"}


@pytest.fixture
def write(tmp_path):
    """Write text, bytes or a table to a new file with this suffix; its path."""

    def make(content, suffix=".csv", name="events"):
        path = tmp_path / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pl.DataFrame):
            WRITERS[suffix](content, path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
        return path

    return make


def ids(events):
    return events.users.tolist(), events.items.tolist()


def assert_same(events, others):
    assert events.fingerprint == others.fingerprint
    assert ids(events) == ids(others)
    assert events.titles == others.titles
    np.testing.assert_array_equal(events.times, others.times)


# formats


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_events(suffix, write):
    roles = {"value": "rating", "time": "time", "title": "title"}
    assert_same(gr.read(write(TABLE, suffix), **roles), gr.Interactions.of(TABLE, **roles))


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)  # a text file with null bytes is refused
words = texts.map(lambda text: f"w{text}")  # never an integer, so text files keep them as they are
integers = st.integers(-(10**18) + 1, 10**18 - 1)


@st.composite
def random_tables(draw):
    n = draw(st.integers(1, 12))
    pool = {name: draw(st.lists(draw(st.sampled_from([words, integers])), min_size=1, max_size=4)) for name in ("user", "item")}
    columns = {name: draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)) for name, values in pool.items()}
    columns["rating"] = [k / 2 for k in draw(st.lists(st.integers(1, 10), min_size=n, max_size=n))]
    columns["time"] = draw(st.lists(st.integers(-(2**62), 2**62), min_size=n, max_size=n))
    columns["title"] = draw(st.lists(words, min_size=n, max_size=n))
    return pl.DataFrame(columns)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl", ".csv.gz"])
@settings(max_examples=25)
@given(table=random_tables())
def test_what_is_written_is_read_back(suffix, table):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"events{suffix}"
        WRITERS[suffix](table, path)
        for roles in (
            {"value": "rating", "time": "time", "title": "title"},
            {"min_value": ("rating", table["rating"].mean()), "time": "time"},
        ):
            assert_same(gr.read(path, **roles), gr.Interactions.of(table, **roles))


# paths


@pytest.mark.parametrize("as_path", [str, Path], ids=["str", "Path"])
def test_a_path_may_be_text_or_a_path(as_path, write):
    assert ids(gr.read(as_path(write(TABLE)))) == (["ann", "bob", "cyd"], [10, 20, 30])


def test_a_glob_reads_all_its_files_as_one_and_no_others(write, tmp_path):
    for n in range(4):
        write(TABLE[n], name=f"part-{n}")
    write("user,item\nstranger,99\n", name="other")
    assert gr.read(str(tmp_path / "part-*.csv")).fingerprint == gr.Interactions.of(TABLE).fingerprint


def test_duplicates_merge_across_files(write, tmp_path):
    for name in ("a", "b"):
        write(TABLE, ".parquet", name)
    events = gr.read(str(tmp_path / "*.parquet"), value="rating")
    assert events.matrix.sum() == 2 * TABLE["rating"].sum()
    assert events.n_interactions == len(TABLE)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_folder_is_read_with_its_subfolders_but_without_marker_and_hidden_files(suffix, write, tmp_path):
    write(TABLE[:2], suffix, "log/part-0")
    write(TABLE[2:], suffix, "log/day=2/part-1")
    write("", "", "log/_SUCCESS")
    write("checksum", ".crc", f"log/.part-0{suffix}")
    assert gr.read(tmp_path / "log").fingerprint == gr.Interactions.of(TABLE).fingerprint


@pytest.mark.parametrize("hidden", ["_temporary", "_delta_log", ".ipynb_checkpoints"])
def test_what_lies_in_a_hidden_folder_is_not_read(hidden, write, tmp_path):
    write(TABLE, ".csv", "log/part-0")
    write(TABLE.with_columns(user=pl.lit("stranger")), ".csv", f"log/{hidden}/part-1")
    assert gr.read(tmp_path / "log").fingerprint == gr.Interactions.of(TABLE).fingerprint


def test_a_folder_inside_a_hidden_folder_is_read_when_named(write, tmp_path):
    write(TABLE, ".csv", ".cache/log/part-0")
    assert gr.read(tmp_path / ".cache" / "log").n_interactions == len(TABLE)


def test_plain_and_zipped_files_are_one_format(write, tmp_path):
    write(TABLE[:2], ".csv", "log/a")
    write(TABLE[2:], ".csv.gz", "log/b")
    assert gr.read(tmp_path / "log").fingerprint == gr.Interactions.of(TABLE).fingerprint


def test_a_folder_may_be_named_like_a_file(write, tmp_path):
    write(TABLE, ".csv", "events.csv/part-0")
    assert gr.read(tmp_path / "events.csv").n_interactions == len(TABLE)


def test_brackets_in_the_name_of_an_existing_file_are_no_glob(write):
    assert gr.read(write(TABLE, ".csv", "events [final]")).n_interactions == len(TABLE)


# ids in files


@pytest.mark.parametrize("suffix", TEXT)
@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["1", "-3", "0"], [-3, 0, 1]),
        (["999999999999999999", "2", "3"], [2, 3, 999999999999999999]),
        (["1717171717171717171", "2", "3"], [2, 3, 1717171717171717171]),
        (["007", "8", "9"], ["007", "8", "9"]),
        (["+1", "2", "3"], ["+1", "2", "3"]),
        (["-0", "2", "3"], ["-0", "2", "3"]),
        (["1.0", "2.5", "3"], ["1.0", "2.5", "3"]),
        (["1e3", "2", "3"], ["1e3", "2", "3"]),
        ([" 1", "2", "3"], [" 1", "2", "3"]),
        (["184467440737095516150", "2", "3"], ["184467440737095516150", "2", "3"]),
        (["true", "false", "null"], ["false", "null", "true"]),
        (["2020-01-01", "NaN", "x"], ["2020-01-01", "NaN", "x"]),
    ],
    ids=lambda values: values[0] if isinstance(values[0], str) else "",
)
def test_ids_in_text_are_integers_when_all_are_plain_integers_and_else_the_text_itself(suffix, written, read, write):
    lines = "".join(f"{value}{TEXT[suffix]}x\n" for value in written)
    users, items = ids(gr.read(write(f"user{TEXT[suffix]}item\n{lines}", suffix)))
    assert users == read
    assert items == ["x"]
    assert {type(user) for user in users} == {type(read[0])}


def test_a_word_after_20_000_integers_keeps_all_ids_text(write):
    numbers = [str(n) for n in range(20_000)]
    events = gr.read(write("user,item\n" + "".join(f"{n},{n}\n" for n in numbers) + "word,1\n"))
    assert set(events.users.tolist()) == {*numbers, "word"}
    assert set(events.items.tolist()) == set(range(20_000))


@pytest.mark.parametrize("late", ["4.5", "5"])
def test_a_fraction_after_20_000_whole_ratings_is_a_rating(late, write):
    path = write("user,item,rating\n" + "1,1,3\n" * 20_000 + f"2,2,{late}\n")
    assert ids(gr.read(path, min_value=("rating", 4))) == ([2], [2])
    assert gr.read(path, value="rating").matrix[1, 1] == float(late)


def test_a_fraction_after_20_000_whole_ratings_is_a_rating_in_json_lines_too(write):
    lines = '{"user": 1, "item": 1, "rating": 3}\n' * 20_000 + '{"user": 2, "item": 2, "rating": 4.5}\n'
    assert ids(gr.read(write(lines, ".jsonl"), min_value=("rating", 4))) == ([2], [2])


def test_titles_in_text_stay_text(write):
    events = gr.read(write("user,item,title\n1,1,007\n1,2,1984\n1,3,300.0\n"), title="title")
    assert events.titles == ["007", "1984", "300.0"]


def test_a_worded_title_after_20_000_numeric_ones_is_a_title(write):
    path = write("user,item,title\n" + "1,1,1917\n" * 20_000 + "2,2,Alien\n")
    assert gr.read(path, title="title").titles == ["1917", "Alien"]


def test_quotes_commas_line_ends_and_a_byte_order_mark_are_no_part_of_ids(write):
    text = '\ufeffuser,item\r\n"a, ""b""",1\r\n"two\nlines",2\r\nc,3'
    assert ids(gr.read(write(text.encode()))) == (['a, "b"', "c", "two\nlines"], [1, 2, 3])


def test_types_in_parquet_are_kept(write):
    table = pl.DataFrame({"user": ["42", "7"], "item": [date(2020, 1, 1), date(2019, 1, 1)]})
    assert ids(gr.read(write(table, ".parquet"))) == (["42", "7"], [date(2019, 1, 1), date(2020, 1, 1)])
    table = pl.DataFrame({"user": [b"\xff", b"a"], "item": pl.Series([2**63, 1], dtype=pl.UInt64)})
    assert ids(gr.read(write(table, ".parquet"))) == ([b"a", b"\xff"], [1, 2**63])


def test_types_in_json_lines_are_kept(write):
    lines = [{"user": "42", "item": 42}, {"user": "2020-01-01", "item": -1}]
    assert ids(gr.read(write("\n".join(map(json.dumps, lines)), ".jsonl"))) == (["2020-01-01", "42"], [-1, 42])


# values, times, titles


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_a_threshold_keeps_the_events_at_or_above_it(suffix, write):
    events = gr.read(write(TABLE, suffix), min_value=("rating", 4), time="time", title="title")
    assert ids(events) == (["ann", "bob"], [10])
    assert events.is_binary
    assert events.times.tolist() == [100, 200]
    assert events.titles == ["Alien"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".jsonl"])
def test_weights_times_and_titles_are_read(suffix, write):
    events = gr.read(write(TABLE, suffix), value="rating", time="time", title="title")
    assert events.matrix.data.tolist() == [5.0, 3.5, 4.0, 1.0]
    assert events.times.tolist() == [100, 300, 200, 50]
    assert events.titles == ["Alien", "Brazil", "Casino, the film"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2020-01-02", datetime(2020, 1, 2)),
        ("2020-01-02 03:04:05", datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02T03:04:05.678", datetime(2020, 1, 2, 3, 4, 5, 678000)),
        ("2020-01-02T03:04:05Z", datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02T03:04:05+02:00", datetime(2020, 1, 2, 1, 4, 5)),
        ("1577934245", 1577934245),
        ("1577934245.5", 1577934245.5),
    ],
)
def test_times_in_text_may_be_numbers_or_iso_dates(written, read, write):
    assert gr.read(write(f"user,item,time\n1,2,{written}\n"), time="time").times.tolist() == [read]


def test_columns_are_guessed_or_named_as_in_interactions_of(write):
    assert ids(gr.read(write("userId,itemId,who,what\n1,2,3,4\n"))) == ([1], [2])
    assert ids(gr.read(write("userId,itemId,who,what\n1,2,3,4\n"), user="who", item="what")) == ([3], [4])


def test_one_column_may_have_two_roles(write):
    events = gr.read(write(TABLE), value="time", time="time")
    assert events.times.tolist() == events.matrix.data.tolist()


# bad input


def test_a_path_that_is_not_there_is_missing(tmp_path, refused):
    with refused(MissingFile, mentioning="nowhere.csv"):
        gr.read(tmp_path / "nowhere.csv")
    with refused(MissingFile):
        gr.read(tmp_path / "no folder" / "*.csv")


def test_an_empty_folder_and_one_of_markers_only_are_missing_files(tmp_path, refused):
    with refused(MissingFile, mentioning=str(tmp_path)):
        gr.read(tmp_path)
    (tmp_path / "_SUCCESS").touch()
    with refused(MissingFile):
        gr.read(tmp_path)


def test_a_folder_of_several_formats_is_refused(write, tmp_path, refused):
    for suffix in (".csv", ".parquet"):
        write(TABLE, suffix)
    with refused(mentioning=".csv and .parquet"):
        gr.read(tmp_path)


@pytest.mark.parametrize("name", ["events.xlsx", "events", "events.gz", "events.csv.bak"])
def test_an_unknown_suffix_is_refused(name, tmp_path, refused):
    (tmp_path / name).write_text("user,item\n1,2\n")
    with refused(mentioning=name):
        gr.read(tmp_path / name)


RATED = {"min_value": ("rating", 4)}
BROKEN = {
    "empty": ("", ".csv", {}),
    "header only": ("user,item\n", ".csv", {}),
    "header only, rated": ("user,item,rating\n", ".csv", RATED),
    "too many fields": ("user,item\n1,2\n3,4,5\n", ".csv", {}),
    "too many fields late": ("user,item\n" + "1,2\n" * 20_000 + "3,4,5\n", ".csv", {}),
    "item missing": ("user,item\n1,2\n3\n", ".csv", {}),
    "item missing late": ("user,item\n" + "1,2\n" * 20_000 + "3\n", ".csv", {}),
    "rating missing": ("user,item,rating\n1,2,5\n3,4\n", ".csv", RATED),
    "null user": ("user,item\n1,2\n,4\n", ".csv", {}),
    "null item": ("user\titem\n1\t2\n3\t\n", ".tsv", {}),
    "null rating": ("user,item,rating\n1,2,5\n3,4,\n", ".csv", RATED),
    "null time": ("user,item,time\n1,2,5\n3,4,\n", ".csv", {"time": "time"}),
    "NaN rating": ("user,item,rating\n1,2,5.0\n3,4,NaN\n", ".csv", RATED),
    "infinite weight": ("user,item,rating\n1,2,5.0\n3,4,inf\n", ".csv", {"value": "rating"}),
    "negative weight": ("user,item,rating\n1,2,5\n3,4,-1\n", ".csv", {"value": "rating"}),
    "text as rating": ("user,item,rating\n1,2,good\n3,4,bad\n", ".csv", RATED),
    "text as weight": ("user,item,rating\n1,2,good\n3,4,bad\n", ".csv", {"value": "rating"}),
    "text as rating late": ("user,item,rating\n" + "1,2,5\n" * 20_000 + "3,4,bad\n", ".csv", RATED),
    "text as time": ("user,item,time\n1,2,noon\n", ".csv", {"time": "time"}),
    "no such column": ("who,what\n1,2\n", ".csv", {}),
    "no such rating": ("user,item\n1,2\n", ".csv", RATED),
    "open quote": ('user,item\n1,"2\n3,4\n', ".csv", {}),
    "not utf-8": ("user,item\nJosé,1\n".encode("latin-1"), ".csv", {}),
    "binary": (bytes(range(256)) * 8, ".csv", {}),
    "cut gzip": (gzip.compress(np.random.default_rng(0).bytes(3000))[:1000], ".csv.gz", {}),
    "nothing rated enough": ("user,item,rating\n1,2,1\n", ".csv", RATED),
    "both value and threshold": ("user,item,rating\n1,2,1\n", ".csv", {"value": "rating"} | RATED),
    "threshold without a column": ("user,item,rating\n1,2,1\n", ".csv", {"min_value": 4}),
    "empty json lines": ("", ".jsonl", {}),
    "broken json line": ('{"user": 1, "item": 2}\n{"user": 3, "it\n', ".jsonl", {}),
    "no json line": ('{"user": 1, "item": 2}\nhello\n', ".jsonl", {}),
    "broken json line late": ('{"user": 1, "item": 2}\n' * 20_000 + "hello\n", ".jsonl", {}),
    "json list": ('[{"user": 1, "item": 2}]', ".jsonl", {}),
    "json without item": ('{"user": 1, "item": 2}\n{"user": 3}\n', ".jsonl", {}),
    "json null user": ('{"user": 1, "item": 2}\n{"user": null, "item": 2}\n', ".jsonl", {}),
    "json mixed ids": ('{"user": 1, "item": 2}\n{"user": "a", "item": 2}\n', ".jsonl", {}),
    "json mixed ids late": ('{"user": 1, "item": 2}\n' * 20_000 + '{"user": "a", "item": 2}\n', ".jsonl", {}),
    "empty parquet": (b"", ".parquet", {}),
    "binary parquet": (bytes(range(256)) * 8, ".parquet", {}),
    "text parquet": ("user,item\n1,2\n", ".parquet", {}),
    "null id in parquet": (pl.DataFrame({"user": ["a", None], "item": [1, 2]}), ".parquet", {}),
    "NaN id in parquet": (pl.DataFrame({"user": [1.0, float("nan")], "item": [1, 2]}), ".parquet", {}),
    "text rating in parquet": (pl.DataFrame({"user": [1], "item": [2], "rating": ["5"]}), ".parquet", RATED),
    "no rows in parquet": (pl.DataFrame(schema={"user": pl.Int64, "item": pl.Int64}), ".parquet", {}),
}


@pytest.mark.parametrize(("content", "suffix", "options"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused(content, suffix, options, write, refused):
    path = write(content, suffix)
    with refused():
        gr.read(path, **options)


def test_a_cut_or_overwritten_parquet_file_is_refused(write, refused):
    whole = write(TABLE, ".parquet").read_bytes()
    with refused():
        gr.read(write(whole[:-20], ".parquet"))
    with refused():
        gr.read(write(whole[:10] + bytes(100) + whole[110:], ".parquet"))


def test_files_of_different_columns_are_refused(write, tmp_path, refused):
    write("user,item\n1,2\n", name="log/a")
    write("item,user\n3,4\n", name="log/b")
    with refused():
        gr.read(tmp_path / "log")


def test_the_complaint_names_the_file(write, refused):
    with refused(mentioning="events.csv"):
        gr.read(write("user,item\n1,2\n3,4,5\n"))


@pytest.mark.parametrize("blank", ["", "\n", "\n\n\n"])
def test_blank_lines_are_no_events(blank, write):
    assert ids(gr.read(write(f"user,item\n1,2\n{blank}3,4\n{blank}"))) == ([1, 3], [2, 4])


def test_written_times_are_read_in_every_text_format(write):
    lines = '{"user": 1, "item": 2, "at": "2020-01-01T10:00:00"}\n{"user": 1, "item": 3, "at": "2020-01-01T09:00:00"}\n'
    table = "user,item,at\n1,2,2020-01-01T10:00:00\n1,3,2020-01-01T09:00:00\n"
    from_json, from_csv = gr.read(write(lines, ".jsonl"), time="at"), gr.read(write(table), time="at")
    assert from_json.times.tolist() == from_csv.times.tolist()
    assert from_csv.times[0] - from_csv.times[1] == np.timedelta64(1, "h")
