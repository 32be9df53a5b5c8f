"""Text, lists and JSON for the terminal. Titles and ids are untrusted text: they are never parsed as markup."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numba.core.event import Listener
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gramian.core.results import Explanation, Recommendations
from gramian.progress import print_line

out = Console()  # stdout; what is said while work is under way goes to `gramian.progress.STDERR`


def print_text(text: str, style: str | None = None) -> None:
    """Print text as it is, without markup, and without breaking its lines."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_paragraph(text: str, style: str | None = None) -> None:
    """Print sentences without markup, and break their lines between words."""
    out.print(text, style=style, markup=False, highlight=False)


def print_json(value: Any) -> None:
    """Print a value as JSON on one line."""
    print(json.dumps(replace_nan(value), default=str, allow_nan=False))


def replace_nan(value: Any) -> Any:
    """Return the value with None in place of NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: replace_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nan(entry) for entry in value]
    return None if isinstance(value, float) and value != value else value


def print_next_command(*words: object) -> None:
    """Print a command to run next, such that it can be pasted into a shell as it is."""
    print_text(f"Next: {program_name()} {shlex.join(map(str, words))}")


def program_name() -> str:
    """Return the command that runs Gramian: its name if it is on the PATH, else its path or "python -m gramian"."""
    program = sys.argv[0]
    if Path(program).name == "__main__.py":
        return "python -m gramian"
    is_on_path = shutil.which(Path(program).name) == shutil.which(program)
    return Path(program).name if is_on_path else shlex.quote(program)


def note(text: str) -> None:
    """Print a line about the work under way to stderr."""
    print_line(text, style="dim")


def announce(text: str) -> None:
    """Print a line about the work under way to stderr, if that is a terminal.

    A line rather than a spinner, because the library draws progress bars of its own.
    """
    if sys.stderr.isatty():
        note(text)


class CompileWatch(Listener):
    """Listens for Numba compilations: announces the first, and records it for a footnote to measured times."""

    has_compiled = False

    def on_start(self, event: Any) -> None:
        """Announce the first compilation. Kernels that are read from Numba's cache cause no event."""
        if not self.has_compiled:
            announce("compiling kernels (first run on this machine)")
        self.has_compiled = True

    def on_end(self, event: Any) -> None:
        """Do nothing."""


COMPILE_WATCH = CompileWatch()


def print_compile_footnote() -> None:
    """Say that times include compilation, if they do."""
    if COMPILE_WATCH.has_compiled:
        print_paragraph("The time includes compiling kernels, which happens only on the first run on a machine.", style="dim")


def plain_table(title: str | None = None) -> Table:
    """Return an empty table without lines."""
    text = None if title is None else Text(title)
    return Table(box=None, pad_edge=False, header_style="bold", title=text, title_justify="left")


def print_recommendations(result: Recommendations, row: int, suggest: Callable[[Any], list[str]] = lambda name: []) -> None:
    """Print one list, and what there is to say about its history. `suggest` returns names close to an unknown item."""
    if result.users is not None:
        print_text(f"user {result.users[row]}", style="bold")
    if result.unknown and result.unknown[row]:
        print_text(f"ignored, because the model does not know them: {', '.join(map(str, result.unknown[row]))}")
        for name in result.unknown[row]:
            if close := suggest(name):
                print_text(f"close to {name}: {'; '.join(close)}")
    if result.fallback and result.fallback[row]:
        print_text("the history has no item that the model knows: these are the most popular items")
    out.print(recommendation_table(result, row))


def recommendation_table(result: Recommendations, row: int) -> Table:
    """Return one list as a table."""
    table = plain_table()
    from_ranks = result.from_ranks(row) if result.trace else []
    for name in ("rank", *(["was"] if from_ranks else []), "item", "score"):
        table.add_column(name, justify="left" if name == "item" else "right", no_wrap=name != "item")
    for rank, (item, score) in enumerate(zip(result.items[row], result.scores[row], strict=True), start=1):
        name = str(item) if result.titles is None else f"{result.titles[row][rank - 1]}  [{item}]"
        table.add_row(str(rank), *(map(str, from_ranks[rank - 1 : rank])), Text(name), f"{score:.4f}")
    return table


def print_explanation(explanation: Explanation, n: int = 3, width: int = 12) -> None:
    """Print the n strongest contributions to a score as bars, and the sum of the others."""
    strongest = list(explanation.items())[:n]
    longest = max((abs(value) for _, value in strongest), default=0) or 1
    text = Text()
    for item, value in strongest:
        bar = "█" * max(1, round(abs(value) / longest * width))
        style = "dim" if value >= 0 else "dim red"
        text.append(f"      {bar:<{width}} {value:+.3f}  {explanation.titles.get(item, item)}\n", style=style)
    if len(explanation) > n:
        rest = sum(list(explanation.values())[n:])
        text.append(f"      {'':<{width}} {rest:+.3f}  {len(explanation) - n:,} others together\n", style="dim")
    out.print(text, end="", no_wrap=True, overflow="ellipsis")
