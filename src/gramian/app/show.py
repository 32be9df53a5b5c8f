"""Tables for the terminal. Titles and ids are strangers' text: they are printed as they are, never as markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from gramian.app.trial import Trial
from gramian.linalg.memory import readable
from gramian.recommender import Recommendations, Recommender


def leaderboard(trials: Sequence[Trial]) -> Table:
    """Best first by the first metric."""
    metrics = list(trials[0].report.mean)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for metric in metrics:
        table.add_column(metric, justify="right", no_wrap=True)
    table.add_column("fit", justify="right", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("settings")
    ranked = sorted(trials, key=lambda trial: -trial.report[metrics[0]])
    for place, trial in enumerate(ranked):
        errors = trial.report.stderr
        cells = [f"{mean:.4f}" + (f" ±{errors[m]:.4f}" if m in errors else "") for m, mean in trial.report.mean.items()]
        cost = [f"{trial.seconds:.2f} s", readable(trial.peak_bytes)]
        name = type(trial.recipe).__name__
        table.add_row(name, *cells, *cost, trial.recipe.settings, style="green" if place == 0 else None)
    return table


def recommendations(result: Recommendations, row: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "item", "score"):
        table.add_column(name, justify="left" if name == "item" else "right")
    for rank, (item, score) in enumerate(zip(result.items[row], result.scores[row], strict=True), start=1):
        name = str(item) if result.titles is None else f"{result.titles[row][rank - 1]}  [{item}]"
        table.add_row(str(rank), Text(name), f"{score:.4f}")
    return table


def reasons(model: Recommender, history: list[object], item: object, n: int = 3, width: int = 12) -> Text:
    """The strongest contributions as bars."""
    explanation = model.explain(history, item)
    strongest = list(explanation.items())[:n]
    longest = max((abs(value) for _, value in strongest), default=0) or 1
    text = Text()
    for item_id, value in strongest:
        bar = "█" * max(1, round(abs(value) / longest * width))
        text.append(f"      {bar:<{width}} {value:+.3f}  {explanation.titles.get(item_id, item_id)}\n", style="dim")
    return text


def status(what: str) -> Status:
    """A spinner on stderr while something runs."""
    return Console(stderr=True).status(what)


out = Console()
