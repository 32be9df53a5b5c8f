"""The report: one self-contained page, and its pictures."""

import builtins
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import gramian as gr
from gramian.evaluation.report import Comparison
from gramian.experiments import plots, report, report_pictures
from gramian.experiments.experiment import Claim, Curve, ModelEntry, find_experiment, format_p_value
from gramian.experiments.report import find_command, rank_cells, write_report
from gramian.experiments.runner import Benchmark, Cell
from small_experiments import EDLAE, POPULARITY, table


def test_a_report_is_one_page_that_needs_nothing_and_pictures(tmp_path, fits):
    nasty = "<script>alert(1)</script> $x_2$"
    entries = [
        replace(EDLAE, name=nasty),
        ModelEntry("EASE", "EASE", {"l2": [5, 50]}, published={"some": (0.5, 0.25)}),
        ModelEntry("elsewhere", published={"some": (0.125, 0.25)}),
    ]
    curves = (
        Curve("some", "epoch", "IALS", {"rank": 4, "n_epochs": 2}),
        Curve("some", "rank", "LRR", {"l2": 5}, ranks=(2, 8)),
    )
    bench = Benchmark(tmp_path / "j.jsonl")
    experiment = table(*entries, curves=curves, claims=(Claim("5 < 6", "holds", "See {some: EASE, ndcg@20}."),))
    bench.run(experiment)
    page = write_report(Benchmark(tmp_path / "j.jsonl"), [experiment, find_experiment("deql-table1")], tmp_path / "out")
    text = page.read_text()
    assert page == tmp_path / "out" / "index.html"
    outside = set(re.findall(r"""(?:href|src|url)\s*[=(]\s*["']?([^"')\s>]+)""", text))
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in outside), outside
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    measured = bench.fits[bench.cells["table", "some", "EASE"]["fit"]]["metrics"]["ndcg@20"]
    assert f"5 &lt; 6 <strong>Holds.</strong> See {measured:.4f}." in text
    row = bench.cells["table", "some", "EASE"]
    figure = bench.fits[row["fit"]]["metrics"]["recall@20"]
    error = bench.fits[row["fit"]]["stderr"]["recall@20"]
    assert f"<td>0.5000</td>\n<td>{figure:.4f} ± {error:.4f}</td>" in text
    assert f"{figure / 0.5 - 1:+.1%}" in text
    assert "published only" in text
    assert "1,006 users, 896 items" in text  # the missing data set is described
    drawn = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert drawn == {path.stem for path in (tmp_path / "out").glob("*.svg")}
    kinds = ["fitting", "memory", "activity", "popularity", "epochs", "ranks", "search"]
    assert drawn == {f"table-some-{kind}" for kind in kinds}
    assert text.count("<svg") == len(kinds)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert text.count("Measured by\n<code>gramian benchmark table</code>") == 1 + len(kinds)  # of the table and each picture
    assert "Content-Security-Policy" in text


def test_strangers_text_is_escaped_everywhere(tmp_path, fits):
    nasty = "\"><img src=x onerror='alert(1)'>"
    experiment = replace(table(replace(POPULARITY, name=nasty), replace(EDLAE, name=nasty + "2")), name=nasty, title=nasty)
    experiment = replace(experiment, claims=(Claim(nasty, "holds"),), data=(replace(experiment.data[0], name=nasty),))
    Benchmark(tmp_path / "j.jsonl").run(experiment)
    for known in ([experiment], []):
        text = write_report(Benchmark(tmp_path / "j.jsonl"), known, tmp_path / "out").read_text()
        assert "<img" not in text
        assert "&#34;&gt;&lt;img" in text


def test_a_report_of_own_data_has_the_paired_differences(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    cells = bench.run(table(EDLAE, POPULARITY))
    text = write_report(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "out").read_text()
    comparison = bench.compare_with_best(cells, "ndcg@20")["Popularity"]
    assert f"{-comparison.difference:.4f} ± {comparison.stderr:.4f}" in text
    assert f"<td>{comparison.p_value:.2g}</td>" in text
    assert text.index('<th scope="row">EDLAE') < text.index('<th scope="row">Popularity')  # the best first
    assert ('EDLAE <span class="badge">best</span>' in text) == (comparison.p_value < 0.05)
    assert f"the mean over {next(iter(bench.fits.values()))['users']} users ± its standard error" in text


def test_a_report_of_own_data_leaves_out_tables_that_were_not_run(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    bench.run(replace(table(POPULARITY), name="own"))
    bench.run(table(POPULARITY))
    known = [table(POPULARITY), find_experiment("deql-table1")]
    text = write_report(Benchmark(tmp_path / "j.jsonl"), known, tmp_path / "out").read_text()
    assert text.index("<h2>own</h2>") < text.index("<h2>A table</h2>")
    assert "not run" not in text
    assert known[1].title not in text


def cells_and_benchmark(values, p_values):
    """Cells with these values of ndcg@20, and a stand-in for the benchmark that compares them with these p-values."""
    cells = [
        Cell("some", model, {}, fit={"metrics": {"ndcg@20": value}, "stderr": {}, "users": 7} if value is not None else None)
        for model, value in values.items()
    ]
    comparisons = {model: Comparison("ndcg@20", -0.1, 0.01, p_value) for model, p_value in p_values.items()}
    return cells, SimpleNamespace(compare_with_best=lambda cells, metric: comparisons)


@pytest.mark.parametrize(
    ("values", "p_values", "winner", "sentence"),
    [
        ({"a": 0.1, "b": 0.3, "c": 0.2}, {"a": 0.01, "c": 0.04}, "b", "b is significantly better than every other model"),
        ({"a": 0.1, "b": 0.3, "c": 0.2}, {"a": 0.01, "c": 0.06}, None, "No model is significantly better"),
        ({"a": 0.3, "b": 0.3}, {"b": 1.0}, None, "No model is significantly better"),
        ({"a": 0.1, "b": 0.3}, {"a": float("nan")}, None, "No model is significantly better"),
        ({"a": 0.1, "b": 0.3, "c": 0.2}, {"a": 0.01}, None, "are not beside the journal"),
        ({"a": 0.1, "failed": None}, {}, None, "Best first by ndcg@20. Each figure is the mean over 7 users"),
        ({"failed": None}, {}, None, ""),
    ],
)
def test_the_winner_is_marked_only_where_it_is_significant(values, p_values, winner, sentence):
    cells, benchmark = cells_and_benchmark(values, p_values)
    ranked = rank_cells(benchmark, cells, "ndcg@20")
    assert ranked.winner == winner
    assert sentence in ranked.about
    assert [cell.model for cell in ranked.cells] == sorted(values, key=lambda model: -(values[model] or 0))


def test_p_values_have_two_digits():
    assert [format_p_value(p_value) for p_value in (0.25, 0.0432, 0.00012, 0.00009, 0)] == ["0.25", "0.043", "0.00012"] + 2 * [
        "< 0.0001"
    ]


def test_the_command_of_a_table():
    data = table().data[0]
    own = replace(table(), name="my shop.csv, leave-last split", data=(replace(data, name="my shop.csv"),))
    assert find_command(own) == "gramian benchmark --data 'my shop.csv' --split leave-last …"
    assert find_command(find_experiment("movielens")) == "gramian benchmark movielens"


def test_pictures_take_the_colours_of_the_page(tmp_path):
    names = ["_hidden", *("a very long name of a model " * 3 + end for end in "xyz")]
    pictures = report_pictures.PictureFolder(tmp_path)
    picture = pictures.add("p", plots.plot_lines({name: [(1.0, 0.1, 0.01), (2.0, 0.2, 0.01)] for name in names}, "x", "y"), "")
    assert "var(--series-4)" in picture.svg
    assert "currentColor" in picture.svg
    assert not set(plots.SERIES_COLOURS) & set(re.findall("#[0-9a-f]{6}", picture.svg))
    assert "#ffffff" not in picture.svg  # the background is that of the page
    assert "#ffffff" in (tmp_path / "p.svg").read_text()
    assert all(f"…el a very long name of a model {end}"[-20:] in picture.svg for end in "xyz")  # names differ at their end
    css = (report.REPORT_TEMPLATES / "report.css").read_text()
    for number in range(1, len(plots.SERIES_COLOURS) + 1):
        assert css.count(f"--series-{number}: ") == 2  # light and dark


def test_a_heat_map_of_many_panels_is_narrow():
    panels = {f"kept_weight {n}": ([0.1, 0.2], [1, 2], np.array([[0.1, 0.2], [0.3, n]])) for n in range(5)}
    with plots.plot_heat_map(panels, "dropout", "l2", "ndcg@20") as figure:
        assert figure.get_size_inches()[0] == plots.FIGURE_WIDTH
        assert sum(axes.get_title() != "" for axes in figure.axes) == 5


def test_a_report_claims_neither_errors_nor_a_command_that_the_journal_does_not_have(tmp_path, fits):
    bench = Benchmark(tmp_path / "j.jsonl")
    bench.run(table(EDLAE, POPULARITY))
    rows = [row | ({"stderr": {}, "by": "another program"} if row["kind"] == "fit" else {}) for row in bench.journal.rows]
    (tmp_path / "k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = write_report(Benchmark(tmp_path / "k.jsonl"), [table(EDLAE, POPULARITY)], tmp_path / "out").read_text()
    assert "standard error" not in text
    assert "Measured by the programs that the table names, and by" in text
    assert "measured by another program" in text


def test_an_empty_journal_has_a_report(tmp_path):
    assert "The journal is empty" in write_report(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "out").read_text()


def test_heat_maps_have_each_value_in_its_place(monkeypatch):
    drawn = []
    monkeypatch.setattr(report_pictures, "plot_heat_map", lambda panels, *names: drawn.append(panels))
    rows = [
        {"recipe": {"name": model, "params": {"dropout": dropout, "l2": l2} | more}, "value": value, "lost_to": lost_to}
        for model, dropout, l2, more, value, lost_to in (
            ("EDLAE", 0.1, 5, {}, 1.0, None),
            ("EDLAE", 0.5, 50, {}, 2.0, None),
            ("EDLAE", 0.1, 50, {}, 9.0, "given up"),
            ("DLAE", 0.5, 5, {}, 3.0, None),
            ("DEQL", 0.1, 50, {"kept_weight": 2.0}, 4.0, None),
        )
    ]
    pictures = SimpleNamespace(add=lambda name, plot, caption: name)
    assert list(report_pictures.draw_search("t", rows, pictures)) == ["t-search"]
    (panels,) = drawn
    nan = np.nan
    expected = {"0": [[1, nan], [nan, 2]], "1": [[nan, nan], [3, nan]], "2": [[nan, 4], [nan, nan]]}
    assert list(panels) == [f"kept_weight {kept_weight}" for kept_weight in expected]
    for (dropouts, l2s, values), matrix in zip(panels.values(), expected.values(), strict=True):
        assert (dropouts, l2s) == ([0.1, 0.5], [5, 50])
        np.testing.assert_array_equal(values, matrix)


def test_curves_of_the_same_model_are_told_apart():
    rows = [{"recipe": {"name": "LRR", "params": {"rank": 4, "l2": l2}}} for l2 in (5, 50)]
    assert [report_pictures.label_curve(row, rows) for row in rows] == ["LRR, l2=5", "LRR, l2=50"]
    assert report_pictures.label_curve(rows[0], rows[:1]) == "LRR"


def test_a_report_that_cannot_be_written_is_refused(tmp_path, refused):
    (tmp_path / "file").write_text("x")
    with refused(mentioning="a folder for the report"):
        write_report(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "file")


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_package_is_named_before_anything_is_written(tmp_path, refused, monkeypatch, package):
    import_module = builtins.__import__

    def missing(name, *rest):
        if name == package:
            raise ImportError(name)
        return import_module(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with refused(gr.errors.NotSupported, "gramian[plot]"):
        write_report(Benchmark(tmp_path / "j.jsonl"), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()
