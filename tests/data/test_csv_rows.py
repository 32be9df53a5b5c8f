"""Rows of csv text never vanish: as many rows as Python's csv module finds, or a refusal that names the line."""

import csv
import io

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gramian as gr
from gramian.data import text_files
from gramian.data.csv_records import scan_records
from gramian.data.sources import Source
from gramian.data.tables import Columns
from gramian.data.text_files import ROW, read_text_table
from gramian.data.text_format import TextFormat
from gramian.errors import InvalidInput

COLUMNS = Columns("user", "item", None, None, None, "title")


def read_rows(text, separator=","):
    """The needed columns of csv text as rows of text."""
    source = Source("text", ".csv", text.encode())
    table = read_text_table([source], TextFormat(separator=separator), lambda names: COLUMNS)
    values = table.series()
    rows = zip(*(values[name].cast(str).to_list() for name in ("user", "item", "title")), strict=True)
    return list(rows), values[ROW].to_list()


def rows_of_csv_module(text, separator=","):
    """The rows that are not empty, without further fields that are empty, which we allow."""
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    return [tuple(field or None for field in (row if any(row[3:]) else row[:3])) for row in rows[1:] if any(row)]


@pytest.mark.parametrize("title", [None, "title"], ids=["title not read", "title read"])
def test_a_stray_quote_swallows_no_rows(title, tmp_path):
    names = ['3" reel' if n in (1000, 3000) else "reel" for n in range(5000)]
    path = tmp_path / "events.csv"
    path.write_text("user,item,title\n" + "".join(f"{n},{n % 50},{name}\n" for n, name in enumerate(names)))
    events = gr.read(path, title=title)
    assert events.n_interactions == len(pd.read_csv(path)) == 5000
    assert events.users.tolist() == list(range(5000))


fields = st.text(st.sampled_from('ab1",;\n\r '), max_size=4)
quoted = fields.map(lambda field: '"' + field.replace('"', '""') + '"')
bare = st.text(st.sampled_from('ab1" '), max_size=4)


@settings(max_examples=300)
@given(st.lists(st.tuples(bare | quoted, bare | quoted, bare | quoted), max_size=8), st.sampled_from(["\n", "\r\n"]))
@example([("1", "2", '3" reel'), ("4", "5", 'a"b"c')], "\n")
@example([("1", "2", '"a'), ("4", "5", 'b"')], "\n")
@example([("", "", '""'), ("4", "5", "")], "\n")
@example([("", "", '"'), ("", '"', "")], "\n")  # one row of four fields, the last of them empty
def test_rows_are_those_of_the_csv_module_or_refused(rows, line_end):
    text = line_end.join(["user,item,title", *map(",".join, rows)]) + line_end
    try:
        read, _ = read_rows(text)
    except InvalidInput:
        return
    assert read == rows_of_csv_module(text)


well_formed = st.lists(st.tuples(quoted, quoted, quoted), min_size=1, max_size=8)


@settings(max_examples=200)
@given(well_formed)
def test_well_formed_text_is_read_and_not_refused(rows):
    text = "\n".join(["user,item,title", *map(",".join, rows)])
    expected = rows_of_csv_module(text)
    if expected:
        assert read_rows(text)[0] == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
def test_where_a_file_is_cut_into_blocks_does_not_matter(size):
    text = 'user,item,title\r\n1,2,"two\r\nlines"\r\n\r\n3,4,"a ""b"""\r\n5,6,3" reel\r\nx,7,é\n8,9,'
    blocks = text.encode()

    class Slices(Source):
        def chunks(self):
            yield blocks[:20]
            yield from (blocks[start : start + size] for start in range(20, len(blocks), size))

    table = read_text_table([Slices("text", ".csv")], TextFormat(), lambda names: COLUMNS)
    values = table.series()
    assert values["user"].to_list() == ["1", "3", "5", "x", "8"]
    assert values["title"].to_list() == ["two\r\nlines", 'a "b"', '3" reel', "é", None]
    assert values[ROW].to_list() == [1, 2, 3, 4, 5]
    assert table.n_rows == 5


def test_integer_blocks_after_text_blocks_are_text(monkeypatch):
    class Slices(Source):
        def chunks(self):
            yield b"user,item,title\n1,1,a\n"
            yield b"x,2,b\n"
            yield b"3,3,c\n"

    table = read_text_table([Slices("text", ".csv")], TextFormat(), lambda names: COLUMNS)
    assert table.series()["user"].to_list() == ["1", "x", "3"]
    assert table.series()["item"].to_list() == [1, 2, 3]


BAD = {
    "open quote": ('1,2,"x\n3,4,y\n', "line 2"),
    "text after a quote": ('1,2,x\n3,4,"y" z\n', "line 3"),
    "quote within quotes": ('1,2,"say "hello" twice"\n', "line 2"),
    "too many fields": ("1,2,x\n3,4,y,z\n", "4 on line 3"),
    "too few fields": ("1,2,x\n3,4\n", "2 on line 3"),
    "line break within an unquoted title": ("1,2,Some\nTitle,5\n", "2 on line 3"),
    "null byte": ("1,2,x\n3,4,\0\n", "null byte on line 3"),
    "lone carriage return": ("1,2,x\r3,4,y\n", "carriage return on line 2"),
    "rows within quotes": ('1,2,"x\n' + "3,4,y\n" * 6 + '5,6,12"\n', "line 2"),
    "after a quoted line break": ('1,2,"x\ny"\n3,4\n', "2 on line 4"),
}


@pytest.mark.parametrize(("rows", "place"), BAD.values(), ids=BAD.keys())
def test_malformed_text_is_refused_with_its_line(rows, place, refused):
    with refused(mentioning=place):
        read_rows("user,item,title\n" + rows)


def test_line_numbers_count_over_blocks(monkeypatch, refused, tmp_path):
    monkeypatch.setattr("gramian.data.sources.CHUNK_BYTES", 64)
    path = tmp_path / "events.csv"
    path.write_text("user,item\n" + "1,2\n" * 1000 + "3\n" + "1,2\n" * 1000)
    with refused(mentioning="1 on line 1002"):
        gr.read(path)


def test_a_difference_to_polars_is_refused(monkeypatch, refused):
    def lose_a_row(*words, **options):
        return original(*words, **options)[1:]

    original = text_files.pl.read_csv
    monkeypatch.setattr(text_files.pl, "read_csv", lose_a_row)
    with refused(mentioning="expected 2 rows"):
        read_rows("user,item,title\n1,2,a\n3,4,b\n")


def test_the_scan_knows_records_lines_and_empty_rows():
    records = scan_records(b'1,"a\nb"\n\n,\n""\n2,c\nrest,', ",", 2)
    assert (records.count, records.n_lines, records.empty.tolist(), records.end) == (5, 6, [1, 2, 3], 18)
    assert not records.has_stray_quotes
    assert not records.problem


def test_blank_rows_are_no_events_and_half_blank_rows_are_nulls(tmp_path, refused):
    path = tmp_path / "events.csv"
    path.write_text('user,item,rating\n1,2,5\n\n,,\n"","",""\n3,4,5\n')
    assert gr.read(path).read_summary.n_rows == 2
    path.write_text("user,item,rating\n1,2,5\n,,5\n")
    with refused(mentioning="1 nulls"):
        gr.read(path)


def test_a_quoted_empty_id_is_a_null(tmp_path, refused):
    path = tmp_path / "events.csv"
    path.write_text('user,item\n"",2\n1,2\n')
    with refused(mentioning="1 nulls"):
        gr.read(path)
