"""Several models on the same users: the best first, how far the others are behind, and whether that is significant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from gramian.data.frames import convert_frame, render_html
from gramian.errors import InvalidInput
from gramian.evaluation.report import Comparison, Report

SIGNIFICANCE = 0.05  # p-value below which a difference counts, the usual convention


@dataclass(frozen=True, repr=False)
class ModelComparison:
    """Models in the order of a metric, best first, each compared with the best, user by user.

    Parameters
    ----------
    metric
        The metric.
    reports
        Name of a model → its report, best first.
    behind
        Name of each model but the best → its paired difference from the best, with standard error and p-value. The p-values
        are corrected for the number of models (`correct_p_values`).
    """

    metric: str
    reports: dict[str, Report]
    behind: dict[str, Comparison]

    @property
    def best(self) -> str:
        """The model with the highest mean, whether or not its lead is significant."""
        return next(iter(self.reports))

    @property
    def winner(self) -> str | None:
        """The best model if it is significantly better than every other; None where the users are too few to tell."""
        return self.best if len(self.reports) > 1 and self.tied == [self.best] else None

    @property
    def tied(self) -> list[str]:
        """The models that are not significantly worse than the best, which is the first of them."""
        worse = {name for name, comparison in self.behind.items() if comparison.p_value < SIGNIFICANCE}
        return [name for name in self.reports if name not in worse]

    def frame(self, library: str = "polars") -> Any:
        """Return one row per model: every metric with its standard error, then how far it is behind the best, and p.

        Parameters
        ----------
        library
            "polars", "pandas" or "arrow".
        """
        rows = []
        for name, report in self.reports.items():
            row: dict[str, Any] = {"model": name}
            for metric, mean in report.mean.items():
                row |= {metric: mean, f"{metric} stderr": report.stderr.get(metric)}
            paired = self.behind.get(name)
            row |= {"behind": None, "behind stderr": None, "p": None}
            if paired is not None:
                row |= {"behind": -paired.difference, "behind stderr": paired.stderr, "p": paired.p_value}
            rows.append(row)
        return convert_frame(pl.DataFrame(rows, infer_schema_length=None), library)

    def __str__(self) -> str:
        table = [self._heads(), *self._rows()]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        lines = ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([*lines, self._conclusion()])

    def __repr__(self) -> str:
        return f"ModelComparison({len(self.reports)} models by {self.metric}; {self._conclusion()})"

    def _repr_html_(self) -> str:
        """The models as a table, for notebooks."""
        return render_html(self._conclusion(), self._heads(), self._rows())

    def _heads(self) -> tuple[str, str, str, str]:
        return "model", self.metric, "behind", "p"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for name, report in self.reports.items():
            figure, comparison = f"{report[self.metric]:.4f} ± {report.stderr[self.metric]:.4f}", self.behind.get(name)
            behind = "" if comparison is None else f"{-comparison.difference:.4f} ± {comparison.stderr:.4f}"
            rows.append((name, figure, behind, "" if comparison is None else f"{comparison.p_value:.2g}"))
        return rows

    def _conclusion(self) -> str:
        if len(self.reports) == 1:
            return f"{self.best} alone"
        if self.winner:
            return f"{self.winner} is significantly better than the others"
        return f"no significant difference between {', '.join(self.tied)}"


def compare(reports: Mapping[str, Report], metric: str | None = None) -> ModelComparison:
    """Compare models that were evaluated on the same split, each with the best, by paired t-tests over the users.

    The p-values are corrected for the number of tests by Holm's method.

    Parameters
    ----------
    reports
        Name of a model → its report.
    metric
        The metric that orders them; the first one of the reports if left out.

    Returns
    -------
    ModelComparison
        `winner` is None unless the best model is significantly better than every other (p < 0.05).
    """
    if not isinstance(reports, Mapping) or not reports or not all(isinstance(r, Report) for r in reports.values()):
        raise InvalidInput("reports by the names of their models", f"{reports!r:.80}", 'Pass {"EASE": report, ...}')
    first = next(iter(reports.values()))
    metric = next(iter(first.per_user), first.metrics[0]) if metric is None else metric
    for report in reports.values():
        first.compare(report, metric)  # checks that both have the metric, on the same users
    ordered = sorted(reports.items(), key=lambda pair: -pair[1][metric])
    best = ordered[0][1]
    behind = correct_p_values({name: report.compare(best, metric) for name, report in ordered[1:]})
    return ModelComparison(metric, dict(ordered), behind)


def correct_p_values(comparisons: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Correct the p-values of several tests for their number, so that the chance of any false discovery stays at the level.

    The step-down method (Holm 1979): the smallest of m p-values is multiplied by m, the next by m − 1 and so on, and none
    becomes smaller than the one before it or larger than 1.

    Parameters
    ----------
    comparisons
        Name of a test → its outcome. A p-value of NaN, of a test with a single user, stays and does not count.

    Returns
    -------
    dict
        The comparisons with corrected p-values, in the same order.
    """
    tests = sorted((test.p_value, name) for name, test in comparisons.items() if test.p_value == test.p_value)
    corrected, largest = dict(comparisons), 0.0
    for position, (p_value, name) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - position) * p_value))
        corrected[name] = replace(comparisons[name], p_value=largest)
    return corrected
