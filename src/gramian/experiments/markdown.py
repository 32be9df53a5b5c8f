"""Fill a Markdown template from a journal, so that every figure in a document comes from a recorded row.

A template is text with Jinja expressions that call the methods of `JournalTables`:

    {{ published("deql-table2", "gowalla", ["EASE"]) }}    a published table beside ours
    {{ ranking("landscape-ml-1m", "ml-1m") }}     models, best first, each compared with the best
    {{ long_tail("landscape-ml-1m", "ml-1m") }}   the models' quality on rare and on popular items
    {{ curves("figure1-ml-1m", "ml-1m") }}        tuned curves: a row for each rank
    {{ epochs("rgx-ml-1m", "ml-1m") }}            the best epoch of every curve, and its time
    {{ claims("deql-table2") }}                   the claims of a paper, each with its verdict and evidence
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gramian.core.params import format_json_params
from gramian.errors import DamagedFile, InvalidInput, MissingFile, NotSupported, UnknownId
from gramian.experiments.claims import judge_claims
from gramian.experiments.experiment import COSTS, Experiment, format_figure, format_p_value
from gramian.experiments.report import AS_PUBLISHED, rank_cells
from gramian.experiments.report_pictures import label_curve
from gramian.experiments.runner import BREAKDOWN_CUTOFF, PUBLISHED_ONLY, Benchmark, Cell, JournalRow
from gramian.io.atomic import atomic_file
from gramian.progress import format_duration
from gramian.validation import format_install_advice

TEMPLATE_SUFFIX = ".j2"
NOT_RUN = "not run"


def fill_template(benchmark: Benchmark, experiments: Sequence[Experiment], template: Path) -> Path:
    """Fill a template, and write it beside itself without the suffix .j2.

    Parameters
    ----------
    benchmark
        The journal.
    experiments
        The tables that the template may name.
    template
        A Markdown file ending in .md.j2.

    Returns
    -------
    Path
        The file that was written.
    """
    try:
        from jinja2 import StrictUndefined, TemplateError  # noqa: PLC0415
        from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415
    except ImportError:
        raise NotSupported("Jinja2, for templates", "no such package", format_install_advice("plot")) from None
    if template.suffix != TEMPLATE_SUFFIX:
        raise InvalidInput(f"a template whose name ends in {TEMPLATE_SUFFIX}", str(template), "Rename it")
    if not template.is_file():
        raise MissingFile(f"a template at {template}", "no such file", "Check the path")
    tables = JournalTables(benchmark, experiments)
    names = ("published", "ranking", "long_tail", "curves", "epochs", "claims")
    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)  # not HTML: nothing is escaped
    try:
        parsed = environment.from_string(template.read_text(encoding="utf-8"))
        text = parsed.render({name: getattr(tables, name) for name in names})
    except (TemplateError, UnicodeDecodeError) as error:
        raise DamagedFile(f"a template in {template}", str(error), "Correct it") from None
    path = template.with_suffix("")
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


class JournalTables:
    """The tables of a journal as Markdown."""

    def __init__(self, benchmark: Benchmark, experiments: Sequence[Experiment]) -> None:
        self.benchmark = benchmark
        self.experiments = {experiment.name: experiment for experiment in experiments}

    def published(self, table: str, data: str, models: Sequence[str]) -> str:
        """Return models of a published table beside ours, and beside the points that were selected on test if there are any.

        Figures that the table's own search did not choose are left out.
        """
        experiment, cells = self._cells(table, data)
        cells = [cell for cell in cells if cell.model in models]
        is_test_shown = any(cell.best_on_test for cell in cells)
        metrics = " / ".join(experiment.metrics)
        heads = ["", f"{metrics}, published", "ours", "difference", "parameters, chosen on validation"]
        heads += [AS_PUBLISHED, "difference", "its parameters"] if is_test_shown else []
        return markdown_table(heads, [self._published_row(experiment, cell, is_test_shown) for cell in cells])

    def _published_row(self, experiment: Experiment, cell: Cell, is_test_shown: bool) -> list[str]:
        theirs = list(cell.published.get(name) for name in experiment.metrics)
        metrics = list(experiment.metrics.values())
        ours = [cell.measured_figure(metric) if cell.is_search_result else None for metric in metrics]
        row = [cell.model, join_figures(theirs, metrics), join_figures(ours, metrics) or NOT_RUN]
        row += [join_changes(theirs, ours, metrics), format_params(cell.recipe) if cell.is_search_result else ""]
        if is_test_shown:
            point = cell.best_on_test
            best = [None if point is None else point["metrics"].get(metric) for metric in metrics]
            row += [join_figures(best, metrics) or NOT_RUN, join_changes(theirs, best, metrics)]
            row += ["" if point is None else f"{format_params(point['recipe'])}; best of {cell.n_test_points}"]
        return row

    def ranking(self, table: str, data: str) -> str:
        """Return the models whose parameters the table's search chose, best first, each with its difference from the best.

        Models of which there are published figures only come last.
        """
        experiment, cells = self._cells(table, data)
        ranked = rank_cells(self.benchmark, [cell for cell in cells if cell.is_search_result], experiment.choose)
        heads = ["", *experiment.metrics, f"behind the best in {experiment.choose}, p", "fit", "memory", "parameters"]
        rows = []
        for cell in ranked.cells:
            comparison = ranked.comparisons.get(cell.model)
            behind = ""
            if comparison is not None:
                behind = f"{-comparison.difference:.4f} ± {comparison.stderr:.4f}, {format_p_value(comparison.p_value)}"
            figures = [format_figure(cell.measured_figure(metric), metric) for metric in experiment.metrics.values()]
            rows.append([cell.model, *figures, behind, cell.duration, cell.memory, format_params(cell.recipe)])
        for cell in (cell for cell in cells if rows and cell.note == PUBLISHED_ONLY):
            figures = [format_figure(cell.published.get(printed), metric) for printed, metric in experiment.metrics.items()]
            rows.append([cell.model, *figures, "", "", "", PUBLISHED_ONLY])
        return markdown_table(heads, rows) if rows else f"*Not run yet: `gramian benchmark {table} --data {data}`.*"

    def long_tail(self, table: str, data: str) -> str:
        """Return the models in the order of `ranking`, with the ndcg of the targets in each group of items, rare ones first.

        The last column is the share of the lists that the most popular group takes.
        """
        experiment, cells = self._cells(table, data)
        ranked = rank_cells(self.benchmark, [cell for cell in cells if cell.is_search_result], experiment.choose)
        groups = {cell.model: cell.fit["popularity"] for cell in ranked.cells if has_ndcg_by_popularity(cell)}  # type: ignore[index]
        if not groups:
            return f"*Not run yet: `gramian benchmark {table} --data {data}`.*"
        first = next(iter(groups.values()))
        heads = [f"ndcg@{BREAKDOWN_CUTOFF} of items with {group['from']:,} to {group['to']:,} users" for group in first]
        rows = [
            [model, *(f"{group['ndcg']:.4f}" for group in by_group), f"{by_group[-1]['listed']:.1%}"]
            for model, by_group in groups.items()
        ]
        return markdown_table(["", *heads, "share of the lists of the last group"], rows)

    def curves(self, table: str, data: str, along: str = "rank") -> str:
        """Return the tuned curves of a table by rank, or those along a parameter: a row for each value."""
        self._find(table)
        rows = [row for row in self._curves(table, data, along) if "tuned" in row or along != "rank"]
        values = {label_curve(row, rows): {point["at"]: point["value"] for point in row["points"]} for row in rows}
        settings = sorted({setting for curve in values.values() for setting in curve})
        lines = [[f"{at:,}", *(format_figure(curve.get(at), "") for curve in values.values())] for at in settings]
        return markdown_table([along, *values], lines) if lines else f"*Not run yet: `gramian benchmark {table}`.*"

    def epochs(self, table: str, data: str) -> str:
        """Return the best epoch of every curve by epochs, and the training time until then; the best curve first."""
        self._find(table)
        curves = self._curves(table, data, "epoch")
        best = {label_curve(row, curves): max(row["points"], key=lambda point: point["value"]) for row in curves}
        rows = [
            [name, format_point(point), str(point["at"]), format_duration(point["seconds"])]
            for name, point in sorted(best.items(), key=lambda item: -item[1]["value"])
        ]
        metric = curves[0]["metric"] if curves else "metric"
        return markdown_table(["", f"best {metric}, validation", "epoch", "training time until then"], rows)

    def claims(self, table: str) -> str:
        """Return the claims of a table: what the paper says, the verdict, and the evidence."""
        judged = judge_claims(self.benchmark, self._find(table))
        return "\n".join(f"- {claim.says} **{claim.headline}** {claim.evidence}".rstrip() for claim in judged)

    def _find(self, table: str) -> Experiment:
        if table not in self.experiments:
            raise UnknownId(f"a table among {', '.join(self.experiments)}", repr(table), "Correct the template")
        return self.experiments[table]

    def _cells(self, table: str, data: str) -> tuple[Experiment, list[Cell]]:
        experiment = self._find(table)
        return experiment, [cell for cell in self.benchmark.cells_of(experiment) if cell.data == data]

    def _curves(self, table: str, data: str, along: str) -> list[JournalRow]:
        rows = self.benchmark.curves.values()
        return [row for row in rows if (row["table"], row["data"], row["along"]) == (table, data, along)]


def has_ndcg_by_popularity(cell: Cell) -> bool:
    """Whether the fit of a cell was broken down by popularity, with an ndcg for each group."""
    return cell.fit is not None and all("ndcg" in group for group in cell.fit.get("popularity", [{}]))


def format_point(point: JournalRow) -> str:
    """Return the value of a point, with its standard deviation over seeds if there were several."""
    return f"{point['value']:.4f}" + (f" ± {point['deviation']:.4f}" if "deviation" in point else "")


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, in which a vertical bar inside a field is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(field.replace("|", "\\|") for field in line) + " |" for line in lines)


def format_params(recipe: JournalRow | None) -> str:
    """Return the parameters of a recipe in a journal, as in 'dropout=0.5, l2=300'."""
    return "" if recipe is None else ", ".join(format_json_params(recipe))


def join_figures(values: Sequence[float | None], metrics: Sequence[str]) -> str:
    """Return the figures of several metrics, separated by slashes; empty if there are none."""
    if all(value is None for value in values):
        return ""
    return " / ".join(format_figure(value, metric) or "–" for value, metric in zip(values, metrics, strict=True))


def join_changes(theirs: Sequence[float | None], ours: Sequence[float | None], metrics: Sequence[str]) -> str:
    """Return our figures relative to theirs, in per cent (for a cost, the ratio), separated by slashes."""
    changes = []
    for their, our, metric in zip(theirs, ours, metrics, strict=True):
        if their and our is not None:
            changes.append(f"× {our / their:.2g}" if metric in COSTS else f"{our / their - 1:+.1%}")
    return " / ".join(changes)
