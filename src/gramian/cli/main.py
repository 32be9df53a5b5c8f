"""The `gramian` command: its commands, its global options and its errors."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version as package_version
from typing import Annotated

import typer
from numba.core.event import install_listener
from typer.exceptions import TyperException

from gramian.cli.advice import format_error, option_flags, translate
from gramian.cli.auto import auto_command, describe_command
from gramian.cli.benchmark import benchmark_command, report_command
from gramian.cli.evaluate import epochs_command, evaluate_command, ranks_command, tune_command
from gramian.cli.fit import fit_command
from gramian.cli.info import datasets_command, demo_command, models_command
from gramian.cli.mcp import mcp_command
from gramian.cli.model_options import add_parameter_flags
from gramian.cli.recommend import explain_command, factors_command, missing_command, recommend_command, similar_command
from gramian.cli.render import COMPILE_WATCH, note, out, print_text
from gramian.cli.serve import serve_command
from gramian.cli.verify import verify_command
from gramian.cli.warm_up import warm_up_command
from gramian.core.registry import load_plugins
from gramian.errors import GramianError
from gramian.progress import DISPLAY

INTERRUPTED = 130  # the exit code that Typer gives to Ctrl-C
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {  # name → function and example
    "demo": (demo_command, "gramian demo"),
    "describe": (describe_command, "gramian describe ratings.csv"),
    "auto": (auto_command, "gramian auto ratings.csv --budget 30m --out my-model, then open my-model.html"),
    "models": (models_command, "gramian models edlae"),
    "fit": (fit_command, 'gramian fit ratings.csv --min-value rating=4 --model "edlae(dropout=0.3, l2=200)" --out my-model'),
    "recommend": (recommend_command, 'gramian recommend my-model --history "Heat (1995)" --history 260 -k 5'),
    "similar": (similar_command, 'gramian similar my-model "Heat (1995)" -k 5'),
    "explain": (explain_command, 'gramian explain my-model "Heat (1995)" --history "Casino (1995)" --history 260'),
    "missing": (missing_command, 'gramian missing my-model "Heat (1995)" --history "Casino (1995)" --history 260'),
    "factors": (factors_command, "gramian factors my-model --out items.parquet"),
    "evaluate": (
        evaluate_command,
        'gramian evaluate movielens --min-value 4 --model "ease(l2=300)" --model "ials(rank=64, l2=0.003)"',
    ),
    "tune": (tune_command, "gramian tune movielens --min-value 4 --model deql --space l2=30,100,300 --journal deql.jsonl"),
    "ranks": (ranks_command, "gramian ranks movielens --min-value 4 --model lowrankedlae --ranks 8,32,128 --out ranks.svg"),
    "epochs": (
        epochs_command,
        'gramian epochs movielens --min-value 4 --model "ials(rank=64)" --out my-model',
    ),
    "benchmark": (
        benchmark_command,
        "gramian benchmark movielens, then gramian report. On your own data: "
        "gramian benchmark --data ratings.csv --min-value rating=4 --models ease,edlae,ials",
    ),
    "report": (report_command, "gramian report --journal benchmark.jsonl --out report"),
    "serve": (serve_command, "gramian serve my-model my-other-model --port 8000, then open http://127.0.0.1:8000"),
    "mcp": (mcp_command, "gramian mcp my-model"),
    "verify": (verify_command, "gramian verify receipt.json my-model --user 17"),
    "datasets": (datasets_command, "gramian datasets"),
    "warm-up": (warm_up_command, "gramian warm-up edlae ials"),
}


def build_app() -> typer.Typer:
    """Build the application, with a flag for each parameter of the models that are registered now."""
    app = typer.Typer(
        help="Recommendations from implicit feedback: one Gram matrix, every linear recommender.",
        epilog="Try first: gramian demo",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(root_command)
    for name, (function, example) in COMMANDS.items():
        command = add_parameter_flags(function) if "flags" in inspect.signature(function).parameters else function
        app.command(name, epilog=f"Example: {example}")(command)
    return app


def root_command(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    DISPLAY.writes_lines = context.invoked_subcommand not in ("serve", "mcp")  # whose stderr is a log
    if version:
        print_text(package_version("gramian"))
    elif context.invoked_subcommand is None:
        out.print(context.get_help(), markup=False)


def run() -> None:
    """Run the command line. An error of the library or of the usage is one line on stderr and exit code 2."""
    flags: dict[str, str] = {}
    warnings.showwarning = lambda message, *_, **__: note(f"gramian: note: {translate(str(message), flags)}")
    try:
        load_plugins()
        app = build_app()
        flags |= option_flags(app, sys.argv)
        with install_listener("numba:compile", COMPILE_WATCH):
            code = app(prog_name="gramian", standalone_mode=False)
        if code == INTERRUPTED:
            resumable = {"--scratch", "--journal", "benchmark", "auto"} & {word.partition("=")[0] for word in sys.argv}
            again = "; run the same command again to continue" if resumable else ""
            print(f"gramian: interrupted{again}", file=sys.stderr)
        sys.exit(code)
    except GramianError as error:
        problem = format_error(error, flags)
    except TyperException as error:
        problem = error.format_message()
    except OSError as error:
        problem = f"{error.filename or ''} {error.strerror or error}".strip()
    print("gramian: " + " ".join(problem.split()), file=sys.stderr)
    sys.exit(2)
